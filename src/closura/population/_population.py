"""Populations: what the systems have in common before their own data speak.

`Diagonal` is the paper's:  theta_k ~ N(mu, diag tau),  mu ~ N(m_mu, s_mu),  log tau ~ N(m_tau, s_tau),
with tau, s_mu, s_tau variances. `Independent` fixes the prior instead: theta_k ~ N(m_mu, s_mu + exp(m_tau)).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..problem import Parameters
from ._random import normal, uniforms

TRIES = 5


class Phi(NamedTuple):
    """Population mean and log variance, one a parameter."""

    mu: Float[Array, "*chain parameter"]
    log_tau: Float[Array, "*chain parameter"]


class Diagonal(eqx.Module):
    """Hierarchical Gaussian with a diagonal covariance and the paper's hyperprior."""

    mean: Float[Array, " parameter"]
    mean_variance: Float[Array, " parameter"]
    log_variance: Float[Array, " parameter"]
    log_variance_variance: Float[Array, " parameter"]

    hierarchical = True

    @property
    def variance(self) -> Float[Array, " parameter"]:
        """Of a system drawn from a population of typical spread."""
        return self.mean_variance + jnp.exp(self.log_variance)

    def draw(self, normal: Float[Array, "2 parameter"]) -> Phi:
        """The population of the hyperprior that standard normal numbers stand for."""
        mu = self.mean + jnp.sqrt(self.mean_variance) * normal[0]
        return Phi(mu, self.log_variance + jnp.sqrt(self.log_variance_variance) * normal[1])

    def log_hyperprior(self, phi: Phi) -> Float[Array, ""]:
        return _log_normal(phi.mu, self.mean, self.mean_variance) + _log_normal(
            phi.log_tau, self.log_variance, self.log_variance_variance
        )

    def moments(self, phi: Phi) -> tuple[Array, Array]:
        """Mean and variance of theta given phi."""
        return phi.mu, jnp.exp(phi.log_tau)

    def noise(self, key: PRNGKeyArray, chains: int) -> Any:
        """The randomness of `chains` Gibbs draws, drawn at once."""
        shape = (chains, *self.mean.shape)
        for_mu, for_tau = uniforms(key, shape, (*shape, TRIES, 2))
        return normal(for_mu), for_tau

    def gibbs(self, noise: Any, theta: Float[Array, "system parameter"], phi: Phi) -> Phi:
        """Draw phi given theta of all systems: mu exactly, then log tau exactly."""
        for_mu, for_tau = noise
        count = theta.shape[0]
        precision = count * jnp.exp(-phi.log_tau) + 1 / self.mean_variance
        center = (jnp.exp(-phi.log_tau) * jnp.sum(theta, axis=0) + self.mean / self.mean_variance) / precision
        mu = center + for_mu / jnp.sqrt(precision)
        squares = jnp.sum((theta - mu) ** 2, axis=0)
        log_tau = jax.vmap(draw_log_variance, in_axes=(0, 0, 0, None, 0, 0))(
            for_tau, phi.log_tau, squares, count, self.log_variance, self.log_variance_variance
        )
        return Phi(mu, log_tau)


class Independent(eqx.Module):
    """No hierarchy: every system on its own, under one fixed prior."""

    mean: Float[Array, " parameter"]
    variance: Float[Array, " parameter"]

    hierarchical = False

    def draw(self, normal: Float[Array, "2 parameter"]) -> tuple[()]:
        return ()

    def log_hyperprior(self, phi: tuple[()]) -> Float[Array, ""]:
        return jnp.zeros(())

    def moments(self, phi: tuple[()]) -> tuple[Array, Array]:
        return self.mean, self.variance

    def noise(self, key: PRNGKeyArray, chains: int) -> Any:
        return ()

    def gibbs(self, noise: Any, theta: Float[Array, "system parameter"], phi: tuple[()]) -> tuple[()]:
        return phi


Population = Diagonal | Independent


