"""Parameters that all systems share: a whole fit, against the posterior by linear algebra."""

import numpy as np
import pandas as pd
import pytest
from sizes import FEW

import closura as cl
from closura.data import read_table
from closura.equations import align
from closura.learning import Run, Settings

pytestmark = pytest.mark.usefixtures("hardly_optimised")
SYSTEMS, TIMES, SIGMA = 6, np.linspace(0.5, 4.0, 4), 0.2


def lines(**changes):
    """u(t) = start + rate t; everybody has the same rate."""
    options = {
        "state": "u",
        "parameters": {"rate": cl.Real(guess=0.5, width=1.0, shared=True), "start": cl.Real(guess=0.0, spread=0.5)},
        "initial": lambda p: p.start,
        "span": (0.0, 4.0),
        "dt": 0.5,
        "observed": "u",
        "sigma": SIGMA,
    }
    return cl.ODE(lambda t, s, p: p.rate + 0.0 * s.u, **options | changes)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(3)
    start = random.normal(0.3, 0.6, SYSTEMS)
    rows = [(f"s{k}", t, start[k] + 0.8 * t + SIGMA * random.normal()) for k in range(SYSTEMS) for t in TIMES]
    return pd.DataFrame(rows, columns=["system", "time", "u"])


def by_hand(table, spread):
    """Mean and sd of the rate, every start ~ N(0, 1 + spread^2) on its own (no population)."""
    count = SYSTEMS + 1
    precision, pull = np.diag([1.0] + [1 / (1.0 + spread**2)] * SYSTEMS), np.zeros(count)
    pull[0] = 0.5
    for name, t, u in table.itertuples(index=False):
        row = np.zeros(count)
        row[[0, 1 + int(name[1:])]] = t, 1.0
        precision += np.outer(row, row) / SIGMA**2
        pull += row * u / SIGMA**2
    covariance = np.linalg.inv(precision)
    return covariance @ pull, np.sqrt(np.diag(covariance))


@pytest.mark.nightly
def test_without_hierarchy_it_is_regression(table):
    sizes = {"chains": 64, "iterations": 60, "tune": 60, "draws": 300, "thin": 2, "extend": 0, "devices": 1}
    result = cl.fit(lines(), table, hierarchy=False, progress=False, **sizes)
    mean, sd = by_hand(table, 0.5)
    rate = result.posterior["rate"].values
    assert np.ptp(rate, axis=2).max() == 0
    assert result.metrics["rhat_max"] < 1.02
    found = [rate[..., 0], *np.moveaxis(result.posterior["start"].values, 2, 0)]
    # Some 4,000 independent draws of each.
    np.testing.assert_allclose(([x.mean() for x in found] - mean) / sd, 0.0, atol=0.08)
    np.testing.assert_allclose([x.std() for x in found], sd, rtol=0.08)


@pytest.mark.nightly
def test_in_a_population_it_has_no_spread(table, tmp_path):
    sizes = {
        "chains": 16,
        "groups": 2,
        "iterations": 40,
        "tune": 20,
        "draws": 20,
        "thin": 1,
        "extend": 0,
        "chunk": 20,
    }
    result = cl.fit(lines(), table, out=tmp_path / "run", progress=False, population="full", devices=1, **sizes)
    posterior = result.posterior
    np.testing.assert_array_equal(posterior["mu"].sel(parameter="rate"), posterior["rate"].isel(system=0))
    assert float(posterior["tau"].sel(parameter="rate").max()) == 0
    assert float(posterior["tau"].sel(parameter="start").min()) > 0
    assert abs(float(posterior["rate"].mean()) - 0.8) < 0.2
    assert "rate" in str(result)
    new = result.newcomer(table[:2].assign(system="new"))
    rates = new.theta[..., 0]
    assert rates.std() < 3 * posterior["rate"].values.std()
    assert abs(rates.mean() - 0.8) < 0.2


def test_all_of_them_may_be(table):
    parameters = {name: cl.Real(shared=True) for name in ("rate", "start")}
    run = Run(lines(parameters=parameters), read_table(table), Settings(**FEW))
    while not run.finished:
        run.advance()
    assert np.ptp(run.theta(), axis=2).max() == 0
    assert run.phi() == ()


def test_what_does_not_go_together(table):
    data = read_table(table.assign(size=1.0))
    with pytest.raises(
        cl.SettingsError, match="blocks='joint' is the published sampler, which knows no shared parameters"
    ):
        Run(lines(), data, Settings(blocks="joint", chains=200))
    with pytest.raises(cl.ProblemError, match="'rate' is shared: covariates shift parameters that differ"):
        lines(covariates={"rate": "size"})
    assert align(lines(covariates={"start": "size"}), data)[1].constants["size"].shape == (SYSTEMS,)
