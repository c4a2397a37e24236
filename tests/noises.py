"""A family of noise as a user would write it: nothing but a density and how to draw from it."""

import jax.numpy as jnp
import jax.random as jr

import closura as cl


class Laplace(cl.Noise):
    """p = exp(-|y - prediction| / scale) / (2 scale)."""

    def log_prob(self, y, prediction, scale):
        return -jnp.abs(y - prediction) / scale - jnp.log(2 * scale)

    def sample(self, key, prediction, scale):
        return prediction + scale * jr.laplace(key, prediction.shape, prediction.dtype)
