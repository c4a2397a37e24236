"""The cubics of a table's cells, from what g says at their ends."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def cubics(left: Float[Array, "cell 2"], right: Float[Array, "cell 2"]) -> Float[Array, "cell 4"]:
    """The cubic of each cell, from values and gradients (in steps) at its ends."""
    (value, d0), (other, d1) = left.T, right.T
    rise = other - value
    return jnp.stack([value, d0, 3 * rise - 2 * d0 - d1, d0 + d1 - 2 * rise], axis=-1)


def integrated(left: Array, right: Array, step: Array, start: Array, times: int) -> Float[Array, "cell 4"]:
    """A function that is linear in every cell, between what its ends say, integrated once or twice from node `start`, exactly:
    where it is positive the result grows, or bends upwards, to the last bit of every cell."""

    def integral(rise: Array) -> Array:
        total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(rise)])
        return total - total[start]

    left, right = step * left, step * right
    first = integral(0.5 * (left + right))
    if times == 1:
        return jnp.stack([first[:-1], left, 0.5 * (right - left), jnp.zeros_like(left)], axis=-1)
    second = integral(step * (first[:-1] + (2 * left + right) / 6))
    cells = [second[:-1], step * first[:-1], 0.5 * step * left, step * (right - left) / 6]
    return jnp.stack(cells, axis=-1)
