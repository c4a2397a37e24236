"""From tables to report under noise that is not normal, also of a family that is brought along."""

import numpy as np
import pandas as pd
import pytest
from noises import Laplace
from scipy import stats

import closura as cl
from closura.diagnose import check_table, remarks
from closura.equations import NOISES
from closura.learning import Run, Settings
from closura.runs import collect

pytestmark = pytest.mark.usefixtures("hardly_optimised")
SMALL = Settings(chains=16, groups=2, iterations=150, settle=100, draws=60, thin=2, extend=0, chunk=50, devices=1)
TIMES, SYSTEMS = np.linspace(0.0, 4.0, 17), 4
RATES, STARTS = np.array([0.4, 0.5, 0.6, 0.45]), np.array([30.0, 40.0, 35.0, 50.0])


def decay(noise, **options):
    """u = u0 exp(-k t)."""
    return cl.ODE(
        lambda t, state, p: -p.k * state.u,
        state="u",
        parameters={"k": cl.Positive(guess=0.5, width=0.5), "u0": cl.Positive(guess=40.0, width=0.5)},
        initial=lambda p: p.u0,
        span=(0.0, 4.0),
        dt=0.25,
        observed="u",
        noise=noise,
        **options,
    )


MEANS = STARTS[:, None] * np.exp(-RATES[:, None] * TIMES)


def table(value):
    names = [f"m{k}" for k in range(SYSTEMS)]
    return pd.DataFrame({"system": np.repeat(names, len(TIMES)), "time": np.tile(TIMES, SYSTEMS), "u": value.ravel()})


def fitted(problem, value):
    run = Run(problem, cl.Observations.from_frame(table(value)), SMALL)
    while not run.finished:
        run.advance()
    return collect(run)


def near_the_truth(result, sigma=None):
    """Every parameter within four posterior standard deviations, and most within two."""
    for name, truth in (("k", RATES), ("u0", STARTS)):
        draws = np.log(result.posterior[name].values.reshape(-1, SYSTEMS))
        away = np.abs(draws.mean(axis=0) - np.log(truth)) / draws.std(axis=0)
        assert away.max() < 4
        assert np.median(away) < 2
        assert draws.std(axis=0).max() < 0.4
    if sigma is not None:
        log = np.log(result.posterior["sigma"].values)
        assert abs(log.mean() - np.log(sigma)) < 4 * log.std()
        assert log.std() < 0.6


@pytest.mark.nightly
def test_counts(tmp_path):
    value = np.random.default_rng(1).poisson(MEANS)
    result = fitted(decay("poisson"), value.astype(float))
    near_the_truth(result)
    assert "sigma" not in result.posterior
    assert result.metrics["noise_sd"] is None
    assert result.metrics["residual_chi_square"] == pytest.approx(1, abs=0.5)
    assert not result.checks()["off"].any()
    replicated = result.tree["posterior_predictive"]["value"].values
    assert np.array_equal(replicated, np.round(replicated))
    row = result.predict([4.0]).iloc[0]
    low, high = stats.poisson(MEANS[0, -1]).ppf([0.025, 0.975])
    assert row["measured 2.5%"] == pytest.approx(low, abs=1.5)
    assert row["measured 97.5%"] == pytest.approx(high, abs=2.5)
    found = result.newcomer(pd.DataFrame({"system": ["new", "far"], "time": 1.0, "u": [25.0, 250.0]}))
    assert found.belongs == {"new": True, "far": False}
    page = (result.save(tmp_path / "run") / "report.html").read_text("utf-8")
    assert "√data" in page or "\\u221adata" in page
    assert len(cl.load(tmp_path / "run", decay("poisson")).predict([1.0])) == SYSTEMS


@pytest.mark.nightly
def test_counts_that_scatter_more():
    """Variance mean + scale^2 mean^2; the scale is inferred, and checks tell it from Poisson's."""
    random, scale = np.random.default_rng(2), 0.3
    value = random.poisson(MEANS * random.gamma(scale**-2, scale**2, MEANS.shape)).astype(float)
    result = fitted(decay("negative_binomial"), value)
    near_the_truth(result, scale)
    assert not result.checks()["off"].any()
    row = result.predict([0.25]).iloc[0]
    low, high = stats.nbinom(scale**-2, 1 / (1 + MEANS[0, 1] * scale**2)).ppf([0.025, 0.975])
    assert row["measured 97.5%"] - row["measured 2.5%"] == pytest.approx(high - low, rel=0.35)
    found = result.newcomer(pd.DataFrame({"system": ["new", "far"], "time": 1.0, "u": [25.0, 800.0]}))
    assert found.belongs == {"new": True, "far": False}
    said = remarks(*poisson_checks(result), NOISES["poisson"])
    assert "noise='negative_binomial'" in said[0].text


def poisson_checks(result):
    """The same predictions, judged as if counts were Poisson's."""
    theta = result.posterior.mean(("chain", "draw"))
    predicted = theta["u0"].values[:, None] * np.exp(-theta["k"].values[:, None] * TIMES)
    residual = NOISES["poisson"].quantile_residuals(result.data.value, predicted[None], result.data.sigma)
    return check_table(residual, np.abs(residual[0]) < 1.96, result.data), residual, result.data


@pytest.mark.parametrize("noise", [name for name, family in NOISES.items() if family.discrete])
@pytest.mark.parametrize(("wrong", "called"), [(-1.0, "-1"), (2.5, "2.5"), (np.inf, "")])
def test_what_is_no_count(noise, wrong, called):
    value = np.round(MEANS)
    value[1, 2] = wrong
    says = rf"{NOISES[noise].title} noise needs whole numbers from zero on, but u of system m1 is {called}"
    with pytest.raises(cl.DataError, match=says if called else "finite|inf"):
        Run(decay(noise), cl.Observations.from_frame(table(value)), SMALL)


def test_counts_have_no_scale_of_their_own():
    for stated in (0.3, {"u": 0.3}, cl.LogNormal(0.0, 1.0)):
        with pytest.raises(cl.ProblemError, match="poisson noise has no scale, its size follows from the prediction"):
            decay("poisson", sigma=stated)
    with pytest.raises(cl.DataError, match="the table has a column 'sigma', but poisson noise has no scale"):
        Run(decay("poisson"), cl.Observations.from_frame(table(np.round(MEANS)).assign(sigma=1.0)), SMALL)


@pytest.mark.nightly
def test_a_family_of_one_s_own(tmp_path):
    value = MEANS + np.random.default_rng(0).laplace(0.0, 1.5, MEANS.shape)
    result = fitted(decay(Laplace()), value)
    near_the_truth(result, 1.5)
    assert result.metrics["residual_chi_square"] == pytest.approx(1, abs=0.5)
    assert not result.checks()["off"].any()
    row = result.predict([4.0]).iloc[0]
    wide = 2 * 1.5 * np.log(20)  # of Laplace's, 95 %
    assert row["measured 97.5%"] - row["measured 2.5%"] == pytest.approx(wide, rel=0.4)
    found = result.newcomer(pd.DataFrame({"system": ["new", "far"], "time": 1.0, "u": [25.0, 250.0]}))
    assert found.belongs == {"new": True, "far": False}
    page = (result.save(tmp_path / "run") / "report.html").read_text("utf-8")
    assert "quantile residual" in page or "data ± σ" in page
    assert len(cl.load(tmp_path / "run", decay(Laplace())).predict([1.0])) == SYSTEMS
