"""A law as a result hands it on: it takes numbers or arrays, knows how sure it is, and where data supported it."""

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ._base import AbstractLaw, LawError, Range

SHARE = 0.99
CELLS = 20
ENOUGH = 2000  # draws for means and intervals
# Of sampled laws: data decide a law where they take away this share of its prior variance, and leave no more than so many times
# the standard deviation that is usual where systems went. Found on so many cells along an input, by the number of inputs.
CONTRACTION, UNUSUAL = 0.75, 3.0
FINE = {1: 400, 2: 40}
VISITS = 1000


@dataclass(frozen=True, eq=False)
class Support:
    """Where data supported a law: the central 99 % of the visited inputs; of a sampled law, where data decide it.

    - `low`, `high`: one of each an input.
    - `cells`: that box is cut into equal cells along each input, true where data supported the law; None where the box says
      it all. With two inputs these are the densest 99 % of visits: a box alone would hold corners no system ever went to.
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

    @property
    def nowhere(self) -> bool:
        """No data supported the law at all."""
        return self.cells is not None and not self.cells.any()

    def gaps(self) -> tuple[tuple[float, float], ...]:
        """Of one input: the stretches between `low` and `high` where data did not support the law."""
        if self.cells is None:
            return ()
        edges = np.linspace(self.low[0], self.high[0], len(self.cells) + 1)
        turns = np.flatnonzero(np.diff(np.concatenate([[True], self.cells, [True]]).astype(int)))
        return tuple((float(edges[i]), float(edges[j])) for i, j in turns.reshape(-1, 2))


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
    """A law as a fit found it, or a given one; called, it is the posterior mean.

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
        """At numbers or arrays; the posterior mean."""
        return _plain(self.draws(*x, most=ENOUGH).mean(axis=0))

    def sd(self, *x: ArrayLike) -> np.ndarray | float:
        """Posterior standard deviation of the law there; zero where the law is a single function."""
        return _plain(self.draws(*x, most=ENOUGH).std(axis=0))

    def interval(self, *x: ArrayLike, level: float = 0.95) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Ends of the central interval that holds the law there with this probability."""
        return _ends(self.draws(*x, most=ENOUGH), level)

    def slope(self, *x: ArrayLike) -> np.ndarray | float:
        """Posterior mean of the law's derivative in its first input."""
        return _plain(self.gradient_draws(*x, most=ENOUGH).mean(axis=0))

    def prior_sd(self, *x: ArrayLike) -> np.ndarray | float:
        """Standard deviation of a sampled law there before data, at the draws of its size. Other laws have no prior over
        functions: it is what it is after."""
        shape, arrays = self._flat(x)
        with self._precision():
            points = jnp.stack([jnp.asarray(xi, float) for xi in arrays], axis=-1)
            variance = _prior_variance(self.some(ENOUGH), self.frame, points)
        if variance is None:
            return _plain(self.prior_draws(*x, most=ENOUGH).std(axis=0))
        return _plain(np.sqrt(np.asarray(variance)).reshape(shape))

    def prior_interval(self, *x: ArrayLike, level: float = 0.95) -> tuple[np.ndarray | float, np.ndarray | float]:
        """The same as `interval`, before data."""
        return _ends(self.prior_draws(*x, most=ENOUGH), level)

    def contraction(self, *x: ArrayLike) -> np.ndarray | float:
        """c = 1 - (posterior variance) / (prior variance) of a sampled law there, the prior's at the draws of its size: the
        share of the prior's variance that data took away. One where structure leaves nothing to be decided."""
        left, before = (np.asarray(of(*x), float) for of in (self.sd, self.prior_sd))
        open_ = before > 0
        return _plain(np.where(open_, 1.0 - (left / np.where(open_, before, 1.0)) ** 2, 1.0))

    def supported(self, *x: ArrayLike) -> np.ndarray | bool:
        """Did data support the law there? Of a sampled law: they took away more than 75 % of its prior variance, and its
        standard deviation is at most three times the usual one where systems went. Of others: systems went there."""
        shape, arrays = self._flat(x)
        inside = np.zeros(len(arrays[0]), bool)
        if self.support is not None:
            inside = self.support.contains(np.stack([xi.astype(float) for xi in arrays], axis=-1))
        return inside.reshape(shape) if shape else bool(inside[0])

    def continued(self, seed: int = 0) -> "FittedLaw":
        """The same law on a table thrice as long, where every draw of a sampled law goes on as its prior does, given what it
        is inside; outside the table it has now a law is a straight line, surer of itself than anybody is."""
        if self.frame is None:
            return self
        with self._precision():
            law, frame = self.law.continued(self.frame, seed)
        return dataclasses.replace(self, law=law, frame=frame)

    def draws(self, *x: ArrayLike, most: int | None = None) -> np.ndarray:
        """The law of each draw, (draw, ...), in the order of the posterior's; at most so many, evenly from all. A law that all
        chains share is a single one."""
        return self._of_each(x, most)

    def gradient_draws(self, *x: ArrayLike, most: int | None = None) -> np.ndarray:
        """Derivative of the law of each draw in its first input, (draw, ...)."""
        return self._of_each(x, most, gradient=True)

    def prior_draws(self, *x: ArrayLike, most: int | None = None) -> np.ndarray:
        """Draws of a sampled law before data, each of the size that a posterior draw has, (draw, ...)."""
        with self._precision():
            law = self.law if most is None else self.some(most)
            return dataclasses.replace(self, law=_before_data(law, self.frame))._of_each(x, None)

    def some(self, most: int) -> AbstractLaw:
        """The law with at most so many of its draws, evenly from all."""
        return self.law if not self.law.spec.per_chain else self.with_draws(_evenly(self.count, most)).law

    def with_draws(self, which: np.ndarray) -> "FittedLaw":
        """The same with these of its draws alone."""
        arrays, rest = eqx.partition(self.law, eqx.is_array)
        law = eqx.combine(jax.tree.map(lambda a: np.asarray(a)[which], arrays), rest)
        return dataclasses.replace(self, law=law)

    @property
    def count(self) -> int:
        """How many draws there are; one of a law that all chains share."""
        return len(jax.tree.leaves(eqx.filter(self.law, eqx.is_array))[0]) if self.law.spec.per_chain else 1

    def _of_each(self, x: tuple[ArrayLike, ...], most: int | None, *, gradient: bool = False) -> np.ndarray:
        shape, arrays = self._flat(x)
        law = self.law if most is None else self.some(most)
        count = len(arrays[0])
        # As many points as a few programs have: compiling one more takes longer than a thousand points.
        more = max(0, 2 ** max(6, (count - 1).bit_length()) - count) if count else 0
        with self._precision():
            x = tuple(jnp.asarray(np.pad(np.asarray(xi, float), (0, more), mode="edge")) for xi in arrays)
            values = np.asarray(_evaluated(law, self.frame, x, gradient))
        return values[:, :count].reshape(len(values), *shape)

    def _flat(self, x: tuple[ArrayLike, ...]) -> tuple[tuple[int, ...], list[np.ndarray]]:
        """The shape of arguments together, and each of them as one line."""
        if len(x) != self.law.spec.inputs:
            raise TypeError(f"this closure takes {self.law.spec.inputs} inputs, got {len(x)}")
        arrays = np.broadcast_arrays(*(np.asarray(xi) for xi in x))
        return arrays[0].shape, [xi.ravel() for xi in arrays]

    def _precision(self) -> contextlib.AbstractContextManager:
        return jax.enable_x64(self.double or bool(jax.config.read("jax_enable_x64")))


