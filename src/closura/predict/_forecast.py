"""Predictions: posterior draws pushed through the solver, and what they say of the next measurement."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from ..data import DataError, Observations, by_quantity
from ..equations import Equation, ForwardModel, bind_inputs
from ..forward import Likelihood, likelihood, noise_of
from ..laws import Law, SolverLaws
from ..parameters import Prior
from ._fleet import Fleet

LEAST, MOST, NUMBERS = 100, 400, 20_000_000
SURVEYED = 16
OUTSIDE = 0.05  # share of calls outside the support that is worth a word; one in a hundred is by its definition
COLUMNS = ("mean", "sd", "2.5%", "97.5%", "measured 2.5%", "measured 97.5%")


def predict(fleet: Fleet, times: Any = None, until: float | None = None) -> pd.DataFrame:
    """The systems of the fit themselves."""
    problem, places = grid_for(fleet.problem, times, until)
    problem = problem if problem is fleet.problem else bind_inputs(problem, fleet.data)  # signals may go on for longer
    theta, chosen = some_draws(fleet.theta, len(fleet.data.systems) * len(places) * len(problem.observed))
    inferred = fleet.log_sigma
    sizes = noise_sizes(fleet, fleet.data, None if inferred is None else inferred[chosen, None])
    laws = fleet.laws(fleet.own_laws(chosen))
    paths = pushed(problem, fleet.data, laws, theta, places)
    if problem is not fleet.problem:  # within its span the fleet itself is what supports the law
        end = fleet.problem.bounds[0][1]
        for remark in beyond_support(problem, fleet.data, fleet.closures, laws, theta, end):
            warnings.warn(remark, stacklevel=3)
    return summarised(problem, fleet.data.systems, places, paths, sizes)


def grid_for(problem: Equation, times: Any, until: float | None) -> tuple[Equation, np.ndarray]:
    """The problem, long enough for what is asked, and the places (point, axis) to predict at."""
    if times is None:
        longer = problem if until is None else problem.extended(until)
        return longer, longer.points
    if "time" not in problem.axes:
        raise DataError(f"{problem.name} does not change in time; leave out times to predict on its grid")
    begin = problem.bounds[problem.axes.index("time")][0]
    try:
        at = np.atleast_1d(np.asarray(times, float)).ravel()
    except (TypeError, ValueError):
        at = np.zeros(0)
    if not at.size or not np.isfinite(at).all() or at.min() < begin:
        got = f"{at.min():g}" if at.size else repr(times)
        raise DataError(f"times must be numbers from the problem's start, {begin:g}, on; got {got}")
    last = max(float(at.max()), until or -np.inf)
    longer = problem if last == begin else problem.extended(last)  # the start itself needs no longer span
    lines = at, *(np.unique(line) for line in longer.points.T[1:])
    return longer, np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(lines))


def some_draws(draws: np.ndarray, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """As many as intervals need and memory allows, evenly from all, and which; `numbers` is what one of them makes."""
    wanted = int(np.clip(NUMBERS // numbers, LEAST, MOST))
    chosen = np.linspace(0, len(draws) - 1, min(wanted, len(draws))).astype(int)
    return draws[chosen], chosen


def pushed(
    problem: Equation, data: Observations, laws: tuple[SolverLaws, int], theta: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Observed quantities (draw, system, point, quantity) at the same places of every system, by the solver.

    `laws` as `Fleet.laws` gives them, at the draws of theta.
    """
    shape = len(data.systems), len(places), len(problem.observed)
    everywhere = np.broadcast_to(places[:, None], (shape[0], *shape[1:], places.shape[1]))
    where = replace(
        data,
        quantities=problem.observed,
        place=everywhere.reshape(shape[0], -1, places.shape[1]),
        quantity=np.tile(np.arange(shape[2], dtype=np.int32), (shape[0], shape[1])),
        # Nothing was measured there: any value that the noise allows will do.
        value=np.full((shape[0], shape[1] * shape[2]), data.value[data.mask][0]),
        sigma=np.full((shape[0], shape[1] * shape[2]), np.nan),
        mask=np.ones((shape[0], shape[1] * shape[2]), bool),
    )
    paths = np.asarray(_run(likelihood(problem, where), jnp.asarray(theta, float), *laws), float)
    return paths.reshape(len(theta), *shape)


@eqx.filter_jit
def _run(target: Likelihood, theta: Array, laws: SolverLaws, axes: int) -> Array:
    return target.predict(theta, target.model(dict(laws)), context_axes=axes)


