"""Runs whose chains sample the law: Newton steps while learning, then every chain has a law of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import SYSTEMS

from closura.laws import Law
from closura.learning import Run, make_settings
from closura.problems import mass_damper

SMALL = {
    "chains": 32,
    "groups": 2,
    "devices": 1,
    "iterations": 30,
    "chunk": 5,
    "tempering": 0.5,
    "tune": 10,
    "draws": 4,
}
SMALL |= {"thin": 1, "extend": 0}


def started(law, systems=SYSTEMS, seed=0, **settings):
    data, truth = mass_damper.simulate(systems, seed)
    problem = mass_damper.problem.with_closure(law)
    return Run(problem, data, make_settings(SMALL | settings, problem)), truth


def test_chains_share_a_law_while_it_is_learned_and_then_have_their_own():
    run, _ = started(Law(nodes=9))
    before = np.asarray(run.state.chains.law["f"].weights)
    while run.phase == "learn":
        run.advance()
    learned = np.asarray(run.state.chains.law["f"].weights)
    assert np.all(np.isfinite(learned))
    assert np.abs(learned - before).max() > 1e-3
    np.testing.assert_array_equal(learned, np.broadcast_to(learned[:, :1], learned.shape))
    while not run.finished:
        run.advance()
    kept = run.kept.law["f"]
    assert kept.weights.shape[:2] == (32, 4)
    assert np.all(np.isfinite(kept.weights))
    assert np.std(kept.weights, axis=(0, 1)).min() > 0
    assert np.all(np.isfinite(run.theta()))


@pytest.mark.nightly
def test_the_band_holds_the_law_and_intervals_the_parameters():
    """Five oscillators: chains agree on law and parameters, and both hold the truth."""
    from arviz_stats.base import array_stats

    settings = {"iterations": 900, "chunk": 10, "tune": 500, "thin": 5, "draws": 200}
    run, truth = started(Law(), systems=5, seed=1000, **settings)
    while not run.finished:
        run.advance()
    law, frame, v = run.kept.law["f"], run.state.ranges["f"], jnp.linspace(-3.0, 3.0, 13)

    def values(weights, size):
        one = Law().build(jax.random.key(0), frame.scaling).with_weights(weights).with_size(size)
        return jax.vmap(one.prepare(frame))(v)

    f = np.asarray(jax.vmap(jax.vmap(values))(jnp.asarray(law.weights), jnp.asarray(law.log_size)))
    for i in range(len(v)):
        assert array_stats.rhat(f[..., i], chain_axis=0, draw_axis=1) < 1.02
        assert array_stats.ess(f[..., i], chain_axis=0, draw_axis=1) > 400
    low, high = np.quantile(f, [0.005, 0.995], axis=(0, 1))
    true = 0.08 * np.asarray(v) + 0.08 * np.asarray(v) ** 3
    assert np.mean((low <= true) & (true <= high)) > 0.9
    low, high = np.quantile(run.theta(), [0.005, 0.995], axis=(0, 1))
    assert np.mean((low <= truth.theta) & (truth.theta <= high)) > 0.9
