"""A law as figures and tables show it: on a grid, beside where the data were."""

import numpy as np
import pandas as pd

from ..diagnose import Truth, on_points
from ..laws import FittedLaw, Support
from ..show import ClosureView


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
    )


def table_of(view: ClosureView, support: Support | None) -> pd.DataFrame:
    """Inputs, f, density of visited inputs, whether data supported f there, and the truth where known."""
    count = view.grid.shape[1]
    table = pd.DataFrame(view.grid, columns=["input"] if count == 1 else [f"input_{i + 1}" for i in range(count)])
    table["f"], table["density"] = view.value, view.density
    table["supported"] = np.zeros(len(table), bool) if support is None else support.contains(view.grid)
    if view.truth is not None:
        table["truth"] = view.truth
    return table
