"""The loop: phases, compilation, recovery of the law, reproducibility, stop and go on."""

import jax
import numpy as np
import pandas as pd
import pytest
from sizes import FEW, LAW, RUN, SYSTEMS

from closura.data import read_table
from closura.equations import ODE, Adaptive
from closura.laws import MLP
from closura.learning import Run, Settings, SettingsError, make_settings
from closura.parameters import Positive
from closura.problems import mass_damper
from closura.runs import restore, store

pytestmark = pytest.mark.usefixtures("hardly_optimised")


def finish(run):
    while not run.finished:
        run.advance()
    return run


def small_problem(**structure):
    return mass_damper.problem.with_closure(MLP(**LAW, **structure))


def frozen(run):
    """What stays as it is while draws are kept."""
    return jax.device_get((run.state.law.weights, run.state.tuning, run.state.ranges))


@pytest.fixture(scope="module")
def sampling(hardly_optimised):
    """A run that is over, and what was frozen when it began to sample."""
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    run = Run(small_problem(), data, Settings(**RUN))
    while run.phase != "sample":
        run.advance()
    before = frozen(run)
    return finish(run), before


@pytest.fixture(scope="module")
def whole(sampling):
    return sampling[0]


def test_one_compilation_a_program(whole):
    assert set(whole._programs) == {"learn", "sample", "visited"}
    # `learn` and `sample` are compiled ahead of time: another shape would raise. The survey is jitted.
    assert whole._programs["visited"]._cached._cache_size() == 1


def test_frozen_phase_keeps_law_preconditioner_and_steps(sampling):
    run, before = sampling
    jax.tree.map(np.testing.assert_array_equal, before, frozen(run))
    assert run.theta().shape == (32, 4, 3, 3)


def test_same_seed_same_draws_other_seed_others(whole):
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    same, other = (
        finish(Run(small_problem(), data, Settings(**RUN, seed=s))).theta() for s in (whole.settings.seed, 2)
    )
    np.testing.assert_array_equal(whole.theta(), same)
    assert np.abs(same - other).max() > 0.01


@pytest.mark.parametrize(
    "changed",
    [
        {"blocks": "joint", "groups": 1},
        *(
            pytest.param(changed, marks=pytest.mark.nightly)
            for changed in (
                {"hierarchy": False},
                {"blocks": "joint", "groups": 1, "hierarchy": False},
                {"blocks": "joint", "groups": 1, "covariance": "self"},
                {"metropolis": False},
                {"preconditioner": None},
            )
        ),
    ],
    ids=str,
)
def test_variants_run(changed):
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    run = finish(Run(small_problem(), data, Settings(**RUN | changed)))
    assert np.isfinite(run.theta()).all()
    assert sum(a is not None for a in run.phi()) == (2 if run.settings.hierarchy else 0)


@pytest.mark.nightly
def test_an_adaptive_integrator_learns_a_law_of_three_inputs():
    """A law too wide for a table, and no time grid."""
    problem = ODE(
        lambda t, s, p, f: -p.k * s.u + 0.1 * f(s.u, t, p.k),
        state="u",
        parameters={"k": Positive()},
        initial=lambda p: 1.0,
        span=(0.0, 1.0),
        closure=MLP(inputs=3, width=4, depth=1),
        observed="u",
        sigma=0.1,
        integrator=Adaptive("tsit5", rtol=1e-3, atol=1e-3),
    )
    frame = pd.DataFrame({"system": [1, 1, 2, 2], "time": [0.31, 0.9, 0.2, 0.77], "u": [0.7, 0.4, 0.8, 0.5]})
    run = Run(problem, read_table(frame), Settings(**FEW))
    before = jax.device_get(run.state.law.weights)
    finish(run)
    assert np.isfinite(run.theta()).all()
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), before, jax.device_get(run.state.law.weights))
    assert max(jax.tree.leaves(moved)) > 0


@pytest.mark.nightly
def test_one_system():
    data, _ = mass_damper.simulate(1, 0)
    run = finish(Run(small_problem(odd=True, decay=1.0), data, Settings(**RUN)))
    assert np.isfinite(run.theta()).all()


@pytest.mark.parametrize("chunks", [2, *(pytest.param(count, marks=pytest.mark.nightly) for count in (1, 3, 5))])
def test_stop_and_go_on_gives_the_same_draws(whole, chunks, tmp_path):
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    stopped = Run(small_problem(), data, Settings(**RUN))
    for _ in range(chunks):
        stopped.advance()
    store(stopped, tmp_path)
    again = Run(small_problem(), data, Settings(**RUN))
    restore(again, tmp_path)
    assert again.iteration == stopped.iteration
    finish(again)
    np.testing.assert_allclose(again.theta(), whole.theta(), rtol=1e-5, atol=1e-5)
    assert sum(len(h["loglik"]) for h in again.history) == whole.iteration


def test_a_longer_run_keeps_every_other_draw_of_what_it_is(monkeypatch, tmp_path):
    """After five extensions sampling is nine times as long, and draws are as far apart as ever: as if it had been begun so."""
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    settings = {**RUN, "draws": 5, "chunk": 5, "iterations": 4, "tune": 10}
    longer = finish(Run(small_problem(), data, Settings(**settings | {"draws": 5 * 9})))
    monkeypatch.setattr(Run, "suffice", lambda run: False)

    def extended():
        return Run(small_problem(), data, Settings(**settings | {"extend": 5}))

    stopped = extended()
    while stopped.extended < 4:
        stopped.advance()
    store(stopped, tmp_path)
    run = extended()
    restore(run, tmp_path)
    finish(run)
    assert run.extended == 5
    assert run.iteration == longer.iteration
    np.testing.assert_array_equal(run.theta(), longer.theta()[:, ::2])


def test_too_few_chains_says_how_many():
    data, _ = mass_damper.simulate(5, 0)
    with pytest.raises(SettingsError, match=r"at least 176 chains"):
        Run(mass_damper.problem, data, Settings(blocks="joint"))
    with pytest.raises(SettingsError, match=r"at least 32 chains"):
        Run(mass_damper.problem, data, Settings(chains=24))


def test_settings_name_the_bad_key():
    with pytest.raises(SettingsError, match=r"unknown setting 'chain'; did you mean 'chains'"):
        make_settings({"chain": 3})
    with pytest.raises(SettingsError, match=r"setting chains='many'.*chains in all"):
        make_settings({"chains": "many"})
    with pytest.raises(SettingsError, match=r"do not split into 4 groups.*use 24 or 16"):
        make_settings({"chains": 20})
