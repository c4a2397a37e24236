"""Slice sampling: exact for any density, no tuning, a fixed number of steps."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

SHRINKS = 12
NUMBERS = SHRINKS + 2  # uniform numbers that one draw takes


def slice_draw(
    uniform: Float[Array, " number"],
    current: Float[Array, ""],
    log_density: Callable[[Array], Array],
    width: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """A move that leaves the density unchanged: uniform over the part of an interval where the density exceeds a random level.

    The interval, `width` wide and placed at random about `current`, shrinks towards it with every miss (Neal 2003, his
    figures 3 and 5). After so many misses `current` stays, which keeps the law: going there and back is as likely.
    """
    level = log_density(current) + jnp.log(uniform[0])
    low = current - width * uniform[1]

    def shrink(state: tuple[Array, Array, Array, Array], u: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        low, high, kept, found = state
        trial = low + u * (high - low)
        hit = ~found & (log_density(trial) > level)
        below = trial < current
        ends = jnp.where(below, trial, low), jnp.where(below, high, trial)
        return (*ends, jnp.where(hit, trial, kept), found | hit), None

    start = (low, low + width, current, jnp.zeros((), bool))
    return lax.scan(shrink, start, uniform[2:])[0][2]
