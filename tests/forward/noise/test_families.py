"""Laws every family of noise keeps, those of closura and one that is brought along."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from noises import Laplace
from scipy import stats

from closura.equations import NOISES
from closura.forward import Measured, Noise, NoisePrior, ResidualStats
from closura.forward.noise import Student
from closura.forward.noise._residual import ResidualNoise

REFERENCE = {
    "poisson": lambda y, m, s: stats.poisson(m).logpmf(y),
    "negative_binomial": lambda y, m, s: stats.nbinom(s**-2.0, 1 / (1 + m * s**2)).logpmf(y),
}
FAMILIES = {**NOISES, "laplace": Laplace()}
CASES = [(2.0, 0.3), (7.5, 0.8), (0.6, 1.2)]  # prediction, scale

every_family = pytest.mark.parametrize("noise", FAMILIES.values(), ids=FAMILIES)
double = pytest.mark.usefixtures("float64")


def places(noise, prediction, scale):
    """Where observations may be, fine and far enough to integrate over, and the weights of that."""
    if noise.discrete:
        return np.arange(2000.0), np.ones(2000)
    u = np.linspace(-16.0, 16.0, 64_000)  # no place is the prediction
    if noise.valid(np.array([-1.0])).all():
        return prediction + scale * np.sinh(u), scale * np.cosh(u) * (u[1] - u[0])
    y = prediction * np.exp(scale * u)
    return y, scale * y * (u[1] - u[0])


def density(noise, prediction, scale):
    y, weight = places(noise, prediction, scale)
    m, s = jnp.full(y.shape, prediction), jnp.full(y.shape, scale)
    log_prob, score = (np.asarray(part) for part in noise.log_prob_and_score(jnp.asarray(y), m, s))
    return y, weight * np.exp(log_prob), score


@double
@every_family
def test_densities_have_mass_one_and_score_zero(noise):
    for prediction, scale in CASES:
        _, mass, score = density(noise, prediction, scale)
        assert mass.sum() == pytest.approx(1, abs=1e-6)
        assert np.sum(mass * score) == pytest.approx(0, abs=1e-6)
        information = noise.information(*(jnp.full(1, x) for x in (prediction, scale)))
        simulated = type(noise).information is Noise.information
        assert float(information[0]) == pytest.approx(np.sum(mass * score**2), rel=0.3 if simulated else 1e-5)


@pytest.mark.parametrize("name", REFERENCE)
def test_counts_have_the_density_of_scipy(name):
    """In single precision, of few and of many; also where nothing is predicted, and nothing seen."""
    mean, scale = np.array([0.0, 0.02, 0.5, 3.0, 40.0, 1e4]), np.array([1e-4, 1e-2, 0.1, 0.7, 3.0])[:, None, None]
    y = np.array([0.0, 1.0, 2.0, 7.0, 8.0, 30.0, 9_900.0])[:, None]
    shape = np.broadcast_shapes(mean.shape, y.shape, scale.shape)
    m, s = (jnp.asarray(np.broadcast_to(x, shape), jnp.float32) for x in (mean, scale))
    log_prob, score = NOISES[name].log_prob_and_score(jnp.asarray(y, jnp.float32), m, s)
    expected = REFERENCE[name](y, *(np.float32(x).astype(float) for x in (mean, scale))) + np.zeros(shape)
    possible = np.isfinite(expected)
    assert np.array_equal(np.isfinite(log_prob), possible)
    assert np.isfinite(score)[possible].all()
    np.testing.assert_allclose(np.asarray(log_prob)[possible], expected[possible], rtol=2e-6, atol=2e-3)
    assert np.isnan(NOISES[name].log_prob(jnp.zeros(1), -jnp.ones(1), jnp.ones(1))).all()


@double
@every_family
def test_samples_have_the_density(noise):
    """Shares below a few places, of so many that three in a thousand would show."""
    for prediction, scale in CASES:
        y, mass, _ = density(noise, prediction, scale)
        count = 200_000
        m, s = jnp.full(count, prediction), jnp.full(count, scale)
        drawn = np.asarray(noise.sample(jr.key(3), m, s))
        assert noise.valid(drawn).all()
        below = np.cumsum(mass)
        for level in (0.01, 0.2, 0.5, 0.8, 0.99):
            at = np.searchsorted(below, level)
            share = below[at]
            assert np.mean(drawn <= y[at] * (1 + 1e-9)) == pytest.approx(
                share, abs=4 * math.sqrt(share * (1 - share) / count) + 1e-4
            )


@double
@every_family
def test_distribution_functions_belong_to_the_density(noise):
    for prediction, scale in CASES:
        y, mass, _ = density(noise, prediction, scale)
        below, some = np.cumsum(mass), np.searchsorted(np.cumsum(mass), [0.003, 0.1, 0.5, 0.9, 0.997])
        m, s = np.full(5, prediction), np.full(5, scale)
        cdf, quantile = noise.cdf(y[some], m, s), noise.quantile(below[some] * (1 - 1e-9), m, s)
        if cdf is not None:
            np.testing.assert_allclose(cdf, below[some], atol=1e-3)
        if quantile is not None:
            np.testing.assert_allclose(quantile, y[some], rtol=1e-3)


@double
@every_family
def test_scores_are_derivatives(noise):
    for prediction, scale in CASES:
        y = noise.sample(jr.key(0), jnp.full(50, prediction), jnp.full(50, scale))
        m, s, h = jnp.full(50, prediction) + 1e-3, jnp.full(50, scale), 1e-6
        apart = noise.log_prob(y, m + h, s) - noise.log_prob(y, m - h, s)
        np.testing.assert_allclose(noise.log_prob_and_score(y, m, s)[1], apart / (2 * h), rtol=1e-5, atol=1e-6)
        assert (np.asarray(noise.weight(y, m, s)) > 0).all()


@double
@pytest.mark.parametrize("name", [name for name, family in NOISES.items() if isinstance(family, ResidualNoise)])
def test_the_gradient_of_the_link(name):
    x = jnp.asarray([0.3, 1.0, 4.0])
    expected = jax.vmap(jax.grad(NOISES[name].link))(x)
    np.testing.assert_allclose(NOISES[name].link_gradient(x), expected, rtol=1e-12)


def measured(noise, inferred=True, systems=3, observations=7, seed=0):
    """Ragged observations of two quantities, and what is predicted for two chains with what derivatives."""
    random = np.random.default_rng(seed)
    mask = np.arange(observations) < np.array([7, 5, 6])[:systems, None]
    scale = np.where(mask & ~np.full(mask.shape, inferred), 0.4, 1.0)
    prediction = random.uniform(1.0, 4.0, (2, systems, observations))
    drawn = noise.sample(jr.key(seed), jnp.asarray(prediction[0]), jnp.full(mask.shape, 0.4))
    value = np.where(mask, np.asarray(drawn), np.asarray(drawn)[:, :1])
    onehot = mask[..., None] & (np.arange(observations)[:, None] % 2 == np.arange(2))
    prepared = tuple(map(jnp.asarray, noise.prepare(value, scale, mask)))
    arrays = jnp.asarray(value), jnp.asarray(scale), jnp.asarray(mask)
    jacobian = jnp.asarray(random.normal(size=(4, *prediction.shape)))
    seen = Measured(*arrays, jnp.asarray(onehot, float) if inferred and noise.has_scale else None, prepared)
    return seen, jnp.asarray(prediction), jacobian


@double
@every_family
@pytest.mark.parametrize("shape", [None, (2, 2), (2, 3, 2)], ids=["stated", "of chains", "of chains and systems"])
def test_cached_statistics_give_the_likelihood(noise, shape):
    seen, prediction, jacobian = measured(noise, inferred=shape is not None)
    log_scale = None if shape is None else jnp.asarray(np.random.default_rng(1).normal(-0.5, 0.4, shape))
    scale = np.asarray(jnp.broadcast_to(seen.scales(log_scale), prediction.shape))
    if log_scale is not None and noise.has_scale:
        each = log_scale if log_scale.ndim == 3 else log_scale[:, None]
        expected = np.exp(np.take_along_axis(np.broadcast_to(each, (2, 3, 2)), np.arange(7)[None, None] % 2, axis=-1))
        np.testing.assert_allclose(scale, np.where(seen.mask, expected, 1.0), rtol=1e-12)
    log_prob, score = noise.log_prob_and_score(seen.value, prediction, jnp.asarray(scale))
    loglik = jnp.sum(jnp.where(seen.mask, log_prob, 0.0), axis=-1)
    gradient = jnp.einsum("cso,pcso->csp", jnp.where(seen.mask, score, 0.0), jacobian)
    cached = noise.stats(seen, prediction, jacobian)
    found = noise.loglik_and_grad(seen, cached, log_scale)
    np.testing.assert_allclose(found[0], loglik, rtol=1e-10)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-9, atol=1e-12)
    alone = noise.stats(seen, prediction, None)
    np.testing.assert_allclose(noise.loglik(seen, alone, log_scale), loglik, rtol=1e-10)
    reverse = jax.grad(lambda m: jnp.sum(noise.loglik(seen, noise.stats(seen, m, None), log_scale)))(prediction)
    np.testing.assert_allclose(reverse, jnp.where(seen.mask, score, 0.0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "temperature"),
    [("normal", 0.3), ("student", 1.0)]
    + [
        pytest.param(name, 0.3, marks=pytest.mark.nightly)
        for name, family in FAMILIES.items()
        if family.has_scale and name != "normal"
    ],
)
def test_scales_are_drawn_from_their_conditional(name, temperature):
    """Against quadrature, from many short chains that start anywhere."""
    noise, chains = FAMILIES[name], 4000
    with jax.enable_x64(True):
        seen, prediction, _ = measured(noise)
        stats_of = noise.stats(seen, prediction[:1], None)
    seen, fits = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == float else a, (seen, stats_of))
    prior = NoisePrior(jnp.asarray([-1.0, 0.5]), jnp.asarray([0.6, 0.4]), (True, True))
    every = ResidualStats(jnp.broadcast_to(fits.value, (chains, *fits.value.shape[1:])), None)

    def one(log_scale, key):
        moved = noise.gibbs_noise(key, prior, seen, every, log_scale, temperature)
        return moved, moved

    start = prior.draw(jr.normal(jr.key(0), (chains, 2)))
    draws = np.asarray(jax.jit(lambda s: jax.lax.scan(one, s, jr.split(jr.key(1), 40)))(start)[1])[10:]
    x = np.linspace(-6, 6, 4001)
    for q in range(2):
        at = np.zeros((len(x), 2), np.float32)
        at[:, q] = x
        many = ResidualStats(jnp.broadcast_to(fits.value, (len(x), *fits.value.shape[1:])), None)
        log = temperature * np.asarray(noise.loglik(seen, many, jnp.asarray(at)), float).sum(axis=1)
        log += -0.5 * (x - float(prior.mean[q])) ** 2 / float(prior.variance[q])
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        mean = np.sum(weight * x)
        sd = math.sqrt(np.sum(weight * (x - mean) ** 2))
        # Draws of one chain are hardly correlated: at least a third of them count.
        effective = draws.shape[0] * chains / 3
        assert abs(draws[..., q].mean() - mean) < 4 * sd / math.sqrt(effective)
        assert draws[..., q].std() / sd == pytest.approx(1, abs=6 / math.sqrt(effective))


@every_family
def test_quantile_residuals_are_standard_normal(noise):
    for prediction, scale in CASES:
        count = 20_000
        m, s = np.full(count, prediction), np.full(count, scale)
        y = np.asarray(noise.sample(jr.key(1), jnp.asarray(m, float), jnp.asarray(s, float)), float)
        residual = noise.quantile_residuals(y, m, s)
        assert stats.kstest(residual, "norm").pvalue > 1e-3
        assert residual.std() == pytest.approx(1, abs=0.03)
        wrong = noise.quantile_residuals(y, 2.0 * m, s)
        assert stats.kstest(wrong, "norm").pvalue < 1e-6
        broken = noise.quantile_residuals(y[:3], np.full((2, 3), np.nan), s[:3])
        assert broken.shape == (2, 3)
        assert np.isnan(broken).all()


@every_family
def test_measurements_are_those_of_the_family(noise):
    """One of each of so many draws: their quantiles are those of samples."""
    for prediction, scale in CASES:
        m = np.full((2000, 2, 3), prediction)
        made = noise.measurements(0, m, np.full((1, 2, 1), scale)).reshape(-1)
        drawn = np.asarray(noise.sample(jr.key(1), jnp.full(12_000, prediction), jnp.full(12_000, scale)), float)
        assert stats.ks_2samp(made, drawn).statistic < 0.025
        assert (np.sort(made)[1:] > np.sort(made)[:-1]).any()


@every_family
def test_units_of_the_noise(noise):
    for prediction, scale in CASES:
        m, s = np.full(1, prediction), np.full(1, scale)
        unit = float(noise.unit(m, s)[0])
        low, high = noise.interval(m, s, width=1e-3)
        assert float(high[0] - low[0]) == pytest.approx(2e-3 * unit, rel=1e-3)
        assert float(noise.apart(m * (1 + 1e-4), m, s)[0]) == pytest.approx(1e-4 * prediction / unit, rel=1e-2)
        drawn = np.asarray(noise.sample(jr.key(1), jnp.full(20_000, prediction), jnp.full(20_000, scale)))
        assert 0.4 < unit / (0.5 * np.diff(np.quantile(drawn, [0.16, 0.84]))[0]) < 2.5


def test_families_are_equal_by_what_they_are():
    assert Laplace() == Laplace()
    assert hash(Laplace()) == hash(Laplace())
    assert Student(3.0) == Student(3.0) != Student(4.0)
    assert dataclasses.replace(Student(3.0), freedom=4.0) == NOISES["student"]
    other = Laplace()
    other.width = 2.0
    assert other != Laplace()
    assert hash(other) != hash(Laplace())
    assert Laplace().name == "laplace"
