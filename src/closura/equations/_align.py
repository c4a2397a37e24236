"""Data and an equation, put together: the data as the equation sees them, the equation with what they tell of each system.

Priors nobody stated come from the data where they tell a scale, much wider, so that observations are not used twice, and
are said aloud in any case.
"""

import copy
import dataclasses

import jax.numpy as jnp
import numpy as np

from ..data import DataError, Observations
from ..parameters import Interval, Parameter, Parameters, Positive, Real
from ._base import Equation

WIDER = 5.0  # than what observations tell: as a prior they then count for a hundredth of one system at most


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
    parameters, known = _with_defaults(problem, aligned), problem.parameters.known_inputs
    if known:
        parameters = copy.copy(parameters)
        times = problem.signal_times() if known.signals else np.zeros(0)
        parameters.known_inputs = known.bound(aligned.constants, aligned.signals, times)
    return problem if parameters is problem.parameters else problem.with_parameters(parameters)


def _with_defaults(problem: Equation, data: Observations) -> Parameters:
    """The parameters of a problem; those of which nothing is stated, and which are where an observed state begins, take their
    scale from the first observations."""
    parameters = problem.parameters
    silent = [name for name, kind in parameters.kinds.items() if kind.silent and not isinstance(kind, Interval)]
    if not silent:
        return parameters
    began, kinds, notes = _beginnings(problem, data), dict(parameters.kinds), []
    for name in silent:
        found = _scaled(kinds[name], *began[name]) if name in began else None
        kinds[name] = kinds[name] if found is None else found
        kind, source = kinds[name], "no prior stated" if found is None else "from the first observations"
        factor = f", give or take a factor of {np.exp(kind.width):.2g}"
        about = factor if isinstance(kind, Positive) else f" ± {kind.width:.2g}"
        notes.append(f"{name} is taken to be about {kind.guess:.3g}{about} ({source})")
    made = copy.copy(parameters)
    made.kinds, made.notes = kinds, ("; ".join(notes) + "; guess= or prior= say better",)
    return made


def _scaled(kind: Parameter, first: np.ndarray, every: np.ndarray) -> Parameter | None:
    """A kind of parameter about where systems began; how far from there, all values together tell."""
    if isinstance(kind, Positive):
        positive = first[first > 0]
        return dataclasses.replace(kind, guess=float(np.median(positive))) if positive.size else None
    scale = float(max(2 * np.std(first), np.std(every)))
    if not (isinstance(kind, Real) and scale > 0):
        return None
    spread = kind.spread if kind.spread != 0.5 * kind.width else 0.5 * scale
    found = dataclasses.replace(kind, guess=float(np.median(first)), width=WIDER * scale, spread=spread)
    object.__setattr__(found, "near", 1 / WIDER)
    return found


def _beginnings(problem: Equation, data: Observations) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Parameters that are the initial value of an observed state: its first observations, one a system, and all of them."""
    parameters, columns = problem.parameters, problem.operator.columns
    random = np.random.default_rng(0).normal(size=(3, len(parameters)))
    theta = jnp.asarray(parameters.mean + random, float)
    found = [problem.initial_state(row, 0) for row in theta]
    if columns is None or any(start is None for start in found):
        return {}
    starts = np.asarray(found, float)
    physical = np.asarray(parameters.to_physical(theta), float)
    began = {}
    for j, name in enumerate(parameters.names):
        same = np.flatnonzero(np.all(np.isclose(starts, physical[:, [j]], rtol=1e-5), axis=0))
        seen = np.flatnonzero(np.isin(columns, same[:1]))
        here = data.mask & np.isin(data.quantity, seen)
        if seen.size and here.any():
            observed = here.any(axis=1)
            first = data.value[np.arange(len(here)), np.argmax(here, axis=1)][observed]
            began[name] = first, data.value[here]
    return began
