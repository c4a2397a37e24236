"""A problem that goes on for longer than it was stated."""

import copy
import math
from typing import Any

from ._problem import Problem
from ._shared import ProblemError
from .evolution._evolution import Evolution
from .ode._ode import ODE


def extended(problem: Problem, until: float) -> Problem:
    """The same problem with a span that reaches `until`, in the same steps (rounded up to a whole one, or a snapshot)."""
    if not isinstance(problem, ODE | Evolution):
        raise ProblemError(f"{problem.name} does not change in time: there is nothing to forecast; leave out until")
    begin, end = problem.span
    if not math.isfinite(until) or until <= begin:
        raise ProblemError(f"until={until:g} is not after the problem's start, {begin:g}; name a later time")
    if until <= end * (1 + 1e-9) if end > 0 else until <= end:
        return problem
    longer: Any = copy.copy(problem)
    kept = problem.steps if isinstance(problem, ODE) else problem.snapshots
    interval = (end - begin) / kept
    count = math.ceil((until - begin) / interval - 1e-6)
    longer.span = (begin, begin + count * interval)
    if isinstance(problem, ODE):
        longer.steps = count
    else:
        stride = problem.stride  # found for the span as stated: the step stays
        longer.snapshots, longer.stride, longer._stride = count, stride, stride
        longer._given = {**problem._given, "span": longer.span, "snapshots": count, "dt": problem.dt}
    return longer
