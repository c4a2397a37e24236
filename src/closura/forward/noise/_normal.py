"""Normal noise, y = prediction + scale e with e ~ N(0, 1): sums of squares are all there is to know of a solve."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...population import TRIES, draw_log_variance, uniforms
from ._base import LogScale, Measured, ResidualStats
from ._prior import NoisePrior
from ._residual import ResidualNoise


class Normal(ResidualNoise):
    """log p = -log(2 pi) / 2 - log scale - r^2 / 2,  r = (y - prediction) / scale.

    The scale is the standard deviation. Since rho is linear, squares are summed over each quantity before they are cached,
    and log scales drawn exactly given the sums.
    """

    constant = -0.5 * math.log(2 * math.pi)
    efficiency = 1.0
    scale_label = "Standard deviation of the measurement noise."

    def rho(self, square: Array) -> Array:
        return 0.5 * square

    def pull(self, square: Array) -> Array:
        return jnp.ones_like(square)

    def standard(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jr.normal(key, shape)

    def standard_quantile(self, level: np.ndarray) -> np.ndarray:
        from scipy.special import ndtri

        return ndtri(level)

    def quantile_residuals(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return self.apart(y, prediction, scale)

    def _terms(
        self, measured: Measured, each: Float[Array, "*lead system observation"]
    ) -> Float[Array, "*lead system term"]:
        if measured.quantity_onehot is None:
            return jnp.sum(each, axis=-1, keepdims=True)
        return jnp.einsum("...so,soq->...sq", each, measured.quantity_onehot)

    def _log_scales(self, measured: Measured, log_scale: LogScale) -> Float[Array, "chain #system term"]:
        return log_scale[:, None] if log_scale.ndim == 2 else log_scale

    def gibbs_noise(
        self,
        key: PRNGKeyArray,
        prior: NoisePrior,
        measured: Measured,
        stats: ResidualStats,
        log_scale: Float[Array, "chain quantity"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> Float[Array, "chain quantity"]:
        """Exactly, like the variance of a population."""
        (uniform,) = uniforms(key, (*log_scale.shape, TRIES, 2))
        squares = temperature * jnp.sum(stats.value, axis=1)
        count = temperature * jnp.sum(measured.counts, axis=0)
        over_chains = jax.vmap(jax.vmap(draw_log_variance), in_axes=(0, 0, 0, None, None, None))
        drawn = 0.5 * over_chains(uniform, 2 * log_scale, squares, count, 2 * prior.mean, 4 * prior.variance)
        return prior.keep(drawn, log_scale)
