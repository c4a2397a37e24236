"""An evolution equation that cannot be solved says so when it is made; grids, ends and steps are as stated."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import closura as cl
from closura.equations.evolution._schemes import Differences, differences
from closura.equations.evolution._stability import largest_stable_step


def physics(u, ux, uxx, x, t, p, f):
    return p.nu * uxx - f(u) * ux


GOOD = {
    "physics": physics,
    "parameters": {"nu": cl.Positive(guess=0.05, width=0.3, spread=0.3), "z": cl.Real(guess=1.4)},
    "initial": lambda x, p: p.z * jnp.sin(2 * jnp.pi * x) * jnp.sin(jnp.pi * x),
    "span": (0.0, 0.5),
    "domain": (-1.0, 1.0),
    "closure": cl.MLP(width=8, depth=2),
}
TWO = {
    "field": ("u", "v"),
    "physics": lambda u, ux, uxx, x, t, p, f: (p.nu * uxx.u - f(u.v), p.nu * uxx.v + u.u),
    "initial": lambda x, p: (p.z, jnp.cos(jnp.pi * x)),
}


def make(**changes) -> cl.Evolution:
    options = GOOD | changes
    return cl.Evolution(options.pop("physics"), **options)


def raises_inside(*arguments):
    raise RuntimeError("no such mode")


BAD = {
    "observed not a field": ({"observed": "w"}, "observed 'w' is not part of the solution, which is u"),
    "span reversed": ({"span": (0.5, 0.0)}, r"span \(0.5, 0.0\) must run forward"),
    "domain empty": ({"domain": (1.0, 1.0)}, r"domain \(1.0, 1.0\) must run forward"),
    "few cells": ({"cells": 4}, "at least 8 cells and 3 snapshots are needed, got 4 and 40"),
    "few snapshots": ({"snapshots": 2}, "at least 8 cells and 3 snapshots are needed, got 50 and 2"),
    "dt does not divide": (
        {"dt": 0.004},
        r"dt=0.004 must be .* divide the time between snapshots, 0.0125; try 0.00416667",
    ),
    "numpy inside": (
        {"initial": lambda x, p: np.sin(x)},
        r"uses a function of NumPy or math; take the one of jax.numpy",
    ),
    "branches": ({"initial": lambda x, p: 1.0 if x > 0 else 0.0}, r"branches on a value .* jnp.where"),
    "dt negative": ({"dt": -0.1}, "dt=-0.1 must be positive"),
    "no such boundary": ({"boundary": "open"}, r"boundary 'open' is not one of 'periodic', .* cl\.Dirichlet\(value\)"),
    "no such scheme": ({"scheme": "magic"}, "scheme 'magic' is not one of spectral, central, upwind"),
    "spectral with ends": ({"scheme": "spectral", "boundary": "neumann"}, "'spectral' is for boundary='periodic'"),
    "spectral of an order": ({"order": 4}, "has no order"),
    "no such order": ({"scheme": "central", "order": 3}, "scheme='central' is of order 2 or 4, not 3"),
    "upwind without speed": ({"scheme": "upwind"}, r"go together: give speed\(u, p, f\)"),
    "speed without upwind": ({"scheme": "central", "speed": lambda u, p, f: u}, "speed is for scheme='upwind'"),
    "dealiasing differences": ({"scheme": "central", "dealias": True}, "dealias is for scheme='spectral'"),
    "leapfrog": ({"integrator": cl.Leapfrog()}, r"integrated by RK4\(\) or Adaptive\(\.\.\.\), not Leapfrog"),
    "too many rates": (
        {"physics": lambda u, ux, uxx, x, t, p, f: (f(u), u)},
        r"physics\(u, ux, uxx, x, t, p, f\) must return 1 number \(u\), it returned 2",
    ),
    "too few rates": (TWO | {"physics": lambda u, ux, uxx, x, t, p, f: f(u.u)}, r"2 numbers \(u, v\), it returned 1"),
    "a rate is a vector": (
        TWO | {"physics": lambda u, ux, uxx, x, t, p, f: (f(u.u), jnp.ones(3))},
        r"its 'v' has shape \(3,\)",
    ),
    "an initial value is a vector": ({"initial": lambda x, p: jnp.ones(3)}, r"initial\(x, p\) must return 1 number"),
    "an end is a vector": (
        {"boundary": cl.Dirichlet(lambda t, p: jnp.ones(3))},
        "a Dirichlet value must return 1 number",
    ),
    "too many slopes": ({"boundary": cl.Neumann((1.0, 2.0))}, "a Neumann slope must return 1 number .* it returned 2"),
    "too many speeds": ({"speed": lambda u, p, f: (u, u)}, r"speed\(u, p, f\) must return 1 number .* it returned 2"),
    "unknown parameter": ({"initial": lambda x, p: p.u1}, "AttributeError: .*u1"),
    "physics raises": ({"physics": raises_inside}, "initial, speed or boundary failed: RuntimeError: no such mode"),
    "wrong number of inputs": (
        {"physics": lambda u, ux, uxx, x, t, p, f: f(u, ux)},
        "closure 'f' takes 1 input, but the physics calls it with 2; declare it with inputs=2",
    ),
    "closure never called": (
        {"physics": lambda u, ux, uxx, x, t, p, f: uxx},
        r"never calls the closure 'f'; write physics\(u, ux, uxx, x, t, p, f\) with f\(\.\.\.\) in it",
    ),
    "closure without an argument": (
        {"physics": lambda u, ux, uxx, x, t, p: uxx},
        "it takes six arguments; the law is the seventh",
    ),
    "law without closure": ({"closure": None}, "'NoneType' object is not callable"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_bad_problems_say_what_to_do(changes, says):
    with pytest.raises(cl.ProblemError, match=says):
        make(**changes)


@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_grid(boundary):
    problem = make(boundary=boundary, cells=10, snapshots=5, dt=0.05)
    count = 10 if boundary == "periodic" else 11
    np.testing.assert_allclose(problem.nodes, -1 + 0.2 * np.arange(count), atol=1e-12)
    assert (problem.shape, problem.steps, problem.stride, problem.dt) == ((6, count), 10, 2, 0.05)
    assert (problem.axes, problem.bounds) == (("time", "x"), ((0.0, 0.5), (-1.0, 1.0)))
    assert problem.periodic == (False, boundary == "periodic")
    points = problem.points.reshape(6, count, 2)
    np.testing.assert_allclose(points[3, :, 0], 0.3)
    np.testing.assert_allclose(points[3, :, 1], problem.nodes)


def test_with_closure_changes_the_law_alone():
    problem = make(scheme="upwind", order=2, speed=lambda u, p, f: f(u), cells=20, snapshots=10, sigma=0.2, name="mine")
    oracle = problem.with_closure(cl.Known(jnp.sin))
    assert isinstance(oracle.closures["f"], cl.Known)
    kept = (
        "physics",
        "initial",
        "state_names",
        "observed",
        "span",
        "domain",
        "ends",
        "scheme",
        "order",
        "speed",
        "cells",
    )
    for name in (*kept, "snapshots", "integrator", "sigma", "name"):
        assert getattr(oracle, name) == getattr(problem, name), name


def test_one_value_for_all_fields_or_one_each():
    theta = jnp.array([0.0, 0.5])
    same = make(**TWO, boundary=cl.Dirichlet(2.0)).start(theta, 0)
    np.testing.assert_allclose([(u[0], u[-1]) for u in same], [[2.0, 2.0], [2.0, 2.0]])
    each = make(**TWO, boundary=(cl.Dirichlet((2.0, lambda t, p: p.z)), cl.Neumann((0.0, 1.0)))).start(theta, 0)
    np.testing.assert_allclose([(u[0], u[-1]) for u in each], [[2.0, 0.5], [0.5, -1.0]], atol=1e-6)


@pytest.mark.usefixtures("float64")
def test_known_part_has_the_initial_state_and_the_values_at_the_ends():
    ends = (cl.Dirichlet(lambda t, p: p.z + t), cl.Dirichlet())
    problem = make(initial=lambda x, p: p.z * jnp.exp(x + 1), boundary=ends)
    theta = jnp.array([0.0, 0.7])
    for x in (-1.0, 0.3, 1.0):
        place = jnp.array([0.0, x])
        assert float(problem.lift(theta, place, 0)[0]) == pytest.approx(0.7 * np.exp(x + 1))
        assert float(problem.cutoff(place)) == 0
    assert float(problem.lift(theta, jnp.array([0.4, -1.0]), 0)[0]) == pytest.approx(1.1)
    assert float(problem.lift(theta, jnp.array([0.4, 1.0]), 0)[0]) == pytest.approx(0.7 * np.exp(2))
    assert float(problem.cutoff(jnp.array([0.4, -1.0]))) == float(problem.cutoff(jnp.array([0.4, 1.0]))) == 0
    assert float(problem.cutoff(jnp.array([0.4, 0.0]))) == pytest.approx(1 - np.exp(-6.4))
    assert float(make().cutoff(jnp.array([0.4, -1.0]))) == pytest.approx(1 - np.exp(-6.4))
    one = make(boundary=(cl.Neumann(), cl.Dirichlet(0.0)))
    assert float(one.cutoff(jnp.array([0.4, 1.0]))) == 0 < float(one.cutoff(jnp.array([0.4, -1.0])))


# Stability


def heat(**changes) -> cl.Evolution:
    options = {"physics": lambda u, ux, uxx, x, t, p: p.nu * uxx, "closure": None, "cells": 20, "domain": (0.0, 1.0)}
    return make(**options | changes)


def test_unstable_steps_are_named_not_met():
    # Waves of 20 cells decay at nu (pi 20)^2 = 197 at most: RK4 needs dt <= 2.785 / 197.
    heat(dt=0.0125).check_scheme()
    with pytest.raises(cl.ProblemError, match=r"dt=0.05 is unstable: .* dt <= 0.0141 at the prior guess; try dt=0.00"):
        heat(dt=0.05, snapshots=10).check_scheme()
    with pytest.raises(cl.ProblemError, match=r"dt=0.0125 is .* fewer cells than 20 .* Adaptive\('kvaerno5'\)"):
        heat(dt=0.0125).check_scheme({}, jnp.log(jnp.array([0.06, 1.0])))
    heat(dt=0.05, snapshots=10, integrator=cl.Adaptive("kvaerno5")).check_scheme()


def test_known_laws_count_in_the_step():
    """Waves of 50 cells at speed 10: k = 25 pi, and RK4 needs dt <= 2.83 / (10 k)."""
    fast = {"closure": cl.Known(lambda u: 10.0 + 0 * u), "parameters": {"nu": cl.Positive(guess=1e-6), "z": cl.Real()}}
    assert make(**fast, dealias=False, cells=51).stable_step() == pytest.approx(2.83 / (250 * np.pi), rel=0.01)
    with pytest.raises(cl.ProblemError, match="is unstable"):
        make(**fast, dt=0.00625).check_scheme()


def test_step_left_out_is_stable_for_what_is_believed():
    problem = heat(cells=40)
    assert problem.dt <= 0.5 * problem.stable_step({}, jnp.array([np.log(0.05) + 2 * np.hypot(0.3, 0.3), 1.4]))
    assert problem.dt > 0.2 * problem.stable_step({}, jnp.array([np.log(0.05) + 2 * np.hypot(0.3, 0.3), 1.4]))
    assert heat(cells=40, integrator=cl.Adaptive()).stride == 1


def test_step_left_out_may_be_asked_for_inside_a_program():
    problem = make(cells=40)
    assert float(jax.jit(lambda x: x * problem.dt)(1.0)) == pytest.approx(make(cells=40).dt)


def test_an_equation_that_is_not_finite_says_so():
    problem = heat(physics=lambda u, ux, uxx, x, t, p: uxx / (0 * u), dt=0.0125)
    with pytest.raises(cl.ProblemError, match="not finite at the initial state; look for a division by zero"):
        problem.check_scheme()


@pytest.mark.parametrize(("rate", "limit"), [(-1.0, 2.785), (1j, 2.83), (0.0, np.inf), (0.5, np.inf)])
def test_limits_of_rk4(rate, limit):
    assert largest_stable_step(np.array([rate, 0.0])) == pytest.approx(limit, rel=3e-3)


def test_bands_and_matrices_agree(monkeypatch):
    u = np.random.default_rng(0).normal(size=31)
    for scheme, order in (("central", 2), ("central", 4), ("upwind", 1), ("upwind", 2), ("upwind", 3)):
        for end in (None, cl.Dirichlet(), cl.Neumann()):
            rule: Differences = differences(scheme, order, 30, 1.0, (end, end))
            field = jnp.asarray(u if end else u[:30], float)
            dense = rule(field, (0.3, 0.7))
            monkeypatch.setattr("closura.equations.evolution._schemes.DENSE", 0)
            for one, other in zip(rule(field, (0.3, 0.7)), dense, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-2)
            monkeypatch.undo()


def test_making_a_problem_leaves_jax_asleep():
    """The number of devices can still be chosen after it."""
    script = """
