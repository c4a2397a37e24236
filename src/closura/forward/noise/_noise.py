"""How observations scatter about predictions: the family of the noise, and its size where that is not known.

A likelihood is a sum over observations of rho(squared standardised residual). With noise of unknown size that sum is wanted
again at every size, without another solve: `Fit` keeps what it takes.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...data import Observations
from ...equations import Equation
from ...parameters import LogNormal
from ...population import NUMBERS, TRIES, draw_log_variance, slice_draw, uniforms


@dataclasses.dataclass(frozen=True)
class Family:
    """`freedom` is Student's; infinite is normal. `log`: of the logarithms of observations and predictions."""

    freedom: float = math.inf
    log: bool = False

    @property
    def linear(self) -> bool:
        """Is rho, so that squares may be summed first?"""
        return self.freedom == math.inf

    @property
    def constant(self) -> float:
        """Log density of one observation that is met exactly, its noise of size one."""
        if self.linear:
            return -0.5 * math.log(2 * math.pi)
        half = 0.5 * self.freedom
        return math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.freedom)

    @property
    def variance(self) -> float:
        """Of the noise, of size one; infinite where it has none."""
        if self.linear:
            return 1.0
        return self.freedom / (self.freedom - 2) if self.freedom > 2 else math.inf

    def rho(self, square: Array) -> Array:
        if self.linear:
            return 0.5 * square
        return 0.5 * (self.freedom + 1) * jnp.log1p(square / self.freedom)

    def pull(self, square: Array) -> Array:
        """Twice the derivative of rho."""
        return jnp.ones_like(square) if self.linear else (self.freedom + 1) / (self.freedom + square)

    def link(self, prediction: Array) -> Array:
        """On the scale of the noise; NaN where that is impossible."""
        if not self.log:
            return prediction
        fine = prediction > 0
        return jnp.where(fine, jnp.log(jnp.where(fine, prediction, 1.0)), jnp.nan)

    def unlink(self, scaled: np.ndarray) -> np.ndarray:
        """Back to the scale of observations."""
        return np.exp(scaled) if self.log else scaled

    def ends(self, value: np.ndarray, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One `sigma` below and above observations, on their own scale."""
        if self.log:
            return value * np.exp(-sigma), value * np.exp(sigma)
        return value - sigma, value + sigma

    def sample(self, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Noise of size one."""
        return random.normal(size=shape) if self.linear else random.standard_t(self.freedom, size=shape)

    def scores(self, residual: np.ndarray) -> np.ndarray:
        """What is as unlikely, on its side of zero, under a standard normal: residuals, standardised, of any family on one scale."""
        if self.linear:
            return residual
        from scipy.special import ndtri, stdtr

        return -np.sign(residual) * ndtri(stdtr(self.freedom, -np.abs(residual)))


FAMILIES = {"normal": Family(), "lognormal": Family(log=True), "student": Family(freedom=4.0)}


class Fit(NamedTuple):
    """Squared standardised residuals, noise of size one, and minus half their slopes.

    A term is a quantity where squares may be summed first, else an observation.
    """

    square: Float[Array, "chain system term"]
    slope: Float[Array, "chain system term parameter"] | None


class Scale(eqx.Module):
    """What is believed of log sigma of every quantity before data; those not `free` are known, and stay zero."""

    mean: Float[Array, " quantity"]
    variance: Float[Array, " quantity"]
    free: tuple[bool, ...] = eqx.field(static=True)

    def draw(self, normal: Float[Array, "*shape quantity"]) -> Float[Array, "*shape quantity"]:
        return jnp.where(np.array(self.free), self.mean + jnp.sqrt(self.variance) * normal, 0.0)

    def log_prior(self, log_sigma: Float[Array, "*shape quantity"]) -> Float[Array, "*shape"]:
        away = (log_sigma - self.mean) ** 2 / self.variance + jnp.log(2 * jnp.pi * self.variance)
        return jnp.sum(jnp.where(np.array(self.free), -0.5 * away, 0.0), axis=-1)

    def gibbs(
        self,
        key: PRNGKeyArray,
        family: Family,
        square: Float[Array, "chain system term"],
        counts: Float[Array, "system quantity"],
        member: Float[Array, "system observation quantity"] | None,
        log_sigma: Float[Array, "chain quantity"],
        temperature: Array | float,
    ) -> Float[Array, "chain quantity"]:
        """Draw log sigma of every quantity given the residuals. `member` says which observation is of which quantity."""
        chains, quantities = log_sigma.shape
        count = temperature * jnp.sum(counts, axis=0)
        if family.linear:
            (uniform,) = uniforms(key, (chains, quantities, TRIES, 2))
            squares = temperature * jnp.sum(square, axis=1)
            over = jax.vmap(draw_log_variance, in_axes=(0, 0, 0, 0, 0, 0))
            draw = jax.vmap(over, in_axes=(0, 0, 0, None, None, None))
            found = 0.5 * draw(uniform, 2 * log_sigma, squares, count, 2 * self.mean, 4 * self.variance)
        else:
            (uniform,) = uniforms(key, (chains, quantities, NUMBERS))
            found = jnp.stack(
                [
                    jax.vmap(lambda u, x, v, q=q: self._sliced(q, u, x, v, family, count[q], member, temperature))(
                        uniform[:, q], log_sigma[:, q], square
                    )
                    for q in range(quantities)
                ],
                axis=-1,
            )
        return jnp.where(np.array(self.free), found, log_sigma)

    def _sliced(
        self,
        quantity: int,
        uniform: Array,
        current: Array,
        square: Float[Array, "system term"],
        family: Family,
        count: Array,
        member: Any,
        temperature: Any,
    ) -> Float[Array, ""]:
        mean, variance = self.mean[quantity], self.variance[quantity]
        share = temperature * member[..., quantity]

        def log_density(x: Array) -> Array:
            spread = jnp.sum(share * family.rho(square * jnp.exp(-2 * x)))
            return -0.5 * (x - mean) ** 2 / variance - count * x - spread

        # A few times as wide as so many observations leave open.
        return slice_draw(uniform, current, log_density, 8 / jnp.sqrt(0.5 * count + 1 / variance))


def unknown_noise(problem: Equation, data: Observations) -> tuple[Scale | None, list[str]]:
    """What is to be inferred of the noise of these (matched) data, and in words what is believed of it before."""
    family = FAMILIES[problem.noise]
    free, mean, sd, said = [], [], [], []
    for number, name in enumerate(data.quantities):
        here = data.mask & (data.quantity == number)
        free.append(bool(np.isnan(data.sigma[here]).any()))
        stated = problem.sigma.get(name) if isinstance(problem.sigma, dict) else problem.sigma
        if isinstance(stated, LogNormal):
            mean.append(stated.log_mean)
            sd.append(stated.log_sd)
            continue
        values = data.value[here]
        typical = 0.3 if family.log else 0.1 * float(values.std() or abs(values).max() or 1.0)
        mean.append(math.log(typical))
        sd.append(1.0 if family.log else 1.5)
        if free[-1]:
            said.append(
                f"noise of {name}: not given, inferred; before data log-normal about {typical:.3g}, within a factor "
                f"{math.exp(sd[-1]):.2g} (give sigma, or a prior for it as sigma=cl.LogNormal(...), to change that)"
            )
    if not any(free):
        return None, []
    return Scale(jnp.asarray(mean, float), jnp.asarray(sd, float) ** 2, tuple(free)), said
