"""How many solves are worked through at once."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..equations import ForwardModel

CACHE = 32_000


def block_size(solves: int, bytes_each: int) -> int:
    """The largest divisor of `solves` that fits the cache; all of them where no useful one does, or size does not matter."""
    # A solve larger than the cache fills the vector units by itself, and in a small block few wait for the slowest.
    most = min(max(CACHE // bytes_each, 64 if bytes_each < CACHE else 4), solves) if bytes_each else solves
    fitting = next(size for size in range(most, 0, -1) if solves % size == 0)
    return fitting if fitting >= most // 3 else solves


def solve_systems(
    forward: ForwardModel, theta: Float[Array, "*draw system parameter"], laws: PyTree, law_axes: int = 0
) -> Float[Array, "*draw system point state"]:
    """Solutions on the grid for draws of all systems, a block at a time; with `law_axes` laws (or what stands in their place)
    have a draw axis in front."""
    if law_axes:
        arrays, rest = eqx.partition(laws, eqx.is_array)
        return lax.map(lambda one: solve_systems(forward, one[0], eqx.combine(one[1], rest)), (theta, arrays))
    flat = theta.reshape(-1, theta.shape[-1])
    system = jnp.broadcast_to(jnp.arange(theta.shape[-2]), theta.shape[:-1]).reshape(-1)
    size = block_size(len(flat), forward.working_set_size(0) * theta.dtype.itemsize)
    paths = lax.map(lambda one: forward.solution(one[0], laws, one[1]), (flat, system), batch_size=size)
    return paths.reshape(*theta.shape[:-1], *paths.shape[1:])
