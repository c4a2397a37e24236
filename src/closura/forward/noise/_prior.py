"""What is believed of scales that nobody states, before data."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class NoisePrior(eqx.Module):
    """log scale of every quantity ~ N(mean, variance); those not `free` are stated, and stay zero."""

    mean: Float[Array, " quantity"]
    variance: Float[Array, " quantity"]
    free: tuple[bool, ...] = eqx.field(static=True)

    def draw(self, normal: Float[Array, "*shape quantity"]) -> Float[Array, "*shape quantity"]:
        """Log scales that standard normal numbers stand for."""
        return jnp.where(np.array(self.free), self.mean + jnp.sqrt(self.variance) * normal, 0.0)

    def keep(
        self, drawn: Float[Array, "*shape quantity"], log_scale: Float[Array, "*shape quantity"]
    ) -> Float[Array, "*shape quantity"]:
        """What was drawn, where it is free."""
        return jnp.where(np.array(self.free), drawn, log_scale)

    def log_prior(self, log_scale: Float[Array, "*shape quantity"]) -> Float[Array, "*shape"]:
        away = (log_scale - self.mean) ** 2 / self.variance + jnp.log(2 * jnp.pi * self.variance)
        return jnp.sum(jnp.where(np.array(self.free), -0.5 * away, 0.0), axis=-1)
