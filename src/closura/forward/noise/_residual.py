"""Families of a standardised residual, whose squares are all that a likelihood needs to know of a solve.

    log p(y | prediction, scale) = c - log scale - rho(r^2) + log l'(y),    r = (l(y) - l(prediction)) / scale

with l the identity (or the logarithm). Squares at scale one give the likelihood at any scale.
"""

import abc
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._base import LogScale, Measured, Noise, ResidualStats, stratified

Numbers = TypeVar("Numbers", Array, np.ndarray)


class ResidualNoise(Noise):
    """What these families share; one states c, rho and its derivative, the standard noise, and l where it is none."""

    residual_label = "(data − fit) / σ"

    @property
    @abc.abstractmethod
    def constant(self) -> float:
        """c, the log density of an observation that is met exactly, at scale one."""

    @abc.abstractmethod
    def rho(self, square: Array) -> Array:
        """Minus the log density as a function of r^2, zero at zero."""

    @abc.abstractmethod
    def pull(self, square: Array) -> Array:
        """Twice the derivative of rho."""

    @abc.abstractmethod
    def standard(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Noise of scale one."""

    @abc.abstractmethod
    def standard_quantile(self, level: np.ndarray) -> np.ndarray: ...

    @property
    @abc.abstractmethod
    def efficiency(self) -> float:
        """Fisher's information in l(prediction), at scale one."""

    def link(self, x: Numbers) -> Numbers:
        """l, of arrays of JAX or NumPy; NaN where it is impossible."""
        return x

    def unlink(self, x: Numbers) -> Numbers:
        return x

    def link_gradient(self, x: Numbers) -> Numbers:
        """l'."""
        return x**0

    # As of every family -----------------------------------------------------------------------------------------------

    def log_prob(self, y: Array, prediction: Array, scale: Array) -> Array:
        square = ((self.link(y) - self.link(prediction)) / scale) ** 2
        return self.constant - jnp.log(scale) - self.rho(square) + jnp.log(self.link_gradient(y))

    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array:
        return self.unlink(self.link(prediction) + scale * self.standard(key, prediction.shape))

    def information(self, prediction: Array, scale: Array) -> Array:
        return self.efficiency * (self.link_gradient(prediction) / scale) ** 2

    def weight(self, y: Array, prediction: Array, scale: Array) -> Array:
        """As in iteratively reweighted least squares."""
        square = ((self.link(y) - self.link(prediction)) / scale) ** 2
        return self.pull(square) * (self.link_gradient(prediction) / scale) ** 2

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.broadcast_to(scale, prediction.shape)

    def apart(self, one: np.ndarray, other: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return (self.link(one) - self.link(other)) / scale

    def interval(self, prediction: np.ndarray, scale: np.ndarray, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        middle = self.link(prediction)
        return self.unlink(middle - width * scale), self.unlink(middle + width * scale)

    def measurements(self, seed: int, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        # Quantiles are the same few for all that is predicted: they are computed once.
        levels = stratified(prediction)
        noise = np.broadcast_to(self.standard_quantile(levels[:, :1]), levels.shape)
        noise = np.random.default_rng(seed).permuted(noise, axis=0).reshape(prediction.shape)
        return self.unlink(self.link(prediction) + noise * scale)

    # Squares ----------------------------------------------------------------------------------------------------------

    def prepare(self, value: np.ndarray, scale: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """l(y), weights of squares, and the log density of each system that is met exactly."""
        each = self.constant - np.log(scale) + np.log(self.link_gradient(value))
        return self.link(value), np.where(mask, 1 / scale**2, 0.0), np.sum(np.where(mask, each, 0.0), axis=1)

    def stats(self, measured: Measured, prediction: Array, jacobian: Array | None) -> ResidualStats:
        """Squares r^2, and minus half their derivatives."""
        value, weight, _ = measured.prepared
        residual = value - self.link(prediction)
        weighted = weight * residual
        square = self._terms(measured, weighted * residual)
        if jacobian is None:
            return ResidualStats(square, None)
        gradient = self.link_gradient(prediction) * jacobian
        return ResidualStats(square, jnp.moveaxis(self._terms(measured, gradient * weighted), 0, -1))

    def loglik(
        self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None
    ) -> Float[Array, "chain system"]:
        constant = measured.prepared[2]
        if measured.quantity_onehot is None or log_scale is None:
            return constant - jnp.sum(self.rho(stats.value), axis=-1)
        systems = "" if log_scale.ndim == 2 else "s"
        size = jnp.einsum(f"sq,c{systems}q->cs", measured.counts, log_scale)
        square = stats.value * jnp.exp(-2 * self._log_scales(measured, log_scale))
        return constant - size - jnp.sum(self.rho(square), axis=-1)

    def loglik_and_grad(
        self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None
    ) -> tuple[Float[Array, "chain system"], Float[Array, "chain system parameter"]]:
        assert stats.gradient is not None
        loglik = self.loglik(measured, stats, log_scale)
        if measured.quantity_onehot is None or log_scale is None:
            return loglik, jnp.sum(self.pull(stats.value)[..., None] * stats.gradient, axis=-2)
        shrink = jnp.exp(-2 * self._log_scales(measured, log_scale))
        pull = self.pull(stats.value * shrink) * shrink
        return loglik, jnp.sum(pull[..., None] * stats.gradient, axis=-2)

    def _terms(
        self, measured: Measured, each: Float[Array, "*lead system observation"]
    ) -> Float[Array, "*lead system term"]:
        """What is kept of something that every observation has."""
        return each

    def _log_scales(self, measured: Measured, log_scale: LogScale) -> Float[Array, "chain #system term"]:
        return measured.each(log_scale)
