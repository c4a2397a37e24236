"""Residuals as they should not look: a pattern along time, or too many that are large."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._view import ResidualView, label

BLUE, ORANGE, RED, GREY = "#0065A8", "#E8760C", "#B3001B", "#D9D9D9"
TWO_SIDED = 1.96
LEAST = 3  # places that a running mean runs through


def draw_residuals(figure: Figure, views: list[ResidualView], what: str) -> None:
    """A row a quantity: residuals along time beside their quantiles."""
    panels = figure.subplots(len(views), 2, squeeze=False, width_ratios=[2.1, 1])
    for (along, quantiles), view in zip(panels, views):
        _along(along, view, what)
        _quantiles(quantiles, view)


def _along(axes: Axes, view: ResidualView, what: str) -> None:
    many = view.x.size > 400
    dots: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "markersize": 2 if many else 3.5,
        "alpha": 0.35 if many else 0.7,
    }
    for kept, colour, said in (
        (~view.odd, ORANGE, "residual"),
        (view.odd, RED, "residual of a system that stands out"),
    ):
        if kept.any():
            axes.plot(view.x[kept], view.residual[kept], color=colour, label=said, **dots)
    for side in (-TWO_SIDED, TWO_SIDED):
        axes.axhline(side, color="black", linestyle=":", linewidth=0.9, label="noise alone: 95 % of residuals")
    if np.unique(view.run_x).size >= LEAST:
        said = "noise alone: 95 % of running means"
        look: dict[str, Any] = {"color": GREY, "linewidth": 0, "zorder": 0}
        axes.fill_between(view.run_x, -view.run_band, view.run_band, label=said, **look)
        axes.plot(view.run_x, view.run_mean, color=BLUE, linewidth=2.0, label="running mean")
    reach = max(3.0, 1.08 * float(np.abs(view.residual).max(initial=0)))
    axes.set(xlabel=label(view.along), ylabel=f"{label(view.quantity, 18)}, {what}", ylim=(-reach, reach))


def _quantiles(axes: Axes, view: ResidualView) -> None:
    axes.fill_between(view.expected, view.low, view.high, color=GREY, linewidth=0, zorder=0)
    axes.plot(view.expected, view.expected, color="black", linestyle=":", linewidth=0.9)
    axes.plot(view.expected, view.ordered, color=BLUE, linewidth=2.0, marker="o" if view.expected.size == 1 else "")
    axes.set(xlabel="quantile expected (95 % band grey)", ylabel="quantile of residuals")
