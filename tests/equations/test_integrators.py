"""What a scheme assumes of an equation, and what it says where that does not hold."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import closura as cl
from closura.equations import ODESolver


def chain(state, **changes) -> cl.ODE:
    """Two masses in a row; the physics goes by name, so that the states may stand in any order."""

    def physics(t, s, p, f):
        rates = {"u1": s.v1, "u2": s.v2, "v1": p.k * (s.u2 - s.u1) - f(s.v1), "v2": p.k * (s.u1 - s.u2) + jnp.log(s.u1)}
        return tuple(rates[name] for name in state)

    options = {"parameters": {"k": cl.Positive()}, "initial": lambda p: (1.0, 2.0, 0.0, 0.0), "span": (0.0, 8.0)}
    options |= {"closure": cl.MLP(), "observed": "u1", "integrator": cl.Leapfrog()} | changes
    return cl.ODE(options.pop("physics", physics), state=state, **options)


def test_leapfrog_reads_positions_and_then_velocities():
    chain(("u1", "u2", "v1", "v2")).check_scheme()
    chain(("u2", "u1", "v2", "v1")).check_scheme()
    chain(("u1", "v1", "u2", "v2"), integrator=cl.RK4()).check_scheme()
    with pytest.raises(cl.ProblemError) as caught:
        chain(("u1", "v1", "u2", "v2")).check_scheme()
    for part in ("takes u1, v1 for positions and u2, v2 for", "u1' = u2, v1' = v2;", "positions first", "RK4()"):
        assert part in str(caught.value), part
    with pytest.raises(cl.ProblemError, match=r"does not return u2' = v1, u1' = v2; order"):
        chain(("u2", "u1", "v1", "v2")).check_scheme()


@pytest.mark.parametrize(
    "rate",
    [
        pytest.param(lambda t, s, p, f: -s.v, id="sign"),
        pytest.param(lambda t, s, p, f: s.v + p.drift, id="a parameter whose guess is zero"),
        pytest.param(lambda t, s, p, f: s.v - f(s.u), id="the law"),
        pytest.param(lambda t, s, p, f: s.v + 0.01 * t, id="time"),
    ],
)
def test_leapfrog_refuses_a_position_that_moves_otherwise(rate):
    options = {"parameters": {"drift": cl.Real()}, "initial": lambda p: (0.0, 0.0), "observed": "u"}
    problem = chain(("u", "v"), physics=lambda t, s, p, f: (rate(t, s, p, f), -f(s.u)), **options)
    with pytest.raises(cl.ProblemError, match=r"does not return u' = v; order the states"):
        problem.check_scheme()


@pytest.mark.parametrize(
    ("span", "dt", "fine"),
    [
        ((1.7e9, 1.7e9 + 3600.0), 18.0, False),
        ((-1.7e9, 3600.0 - 1.7e9), 18.0, False),
        ((0.0, 3600.0), 18.0, True),
        ((2000.0, 2020.0), 0.5, True),
        ((0.0, 20_000.0), 1.0, True),
        ((0.0, 2e6), 1.0, False),
    ],
)
def test_times_that_cannot_be_told_apart(span, dt, fine):
    problem = chain(("u1", "u2", "v1", "v2"), span=span, dt=dt)
    if fine:
        problem.check_scheme()
        return
    with pytest.raises(cl.ProblemError, match=r"apart in float32, too coarse for steps of .* start of the record"):
        problem.check_scheme()


@pytest.mark.usefixtures("float64")
def test_double_precision_tells_more_times_apart():
    chain(("u1", "u2", "v1", "v2"), span=(1.7e9, 1.7e9 + 3600.0), dt=18.0).check_scheme()


# Equation, initial value, and the solution at (a, t).
POLES = {
    "leaves every bound": (lambda t, s, p: p.a * s.u**2, lambda p: 1.0, lambda a, t: 1 / (1 - a * t)),
    "starts nowhere": (
        lambda t, s, p: -p.a * s.u,
        lambda p: jnp.log(1.4 - p.a),
        lambda a, t: jnp.log(1.4 - a) * jnp.exp(-a * t),
    ),
}


@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.parametrize(
    "pole", [pytest.param(pole, marks=pytest.mark.nightly) if pole == "leaves every bound" else pole for pole in POLES]
)
def test_a_stiff_solve_that_fails_is_nan_and_the_others_of_its_batch_are_right(pole):
    physics, initial, exact = POLES[pole]
    """Nothing raises, whatever equinox is told to do about errors, forward and backward, also at parameters of NaN."""
    options = {"state": "u", "parameters": {"a": cl.Real()}, "span": (0.0, 1.2), "dt": 0.4, "observed": "u"}
    problem = cl.ODE(physics, initial=initial, integrator=cl.Adaptive("kvaerno5", max_steps=100), **options)

    def total(a, backward=False):
        return jnp.sum(ODESolver(problem, backward=backward).solution(a[None], {}, 0))

    def true(a):
        return jnp.sum(exact(a, jnp.asarray(problem.times, float)))

    at = jnp.array([0.3, 1.45, 0.2, jnp.nan, 1e30])
    value, pushed = jax.jit(jax.vmap(lambda a: jax.jvp(total, (a,), (jnp.ones(()),))))(at)
    pulled = jax.jit(jax.vmap(jax.grad(lambda a: total(a, backward=True))))(at)
    assert np.isnan(value).tolist() == [False, True, False, True, True]
    for i in (0, 2):
        assert float(value[i]) == pytest.approx(float(true(at[i])), rel=1e-4)
        for found in (pushed, pulled):
            assert float(found[i]) == pytest.approx(float(jax.grad(true)(at[i])), rel=2e-3)


@pytest.mark.usefixtures("hardly_optimised")
def test_a_derivative_that_does_not_exist_is_nan_where_the_solution_is_finite():
    physics = lambda t, s, p: -s.u + jnp.where(s.w > 0.5, jnp.sqrt(jnp.abs(p.a)) * 0.0, 0.0)  # noqa: E731
    options = {"state": ("u", "w"), "parameters": {"a": cl.Real()}, "span": (0.0, 1.0), "dt": 0.5, "observed": "u"}
    problem = cl.ODE(
        lambda t, s, p: (physics(t, s, p), 1.0),
        initial=lambda p: (1.0, 0.0),
        integrator=cl.Adaptive("kvaerno5"),
        **options,
    )
    path, slope = jax.jit(lambda a: jax.jvp(lambda a: ODESolver(problem).solution(a, {}, 0), (a,), (jnp.ones(1),)))(
        jnp.zeros(1)
    )
    assert np.isfinite(path).all()
    assert np.isnan(slope).all()


def test_importing_closura_sets_nothing():
    code = "import os, jax, equinox; b = dict(os.environ); import closura; assert dict(os.environ) == b"
    subprocess.run([sys.executable, "-c", code], check=True)
