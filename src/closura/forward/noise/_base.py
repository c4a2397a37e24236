"""What a family of noise is: how observations scatter about predictions, y ~ p(y | prediction, scale).

A family is a class in a file of its own, with `log_prob` and `sample`; everything else has a default that works for any
density and may be overridden by a closed form. `Measured` and `ResidualStats` are what likelihoods hand to it.
"""

import abc
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...data import DataError, Observations
from ...parameters import LogNormal
from ...population import NUMBERS, slice_draw, uniforms

LogScale = Float[Array, "chain *each quantity"]  # of every chain, or of every chain and system
ChainScale = Float[Array, "chain quantity"]
LogLik = Float[Array, "chain system"]
LogLikAndGrad = tuple[LogLik, Float[Array, "chain system parameter"]]
SIMULATED, RANKED, RANKED_NUMBERS = 256, (100, 1000), 20_000_000
NEARLY_ONE = 1 - 2.0**-53


class NoisePrior(eqx.Module):
    """log scale of every quantity ~ N(mean, variance); those not `free` are stated, and stay zero."""

    mean: Float[Array, " quantity"]
    variance: Float[Array, " quantity"]
    free: tuple[bool, ...] = eqx.field(static=True)

    def draw(self, normal: Float[Array, "*shape quantity"]) -> Float[Array, "*shape quantity"]:
        """Log scales that standard normal numbers stand for."""
        return jnp.where(np.array(self.free), self.mean + jnp.sqrt(self.variance) * normal, 0.0)

    def log_prior(self, log_scale: Float[Array, "*shape quantity"]) -> Float[Array, "*shape"]:
        away = (log_scale - self.mean) ** 2 / self.variance + jnp.log(2 * jnp.pi * self.variance)
        return jnp.sum(jnp.where(np.array(self.free), -0.5 * away, 0.0), axis=-1)


class Measured(eqx.Module):
    """Observations as a likelihood reads them; every array has the system axis first.

    - `value`: on padding, one that was measured; `mask` is False there.
    - `scale`: as it is stated; one where it is inferred, and on padding.
    - `quantity_onehot`: which observation is of which quantity; None where no scale is inferred.
    - `prepared`: what the family computes once (see `Noise.prepare`).
    """

    value: Float[Array, "system observation"]
    scale: Float[Array, "system observation"]
    mask: Bool[Array, "system observation"]
    quantity_onehot: Float[Array, "system observation quantity"] | None = None
    prepared: tuple[Array, ...] = ()

    @property
    def counts(self) -> Float[Array, "system quantity"]:
        """Observations of each quantity."""
        assert self.quantity_onehot is not None
        return jnp.sum(self.quantity_onehot, axis=1)

    def scales(self, log_scale: LogScale | None) -> Float[Array, "*chain system observation"]:
        """The scale of each observation, the stated one times the inferred one."""
        if self.quantity_onehot is None or log_scale is None:
            return self.scale
        systems = "" if log_scale.ndim == 2 else "s"
        return self.scale * jnp.exp(jnp.einsum(f"soq,c{systems}q->cso", self.quantity_onehot, log_scale))


class ResidualStats(NamedTuple):
    """What a sampler caches of a solve where a scale is inferred: enough for the likelihood at any scale.

    By default a term is an observation, its value the prediction and its gradient the Jacobian. Normal noise keeps squared
    residuals instead, summed over each quantity.
    """

    value: Float[Array, "chain system term"]
    gradient: Float[Array, "chain system term parameter"] | None


