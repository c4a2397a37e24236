"""A law as figures, tables and `posterior.nc` show it: on a grid, beside where the data were."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnose import Truth, on_points
from ..laws import FittedLaw
from ..show import BandView, ClosureView, evenly

ENOUGH = 2000  # draws for means and intervals
STORED = 2000  # draws on a grid, all chains together
SHOWN = 24  # draws in pictures
THINNED = (
    "the law of some draws, evenly picked, on a grid of its input; chain and draw number those of the group posterior. "
    "All draws are in closure.eqx, and as coordinates in the group unconstrained_posterior"
)


def closure_view(law: FittedLaw, visited: np.ndarray, truth: Truth | None, points: int | None = None) -> ClosureView:
    """A law on a grid over what was visited (and over the range it is judged on), with the density of visits."""
    count, visited = len(law.inputs), np.asarray(visited, float)
    low, high = (visited.min(axis=0), visited.max(axis=0)) if len(visited) else (-np.ones(count), np.ones(count))
    size = np.maximum(np.abs(low), np.abs(high))
    # Where all calls were alike the picture is as wide as the input is large.
    margin = 0.05 * np.where(high - low > 1e-6 * size, high - low, np.where(size > 0, size, 1.0))
    low, high = low - margin, high + margin
    if count == 1 and truth is not None and truth.ranges and law.name in truth.ranges:
        low, high = np.minimum(low, truth.ranges[law.name][0]), np.maximum(high, truth.ranges[law.name][1])
    points = 2 if count > 2 else points or (241 if count == 1 else 61)
    axes = [np.linspace(a, b, points) for a, b in zip(low, high)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, count)
    edges = [np.concatenate([[a[0]], (a[1:] + a[:-1]) / 2, [a[-1]]]) for a in axes]
    density = np.histogramdd(visited, bins=edges, density=True)[0].ravel() if len(visited) else np.zeros(len(grid))
    one = law.support if count == 1 else None
    true_law = (truth.laws or {}).get(law.name) if truth else None
    return ClosureView(
        name=law.name,
        inputs=law.inputs,
        grid=grid,
        value=np.asarray(law(*grid.T)),
        density=density,
        support=None if one is None else (float(one.low[0]), float(one.high[0])),
        truth=None if true_law is None else on_points(true_law, grid),
        known=not law.learned,
        supported=np.asarray(law.supported(*grid.T)),
        gaps=() if one is None else one.gaps(),
        band=_band(law, grid) if law.law.spec.per_chain else None,
    )


def _band(law: FittedLaw, grid: np.ndarray) -> BandView:
    """How sure a law is that every chain has its own of."""
    values, slopes = (of(*grid.T, most=ENOUGH) for of in (law.draws, law.gradient_draws))
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    slope_low, slope_high = np.quantile(slopes, [0.025, 0.975], axis=0)
    sampled, before = law.law.spec.sampled, None
    if sampled:
        bottom, top = law.prior_interval(*grid.T)
        before = np.asarray(bottom), np.asarray(top)
    return BandView(
        sd=values.std(axis=0),
        low=low,
        high=high,
        slope=slopes.mean(axis=0),
        slope_low=slope_low,
        slope_high=slope_high,
        draws=values[evenly(len(values), SHOWN)],
        prior_sd=np.asarray(law.prior_sd(*grid.T)) if sampled else None,
        prior=before,
    )


def table_of(view: ClosureView) -> pd.DataFrame:
    """Inputs, f, how sure it is (where chains do not share the law), density of visited inputs, whether data supported f there,
    and the truth where known."""
    count, band = view.grid.shape[1], view.band
    table = pd.DataFrame(view.grid, columns=["input"] if count == 1 else [f"input_{i + 1}" for i in range(count)])
    table["f"] = view.value
    if band is not None:
        table["sd"], table["lower"], table["upper"] = band.sd, band.low, band.high
        if band.prior_sd is not None:
            table["prior_sd"] = band.prior_sd
        table["slope"] = band.slope
    table["density"], table["supported"] = view.density, view.supported
    if view.truth is not None:
        table["truth"] = view.truth
    return table


def law_groups(
    laws: Mapping[str, FittedLaw], views: Iterable[ClosureView], chains: int, draws: int
) -> dict[str, xr.Dataset]:
    """Of every sampled law its values and derivatives on the grid of its view, `/law/NAME` -> (chain, draw, input)."""
    groups = {}
    chain = evenly(chains, STORED)
    draw = evenly(draws, max(1, STORED // len(chain)))
    which = (chain[:, None] * draws + draw).ravel()
    for view in views:
        law = laws[view.name]
        if not law.law.spec.sampled:
            continue
        some = law.with_draws(which)
        dims = ("chain", "draw", "input")
        shape = (len(chain), len(draw), -1)
        values = {"value": some.draws(*view.grid.T), "slope": some.gradient_draws(*view.grid.T)}
        at = {"input": view.grid[:, 0]} if len(law.inputs) == 1 else {}
        places = {f"input_{i + 1}": ("input", x) for i, x in enumerate(view.grid.T)} if len(law.inputs) > 1 else {}
        about = {"note": THINNED, "law": law.name, "inputs": list(law.inputs), "draws_of_the_posterior": chains * draws}
        groups[f"/law/{law.name}"] = xr.Dataset(
            {name: (dims, part.reshape(shape)) for name, part in values.items()},
            {"chain": chain, "draw": draw, **at, **places},
            about,
        )
    return groups


def law_unknowns(
    laws: Mapping[str, FittedLaw], chains: int, draws: int
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """What chains hold of every sampled law, NAME_coordinates and so on, (chain, draw, ...)."""
    found = {}
    for name, law in laws.items():
        for kind, part in law.law.unknowns.items():
            own = tuple(f"{name}_{kind}_axis_{i}" for i in range(part.ndim - 1))
            found[f"{name}_{kind}"] = ("chain", "draw", *own), part.reshape(chains, draws, *part.shape[1:])
    return found
