"""Randomness by the handful: one call of the generator a step, cut into what the step needs, and draws made of it.

Every call of JAX's generator compiles to a loop of its own; a kernel that draws normals, uniforms and keys one after the
other spends more time being compiled than its solver.
"""

from collections.abc import Callable
from math import prod

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import erfinv
from jaxtyping import Array, Float, PRNGKeyArray

from ._threefry import uniform

SHRINKS = 12
NUMBERS = SHRINKS + 2  # uniform numbers that one draw by slices takes
TRIES = 5  # pairs of uniform numbers that one draw of a log variance takes


def uniforms(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Independent numbers in the open interval (0, 1), an array a shape."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    stream = uniform(key, int(ends[-1]))
    return [part.reshape(shape) for part, shape in zip(jnp.split(stream, ends[:-1]), shapes)]


def normal(uniform: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard normal numbers from uniform ones."""
    return jnp.sqrt(2.0).astype(uniform.dtype) * erfinv(2 * uniform - 1)


def chi_square_numbers(degrees: int) -> int:
    """How many uniform numbers a draw of chi-square with so many degrees of freedom takes."""
    return (degrees + 1) // 2


def chi_square(uniform: Float[Array, "number *shape"], degrees: int) -> Float[Array, "*shape"]:
    """Chi-square numbers: two degrees of freedom are an exponential number, an odd one is a squared normal number."""
    pairs = degrees // 2
    total = -2 * jnp.log(jnp.prod(uniform[:pairs], axis=0))
    return total + normal(uniform[pairs]) ** 2 if degrees % 2 else total


def slice_draw(
    uniform: Float[Array, " number"],
    current: Float[Array, ""],
    log_density: Callable[[Array], Array],
    width: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """A slice move, which leaves any density unchanged: uniform over the part of an interval where it exceeds a random level.

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


def draw_log_variance(
    uniform: Float[Array, "tries 2"],
    current: Float[Array, ""],
    squares: Float[Array, ""],
    count: Float[Array, ""] | int,
    mean: Float[Array, ""],
    variance: Float[Array, ""],
) -> Float[Array, ""]:
    """Exact draw of x = log tau from  -(x - mean)^2 / (2 variance) - count x / 2 - squares exp(-x) / 2.

    The density is log-concave, so tangents lie above it. Rejection from three pieces: the tangents at one point on each
    side of the mode, and a flat roof between; the points only set the efficiency (about 0.8), never the law. Should all
    tries be rejected, `current` stays: whether that happens does not depend on `current`, so the law is kept still.
    """

    def log_density(x: Array) -> Array:
        return -0.5 * ((x - mean) ** 2 / variance + count * x + squares * jnp.exp(-x))

    def slope(x: Array) -> Array:
        return -(x - mean) / variance - 0.5 * count + 0.5 * squares * jnp.exp(-x)

    def curvature(x: Array) -> Array:
        return 1 / variance + 0.5 * squares * jnp.exp(-x)

    # At the mode y = variance squares exp(-x) / 2 solves y + log y = b. In z = log y that is convex and rising, and Newton
    # from the right of its root (where this starts) gets there without ever overshooting.
    log_scale = jnp.log(0.5 * variance * jnp.maximum(squares, 1e-30))
    b = log_scale - mean + 0.5 * variance * count
    first = jnp.where(b > 1.0, jnp.log(jnp.maximum(b, 1.0)), b)
    z = lax.fori_loop(0, 6, lambda _, z: z - (jnp.exp(z) + z - b) / (jnp.exp(z) + 1.0), first)
    mode = jnp.where(z < 0.0, mean - 0.5 * variance * count + jnp.exp(z), log_scale - z)
    reach = 1.2 / jnp.sqrt(curvature(mode))
    top, left, right = log_density(mode), mode - reach, mode + reach
    up, down = slope(left), slope(right)
    # Where the tangents meet the roof.
    from_left = left + (top - log_density(left)) / up
    from_right = right + (top - log_density(right)) / down
    rising, flat, falling = 1 / up, from_right - from_left, -1 / down
    drawn, threshold = uniform.T
    place = drawn * (rising + flat + falling)
    before, after = place <= rising, place > rising + flat
    # How far into its piece: again uniform.
    start = jnp.where(before, 0.0, jnp.where(after, rising + flat, rising))
    u = (place - start) / jnp.where(before, rising, jnp.where(after, falling, flat))
    tail = jnp.log(u)
    x = jnp.where(before, from_left + tail / up, from_left + u * flat)
    x = jnp.where(after, from_right + tail / down, x)
    accepted = jnp.log(threshold) <= log_density(x) - (top + jnp.where(before | after, tail, 0.0))
    # The first that was accepted; plain selections fuse, a look-up does not.
    kept = current
    for i in reversed(range(len(uniform))):
        kept = jnp.where(accepted[i], x[i], kept)
    return kept
