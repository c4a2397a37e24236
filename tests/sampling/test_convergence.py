"""Figures of very many scalars: some at a time, and a limit that chance alone does not exceed."""

import numpy as np
import pytest
import xarray as xr

from closura.learning import make_settings
from closura.learning._schedule import MOST_STORED, make_plan, passes, stride
from closura.posterior import _summary
from closura.sampling import _convergence, convergence
from closura.sampling._convergence import RHAT_LIMIT, rhat_by_chance

GROUPS = np.repeat(np.arange(4), 4)


def independent(draws, scalars, seed=0):
    values = np.random.default_rng(seed).normal(size=(16, draws, scalars)).astype(np.float32)
    return xr.Dataset({"theta": (("chain", "draw", "system"), values, {"words": "theta of {system}"})})


def test_the_worst_of_many_by_chance():
    """Of 20 times 100 scalars the median worst is below, but not by far; and of five of 100 one may be above."""
    figures = convergence(independent(50, 2000), GROUPS).figures["theta"].sel(figure="rhat_chains").values
    worst, limit = figures.reshape(20, 100).max(axis=1), rhat_by_chance(100, 16, 50)
    assert np.sum(worst > limit) <= 4
    assert np.median(worst) - 1 > 0.6 * (limit - 1)


def test_the_limit_is_higher_only_where_scalars_are_very_many(monkeypatch):
    few = convergence(independent(50, 60), GROUPS)
    assert few.limit == RHAT_LIMIT
    assert few.rhat_max > RHAT_LIMIT
    monkeypatch.setattr(_convergence, "MANY", 60)
    many = convergence(independent(50, 60), GROUPS)
    assert many.limit == rhat_by_chance(60, 16, 50)
    assert many.enough
    assert not few.enough
    apart = independent(50, 60)
    apart["theta"].values[0, :, 7] += 1.0  # a chain that stands apart
    assert not convergence(apart, GROUPS).enough
    # Very few draws are no excuse, and of more there is no need of one.
    assert convergence(independent(20, 60), GROUPS).limit == many.limit
    assert convergence(independent(200, 60), GROUPS).limit == RHAT_LIMIT


def test_figures_are_the_same_some_at_a_time(monkeypatch):
    draws = independent(40, 11)
    whole = convergence(draws, GROUPS).figures
    monkeypatch.setattr(_convergence, "AT_ONCE", 3 * 16 * 40)
    xr.testing.assert_allclose(convergence(draws, GROUPS).figures, whole)
    described = _summary.described(draws["theta"].values[0])
    monkeypatch.setattr(_summary, "AT_ONCE", 3 * 40)
    for name, column in _summary.described(draws["theta"].values[0]).items():
        np.testing.assert_allclose(column, described[name], rtol=1e-12)
    assert _summary.described(np.zeros((5, 0, 2)))["mean"].shape == (0, 2)


@pytest.mark.parametrize("systems", [20, 500, 3000, 10_000, 30_000])
def test_a_long_run_of_a_huge_fleet_keeps_what_fits(systems):
    numbers = 32 * systems * 3
    plan = make_plan(make_settings({"chains": 32, "draws": 200, "thin": 5}), numbers)
    draws = plan.sample // plan.thin
    for extended in range(11):
        kept = draws * passes(extended) // stride(extended, plan.most) * numbers
        assert kept <= max(MOST_STORED, 1.5 * draws * numbers) + 1
    assert stride(10, plan.most) >= stride(10)
    if systems == 20:  # nothing changes for small ones
        assert plan.most == 6
