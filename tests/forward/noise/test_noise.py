"""Likelihoods under every family of noise, and scales that are inferred: the same as with the scale given."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from noises import Laplace
from scipy import stats

import closura as cl
from closura.equations import NOISES
from closura.forward import ResidualStats, likelihood, noise_prior

SIZES = {"u": 0.3, "v": 0.7}
FAMILY = {
    "normal": lambda y, m, s: stats.norm(m, s).logpdf(y),
    "lognormal": lambda y, m, s: stats.lognorm(s, scale=m).logpdf(y),
    "student": lambda y, m, s: stats.t(4, m, s).logpdf(y),
}


def decay(noise="normal", sigma=None):
    return cl.ODE(
        lambda t, state, p: (-p.k * state.u, p.k * state.u - 0.1 * state.v),
        state=("u", "v"),
        parameters={"k": cl.Positive(guess=0.5), "u0": cl.Positive(guess=2.0)},
        initial=lambda p: (p.u0, 0.5),
        span=(0.0, 4.0),
        dt=0.1,
        observed=("u", "v"),
        noise=noise,
        sigma=sigma,
    )


def table(seed=0, systems=3):
    """Ragged: the second system has less of v."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"system": np.repeat(np.arange(systems), 8), "time": np.tile(np.arange(8) / 2, systems)})
    frame = frame.assign(u=random.uniform(0.5, 2, len(frame)), v=random.uniform(0.5, 2, len(frame)))
    frame.loc[10:13, "v"] = np.nan
    return frame


def matched(problem):
    data = cl.Observations.from_frame(table())
    return data.matched(problem.observed, {"time": problem.span}, problem.sigma)


