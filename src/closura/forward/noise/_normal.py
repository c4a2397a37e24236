"""Normal noise, y = prediction + scale e with e ~ N(0, 1): sums of squares are all there is to know of a solve."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...population import TRIES, draw_log_variance, uniforms
from ._base import ChainScale, LogLik, LogLikAndGrad, LogScale, Measured, NoisePrior, ResidualStats
from ._residual import ResidualNoise


class Normal(ResidualNoise):
    """log p = -log(2 pi) / 2 - log scale - r^2 / 2,  r = (y - prediction) / scale.

    The scale is the standard deviation. Since rho is linear, sums of squares at scale one give the likelihood at any scale:
    they are cached for each quantity, and log scales drawn exactly given them.
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

    def prepare(self, value: np.ndarray, scale: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """l(y), weights of squares, and the log density of each system that is met exactly."""
        each = self.constant - np.log(scale) + np.log(self.link_gradient(value))
        return self.link(value), np.where(mask, 1 / scale**2, 0.0), np.sum(np.where(mask, each, 0.0), axis=1)

    def stats(self, measured: Measured, prediction: Array, jacobian: Array | None) -> ResidualStats:
        """Squares r^2, and minus half their derivatives."""
        value, weight, _ = measured.prepared
        residual = value - self.link(prediction)
        weighted = weight * residual
        square = _over_quantities(measured, weighted * residual)
        if jacobian is None:
            return ResidualStats(square, None)
        gradient = self.link_gradient(prediction) * jacobian
        return ResidualStats(square, jnp.moveaxis(_over_quantities(measured, gradient * weighted), 0, -1))

    def loglik(self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None) -> LogLik:
        log_scales, precision = _at_scale(measured, log_scale)
        return measured.prepared[2] - log_scales - 0.5 * jnp.sum(stats.value * precision, axis=-1)

    def loglik_and_grad(self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None) -> LogLikAndGrad:
        assert stats.gradient is not None
        _, precision = _at_scale(measured, log_scale)
        return self.loglik(measured, stats, log_scale), jnp.sum(precision[..., None] * stats.gradient, axis=-2)

    def gibbs_noise(
        self,
        key: PRNGKeyArray,
        prior: NoisePrior,
        measured: Measured,
        stats: ResidualStats,
        log_scale: ChainScale,
        temperature: Float[Array, ""] | float = 1.0,
    ) -> ChainScale:
        """Exactly, like the variance of a population."""
        (uniform,) = uniforms(key, (*log_scale.shape, TRIES, 2))
        squares = temperature * jnp.sum(stats.value, axis=1)
        count = temperature * jnp.sum(measured.counts, axis=0)
        over_chains = jax.vmap(jax.vmap(draw_log_variance), in_axes=(0, 0, 0, None, None, None))
        return 0.5 * over_chains(uniform, 2 * log_scale, squares, count, 2 * prior.mean, 4 * prior.variance)


def _over_quantities(
    measured: Measured, each: Float[Array, "*lead system observation"]
) -> Float[Array, "*lead system term"]:
    """Sums over the observations of each quantity; over all, where no scale is inferred."""
    if measured.quantity_onehot is None:
        return jnp.sum(each, axis=-1, keepdims=True)
    return jnp.einsum("...so,soq->...sq", each, measured.quantity_onehot)


def _at_scale(measured: Measured, log_scale: LogScale | None) -> tuple[Array, Array]:
    """Log scales summed over the observations of each system, and the precision that each term has then."""
    if measured.quantity_onehot is None or log_scale is None:
        return jnp.zeros(()), jnp.ones(())
    systems = "" if log_scale.ndim == 2 else "s"
    log_scales = jnp.einsum(f"sq,c{systems}q->cs", measured.counts, log_scale)
    return log_scales, jnp.exp(-2 * (log_scale[:, None] if log_scale.ndim == 2 else log_scale))
