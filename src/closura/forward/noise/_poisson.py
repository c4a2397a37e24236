"""Poisson's noise of counts, y ~ Poisson(prediction): its size follows from the prediction."""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._base import Measured, Noise

SHIFT = 8  # from where on Stirling's series is exact
# In units of the largest count of a system: predictions above minus ROUNDING are zero but for rounding, and count as FLOOR.
ROUNDING, FLOOR = 1e-6, 1e-10


class Poisson(Noise):
    """log p = y log prediction - prediction - log y!  for y = 0, 1, 2, ...

    Mean and variance are the prediction, which must not be negative; there is no scale. A prediction that is zero, or negative
    by rounding alone, is raised to a tiny positive one (`clip`): a count there is all but impossible, yet its likelihood is
    finite.
    """

    has_scale = False
    discrete = True
    needs = "whole numbers from zero on"
    for_outliers = "negative_binomial"
    if_larger = (
        "check the data; if they are right, they scatter more than counts of independent events (noise='negative_binomial'), or "
        "the equation lacks something"
    )
    if_smaller = "they scatter less than counts of independent events, and error bars are too wide"
    misfit = "the counts scatter more than those of independent events"
    to_check = "the counts"
    bar_label = "data ± √data"

    def log_prob(self, y: Array, prediction: Array, scale: Array) -> Array:
        return log_ratio(y, prediction) - (prediction - y) + log_exact(y)

    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array:
        return counts(key, prediction)

    def clip(self, prediction: Array, measured: Measured) -> Array:
        unit = jnp.maximum(jnp.max(measured.value, axis=-1, keepdims=True), 1.0)
        return jnp.where(prediction >= -ROUNDING * unit, jnp.maximum(prediction, FLOOR * unit), prediction)

    def information(self, prediction: Array, scale: Array) -> Array:
        return 1 / prediction

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.sqrt(np.where(prediction >= 0, prediction, math.nan) + 0.25)  # not nothing where nothing is predicted

    def cdf(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from scipy.special import gammaincc

        return np.where(y < 0, 0.0, gammaincc(np.maximum(y, 0.0) + 1, prediction))

    def quantile(self, level: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from scipy.stats import poisson

        return poisson.ppf(level, prediction)

    def valid(self, value: np.ndarray) -> np.ndarray:
        return (value >= 0) & (value == np.round(value))


def log_ratio(y: Array, prediction: Array) -> Array:
    """y log(prediction / y), zero for no count; NaN where a count cannot come from the prediction."""
    possible = (prediction > 0) | ((prediction == 0) & (y == 0))
    ratio = jnp.where(prediction > 0, prediction, 1.0) / jnp.where(y > 0, y, 1.0)
    return jnp.where(possible, jnp.where(y > 0, y, 0.0) * jnp.log(ratio), math.nan)


def log_exact(y: Array) -> Array:
    """log p of a count that is predicted exactly, y log y - y - log y!; differences of large numbers are taken by hand."""
    some = jnp.where(y > 0, y, 1.0)
    return jnp.where(y > 0, -stirling_error(some) - 0.5 * jnp.log(2 * math.pi * some), 0.0)


def stirling_error(x: Array) -> Array:
    """log Gamma(x + 1) - (x + 1/2) log x + x - log(2 pi) / 2, for x > 0."""
    small = jnp.minimum(x, SHIFT)
    z = jnp.where(x < SHIFT, small + SHIFT, x)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * z**2)) / z**2) / z**2) / z
    # Gamma(x + 1) = Gamma(z + 1) / ((x + 1) ... (x + SHIFT)), and of z the series is exact.
    between = math.prod(small + k for k in range(1, SHIFT + 1))
    shifted = series + (z + 0.5) * jnp.log(z) - (small + 0.5) * jnp.log(small) - SHIFT - jnp.log(between)
    return jnp.where(x < SHIFT, shifted, series)


def counts(key: PRNGKeyArray, mean: Array) -> Array:
    """Poisson's, as floating-point numbers; NaN where there is no mean."""
    drawn = jr.poisson(key, jnp.where(mean >= 0, mean, 0.0), mean.shape)
    return jnp.where(mean >= 0, drawn.astype(mean.dtype), math.nan)
