"""What a law is: the contract that network, table and given function keep.

A problem states a law as a `LawSpec`; a run holds it as an `AbstractLaw`; a solver calls what `prepare` makes of it, a
`SolverLaw`. All three know their `spec`, so nobody asks which kind of law it is.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._structure import Structure


class Range(NamedTuple):
    """Where a law was called: one low and one high an input."""

    low: Float[Array, " input"]
    high: Float[Array, " input"]


class Scaling(NamedTuple):
    """Units of a law: network inputs are (x - center) / scale, its output is multiplied by `output`."""

    center: Float[Array, " input"]
    scale: Float[Array, " input"]
    output: Float[Array, ""]


class LawSpec(abc.ABC):
    """What a problem states of a law f(x1, x2, ...): a frozen dataclass without arrays.

    - `inputs`: how many arguments the law takes; `structure`: what it promises, by default nothing.
    - `trainable`: an unknown that learning moves. False: the law is given.
    - `per_chain`: every chain holds a law of its own, as it holds theta. False, by default: all chains share one.
    """

    inputs: int
    trainable: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def structure(self) -> Structure:
        return Structure(self.inputs)

    @property
    def per_chain(self) -> bool:
        return False

    @abc.abstractmethod
    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "AbstractLaw":
        """One law, as it is before the first iteration. Where every chain has its own, the caller vmaps over keys."""


class SolverLaw(eqx.Module):
    """A law as a solver calls it, thousands of times a solution."""

    spec: eqx.AbstractVar[LawSpec]

    @abc.abstractmethod
    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        """The law at one place; differentiable, forward and backward."""

    def outside(self, x: Float[Array, "*calls input"]) -> Float[Array, "*calls"] | None:
        """1 where a call lies outside what was prepared, else 0; None, by default, where no call can."""
        return None


class AbstractLaw(SolverLaw):
    """A law as a run holds it: a PyTree for one chain.

    A law that all chains share is stored once. One that every chain has its own of (`spec.per_chain`) has chain axes in
    front of its array leaves, and the caller vmaps: `chain_axes(laws)` are the `in_axes`.
    """

    def prepare(self, range_: Range) -> SolverLaw:
        """What a solver calls: once an iteration, so that the many calls are cheap. The law itself by default."""
        return self

    def log_prior(self, range_: Range, view: SolverLaw) -> Float[Array, ""]:
        """Log density of the weights, up to a constant; `view` is the law as prepared for this range."""
        return jnp.zeros(())

    @property
    def unit(self) -> float:
        """How large a law must be to matter."""
        return 1.0

    @property
    def weights(self) -> PyTree[Array]:
        """What learning moves; a PyTree without leaves, as by default, where the law is given."""
        return None

    def with_weights(self, weights: PyTree) -> "AbstractLaw":
        """The same law with these in the place of `weights`."""
        return self


Laws = Mapping[str, AbstractLaw]
SolverLaws = Mapping[str, SolverLaw]
