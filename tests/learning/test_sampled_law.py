"""Runs whose chains sample the law: Newton steps while learning, then every chain has a law of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import SYSTEMS

from closura.laws import Law
from closura.learning import Run, make_settings
from closura.problems import mass_damper
from closura.runs import restore, store

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


def finish(run):
    while not run.finished:
        run.advance()
    return run


def laws(run):
    return np.asarray(run.state.chains.law["f"].weights)


@pytest.fixture(scope="module")
def learning():
    """A run that is over, its first laws and those it had learned."""
    run, _ = started(Law(nodes=9))
    before = laws(run)
    while run.phase == "learn":
        run.advance()
    learned = laws(run)
    return finish(run), before, learned


@pytest.fixture(scope="module")
def whole(learning):
    return learning[0]


def test_chains_share_a_law_while_it_is_learned_and_then_have_their_own(learning):
    run, before, learned = learning
    assert np.all(np.isfinite(learned))
    assert np.abs(learned - before).max() > 1e-3
    np.testing.assert_array_equal(learned, np.broadcast_to(learned[:, :1], learned.shape))
    kept = run.kept.law["f"]
    assert kept.weights.shape[:2] == (32, 4)
    assert np.all(np.isfinite(kept.weights))
    assert np.std(kept.weights, axis=(0, 1)).min() > 0
    assert np.all(np.isfinite(run.theta()))
    unsolved = np.concatenate([entry["unsolved_laws"] for entry in run.history])
    sampling = np.concatenate([entry["phase"] for entry in run.history]) != "learn"
    assert np.isnan(unsolved[~sampling]).all()  # laws are not proposed yet
    assert np.all((unsolved[sampling] >= 0) & (unsolved[sampling] <= 1))


@pytest.mark.nightly
def test_the_band_holds_the_law_and_intervals_the_parameters():
    """Five oscillators: chains agree on law and parameters, and both hold the truth."""
    from arviz_stats.base import array_stats

    settings = {"iterations": 900, "chunk": 10, "tune": 500, "thin": 5, "draws": 400}
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


# While learning; by night also after the survey, at the end of learning, while tuning and before the draws that are kept.
@pytest.mark.parametrize("chunks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3, 4, 5))])
def test_stop_and_go_on_gives_the_same_draws(whole, chunks, tmp_path):
    stopped, again = started(Law(nodes=9))[0], started(Law(nodes=9))[0]
    for _ in range(chunks):
        stopped.advance()
    store(stopped, tmp_path)
    restore(again, tmp_path)
    assert (again.iteration, again.arrived, again.learned) == (stopped.iteration, stopped.arrived, stopped.learned)
    finish(again)
    for mine, theirs in zip(jax.tree.leaves(again.kept), jax.tree.leaves(whole.kept), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_clock_ends_learning_and_what_was_kept_repeats_it(monkeypatch, tmp_path):
    import closura.learning._run as module

    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    run, _ = started(Law(nodes=9), minutes=1.0)
    run.advance()
    assert run.phase == "learn"
    now[0] = 31.0
    run.advance()
    assert (run.phase, run.learned, run.cut_short) == ("tune", run.iteration, True)
    store(run, tmp_path)
    again, _ = started(Law(nodes=9), minutes=1.0)
    now[0] = 0.0
    restore(again, tmp_path)
    assert (again.phase, again.learned, again.cut_short) == ("tune", run.learned, True)
    assert "cut short by the clock" in again.learning_notes[0]
    np.testing.assert_array_equal(finish(run).theta(), finish(again).theta())


def test_a_scale_that_is_fixed_where_nobody_goes_is_said():
    run, _ = started(Law(nodes=9, at={0.0: 0.0, 3.0: 1.0}))
    run.law_inputs = {"f": [[-2.0], [4.0]]}
    assert run.learning_notes == []
    run.law_inputs = {"f": [[0.5], [2.5]]}
    (said,) = run.learning_notes
    assert said.startswith("Law f is given at 3, but systems go from 0.5 to 2.5")
    assert "at={1.5: ...}" in said
