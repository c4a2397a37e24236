"""Runs that sample a law of two inputs:  u'' + f(u, u') + k u = 10 sin t."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import closura as cl
from closura.data import read_table
from closura.laws import LawError, Range
from closura.learning import Run, make_settings
from closura.learning._newton import newton_step, retabled

SMALL = {"chains": 16, "groups": 2, "devices": 1, "iterations": 12, "chunk": 4, "tempering": 0.5, "tune": 4, "draws": 4}
SMALL |= {"thin": 1, "extend": 0}


def physics(t, state, p, f):
    u, v = state
    return v, 10 * jnp.sin(t) - f(u, v) - p.k * u


PARAMETERS = {
    "k": cl.Positive(guess=3.0, width=math.sqrt(0.1), spread=math.sqrt(0.02), spread_width=math.sqrt(0.4)),
    "u0": cl.Real(guess=0.5, width=1.0, spread=1.0, spread_width=math.sqrt(0.08)),
    "v0": cl.Real(guess=1.0, width=1.0, spread=1.0, spread_width=math.sqrt(0.08)),
}
problem = cl.ODE(
    physics,
    state=("u", "v"),
    parameters=PARAMETERS,
    initial=lambda p: (p.u0, p.v0),
    span=(0.0, 8.0),
    dt=0.08,
    integrator=cl.Leapfrog(),
    closure=cl.Law(inputs=2),
    observed="u",
    sigma=0.15,
)


def friction(u, v):
    return 0.3 * v * (1 + u**2) / (1 + 0.5 * v**2)


def simulated(systems, seed):
    """A table of u at thirteen times, theta, and where solutions went (call, input)."""
    random = np.random.default_rng(seed)
    theta = np.array([math.log(5.0), 0.0, 2.0]) + np.sqrt([0.03, 2.0, 2.0]) * random.normal(size=(systems, 3))
    step, each = 0.01, 64
    state, path = theta[:, 1:].T, []

    def rate(t, state):
        return np.stack([state[1], 10 * np.sin(t) - friction(*state) - np.exp(theta[:, 0]) * state[0]])

    for t in step * np.arange(12 * each + 1):
        path.append(state)
        middle = state + step / 2 * rate(
            t, state
        )  # the rule of the midpoint: wrong by less than a hundredth of the noise
        state = state + step * rate(t + step / 2, middle)
    u = np.stack(path[::each])[:, 0].T
    seen = u + 0.15 * random.normal(size=u.shape)
    names = [f"oscillator {i}" for i in range(systems)]
    columns = {"system": np.repeat(names, 13), "time": np.tile(0.64 * np.arange(13), systems), "u": seen.ravel()}
    return columns, theta, np.concatenate(np.stack(path)[::8].transpose(2, 0, 1))


def started(systems, seed, **settings):
    table, theta, path = simulated(systems, seed)
    return Run(problem, read_table(table), make_settings(SMALL | settings, problem)), theta, path


@pytest.mark.nightly
def test_a_run_learns_and_samples_a_law_of_two_inputs(tmp_path, hardly_optimised):
    table, _, _ = simulated(3, 0)
    result = cl.fit(problem, table, out=tmp_path / "run", progress=False, **SMALL)
    law, x = result.closures["f"], (np.linspace(-1, 1, 5), np.linspace(2, -2, 5))
    draws = law.draws(*x)
    assert draws.shape == (64, 5)
    assert np.all(np.isfinite(draws))
    assert np.all(draws.std(axis=0) > 0)
    np.testing.assert_allclose(law.sd(*x), draws.std(axis=0), rtol=1e-5)
    assert list(result.closure_table().columns[:3]) == ["input_1", "input_2", "f"]
    assert np.all(law.prior_sd(*x) > 0)
    read = cl.load_closures(tmp_path / "run")["f"]
    np.testing.assert_allclose(read.draws(*x), draws, rtol=1e-6)
    result.export_closure(tmp_path / "law.csv")
    with pytest.raises(LawError, match="csv only"):
        result.export_closure(tmp_path / "law.py")


def test_tables_grow_along_the_input_that_needs_it_and_newton_steps_follow(hardly_optimised):
    run, _, _ = started(3, 0)
    state, old = run.state, run.state.ranges["f"]
    law = state.chains.law["f"]
    weights = jnp.zeros_like(law.weights).at[..., 1].set(0.3).at[..., -3:].set(0.1)
    chains = state.chains._replace(law={"f": law.with_weights(weights)})
    same, frames = retabled(chains, {"f": old}, {"f": Range(old.low, old.high)}, True)
    assert same.law["f"] is chains.law["f"]
    assert frames["f"] is old
    further = Range(old.low, old.high * jnp.array([1.0, 1.2]))
    grown, frames = retabled(chains, {"f": old}, {"f": further}, True)
    assert float(frames["f"].high[1]) >= float(further.high[1]) - 1e-3
    x = np.linspace(0.8 * np.asarray(old.low), 0.8 * np.asarray(old.high), 20).T
    one = jax.tree.map(lambda a: a[1, 3], (chains.law["f"], grown.law["f"]))
    before, after = (np.asarray(jax.vmap(f.prepare(frame))(*x)) for f, frame in zip(one, (old, frames["f"])))
    np.testing.assert_allclose(after, before, atol=0.02 * np.abs(before).max())
    posterior = run.setup.posterior(run.views, run.state._replace(ranges=frames))
    moved, progress = newton_step(posterior, grown, 0.1, 0.5)
    step = np.asarray(moved.law["f"].weights - grown.law["f"].weights)
    assert np.all(np.isfinite(step))
    assert np.all(progress.decrement > 0)
    np.testing.assert_array_equal(step, np.broadcast_to(step[:, :1], step.shape))
    assert np.abs(frames["f"].inner @ step[:, 0].T).max() < 0.3 * 1.001


@pytest.mark.nightly
def test_the_band_holds_a_law_of_two_inputs():
    """Twelve oscillators whose stiffness and whose law's part in proportion to u data know as a sum alone: chains agree, and law
    and parameters hold the truth where solutions went."""
    table, theta, path = simulated(12, 1001)
    run = Run(problem, read_table(table), make_settings({"devices": 1}, problem))
    while not run.finished:
        run.advance()
    assert run.convergence().enough
    kept, frame = run.kept.law["f"], run.state.ranges["f"]
    x = jnp.asarray(path[:: len(path) // 100], float).T
    one = problem.closures["f"].build(jax.random.key(0), frame.scaling)
    some = jnp.asarray(kept.weights[:, ::10])
    f = np.asarray(jax.vmap(jax.vmap(lambda a: jax.vmap(one.with_weights(a).prepare(frame))(*x)))(some))
    low, high = np.quantile(f, [0.005, 0.995], axis=(0, 1))
    assert np.mean((low <= friction(*x)) & (friction(*x) <= high)) > 0.9
    low, high = np.quantile(run.theta(), [0.005, 0.995], axis=(0, 1))
    assert np.mean((low <= theta) & (theta <= high)) > 0.9
