"""Predictions: posterior draws pushed through the solver, what they say of the next measurement, and their files."""

import warnings
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

from .._files import FolderError, folder_for, write_whole
from ..data import DataError, Observations, by_quantity
from ..diagnose import predicted
from ..equations import Equation, bind_inputs
from ..forward import likelihood, noise_of
from ..parameters import Prior
from ..posterior import described, noise_by_quantity
from ..show import Forecast
from ._extrapolation import Joint, Survey, remarks_on, survey
from ._fleet import Fleet
from ._law_share import law_share

LEAST, MOST, NUMBERS = 100, 400, 20_000_000
WORTH_A_WORD = 0.02  # share of draws that could not be solved
FILES = ("predictions.csv", "parameters.csv", "forecast.png")


def predict(fleet: Fleet, times: object = None, until: float | None = None) -> pd.DataFrame:
    """The systems of the fit themselves."""
    problem, places = grid_for(fleet.problem, times, until)
    drawn = Joint(fleet.theta, fleet.laws, None if fleet.log_sigma is None else fleet.log_sigma[:, None])
    longer = problem is not fleet.problem
    if longer:
        problem = bind_inputs(problem, fleet.data)  # signals may go on for longer
    # Within its span the fleet itself is what supports the law.
    found = survey(fleet, problem, fleet.data, drawn, fleet.problem.bounds[0][1] if longer else np.inf)
    for remark in (*fleet.left_out, *remarks_on(found, fleet, fleet.data)) if longer else ():
        warnings.warn(remark, stacklevel=3)
    return pushed(fleet, problem, fleet.data, places, drawn, found)


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
    fleet: Fleet, problem: Equation, data: Observations, places: np.ndarray, drawn: Joint, found: Survey
) -> pd.DataFrame:
    """Draws through the solver, at the same places of every system: a row for every system, place and quantity. As many draws
    as intervals need and memory allows, evenly from all."""
    shape = len(data.systems), len(places), len(problem.observed)
    wanted = int(np.clip(NUMBERS // np.prod(shape), LEAST, MOST))
    chosen = np.linspace(0, len(drawn.theta) - 1, min(wanted, len(drawn.theta))).astype(int)
    sizes = noise_sizes(fleet, data, None if drawn.log_sigma is None else drawn.log_sigma[chosen])
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
    theta, (laws, axes) = jnp.asarray(drawn.theta[chosen], float), drawn.laws(chosen)
    paths = np.asarray(predicted(likelihood(problem, where), theta, laws, axes), float).reshape(-1, *shape)
    time = places[:, problem.axes.index("time")] if "time" in problem.axes else None
    table = _summarised(problem, data.systems, places, paths, sizes)
    relies = np.broadcast_to(found.extrapolates(time, shape[0])[..., None], shape)
    return table.assign(law_share=law_share(paths, laws, axes, found.calls).ravel(), extrapolates=relies.ravel())


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
    """Of the paths (draw, system, point, quantity); draws that could not be solved are left out, and said where they are many."""
    solved = np.isfinite(paths).all(axis=(2, 3))
    failed = 1 - solved.mean(axis=0)
    if failed.max() > WORTH_A_WORD:
        worst = int(np.argmax(failed))
        warnings.warn(
            f"{failed[worst]:.0%} of the draws of {systems[worst]} could not be solved and are left out: the law of these draws, or "
            "their parameters, drive it to infinity; predict less far, or state what is known of the law (dissipative=True, ...)",
            stacklevel=5,
        )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        columns = _described(paths, solved)
        measured = _described(noise_of(problem).measurements(0, paths, sizes[:, :, None]), solved)
    # A measurement scatters no less than what it measures, whatever so many draws say.
    columns["measured 2.5%"] = np.minimum(measured["2.5%"], columns["2.5%"])
    columns["measured 97.5%"] = np.maximum(measured["97.5%"], columns["97.5%"])
    system, point, quantity = (a.ravel() for a in np.indices(paths.shape[1:]))
    frame = {"system": np.array(systems)[system], **dict(zip(problem.axes, places[point].T))}
    frame["quantity"] = np.array(problem.observed)[quantity]
    return pd.DataFrame({**frame, **{name: column.ravel() for name, column in columns.items()}})


def _described(draws: np.ndarray, solved: np.ndarray) -> dict[str, np.ndarray]:
    """As `described`, over those draws (draw, system) that were solved."""
    columns = described(draws)
    for k in np.flatnonzero(~solved.all(axis=0) & solved.any(axis=0)):
        for name, part in described(draws[solved[:, k], k]).items():
            columns[name][k] = part
    return columns


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
