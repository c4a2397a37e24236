"""Information of the data, of many systems one part after the other."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from joint import newcomer, ramp
from sizes import FEW

import closura as cl
from closura.learning import Run, make_settings
from closura.sampling import _gauss_newton
from closura.sampling._gauss_newton import _information, _some, eliminate, information, precisions


def started(systems=5):
    random = np.random.default_rng(0)
    tables = [newcomer(random.normal(size=3), name=f"s{k}") for k in range(systems)]
    problem = ramp(0.1)
    return Run(problem, cl.read_table(pd.concat(tables)), make_settings(FEW | {"chains": 16, "groups": 2}, problem))


@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.parametrize("at_once", [3, 1])  # three and two, or one after the other
def test_parts_make_the_whole(at_once, monkeypatch):
    run = started()
    theta = run.state.chains.theta.at[1, 2, 3].set(3e38)  # a solve that fails counts for nothing
    chains = run.state.chains._replace(theta=theta)
    posterior, (groups, count) = run.posterior, theta.shape[:2]
    whole = _information(posterior, chains, theta, jnp.ones_like(theta))
    assert np.isfinite(np.concatenate([np.ravel(part) for part in whole])).all()
    assert np.abs(whole.by_law).max() > 0
    directions = theta.shape[-1] + whole.law.shape[-1]
    monkeypatch.setattr(_gauss_newton, "AT_ONCE", at_once * groups * count * directions**2)
    parts = _information(posterior, chains, theta, jnp.ones_like(theta))
    for one, other in zip(whole, parts):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(one).max())


def test_parts_leave_no_rest_where_that_can_be():
    assert [_some(*sizes) for sizes in ((10_000, 482), (20, 482), (7, 3), (97, 50), (3, 0))] == [400, 20, 3, 50, 1]


def decaying(t, state, p, f):
    return -(p.k * state.h + f(state.h))


@pytest.mark.usefixtures("hardly_optimised")
def test_what_data_know_as_a_sum_alone_an_average_does_not_tell_apart():
    """Along k + c, f(h) - c h nothing is known but from the population, wherever chains are: in units of k itself, not of its logarithm."""
    problem = cl.ODE(
        decaying,
        state="h",
        parameters={"k": cl.Positive(guess=1.0)},
        initial=lambda p: 2.0,
        span=(0.0, 2.0),
        observed="h",
        sigma=0.1,
        closure=cl.Law(),
    )
    times = np.linspace(0.2, 2.0, 8)
    table = {"system": np.repeat([1, 2, 3], 8), "time": np.tile(times, 3), "h": np.tile(2 * np.exp(-times), 3)}
    run = Run(problem, cl.read_table(pd.DataFrame(table)), make_settings(FEW, problem))
    spread = np.random.default_rng(0).normal(size=run.state.chains.theta.shape)
    law, frame = run.state.chains.law["f"], run.state.ranges["f"]
    chains = run.state.chains._replace(
        theta=jnp.asarray(0.5 * spread, float), law={"f": law.with_weights(0 * law.weights)}
    )
    rows = np.searchsorted(np.asarray(frame.places), np.asarray(frame.axis.points()))
    line = np.linalg.lstsq(np.asarray(frame.nodes)[rows, 0], np.asarray(frame.axis.points()), rcond=None)[0]

    def left(curves):
        told, prior = information(run.posterior, chains, curves).of(0), precisions(run.setup.population, chains)[0]
        prior = prior._replace(theta=1e-6 * prior.theta)
        every = np.ones(len(line), bool)
        return line @ eliminate(told, prior, every, np.zeros(len(line))).law @ line / (line @ told.law @ line)

    groups, _, systems, parameters = chains.theta.shape
    assert left((np.ones((groups, parameters)), np.zeros((groups, systems, parameters)))) < 1e-3
    assert left(None) > 0.02
