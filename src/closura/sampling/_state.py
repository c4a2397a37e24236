"""What the chains hold, as one immutable PyTree. Every array has the group axis first, then the chain axis."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ..population import uniforms

GroupKeys = Key[Array, " group"]
Tree = TypeVar("Tree")


class Cache(NamedTuple):
    """What is expensive to compute where the chains stand.

    It depends on `DEPENDS_ON` and on nothing else: a kernel that changes one of these refreshes it, a kernel that changes
    hyperparameters or the size of the noise need not.
    """

    stats: PyTree  # of the likelihood that chains see: (group, chain, system, ...)
    exact: PyTree = None  # of the solver's likelihood, where moves are corrected by it
    prediction: PyTree = (
        None  # of every observation, where a kernel asks for scores: (group, chain, system, observation)
    )


DEPENDS_ON = ("theta", "law")


class Chains(NamedTuple):
    """Positions of all chains.

    - `theta`: unconstrained parameters of every system.
    - `phi`: hyperparameters of the population; () where there is none.
    - `log_sigma`: log size of the noise of each quantity, of a chain or of each of its systems; None where it is known.
    - `law`: laws that every chain holds for itself, by name; laws that all chains share are not here.
    """

    theta: Float[Array, "group chain system parameter"]
    phi: PyTree = ()
    log_sigma: PyTree = None
    law: PyTree = ()
    cache: Cache = Cache(())


class Info(NamedTuple):
    """What a move tells of each block; `acceptance` is NaN where none was proposed. `second` is the probability to pass the second stage, of what passed the first, NaN elsewhere."""

    acceptance: Float[Array, "group chain block"]
    finite: Bool[Array, "group chain block"]
    second: Float[Array, "group chain block"]


class Told(NamedTuple):
    """What a sweep tells of all its blocks, side by side, as `Info`; and apart from it of those moves that change laws."""

    acceptance: Float[Array, "group chain block"]
    finite: Bool[Array, "group chain block"]
    second: Float[Array, "group chain block"]
    laws: Info


def per_group(keys: GroupKeys, number: int | Array) -> GroupKeys:
    """A fresh key a group, one for each number."""
    return _fold_in(keys, number)


@jax.jit
def _fold_in(keys: GroupKeys, number: int | Array) -> GroupKeys:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def split_keys(keys: GroupKeys, count: int) -> list[GroupKeys]:
    """`count` new keys a group, as `count` arrays over groups."""
    return list(_split(keys, count))


@partial(jax.jit, static_argnums=1)
def _split(keys: GroupKeys, count: int) -> tuple[GroupKeys, ...]:
    parts = jax.vmap(lambda key: jax.random.split(key, count))(keys)
    return tuple(parts[:, number] for number in range(count))


def uniforms_by_group(keys: GroupKeys, *shapes: tuple[int, ...]) -> list[Array]:
    """Uniform numbers of each shape, with the group axis in front."""
    return jax.vmap(lambda key: uniforms(key, *shapes))(keys)


def choose(accept: Bool[Array, "group chain *system"], new: Tree, old: Tree) -> Tree:
    """`new` where accepted, of trees whose leaves begin with the axes of `accept`."""

    def one(a: Array, b: Array) -> Array:
        return jnp.where(accept.reshape(accept.shape + (1,) * (a.ndim - accept.ndim)), a, b)

    return jax.tree.map(one, new, old)


def choose_fields(
    accept: Bool[Array, "group chain *system"], new: Chains, old: Chains, fields: Iterable[str]
) -> Chains:
    """`old` with those fields of `new` that were accepted."""
    return old._replace(**{name: choose(accept, getattr(new, name), getattr(old, name)) for name in fields})
