"""Student's noise, y = prediction + scale e with e ~ t(freedom): single observations may be far off."""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._residual import ResidualNoise


@dataclasses.dataclass(frozen=True)
class Student(ResidualNoise):
    """log p = c - log scale - (freedom + 1) / 2 log(1 + r^2 / freedom),  r = (y - prediction) / scale.

    `freedom`: the degrees of freedom; 4 leaves room for outliers, 30 is nearly normal.
    """

    freedom: float = 4.0
    for_outliers = ""
    scale_label = "Scale of the measurement noise, in its middle the standard deviation."

    @property
    def constant(self) -> float:
        half = 0.5 * self.freedom
        return math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.freedom)

    @property
    def efficiency(self) -> float:
        return (self.freedom + 1) / (self.freedom + 3)

    def rho(self, square: Array) -> Array:
        return 0.5 * (self.freedom + 1) * jnp.log1p(square / self.freedom)

    def pull(self, square: Array) -> Array:
        return (self.freedom + 1) / (self.freedom + square)

    def standard(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        return jr.t(key, self.freedom, shape)

    def standard_quantile(self, level: np.ndarray) -> np.ndarray:
        from scipy.special import stdtrit

        return stdtrit(self.freedom, level)

    def cdf(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from scipy.special import stdtr

        return stdtr(self.freedom, self.apart(y, prediction, scale))
