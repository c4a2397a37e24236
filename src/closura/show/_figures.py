"""Figures of a run: one function per figure, from a `View` to a matplotlib `Figure`.

Truth is black, what was inferred is blue, data are orange, everywhere. Nothing here uses pyplot: no display
is needed, and nothing stays in memory after the caller drops the figure.
"""

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from ._fields import draw_fields
from ._view import ClosureView, ResidualView, View, counted, evenly, label, normal_density

BLUE, ORANGE, BLACK, GREY, GREEN = "#0065A8", "#E8760C", "#111111", "#E6E6E6", "#00A36C"
RED, BAND, PRIOR = "#B3001B", "#D9D9D9", "#B8860B"
GROUPS = (BLUE, "#C65F9C", "#009E73", "#56B4E9", "#7A5195", "#8C8C3A", "#3F3F3F", "#A0522D")
STYLE: Any = {
    **dict.fromkeys(("text.usetex", "axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.titlesize": 10,
    "axes.linewidth": 0.7,
    "figure.facecolor": "white",
    "savefig.bbox": "standard",
}
TRUTH: dict[str, Any] = {"color": BLACK, "linestyle": "--", "linewidth": 1.3, "label": "truth"}
NO_POPULATION = "Systems, each on its own (no population was inferred)"
Draw = Callable[[View], Figure]
Column = tuple[str, np.ndarray, np.ndarray | None]  # title, draws (chain, draw, parameter), truth (parameter,)

FIGURES: dict[str, tuple[Draw, str]] = {}  # in the order of the report, with their captions


def _shows(caption: str) -> Callable[[Draw], Draw]:
    """Make a function one of the figures, drawn in the style of all."""

    def add(draw: Draw) -> Draw:
        styled: Draw = matplotlib.rc_context(STYLE)(draw)
        FIGURES[draw.__name__] = styled, caption
        return styled

    return add


@_shows("How the systems spread: all together above, each system's estimate beneath.")
def population(view: View) -> Figure:
    """Per parameter: the population density above, every system's estimate, sorted, beneath."""
    columns = min(len(view.parameters), 3)
    rows = ceil(len(view.parameters) / columns)
    figure = _figure(4.4 * rows + 0.7, "Population and systems" if view.mu is not None else NO_POPULATION)
    cells = figure.add_gridspec(2 * rows, columns, height_ratios=[1, 1.5] * rows)
    for index, name in enumerate(view.labels):
        row, column = 2 * (index // columns), index % columns
        above = figure.add_subplot(cells[row, column])
        below = figure.add_subplot(cells[row + 1, column], sharex=above)
        _density(above, view, index)
        _intervals(below, view, index, np.argsort(view.theta[..., index].mean((0, 1)), kind="stable"))
        _physical_axis(above, view, index)
        below.set(yticks=[], xlabel=label(name))
        if column == 0:
            below.set_ylabel("1 system" if len(view.systems) == 1 else f"{len(view.systems)} systems, sorted")
    _legend(figure, figure.axes, loc="outside lower center", ncols=4)
    return figure


@_shows("Data and fit, for systems spread over the fleet: bands (or the last column) show how far it may be off.")
def fit(view: View) -> Figure:
    """Observations and fit of a few systems spread over the fleet: curves over time, or fields."""
    if len(view.axes) > 1:
        return _fields(view)
    picked, shown = view.spread(6 if len(view.quantities) == 1 else 4), evenly(len(view.quantities), 4)
    pairs = [(system, quantity) for system in picked.tolist() for quantity in shown.tolist()]
    columns = len(shown) if len(shown) > 1 else min(len(picked), 3)
    rows = ceil(len(pairs) / columns)
    said = counted(len(picked), len(view.systems), "system")
    if len(view.quantities) > 1:
        said += ", " + counted(len(shown), len(view.quantities), "quantity")
    figure = _figure(2.2 * rows + 1.0, f"Fit to the data ({said})")
    for number, (system, quantity) in enumerate(pairs):
        axes = figure.add_subplot(rows, columns, number + 1)
        _trajectory(axes, view, system, quantity)
        axes.set_title(label(view.systems[system], 30))
        if number % columns == 0 or len(shown) > 1:
            axes.set_ylabel(label(view.quantities[quantity], 18))
        lowest = number + columns >= len(pairs)
        axes.set_xlabel(label(view.axes[0]) if lowest else "")
        axes.tick_params(labelbottom=lowest)
    _legend(figure, figure.axes, loc="outside lower center", ncols=5)
    return figure


def _fields(view: View) -> Figure:
    picked, shown = view.spread(3), evenly(len(view.quantities), 2)
    pairs = [(system, quantity) for system in picked.tolist() for quantity in shown.tolist()]
    said = counted(len(picked), len(view.systems), "system")
    figure = _figure(2.5 * len(pairs) + 0.4, f"Fit to the data ({said}; dots are observations)")
    draw_fields(figure, view, pairs)
    return figure


@_shows(
    "Do the residuals scatter like noise? A running mean should stay in its grey band, and so should the quantiles."
)
def checks(view: View) -> Figure:
    """Standardised residuals along time and by their quantiles, a row a quantity (at most four)."""
    if not view.residuals:
        return _figure(1.2, "There are no residuals to check.")
    shown = [view.residuals[i] for i in evenly(len(view.residuals), 4)]
    said = f" ({counted(len(shown), len(view.residuals), 'quantity')})" if len(view.residuals) > 1 else ""
    figure = _figure(3.3 * len(shown) + 0.8, f"Residuals of all systems{said}")
    panels = figure.subplots(len(shown), 2, squeeze=False, width_ratios=[2.1, 1])
    for (along, quantiles), residuals in zip(panels, shown):
        _residuals_along(along, residuals, view.residual_label)
        _residual_quantiles(quantiles, residuals)
    _legend(figure, figure.axes, loc="outside lower center", ncols=3)
    return figure


@_shows("The shared law. Where it is grey data do not support it: it is extrapolated there.")
def closure(view: View) -> Figure:
    """Each closure, above the density of the inputs that the systems visited."""
    if not view.closures:
        return _figure(1.2, "This problem has no closure.")
    columns = 2 if len(view.closures) > 1 and all(len(one.inputs) == 1 for one in view.closures) else 1
    shown = [view.closures[i : i + columns] for i in range(0, len(view.closures), columns)]
    heights = [max(_closure_height(one) for one in row) for row in shown]
    figure = _figure(sum(heights) + 0.3, "Shared law, and where the data were")
    cells = figure.subfigures(len(heights), columns, squeeze=False, height_ratios=heights)
    for cell, one in zip(cells.flat, view.closures):
        {1: _closure_line, 2: _closure_surface}.get(len(one.inputs), _closure_note)(cell, one)
    return figure


@_shows("Parameters of each system: mean, 50 % and 95 % interval.")
def posteriors(view: View) -> Figure:
    """Forest plot: mean, 50 % and 95 % interval of every system (at most the first 40), per parameter."""
    order = np.arange(min(len(view.systems), 40))[::-1]
    columns = min(len(view.parameters), 4)
    rows = ceil(len(view.parameters) / columns)
    said = "first " * (len(view.systems) > 40) + counted(len(order), len(view.systems), "system")
    figure = _figure(rows * (0.21 * len(order) + 1.1) + 0.8, f"Parameters of each system ({said})")
    names = [label(view.systems[system], 18) for system in order]
    for index, name in enumerate(view.labels):
        axes = figure.add_subplot(rows, columns, index + 1)
        _intervals(axes, view, index, order)
        axes.set(xlabel=label(name), ylim=(-0.7, len(order) - 0.3))
        axes.set_yticks(range(len(order)), names, fontsize=8.5)
        axes.tick_params(labelleft=index % columns == 0)
        axes.grid(axis="x", color=GREY, linewidth=0.7)
        _physical_axis(axes, view, index)
    _legend(figure, figure.axes, loc="outside lower center", ncols=4)
    return figure


@_shows("Draws of the population. Chains that agree overlap and do not drift.")
def hyper_traces(view: View) -> Figure:
    """Kept draws of the population's mean and variance, one row per parameter."""
    if view.mu is None or view.tau is None:
        return _figure(1.2, NO_POPULATION)
    columns = [("mean μ", view.mu, view.truth_mu), ("variance τ", view.tau, view.truth_tau)]
    return _trace_figure("Draws of the population", view, columns)


@_shows("Draws of single systems. Chains that agree overlap and do not drift.")
def traces(view: View) -> Figure:
    """Kept draws of theta for a few systems: one row per parameter, one column per system."""
    truth = np.full(view.theta.shape[2:], np.nan) if view.truth_theta is None else view.truth_theta
    columns = [(view.systems[one], view.theta[:, :, one], truth[one]) for one in view.spread(3)]
    return _trace_figure("Draws of single systems", view, columns)


def _density(axes: Axes, view: View, index: int) -> None:
    """The inferred population with its band; without a population, how the estimates spread."""
    axes.set_yticks([])
    axes.tick_params(labelbottom=False)
    axes.spines.left.set_visible(False)
    if view.mu is None:
        means = view.theta[..., index].mean((0, 1))
        axes.hist(means, min(20, 2 + len(means) // 3), color=BLUE, alpha=0.3, label="spread of estimates")
        return
    if view.tau is not None and not view.tau[..., index].any():
        axes.text(0.5, 0.4, "shared: the same in all systems", transform=axes.transAxes, ha="center", color="0.4")
        return
    x, (low, mean, high) = view.population_density(index)
    axes.plot(x, mean, color=BLUE, linewidth=1.8, label="inferred population")
    axes.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0, label="its 95 % band")
    if view.truth_mu is not None and view.truth_tau is not None:
        axes.plot(x, normal_density(x, float(view.truth_mu[index]), float(view.truth_tau[index])), **TRUTH)
    axes.set_ylim(bottom=0)


def _intervals(axes: Axes, view: View, index: int, order: np.ndarray) -> None:
    """One line per system: mean, 50 % and 95 % interval, the truth as a black tick."""
    draws = view.theta[:, :, order, index].reshape(-1, len(order))
    low, left, right, high = np.quantile(draws, [0.025, 0.25, 0.75, 0.975], axis=0)
    y, many = np.arange(len(order)), len(order) > 60
    axes.plot(draws.mean(0), y, "o", color=BLUE, markersize=1 if many else 4, label="estimate")
    if many:
        axes.fill_betweenx(y, low, high, color=BLUE, alpha=0.3, linewidth=0, label="95 % interval")
    else:
        axes.hlines(y, left, right, BLUE, linewidth=3, label="50 % interval")
        axes.hlines(y, low, high, BLUE, alpha=0.45, linewidth=1.3, label="95 % interval")
    if view.truth_theta is not None:
        mark, size = (".", 2) if many else ("|", 9)
        axes.plot(view.truth_theta[order, index], y, mark, color=BLACK, markersize=size, label="true value")
    axes.tick_params(axis="y", length=0)


def _physical_axis(axes: Axes, view: View, index: int) -> None:
    places, values = view.physical_ticks(index)
    if places.size:
        top = axes.secondary_xaxis("top")
        top.set_xticks(places, [f"{value:g}".replace("-", "−") for value in values])
        top.set_xlabel(label(view.parameters[index]))


def _trajectory(axes: Axes, view: View, system: int, quantity: int) -> None:
    mine, times = view.seen(system, quantity), view.grid[:, 0]
    mark = "s" if times.size == 1 else ""
    low, mean, high = (part[system, quantity] for part in (view.fit_low, view.fit_mean, view.fit_high))
    axes.plot(times, mean, color=BLUE, marker=mark, linewidth=1.6, label="fit")
    edge = 5 if times.size == 1 else 0  # a band over one time is a bar
    axes.fill_between(times, low, high, color=BLUE, alpha=0.25, linewidth=edge, label="95 % band")
    if view.surrogate_fit is not None:
        said = view.surrogate_fit[system, quantity]
        axes.plot(times, said, color=GREEN, linestyle=":", marker=mark, linewidth=2.0, label="surrogate")
    if view.truth_fit is not None:
        axes.plot(times, view.truth_fit[system, quantity], marker=mark, **TRUTH)
    x, y = mine[view.axes[0]], mine["value"]
    bars = np.stack([y - mine["low"], mine["high"] - y])
    axes.errorbar(x, y, bars, fmt="o", color=ORANGE, markersize=3.5, elinewidth=1, zorder=3, label=view.bar_label)


def _residuals_along(axes: Axes, view: ResidualView, what: str) -> None:
    size, alpha = (2, 0.35) if view.x.size > 400 else (3.5, 0.7)
    kinds = ((~view.odd, ORANGE, "residual"), (view.odd, RED, "residual of a system that stands out"))
    for kept, colour, said in kinds:
        if kept.any():
            axes.plot(view.x[kept], view.residual[kept], "o", color=colour, markersize=size, alpha=alpha, label=said)
    for side in (-1.96, 1.96):
        axes.axhline(side, color="black", linestyle=":", linewidth=0.9, label="noise alone: 95 % of residuals")
    if np.unique(view.run_x).size >= 3:
        said = "noise alone: 95 % of running means"
        axes.fill_between(view.run_x, -view.run_band, view.run_band, color=BAND, linewidth=0, zorder=0, label=said)
        axes.plot(view.run_x, view.run_mean, color=BLUE, linewidth=2.0, label="running mean")
    reach = max(3.0, 1.08 * float(np.abs(view.residual).max(initial=0)))
    axes.set(xlabel=label(view.along), ylabel=f"{label(view.quantity, 18)}, {what}", ylim=(-reach, reach))


def _residual_quantiles(axes: Axes, view: ResidualView) -> None:
    axes.fill_between(view.expected, view.low, view.high, color=BAND, linewidth=0, zorder=0)
    axes.plot(view.expected, view.expected, color="black", linestyle=":", linewidth=0.9)
    axes.plot(view.expected, view.ordered, color=BLUE, linewidth=2.0, marker="o" if view.expected.size == 1 else "")
    axes.set(xlabel="quantile expected (95 % band grey)", ylabel="quantile of residuals")


def _closure_height(one: ClosureView) -> float:
    if len(one.inputs) > 2:
        return 0.6
    return 4.4 if one.band is None or len(one.inputs) == 2 else 6.0


def _closure_line(cell: SubFigure, one: ClosureView) -> None:
    """The law with its band above where the data were; between them its slope, where there is a band of it."""
    order = np.argsort(one.grid[:, 0])
    x, value, band = one.grid[order, 0], one.value[order], one.band
    panels = cell.subplots(
        2 if band is None else 3, 1, sharex=True, height_ratios=[5, 1] if band is None else [5, 2, 1]
    )
    above, below = panels[0], panels[-1]
    for start, stop in one.undecided:
        for axes in panels:
            axes.axvspan(start, stop, color=GREY, linewidth=0, zorder=0, label=one.undecided_label)
    name, argument = label(one.name), label(one.inputs[0])
    if band is not None:
        _band(above, x, band.low[order], band.high[order], "95 % band")
        if band.prior is not None:
            low, high = (side[order] for side in band.prior)
            above.fill_between(
                x, low, high, facecolor=(PRIOR, 0.13), edgecolor=PRIOR, linestyle=":", label="prior, 95 % band"
            )
        _slope(panels[1], one, order)
    above.plot(x, value, color=BLUE, alpha=0.45, linewidth=1.2)
    above.plot(x, np.where(one.inside[order], value, np.nan), color=BLUE, linewidth=2.2, label=one.value_label(name))
    if one.truth is not None:
        above.plot(x, one.truth[order], **TRUTH)
    above.set(ylabel=f"{name}({argument})", ylim=one.limits())
    below.fill_between(x, 0, one.density[order], color=ORANGE, alpha=0.75, linewidth=0)
    below.set(yticks=[], ylim=(0, None), xlim=(x[0], x[-1]), xlabel=argument, ylabel="data")
    _legend(above, [above], frameon=band is not None, edgecolor="none", framealpha=0.85)


def _slope(axes: Axes, one: ClosureView, order: np.ndarray) -> None:
    band, x = one.band, one.grid[order, 0]
    assert band is not None
    _band(axes, x, band.slope_low[order], band.slope_high[order], "95 % band")
    axes.plot(x, band.slope[order], color=BLUE, linewidth=1.6)
    if one.truth is not None:
        axes.plot(x, one.true_slope()[order], **TRUTH)
    axes.set(ylabel="its slope", ylim=one.slope_limits())


def _band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, said: str) -> None:
    axes.fill_between(x, low, high, color=BLUE, alpha=0.22, linewidth=0, label=said)


def _closure_surface(cell: SubFigure, one: ClosureView) -> None:
    kinds = (("given" if one.known else "learned", one.value), ("true", one.truth))
    parts = [(kind, part) for kind, part in kinds if part is not None and np.isfinite(part).sum() > 2]
    if not parts:
        _closure_note(cell, one)
        return
    level, panels = one.visited_level(), cell.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    seen = np.concatenate([part if level is None else part[one.density >= level] for _, part in parts])
    levels = MaxNLocator(12).tick_values(np.nanmin(seen), np.nanmax(seen))
    for axes, (kind, part) in zip(panels, parts):
        good = np.isfinite(part)
        surface = axes.tricontourf(*one.grid[good].T, part[good], levels, cmap="viridis", extend="both")
        axes.set(title=f"{kind} {label(one.name)}", xlabel=label(one.inputs[0]))
        if level is not None:
            axes.tricontourf(*one.grid.T, one.density, [-1, level], colors=[GREY], alpha=0.8)
    panels[0].set_ylabel(label(one.inputs[1]))
    cell.colorbar(surface, ax=panels, label=label(one.name) + " (paler: no data here)" * (level is not None))


def _closure_note(cell: SubFigure, one: ClosureView) -> None:
    text = f"{label(one.name)}, of {counted(len(one.inputs), len(one.inputs), 'input')}, is not drawn."
    cell.text(0.5, 0.5, text, ha="center", va="center")


def _trace_figure(title: str, view: View, columns: Sequence[Column]) -> Figure:
    shown, chains = evenly(len(view.parameters), 8), view.shown_chains()
    figure = _figure(1.6 * len(shown) + 1.2, f"{title} ({counted(len(chains), len(view.groups), 'chain')})")
    panels = figure.subplots(len(shown), len(columns), squeeze=False, sharex=True)
    for column, (name, draws, truth) in zip(panels.T, columns):
        for axes, index in zip(column, shown):
            known = None if truth is None else float(truth[index])
            _trace(axes, draws[chains, :, index], view.groups[chains], known)
        column[0].set_title(label(name, 30))
        column[-1].set_xlabel("kept draw")
    for axes, index in zip(panels[:, 0], shown):
        axes.set_ylabel(label(view.labels[index]))
    _legend(figure, figure.axes, loc="outside lower center", ncols=5)
    return figure


def _trace(axes: Axes, draws: np.ndarray, groups: np.ndarray, truth: float | None) -> None:
    steps = evenly(draws.shape[1], 400)
    mark = "o" if steps.size == 1 else ""
    for chain, group in zip(draws, groups):
        colour, said = GROUPS[int(group) % len(GROUPS)], f"chain group {group}"
        axes.plot(steps + 1, chain[steps], color=colour, marker=mark, linewidth=0.6, alpha=0.8, label=said)
    if truth is not None and np.isfinite(truth):
        axes.axhline(truth, **TRUTH)
    axes.margins(x=0 if steps.size > 1 else 0.05)


def _figure(height: float, title: str) -> Figure:
    figure = Figure(figsize=(9.0, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _legend(owner: Figure | Axes, panels: Iterable[Axes], **where: Any) -> None:
    """One legend for all panels, each label once."""
    labelled = (zip(*axes.get_legend_handles_labels()[::-1]) for axes in panels)
    entries = {text: handle for pairs in labelled for text, handle in pairs}
    legend = owner.legend(entries.values(), entries.keys(), **where)
    for line in legend.get_lines():
        line.set(linewidth=max(line.get_linewidth(), 1.3), markersize=max(line.get_markersize(), 4))


@matplotlib.rc_context(STYLE)
def save_figures(view: View, folder: Path) -> dict[str, Path]:
    """Write the figures that apply to this run into `folder`; returns name -> PNG."""
    shows = {"closure": view.closures, "checks": view.residuals, "hyper_traces": view.mu is not None}
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.png" for name in FIGURES if shows.get(name, True)}
    for name, path in paths.items():
        FIGURES[name][0](view).savefig(path, dpi=130)
    return paths