def noise_sizes(fleet: Fleet, data: Observations, log_sigma: np.ndarray | None) -> np.ndarray:
    """Standard size of the noise of a new measurement, (draw or 1, system or 1, quantity); NaN where nobody knows it.

    Inferred ones (`log_sigma`, (draw, system or 1, quantity)) first, then what the problem states, then what tables do: the
    system's own, or else the median of the fleet.
    """
    sizes = np.full((1, len(data.systems), len(data.quantities)), np.nan)
    stated = by_quantity(fleet.problem.sigma, fleet.problem.observed)
    for number, told in enumerate(stated.values()):
        if told is not None and not isinstance(told, Prior):
            sizes[..., number] = told
        for table in (fleet.data, data):
            here = table.mask & (table.quantity == number) & np.isfinite(table.sigma)
            if not here.any():
                continue
            usual = np.median(table.sigma[here])
            if table is not data:
                sizes[..., number] = usual
                continue
            own = [np.median(s[h]) if h.any() else usual for s, h in zip(table.sigma, here)]
            sizes[..., number] = own
    if fleet.log_sigma is not None:  # of a quantity these data do not have
        sizes = np.where(np.isnan(sizes), np.exp(np.median(fleet.log_sigma, axis=0)), sizes)
    if log_sigma is None:
        return sizes
    return np.where(np.isfinite(log_sigma), np.exp(log_sigma), sizes)


def summarised(
    problem: Equation, systems: tuple[str, ...], places: np.ndarray, paths: np.ndarray, sizes: np.ndarray, seed: int = 0
) -> pd.DataFrame:
    """A row for every system, place and quantity."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        low, high = np.quantile(paths, [0.025, 0.975], axis=0)
        columns = [paths.mean(axis=0), paths.std(axis=0), low, high]
        measured = noise_of(problem).measurements(seed, paths, sizes[:, :, None])
        below, above = np.quantile(measured, [0.025, 0.975], axis=0)
        # A measurement scatters no less than what it measures, whatever so many draws say.
        columns += [np.minimum(below, low), np.maximum(above, high)]
    count, points, quantities = columns[0].shape
    system, point, quantity = (a.ravel() for a in np.indices((count, points, quantities)))
    frame = {"system": np.array(systems)[system], **dict(zip(problem.axes, places[point].T))}
    frame["quantity"] = np.array(problem.observed)[quantity]
    return pd.DataFrame({**frame, **{name: column.ravel() for name, column in zip(COLUMNS, columns)}})


def beyond_support(
    problem: Equation,
    data: Observations,
    closures: Mapping[str, Law],
    laws: tuple[SolverLaws, int],
    theta: np.ndarray,
    after: float = -np.inf,
) -> list[str]:
    """In words, which systems ask which law for more than data supported (after a time), and when first."""
    asked = {name: law for name, law in closures.items() if law.learned and law.support is not None}
    if not asked:
        return []
    chosen = np.linspace(0, len(theta) - 1, min(SURVEYED, len(theta))).astype(int)
    some, (views, axes) = theta[chosen], laws
    views = jax.tree.map(lambda a: a[chosen], views) if axes else views
    forward, _ = problem.solver(data)
    calls, times = _law_inputs(forward, jnp.asarray(some, float), dict(views), axes), forward.call_times
    return [said for name, law in asked.items() for said in _beyond(data, law, np.asarray(calls[name]), times, after)]


@eqx.filter_jit
def _law_inputs(forward: ForwardModel, theta: Array, laws: SolverLaws, axes: int) -> dict[str, Array]:
    of_systems = jax.vmap(lambda t, k, laws: forward.law_inputs(t, laws, k), (0, 0, 0 if axes == 2 else None))
    return jax.vmap(of_systems, (0, None, 0 if axes else None))(theta, jnp.arange(theta.shape[1]), laws)


def _beyond(data: Observations, law: Law, calls: np.ndarray, times: np.ndarray, after: float) -> list[str]:
    assert law.support is not None
    inside = law.support.contains(calls.reshape(-1, calls.shape[-1]).astype(float)).reshape(calls.shape[:3])
    outside = ~inside.reshape(*inside.shape[:2], len(times), -1)[:, :, times > after]  # (draw, system, time, call)
    share = outside.mean(axis=(0, 2, 3))
    far = np.argsort(-share)[: np.count_nonzero(share > OUTSIDE)]
    if not far.size:
        return []
    told = [f"{data.systems[k]} ({share[k]:.0%} of its calls{_since(times, after, outside[:, k])})" for k in far[:3]]
    more = f" and {far.size - 3} more" if far.size > 3 else ""
    ends = ", ".join(
        f"{name} {low:.3g} to {high:.3g}" for name, low, high in zip(law.inputs, law.support.low, law.support.high)
    )
    return [
        f"the law {law.name} is asked for more than data supported ({ends}) by {'; '.join(told)}{more}: there it is an "
        "extrapolation, and so are these predictions"
    ]


def _since(times: np.ndarray, after: float, outside: np.ndarray) -> str:
    """When most draws are outside for the first time; nothing where there are no times."""
    most = outside.any(axis=2).mean(axis=0) > 0.5
    return f", first at time {times[times > after][np.argmax(most)]:.4g}" if len(times) > 1 and most.any() else ""
