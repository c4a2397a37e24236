"""Whole fits of populations: covariates that shift the mean, parameters that vary together, noise nobody knows."""

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.learning import SettingsError

pytestmark = pytest.mark.usefixtures("hardly_optimised")

SYSTEMS, SHIFT, SIGMA = 40, 0.3, 0.05
SIZES = {"chains": 32, "iterations": 500, "tune": 100, "draws": 200, "progress": False}


def cooling(**changes):
    options = {
        "state": "u",
        "parameters": {"k": cl.Positive(guess=0.5), "u0": cl.Positive(guess=1.0)},
        "initial": lambda p: p.u0,
        "span": (0.0, 4.0),
        "dt": 0.1,
        "observed": "u",
    }
    return cl.ODE(lambda t, state, p: -p.k * state.u, **options | changes)


def fleet(systems=SYSTEMS):
    """log k rises by 0.3 a degree and falls with log u0."""
    random = np.random.default_rng(3)
    degrees = random.uniform(10, 14, systems)
    u0 = np.exp(0.3 + 0.3 * random.normal(size=systems))
    k = np.exp(-0.7 + SHIFT * (degrees - 12) - 0.8 * (np.log(u0) - 0.3) + 0.15 * random.normal(size=systems))
    time = np.arange(1, 9) / 2
    clean = u0[:, None] * np.exp(-k[:, None] * time)
    noisy = clean + SIGMA * random.normal(size=clean.shape)
    rows = {"system": np.repeat(np.arange(systems), 8), "time": np.tile(time, systems), "u": noisy.ravel()}
    return pd.DataFrame({**rows, "degrees": np.repeat(degrees, 8)})


@pytest.fixture(scope="module")
def result():
    return cl.fit(cooling(covariates={"k": "degrees"}), fleet(), population="full", **SIZES)


@pytest.mark.nightly
def test_what_was_put_in_comes_out(result):
    """Within four posterior standard deviations, and those are small."""
    posterior = result.posterior
    for draws, truth, sd in (
        (posterior["shift"].sel(effect="k by degrees"), SHIFT, 0.1),
        (posterior["sigma"].sel(quantity="u"), SIGMA, 0.01),
        (posterior["correlation"].sel(parameter="k", other="u0"), -0.85, 0.2),
        (posterior["mu"].sel(parameter="k"), -0.7, 0.2),
    ):
        assert float(draws.std()) < sd
        assert abs(float(draws.mean()) - truth) < 4 * float(draws.std())
    assert result.metrics["rhat_max"] < 1.05
    assert "k by degrees" in str(result)
    assert "sigma of u " in str(result)


@pytest.mark.nightly
def test_covariates_are_kept_with_the_data(result):
    again = cl.Observations.from_frame(result.data.to_frame())
    constants = again.matched(("u",), {"time": (0.0, 4.0)}, None, ["degrees"]).constants
    np.testing.assert_allclose(constants["degrees"], fleet().groupby("system")["degrees"].first())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda t: t.drop(columns="degrees"),
            "the problem knows 'degrees' of every system, but the table has no such column",
        ),
        (lambda t: t.assign(degrees=t["degrees"].where(t["system"] != 1)), "'degrees' is missing for system 1"),
        (lambda t: t.assign(degrees=t["time"]), "'degrees' must be one number a system, but system 0 has 0.5 and 4"),
        (lambda t: t.assign(degrees=12.0), "covariate 'degrees' of k is the same for all systems"),
    ],
)
def test_tables_without_the_covariate(change, says):
    with pytest.raises(cl.DataError, match=says):
        cl.fit(cooling(covariates={"k": ["degrees"]}), change(fleet(3)), **SIZES)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hierarchy": False}, "covariates shift the mean of a population"),
        ({"blocks": "joint", "groups": 1}, "blocks='joint' is the published sampler, which knows no covariates"),
    ],
)
def test_covariates_need_a_population(settings, says):
    with pytest.raises(SettingsError, match=says):
        cl.fit(cooling(covariates={"k": "degrees"}, sigma=0.1), fleet(3), **SIZES | settings)


def test_covariates_of_nothing():
    with pytest.raises(
        cl.ProblemError, match="covariates are of parameters that are inferred, and 'm' is none; those are k, u0"
    ):
        cooling(covariates={"m": "degrees"})


def test_the_published_sampler_knows_its_noise():
    with pytest.raises(
        SettingsError, match="blocks='joint' is the published sampler, which knows no noise of unknown size"
    ):
        cl.fit(cooling(), fleet(3), **SIZES | {"blocks": "joint", "groups": 1})


def test_correlations_need_a_population():
    for settings in ({"hierarchy": False}, {"blocks": "joint"}):
        with pytest.raises(SettingsError, match=r"population='full'|blocks='joint'"):
            cl.fit(cooling(sigma=0.1), fleet(3), population="full", **SIZES | settings)
