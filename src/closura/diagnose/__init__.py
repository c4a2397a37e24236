"""Verdict, and scores against the truth where there is one."""

from ._checks import check_table as check_table
from ._discretisation_error import bad_scheme as bad_scheme
from ._discretisation_error import often_too_coarse as often_too_coarse
from ._discretisation_error import refinement_error as refinement_error
from ._identifiability import confounded as confounded
from ._membership import LEVEL as LEVEL
from ._membership import Membership as Membership
from ._membership import membership as membership
from ._remarks import Remark as Remark
from ._remarks import remarks as remarks
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
