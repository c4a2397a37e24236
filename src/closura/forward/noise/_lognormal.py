"""Log-normal noise, y = prediction exp(scale e) with e ~ N(0, 1): in proportion to what is measured."""

import math

import jax.numpy as jnp
import numpy as np

from ...parameters import LogNormal
from ._normal import Normal
from ._residual import Numbers


class Lognormal(Normal):
    """log p = -log(2 pi) / 2 - log scale - r^2 / 2 - log y,  r = (log y - log prediction) / scale.

    The scale is the standard deviation of the logarithm, for small ones that of y / prediction.
    """

    title = "log-normal"
    needs = "positive values"
    bar_label = "data ± σ of the logarithm"
    residual_label = "log(data / fit) / σ"
    scale_label = "Of the measurement noise: the standard deviation of its logarithm."

    def link(self, x: Numbers) -> Numbers:
        xp = np if isinstance(x, np.ndarray) else jnp
        return xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), math.nan)

    def unlink(self, x: Numbers) -> Numbers:
        return np.exp(x) if isinstance(x, np.ndarray) else jnp.exp(x)

    def link_gradient(self, x: Numbers) -> Numbers:
        return 1 / x

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.where(prediction > 0, prediction * scale, math.nan)

    def valid(self, value: np.ndarray) -> np.ndarray:
        return value > 0

    def default_prior(self, value: np.ndarray) -> LogNormal:
        return LogNormal(math.log(0.3), 1.0)
