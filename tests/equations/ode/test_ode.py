"""A problem that cannot be solved says so when it is made; one that can behaves as written."""

import math
import os
import subprocess
import sys

import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

import closura as cl
from closura.equations import unit_scaling
from closura.problems import burgers, darcy


def physics(t, state, p, f):
    u, v = state
    return v, jnp.sin(t) - f(v) - p.k * u


GOOD = {
    "physics": physics,
    "state": ("u", "v"),
    "parameters": {"k": cl.Positive(), "u0": cl.Real()},
    "initial": lambda p: (p.u0, 0.0),
    "span": (0.0, 8.0),
    "closure": cl.MLP(width=8, depth=2),
    "observed": "u",
}


def make(**changes) -> cl.ODE:
    options = GOOD | changes
    return cl.ODE(options.pop("physics"), **options)


def raises_inside(t, state, p, f):
    raise RuntimeError("no such mode")


BAD = {
    "observed not a state": ({"observed": "w"}, "observed 'w' is not part of the solution, which is u, v"),
    "one of several not a state": ({"observed": ("u", "w")}, "observed 'w' is not part of the solution"),
    "span reversed": ({"span": (8.0, 0.0)}, r"span \(8.0, 0.0\) must run forward"),
    "span empty": ({"span": (1.0, 1.0)}, "must run forward"),
    "dt does not divide": ({"dt": 0.3}, r"dt=0.3 must be positive and divide the span of length 8.0; try 0.296"),
    "dt negative": ({"dt": -0.1}, "dt=-0.1 must be positive"),
    "dt zero": ({"dt": 0.0}, "dt=0.0 must be positive and divide the span of length 8.0; try 0.04"),
    "dt beyond the span": ({"dt": 20.0}, "dt=20.0 must be positive and divide the span of length 8.0; try 8"),
    "too few rates": (
        {"physics": lambda t, s, p, f: (s.v,)},
        r"physics\(t, state, p, f\) must return 2 numbers \(u, v\), it returned 1",
    ),
    "one rate alone": ({"physics": lambda t, s, p, f: s.v}, "must return 2 numbers .* it returned 1"),
    "too many rates": ({"physics": lambda t, s, p, f: (s.v, s.u, t)}, "it returned 3"),
    "a rate is a vector": (
        {"physics": lambda t, s, p, f: (s.v, jnp.stack([s.u, s.v]))},
        r"its 'v' has shape \(2,\)",
    ),
    "rates are a matrix": ({"physics": lambda t, s, p, f: jnp.ones((2, 3))}, r"its 'u' has shape \(3,\)"),
    "too few initial values": ({"initial": lambda p: (p.u0,)}, r"initial\(p\) must return 2 numbers .* returned 1"),
    "an initial value is a vector": ({"initial": lambda p: (p.u0, jnp.zeros(3))}, r"initial\(p\).* shape \(3,\)"),
    "unknown parameter": (
        {"initial": lambda p: (p.u1, 0.0)},
        "AttributeError: there is no parameter 'u1'; there are k, u0",
    ),
    "returns nothing": ({"physics": lambda t, s, p, f: None}, "it returned nothing; is there a `return`"),
    "a function of math": ({"physics": lambda t, s, p, f: (s.v, -f(math.exp(s.u)))}, "NumPy or math; .* jnp.exp"),
    "physics raises": (
        {"physics": raises_inside},
        "the physics or the initial state failed: RuntimeError: no such mode",
    ),
    "state taken for a number": (
        {"physics": lambda t, s, p, f: -p.k * s},
        "`state` is not a number, it holds 2 .u, v.; write `u, v = state` first, or state.u",
    ),
    "wrong number of inputs": (
        {"physics": lambda t, s, p, f: (s.v, -f(s.u, s.v))},
        r"closure 'f' takes 1 input, but the physics calls it with 2; declare it with inputs=2, or",
    ),
    "several closures, none named": (
        {"closure": {"a": cl.MLP(), "b": cl.MLP()}},
        r"several closures; call one by name: f\.a, f\.b",
    ),
    "no such closure": (
        {"closure": {"a": cl.MLP()}, "physics": lambda t, s, p, f: (s.v, f.b(s.v))},
        "AttributeError: .*'b'",
    ),
    "closure never called": (
        {"physics": lambda t, s, p, f: (s.v, -p.k * s.u)},
        r"never calls the closure 'f'; write physics\(t, state, p, f\) with f\(\.\.\.\) in it, or leave the closure out",
    ),
    "closure without an argument": (
        {"physics": lambda t, s, p: (s.v, -p.k * s.u)},
        r"never calls the closure 'f' \(it takes three arguments; the law is the fourth\)",
    ),
    "one of several never called": (
        {"closure": {"a": cl.MLP(), "b": cl.Known(jnp.sin)}, "physics": lambda t, s, p, f: (s.v, f.a(s.v))},
        r"never calls the closure 'b'; .* with f\.b\(\.\.\.\) in it",
    ),
    "law without closure": ({"closure": None}, "'NoneType' object is not callable"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_bad_problems_say_what_to_do(changes, says):
    with pytest.raises(cl.ProblemError, match=says):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"state": ("u", "2v")}, "state name '2v' must be a Python identifier"),
        ({"closure": {"my law": cl.MLP()}}, "closure name 'my law' must be"),
        (
            {"state": ("u", "v", "w"), "integrator": cl.Leapfrog()},
            "Leapfrog needs positions and then as many velocities",
        ),
    ],
)
def test_bad_names_and_schemes_say_what_to_do(changes, says):
    with pytest.raises(ValueError, match=says):
        make(**changes)


