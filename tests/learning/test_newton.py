"""Learning of sampled laws does not go astray: first laws are tamed, steps that are far too long are not taken, tables grow slowly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sizes import SYSTEMS

import closura as cl
from closura.laws import Law, Range
from closura.learning import Run, _newton, _run, make_settings
from closura.learning._newton import retabled, tamed
from closura.problems import mass_damper
from closura.runs import collect

FEW = {
    "chains": 32,
    "groups": 2,
    "devices": 1,
    "iterations": 20,
    "chunk": 5,
    "tune": 10,
    "draws": 4,
    "thin": 1,
    "extend": 0,
}


def started(law, **settings):
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    problem = mass_damper.problem.with_closure(law)
    return Run(problem, data, make_settings(FEW | settings, problem))


def with_laws(chains, factor):
    law = chains.law["f"]
    return chains._replace(law={"f": law.with_weights(factor * law.weights)})


@pytest.fixture(scope="module")
def run():
    return started(Law(nodes=9, unit=5.0))


def test_first_laws_that_send_solutions_anywhere_are_made_smaller(run):
    posterior, chains = run.posterior, run.state.chains
    huge = with_laws(chains, jnp.array([1.0, 1e3])[:, None, None])
    found = tamed(posterior, huge).law["f"].weights
    np.testing.assert_array_equal(found[0], huge.law["f"].weights[0])  # this group was fine
    share = np.asarray(found[1] / huge.law["f"].weights[1])
    assert share.max() <= 0.25
    np.testing.assert_allclose(share, share[0, 0], rtol=1e-5)


def test_a_step_that_would_make_chains_far_less_likely_is_not_taken(run, monkeypatch):
    posterior, chains = run.posterior, run.state.chains
    before = np.asarray(_newton._log_density(posterior, posterior.refresh(chains), jnp.ones(())))
    eliminate = _newton.eliminate

    def away(*arguments):
        """Curvature that is wrong by a factor: steps are thousands of times too long, and in the wrong direction."""
        left = eliminate(*arguments)
        return left._replace(law=-1e-3 * left.law)

    monkeypatch.setattr(_newton, "eliminate", away)
    monkeypatch.setattr(_newton, "LONGEST", 1e3)
    moved, _ = _newton.newton_step(posterior, posterior.refresh(chains), 1.0, 1.0)
    after = np.asarray(_newton._log_density(posterior, moved, jnp.ones(())))
    assert np.all(after >= before - _newton.SLACK)
    monkeypatch.setattr(_newton, "SLACK", np.inf)  # without the check it would be
    astray = np.asarray(
        _newton._log_density(posterior, _newton.newton_step(posterior, chains, 1.0, 1.0)[0], jnp.ones(()))
    )
    assert not np.all(astray >= before - 10.0)


def test_tables_grow_to_thrice_their_width_at_once(run):
    frame = run.state.ranges["f"]
    far = Range(jnp.array([-1e10]), jnp.array([1e10]))
    _, after = retabled(run.state.chains, run.state.ranges, {"f": far}, False)
    width = float((after["f"].high - after["f"].low)[0] / (frame.high - frame.low)[0])
    assert 2.5 < width < 3.5


def test_a_run_whose_chains_are_all_lost_says_so(monkeypatch):
    def lost(posterior, chains, temperature, rate):
        nothing = with_laws(chains, jnp.nan)
        return posterior.refresh(nothing), _newton.Progress(*np.ones((3, 2)))

    monkeypatch.setattr(_run, "newton_step", lost)
    lost_run = started(Law(nodes=9))
    while not lost_run.finished and lost_run.diverged is None:
        lost_run.advance()
    assert "no chain can be solved" in lost_run.diverged
    assert "unit=" in lost_run.diverged
    result = collect(lost_run)
    assert result.verdict.word == "not_converged"
    assert "Learning diverged" in result.verdict.lines[1]


def test_a_step_is_compiled_once_whatever_the_temperature(caplog):
    run = started(Law(nodes=9), tempering=1.0, iterations=120)
    for _ in range(6):  # past the survey
        run.advance()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        run.advance()
    assert run.phase == "learn"
    assert "_taken" not in caplog.text
    assert "_log_density" not in caplog.text


def test_learning_goes_on_while_chains_become_more_likely():
    steady = [0.0, 1.0, -1.0, 0.5, 1.0, 0.0]
    assert not _newton.rising(steady, 60, 32)
    assert _newton.rising(steady[:3], 60, 32)  # too early to say
    assert _newton.rising([10.0 * i for i in range(6)], 60, 32)


def test_laws_that_do_not_move_are_learned():
    nothing, some = np.full(2, 1e-8), np.full(2, 10.0)
    assert _newton.Progress(
        nothing, np.zeros(2), some
    ).arrived  # no data see them: there is no Monte Carlo error either
    assert not _newton.Progress(some, np.zeros(2), some).arrived
    assert _newton.Progress(some, some, some).arrived


@pytest.mark.nightly
def test_a_law_that_no_data_touch_is_as_before_data_and_that_is_said():
    """Nothing pulls at it: there is nothing to learn, and its band is that of the prior."""

    def physics(t, state, p, f):
        return state.v, 10 * jnp.sin(t) - 0.3 * state.v - p.k * state.u + 0.0 * f(state.v)

    known = mass_damper.problem
    problem = cl.ODE(
        physics,
        state=("u", "v"),
        parameters=known.parameters.kinds,
        initial=lambda p: (p.u0, p.v0),
        span=known.span,
        dt=known.dt,
        integrator=known.integrator,
        closure=Law(nodes=9),
        observed="u",
        sigma=0.15,
    )
    data, _ = mass_damper.simulate(SYSTEMS, 10)
    settings = FEW | {"iterations": 600, "newton_every": 5, "tune": 100, "draws": 100, "thin": 2, "chunk": 50}
    run = Run(problem, data, make_settings(settings, problem))
    while not run.finished:
        run.advance()
    assert run.learned < 600
    assert not run.learning_notes
    result = collect(run)
    assert (
        "Data do not decide the law f: no observation depends on it enough, and its band is that of the prior."
        in str(result.verdict.lines)
    )
    middle = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(result.closure.sd(middle), result.closure.prior_sd(middle), rtol=0.3)
