"""Conditionals of the population against closed forms and quadrature."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from closura.population import Diagonal, draw_log_variance, population
from closura.population._random import TRIES
from closura.problems import mass_damper

DRAWS = 60_000


def quadrature(squares, count, mean, variance):
    """Mean and variance of the conditional of log tau, on a fine grid."""
    x = np.linspace(mean - 60, mean + 60, 1_600_001)
    with np.errstate(over="ignore"):
        log_density = -0.5 * ((x - mean) ** 2 / variance + count * x + squares * np.exp(-x))
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    first = np.sum(weight * x)
    return first, np.sum(weight * (x - first) ** 2), weight, x


@pytest.mark.parametrize(
    ("squares", "count", "mean", "variance"),
    [
        *[
            (0.6, 20, -3.9, 0.4),
            (40.0, 20, 0.0, 0.08),
            (1e-4, 1, 0.0, 1.0),
            (500.0, 1000, -1.0, 2.0),
            (30.0, 2, -6.0, 0.5),
        ],
        # far from what the hyperprior expects
        *[(2e13, 20, -1.4, 1.0), (1e12, 1, 0.0, 25.0), (0.0, 20, 0.0, 1.0), (1e-12, 5, 0.0, 4.0)],
    ],
)
def test_log_variance_is_drawn_exactly(squares, count, mean, variance):
    given = (jnp.asarray(mean), jnp.asarray(variance))
    uniform = jr.uniform(jr.key(3), (DRAWS, TRIES, 2), minval=1e-30)
    draw = jax.jit(
        jax.vmap(lambda u: draw_log_variance(u, *(jnp.asarray(a) for a in (jnp.nan, squares)), count, *given))
    )
    x = np.asarray(draw(uniform), np.float64)
    # All tries rejected is as rare as promised (`current` is NaN here, to be seen).
    assert np.isnan(x).mean() < 2e-3
    x = x[np.isfinite(x)]
    first, second, weight, grid = quadrature(squares, count, mean, variance)
    assert abs(x.mean() - first) / np.sqrt(second / len(x)) < 4
    squared = (x - first) ** 2
    assert abs(squared.mean() - second) / (squared.std() / np.sqrt(len(x))) < 4
    # The whole law: probability integral transform is uniform (Kolmogorov-Smirnov at 1e-4).
    cdf = np.interp(np.sort(x), grid, np.cumsum(weight))
    assert np.abs(cdf - (np.arange(len(x)) + 0.5) / len(x)).max() < 2.23 / np.sqrt(len(x))


def test_mean_is_conjugate():
    prior = Diagonal(jnp.array([0.3]), jnp.array([0.5]), jnp.array([-1.0]), jnp.array([0.2]))
    theta = jnp.array([[1.0], [1.4], [0.2]])
    phi = prior.phi_from_normal(jnp.zeros((2, 1)))._replace(log_tau=jnp.array([-0.7]))
    noise = jax.vmap(lambda key: prior.randomness(key, 1))(jr.split(jr.key(1), DRAWS))
    noise = jax.tree.map(lambda a: a[:, 0], noise)
    mu = np.asarray(jax.jit(jax.vmap(lambda n: prior.gibbs(n, theta, phi)))(noise).mu)[:, 0]
    precision = 3 * np.exp(0.7) + 1 / 0.5
    center = (np.exp(0.7) * 2.6 + 0.3 / 0.5) / precision
    assert abs(mu.mean() - center) < 4 / np.sqrt(precision * DRAWS)
    assert abs(mu.var() * precision - 1) < 4 * np.sqrt(2 / DRAWS)


def test_log_prior_and_its_gradient():
    prior = population(mass_damper.problem.parameters)
    phi = prior.phi_from_normal(jr.normal(jr.key(0), (2, 3)))
    theta = jr.normal(jr.key(1), (4, 3))
    value, slope = prior.log_prior(theta, phi)
    expected = -0.5 * ((theta - phi.mu) ** 2 / jnp.exp(phi.log_tau) + phi.log_tau + jnp.log(2 * jnp.pi)).sum(-1)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_allclose(slope, jax.grad(lambda t: prior.log_prior(t, phi)[0].sum())(theta), rtol=1e-4)


def test_without_hierarchy_the_prior_is_the_papers():
    fixed = population(mass_damper.problem.parameters, hierarchical=False)
    np.testing.assert_allclose(fixed.mean, [np.log(3), 0.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(fixed.variance, [0.1 + 0.02, 2.0, 2.0], rtol=1e-5)
    assert fixed.phi_from_normal(jnp.zeros((2, 3))) == ()
