"""A law as a result hands it on: it takes numbers or arrays, and knows where data supported it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from ._base import AbstractLaw, Range, SolverLaw

SHARE = 0.99
CELLS = 20
ENOUGH = 2000  # draws for means and intervals


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
class FittedLaw:
    """A law as a fit found it, or a given one; called, it is the mean over the draws.

    - `law`: with an axis of draws in front of its arrays where every chain has its own (`law.spec.per_chain`), in the
      order of the posterior's draws.
    - `inputs`: what its arguments are called in the equation.
    - `frame`: what it is prepared with for solvers (see `AbstractLaw.prepare`), where that was kept.
    """

    name: str
    law: AbstractLaw
    inputs: tuple[str, ...]
    support: Support | None
    frame: PyTree = None

    @property
    def table(self) -> PyTree:
        """What solvers are given the law with; where that was not kept, the supported range and half as much again either side."""
        if self.frame is not None:
            return self.frame
        low, high = -np.ones(len(self.inputs)), np.ones(len(self.inputs))
        if self.support is not None:
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
        return _plain(self.draws(*x, most=ENOUGH).mean(axis=0))

    def sd(self, *x: ArrayLike) -> np.ndarray | float:
        """Posterior standard deviation of the law there; zero where the law is a single function."""
        return _plain(self.draws(*x, most=ENOUGH).std(axis=0))

    def interval(self, *x: ArrayLike, level: float = 0.95) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Ends of the central interval that holds the law there with this probability."""
        if not 0 < level < 1:
            raise ValueError(f"level={level} must lie between 0 and 1, as in 0.95")
        low, high = np.quantile(self.draws(*x, most=ENOUGH), [(1 - level) / 2, (1 + level) / 2], axis=0)
        return _plain(low), _plain(high)

    def supported(self, *x: ArrayLike) -> np.ndarray:
        """Did data support the law there?"""
        arrays = np.broadcast_arrays(*(np.asarray(xi, float) for xi in x))
        if self.support is None:
            return np.zeros(arrays[0].shape, bool)
        inside = self.support.contains(np.stack([xi.ravel() for xi in arrays], axis=-1))
        return inside.reshape(arrays[0].shape)

    def continued(self, seed: int = 0) -> "FittedLaw":
        """The same law on a table thrice as long, where every draw of a sampled law goes on as its prior does, given what it
        is inside; outside the table it has now a law is a straight line, surer of itself than anybody is."""
        if self.frame is None:
            return self
        with jax.enable_x64(self.double or bool(jax.config.read("jax_enable_x64"))):
            law, frame = self.law.continued(self.frame, seed)
        return replace(self, law=law, frame=frame)

    def draws(self, *x: ArrayLike, most: int | None = None) -> np.ndarray:
        """The law of each draw, (draw, ...), in the order of the posterior's; at most so many, evenly from all. A law that all
        chains share is a single one."""
        return self._over_draws(lambda law, x: law(*x), x, most)

    def gradient_draws(self, *x: ArrayLike, most: int | None = None) -> np.ndarray:
        """Derivative of the law of each draw in its first input, (draw, ...)."""
        return self._over_draws(lambda law, x: jax.grad(lambda first: law(first, *x[1:]))(x[0]), x, most)

    def some(self, most: int) -> AbstractLaw:
        """The law with at most so many of its draws, evenly from all."""
        if not self.law.spec.per_chain:
            return self.law
        arrays, rest = eqx.partition(self.law, eqx.is_array)
        count = len(jax.tree.leaves(arrays)[0])
        chosen = np.linspace(0, count - 1, min(most, count)).astype(int)
        return eqx.combine(jax.tree.map(lambda a: np.asarray(a)[chosen], arrays), rest)

    def _over_draws(
        self, function: Callable[[SolverLaw, tuple[Array, ...]], Array], x: tuple[ArrayLike, ...], most: int | None
    ) -> np.ndarray:
        spec = self.law.spec
        if len(x) != spec.inputs:
            raise TypeError(f"this closure takes {spec.inputs} inputs, got {len(x)}")
        law = self.law if most is None else self.some(most)
        with jax.enable_x64(self.double or bool(jax.config.read("jax_enable_x64"))):
            arrays = [jnp.asarray(xi, float) for xi in x]

            def one(law: AbstractLaw) -> Array:
                called = law.as_function(self.frame)
                return jnp.vectorize(lambda *x: function(called, x))(*arrays)

            return np.asarray(eqx.filter_jit(eqx.filter_vmap(one))(law) if spec.per_chain else one(law)[None])


def _plain(value: np.ndarray | np.floating) -> np.ndarray | float:
    return float(value) if value.ndim == 0 else np.asarray(value)


def choose(laws: Mapping[str, FittedLaw], name: str | None) -> FittedLaw:
    """The law of that name; without one, the only law there is."""
    if not laws:
        raise LawError("there is no law here: none was learned; state one in the problem with closure=cl.Law()")
    names = ", ".join(laws)
    if name is None and len(laws) > 1:
        raise LawError(f"there are {len(laws)} closures ({names}); choose one with name= (--closure)")
    if name is not None and name not in laws:
        raise LawError(f"there is no closure {name!r}; there is {names}")
    return laws[name] if name is not None else next(iter(laws.values()))


def was_given(name: str | None) -> LawError:
    return LawError(f"closure {name!r} was given (Known), not learned; it is a function you have already")