def population(parameters: Parameters, hierarchical: bool = True) -> Population:
    """The population whose hyperprior the problem's parameters state."""
    mean, s_mu = jnp.asarray(parameters.mean, float), jnp.asarray(parameters.mean_variance, float)
    m_tau, s_tau = (
        jnp.asarray(parameters.log_variance, float),
        jnp.asarray(parameters.log_variance_variance, float),
    )
    return Diagonal(mean, s_mu, m_tau, s_tau) if hierarchical else Independent(mean, s_mu + jnp.exp(m_tau))


def log_prior(
    population: Population, theta: Float[Array, "system parameter"], phi: Any
) -> tuple[Float[Array, " system"], Float[Array, "system parameter"]]:
    """log p(theta_k | phi) of each system and its gradient."""
    mean, variance = population.moments(phi)
    away = theta - mean
    return -0.5 * jnp.sum(away**2 / variance + jnp.log(2 * jnp.pi * variance), axis=-1), -away / variance


def _log_normal(x: Array, mean: Array, variance: Array) -> Float[Array, ""]:
    return -0.5 * jnp.sum((x - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))


def draw_log_variance(
    uniform: Float[Array, "tries 2"],
    current: Float[Array, ""],
    squares: Float[Array, ""],
    count: int,
    mean: Float[Array, ""],
    variance: Float[Array, ""],
) -> Float[Array, ""]:
    """Exact draw of x = log tau from  -(x - mean)^2 / (2 variance) - count x / 2 - squares exp(-x) / 2.

    The density is log-concave, so tangents lie above it. Rejection from three pieces: the tangents at one point on each
    side of the mode, and a flat roof between; the points only set the efficiency (about 0.8), never the law. Should all
    tries be rejected, `current` stays: whether that happens does not depend on `current`, so the law is kept still.
    """

    def log_density(x: Array) -> Array:
        return -0.5 * ((x - mean) ** 2 / variance + count * x + squares * jnp.exp(-x))

    def slope(x: Array) -> Array:
        return -(x - mean) / variance - 0.5 * count + 0.5 * squares * jnp.exp(-x)

    def curvature(x: Array) -> Array:
        return 1 / variance + 0.5 * squares * jnp.exp(-x)

    # At the mode y = variance squares exp(-x) / 2 solves y + log y = b. In z = log y that is convex and rising, and Newton
    # from the right of its root (where this starts) gets there without ever overshooting.
    log_scale = jnp.log(0.5 * variance * jnp.maximum(squares, 1e-30))
    b = log_scale - mean + 0.5 * variance * count
    first = jnp.where(b > 1.0, jnp.log(jnp.maximum(b, 1.0)), b)
    z = lax.fori_loop(0, 6, lambda _, z: z - (jnp.exp(z) + z - b) / (jnp.exp(z) + 1.0), first)
    mode = jnp.where(z < 0.0, mean - 0.5 * variance * count + jnp.exp(z), log_scale - z)
    reach = 1.2 / jnp.sqrt(curvature(mode))
    top, left, right = log_density(mode), mode - reach, mode + reach
    up, down = slope(left), slope(right)
    # Where the tangents meet the roof.
    from_left = left + (top - log_density(left)) / up
    from_right = right + (top - log_density(right)) / down
    rising, flat, falling = 1 / up, from_right - from_left, -1 / down
    drawn, threshold = uniform.T
    place = drawn * (rising + flat + falling)
    before, after = place <= rising, place > rising + flat
    # How far into its piece: again uniform.
    start = jnp.where(before, 0.0, jnp.where(after, rising + flat, rising))
    u = (place - start) / jnp.where(before, rising, jnp.where(after, falling, flat))
    tail = jnp.log(u)
    x = jnp.where(before, from_left + tail / up, from_left + u * flat)
    x = jnp.where(after, from_right + tail / down, x)
    accepted = jnp.log(threshold) <= log_density(x) - (top + jnp.where(before | after, tail, 0.0))
    # The first that was accepted; plain selections fuse, a look-up does not.
    kept = current
    for i in reversed(range(len(uniform))):
        kept = jnp.where(accepted[i], x[i], kept)
    return kept
