"""Units of laws in problems that say little about them, and steps on gradients of any size."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import ODESolver
from closura.equations.elliptic._solver import EllipticSolver
from closura.learning import Run, Settings
from closura.learning._initialise import rhs_scale_of, start_laws
from closura.learning._schedule import make_plan
from closura.learning._setup import begin, improve

SMALL = cl.MLP(width=8, depth=2)


def decay(physics, closure=SMALL, start=10.0, **options) -> cl.ODE:
    options = {"state": ("u",), "parameters": {"k": cl.Positive()}, "initial": lambda p: (start,)} | options
    return cl.ODE(physics, span=(0.0, 4.0), dt=0.1, closure=closure, observed="u", sigma=0.1, **options)


def units(problem, pace=1.0, name="f", solver=ODESolver):
    theta = 0.3 * jr.normal(jr.key(1), (4, 8, len(problem.parameters)))
    laws, ranges = start_laws(solver(problem), theta, jr.key(0), pace)
    center, scale, output = (float(jnp.ravel(x)[0]) for x in laws[name].scaling)
    return center, scale, output, ranges[name]


def test_a_law_that_is_all_there_is_gets_its_units_from_the_data():
    """Without its law u stays at 10; data that fall to 2 in four seconds say that it need not."""
    problem = decay(lambda t, s, p, f: (-p.k * f(s.u),))
    data = cl.Observations.from_frame(
        pd.DataFrame({"system": "a", "time": [0.0, 1.0, 4.0], "u": [10.0, 6.0, 2.0]})
    ).matched(("u",), {"time": (0.0, 4.0)}, 0.1)
    pace = rhs_scale_of(problem, data)
    assert pace == pytest.approx(2.0)
    _, scale, output, range_ = units(problem, pace)
    assert 1.0 < output < 4.0
    assert 4.0 < scale < 20.0
    assert float(range_.low[0]) < 2.0 < 10.0 < float(range_.high[0])


def test_a_law_that_acts_when_all_else_is_over_gets_its_units_from_the_data():
    """A dose that is absorbed at once and leaves slowly: most of the time nothing but the law moves anything."""
    problem = decay(
        lambda t, s, p, f: (-8 * s.gut, 8 * s.gut - p.k * f(s.u)), state=("gut", "u"), initial=lambda p: (10.0, 0.0)
    )
    _, scale, output, _ = units(problem, 2.0)
    assert 1.0 < output < 4.0
    assert 2.0 < scale < 20.0


def test_a_coefficient_that_is_all_law_gets_its_units_from_source_and_data():
    """A source of 1e-9 that raises u to about 50 needs a coefficient of about 1e-12; the table covers where u goes then."""
    problem = cl.Elliptic(
        lambda u, x, p, f: p.k * f(u),
        lambda x, p: 1e-9,
        domain=cl.Rectangle(nodes=(9, 9)),
        parameters={"k": cl.Positive(guess=1.0, width=0.3, spread=0.3)},
        closure=cl.MLP(width=8, depth=2, positive=True),
        sigma=1.0,
    )
    pace = problem.rhs_scale(50.0)
    assert pace == pytest.approx(1e-9 / (2 * np.pi**2 * 50.0), rel=1e-3)
    _, _, output, range_ = units(problem, pace, solver=EllipticSolver)
    assert 0.3 * pace < output < 3 * pace
    assert 20.0 < float(range_.high[0]) < 500.0


def test_known_laws_are_there_when_others_are_looked_for():
    laws = {"damping": cl.Known(lambda v: 3.0 * v), "spring": SMALL}
    problem = decay(
        lambda t, s, p, f: (s.v, jnp.sin(2 * t) - f.damping(s.v) - f.spring(s.u) - 4 * p.k * s.u),
        laws,
        state=("u", "v"),
        initial=lambda p: (0.1, 0.0),
    )
    _, scale, _, _ = units(problem, name="spring")
    assert scale < 0.25  # at resonance without its damping: 0.5 and more


def test_a_law_that_is_divided_by():
    problem = decay(lambda t, s, p, f: (-p.k * s.u / f(s.u),), cl.MLP(width=8, depth=2, positive=True), 1.0)
    _, scale, output, range_ = units(problem)
    assert output == 1.0
    assert float(range_.low[0]) < 0.1 < 1.0 < float(range_.high[0])
    assert scale > 0.3


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e18, 1e30])
def test_one_huge_gradient_is_forgotten(size):
    """Whatever the first gradient was, and whatever the units, a hundred steps later the law moves as it should."""
    law = improve(begin({"w": jnp.ones(3)}), {"w": jnp.full(3, size)}, 0.01)
    for _ in range(300):
        law = improve(law, {"w": 1e-3 * law.weights["w"]}, 0.01)
    assert float(jnp.max(jnp.abs(law.weights["w"]))) < 0.1


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    law = improve(begin({"w": jnp.ones(3)}), {"w": jnp.ones(3)}, 0.01)
    after = improve(law, {"w": jnp.asarray([1.0, bad, 1.0])}, 0.01)
    jax.tree.map(np.testing.assert_array_equal, after, law)


@pytest.mark.nightly
def test_a_law_that_is_all_there_is_can_be_learned():
    """u' = -k f(u) from a known start: scale of k and f trade off, the product does not."""
    problem = decay(lambda t, s, p, f: (-p.k * f(s.u),), cl.MLP(width=32), parameters={"k": cl.Positive(spread=0.3)})
    rate, rng = np.exp(0.3 * np.random.default_rng(0).normal(size=8)), np.random.default_rng(1)
    times = np.linspace(0.4, 4.0, 10)
    rows = [(f"s{i}", t, 10 * np.exp(-0.4 * k * t) + 0.1 * rng.normal()) for i, k in enumerate(rate) for t in times]
    data = cl.Observations.from_frame(pd.DataFrame(rows, columns=["system", "time", "u"]))
    run = Run(problem, data, Settings(chains=32, groups=2, iterations=800, tune=40, draws=20, extend=0))
    while not run.finished:
        run.advance()
    mean_k = np.exp(run.theta()[..., 0]).mean((0, 1))
    inputs = jnp.linspace(3.0, 9.0, 5)
    learned = np.asarray(jax.vmap(run.laws["f"])(inputs)) * mean_k.mean()
    np.testing.assert_allclose(learned, 0.4 * inputs * rate.mean(), rtol=0.15)