import jax, jax.numpy as jnp, closura as cl
cl.Evolution(lambda u, ux, uxx, x, t, p, f: p.nu * uxx - f(u) * ux, parameters={"nu": cl.Positive()}, span=(0.0, 0.5),
             domain=(-1.0, 1.0), initial=lambda x, p: jnp.sin(x), closure=cl.MLP(), boundary=cl.Dirichlet(lambda t, p: t))
jax.config.update("jax_num_cpu_devices", 2)
assert len(jax.devices()) == 2, jax.devices()
"""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_a_circle_joins_its_ends():
    broken = make(initial=lambda x, p: p.z * x)
    with pytest.raises(
        cl.ProblemError, match=r"joins x=-1 and x=1, but the initial state is -1.4 at one and 1.4 at the"
    ):
        broken.check_scheme()
    make(initial=lambda x, p: p.z * x, boundary="dirichlet").check_scheme()


def test_a_parameter_of_the_wrong_sign_says_so():
    parameters = {"nu": cl.Real(guess=0.05, width=0.3), "z": cl.Real(guess=1.4)}
    problem = make(physics=lambda u, ux, uxx, x, t, p, f: jnp.sqrt(p.nu) * uxx - f(u) * ux, parameters=parameters)
    with pytest.raises(cl.ProblemError, match=r"not finite .* is a cl.Positive"):
        problem.check_scheme()


def test_what_is_known_is_what_the_solver_starts_from():
    """Also where an end is suddenly held at a value that the initial state does not have there."""
    problem = make(boundary=(cl.Dirichlet(1.0), cl.Dirichlet(lambda t, p: p.z + t)), initial=lambda x, p: 0.2 + 0 * x)
    theta, known = jnp.asarray(problem.parameters.mean, float), problem.known.reshape(problem.shape)
    base = jax.vmap(lambda place: problem.lift(theta, place, 0))(jnp.asarray(problem.points, float))
    base = np.asarray(base).reshape(problem.shape)
    np.testing.assert_allclose(base[0], problem.start(theta, 0)[0], atol=1e-6)
    np.testing.assert_allclose(base[:, 0], 1.0, atol=1e-6)
    np.testing.assert_allclose(base[:, -1], 1.4 + problem.times, atol=1e-6)
    assert known[0].all()
    assert known[:, [0, -1]].all()
    assert not known[1:, 1:-1].any()
    slopes = jax.vmap(jax.jacfwd(lambda place: problem.lift(theta, place, 0)))(jnp.asarray(problem.points, float))
    assert np.isfinite(slopes).all()