THETA = jnp.asarray([[[-0.6, 0.8], [-0.4, 0.5], [-0.9, 0.7]], [[-0.7, 0.6], [-0.5, 0.9], [-0.2, 0.4]]])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("noise", FAMILY)
def test_given_sizes_are_the_family_s_density(noise):
    problem = decay(noise, SIZES)
    data = matched(problem)
    model = likelihood(problem, data)
    loglik, score = jax.jit(lambda t: model.evaluate(t, {}))(jnp.asarray(THETA, float))
    predicted = np.asarray(jax.jit(lambda t: model.predict(t, {}))(jnp.asarray(THETA, float)))
    each = FAMILY[noise](np.where(data.mask, data.value, 1.0), predicted, data.sigma)
    np.testing.assert_allclose(loglik, np.sum(np.where(data.mask, each, 0.0), axis=-1), rtol=1e-9)
    h = 1e-6
    for j, way in enumerate(np.eye(2)):
        ends = [model.evaluate(jnp.asarray(THETA, float) + s * h * way, {})[0] for s in (1, -1)]
        np.testing.assert_allclose(score[..., j], (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("noise", FAMILY)
@pytest.mark.parametrize("known", [(), ("u",)], ids=["none known", "one known"])
def test_any_size_weighs_like_the_size_given(noise, known):
    given = decay(noise, SIZES)
    free = decay(noise, {name: size for name, size in SIZES.items() if name in known})
    truth, model = likelihood(given, matched(given)), likelihood(free, matched(free))
    theta = jnp.asarray(THETA, float)
    log_sigma = jnp.log(jnp.asarray([[1.0 if name in known else size for name, size in SIZES.items()]] * 2))
    expected = truth.evaluate(theta, {})
    found = model.loglik_and_grad(model.evaluate(theta, {}), log_sigma)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)
    np.testing.assert_allclose(model.loglik(model.values(theta, {}), log_sigma), expected[0], rtol=1e-10)
    np.testing.assert_allclose(model.mean(theta, {}, None, log_sigma), truth.mean(theta, {}), rtol=1e-10)


def test_failed_solves_have_no_likelihood():
    problem = decay("student", None)
    model = likelihood(problem, matched(problem))
    loglik, score = model.loglik_and_grad(model.evaluate(THETA.at[0, 1, 0].set(jnp.nan), {}), jnp.zeros((2, 2)))
    assert loglik[0, 1] == -jnp.inf
    assert np.all(score[0, 1] == 0)
    assert np.isfinite(np.delete(np.asarray(loglik).ravel(), 1)).all()


def test_what_is_known_stays():
    problem = decay("normal", {"u": 0.3})
    data = matched(problem)
    scale, said = noise_prior(problem, data)
    assert scale.free == (False, True)
    assert len(said) == 1
    assert said[0].startswith("noise of v: not given, inferred; before data log-normal about")
    stats = ResidualStats(jnp.ones((4, 3, 2)), None)
    drawn = likelihood(problem, data).gibbs_noise(jr.key(0), scale, stats, jnp.zeros((4, 2)))
    assert np.all(drawn[:, 0] == 0)
    assert np.all(drawn[:, 1] != 0)


def test_a_prior_for_the_size():
    problem, known = decay("lognormal", cl.LogNormal(-1.0, 0.5)), decay("normal", 0.1)
    scale, said = noise_prior(problem, matched(problem))
    np.testing.assert_allclose(scale.mean, -1.0)
    np.testing.assert_allclose(scale.variance, 0.25)
    assert said == []
    assert noise_prior(known, matched(known)) == (None, [])


def test_error_bars_are_on_the_scale_of_observations():
    value, sigma = np.array([1.0, 4.0]), np.array([0.5, 0.1])
    np.testing.assert_allclose(NOISES["normal"].interval(value, sigma), [[0.5, 3.9], [1.5, 4.1]])
    np.testing.assert_allclose(
        np.log(NOISES["lognormal"].interval(value, sigma)), np.log(value) + np.stack([-sigma, sigma])
    )


def test_logarithms_need_positive_values():
    problem = decay("lognormal", 0.1)
    data = matched(problem)
    data = dataclasses.replace(data, value=np.where(data.value == data.value[1, 2], -0.5, data.value))
    with pytest.raises(cl.DataError, match=r"log-normal noise needs positive values, but . of system 1 is -0.5"):
        likelihood(problem, data)


@pytest.mark.parametrize("noise", ["poisson", "negative_binomial"])
@pytest.mark.parametrize(
    ("level", "possible"),
    [(1e-3, True), (0.0, True), (-1e-5, True), (-1e-3, False), (-5.0, False), (float("nan"), False)],
)
def test_counts_reject_what_is_negative_but_not_what_rounding_makes_so(noise, level, possible):
    """Of a constant solution and counts up to a hundred, among them none; also where nothing at all is predicted."""
    problem = cl.ODE(
        lambda t, state, p: 0.0 * state.u,
        state="u",
        parameters={"u0": cl.Real(guess=1.0)},
        initial=lambda p: p.u0,
        span=(0.0, 1.0),
        dt=0.1,
        observed="u",
        noise=noise,
        sigma=0.3 if noise == "negative_binomial" else None,
    )
    frame = pd.DataFrame({"system": 0, "time": [0.2, 0.5, 0.8], "u": [0.0, 3.0, 100.0]})
    data = cl.Observations.from_frame(frame).matched(problem.observed, {"time": problem.span}, problem.sigma)
    model, theta = likelihood(problem, data), jnp.full((1, 1, 1), level)
    loglik, gradient = model.evaluate(theta, {})
    assert bool(jnp.isfinite(loglik).all()) == possible
    assert bool(jnp.isfinite(model.values(theta, {})).all()) == possible
    assert np.isfinite(gradient).all()
    if possible:
        assert np.isfinite(jax.grad(lambda t: model.mean(t, {}))(theta)).all()
        predicted = np.asarray(model.predict(theta, {}), float)
        assert (predicted > 0).all()
        assert np.isfinite(model.noise.quantile_residuals(data.value, predicted, data.sigma)).all()
        assert loglik[0, 0] < -100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise": "gauss"}, "noise='gauss' must be one of 'normal', 'lognormal', 'student'"),
        (
            {"noise": Laplace},
            "Laplace'> must be one of .* or a family of your own, like MyNoise.., derived from cl.Noise",
        ),
        ({"sigma": -1.0}, "sigma=-1.0 must be a positive number, a prior"),
        ({"sigma": {"u": float("nan")}}, "sigma=nan must be a positive number"),
    ],
)
def test_messages(options, says):
    with pytest.raises(cl.ProblemError, match=says):
        decay(**options)


def test_a_family_is_derived_from_noise():
    problem = decay(types.SimpleNamespace(name="mine", has_scale=True, log_prob=len, sample=len), 0.1)
    with pytest.raises(cl.ProblemError, match="derive a family of your own from"):
        likelihood(problem, matched(problem))


def test_sigma_may_be_any_mapping():
    """Also where priors are made of it."""
    stated = types.MappingProxyType({"u": cl.LogNormal(-1.0, 0.5), "v": 0.7})
    problem = decay("normal", stated)
    scale, said = noise_prior(problem, matched(problem))
    assert scale.free == (True, False)
    assert float(scale.mean[0]) == -1.0
    assert said == []
