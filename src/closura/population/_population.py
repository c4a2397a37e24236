"""Populations: what the systems have in common before their own data speak.

`Diagonal` is the paper's:  theta_k ~ N(mu, diag tau),  mu ~ N(m_mu, s_mu),  log tau ~ N(m_tau, s_tau),
with tau, s_mu, s_tau variances. `Correlated` has any covariance, its correlations under an LKJ prior. In both, mu may have
another prior, and covariates may shift the mean of a system. `Independent` fixes the prior instead.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._base import Population, Theta
from ._correlation import correlation_factor, inverse_factor, log_lkj
from ._random import NUMBERS, TRIES, draw_log_variance, normal, slice_draw, uniforms

Densities = tuple[Callable[[Array], Array] | None, ...]


class Phi(NamedTuple):
    """Population mean and log variance, one a parameter; how covariates shift the mean; and what correlations come from.

    The last two are None where there are no covariates, or no correlations.
    """

    mu: Float[Array, "*chain parameter"]
    log_tau: Float[Array, "*chain parameter"]
    covariate_effect: PyTree = None  # (*chain, effect)
    correlation: PyTree = None  # (*chain, pair), unbounded numbers that a correlation matrix is made of


class Effects(eqx.Module):
    """Which covariate shifts which parameter, and the covariates: standardised, (system, effect)."""

    value: Float[Array, "system effect"]
    variance: Float[Array, " effect"]  # of the shift by one standard deviation of a covariate, before data
    parameter: tuple[int, ...] = eqx.field(static=True)


class Diagonal(Population):
    """Hierarchical Gaussian with a diagonal covariance and the paper's hyperprior."""

    mean: Float[Array, " parameter"]
    mean_variance: Float[Array, " parameter"]
    log_variance: Float[Array, " parameter"]
    log_variance_variance: Float[Array, " parameter"]
    log_densities: Densities = eqx.field(static=True, default=())
    effects: Effects | None = None

    @property
    def hierarchical(self) -> bool:
        return True

    @classmethod
    def suited(cls, parameters: int) -> "type[Diagonal]":
        """The class itself, or what it comes to with so few parameters."""
        return cls

    @property
    def variance(self) -> Float[Array, " parameter"]:
        """Of a system drawn from a population of typical spread."""
        return self.mean_variance + jnp.exp(self.log_variance)

    @property
    def prior_variances(self) -> dict[str, Float[Array, " number"]]:
        known = {"mu": self.mean_variance, "log_tau": self.log_variance_variance}
        return known if self.effects is None else known | {"covariate_effect": self.effects.variance}

    @property
    def pairs(self) -> int:
        return 0

    def phi_from_normal(self, normal: Float[Array, "2 parameter"]) -> Phi:
        """The population of the hyperprior (about) that standard normal numbers stand for; without shifts and correlations."""
        mu = self.mean + jnp.sqrt(self.mean_variance) * normal[0]
        log_tau = self.log_variance + jnp.sqrt(self.log_variance_variance) * normal[1]
        effect = None if self.effects is None else jnp.zeros(len(self.effects.parameter))
        return Phi(mu, log_tau, effect, jnp.zeros(self.pairs) if self.pairs else None)

    def log_hyperprior(self, phi: Phi) -> Float[Array, ""]:
        total = _log_normal(phi.log_tau, self.log_variance, self.log_variance_variance)
        total += jnp.sum(_log_each(phi.mu, self.mean, self.mean_variance, self.log_densities))
        if self.effects is not None:
            total += _log_normal(phi.covariate_effect, 0.0, self.effects.variance)
        return total

    def system_means(self, phi: Phi) -> Float[Array, "#system parameter"]:
        """The mean of every system (one row where all have the same)."""
        if self.effects is None:
            return phi.mu[None]
        shift = self.effects.value * phi.covariate_effect
        return phi.mu + shift @ jax.nn.one_hot(np.array(self.effects.parameter), self.mean.shape[0])

    def whitening(self, phi: Phi) -> tuple[Float[Array, "parameter parameter"], Float[Array, ""]]:
        """The inverse of the covariance's factor, and the log determinant of that factor."""
        return jnp.diag(jnp.exp(-0.5 * phi.log_tau)), 0.5 * jnp.sum(phi.log_tau)

    def precision(self, phi: Phi) -> Float[Array, "own own"]:
        white = self.whitening(phi)[0]
        return white.T @ white

    @property
    def mean_precision(self) -> Float[Array, " own"]:
        return 1 / self.mean_variance

    def with_mean_moved(self, phi: Phi, by: Float[Array, "*chain own"]) -> Phi:
        return phi._replace(mu=phi.mu + by)

    def followed(self, phi: Phi, before: Float[Array, "*chain system own"], after: Array) -> Phi:
        moved = phi._replace(mu=phi.mu + jnp.mean(after - before, axis=-2))
        if before.shape[-2] < 3:  # two tell little of a spread
            return moved
        stretched = jnp.log(jnp.var(after, axis=-2)) - jnp.log(jnp.var(before, axis=-2))
        return moved._replace(log_tau=phi.log_tau + stretched)

    def theta_from_normal(self, phi: Phi, normal: Theta) -> Theta:
        return self.system_means(phi) + jnp.exp(0.5 * phi.log_tau) * normal

    def log_prior(self, theta: Theta, phi: Phi) -> tuple[Float[Array, " system"], Theta]:
        away, variance = theta - self.system_means(phi), jnp.exp(phi.log_tau)
        return -0.5 * jnp.sum(away**2 / variance + jnp.log(2 * jnp.pi * variance), axis=-1), -away / variance

    def randomness(self, key: PRNGKeyArray, chains: int) -> PyTree:
        count = self.mean.shape[0]
        shifts = 0 if self.effects is None else len(self.effects.parameter)
        shapes = ((count + shifts,), (count, TRIES, 2), (count, NUMBERS), (count + self.pairs, NUMBERS))
        drawn = uniforms(key, *((chains, *shape) for shape in shapes))
        return normal(drawn[0]), *drawn[1:]

    def gibbs(self, randomness: PyTree, theta: Theta, phi: Phi) -> Phi:
        """Draw phi given theta of all systems: the mean and its shifts exactly where their priors are normal, then log tau
        exactly."""
        for_mean, for_tau, for_slice, _ = randomness
        phi = self._new_mean(for_mean, for_slice, theta, phi)
        squares = jnp.sum((theta - self.system_means(phi)) ** 2, axis=0)
        log_tau = jax.vmap(draw_log_variance, in_axes=(0, 0, 0, None, 0, 0))(
            for_tau, phi.log_tau, squares, theta.shape[0], self.log_variance, self.log_variance_variance
        )
        return phi._replace(log_tau=log_tau)

    def _new_mean(self, for_mean: Array, for_slice: Array, theta: Array, phi: Phi) -> Phi:
        phi = self._normal_mean(for_mean, theta, phi)
        for j, density in enumerate(self.log_densities):
            if density is not None:
                phi = phi._replace(mu=phi.mu.at[j].set(self._sliced_mean(j, density, for_slice[j], theta, phi)))
        return phi

    def _sliced_mean(
        self, j: int, density: Callable[[Array], Array], uniform: Array, theta: Array, phi: Phi
    ) -> Float[Array, ""]:
        """The mean of a parameter whose prior is not normal, given all the rest."""
        white = self.whitening(phi)[0]
        precision = theta.shape[0] * jnp.sum(white[:, j] ** 2)
        away = white @ jnp.sum(theta - self.system_means(phi), axis=0)
        center = phi.mu[j] + jnp.sum(white[:, j] * away) / precision

        def log_density(mu: Array) -> Array:
            return density(mu) - 0.5 * precision * (mu - center) ** 2

        # Wide enough for either factor; where it is too wide it shrinks.
        return slice_draw(uniform, phi.mu[j], log_density, 10 / jnp.sqrt(precision + 1 / self.mean_variance[j]))

    def _normal_mean(self, normal: Array, theta: Array, phi: Phi) -> Phi:
        """Mean and shifts from their joint normal, as if all priors were normal.

        Where some are not, the rest must be drawn given those: they keep their values here.
        """
        if self.effects is None and not any(self.log_densities) and not self.pairs:
            precision = theta.shape[0] * jnp.exp(-phi.log_tau) + 1 / self.mean_variance
            center = jnp.exp(-phi.log_tau) * jnp.sum(theta, axis=0) + self.mean / self.mean_variance
            return phi._replace(mu=center / precision + normal / jnp.sqrt(precision))
        systems, count = theta.shape
        fixed = np.array([density is not None for density in self.log_densities or (None,) * count])
        # How each coefficient moves the mean of each parameter of each system: (system, parameter, coefficient).
        design = jnp.broadcast_to(jnp.eye(count), (systems, count, count))
        variance, middle = self.mean_variance, self.mean
        if self.effects is not None:
            acts = jax.nn.one_hot(np.array(self.effects.parameter), count).T
            design = jnp.concatenate([design, self.effects.value[:, None, :] * acts], axis=-1)
            variance = jnp.concatenate([variance, self.effects.variance])
            middle = jnp.concatenate([middle, jnp.zeros(len(self.effects.parameter))])
        free = np.concatenate([~fixed, np.ones(len(middle) - count, bool)])
        rest = theta - jnp.where(fixed, phi.mu, 0.0)
        white = self.whitening(phi)[0]
        rows = jnp.einsum("pq,kqa->kpa", white, design[..., free])
        precision = jnp.einsum("kpa,kpb->ab", rows, rows) + jnp.diag(1 / variance[free])
        pull = jnp.einsum("kpa,pq,kq->a", rows, white, rest) + middle[free] / variance[free]
        lower = jnp.linalg.cholesky(precision)
        half = jax.scipy.linalg.solve_triangular(lower, pull, lower=True) + normal[free]
        drawn = jax.scipy.linalg.solve_triangular(lower.T, half, lower=False)
        whole = jnp.concatenate([phi.mu, jnp.zeros(len(free) - count)]).at[np.flatnonzero(free)].set(drawn)
        return phi._replace(mu=whole[:count], covariate_effect=None if self.effects is None else whole[count:])


