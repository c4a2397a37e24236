"""Solutions over two coordinates: truth, fit, and what lies between them, with the places of the data."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.tri import Triangulation

from ._forecast_view import Forecast
from ._view import View, label

Over = View | Forecast  # what knows a grid
Titled = tuple[str, np.ndarray]
SENSOR: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 3,
    "markeredgecolor": "white",
    "color": "#E8760C",
}


def draw_fields(figure: Figure, view: View, pairs: list[tuple[int, int]]) -> None:
    """One row per (system, quantity)."""
    for cell, (system, quantity) in zip(np.ravel(figure.subfigures(len(pairs), 1, squeeze=False)), pairs):
        _row(cell, view, system, quantity)


def _row(cell: SubFigure, view: View, system: int, quantity: int) -> None:
    fit, truth = view.fit_mean[system, quantity], None if view.truth_fit is None else view.truth_fit[system, quantity]
    width = view.fit_high[system, quantity] - view.fit_low[system, quantity]
    alike = [("fit", fit)] if truth is None else [("truth", truth), ("fit", fit)]
    if view.surrogate_fit is not None:
        alike.append(("surrogate", view.surrogate_fit[system, quantity]))
    last = ("width of 95 % band", width) if truth is None else ("fit − truth", fit - truth)
    size = np.nanmax(np.abs(last[1])) or 1.0
    style = {"cmap": "magma", "vmin": 0} if truth is None else {"cmap": "RdBu_r", "vmin": -size, "vmax": size}
    table = view.observations
    mine = table[(table["system"] == view.systems[system]) & (table["quantity"] == view.quantities[quantity])]
    draw_row(cell, view, alike, last, style, mine[list(view.axes)].to_numpy(), label(view.quantities[quantity], 18))
    cell.suptitle(f"system {label(view.systems[system], 24)}", x=0.02, ha="left", fontsize=9)


def draw_row(
    cell: SubFigure,
    view: Over,
    alike: list[Titled],
    last: Titled,
    style: dict[str, Any],
    places: np.ndarray,
    name: str,
) -> None:
    """Fields of one quantity on one scale, beside them another on its own; `places` are those of the data."""
    panels = cell.subplots(1, len(alike) + 1, squeeze=False, sharex=True, sharey=True)[0]
    values = np.concatenate([field for _, field in alike])
    low, high = np.nanmin(values), np.nanmax(values)
    for axes, (title, field) in zip(panels, alike):
        image = _field(axes, view, field, vmin=low, vmax=high, cmap="viridis")
        axes.set_title(title)
    cell.colorbar(image, ax=panels[: len(alike)], label=name, fraction=0.05, shrink=0.8)
    cell.colorbar(_field(panels[-1], view, last[1], **style), ax=panels[-1], fraction=0.1, shrink=0.8)
    panels[-1].set_title(last[0])
    for axes in panels:
        axes.plot(*places.T, **SENSOR)
        axes.set_xlabel(label(view.axes[0]))
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel(label(view.axes[1]))


def _field(axes: Axes, view: Over, field: np.ndarray, **style: Any) -> Any:
    if view.shape is None:
        x, y = view.grid.T
        image: Any = axes.tripcolor(Triangulation(x, y, view.triangles), field, shading="gouraud", **style)
    else:
        first, second = (part.reshape(view.shape) for part in view.grid.T)
        image = axes.pcolormesh(first, second, field.reshape(view.shape), shading="gouraud", rasterized=True, **style)
    axes.margins(0)
    if "time" not in view.axes:
        axes.set_aspect("equal")
    return image
