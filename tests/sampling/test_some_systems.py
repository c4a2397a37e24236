"""A kernel on some of the systems leaves the posterior alone, and the others where they are; it is what systems are handed back to.

u' = b,  u(0) = a:  given a population whose mean is another in every system, (a, b) of each system are normal
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from sizes import FEW

import closura as cl
from closura.learning import Run, make_settings
from closura.runs import restore, store
from closura.sampling import Info, Mala, SomeSystems, SystemBlocks, _independence, sweep

TIMES = ([0.5, 1.0], [0.25, 0.5, 1.0], [1.0], [0.0, 0.75], [0.5, 1.0])
SIGMA, EFFECT = (0.3, 0.5, 0.2, 0.4, 0.6), 0.8
SOME = (1, 3, 4)
GROUPS = 100


def problem():
    return cl.ODE(
        lambda t, state, p: p.b,
        state="u",
        parameters={"a": cl.Real(), "b": cl.Real()},
        initial=lambda p: p.a,
        span=(0.0, 1.0),
        dt=0.25,
        observed="u",
        covariates={"a": "weight"},
    )


def table():
    rows = [
        pd.DataFrame({"system": k, "time": at, "u": 0.3 * k - np.array(at), "sigma": sigma, "weight": float(k)})
        for k, (at, sigma) in enumerate(zip(TIMES, SIGMA))
    ]
    return cl.read_table(pd.concat(rows))


def started(**settings):
    return Run(problem(), table(), make_settings(FEW | {"chains": 8 * GROUPS, "groups": GROUPS} | settings))


@pytest.fixture(scope="module")
def run():
    """Every chain believes the same of the population."""
    run = started()
    chains, phi = run.state.chains, run.state.chains.phi
    phi = phi._replace(mu=phi.mu * 0 + 0.2, log_tau=phi.log_tau * 0, covariate_effect=phi.covariate_effect * 0 + EFFECT)
    run.state = run.state._replace(chains=chains._replace(phi=phi))
    return run


def exact():
    """Mean and covariance of every system."""
    weight = (np.arange(5) - 2) / np.std(np.arange(5))
    for k, (at, sigma) in enumerate(zip(TIMES, SIGMA)):
        design = np.stack([np.ones(len(at)), at], axis=1)
        covariance = np.linalg.inv(np.eye(2) + design.T @ design / sigma**2)
        value = 0.3 * k - np.array(at)
        before = np.array([0.2 + EFFECT * weight[k], 0.2])
        yield covariance @ (design.T @ value / sigma**2 + before), covariance


# Without gradients in the cache, as beside proposals that need none, and with them.
@pytest.mark.parametrize("gradients", [False, True])
def test_the_posterior_is_kept(run, gradients):
    posterior = dataclasses.replace(run.posterior, gradients=gradients)
    kernel, means, covariances = SomeSystems(Mala(SystemBlocks(), "frozen"), SOME), *map(np.stack, zip(*exact()))
    normal = np.asarray(jr.normal(jr.key(0), (GROUPS, 8, 5, 2)))
    theta = means + np.einsum("kij,gckj->gcki", np.linalg.cholesky(covariances), normal)
    start = posterior.refresh(run.state.chains._replace(theta=jnp.asarray(theta, jnp.float32)))
    tuning = {"theta": kernel.tune(kernel.init(start), start, posterior)}
    tuning["theta"] = tuning["theta"]._replace(log_step=jnp.zeros((GROUPS, 5)))

    def one(chains, key):
        chains, _, info = sweep([kernel], jr.split(key, GROUPS), chains, tuning, posterior)
        away = chains.theta - means
        second = jnp.einsum("gcki,gckj->gkij", away, away) / away.shape[1]
        return chains, (away.mean(axis=1), second, info.acceptance)

    after, (first, second, acceptance) = jax.jit(lambda c: jax.lax.scan(one, c, jr.split(jr.key(1), 300)))(start)
    assert acceptance.shape[-1] == len(SOME)
    assert 0.3 < float(acceptance.mean()) < 0.95
    still = [k for k in range(5) if k not in SOME]
    np.testing.assert_array_equal(after.theta[:, :, still], start.theta[:, :, still])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), after.cache, posterior.refresh(after).cache)
    for k in SOME:
        numbers = np.concatenate([first[:, :, k], second[:, :, k].reshape(300, GROUPS, 4)], axis=-1).mean(axis=0)
        wanted = np.concatenate([np.zeros(2), covariances[k].ravel()])
        error = numbers.std(axis=0, ddof=1) / np.sqrt(GROUPS)
        assert np.abs((numbers.mean(axis=0) - wanted) / error).max() < 4
        assert np.all(error[2:] < 0.03 * covariances[k].max())


def test_steps_of_these_systems_alone_are_adapted(run):
    kernel = SomeSystems(Mala(SystemBlocks(), "frozen"), SOME)
    tuning, yes = kernel.init(run.state.chains), jnp.ones((GROUPS, 8, len(SOME)))
    after = kernel.adapt(tuning, Info(yes, yes > 0, yes), 0.1)
    np.testing.assert_array_equal(np.flatnonzero((after.log_step != tuning.log_step).any(axis=0)), SOME)


def test_systems_are_handed_back_where_independence_fails(tmp_path, monkeypatch):
    """Two of five: there MALA runs beside it, with steps of these alone, and a resumed run goes on the same way."""
    monkeypatch.setattr(_independence, "MEMORY", 0.0)  # what it is told stays
    few = {"chains": 32, "groups": 4, "chunk": 4, "tune": 12, "draws": 8}

    def failing():
        run = started(**few)
        while run.phase == "learn":
            run.advance()
        tuning = run.state.tuning["independence"]
        low = tuning.acceptance.at[2, 1].set(0.05).at[0, 4].set(0.1)
        tuning = run.state.tuning | {"independence": tuning._replace(acceptance=low)}
        run.state = run.spread(run.state._replace(tuning=tuning))
        return run

    run = failing()
    assert [kernel.name for kernel in run.setup.sampling_kernels] == ["independence", "population"]
    run.advance()
    run.advance()
    assert run.handed_back == [1, 4]
    first, *rest = run.setup.sampling_kernels
    assert isinstance(first, SomeSystems)
    assert (first.systems, [kernel.name for kernel in rest]) == ((1, 4), ["independence", "population"])
    assert not run.setup.needs_gradients
    np.testing.assert_array_equal(run.setup.moved_blocks(run.state.tuning), [False, True, False, False, True])
    before = np.asarray(run.state.tuning["theta"].log_step)
    store(run, tmp_path)
    while run.phase == "tune":
        run.advance()
    changed = (np.asarray(run.state.tuning["theta"].log_step) != before).any(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(changed), [1, 4])
    again = started(**few)
    restore(again, tmp_path)
    assert again.handed_back == [1, 4]
    while not run.finished:
        run.advance()
    while not again.finished:
        again.advance()
    np.testing.assert_array_equal(run.theta(), again.theta())
    assert np.isfinite(run.theta()).all()
