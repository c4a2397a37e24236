"""Verdict, and scores against the truth where there is one."""

from ._checks import check_table as check_table
from ._contraction import (
    DECIDED as DECIDED,
    contraction as contraction,
    law_contraction as law_contraction,
    typical_inputs as typical_inputs,
    what_data_leave_open as what_data_leave_open,
)
from ._discretisation_error import (
    Coarse as Coarse,
    bad_scheme as bad_scheme,
    often_too_coarse as often_too_coarse,
    refinement_error as refinement_error,
)
from ._foresight import foreseen as foreseen
from ._identifiability import confounded as confounded
from ._membership import LEVEL as LEVEL, Membership as Membership, membership as membership
from ._remarks import Remark as Remark, remarks as remarks
from ._trajectories import (
    SurrogateError as SurrogateError,
    Trajectories as Trajectories,
    Truth as Truth,
    closure_mse_visited as closure_mse_visited,
    on_points as on_points,
    predicted as predicted,
    scores as scores,
    solved_draws as solved_draws,
    spot_check as spot_check,
    theta_scores as theta_scores,
    trajectories as trajectories,
)
from ._undecided import Party as Party, Undecided as Undecided
from ._verdict import Evidence as Evidence, Fault as Fault, Verdict as Verdict, judge as judge
