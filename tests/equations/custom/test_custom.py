"""A solver of the user's own as the equation: fits, forecasts and new systems; and what is said where it cannot work."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax import lax

import closura as cl
from closura.equations import ProblemError
from closura.learning import SettingsError

pytestmark = pytest.mark.usefixtures("hardly_optimised")

TINY = {"chains": 16, "groups": 2, "iterations": 4, "tune": 0, "draws": 2, "thin": 1, "extend": 0, "chunk": 2}
TINY |= {"progress": False, "devices": 1}
SAME = {"parameters": {"k": cl.Positive(0.5), "u0": cl.Real(2.0)}, "observed": "u", "sigma": 0.05, "span": (0.0, 4.0)}


def exact(p, f, where):
    return p.u0 * jnp.exp(-p.k * where[:, 0])


def stepped(p, f, where):
    """Heun's steps from one asked time to the next, eight each; the law is called in a loop."""

    def step(u, ends):
        begin, end = ends
        dt = (end - begin) / 8

        def one(u, _):
            slope = -f(u)
            return u + 0.5 * dt * (slope - f(u + dt * slope)), None

        u = lax.scan(one, u, length=8)[0]
        return u, u

    times = jnp.concatenate([jnp.zeros(1), where[:, 0]])
    return lax.scan(step, p.u0, (times[:-1], times[1:]))[1]


def table(systems=3, seed=0):
    random, times = np.random.default_rng(seed), np.linspace(0.5, 4.0, 8)
    rates = 0.4 + 0.1 * np.arange(systems)
    rows = [
        pd.DataFrame({"system": f"s{k}", "time": times, "u": 2 * np.exp(-r * times) + 0.05 * random.normal(size=8)})
        for k, r in enumerate(rates)
    ]
    return pd.concat(rows)


def test_a_solver_in_jax_gives_the_posterior_of_the_same_ode():
    sizes = {"chains": 32, "iterations": 150, "tune": 100, "draws": 200, "extend": 0, "progress": False, "devices": 1}
    ode = cl.ODE(lambda t, s, p: -p.k * s.u, state="u", initial=lambda p: p.u0, dt=0.1, **SAME)
    custom = cl.Custom(exact, **SAME)
    one, other = (cl.fit(problem, table(), **sizes).summary() for problem in (ode, custom))
    one, other = (frame.set_index(["level", "system", "parameter"]) for frame in (one, other))
    apart = (one["mean"] - other["mean"]).abs() / one["sd"]
    assert apart.max() < 0.25
    np.testing.assert_allclose(one["sd"], other["sd"], rtol=0.35)


@pytest.fixture(scope="module")
def fitted():
    problem = cl.Custom(stepped, closure=cl.MLP(width=8, depth=1), **SAME | {"parameters": {"u0": cl.Real(2.0)}})
    return cl.fit(problem, table(), **TINY)


@pytest.mark.nightly
def test_a_law_inside_a_loop_is_learned(fitted):
    assert np.isfinite(fitted.posterior["u0"].values).all()
    assert fitted.closures["f"].support.low[0] < 1.0 < fitted.closures["f"].support.high[0], "its inputs were noted"
    assert np.isfinite(fitted.closure(1.0))


@pytest.mark.nightly
def test_forecasts_and_new_systems(fitted):
    assert fitted.predict(until=6.0)["time"].max() >= 6.0
    new = fitted.newcomer(table(1).assign(system="new"))
    assert np.isfinite(new.parameters["mean"]).all()


def test_a_check_says_what_it_costs():
    said = str(cl.check(cl.Custom(exact, **SAME), table(), **{k: v for k, v in TINY.items() if k != "progress"}))
    assert "3 systems, 24 observations" in said


def test_a_black_box_by_a_surrogate():
    def box(p, f, where):
        return p.u0 * np.exp(-p.k * np.asarray(where)[:, 0])

    problem = cl.Custom(
        box, differentiable=False, grid=np.linspace(0.0, 4.0, 9), **{k: v for k, v in SAME.items() if k != "span"}
    )
    result = cl.fit(problem, table(), **TINY, network={"width": 8, "depth": 1, "rank": 4})
    assert result.settings["forward"] == "basis"
    assert np.isfinite(result.posterior["k"].values).all()
    with pytest.raises((ProblemError, SettingsError), match="solver"):
        cl.fit(problem, table(), **TINY, forward="solver")
    with pytest.raises(ProblemError, match=r"give it as cl\.Known"):
        cl.Custom(box, differentiable=False, closure=cl.MLP(), **SAME)


def test_a_solver_so_slow_that_a_fit_would_take_days_is_refused_after_one_solve(monkeypatch):
    clock, calls = [0.0], []

    def box(p, f, where):
        calls.append(1)
        clock[0] += 10.0
        return p.u0 * np.exp(-p.k * np.asarray(where)[:, 0])

    monkeypatch.setattr("closura.equations.custom._custom.time.perf_counter", lambda: clock[0])
    grid = {"grid": np.linspace(0.0, 4.0, 9), **{k: v for k, v in SAME.items() if k != "span"}}
    problem = cl.Custom(box, differentiable=False, **grid)
    with pytest.raises(SettingsError, match=r"one solution takes 10 s.*days.*lower iterations \(now 1500\)"):
        cl.fit(problem, table(), **TINY | {"iterations": 1500})
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("solve", "said"),
    [
        (lambda p, f, where: jnp.zeros(3), r"must return \(7,\) or \(7, 1\)"),
        (lambda p, f, where: None, "returned nothing"),
        (lambda p, f, where: p.nothing * where[:, 0], "there is no parameter 'nothing'"),
    ],
)
def test_wrong_shapes_are_told_when_the_problem_is_made(solve, said):
    with pytest.raises(ProblemError, match=said):
        cl.Custom(solve, **SAME)


def test_a_solution_that_is_not_finite_is_told():
    problem = cl.Custom(lambda p, f, where: jnp.log(-p.k * (1 + where[:, 0])), **SAME)
    with pytest.raises(ProblemError, match=r"solve\(p, f, where\) gives nan for 'u'"):
        cl.fit(problem, table(), **TINY)


def test_a_solver_without_derivatives_is_told():
    def called_back(p, f, where):
        shape = jax.ShapeDtypeStruct((len(where),), where.dtype)
        return jax.pure_callback(lambda k, x: np.exp(-k * x[:, 0]), shape, p.k, where, vmap_method="sequential")

    with pytest.raises(ProblemError, match="cannot be differentiated in its parameters"):
        cl.fit(cl.Custom(called_back, **SAME), table(), **TINY)
