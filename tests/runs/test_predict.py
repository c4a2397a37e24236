"""Predictions and newcomers: closed forms where there are any, calibration, and what is said."""

import copy
import dataclasses
import types

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from lines import TIMES, fleet, line, newcomer
from scipy import stats

import closura as cl
from closura.diagnose import membership
from closura.forward import likelihood
from closura.population import Empirical, PopulationDraws, population
from closura.predict import notes_of
from closura.predict._forecast import noise_sizes
from closura.predict._infer import infer
from closura.predict._new_systems import matched
from closura.runs import save
from closura.sampling import Chains, MultiTry, Posterior

pytestmark = [pytest.mark.xdist_group("predict"), pytest.mark.usefixtures("hardly_optimised")]

DESIGN = np.stack([np.ones(3), TIMES], axis=1)
MEANS, VARIANCES, SIGMAS = np.array([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0]]), np.array([1.0, 0.2, 0.6]), [0.2, 0.5, 0.9]


# The posterior of a newcomer


def test_posterior_is_the_mixture_over_stored_draws():
    """Draws of unlike populations and sizes of noise: the posterior is a mixture, weighed by how each expects the data."""
    value, problem = np.array([1.2, 0.9, 1.6]), line()
    weights, means, squares = [], [], []
    for mu, variance, sigma in zip(MEANS, VARIANCES, SIGMAS):
        expected = stats.multivariate_normal(DESIGN @ mu, variance * DESIGN @ DESIGN.T + sigma**2 * np.eye(3))
        mean, cov = conditional(value, mu, variance, sigma)
        weights.append(expected.pdf(value))
        means.append(mean)
        squares.append(cov + np.outer(mean, mean))
    weights = np.array(weights) / np.sum(weights)
    whites = np.eye(2) / np.sqrt(VARIANCES)[:, None, None]
    parts = MEANS[:, None], whites, np.log(SIGMAS)[:, None]
    stored = PopulationDraws(*(jnp.asarray(part, float) for part in parts))
    target = likelihood(problem, matched(problem, newcomer(value)))
    draws = infer(target, {}, stored, population(problem.parameters, False))
    theta = draws.theta[:, 0].astype(float)
    mean, square = np.einsum("s,sp->p", weights, means), np.einsum("s,spq->pq", weights, squares)
    sd = np.sqrt(np.diag(square) - mean**2)
    # Some two thousand independent draws.
    np.testing.assert_allclose(theta.mean(axis=0), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(theta.std(axis=0), sd, rtol=0.1)
    np.testing.assert_allclose(np.bincount(draws.which[:, 0], minlength=3) / len(theta), weights, atol=0.05)
    assert draws.rhat.max() < 1.02


def test_fresh_members_keep_the_posterior():
    """One choice among fresh members, from draws of the posterior: many move, and they are draws of it still."""
    value, problem = np.array([0.8, 0.9, 1.6]), line(0.5)
    mean, cov = conditional(value, np.zeros(2), 1.0, 0.5)
    theta = np.random.default_rng(0).multivariate_normal(mean, cov, 4000)
    target, stored = (
        likelihood(problem, matched(problem, newcomer(value))),
        PopulationDraws(jnp.zeros((1, 1, 2)), jnp.eye(2)[None], None),
    )
    prior = Empirical(stored, population(problem.parameters, False))
    posterior = Posterior(target, target, prior, None, {}, {}, {})
    which = jnp.zeros((1, 4000, 1), int)
    before = posterior.refresh(Chains(jnp.asarray(theta[None, :, None], float), which))
    moved, _ = MultiTry(tries=15).step(jr.split(jr.key(0), 1), before, (), posterior)
    after = moved.theta[0, :, 0]
    assert np.mean(np.asarray(after) != np.asarray(before.theta[0, :, 0])) > 0.4
    np.testing.assert_allclose(np.mean(after, axis=0), mean, atol=0.04)
    np.testing.assert_allclose(np.cov(np.asarray(after, float).T), cov, atol=0.1 * cov.max())


def conditional(value, mu, variance, sigma):
    """Mean and covariance of (a, b) given three observations."""
    cov = np.linalg.inv(DESIGN.T @ DESIGN / sigma**2 + np.eye(2) / variance)
    return cov @ (DESIGN.T @ value / sigma**2 + mu / variance), cov


@pytest.fixture(scope="module")
def five():
    """Newcomers to a fleet whose population is known: a = 1.0 ± 0.2 and b = 0.5 ± 0.2, noise 0.1."""
    values = {"fine": [1.0, 1.2, 1.7], "steep": [1.0, 2.6, 4.1], "bent": [1.0, 2.2, 1.4], "high": [9.0], "one": [1.1]}
    table = pd.concat([newcomer(value, name) for name, value in values.items()])
    return fleet(line(0.1), np.tile([1.0, 0.5], (100, 1)), np.full((100, 2), 0.04)).newcomer(table)


@pytest.mark.nightly
def test_each_newcomer_is_on_its_own(five):
    """One beside others, some of which are nothing like it, has the posterior it would have alone."""
    mean, cov = conditional(np.array([1.0, 1.2, 1.7]), np.array([1.0, 0.5]), 0.04, 0.1)
    mine = five.parameters.query("system == 'fine'")
    np.testing.assert_allclose(mine["mean"], mean, atol=0.1 * np.sqrt(np.diag(cov)).max())
    np.testing.assert_allclose(mine["sd"], np.sqrt(np.diag(cov)), rtol=0.1)
    np.testing.assert_allclose(mine["population sd"], 0.2, rtol=0.3)


def test_covariates_of_a_newcomer_come_from_its_table():
    """A population mean that is shifted by a column: of the newcomer's own value, about the mean of the fleet's."""
    problem = line(0.3, covariates={"a": "size"})
    fitted = fleet(problem, [[1.0, 0.0]], [[0.01, 0.01]], shift=[2.0], size=[1.0, 3.0])
    stored = fitted.stored(matched(problem, newcomer([5.0], size=4.0)))
    np.testing.assert_allclose(stored.center[0, 0], [1.0 + 2.0 * (4.0 - 2.0), 0.0], atol=1e-6)


def test_correlations_of_the_population_are_kept():
    both = np.array([[1.0, 0.8], [0.8, 1.0]])
    fitted = fleet(line(0.3), [[1.0, 0.5]], [[0.25, 1.0]], correlation=both)
    stored = fitted.stored(fitted.data)
    lower = np.linalg.inv(np.asarray(stored.white[0], float))
    np.testing.assert_allclose(lower @ lower.T, both * [[0.25, 0.5], [0.5, 1.0]], rtol=1e-4)
    prior = Empirical(stored, population(fitted.problem.parameters, False))
    assert float(prior.log_prior(jnp.zeros((2, 2)), jnp.zeros(2, int))[0][0]) == pytest.approx(
        stats.multivariate_normal([1.0, 0.5], lower @ lower.T).logpdf([0.0, 0.0]) + np.log(2 * np.pi), rel=1e-4
    )


# Does it belong?


def test_conflict_is_the_chi_square_of_node_splitting():
    """With one population and normal noise everything has a closed form."""
    problem, sigma, tau = line(0.4), 0.4, np.array([0.5, 0.3])
    value = np.array([1.5, 2.0, 2.4])
    target = likelihood(problem, matched(problem, newcomer(value)))
    stored = PopulationDraws(jnp.zeros((1, 1, 2)), jnp.diag(jnp.asarray(1 / np.sqrt(tau), float))[None], None)
    found = membership(target, target.model({}), stored, jnp.zeros((1, 2)))
    own = np.linalg.inv(DESIGN.T @ DESIGN / sigma**2)
    estimate = own @ DESIGN.T @ value / sigma**2
    apart = estimate @ np.linalg.inv(own + np.diag(tau)) @ estimate
    rest = np.sum((value - DESIGN @ estimate) ** 2) / sigma**2
    assert found.conflict[0] == pytest.approx(apart, rel=0.01)
    assert found.chi_square[0] == pytest.approx(rest, abs=0.01)
    assert found.conflict_p[0] == pytest.approx(stats.chi2.sf(apart, 2), abs=0.06)
    assert found.misfit_p[0] == pytest.approx(stats.chi2.sf(rest, 1), abs=0.06)


@pytest.mark.parametrize("count", [1, 3])
def test_members_are_rarely_turned_away(count):
    """Two hundred members of populations that are not well known: as many alarms as promised, and no more."""
    random, problem = np.random.default_rng(count), line(0.3)
    mu, tau = random.normal([1.0, 0.0], 0.3, (50, 2)), np.exp(random.normal(-1.0, 0.5, (50, 2)))
    fitted = fleet(problem, mu, tau)
    which = random.integers(0, 50, 200)
    theta = mu[which] + np.sqrt(tau[which]) * random.normal(size=(200, 2))
    value = theta @ DESIGN[:count].T + 0.3 * random.normal(size=(200, count))
    data = matched(problem, pd.concat([newcomer(v, f"m{k}") for k, v in enumerate(value)]))
    target = likelihood(problem, data)
    found = membership(target, target.model({}), fitted.stored(data), jnp.asarray(theta, float))
    assert np.count_nonzero(found.conflict_p < 0.01) <= 8  # two expected: more is one chance in four thousand
    assert 0.03 < np.mean(found.conflict_p < 0.1) < 0.18
    assert 0.35 < np.mean(found.conflict_p < 0.5) < 0.65
    assert np.count_nonzero(~found.belongs) <= 8
    assert np.isnan(found.misfit_p).all() == (count == 1)


def test_odd_ones_are_found_and_named(five):
    assert five.belongs == {"fine": True, "steep": False, "bent": False, "high": False, "one": True}
    said = dict(line.split(":", 1) for line in five.verdicts)
    assert "b = 2." in said["steep"]
    assert "where members have 0.1" in said["steep"]
    assert "+9.0 population sds (p < 0.00" in said["steep"]
    assert "a = " not in said["steep"]
    assert "no parameters fit its data (residual chi-square 6" in said["bent"]
    assert "the law may not hold for it" in said["bent"]
    assert said["one"] == " belongs to the fleet (p = " + said["one"].split("= ")[1]
    assert str(five).startswith("2 of 5 newcomers belong to the fleet.\nsteep: DOES NOT BELONG")


def test_without_a_population_the_prior_is_used():
    problem = line(0.1)
    fitted = fleet(problem, [[1.0, 0.5]], [[0.04, 0.04]])
    alone = fitted.tree["posterior"].to_dataset().drop_vars(["mu", "tau"])
    tree = xr.DataTree.from_dict(
        {"/posterior": alone, "/unconstrained_posterior": fitted.tree["unconstrained_posterior"].to_dataset()}
    )
    found = dataclasses.replace(fitted, tree=tree).newcomer(newcomer([1.0, 2.6, 4.1]))
    assert found.belongs == {"new": True}
    assert found.verdicts[0].startswith("new: can be fitted")
    assert "the fit inferred no population (hierarchy=False): newcomers are judged by the prior alone" in found.notes
    assert found.parameters.set_index("parameter").loc["b", "population sd"] == pytest.approx(
        np.sqrt(9.0 + 1.0), rel=0.3
    )


# Predictions


def test_prediction_of_a_line():
    """Mean, sd and intervals of the quantity and of a measurement, past the span too."""
    mu = np.random.default_rng(1).normal([1.0, 2.0], 0.2, (4000, 2))
    fitted = fleet(line(0.5), mu, np.ones((4000, 2)))
    table = fitted.predict([0.1, 3.0])
    assert list(table.columns[:3]) == ["system", "time", "quantity"]
    last = table[table["time"] == 3.0].iloc[0]
    theta = fitted.theta[:, 0]
    path = theta[:, 0] + 3.0 * theta[:, 1]
    sd = path.std()
    assert last["mean"] == pytest.approx(path.mean(), abs=0.2 * sd)
    assert last["sd"] == pytest.approx(sd, rel=0.15)
    assert last["97.5%"] - last["2.5%"] == pytest.approx(2 * 1.96 * sd, rel=0.15)
    wide = 2 * 1.96 * np.hypot(sd, 0.5)
    assert last["measured 97.5%"] - last["measured 2.5%"] == pytest.approx(wide, rel=0.15)
    longer = fitted.predict(until=1.6)
    assert longer["time"].max() == pytest.approx(1.75)  # a whole number of steps
    assert len(longer) == 2 * 8


def test_the_start_is_a_time_to_predict_at():
    fitted = fleet(line(0.5), np.random.default_rng(1).normal([1.0, 2.0], 0.2, (400, 2)), np.ones((400, 2)))
    begin = fitted.predict([0.0])
    assert begin["time"].tolist() == [0.0] * len(begin)
    assert begin.loc[0, "mean"] == pytest.approx(fitted.theta[:, 0, 0].mean(), abs=0.2)
    with pytest.raises(cl.ProblemError, match="until=0 is not after the problem's start"):
        fitted.predict(until=0.0)


@pytest.mark.parametrize(("noise", "low", "high"), [("student", -2.78, 2.78), ("lognormal", -1.96, 1.96)])
def test_measurements_have_the_noise_of_their_family(noise, low, high):
    fitted = fleet(line(0.1, noise=noise), np.tile([2.0, 0.0], (400, 1)), np.ones((400, 2)))
    theta = fitted.tree["unconstrained_posterior"]["theta"]
    theta[:] = np.array([2.0, 0.0])
    row = fitted.predict([0.5]).iloc[0]
    expected = 2.0 * np.exp(0.1 * np.array([low, high])) if noise == "lognormal" else 2.0 + 0.1 * np.array([low, high])
    np.testing.assert_allclose(row[["measured 2.5%", "measured 97.5%"]].to_numpy(float), expected, atol=0.02)


def test_noise_of_a_measurement_is_what_is_known_best():
    """Inferred, of the system's own table, or of the fleet's."""
    fitted = fleet(line(), np.tile([2.0, 0.0], (9, 1)), np.full((9, 2), 1e-4), sigma=np.full(9, 0.7))
    own, none = (matched(line(), newcomer([2.0], **more)) for more in ({"sigma": 0.1}, {}))
    np.testing.assert_allclose(noise_sizes(fitted, none, fitted.log_sigma[:, None]), 0.7)
    np.testing.assert_allclose(noise_sizes(fitted, none, None), 0.7)
    np.testing.assert_allclose(noise_sizes(fitted, own, None), 0.1)
    for known in (0.3, types.MappingProxyType({"u": 0.3})):  # any mapping
        stated = fleet(line(known), [[2.0, 0.0]], [[1.0, 1.0]])
        none = dataclasses.replace(stated.data, sigma=np.full_like(stated.data.sigma, np.nan))
        silent = dataclasses.replace(stated, data=none)
        np.testing.assert_allclose(noise_sizes(silent, none, None), 0.3)


def test_evolution_goes_on_in_the_same_steps():
    rods = cl.Evolution(
        lambda u, ux, uxx, x, t, p: p.d * uxx,
        initial=lambda x, p: jnp.sin(2 * jnp.pi * x),
        span=(0.0, 0.2),
        domain=(0.0, 1.0),
        cells=16,
        snapshots=4,
        parameters={"d": cl.Positive(guess=0.1)},
        sigma=0.02,
    )
    longer = rods.extended(0.31)
    assert longer.span == (0.0, pytest.approx(0.35))
    assert longer.snapshots == 7
    assert longer.dt == pytest.approx(rods.dt)
    assert longer.with_closure({}).span == longer.span
    assert rods.extended(0.2) is rods


def test_laws_are_not_trusted_beyond_their_support(result, monkeypatch):
    law = result.closures["f"]
    narrow = dataclasses.replace(law.support, low=np.array([-0.1]), high=np.array([0.1]))
    monkeypatch.setitem(result.closures, "f", dataclasses.replace(law, support=narrow))
    with pytest.warns(
        UserWarning, match="the law f is asked for more than data supported .v -0.1 to 0.1. by .* first at"
    ):
        table = result.predict(until=9.0)
    assert table["time"].max() == pytest.approx(9.04)
    assert set(table["system"]) == {"1", "2", "3"}


def test_a_folder_predicts_what_its_result_did(tmp_path, result, fleet):
    save(result, tmp_path / "run")
    loaded = cl.load(tmp_path / "run", fleet[0])
    pd.testing.assert_frame_equal(loaded.predict([1.0]), result.predict([1.0]), rtol=1e-4)
    assert loaded.notes[0].startswith("this run was stopped before its end")
    with pytest.raises(cl.ProblemError, match=r"was fitted with the parameters k, u0, v0, the problem has a, b"):
        cl.load(tmp_path / "run", line())
    stronger = copy.copy(fleet[0])
    stronger.physics = lambda *given: tuple(2 * rate for rate in fleet[0].physics(*given))
    with pytest.raises(cl.ProblemError, match=r"the equation .* is not the one .* was fitted with"):
        cl.load(tmp_path / "run", stronger)


# What is said


def test_named_like_a_fitted_system(five):
    assert "called like a system of the fit: one; taken for another one, whose data are these alone" in five.notes


def test_picture_shows_who_does_not_belong_first(five):
    titles = [axes.get_title(loc="left") for axes in five.plot().axes]
    assert titles[0] == "steep: DOES NOT BELONG"
    assert titles[-1] == "one: belongs"


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"converged": True, "verdict": "undecided", "law_learned": False}, None),
        ({"finished": True, "verdict": "untrusted", "warnings": ["why"]}, "this run cannot be trusted: predictions"),
        ({"finished": True, "verdict": "not_converged"}, "this run had not converged: predictions"),
        ({"finished": False, "verdict": "not_converged"}, "this run was stopped before its end: predictions"),
    ],
)
def test_predictions_say_what_the_verdict_did(metrics, says):
    notes = notes_of(metrics)
    assert notes[0].startswith(says) if says else notes == ()
    assert notes[1:] == tuple(metrics.get("warnings", ()))