class Noise(abc.ABC):
    """A family of noise, y ~ p(y | prediction, scale), for one observation; arrays are elementwise.

    A family of your own has `log_prob` and `sample`, written in jax.numpy, and is given to a problem as
    `noise=Laplace()`. Instances are compared by their attributes, which must be hashable.

    - `name`: how a problem asks for it; `title`: how messages call it.
    - `has_scale`: is there a scale to state (`sigma`) or to infer? Without one, `scale` means nothing.
    - `discrete`: are observations whole numbers?
    - `needs`: what `valid` asks of observations, in words; `instead`: which family does not ask for it.
    - `for_outliers`, `if_larger`: what to do about single observations far off, and about residuals that are too large.
    - `if_smaller`: what it means that residuals are too small.
    - `misfit`, `to_check`: what of the noise may be why a fit misses the data by far, and what to check then.
    - `bar_label`, `residual_label`, `scale_label`: what figures and report call these.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    has_scale: ClassVar[bool] = True
    discrete: ClassVar[bool] = False
    needs: ClassVar[str] = "finite values"
    instead: ClassVar[str] = "normal"
    for_outliers: ClassVar[str] = "student"
    if_larger: ClassVar[str] = "check data and sigma; if these are right, the equation lacks something"
    if_smaller: ClassVar[str] = "sigma is stated too large, and error bars are too wide"
    misfit: ClassVar[str] = "the noise is larger than stated"
    to_check: ClassVar[str] = "sigma"
    bar_label: ClassVar[str] = "data ± σ"
    residual_label: ClassVar[str] = "quantile residual"
    scale_label: ClassVar[str] = "Scale of the measurement noise."

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        if "title" not in vars(cls):
            cls.title = cls.name.replace("_", " ")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    # The density, in JAX ----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def log_prob(self, y: Array, prediction: Array, scale: Array) -> Array:
        """log p(y | prediction, scale); NaN where a prediction is impossible."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, prediction: Array, scale: Array) -> Array:
        """An observation for every prediction; `scale` broadcasts against these."""

    def log_prob_and_score(self, y: Array, prediction: Array, scale: Array) -> tuple[Array, Array]:
        """The log density and its derivative in the prediction."""
        return jax.jvp(lambda m: self.log_prob(y, m, scale), (prediction,), (jnp.ones_like(prediction),))

    def clip(self, prediction: Array, measured: Measured) -> Array:
        """Predictions (chain, system, observation) that are impossible by rounding alone, made possible; by default none is."""
        return prediction

    def information(self, prediction: Array, scale: Array) -> Array:
        """Fisher's information of one observation in the prediction, E[score^2]; by default from simulated observations."""

        def more(total: Array, key: PRNGKeyArray) -> tuple[Array, None]:
            y = self.sample(key, prediction, scale)
            return total + self.log_prob_and_score(y, prediction, scale)[1] ** 2, None

        total, _ = lax.scan(more, jnp.zeros_like(prediction), jr.split(jr.key(0), SIMULATED))
        return total / SIMULATED

    def weight(self, y: Array, prediction: Array, scale: Array) -> Array:
        """How much an observation counts in a Gauss-Newton step: positive, by default Fisher's information."""
        return self.information(prediction, scale)

    # What samplers cache ----------------------------------------------------------------------------------------------

    def stats(self, measured: Measured, prediction: Array, jacobian: Array | None) -> ResidualStats:
        """Of predictions (chain, system, observation) and their derivatives, the parameter axis first."""
        return ResidualStats(prediction, None if jacobian is None else jnp.moveaxis(jacobian, 0, -1))

    def loglik(self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None) -> LogLik:
        """Log likelihood of each system; NaN where there is none."""
        known = jnp.where(measured.mask, stats.value, measured.value)
        each = self.log_prob(measured.value, known, measured.scales(log_scale))
        return jnp.sum(jnp.where(measured.mask, each, 0.0), axis=-1)

    def loglik_and_grad(self, measured: Measured, stats: ResidualStats, log_scale: LogScale | None) -> LogLikAndGrad:
        """The same, and its gradient in the parameters."""
        assert stats.gradient is not None
        each, score = self.log_prob_and_score(measured.value, stats.value, measured.scales(log_scale))
        each, score = (jnp.where(measured.mask, x, 0.0) for x in (each, score))
        return jnp.sum(each, axis=-1), jnp.sum(score[..., None] * stats.gradient, axis=-2)

    def gibbs_noise(
        self,
        key: PRNGKeyArray,
        prior: NoisePrior,
        measured: Measured,
        stats: ResidualStats,
        log_scale: ChainScale,
        temperature: Float[Array, ""] | float = 1.0,
    ) -> ChainScale:
        """Draw the log scale of every quantity given what `stats` found, the likelihood to the power of `temperature`; by
        default by slice sampling, quantities being independent of each other."""
        (uniform,) = uniforms(key, (*log_scale.shape, NUMBERS))
        count = temperature * jnp.sum(measured.counts, axis=0)
        # A few times as wide as so many observations leave open.
        width = 8 / jnp.sqrt(0.5 * count + 1 / prior.variance)

        def one_chain(uniform: Array, current: Array, stats: ResidualStats) -> Array:
            alone = jax.tree.map(lambda a: a[None], stats)

            def one(quantity: int) -> Array:
                def log_density(x: Array) -> Array:
                    loglik = self.loglik(measured, alone, current.at[quantity].set(x)[None])
                    away = (x - prior.mean[quantity]) ** 2 / prior.variance[quantity]
                    return temperature * jnp.sum(loglik) - 0.5 * away

                return slice_draw(uniform[quantity], current[quantity], log_density, width[quantity])

            return jnp.stack([one(quantity) for quantity in range(len(current))])

        return jax.vmap(one_chain)(uniform, log_scale, stats._replace(gradient=None))

    # The data, in NumPy -----------------------------------------------------------------------------------------------

    def valid(self, value: np.ndarray) -> np.ndarray:
        """Which values can be measured at all."""
        return np.isfinite(value)

    def check(self, data: Observations) -> None:
        """Refuse data that are not of this family."""
        if not self.has_scale and np.isfinite(data.sigma[data.mask]).any():
            raise DataError(
                f"the table has a column 'sigma', but {self.title} noise has no scale: its size follows from the prediction; "
                f"remove the column, or choose noise={self.instead!r}"
            )
        bad = np.argwhere(data.mask & ~self.valid(data.value))
        if len(bad):
            system, place = bad[0]
            name = data.quantities[data.quantity[system, place]]
            raise DataError(
                f"{self.title} noise needs {self.needs}, but {name} of system {data.systems[system]} is "
                f"{data.value[system, place]:g} ({len(bad)} such in all); leave these out, or choose noise={self.instead!r}"
            )

    def default_prior(self, value: np.ndarray) -> LogNormal:
        """What is believed of the scale of observations like these where nobody says anything."""
        return LogNormal(math.log(0.1 * float(value.std() or abs(value).max() or 1.0)), 1.5)

    def prepare(self, value: np.ndarray, scale: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """Arrays that the family wants computed once, the system axis first."""
        return ()

    def observe(self, data: Observations) -> Measured:
        """Checked (matched) data as a likelihood reads them."""
        self.check(data)
        mask = data.mask
        inferred = self.has_scale and bool(np.isnan(data.sigma[mask]).any())
        first = data.value[np.arange(len(mask)), np.argmax(mask, axis=1)]
        value = np.where(mask, data.value, first[:, None])
        scale = np.where(mask & np.isfinite(data.sigma), data.sigma, 1.0)
        onehot = mask[..., None] & (data.quantity[..., None] == np.arange(len(data.quantities)))
        return Measured(
            jnp.asarray(value, float),
            jnp.asarray(scale, float),
            jnp.asarray(mask),
            jnp.asarray(onehot, float) if inferred else None,
            tuple(jnp.asarray(a, float) for a in self.prepare(value, scale, mask)),
        )

    # For checks, forecasts and figures, in NumPy ----------------------------------------------------------------------

    def cdf(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
        """P(Y <= y), by SciPy say; None where there is no closed form, and ranks among simulated observations do."""
        return None

    def quantile(self, level: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
        """The inverse of `cdf`; None where there is no closed form."""
        return None

    def unit(self, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """How far a prediction must move to matter as much as the noise of one observation."""
        information = self.information(*_in_jax(prediction, scale))
        return 1 / np.sqrt(np.asarray(information, float))

    def apart(self, one: np.ndarray, other: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """How far predictions are from others, in units of the noise."""
        return (one - other) / self.unit(other, scale)

    def interval(self, prediction: np.ndarray, scale: np.ndarray, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """So many units of the noise below and above; about observations these are error bars."""
        unit = width * self.unit(prediction, scale)
        return prediction - unit, prediction + unit

    def quantile_residuals(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Standard normal numbers where all is well, Phi^-1(u) with u = P(Y <= y); of counts, u is uniform between
        P(Y < y) and P(Y <= y) (Dunn and Smyth 1996). `prediction` may have more axes in front than `y`."""
        from scipy.special import ndtri

        high = self.cdf(y, prediction, scale)
        low = self.cdf(y - 1, prediction, scale) if self.discrete else high
        if low is None or high is None:
            low, high = self._ranks(y, prediction, scale)
        share = np.random.default_rng(0).random(y.shape)
        return ndtri(np.clip(low + share * (high - low), np.finfo(float).tiny, NEARLY_ONE))

    def _ranks(self, y: np.ndarray, prediction: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between which shares of simulated observations each one lies; NaN where there is no prediction."""
        count = int(np.clip(RANKED_NUMBERS // max(1, prediction.size), *RANKED))
        arrays = (*_in_jax(y), *_in_jax(prediction, scale))

        def more(ranks: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
            value, prediction, scale = arrays
            drawn = self.sample(key, prediction, scale)
            return (ranks[0] + (drawn < value), ranks[1] + (drawn <= value)), None

        none = jnp.zeros(prediction.shape, int)
        ranks, _ = lax.scan(more, (none, none), jr.split(jr.key(0), count))
        below, upto = (np.where(np.isfinite(prediction), np.asarray(rank, float), np.nan) for rank in ranks)
        return below / (count + 1), (upto + 1) / (count + 1)

    def measurements(self, seed: int, prediction: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """One observation for each prediction (draw, ...), stratified over draws if it can be, so that bands are smooth."""
        levels = np.random.default_rng(seed).permuted(stratified(prediction), axis=0).reshape(prediction.shape)
        drawn = self.quantile(levels, prediction, scale)
        if drawn is not None:
            return drawn
        return np.asarray(self.sample(jr.key(seed), *_in_jax(prediction, scale)), float)


def stratified(prediction: np.ndarray) -> np.ndarray:
    """The middles of as many equal parts of (0, 1) as there are draws, for each of what is predicted."""
    levels = (np.arange(len(prediction)) + 0.5) / len(prediction)
    return np.broadcast_to(levels[:, None], (len(prediction), prediction[0].size))


def _in_jax(prediction: np.ndarray, *scale: np.ndarray) -> list[Array]:
    return [jnp.asarray(x, float) for x in (prediction, *(np.broadcast_to(s, prediction.shape) for s in scale))]
