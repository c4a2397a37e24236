"""What a law is: the contract that network, table and given function keep.

A problem states a law as a `LawSpec`; a run holds it as an `AbstractLaw`; a solver calls what `prepare` makes of it, a
`SolverLaw`. All three know their `spec`, so nobody asks which kind of law it is. The laws of a problem are built, prepared for
a solver and handed to the physics together.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._structure import Structure


class LawError(ValueError):
    """There is no such law, or it cannot be written; the message says what to do."""


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

    @property
    def sampled(self) -> bool:
        """An unknown that every chain has its own of: the posterior is one over functions, and so is the prior."""
        return self.trainable and self.per_chain

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Where the law is given, and what it is there."""
        return ()

    @property
    def promised(self) -> tuple[str, ...]:
        """What the law promises, in words."""
        return self.structure.promised

    @property
    def in_words(self) -> bool:
        """Can all that it states be written as numbers and words? Where it holds a function it cannot: reading a run needs the
        problem then. By default, where the law is learned."""
        return self.trainable

    @property
    def step(self) -> tuple[str, ...]:
        """Names of what is free of a jump, the first of a chain's coordinates after constants of integration."""
        return ()

    @property
    def sharp(self) -> tuple[float, ...]:
        """At which inputs it may bend or jump as sharply as it likes: nowhere, by default."""
        return ()

    def frame(self, range_: Range, scaling: Scaling) -> PyTree:
        """What laws are prepared with, for calls within a range: the range itself, by default."""
        return range_

    def as_network(self) -> "LawSpec":
        """The law as a network that all chains share, with the same structure; as it is, by default."""
        return self

    def as_sampled(self) -> "LawSpec":
        """The law as every chain samples it, with the same structure; as it is, by default."""
        return self

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

    def prepare(self, range_: PyTree) -> SolverLaw:
        """What a solver calls: once an iteration, so that the many calls are cheap. The law itself by default."""
        return self

    def as_function(self, range_: PyTree) -> SolverLaw:
        """What people call: the law itself, by default; a law that knows its values by a table alone, as prepared."""
        return self

    def log_prior(self, range_: PyTree, view: SolverLaw | None) -> Float[Array, ""]:
        """Log density of the weights, up to a constant; `view` is the law as prepared for this range."""
        return jnp.zeros(())

    def prior_variance(self, range_: PyTree, x: Float[Array, "point input"]) -> Float[Array, " point"] | None:
        """Variance of the law at points before data, over all draws of what governs its prior, of a law with an axis of
        draws in front; None, by default, where no closed form is known."""
        return None

    def prior_precision(self, range_: PyTree) -> Float[Array, "..."]:
        """Of the weights of a law that is sampled, given its size."""
        raise TypeError(f"{type(self).__name__} has no prior over functions")

    def redrawn(self, key: PRNGKeyArray, range_: PyTree, spread: ArrayLike = 1.0) -> "AbstractLaw":
        """Another law from its prior, of the size that this one has, so many standard deviations wide; the law itself, by
        default, where there is no prior to draw functions from."""
        return self

    def unit(self, range_: PyTree) -> float:
        """How large a law must be to matter."""
        return 1.0

    def continued(self, range_: PyTree, seed: int) -> tuple["AbstractLaw", PyTree]:
        """The same law and what to prepare it with further out than its table, of a law with an axis of draws in front: there
        every draw is one of the prior, given what it is inside. As it is, by default, where nothing is known of that."""
        return self, range_

    @property
    def unknowns(self) -> dict[str, np.ndarray]:
        """What chains hold of a sampled law, by name, with their axes in front; nothing, by default."""
        return {}

    def node_places(self, range_: PyTree) -> Float[np.ndarray, " node"] | None:
        """Where a law of one input has nodes, if it is known by those alone; None by default."""
        return None

    def named(self, range_: PyTree) -> dict[str, Float[Array, "*chain"]]:
        """Numbers of the law that mean something by themselves, in physical units, by name: none, by default."""
        return {}

    @property
    def weights(self) -> PyTree[Array]:
        """What learning moves; a PyTree without leaves, as by default, where the law is given."""
        return None

    def with_weights(self, weights: PyTree) -> "AbstractLaw":
        """The same law with these in the place of `weights`."""
        return self


