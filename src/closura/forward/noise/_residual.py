"""Families of a standardised residual.

    log p(y | prediction, scale) = c - log scale - rho(r^2) + log l'(y),    r = (l(y) - l(prediction)) / scale

with l the identity (or the logarithm).
"""

import abc
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._base import Noise, stratified

Numbers = TypeVar("Numbers", Array, np.ndarray)


class ResidualNoise(Noise):
    """What these families share; one states c, rho and its derivative, the standard noise, and l where it is none."""

    residual_label = "(data − fit) / σ"

    @property
    @abc.abstractmethod
    def constant(self) -> float:
        """c, the log density of an observation that is met exactly, at scale one."""

    @property
    @abc.abstractmethod
    def efficiency(self) -> float:
        """Fisher's information in l(prediction), at scale one."""

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
        square = self.apart(y, prediction, scale) ** 2
        return self.constant - jnp.log(scale) - self.rho(square) + jnp.log(self.link_gradient(y))

    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array:
        return self.unlink(self.link(prediction) + scale * self.standard(key, prediction.shape))

    def information(self, prediction: Array, scale: Array) -> Array:
        return self.efficiency * (self.link_gradient(prediction) / scale) ** 2

    def weight(self, y: Array, prediction: Array, scale: Array) -> Array:
        """As in iteratively reweighted least squares."""
        return self.pull(self.apart(y, prediction, scale) ** 2) * (self.link_gradient(prediction) / scale) ** 2

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.broadcast_to(scale, prediction.shape)

    def apart(self, one: Numbers, other: Numbers, scale: Numbers) -> Numbers:
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
