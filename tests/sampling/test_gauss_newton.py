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
from closura.sampling._gauss_newton import _information, _some


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
