"""The picture of a forecast: data, what they lead to, and in grey what was expected before them."""

from math import ceil

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._fields import band_width, draw_row
from ._figures import BLACK, BLUE, GREY, ORANGE, STYLE, _figure, _legend
from ._view import Forecast, counted, evenly, label

PANELS, ROWS = 6, 4
Spot = tuple[float, ...]  # coordinates in space, of curves over time none


@matplotlib.rc_context(STYLE)
def forecast(view: Forecast) -> Figure:
    """At most six panels: systems, their quantities, and of fields in time a few places; of other fields, four rows."""
    if view.axes[0] != "time":
        return _fields(view)
    panels = _panels(view)
    columns = 1 if len(panels) == 1 else 2
    rows = ceil(len(panels) / columns)
    said = counted(len({panel[0] for panel in panels}), len(view.systems), "system")
    figure = _figure(2.6 * rows + 1.2, f"Forecast ({said})")
    for number, (system, quantity, spot) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        _curves(axes, view, system, quantity, spot)
        place = "".join(f", {label(axis)} = {at:.3g}" for axis, at in zip(view.axes[1:], spot))
        axes.set_title(label(view.titles[view.systems.index(system)], 50) + place, loc="left")
        axes.set_ylabel(label(quantity, 18))
        axes.set_xlabel(label(view.axes[0]) if number + columns >= len(panels) else "")
    _legend(figure, figure.axes, loc="outside lower center", ncols=3)
    return figure


def _panels(view: Forecast) -> list[tuple[str, str, Spot]]:
    systems = view.systems[:PANELS]
    quantities = [view.quantities[i] for i in evenly(len(view.quantities), max(1, PANELS // len(systems)))]
    if len(view.axes) == 1:
        return [(system, quantity, ()) for system in systems for quantity in quantities]
    panels: list[tuple[str, str, Spot]] = []
    each = max(1, PANELS // (len(systems) * len(quantities)))
    for system in systems:
        # Where it was observed, spread over the field.
        seen = view.observed[view.observed["system"] == system]
        lines = [np.unique(view.after[axis]) for axis in view.axes[1:]]
        nearest = [np.abs(seen[axis].to_numpy()[:, None] - line).argmin(1) for axis, line in zip(view.axes[1:], lines)]
        places = np.unique(np.stack(nearest, axis=-1), axis=0)
        shown = places[evenly(len(places), each)]
        panels += [(system, q, tuple(float(line[i]) for line, i in zip(lines, at))) for at in shown for q in quantities]
    return panels[:PANELS]


def _fields(view: Forecast) -> Figure:
    """A row for each system and quantity: what the fleet alone expects, what its data lead to, and how well that is known."""
    rows = [(system, quantity) for system in view.systems for quantity in view.quantities][:ROWS]
    said = counted(len({system for system, _ in rows}), len(view.systems), "system")
    figure = _figure(2.9 * len(rows) + 0.6, f"Prediction ({said})")
    for cell, (system, quantity) in zip(np.ravel(figure.subfigures(len(rows), 1, squeeze=False)), rows):
        after, mine = (_part(view, table, system, quantity) for table in (view.after, view.observed))
        alike = [("mean", after["mean"].to_numpy())]
        if view.before is not None:
            before = _part(view, view.before, system, quantity)
            alike.insert(0, ("expected of any member", before["mean"].to_numpy()))
        width = band_width(after["2.5%"].to_numpy(), after["97.5%"].to_numpy())
        places = [mine[list(view.axes)].to_numpy()] * (len(alike) + 1)
        draw_row(cell, view, alike, width, places, quantity)
        cell.suptitle(label(view.titles[view.systems.index(system)], 50), x=0.02, ha="left", fontsize=9)
    return figure


def _curves(axes: Axes, view: Forecast, system: str, quantity: str, spot: Spot) -> None:
    after, mine = (_part(view, table, system, quantity, spot) for table in (view.after, view.observed))
    time = view.axes[0]
    band, measured = (after["2.5%"], after["97.5%"]), (after["measured 2.5%"], after["measured 97.5%"])
    low, high = measured[0].fillna(band[0]).min(), measured[1].fillna(band[1]).max()
    if view.before is not None:
        before, said = _part(view, view.before, system, quantity, spot), "expected of any member before its data (95 %)"
        axes.fill_between(before[time], before["2.5%"], before["97.5%"], color=GREY, linewidth=0, label=said)
        low, high = min(low, before["2.5%"].min()), max(high, before["97.5%"].max())
    axes.fill_between(after[time], *measured, color=BLUE, alpha=0.15, linewidth=0, label="next measurement (95 %)")
    axes.fill_between(after[time], *band, color=BLUE, alpha=0.4, linewidth=0, label="quantity (95 %)")
    axes.plot(after[time], after["mean"], color=BLUE, linewidth=1.4, label="mean")
    axes.plot(mine[time], mine["value"], "o", color=ORANGE, markersize=4, zorder=3, label="data")
    if len(mine):
        low, high = min(low, mine["value"].min()), max(high, mine["value"].max())
        axes.axvline(mine[time].max(), color=BLACK, linewidth=0.8, linestyle=":", label="last observation")
    if np.isfinite([low, high]).all() and high > low:
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.margins(x=0.01)


def _part(view: Forecast, table: pd.DataFrame, system: str, quantity: str, spot: Spot = ()) -> pd.DataFrame:
    """The rows of one system and quantity, of fields in time at one place."""
    mine = table[(table["system"] == system) & (table["quantity"] == quantity)]
    for axis, at in zip(view.axes[1:], spot):
        near = 0.5 * float(np.diff(np.unique(view.after[axis])).min(initial=np.inf))
        mine = mine[np.abs(mine[axis] - at) <= near]
    return mine
