"""Negative binomial noise of counts that scatter more than Poisson's."""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...parameters import LogNormal
from ._base import Noise
from ._poisson import Poisson, counts, log_exact, log_ratio, stirling_error


class NegativeBinomial(Poisson):
    """y ~ Poisson(prediction g),  g ~ Gamma of mean 1 and standard deviation scale:

        log p = log Gamma(y + r) - log Gamma(r) - log y! + r log(r / (r + prediction)) + y log(prediction / (r + prediction))

    with r = 1 / scale^2. The mean is the prediction, the variance prediction + scale^2 prediction^2: large counts scatter
    by the scale in proportion to themselves, and scale 0 is Poisson. It is stated as `sigma`, or inferred.
    """

    name = "negative_binomial"
    has_scale = True
    for_outliers = ""
    if_larger = Noise.if_larger
    if_smaller = Noise.if_smaller
    misfit = Noise.misfit
    to_check = Noise.to_check
    bar_label = "data ± σ of a count"
    scale_label = "Of counts: standard deviation = √(mean + scale² mean²)."

    def log_prob(self, y: Array, prediction: Array, scale: Array) -> Array:
        r = scale**-2
        # Differences of large numbers are taken by hand: in single precision there would be nothing left of small scales.
        away = (prediction - y) / (r + y)
        total = jnp.where(away > -0.5, jnp.log1p(away), jnp.log((r + prediction) / (r + y)))
        exact = log_exact(y) + stirling_error(r + y) - stirling_error(r) - 0.5 * jnp.log1p(y / r)
        return log_ratio(y, prediction) - (r + y) * total + exact

    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array:
        key_rate, key_count = jr.split(key)
        r = jnp.broadcast_to(scale**-2, prediction.shape)
        return counts(key_count, prediction * jr.gamma(key_rate, r) / r)

    def information(self, prediction: Array, scale: Array) -> Array:
        return 1 / (prediction + (scale * prediction) ** 2)

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.hypot(super().unit(prediction, scale), scale * prediction)

    def cdf(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from scipy.special import betainc

        r = scale**-2.0
        return np.where(y < 0, 0.0, betainc(r, np.maximum(y, 0.0) + 1, r / (r + prediction)))

    def quantile(self, level: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from scipy.stats import nbinom

        r = scale**-2.0
        return nbinom.ppf(level, r, r / (r + prediction))

    def default_prior(self, value: np.ndarray) -> LogNormal:
        return LogNormal(math.log(0.3), 1.5)