@pytest.mark.parametrize(("thin", "chunk"), [(1, 50), (2, 50), (30, 50), (100, 50), (500, 50), (2, 1)])
def test_a_plan_keeps_what_was_asked_for(thin, chunk):
    plan = make_plan(Settings(draws=300, thin=thin, chunk=chunk), numbers=1000)
    assert plan.thin == thin
    assert 300 * thin <= plan.sample <= 1.2 * 300 * thin
    assert plan.tune >= 2 * plan.sample_chunk


def test_a_plan_of_a_huge_fleet_stores_what_fits():
    plan = make_plan(Settings(draws=300, thin=2), numbers=1_000_000)
    assert plan.sample // plan.thin * 1_000_000 <= 1.2 * 60_000_000
    assert plan.sample <= 1.2 * 600


@pytest.mark.nightly
def test_learning_that_diverges_steps_back_and_gives_up():
    problem, times = decay(lambda t, s, p, f: (-p.k * s.u - f(s.u),)), [0.5, 1.0, 2.0, 3.0]
    rows = [(name, t, 10 * np.exp(-t)) for name in "ab" for t in times]
    data = cl.Observations.from_frame(pd.DataFrame(rows, columns=["system", "time", "u"]))
    options = {"chains": 8, "groups": 1, "iterations": 20, "chunk": 10, "tune": 0, "draws": 5}
    run = Run(problem, data, Settings(**options, learning_rate=3e38))
    weights = jax.device_get(run.state.law.weights)
    for setbacks in (1, 2, 3):
        assert run.diverged is None
        run.advance()
        assert run.setbacks == setbacks
    assert run.iteration == 0
    assert not run.history
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(run.state.law.weights), weights)
    assert "also with learning rates 0.3 and 0.09 times as large. Lower learning_rate (now 3e+38)" in run.diverged
