"""Threefry-2x32 with 20 rounds (Salmon et al. 2011), the generator behind JAX's keys, written out.

JAX's own runs in a loop, whose every turn writes its words to memory, and keeps half of them; this is one pass, and took a
third of the time. Its words are the same (`jax.extend.random.threefry_2x32`).
"""

import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


def words(key: UInt32[Array, " 2"], count: int) -> tuple[UInt32[Array, " count"], UInt32[Array, " count"]]:
    """The words of the counters 0 to 2 `count` - 1, in two halves."""
    schedule = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY)
    counter = jnp.arange(count, dtype=jnp.uint32)
    x, y = counter + schedule[0], counter + jnp.uint32(count) + schedule[1]
    for turn in range(5):
        for by in ROTATIONS[turn % 2]:
            x = x + y
            y = x ^ (y << jnp.uint32(by) | y >> jnp.uint32(32 - by))
        x, y = x + schedule[(turn + 1) % 3], y + schedule[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return x, y


def uniform(key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
    """Independent numbers in the open interval (0, 1): the middle of one of 2^23 equal parts, or of 2^52."""
    data, made = jr.key_data(key)[:2], jnp.finfo(jnp.result_type(float))
    if made.bits == 64:
        high, low = ((half >> jnp.uint32(6)).astype(jnp.uint64) for half in words(data, count))
        mantissa = high << jnp.uint64(26) | low
    else:
        mantissa = jnp.concatenate(words(data, (count + 1) // 2))[:count] >> jnp.uint32(9)
    # A number in [1, 2) by its bits, less nearly 1: a factor in its place would be taken out of products, which then underflow.
    one = lax.bitcast_convert_type(jnp.ones((), made.dtype), mantissa.dtype)
    numbers = lax.bitcast_convert_type(mantissa | one, made.dtype) - (1 - made.eps / 2)
    # What reads a part of them would else make it anew.
    return lax.optimization_barrier(numbers)