Laws = Mapping[str, AbstractLaw]
SolverLaws = Mapping[str, SolverLaw]
Calls = dict[str, list[Array]]


def build(
    specs: Mapping[str, LawSpec], key: PRNGKeyArray, scalings: Mapping[str, Scaling], chains: tuple[int, ...] = ()
) -> dict[str, AbstractLaw]:
    """Every law with its first weights; where each chain has its own, with the axes `chains` in front."""
    keys = jr.split(key, max(1, len(specs)))
    return {name: _built(spec, k, scalings[name], chains) for k, (name, spec) in zip(keys, specs.items())}


def _built(spec: LawSpec, key: PRNGKeyArray, scaling: Scaling, chains: tuple[int, ...]) -> AbstractLaw:
    if not spec.per_chain or not chains:
        return spec.build(key, scaling)
    own = eqx.filter_vmap(lambda key: _built(spec, key, scaling, chains[1:]))
    return own(jr.split(key, chains[0]))


def prepare(laws: Laws, ranges: Mapping[str, PyTree], leading: int = 0) -> dict[str, SolverLaw]:
    """Every law as the solver calls it; `leading` chain axes are in front of the leaves of those that chains do not share."""

    def one(law: AbstractLaw, range_: PyTree, leading: int) -> SolverLaw:
        if not law.spec.per_chain or not leading:
            return law.prepare(range_)
        return eqx.filter_vmap(lambda law: one(law, range_, leading - 1))(law)

    return {name: one(law, ranges[name], leading) for name, law in laws.items()}


def first_of(laws: Laws, leading: int) -> dict[str, AbstractLaw]:
    """Every law as one chain has it: the first, of those with so many chain axes in front."""
    return {
        name: jax.tree.map(lambda a: a[(0,) * leading], law) if law.spec.per_chain else law
        for name, law in laws.items()
    }


def over_draws(shared: SolverLaws, own: SolverLaws, axes: int = 1) -> tuple[SolverLaws, int]:
    """Shared laws, and laws with so many axes in front, together: all of them with these axes, and their number; the shared
    ones themselves and 0, where there are no others."""
    leaves = jax.tree.leaves(own)
    if not leaves:
        return dict(shared) | dict(own), 0
    lead = leaves[0].shape[:axes]
    everyone = jax.tree.map(lambda a: jnp.broadcast_to(a, (*lead, *jnp.shape(a))), dict(shared))
    return everyone | dict(own), axes


def chain_axes(laws: SolverLaws) -> dict[str, int | None]:
    """The `in_axes` of laws, or of prepared laws, where a function of one chain is mapped over chains."""
    return {name: 0 if law.spec.per_chain else None for name, law in laws.items()}


class NamedLaws:
    """Several laws, called by name: f.damping(v), f.spring(u)."""

    def __init__(self, laws: Mapping[str, Callable[..., Array]]):
        self.__dict__.update(laws)

    def __call__(self, *x: ArrayLike) -> NoReturn:
        names = ", ".join(f"f.{name}" for name in self.__dict__)
        raise TypeError(f"this problem has several closures; call one by name: {names}")


def bind(laws: SolverLaws, single: bool, record: Calls | None = None) -> Callable[..., Array] | NamedLaws | None:
    """The `f` a physics function receives. With `record`, every call's inputs are noted there."""
    called = {name: _called(name, law, record) for name, law in laws.items()}
    if not called:
        return None
    return called["f"] if single else NamedLaws(called)


def _called(name: str, law: SolverLaw, record: Calls | None) -> Callable[..., Array]:
    takes = law.spec.inputs

    def call(*x: ArrayLike) -> Array:
        if len(x) != takes:
            raise TypeError(
                f"closure {name!r} takes {takes} input{'s' * (takes > 1)}, but the physics calls it with {len(x)}; "
                f"declare it with inputs={len(x)}, or change the call"
            )
        arrays = jnp.broadcast_arrays(*(jnp.asarray(xi, float) for xi in x))
        if record is not None:
            record[name].append(jnp.stack(arrays, axis=-1).reshape(-1, takes))
        return jnp.vectorize(law)(*arrays) if arrays[0].ndim else law(*arrays)

    return call