@jit_soon
def _evaluated(law: AbstractLaw, frame: PyTree, x: tuple[Float[Array, " point"], ...], gradient: bool) -> Array:
    """Values or derivatives in the first input, (draw, point)."""

    def one(law: AbstractLaw) -> Array:
        called = law.as_function(frame)
        return jax.vmap(jax.grad(called) if gradient else called)(*x)

    return eqx.filter_vmap(one)(law) if law.spec.per_chain else one(law)[None]


@jit_soon
def _prior_variance(law: AbstractLaw, frame: PyTree, x: Float[Array, "point input"]) -> Float[Array, " point"] | None:
    return law.prior_variance(frame, x)


@jit_soon
def _before_data(law: AbstractLaw, frame: PyTree) -> AbstractLaw:
    if not law.spec.sampled:
        return law
    count = len(jax.tree.leaves(eqx.filter(law, eqx.is_array))[0])
    return eqx.filter_vmap(lambda law, key: law.redrawn(key, frame))(law, jr.split(jr.key(0), count))


def fitted(
    name: str, law: AbstractLaw, inputs: tuple[str, ...], visited: Float[np.ndarray, "call input"], frame: PyTree
) -> FittedLaw:
    """A law as a run leaves it, with where data supported it: of a sampled law where they decide it, of others where systems
    went."""
    found = FittedLaw(name, law, inputs, support_of(visited), frame)
    if not law.spec.sampled or found.support is None:
        return found
    return dataclasses.replace(found, support=_decided(found, found.support, np.asarray(visited, float)))


@np.errstate(invalid="ignore", over="ignore")  # laws of a run that diverged
def _decided(law: FittedLaw, visited_box: Support, visited: np.ndarray) -> Support:
    """Where data decide a sampled law, on cells around where systems went, within its table; where systems went, as long as there
    are no draws to tell."""
    width = visited_box.high - visited_box.low
    low, high = visited_box.low - width, visited_box.high + width
    if law.law.spec.structure.symmetric:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    low, high = np.maximum(low, np.asarray(law.frame.low)), np.minimum(high, np.asarray(law.frame.high))
    usual = np.median(np.asarray(law.sd(*visited[_evenly(len(visited), VISITS)].T)))
    if usual == 0:
        return visited_box
    edges = [np.linspace(a, b, FINE[len(low)] + 1) for a, b in zip(low, high)]
    grid = np.meshgrid(*((e[1:] + e[:-1]) / 2 for e in edges), indexing="ij")
    cells = (np.asarray(law.contraction(*grid)) > CONTRACTION) & (np.asarray(law.sd(*grid)) <= UNUSUAL * usual)
    if not cells.any():
        return Support(visited_box.low, visited_box.high, np.zeros((1,) * len(low), bool))
    # The box around them.
    ends = [(i.min(), i.max() + 1) for i in np.nonzero(cells)]
    cells = cells[tuple(slice(*end) for end in ends)]
    low, high = (np.array([e[end[side]] for e, end in zip(edges, ends)]) for side in (0, 1))
    return Support(low, high, None if cells.all() else cells)


def _evenly(count: int, most: int) -> np.ndarray:
    """At most so many of `count` in a row, spread over all."""
    return np.linspace(0, count - 1, min(most, count)).astype(int)


def _ends(draws: np.ndarray, level: float) -> tuple[np.ndarray | float, np.ndarray | float]:
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1, as in 0.95")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return _plain(low), _plain(high)


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
