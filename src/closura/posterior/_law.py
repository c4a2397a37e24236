"""A law as a result hands it on: it takes numbers or arrays, and knows where data supported it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ..diagnose import Truth, on_points
from ..laws import Closure, Range
from ..show import ClosureView

SHARE = 0.99
CELLS = 20


class LawError(ValueError):
    """There is no such law, or it cannot be written; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Support:
    """Where data supported a law: the central 99 % of the visited inputs.

    - `low`, `high`: one of each an input.
    - `cells`: with two inputs that box is cut into equal cells, true where the densest 99 % of visits lie; a box alone would
      hold corners no system ever went to. None otherwise.
    """

    low: np.ndarray
    high: np.ndarray
    cells: np.ndarray | None = None

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Which of the points (n, inputs) lie in it."""
        inside = np.all((points >= self.low) & (points <= self.high), axis=-1)
        if self.cells is not None:
            width = np.where(self.high > self.low, self.high - self.low, 1.0)
            place = np.where(inside[:, None], (points - self.low) / width * len(self.cells), 0.0)
            inside &= self.cells[tuple(np.minimum(place.astype(int), len(self.cells) - 1).T)]
        return inside


def support_of(visited: np.ndarray) -> Support | None:
    """From the inputs (call, input) a law was called with; None where there were no calls."""
    visited = np.asarray(visited, float)
    if not len(visited):
        return None
    low, high = np.quantile(visited, [(1 - SHARE) / 2, (1 + SHARE) / 2], axis=0)
    if visited.shape[1] != 2:
        return Support(low, high)
    bins = [np.linspace(a, b if b > a else a + 1.0, CELLS + 1) for a, b in zip(low, high)]
    visits = np.histogramdd(visited, bins=bins)[0]
    ordered = np.sort(visits.ravel())[::-1]
    level = ordered[np.searchsorted(ordered.cumsum(), SHARE * ordered.sum())]
    return Support(low, high, visits >= max(level, 1.0))


@dataclass(frozen=True, eq=False)
class Law:
    """A law with weights, or a known one: `inputs` are what its arguments are called in the equation."""

    name: str
    law: Any
    inputs: tuple[str, ...]
    support: Support | None
    table: tuple[np.ndarray, np.ndarray] | None = None  # low and high of what solvers look up, where that was kept

    @property
    def range(self) -> Range:
        """Of the table that solvers call; where it was not kept, the supported range and half as much again either side."""
        low, high = self.table or (-np.ones(len(self.inputs)), np.ones(len(self.inputs)))
        if self.table is None and self.support is not None:
            width = self.support.high - self.support.low
            low, high = self.support.low - 0.5 * width, self.support.high + 0.5 * width
        return Range(jnp.asarray(low, float), jnp.asarray(high, float))

    @property
    def learned(self) -> bool:
        return isinstance(self.law, Closure)

    @property
    def double(self) -> bool:
        """Learned in double precision."""
        return any(getattr(leaf, "dtype", None) == np.float64 for leaf in jax.tree.leaves(self.law))

    def __call__(self, *x: Any) -> Any:
        if len(x) != self.law.spec.inputs:
            raise TypeError(f"this closure takes {self.law.spec.inputs} inputs, got {len(x)}")
        with jax.enable_x64(self.double or bool(jax.config.read("jax_enable_x64"))):
            value = np.asarray(jnp.vectorize(self.law)(*(jnp.asarray(xi, float) for xi in x)))
        return float(value) if value.ndim == 0 else value


def choose(laws: Mapping[str, Law], name: str | None) -> Law:
    """The law of that name; without one, the only law there is."""
    if not laws:
        raise LawError("there is no law here: none was learned; state one in the problem with closure=cl.MLP()")
    names = ", ".join(laws)
    if name is None and len(laws) > 1:
        raise LawError(f"there are {len(laws)} closures ({names}); choose one with name= (--closure)")
    if name is not None and name not in laws:
        raise LawError(f"there is no closure {name!r}; there is {names}")
    return laws[name] if name is not None else next(iter(laws.values()))


def was_given(name: str | None) -> LawError:
    return LawError(f"closure {name!r} was given (Known), not learned; it is a function you have already")


def closure_view(law: Law, visited: np.ndarray, truth: Truth | None, points: int | None = None) -> ClosureView:
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
        value=law(*grid.T),
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
