"""Randomness by the handful: one call of the generator a step, cut into what the step needs.

Every call of JAX's generator compiles to a loop of its own; a kernel that draws normals, uniforms and keys one after the
other spends more time being compiled than its solver.
"""

from math import prod

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import erfinv
from jaxtyping import Array, Float, PRNGKeyArray


def uniforms(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Float[Array, "..."]]:
    """Independent numbers in the open interval (0, 1), an array a shape."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    # The generator's steps are one epsilon wide and begin at zero: the middle of each is neither 0 nor 1.
    stream = jr.uniform(key, (int(ends[-1]),))
    stream = stream + jnp.finfo(stream.dtype).eps / 2
    return [part.reshape(shape) for part, shape in zip(jnp.split(stream, ends[:-1]), shapes)]


def normal(uniform: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard normal numbers from uniform ones."""
    return jnp.sqrt(2.0).astype(uniform.dtype) * erfinv(2 * uniform - 1)