class Correlated(Diagonal):
    """Hierarchical Gaussian with any covariance: variances as in `Diagonal`, correlations ~ LKJ(concentration)."""

    concentration: float = eqx.field(static=True, default=2.0)

    @classmethod
    def suited(cls, parameters: int) -> type[Diagonal]:
        return cls if parameters > 1 else Diagonal

    @property
    def pairs(self) -> int:
        count = self.mean.shape[0]
        return count * (count - 1) // 2

    @property
    def prior_variances(self) -> dict[str, Float[Array, " number"]]:
        # Under LKJ every correlation is a beta variable on (-1, 1), of this shape twice.
        shape = self.concentration - 1 + 0.5 * self.mean.shape[0]
        return super().prior_variances | {"correlation": jnp.full(self.pairs, 1 / (2 * shape + 1))}

    def log_hyperprior(self, phi: Phi) -> Float[Array, ""]:
        return super().log_hyperprior(phi) + log_lkj(phi.correlation, self.mean.shape[0], self.concentration)

    def whitening(self, phi: Phi) -> tuple[Float[Array, "parameter parameter"], Float[Array, ""]]:
        lower = correlation_factor(phi.correlation, len(phi.mu))
        size = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * jnp.sum(phi.log_tau)
        return inverse_factor(lower) * jnp.exp(-0.5 * phi.log_tau), size

    def theta_from_normal(self, phi: Phi, normal: Theta) -> Theta:
        lower = jnp.exp(0.5 * phi.log_tau)[:, None] * correlation_factor(phi.correlation, len(phi.mu))
        return self.system_means(phi) + normal @ lower.T

    def log_prior(self, theta: Theta, phi: Phi) -> tuple[Float[Array, " system"], Theta]:
        white, log_size = self.whitening(phi)
        away = (theta - self.system_means(phi)) @ white.T
        constant = log_size + 0.5 * len(phi.mu) * jnp.log(2 * jnp.pi)
        return -0.5 * jnp.sum(away**2, axis=-1) - constant, -away @ white

    def gibbs(self, randomness: PyTree, theta: Theta, phi: Phi) -> Phi:
        """Draw phi given theta of all systems: the mean as in `Diagonal`, then every variance and correlation in turn."""
        for_mean, _, for_slice, for_spread = randomness
        phi = self._new_mean(for_mean, for_slice, theta, phi)
        away, (systems, count) = theta - self.system_means(phi), theta.shape
        products = away.T @ away

        def log_density(spread: Array) -> Array:
            there = phi._replace(log_tau=spread[:count], correlation=spread[count:])
            white, log_size = self.whitening(there)
            prior = _log_normal(there.log_tau, self.log_variance, self.log_variance_variance)
            prior += log_lkj(there.correlation, count, self.concentration)
            return prior - systems * log_size - 0.5 * jnp.sum(white * (white @ products))

        # Intervals a few times as wide as what so many systems leave open.
        open_ = 8 / jnp.sqrt(systems + 1.0)
        tau_width = 1 / jnp.sqrt(1 / (2 * open_) ** 2 + 1 / (8 * jnp.sqrt(self.log_variance_variance)) ** 2)
        widths = jnp.concatenate([tau_width, jnp.full(self.pairs, 1.5 * open_)])

        def one(spread: Array, turn: tuple[Array, Array, Array]) -> tuple[Array, None]:
            place, uniform, width = turn
            moved = slice_draw(uniform, spread[place], lambda x: log_density(spread.at[place].set(x)), width)
            return spread.at[place].set(moved), None

        spread = jnp.concatenate([phi.log_tau, phi.correlation])
        spread, _ = lax.scan(one, spread, (jnp.arange(len(spread)), for_spread, widths))
        return phi._replace(log_tau=spread[:count], correlation=spread[count:])


