"""Gibbs draws of every population leave its hyperprior alone when systems are drawn from it in between (Geweke's test)."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from closura.parameters import Gamma, Interval, LogNormal, Normal, Parameters, Positive, Real, TruncatedNormal, Uniform
from closura.population import Correlated, Diagonal, Effects, Independent, population
from closura.population._correlation import correlation_factor, inverse_factor
from closura.population._random import NUMBERS, slice_draw

SYSTEMS, CHAINS, STEPS = 4, 1000, 300
NARROW = jnp.array([0.5, -0.2, 1.0]), jnp.array([0.6, 0.3, 0.2]), jnp.log(jnp.array([0.5, 0.3, 0.8]))
EFFECTS = Effects(jnp.array([[1.2, 0.3], [-0.7, 0.3], [-0.9, -1.6], [0.4, 1.0]]), jnp.array([0.5, 0.8]), (0, 2))
GAMMA = Parameters({"a": Positive(prior=Gamma(3.0, 2.0))}).log_densities[0]


def make(kind, densities=(), effects=None):
    return kind(*NARROW, jnp.array([0.4, 0.2, 0.5]), densities, effects)


POPULATIONS = {
    "diagonal": make(Diagonal),
    "diagonal, covariates": make(Diagonal, (), EFFECTS),
    "diagonal, covariates, gamma": make(Diagonal, (None, GAMMA, None), EFFECTS),
    "correlated": make(Correlated),
    "correlated, covariates, gamma": make(Correlated, (None, GAMMA, None), EFFECTS),
}


def facts(prior, phi):
    """Means over chains of numbers whose expectation under the hyperprior is known, and that expectation."""
    named = {
        "mu": (phi.mu[:, 0], prior.mean[0]),
        "mu^2": (phi.mu[:, 0] ** 2, prior.mean[0] ** 2 + prior.mean_variance[0]),
        "log tau": (phi.log_tau, prior.log_variance),
        "log tau^2": (phi.log_tau**2, prior.log_variance**2 + prior.log_variance_variance),
        "mu log tau": (phi.mu[:, 2] * phi.log_tau[:, 2], prior.mean[2] * prior.log_variance[2]),
    }
    if any(prior.log_densities):
        value = jnp.exp(phi.mu[:, 1])
        named |= {"gamma": (value, 1.5), "gamma^2": (value**2, 3.0)}
    if prior.effects is not None:
        named |= {
            "slope": (phi.covariate_effect, 0.0),
            "slope^2": (phi.covariate_effect**2, prior.effects.variance),
            "slope mu": (phi.covariate_effect[:, 0] * phi.mu[:, 0], 0.0),
        }
    if prior.pairs:
        factor = jax.vmap(lambda bond: correlation_factor(bond, 3))(phi.correlation)
        r = jnp.stack([(factor @ jnp.swapaxes(factor, 1, 2))[:, i, j] for i, j in ((1, 0), (2, 0), (2, 1))], -1)
        # Every correlation of LKJ(2) in three dimensions is 2 Beta(2.5, 2.5) - 1.
        named |= {"r": (r, 0.0), "r^2": (r**2, 1 / 6), "r^4": (r**4, 3 / 48), "r1 r2": (r[:, 0] * r[:, 1], 0.0)}
    said = jnp.concatenate([jnp.mean(x.reshape(CHAINS, -1), axis=0) for x, _ in named.values()])
    return said, jnp.concatenate([jnp.broadcast_to(jnp.asarray(e), x.shape[1:]).ravel() for x, e in named.values()])


def geweke(prior, wrong=0.0, steps=STEPS):
    """z scores of the time averages; chains are independent, so the error comes from their spread."""

    def one(phi, key):
        key_theta, key_phi = jr.split(key)
        theta = jax.vmap(prior.theta_from_normal)(phi, jr.normal(key_theta, (CHAINS, SYSTEMS, 3)))
        phi = jax.vmap(prior.gibbs)(prior.randomness(key_phi, CHAINS), theta, phi)
        return phi._replace(log_tau=phi.log_tau + wrong), facts(prior, phi)[0]

    start = jax.vmap(prior.phi_from_normal)(jr.normal(jr.key(0), (CHAINS, 2, 3)))
    end, said = jax.jit(lambda s: jax.lax.scan(one, s, jr.split(jr.key(1), steps)))(start)
    said, expected = np.asarray(said, float)[100:], np.asarray(facts(prior, end)[1])
    # Blocks longer than the chains remember are independent.
    blocks = said.reshape(10, -1, said.shape[1]).mean(axis=1)
    error = blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks))
    return (blocks.mean(axis=0) - expected) / np.maximum(error, 1e-4)


SOON = ("diagonal", "correlated")


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.nightly) for name in POPULATIONS]
)
def test_the_hyperprior_is_kept(name):
    # Student's t of nine degrees, forty numbers: 6 is passed once in a few hundred runs of all.
    steps = STEPS if name in SOON else 3 * STEPS  # covariates are forgotten more slowly
    assert np.abs(geweke(POPULATIONS[name], steps=steps)).max() < 6


@pytest.mark.nightly
def test_it_would_notice_a_wrong_draw():
    assert np.abs(geweke(POPULATIONS["correlated"], wrong=0.05)).max() > 10


def test_slices_keep_a_lopsided_density():
    """Gamma(3) as seen in its logarithm, from intervals far too narrow and far too wide."""
    for width in (0.5, 40.0):

        def one(x, key, width=width):
            uniform = jr.uniform(key, (2 * CHAINS, NUMBERS), minval=1e-30)
            x = jax.vmap(lambda u, x: slice_draw(u, x, lambda y: 3 * y - jnp.exp(y), width))(uniform, x)
            return x, jnp.stack([jnp.mean(jnp.exp(x)), jnp.mean(jnp.exp(2 * x))])

        start = jnp.log(jr.gamma(jr.key(0), 3.0, (2 * CHAINS,)))
        series = np.asarray(jax.jit(lambda s: jax.lax.scan(one, s, jr.split(jr.key(1), 200))[1])(start))
        blocks = series.reshape(10, 20, 2).mean(axis=1)
        error = blocks.std(axis=0, ddof=1) / np.sqrt(10)
        assert np.all(np.abs(blocks.mean(axis=0) - [3.0, 12.0]) < 6 * error)
        assert np.all(error / [3.0, 12.0] < 0.01)


@pytest.mark.usefixtures("float64")
def test_correlations():
    factor = correlation_factor(jr.normal(jr.key(0), (6,)), 4)
    matrix = np.asarray(factor @ factor.T)
    np.testing.assert_allclose(np.diag(matrix), 1.0, rtol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > 0
    np.testing.assert_allclose(inverse_factor(factor) @ factor, np.eye(4), atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", POPULATIONS)
def test_log_prior_is_the_density_of_what_is_scattered(name):
    prior = POPULATIONS[name]
    phi = prior.phi_from_normal(jr.normal(jr.key(0), (2, 3)))
    phi = jax.tree.map(lambda leaf: leaf + 0.4 * jnp.arange(len(leaf)) - 0.2, phi)
    theta = jr.normal(jr.key(1), (SYSTEMS, 3))
    center = prior.theta_from_normal(phi, jnp.zeros((SYSTEMS, 3)))
    root = np.asarray(jax.jacfwd(lambda n: prior.theta_from_normal(phi, jnp.tile(n, (SYSTEMS, 1)))[0])(jnp.zeros(3)))
    away = np.linalg.solve(root, np.asarray(theta - center).T)
    expected = -0.5 * np.sum(away**2, axis=0) - np.log(abs(np.linalg.det(root))) - 1.5 * np.log(2 * np.pi)
    value, slope = prior.log_prior(theta, phi)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(slope, jax.grad(lambda t: prior.log_prior(t, phi)[0].sum())(theta), rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_a_system_on_its_own_has_the_prior_that_was_stated():
    kinds = {
        "a": Real(prior=Normal(2.0, 0.5)),
        "b": LogNormal(-1.0, 1.0),
        "c": TruncatedNormal(1.0, 0.5),
        "d": Uniform(-1.0, 3.0),
        "e": Interval(0.0, 1.0, guess=0.3),
    }
    parameters = Parameters(kinds)
    alone = population(parameters, hierarchical=False)
    assert isinstance(alone, Independent)
    theta = jr.normal(jr.key(0), (6, 5))
    p = parameters.to_physical(theta)
    slopes = jnp.diagonal(jax.vmap(jax.jacfwd(parameters.to_physical))(theta), axis1=1, axis2=2)
    stated = [kind.prior._frozen() for kind in parameters.kinds.values() if kind.prior is not None]
    expected = sum(prior.logpdf(np.asarray(p[:, j])) for j, prior in enumerate(stated))
    expected += np.log(np.asarray(slopes[:, :4])).sum(axis=1)
    variance = 1.0 + 0.25  # of a guess: how unsure it is, and a typical spread
    away = np.asarray(theta[:, 4]) - np.log(0.3 / 0.7)
    expected += -0.5 * (away**2 / variance + np.log(2 * np.pi * variance))
    value, slope = alone.log_prior(theta, ())
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(slope, jax.grad(lambda t: alone.log_prior(t, ())[0].sum())(theta), rtol=1e-9)
