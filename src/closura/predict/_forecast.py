"""Predictions: posterior draws pushed through the solver, what they say of the next measurement, and their files."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from .._files import FolderError, folder_for, write_whole
from ..data import DataError, Observations, by_quantity
from ..diagnose import predicted
from ..equations import Equation, ForwardModel, bind_inputs
from ..forward import likelihood, noise_of
from ..laws import FittedLaw, SolverLaws
from ..parameters import Prior
from ..posterior import described, noise_by_quantity
from ..show import Forecast
from ._fleet import Fleet

LEAST, MOST, NUMBERS = 100, 400, 20_000_000
SURVEYED = 16
OUTSIDE = 0.05  # share of calls outside the support that is worth a word; one in a hundred is by its definition
FILES = ("predictions.csv", "parameters.csv", "forecast.png")
LawsAt = Callable[[np.ndarray], tuple[SolverLaws, int]]  # as `Fleet.laws`, at some of the draws


def predict(fleet: Fleet, times: object = None, until: float | None = None) -> pd.DataFrame:
    """The systems of the fit themselves."""
    problem, places = grid_for(fleet.problem, times, until)
    sizes = None if fleet.log_sigma is None else fleet.log_sigma[:, None]
    if problem is not fleet.problem:
        problem = bind_inputs(problem, fleet.data)  # signals may go on for longer
        # Within its span the fleet itself is what supports the law.
        for remark in beyond_support(fleet, problem, fleet.data, fleet.laws, fleet.theta, fleet.problem.bounds[0][1]):
            warnings.warn(remark, stacklevel=3)
    return pushed(fleet, problem, fleet.data, places, fleet.theta, fleet.laws, sizes)


def grid_for(problem: Equation, times: object, until: float | None) -> tuple[Equation, np.ndarray]:
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


def pushed(
    fleet: Fleet,
    problem: Equation,
    data: Observations,
    places: np.ndarray,
    theta: np.ndarray,
    laws: LawsAt,
    log_sigma: np.ndarray | None,
) -> pd.DataFrame:
    """Draws of theta (draw, system, parameter) through the solver, at the same places of every system: a row for every system,
    place and quantity. As many draws as intervals need and memory allows, evenly from all."""
    shape = len(data.systems), len(places), len(problem.observed)
    wanted = int(np.clip(NUMBERS // np.prod(shape), LEAST, MOST))
    chosen = np.linspace(0, len(theta) - 1, min(wanted, len(theta))).astype(int)
    sizes = noise_sizes(fleet, data, None if log_sigma is None else log_sigma[chosen])
    everywhere = np.broadcast_to(places[:, None], (*shape, places.shape[1]))
    flat = shape[0], shape[1] * shape[2]
    where = replace(
        data,
        quantities=problem.observed,
        place=everywhere.reshape(*flat, -1),
        quantity=np.tile(np.arange(shape[2], dtype=np.int32), (shape[0], shape[1])),
        # Nothing was measured there: a value that the noise allows, and as large as the data are.
        value=np.full(flat, data.value[data.mask].max()),
        sigma=np.full(flat, np.nan),
        mask=np.ones(flat, bool),
    )
    paths = np.asarray(predicted(likelihood(problem, where), jnp.asarray(theta[chosen], float), *laws(chosen)), float)
    return _summarised(problem, data.systems, places, paths.reshape(-1, *shape), sizes)


def noise_sizes(fleet: Fleet, data: Observations, log_sigma: np.ndarray | None) -> np.ndarray:
    """Standard size of the noise of a new measurement, (draw or 1, system or 1, quantity); NaN where nobody knows it.

    Inferred ones (`log_sigma`, (draw, system or 1, quantity)) come first, then what tables state (the system's own, or else the
    median of its table, or of the fleet's), then what the problem does.
    """
    observed, inferred = fleet.problem.observed, fleet.log_sigma
    told = by_quantity(fleet.problem.sigma, observed)
    stated = {name: size for name, size in told.items() if size is not None and not isinstance(size, Prior)}
    others = fleet.data.rows().groupby("quantity")["sigma"].median()
    typical = {} if inferred is None else dict(zip(observed, np.exp(np.median(inferred, axis=0))))
    sizes = noise_by_quantity(data.rows(), data).fillna(others).fillna(stated).fillna(typical).to_numpy()[None]
    return sizes if log_sigma is None else np.where(np.isfinite(log_sigma), np.exp(log_sigma), sizes)


def _summarised(
    problem: Equation, systems: tuple[str, ...], places: np.ndarray, paths: np.ndarray, sizes: np.ndarray
) -> pd.DataFrame:
    """Of the paths (draw, system, point, quantity)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        columns = described(paths)
        measured = described(noise_of(problem).measurements(0, paths, sizes[:, :, None]))
    # A measurement scatters no less than what it measures, whatever so many draws say.
    columns["measured 2.5%"] = np.minimum(measured["2.5%"], columns["2.5%"])
    columns["measured 97.5%"] = np.maximum(measured["97.5%"], columns["97.5%"])
    system, point, quantity = (a.ravel() for a in np.indices(paths.shape[1:]))
    frame = {"system": np.array(systems)[system], **dict(zip(problem.axes, places[point].T))}
    frame["quantity"] = np.array(problem.observed)[quantity]
    return pd.DataFrame({**frame, **{name: column.ravel() for name, column in columns.items()}})


def beyond_support(
    fleet: Fleet, problem: Equation, data: Observations, laws: LawsAt, theta: np.ndarray, after: float = -np.inf
) -> list[str]:
    """In words, which systems ask which law for more than data supported (after a time), and when first."""
    asked = {name: law for name, law in fleet.closures.items() if law.learned and law.support is not None}
    if not asked:
        return []
    chosen = np.linspace(0, len(theta) - 1, min(SURVEYED, len(theta))).astype(int)
    forward, _ = problem.solver(data)
    calls = _law_inputs(forward, jnp.asarray(theta[chosen], float), *laws(chosen))
    times = forward.call_times
    return [said for name, law in asked.items() for said in _beyond(data, law, np.asarray(calls[name]), times, after)]


@eqx.filter_jit
def _law_inputs(forward: ForwardModel, theta: Array, laws: SolverLaws, axes: int) -> dict[str, Array]:
    of_systems = jax.vmap(lambda t, k, laws: forward.law_inputs(t, laws, k), (0, 0, 0 if axes == 2 else None))
    return jax.vmap(of_systems, (0, None, 0 if axes else None))(theta, jnp.arange(theta.shape[1]), laws)


def _beyond(data: Observations, law: FittedLaw, calls: np.ndarray, times: np.ndarray, after: float) -> list[str]:
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


def save_predictions(
    folder: str | Path, predictions: pd.DataFrame, parameters: pd.DataFrame, view: Forecast, *, overwrite: bool = False
) -> list[Path]:
    """Write the files of a prediction, all of them or none."""
    from ..show._forecast import forecast

    folder = Path(folder).expanduser()
    check_out(folder, overwrite)

    def write(aside: Path) -> None:
        predictions.to_csv(aside / FILES[0], index=False)
        parameters.to_csv(aside / FILES[1], index=False)
        forecast(view).savefig(aside / FILES[2], dpi=130)

    write_whole(folder, write)
    return [folder / name for name in FILES]


def check_out(folder: Path, overwrite: bool) -> None:
    """Could predictions be kept there? Asked before the work."""
    folder_for(folder)
    taken = [name for name in FILES if (folder / name).exists()]
    if taken and not overwrite:
        raise FolderError(f"{folder / taken[0]} exists; choose another --out, or replace it with --overwrite")


def forecast_view(
    problem: Equation, data: Observations, after: pd.DataFrame, before: pd.DataFrame | None, titles: list[str]
) -> Forecast:
    grid = problem.points, problem.shape, problem.triangles
    return Forecast(problem.axes, data.systems, problem.observed, after, before, data.rows(), titles, *grid)
