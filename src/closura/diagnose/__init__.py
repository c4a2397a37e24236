"""Verdict, and scores against the truth where there is one."""

from ._checks import check_table as check_table
from ._identifiability import confounded as confounded
from ._interpolation_error import reading_error as reading_error
from ._interpolation_error import unstable as unstable
from ._membership import EXPENSIVE as EXPENSIVE
from ._membership import LEVEL as LEVEL
from ._membership import MOST as MOST
from ._membership import Membership as Membership
from ._membership import membership as membership
from ._remarks import Remark as Remark
from ._remarks import remarks as remarks
from ._step_error import often_too_long as often_too_long
from ._step_error import step_error as step_error
from ._step_error import too_long as too_long
from ._surrogate_error import spot_check as spot_check
from ._trajectories import Trajectories as Trajectories
from ._trajectories import trajectories as trajectories
from ._truth import Truth as Truth
from ._truth import closure_mse as closure_mse
from ._truth import closure_mse_visited as closure_mse_visited
from ._truth import on_points as on_points
from ._truth import theta_scores as theta_scores
from ._verdict import Evidence as Evidence
from ._verdict import SurrogateError as SurrogateError
from ._verdict import Verdict as Verdict
from ._verdict import judge as judge
