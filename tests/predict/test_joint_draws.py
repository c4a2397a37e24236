"""Predictions and new systems with a sampled law, against closed forms: everything goes by joint draws."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from joint import TIMES, fleet, integral, laws, newcomer, ramp
from scipy import stats

from closura.forward import likelihood
from closura.population import Empirical, population
from closura.predict._infer import infer
from closura.predict._new_systems import matched
from closura.sampling import Chains, Posterior, StoredDraw

pytestmark = pytest.mark.usefixtures("hardly_optimised")
DESIGN = np.stack([np.ones(3), TIMES], axis=1)


@pytest.fixture(scope="module")
def against():
    """Law and slope that only together are known: f = c, b = 1 - c, so that u = a + t."""
    random, count = np.random.default_rng(0), 1000
    c = random.normal(0.0, 1.0, count)
    theta = np.stack([random.normal(0.0, 0.02, (count, 2)), np.repeat(1 - 3 * c[:, None], 2, axis=1)], axis=-1)
    mu, tau = np.stack([np.zeros(count), 1 - 3 * c], axis=1), np.full((count, 2), 0.02**2)
    return fleet(ramp(0.1), theta, mu, tau, laws(np.stack([c, 0 * c], axis=1)))


def test_what_law_and_parameters_leave_open_together_is_narrow(against):
    table = against.predict(TIMES)
    np.testing.assert_allclose(table["mean"], np.tile(TIMES, 2), atol=0.02)
    np.testing.assert_allclose(table["sd"], 0.02, rtol=0.2)
    law, order = against.closures["f"], np.random.default_rng(1).permutation(1000)
    shuffled = dataclasses.replace(law, law=law.law.with_weights(law.law.weights[order]))
    apart = dataclasses.replace(against, closures={"f": shuffled}).predict(TIMES)
    assert apart["sd"].min() > 0.5, "laws of other draws would be seen"


@pytest.mark.nightly
def test_a_new_system_too_has_law_and_population_of_one_draw(against):
    """Before its data, u = a + t + (b - mu) t, with a and b of the population."""
    new = against.newcomer(newcomer([0.27]))
    expected = 0.02 * np.sqrt(1 + TIMES**2)
    np.testing.assert_allclose(new.before(TIMES)["sd"], expected, rtol=0.2)
    np.testing.assert_allclose(new.predict(TIMES)["sd"], expected, rtol=0.2)
    assert new.parameters.set_index("parameter").loc["b", "sd"] > 2, "b alone is as open as it was"
    assert new.rhat.max() < 1.1


def test_what_systems_share_follows_the_law():
    """A parameter that all systems share and the law determines: of a new system it is that of its draw."""
    random, count = np.random.default_rng(0), 800
    c = random.normal(size=(count, 2))
    mu = np.stack([random.normal(0.0, 0.1, count), c[:, 0] - c[:, 1] + random.normal(0.0, 0.1, count)], axis=1)
    fitted = fleet(ramp(0.1, shared=True), mu[:, None], mu, np.full((count, 2), 0.04), laws(c))
    stored = fitted.stored(fitted.data)
    np.testing.assert_allclose(stored.center[:, 0, 1] - (c[:, 0] - c[:, 1]), 0.0, atol=0.06)
    np.testing.assert_allclose(1 / np.asarray(stored.white)[:, 1, 1], 0.1, rtol=0.1)
    spread = np.var(stored.center[:, 0, 1]) + 1 / np.asarray(stored.white)[0, 1, 1] ** 2
    assert spread == pytest.approx(mu[:, 1].var(), rel=1e-3)


def mixture(value, mu, tau, sigma, coordinates):
    """Weights of the stored draws, and mean and covariance of (a, b) under each."""
    away = value - integral(coordinates, TIMES)
    weights, means, covariances = [], [], []
    for y, m, t, s in zip(away, mu, tau, sigma):
        weights.append(stats.multivariate_normal(DESIGN @ m, DESIGN * t @ DESIGN.T + s**2 * np.eye(3)).pdf(y))
        covariances.append(np.linalg.inv(DESIGN.T @ DESIGN / s**2 + np.diag(1 / t)))
        means.append(covariances[-1] @ (DESIGN.T @ y / s**2 + m / t))
    return np.array(weights) / np.sum(weights), np.array(means), np.array(covariances)


MU = np.array([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0], [0.5, 0.5]])
TAU = np.array([[1.0, 0.5], [0.2, 0.6], [0.6, 0.1], [0.3, 2.0]])
SIGMA, COORDINATES = np.array([0.2, 0.5, 0.9, 0.3]), np.array([[0.0, 0.3], [0.4, -0.2], [-0.5, 0.1], [0.1, 0.0]])
VALUE = np.array([1.2, 0.9, 1.6])


def stored_fleet():
    theta = np.zeros((4, 1, 2))
    return fleet(ramp(), theta, MU, TAU, laws(COORDINATES), SIGMA)


def test_the_data_of_a_new_system_reweigh_population_noise_and_law_together():
    fitted = stored_fleet()
    data = matched(fitted.problem, newcomer(VALUE))
    target, stored = likelihood(fitted.problem, data), fitted.stored(data)
    found = infer(target, {}, stored, population(fitted.problem.parameters, False), 0, fitted.stored_tables)
    weight, means, covariances = mixture(VALUE, MU, TAU, SIGMA, COORDINATES)
    assert weight.max() < 0.8
    np.testing.assert_allclose(np.bincount(found.which[:, 0], minlength=4) / len(found.which), weight, atol=0.05)
    mean = weight @ means
    sd = np.sqrt(np.diag(np.einsum("s,spq->pq", weight, covariances + means[:, :, None] * means[:, None])) - mean**2)
    theta = found.theta[:, 0].astype(float)
    np.testing.assert_allclose(theta.mean(axis=0), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(theta.std(axis=0), sd, rtol=0.1)
    assert found.rhat.max() < 1.03


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_choosing_a_stored_draw_keeps_the_posterior(weight):
    """One step from draws of the posterior, theta staying or going along: many move, and they are draws of it still; also on
    the way from the wide prior to the population."""
    fitted = stored_fleet()
    data = matched(fitted.problem, newcomer(VALUE))
    target, wide = likelihood(fitted.problem, data), population(fitted.problem.parameters, False)
    empirical = Empirical(fitted.stored(data), wide, weight)
    posterior = Posterior(target, target, empirical, None, {}, {}, fitted.stored_tables, law_axes=2)
    # On the way the prior is normal as well: precisions are added.
    precision = weight / TAU + (1 - weight) / np.asarray(wide.variance)
    center = (weight * MU / TAU + (1 - weight) * np.asarray(wide.mean / wide.variance)) / precision
    constant = weight * MU**2 / TAU + (1 - weight) * np.asarray(wide.mean**2 / wide.variance) - precision * center**2
    constant += weight * np.log(TAU) + np.log(precision)
    share, means, covariances = mixture(VALUE, center, 1 / precision, SIGMA, COORDINATES)
    share = share * np.exp(-0.5 * constant.sum(axis=1))
    share /= share.sum()
    random, count = np.random.default_rng(0), 20_000
    which = random.choice(4, count, p=share)
    factor = np.linalg.cholesky(covariances)[which]
    theta = means[which] + np.einsum("dpq,dq->dp", factor, random.normal(size=(count, 2)))
    start = jnp.asarray(theta[None, :, None], float)
    given = jnp.asarray(which[None, :, None])
    fields = {"phi": given, "log_sigma": empirical.draws.log_sigma[given]}
    law = {"f": dataclasses.replace(empirical.draws.law["f"], which=given)}
    before = posterior.refresh(Chains(start, law=law, **fields))
    after, _ = StoredDraw(3).step(jr.split(jr.key(0), 1), before, (), posterior)
    chosen, moved = np.asarray(after.phi)[0, :, 0], np.asarray(after.theta)[0, :, 0].astype(float)
    np.testing.assert_array_equal(after.law["f"].which, after.phi)
    assert np.mean(chosen != which) > 0.1
    assert np.mean(np.any(moved != np.asarray(start)[0, :, 0], axis=1)) > 0.03
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / count, share, atol=4 * np.sqrt(0.25 / count))
    for s in np.flatnonzero(share > 0.05):
        mine = moved[chosen == s]
        sd = np.sqrt(np.diag(covariances[s]))
        np.testing.assert_allclose(mine.mean(axis=0) / sd, means[s] / sd, atol=4 / np.sqrt(len(mine)))
        np.testing.assert_allclose(mine.std(axis=0) / sd, 1.0, atol=4 / np.sqrt(2 * len(mine)))
    again = posterior.refresh(after)
    np.testing.assert_allclose(after.cache.stats[0], again.cache.stats[0], err_msg="the cache is that of the new draws")


@pytest.mark.nightly
def test_members_of_a_fleet_whose_law_is_open_look_like_members():
    """Systems of the stored draws themselves, each under the law of its draw: both p-values are uniform, although laws differ by
    several times the noise. Forty of each number of observations."""
    random, count, members = np.random.default_rng(5), 300, 40
    c = 0.3 * random.normal(size=(count, 2))
    mu = np.stack([np.zeros(count), -3 * c[:, 0]], axis=1) + 0.1 * random.normal(size=(count, 2))
    fitted = fleet(ramp(0.1), mu[:, None], mu, np.full((count, 2), 0.09), laws(c))
    times = np.linspace(0.1, 1.0, 6)
    draw = random.integers(0, count, members)
    theta = mu[draw] + 0.3 * random.normal(size=(members, 2))
    path = theta[:, :1] + theta[:, 1:] * times + integral(c[draw], times) + 0.1 * random.normal(size=(members, 6))
    new = fitted.newcomer(pd.concat([newcomer(y, f"m{k}", times) for k, y in enumerate(path)]))
    for p in (new.found.conflict_p, new.found.misfit_p):
        assert stats.kstest(p, "uniform").pvalue > 1e-3
    assert np.count_nonzero(~new.found.belongs) <= 3
    odd = newcomer(path[0] + 2.0 * np.sin(12 * times), "odd", times)
    assert fitted.newcomer(odd).belongs == {"odd": False}
