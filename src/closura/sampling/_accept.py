"""Accepting and rejecting, in one stage or two; choosing one of several; and ensembles whose halves take turns."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from ..population import normal
from ._posterior import Target
from ._state import Chains, GroupKeys, Info, choose, uniforms_by_group

Reduce = Callable[[Float[Array, "group chain system"]], Float[Array, "group chain block"]]
Bid = tuple[dict[str, PyTree], Float[Array, "group chain system"]]  # fields of the chains' state, and what they bid


class Randomness(NamedTuple):
    """All the randomness of a move."""

    proposal: Shaped[Array, "group chain block direction"]
    log_uniform: Float[Array, "group chain block"]
    log_uniform_second: Float[Array, "group chain block"]


def randomness(keys: GroupKeys, shape: tuple[int, ...], made: Callable[[Array], Array] = normal) -> Randomness:
    """Of shape (group, chain, block, direction); `made` turns uniform numbers into those of the proposal."""
    step, first, second = uniforms_by_group(keys, shape[1:], shape[1:3], shape[1:3])
    return Randomness(made(step), jnp.log(first), jnp.log(second))


def is_finite(value: Array, gradient: Array) -> Bool[Array, "group chain block"]:
    return jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient), axis=-1)


def decide(
    random: Randomness,
    posterior: Target,
    chains: Chains,
    proposed: Chains,
    log_ratio: Float[Array, "group chain block"],
    finite: Bool[Array, "group chain block"],
    reduce: Reduce = lambda value: value,
) -> tuple[Bool[Array, "group chain block"], Info]:
    """Accept by the log ratio of target and proposal densities; then again by the exact likelihood, where it corrects.

    `reduce` takes values of systems to those of blocks. A proposal that is not finite is rejected; from a start that was
    not finite any finite one is accepted.
    """
    log_ratio = jnp.where(finite & ~jnp.isnan(log_ratio), log_ratio, -jnp.inf)
    accept = random.log_uniform < log_ratio
    second = jnp.full_like(log_ratio, jnp.nan)
    if posterior.delayed_acceptance:
        # From a start where the first likelihood had nothing finite, the exact one alone decides.
        before, after = (reduce(posterior.exact_loglik(state)) for state in (chains, proposed))
        seen, seen_after = (reduce(posterior.loglik(state)) for state in (chains, proposed))
        already = jnp.where(jnp.isfinite(seen), seen_after - seen, 0.0)
        again = posterior.temperature * (after - before - already)
        again = jnp.where(jnp.isfinite(after) & ~jnp.isnan(again), again, -jnp.inf)
        second = jnp.where(accept, jnp.exp(jnp.minimum(0.0, again)), jnp.nan)
        accept = accept & (random.log_uniform_second < again)
    return accept, Info(jnp.exp(jnp.minimum(0.0, log_ratio)), finite, second)


def bid(log_weight: Array, uniform: Array) -> Array:
    """Gumbel numbers about the log weights: the largest of several is one chosen in proportion to the weights."""
    return jnp.where(jnp.isfinite(log_weight), log_weight, -jnp.inf) - jnp.log(-jnp.log(uniform))


def highest_bid(first: Bid, candidate: Callable[[Array], Bid], count: int) -> dict[str, PyTree]:
    """The fields with the highest bid, of every system: those of `first`, or of a candidate number 1 to `count`."""

    def one(best: Bid, number: Array) -> tuple[Bid, None]:
        fields, found = candidate(number)
        better = found > best[1]
        return (choose(better, fields, best[0]), jnp.where(better, found, best[1])), None

    return lax.scan(one, first, jnp.arange(1, 1 + count))[0][0]


def by_halves(
    move: Callable[[Randomness, Chains, Chains], tuple[Chains, Info]], random: Randomness, chains: Chains
) -> tuple[Chains, Info]:
    """`move(random, moving, still)` of one half of the chains given where the others stand still, then of the others."""
    half = chains.theta.shape[1] // 2

    def turn(state: tuple[Randomness, Chains], _: None) -> tuple[tuple[Randomness, Chains], Info]:
        moving: tuple[Randomness, Chains] = jax.tree.map(lambda a: a[:, :half], state)
        still: tuple[Randomness, Chains] = jax.tree.map(lambda a: a[:, half:], state)
        moved, info = move(moving[0], moving[1], still[1])
        # Change places: the second turn moves the other half, and leaves everyone where they were.
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), still, (moving[0], moved))
        return joined, info

    (_, chains), info = lax.scan(turn, (random, chains), length=2)
    return chains, jax.tree.map(lambda a: jnp.concatenate([a[0], a[1]], axis=1), info)
