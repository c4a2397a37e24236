"""A law of its own in every chain: sweep, kill and resume, predictions and new systems, against closed forms.

    u' = -c u,  u(0) = a:  c is given and differs from chain to chain, a is inferred under a fixed normal prior

Given c everything is linear and normal in a.
"""

import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.learning import Run, SettingsError, make_settings
from closura.runs import collect, restore, store

pytestmark = pytest.mark.usefixtures("hardly_optimised")

TIMES, SIGMA, MEAN, SD = np.array([0.5, 1.0, 2.0]), 0.2, 2.0, 0.5
SETTINGS = {"chains": 16, "groups": 2, "iterations": 40, "tune": 40, "draws": 400, "thin": 8, "extend": 0}
SETTINGS |= {"chunk": 400, "hierarchy": False, "seed": 3}


def problem(**options):
    law = cl.Known(lambda c, u: c * u, draw=lambda key: 0.3 + 0.6 * jr.uniform(key))
    return cl.ODE(
        lambda t, state, p, f: -f(state.u),
        state="u",
        parameters={"a": cl.Normal(MEAN, SD)},
        initial=lambda p: p.a,
        span=(0.0, 2.0),
        dt=0.05,
        closure=law,
        observed="u",
        sigma=SIGMA,
        **options,
    )


def data(values=((1.6, 1.2, 0.7), (1.1, 0.9, 0.2))):
    rows = [pd.DataFrame({"system": k, "time": TIMES, "u": value}) for k, value in enumerate(values)]
    return cl.read_table(pd.concat(rows))


def conditional(c, value):
    """Mean, variance and log evidence of a given c."""
    design = np.exp(-np.multiply.outer(c, TIMES))
    variance = 1 / (np.sum(design**2, -1) / SIGMA**2 + 1 / SD**2)
    mean = variance * (np.sum(design * value, -1) / SIGMA**2 + MEAN / SD**2)
    cov = SIGMA**2 * np.eye(3) + SD**2 * design[..., :, None] * design[..., None, :]
    away = np.asarray(value) - MEAN * design
    evidence = (
        -0.5 * np.einsum("...i,...ij,...j->...", away, np.linalg.inv(cov), away) - 0.5 * np.linalg.slogdet(cov)[1]
    )
    return mean, variance, evidence


def finish(run):
    while not run.finished:
        run.advance()
    return run


@pytest.fixture(scope="module")
def run():
    return finish(Run(problem(), data(), make_settings(SETTINGS)))


def constants(run):
    return np.asarray(run.kept.law["f"].constants, float)


def test_every_chain_samples_under_its_own_law(run):
    own = constants(run)
    assert own.shape == (16, 400)
    assert np.all(own == own[:, :1]), "a given law stays what it is"
    assert len(np.unique(own)) == 16
    for system, value in enumerate(((1.6, 1.2, 0.7), (1.1, 0.9, 0.2))):
        mean, variance, _ = conditional(own[:, 0], value)
        draws = run.theta()[..., system, 0].astype(float)
        # Some 200 independent draws in each chain: one proposal serves chains of all laws, and one in two or three is accepted.
        z = (draws.mean(axis=1) - mean) / np.sqrt(variance / 200)
        assert np.abs(z).max() < 4
        np.testing.assert_allclose(draws.var(axis=1).mean(), variance.mean(), rtol=0.1)
        assert np.ptp(mean) > 4 * np.sqrt(variance.max() / 200), "the laws make a difference that is seen"


def test_kill_and_resume_keeps_the_laws(run, tmp_path):
    stopped = Run(problem(), data(), make_settings(SETTINGS))
    for _ in range(3):
        stopped.advance()
    store(stopped, tmp_path)
    with np.load(tmp_path / "checkpoint.npz") as stored:
        assert "state.chains.law.f.constants" in stored.files
    again = Run(problem(), data(), make_settings(SETTINGS))
    restore(again, tmp_path)
    np.testing.assert_allclose(finish(again).theta(), run.theta(), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def result(run):
    return collect(run)


def test_predictions_go_with_the_law_of_their_draw(run, result):
    found = result.predict(times=[1.0]).set_index("system")
    own, a = constants(run), run.theta()[..., 0].astype(float)
    expected = a * np.exp(-own)[..., None]
    for system, name in enumerate(found.index):
        row, draws = found.loc[name], expected[..., system]
        assert row["mean"] == pytest.approx(draws.mean(), abs=0.03)
        assert row["sd"] == pytest.approx(draws.std(), rel=0.15)
    # One law for all would give another spread.
    single = a[..., 0] * np.exp(-own.mean())
    assert abs(single.std() / expected[..., 0].std() - 1) > 0.05 or abs(single.mean() - expected[..., 0].mean()) > 0.02


def test_the_law_that_is_shown_is_the_mean_over_draws(run, result):
    assert result.closure(2.0) == pytest.approx(2.0 * constants(run).mean(), rel=1e-4)
    assert result.closures["f"].draws(1.0).shape == (16 * 400,)


def test_a_new_system_averages_over_the_laws(run, result):
    value = (2.0, 1.0, 0.3)
    table = pd.DataFrame({"system": "new", "time": TIMES, "u": value})
    found = result.newcomer(table).parameters.iloc[0]
    mean, variance, evidence = conditional(constants(run)[:, 0], value)
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    expected = np.sum(weight * mean)
    spread = np.sqrt(np.sum(weight * (variance + mean**2)) - expected**2)
    assert found["mean"] == pytest.approx(expected, abs=0.1 * spread)
    assert found["sd"] == pytest.approx(spread, rel=0.1)


@pytest.mark.nightly
def test_membership_goes_with_the_law_of_each_draw(run, result):
    """Members under any of the laws belong; what decays faster than under all of them does not."""
    rng, times, own = np.random.default_rng(0), np.linspace(0.1, 2.0, 20), constants(run)[:, 0]
    rows = []
    for k, c in enumerate([*own, 3.0]):
        value = rng.normal(MEAN, SD) * np.exp(-c * times) + SIGMA * rng.normal(size=20)
        rows.append(pd.DataFrame({"system": f"{k:02d}", "time": times, "u": value}))
    found = result.newcomer(pd.concat(rows))
    assert found.belongs == {f"{k:02d}": k < 16 for k in range(17)}
    # With the law that each goes with, what remains of the residuals is noise.
    np.testing.assert_allclose(found.found.chi_square[:16].mean(), 1.0, atol=0.25)


def test_one_network_cannot_stand_for_many_laws():
    with pytest.raises(SettingsError, match="every chain has its own law f, and one network cannot stand for all"):
        Run(problem(), data(), make_settings(SETTINGS | {"forward": "basis"}))
