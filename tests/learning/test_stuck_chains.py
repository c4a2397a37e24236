"""Chains in a hopeless corner go on from where another of their group stands; nobody else moves."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura._compile import jitted
from closura.learning import Run, Settings
from closura.learning._stuck_chains import _look, allowed, rescued, rescued_groups
from closura.sampling import Cache

CHAINS, GROUPS, SYSTEMS = 8, 2, 3


@pytest.fixture(scope="module")
def run():
    """Decay of three systems, every fit as good as any other."""
    problem = cl.ODE(
        lambda t, state, p: -p.k * state.u,
        state="u",
        parameters={"k": cl.Positive(guess=0.5)},
        initial=lambda p: 2.0,
        span=(0.0, 4.0),
        dt=0.5,
        observed="u",
        sigma=0.1,
    )
    time = np.arange(1.0, 5.0)
    tables = [pd.DataFrame({"system": k, "time": time, "u": 2 * np.exp(-0.5 * time)}) for k in range(SYSTEMS)]
    settings = Settings(chains=CHAINS * GROUPS, groups=GROUPS, iterations=1, devices=1)
    return Run(problem, cl.Observations.from_frame(pd.concat(tables)), settings)


def chains_at(run, loglik):
    """Chains that differ in place and have these log likelihoods; the prior, the same for all, says nothing."""
    phi = jax.tree.map(lambda a: np.broadcast_to(a[:1, :1], a.shape), run.state.chains.phi)
    place = np.arange(CHAINS * GROUPS * SYSTEMS, dtype=np.float32).reshape(GROUPS, CHAINS, SYSTEMS, 1) / 1e3
    stats = (np.asarray(loglik, np.float32), np.zeros_like(place))
    return run.state.chains._replace(theta=place, phi=phi, cache=Cache(stats))


def test_who_is_left_behind_goes_on_elsewhere(run):
    loglik = np.zeros((GROUPS, CHAINS, SYSTEMS))
    loglik[0, 2, 1], loglik[1, 5, 0], loglik[1, 6, 0] = -100.0, -np.inf, -np.nan
    before = chains_at(run, loglik)
    after, count = rescued(run.posterior, before, 0)
    old, new = before.theta[..., 0], np.asarray(after.theta)[..., 0]
    assert count == 3
    moved = np.argwhere(old != new).tolist()
    assert moved == [[0, 2, 1], [1, 5, 0], [1, 6, 0]]
    for group, chain, system in moved:
        donors = np.delete(old[group, :, system], [chain, *([5, 6] if group else [])])
        assert np.abs(new[group, chain, system] - donors).min() < 0.5  # near one of them
        assert new[group, chain, system] not in donors


@pytest.mark.parametrize("loglik", [2.0 - allowed(1), 0.0])
def test_who_keeps_up_stays(run, loglik):
    values = np.zeros((GROUPS, CHAINS, SYSTEMS))
    values[0, 0, 0] = loglik
    before = chains_at(run, values)
    after, count = rescued(run.posterior, before, 0)
    assert count == 0
    assert after is before


def test_the_threshold_is_the_one_that_is_documented(run):
    page = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text("utf-8")
    assert f"({allowed(1):.0f} for one parameter, {allowed(3):.0f} for three)" in page
    values = np.zeros((GROUPS, CHAINS, SYSTEMS))
    values[0, 0, 0] = -allowed(1) - 2.0
    assert rescued(run.posterior, chains_at(run, values), 0)[1] == 1


def test_a_group_without_hope_stays_where_it_is(run):
    values = np.zeros((GROUPS, CHAINS, SYSTEMS))
    values[1, :, 2] = -np.inf
    assert rescued(run.posterior, chains_at(run, values), 0)[1] == 0


def test_a_group_with_one_donor_keeps_a_spread(run):
    """All chains of a group but one are left behind: were they copies of that one, their covariance would be zero."""
    values = np.full((GROUPS, CHAINS, SYSTEMS), -1e4)
    values[:, 0] = 0.0
    after, count = rescued(run.posterior, chains_at(run, values), 0)
    assert count == GROUPS * (CHAINS - 1) * SYSTEMS
    assert np.asarray(after.theta).std(axis=1).min() > 1e-3


def test_a_lost_group_goes_on_with_the_steps_of_the_best(run):
    """Where nothing could be solved its own steps collapsed: with them it would stand still where it was brought to."""
    values = np.zeros((GROUPS, CHAINS, SYSTEMS))
    values[1] = -np.inf
    before, steps = chains_at(run, values)._replace(law={}), {"theta": np.array([[0.5], [1e-8]])}
    after, tuning, count = rescued_groups(run.posterior, before, steps)
    assert count == 1
    np.testing.assert_array_equal(after.theta[1], before.theta[0])
    np.testing.assert_array_equal(tuning["theta"], [[0.5], [0.5]])
    values[1] = 0.0
    kept = chains_at(run, values)._replace(law={})
    assert rescued_groups(run.posterior, kept, steps) == (kept, steps, 0)


def test_looking_for_them_is_compiled_once(run):
    chains = chains_at(run, np.zeros((GROUPS, CHAINS, SYSTEMS)))
    rescued(run.posterior, chains, 0)
    look = jitted(_look)
    before = look._cached._cache_size()
    for seed in (1, 2):
        rescued(run.posterior, chains, seed)
    assert look._cached._cache_size() == before
