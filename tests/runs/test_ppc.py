"""Data replicated at posterior draws, and what is made of them."""

from copy import copy
from dataclasses import replace

import arviz_base
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm, t

import closura as cl
from closura.equations import NOISES
from closura.posterior._predictive import Replicas, replicate, residual_views, spread_over

NOTHING_OFF = pd.DataFrame({"level": ["system"], "system": ["A"], "off": [False]})
pytestmark = pytest.mark.xdist_group("folder")


@pytest.fixture(scope="module")
def replicas(fresh):
    return replicate(fresh)


def test_replicated_data_scatter_about_predictions_by_the_noise(replicas, fresh):
    noise = (replicas.value - replicas.predicted) / fresh.data.sigma
    assert noise.shape == (32, 3, 13)
    assert noise.mean() == pytest.approx(0, abs=4 / np.sqrt(noise.size))
    assert noise.std() == pytest.approx(1, abs=4 / np.sqrt(2 * noise.size))
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.12  # every draw has noise of its own


def test_the_seed_of_the_run_decides(replicas, fresh):
    np.testing.assert_array_equal(replicate(fresh).value, replicas.value)
    other = copy(fresh)
    other.settings = fresh.settings.model_copy(update={"seed": 1})
    assert np.abs(replicate(other).value - replicas.value).max() > 0.1


def test_they_stand_beside_the_posterior(result, replicas, tmp_path):
    group = result.tree["posterior_predictive"].to_dataset()
    assert group["value"].dims == ("chain", "draw", "system", "observation")
    assert group["system"].values.tolist() == result.tree["observed_data"]["system"].values.tolist()
    np.testing.assert_allclose(group["value"].values[5, 0], replicas.value[5], rtol=1e-6)
    with xr.open_datatree(result.save(tmp_path / "run") / "posterior.nc") as kept:
        assert kept["posterior_predictive/value"].dtype == np.float32
        assert arviz_base.extract(kept, group="posterior_predictive", combined=False).sizes["chain"] == 32
        at = result.posterior.sel(chain=group["chain"], draw=group["draw"])
        assert at.sizes["chain"] == group.sizes["chain"]


@pytest.mark.parametrize(
    ("chains", "draws", "most", "expected"),
    [
        (64, 300, 200, (64, 3)),
        (64, 300, 100, (64, 2)),
        (1, 300, 200, (1, 200)),
        (500, 10, 200, (200, 1)),
        (4, 7, 200, (4, 7)),
    ],
)
def test_draws_are_spread_over_chains(chains, draws, most, expected):
    chain, draw = spread_over(chains, draws, most)
    assert (len(chain), len(draw)) == expected
    assert chain.max() < chains
    assert draw.max() < draws
    assert len(set(chain.tolist())) == len(chain)
    assert len(set(draw.tolist())) == len(draw)


def made(kind, sigma, size=40_000):
    """One system without anything to infer: every prediction is 2, and data are as they are predicted."""
    noise, shape = NOISES[kind], (1, size)
    predicted, scale = np.full((3, *shape), 2.0), jnp.full(shape, sigma)
    observed = np.asarray(noise.sample(jr.key(0), jnp.asarray(predicted[0]), scale), float)
    value = np.asarray(noise.sample(jr.key(1), jnp.asarray(predicted), scale), float)
    data = cl.Observations(
        ("A",),
        ("u",),
        np.linspace(0, 1, size)[None, :, None],
        np.zeros(shape, np.int32),
        observed,
        np.full(shape, sigma),
        np.ones(shape, bool),
    )
    return Replicas(data, noise, np.arange(3), np.arange(1), predicted, np.full(shape, sigma), value)


@pytest.mark.parametrize("kind", NOISES)
def test_residuals_of_every_noise_are_standard_normal(kind):
    replicas = made(kind, 0.2)
    residual = replicas.residual[0, 0]
    ranks = [0.001, 0.05, 0.5, 0.95, 0.999]
    np.testing.assert_allclose(np.quantile(residual, ranks), norm.ppf(ranks), atol=0.15)
    assert residual.std() == pytest.approx(1, abs=0.02)
    assert replicas.inside.mean() == pytest.approx(0.95, abs=0.005)
    assert replicas.chi_square(replicas.sigma) == pytest.approx(1, abs=0.04)
    assert np.median(replicas.value) == pytest.approx(2, abs=0.01)
    if kind == "lognormal":
        assert np.log(replicas.value).std() == pytest.approx(0.2, abs=0.003)


def test_students_scores_are_as_unlikely_on_both_sides():
    scores = NOISES["student"].quantile_residuals(np.array([-8.0, -1.0, 0.0, 1.0, 8.0]), np.zeros(5), np.ones(5))
    np.testing.assert_allclose(scores, norm.ppf(t.cdf([-8.0, -1.0, 0.0, 1.0, 8.0], 4)), atol=1e-9)


def test_inferred_noise_has_its_own_size_at_every_draw(fresh, monkeypatch):
    sizes = np.log(np.linspace(0.1, 3.2, 32))[:, None, None]
    unknown = copy(fresh)
    unknown.data = replace(fresh.data, sigma=np.full(fresh.data.mask.shape, np.nan))
    monkeypatch.setattr(unknown, "log_sigma", lambda: sizes)
    made = replicate(unknown)
    np.testing.assert_allclose(made.sigma[:, 0, 0], np.exp(sizes[:, 0, 0]))
    scatter = (made.value - made.predicted).std(axis=(1, 2))
    np.testing.assert_allclose(scatter / made.sigma[:, 0, 0], 1.0, atol=0.5)


def test_checks_of_a_result(result):
    table = result.checks()
    levels = table["level"].value_counts()
    assert (levels["system"], levels["fleet"]) == (12, 5)
    table["p"] = 0.0
    assert not result.checks()["p"].eq(0).all()


def test_residuals_for_a_figure(replicas, result):
    (view,) = residual_views(replicas, result.checks())
    assert (view.quantity, view.along) == ("u", "time")
    assert view.x.size == 39
    assert (np.diff(view.x) >= 0).all()
    first = view.residual[view.x == view.x[0]]
    np.testing.assert_allclose(np.sort(first), np.sort(replicas.residual.mean(axis=0)[:, 0]))
    np.testing.assert_allclose(view.expected, -view.expected[::-1], atol=1e-9)
    assert ((view.low < view.expected) & (view.expected < view.high)).all()
    broken = replace(replicas, predicted=np.full_like(replicas.predicted, np.nan))
    assert residual_views(broken, result.checks()) == []


def test_quantiles_of_noise_lie_in_their_band():
    (view,) = residual_views(made("normal", 0.3, 2_000), NOTHING_OFF)
    outside = (view.ordered < view.low) | (view.ordered > view.high)
    assert outside.mean() < 0.15
    assert (np.abs(view.run_mean) < view.run_band).mean() > 0.8
