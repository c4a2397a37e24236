"""A law as a result hands it on: it takes numbers or arrays, and knows where data supported it."""

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ._base import AbstractLaw, Range

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
    """A law as a fit found it, or a given one; called, it is the mean over the draws.

    - `law`: with an axis of draws in front of its arrays where every chain has its own (`law.spec.per_chain`), in the
      order of the posterior's draws.
    - `inputs`: what its arguments are called in the equation.
    - `table`: low and high of what solvers look up, where that was kept.
    """

    name: str
    law: AbstractLaw
    inputs: tuple[str, ...]
    support: Support | None
    table: tuple[np.ndarray, np.ndarray] | None = None

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
        return self.law.spec.trainable

    @property
    def double(self) -> bool:
        """Learned in double precision."""
        return any(getattr(leaf, "dtype", None) == np.float64 for leaf in jax.tree.leaves(self.law))

    def __call__(self, *x: ArrayLike) -> np.ndarray | float:
        """At numbers or arrays; the mean over the draws."""
        value = self.draws(*x).mean(axis=0)
        return float(value) if value.ndim == 0 else value

    def draws(self, *x: ArrayLike) -> np.ndarray:
        """The law of each draw, (draw, ...); a law that all chains share is a single one."""
        spec = self.law.spec
        if len(x) != spec.inputs:
            raise TypeError(f"this closure takes {spec.inputs} inputs, got {len(x)}")
        with jax.enable_x64(self.double or bool(jax.config.read("jax_enable_x64"))):
            arrays = [jnp.asarray(xi, float) for xi in x]

            def one(law: AbstractLaw) -> Array:
                return jnp.vectorize(law)(*arrays)

            return np.asarray(eqx.filter_vmap(one)(self.law) if spec.per_chain else one(self.law)[None])


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
