"""Solutions over two coordinates: truth, fit, and what lies between them, with the places of the data.

Fields in the plane that change in time are shown at three moments.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure
from matplotlib.tri import Triangulation

from ._view import Forecast, View, evenly, label

Over = View | Forecast  # what knows a grid
Titled = tuple[str, np.ndarray]
Coloured = tuple[str, np.ndarray, dict[str, Any]]  # title, field, and its colours
MOMENTS = 3


def draw_fields(figure: Figure, view: View, pairs: list[tuple[int, int]]) -> None:
    """One row per (system, quantity)."""
    row = _row if len(view.axes) == 2 else _moments
    for cell, (system, quantity) in zip(np.ravel(figure.subfigures(len(pairs), 1, squeeze=False)), pairs):
        row(cell, view, system, quantity)
        cell.suptitle(f"system {label(view.systems[system], 24)}", x=0.02, ha="left", fontsize=9)


def _row(cell: SubFigure, view: View, system: int, quantity: int) -> None:
    fit, truth = view.fit_mean[system, quantity], None if view.truth_fit is None else view.truth_fit[system, quantity]
    alike = [("fit", fit)] if truth is None else [("truth", truth), ("fit", fit)]
    if view.surrogate_fit is not None:
        alike.append(("surrogate", view.surrogate_fit[system, quantity]))
    places = [view.seen(system, quantity)[list(view.axes)].to_numpy()] * (len(alike) + 1)
    draw_row(cell, view, alike, _apart(view, system, quantity), places, view.quantities[quantity])


def _moments(cell: SubFigure, view: View, system: int, quantity: int) -> None:
    """The fit at the first, a middle and the last time, with the data nearest in time; beside it how far off it is at the last."""
    assert view.shape is not None
    times = view.grid[:: np.prod(view.shape[1:]), 0]
    seen = view.seen(system, quantity)[list(view.axes)].to_numpy()
    shown = evenly(len(times), MOMENTS)
    fields = view.fit_mean[system, quantity].reshape(len(times), -1)
    alike = [(f"fit\n{label(view.axes[0])} = {times[i]:.3g}", fields[i]) for i in shown]
    title, apart, style = _apart(view, system, quantity, slice(-fields.shape[1], None))
    nearest = np.abs(seen[:, :1] - times[shown]).argmin(axis=1)
    places = [seen[nearest == i, 1:] for i in range(len(shown))]
    still = replace(view, axes=view.axes[1:], shape=view.shape[1:], grid=view.grid[: fields.shape[1], 1:])
    last = f"{title}\n{label(view.axes[0])} = {times[-1]:.3g}", apart, style
    draw_row(cell, still, alike, last, [*places, places[-1]], view.quantities[quantity])


def _apart(view: View, system: int, quantity: int, points: slice = slice(None)) -> Coloured:
    """How far the fit is from the truth, or how well it is known, and colours for it."""
    fit, low, high = (part[system, quantity, points] for part in (view.fit_mean, view.fit_low, view.fit_high))
    if view.truth_fit is None:
        return band_width(low, high)
    apart = fit - view.truth_fit[system, quantity, points]
    size = np.nanmax(np.abs(apart)) or 1.0
    return "fit − truth", apart, {"cmap": "RdBu_r", "vmin": -size, "vmax": size}


def band_width(low: np.ndarray, high: np.ndarray) -> Coloured:
    return "width of 95 % band", high - low, {"cmap": "magma", "vmin": 0}


def draw_row(
    cell: SubFigure, view: Over, alike: list[Titled], last: Coloured, places: list[np.ndarray], quantity: str
) -> None:
    """Fields of one quantity on one scale, beside them another on its own; `places` are those of the data in each."""
    panels = cell.subplots(1, len(alike) + 1, squeeze=False, sharex=True, sharey=True)[0]
    values = np.concatenate([field for _, field in alike])
    low, high = np.nanmin(values), np.nanmax(values)
    for axes, (title, field) in zip(panels, alike):
        image = _field(axes, view, field, vmin=low, vmax=high, cmap="viridis")
        axes.set_title(title)
    bars = [cell.colorbar(image, ax=panels[: len(alike)], label=label(quantity, 18), fraction=0.05, shrink=0.8)]
    title, field, style = last
    bars += [cell.colorbar(_field(panels[-1], view, field, **style), ax=panels[-1], fraction=0.1, shrink=0.8)]
    for bar in bars:
        bar.ax.tick_params(labelsize=8)
    panels[-1].set_title(title)
    for axes, seen in zip(panels, places):
        axes.plot(*seen.T, linestyle="", marker="o", markersize=3, markeredgecolor="white", color="#E8760C")
        axes.set_xlabel(label(view.axes[0]))
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel(label(view.axes[1]))


def _field(axes: Axes, view: Over, field: np.ndarray, **style: Any) -> ScalarMappable:
    image: ScalarMappable
    if view.shape is None:
        x, y = view.grid.T
        image = axes.tripcolor(Triangulation(x, y, view.triangles), field, shading="gouraud", **style)
    else:
        first, second = (part.reshape(view.shape) for part in view.grid.T)
        image = axes.pcolormesh(first, second, field.reshape(view.shape), shading="gouraud", rasterized=True, **style)
    axes.margins(0)
    if "time" not in view.axes:
        axes.set_aspect("equal")
    return image