class Independent(Population):
    """No hierarchy: every system on its own, under one fixed prior."""

    mean: Float[Array, " parameter"]
    variance: Float[Array, " parameter"]
    log_densities: Densities = eqx.field(static=True, default=())

    def precision(self, phi: tuple[()]) -> Float[Array, "own own"]:
        return jnp.diag(1 / self.variance)

    def theta_from_normal(self, phi: tuple[()], normal: Theta) -> Theta:
        return self.mean + jnp.sqrt(self.variance) * normal

    def log_prior(self, theta: Theta, phi: tuple[()]) -> tuple[Float[Array, " system"], Theta]:
        each, pull = jax.vjp(lambda t: _log_each(t, self.mean, self.variance, self.log_densities), theta)
        return jnp.sum(each, axis=-1), pull(jnp.ones_like(each))[0]


def _log_each(x: Array, mean: Array, variance: Array, densities: Densities) -> Float[Array, "*row parameter"]:
    """Log prior of every number: the normal one, or its own."""
    plain = -0.5 * ((x - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))
    if not any(densities):
        return plain
    columns = [plain[..., j] if d is None else d(x[..., j]) for j, d in enumerate(densities)]
    return jnp.stack(columns, axis=-1)


def _log_normal(x: Array, mean: Array | float, variance: Array) -> Float[Array, ""]:
    return -0.5 * jnp.sum((x - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))
