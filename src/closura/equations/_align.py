"""Data and an equation, put together: the data as the equation sees them, the equation with what they tell of each system."""

import copy

import numpy as np

from ..data import DataError, Observations
from ._base import Equation
from ._defaults import with_defaults


def align(problem: Equation, data: Observations) -> tuple[Equation, Observations]:
    """Both, put together; or a message why that cannot be."""
    aligned = align_data(problem, data)
    total = int(aligned.counts.sum())
    if total <= len(problem.parameters):
        raise DataError(
            f"the table holds {total} observation{'s' * (total != 1)} in all, not more than the {len(problem.parameters)} "
            f"parameters of one system ({', '.join(problem.parameters.names)}); add data, or fix some parameters"
        )
    return bind_inputs(problem, aligned), aligned


def align_data(problem: Equation, data: Observations) -> Observations:
    """Data as an equation sees them: its quantities in its order, and the columns and signals it reads."""
    known = problem.parameters.known_inputs
    covariates = [column for columns in problem.covariates.values() for column in columns]
    constants = list(dict.fromkeys([*covariates, *known.columns.values()]))
    bounds, signals = dict(zip(problem.axes, problem.bounds)), list(known.signal_columns.values())
    return data.matched(problem.observed, bounds, problem.sigma, constants, signals)


def bind_inputs(problem: Equation, aligned: Observations) -> Equation:
    """The equation with what (aligned) data tell of each system: known inputs, and priors nobody stated."""
    parameters, known = with_defaults(problem, aligned), problem.parameters.known_inputs
    if known:
        parameters = copy.copy(parameters)
        times = problem.signal_times() if known.signals else np.zeros(0)
        parameters.known_inputs = known.bound(aligned.constants, aligned.signals, times)
    return problem if parameters is problem.parameters else problem.with_parameters(parameters)
