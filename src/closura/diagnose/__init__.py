"""Verdict, and scores against the truth where there is one."""

from ._checks import check_table as check_table
from ._discretisation_error import (
    bad_scheme as bad_scheme,
    often_too_coarse as often_too_coarse,
    refinement_error as refinement_error,
)
from ._identifiability import confounded as confounded
from ._membership import (
    EXPENSIVE as EXPENSIVE,
    LEVEL as LEVEL,
    MOST as MOST,
    Membership as Membership,
    membership as membership,
)
from ._remarks import Remark as Remark, remarks as remarks
from ._surrogate_error import spot_check as spot_check
from ._trajectories import Trajectories as Trajectories, trajectories as trajectories
from ._truth import (
    Truth as Truth,
    closure_mse as closure_mse,
    closure_mse_visited as closure_mse_visited,
    on_points as on_points,
    theta_scores as theta_scores,
)
from ._verdict import Evidence as Evidence, SurrogateError as SurrogateError, Verdict as Verdict, judge as judge