def test_a_law_that_is_no_closure_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(cl.ProblemError, match=r"closure 'f' is 3; use cl\.MLP\(\.\.\.\) or cl\.Known"):
        make(closure=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"solver": "euler"}, "'euler' is not one of tsit5, dopri8"), ({"rtol": 0.0}, "must be positive")],
)
def test_bad_adaptive_options(options, says):
    with pytest.raises(ValueError, match=says):
        cl.Adaptive(**options)


def test_physics_without_a_law_takes_three_arguments():
    problem = make(physics=lambda t, s, p: (s.v, -p.k * s.u), closure=None)
    rates = problem.rate(jnp.array([jnp.log(4.0), 0.0]), {}, 0)(0.0, (jnp.asarray(2.0), jnp.asarray(3.0)))
    np.testing.assert_allclose(rates, (3.0, -8.0), rtol=1e-6)


def test_physics_of_any_number_of_arguments_takes_all():
    problem = make(physics=lambda *arguments: physics(*arguments), closure=cl.Known(jnp.abs))
    laws = {"f": problem.closures["f"].build(jr.key(0), unit_scaling(1))}
    y = (jnp.asarray(2.0), jnp.asarray(-3.0))
    np.testing.assert_allclose(problem.rate(jnp.zeros(2), laws, 0)(0.0, y), (-3.0, -5.0))


@pytest.mark.parametrize(
    "rates",
    [
        lambda t, s, p, f: (s.v, t - f(s.v) - p.k * s.u),
        lambda t, s, p, f: [s[1], t - f(s[1]) - p.k * s[0]],
        lambda t, s, p, f: jnp.stack([s.v, t - f(s.v) - p.k * s.u]),
    ],
    ids=["by name", "by place", "as an array"],
)
def test_state_by_name_or_place_and_rates_in_any_container(rates):
    problem = make(physics=rates, closure=cl.Known(lambda v: v**2))
    laws = {"f": problem.closures["f"].build(jr.key(0), unit_scaling(1))}
    y = (jnp.asarray(2.0), jnp.asarray(3.0))
    np.testing.assert_allclose(problem.rate(jnp.zeros(2), laws, 0)(0.5, y), (3.0, 0.5 - 9.0 - 2.0))


def test_one_state_needs_no_tuple():
    problem = make(physics=lambda t, s, p, f: -f(s.u), state="u", initial=lambda p: p.u0)
    assert problem.state_names == ("u",)
    np.testing.assert_allclose(problem.start(jnp.array([0.0, 0.7]), 0), [0.7])


def test_integers_become_floats():
    start = make(initial=lambda p: (1, 0)).start(jnp.zeros(2), 0)
    assert all(value.dtype == jnp.result_type(float) for value in start)


def test_time_grid():
    assert make().steps == 200
    problem = make(dt=0.08)
    assert problem.steps == 100
    np.testing.assert_allclose(problem.times, 0.08 * np.arange(101), atol=1e-12)
    assert make(span=(1.0, 1.3), dt=0.1).steps == 3  # 0.3 / 0.1 is 2.9999999999999996


def test_with_closure_changes_the_law_alone():
    problem = make(dt=0.08, integrator=cl.Leapfrog(corrected=False), sigma=0.2, name="mine")
    oracle = problem.with_closure(cl.Known(jnp.sin))
    assert isinstance(oracle.closures["f"], cl.Known)
    for kept in ("physics", "initial", "state_names", "observed", "span", "steps", "integrator", "sigma", "name"):
        assert getattr(oracle, kept) == getattr(problem, kept), kept


def test_making_a_problem_leaves_jax_asleep():
    """The number of devices can still be chosen after it."""
    script = """
import jax, jax.numpy as jnp, closura as cl
cl.ODE(lambda t, s, p, f: (s.v, jnp.sin(t) - f(s.v) - p.k * s.u), state=("u", "v"), observed="u", span=(0.0, 8.0),
       parameters={"k": cl.Positive(), "r": cl.Interval(0.0, 2.0)}, initial=lambda p: (p.r, 0.0), closure=cl.MLP(),
       integrator=cl.Leapfrog())
from closura.problems import mass_damper
jax.config.update("jax_num_cpu_devices", 2)
assert len(jax.devices()) == 2, jax.devices()
"""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_what_laws_are_functions_of():
    def physics(t, s, p, f):
        return s.v, -p.k * s.u - f.damping(s.v, t) - f.spring(s.u**2) + f.both(s.u) + f.both(s.v)

    laws = {"damping": cl.MLP(inputs=2), "spring": cl.MLP(), "both": cl.MLP()}
    parameters = {"k": cl.Positive()}
    problem = cl.ODE(
        physics,
        state=("u", "v"),
        parameters=parameters,
        initial=lambda p: (1.0, 0.0),
        span=(0.0, 1.0),
        closure=laws,
        observed="u",
    )
    assert problem.law_input_names() == {"damping": ("v", "time"), "spring": ("input",), "both": ("input",)}
    assert darcy.problem.law_input_names() == burgers.problem.law_input_names() == {"f": ("u",)}
