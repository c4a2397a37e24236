"""Before the first iteration: units of the laws from the problem itself, and messages for what cannot be fitted."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import ODESolver, align, unit_scaling
from closura.learning._initialise import check_physics, start_laws, table_range
from closura.problems import mass_damper

SMALL = cl.MLP(width=8, depth=2)


def oscillator(strength=1.0, **changes) -> cl.ODE:
    """The mass-damper with `strength` times the law, and what else is changed."""

    def physics(t, s, p, f):
        return s.v, 10 * jnp.sin(t) - strength * f(s.v) - p.k * s.u

    own = mass_damper.problem
    options = {"state": ("u", "v"), "parameters": own.parameters.kinds, "initial": own.initial, "span": own.span}
    options |= {"dt": own.dt, "integrator": own.integrator, "closure": SMALL, "observed": "u", "sigma": 0.15}
    return cl.ODE(changes.pop("physics", physics), **options | changes)


def prior_draws(problem, chains=4, systems=8):
    parameters = problem.parameters
    spread = np.sqrt(parameters.mean_variance + np.exp(parameters.log_variance))
    noise = np.random.default_rng(0).normal(size=(chains, systems, len(parameters)))
    return jnp.asarray(parameters.mean + spread * noise, float)


def test_units_of_the_mass_damper():
    """Inputs in units of the velocities seen without damping, the output in units of the accelerations."""
    problem = oscillator()
    forward, theta = ODESolver(problem), prior_draws(problem)
    laws, ranges = start_laws(forward, theta, jr.key(0))
    absent = {"f": cl.Known(jnp.zeros_like).build(jr.key(0), unit_scaling(1))}
    path = np.asarray(jax.jit(jax.vmap(lambda th: forward.solution(th, absent, 0)))(theta.reshape(-1, 3)))
    velocity = path[..., 1].ravel()
    center, scale, output = laws["f"].scaling
    share = np.mean(np.abs(velocity - center[0]) <= scale[0])
    assert share == pytest.approx(0.95, abs=0.01)
    force = 10 * np.sin(problem.times) - np.exp(np.asarray(theta[..., 0])).reshape(-1, 1) * path[..., 0]
    assert float(output) == pytest.approx(np.median(np.abs(force)), rel=1e-3)
    assert float(laws["f"](1.0)) == 0.0, "a run starts from no law"
    low, high = (float(end[0]) for end in ranges["f"])
    assert low < velocity.min()
    assert high > velocity.max()
    assert high - low < 2 * (velocity.max() - velocity.min())


def test_a_law_that_counts_ten_times_is_a_tenth_in_size():
    problems = [oscillator(strength) for strength in (1.0, 10.0)]
    scalings = [start_laws(ODESolver(p), prior_draws(p), jr.key(0))[0]["f"].scaling for p in problems]
    assert float(scalings[0].output) == pytest.approx(10 * float(scalings[1].output), rel=1e-4)
    np.testing.assert_allclose(scalings[0].scale, scalings[1].scale)


def test_a_law_that_changes_nothing_has_units_all_the_same():
    problem = oscillator(physics=lambda t, s, p, f: (s.v, -p.k * s.u + 0 * f(s.v)))
    laws, ranges = start_laws(ODESolver(problem), prior_draws(problem), jr.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(laws["f"].scaling))
    assert float(laws["f"].scaling.scale[0]) > 0
    assert float(ranges["f"].low[0]) < float(ranges["f"].high[0])


def test_table_range_has_a_margin_and_a_width():
    low, high = table_range(np.linspace(-1.0, 3.0, 10_001)[:, None])
    assert float(low[0]) == pytest.approx(-2.0, abs=0.02)
    assert float(high[0]) == pytest.approx(4.0, abs=0.02)
    low, high = table_range(np.full((5, 1), 7.0))
    assert float(low[0]) < 7.0 < float(high[0])


def test_nan_in_the_physics_names_state_and_time():
    """The root of a negative number after t = 1.02; with dt = 0.1 the first bad time is 1.1."""

    def physics(t, s, p, f):
        return -s.u, jnp.sqrt(1.02 - t) - f(s.w)

    problem = oscillator(physics=physics, state=("u", "w"), span=(0.0, 2.0), dt=0.1, integrator=cl.RK4())
    laws = {"f": SMALL.build(jr.key(0), unit_scaling(1))}
    with pytest.raises(cl.ProblemError) as caught:
        check_physics(ODESolver(problem), laws)
    for part in ("gives nan", "'w'", "t = 1.1 ", "k=3, u0=0.5, v0=1", "roots or logarithms"):
        assert part in str(caught.value), part
    check_physics(ODESolver(oscillator()), laws)


@pytest.mark.parametrize("integrator", [cl.RK4(), cl.Adaptive()], ids=["rk4", "tsit5"])
def test_a_derivative_that_is_not_finite_is_told_from_a_bad_solution(integrator):
    """Water never leaves an empty tank: the solution is zero, its derivative zero times infinity."""

    def tank(level):
        options = {"state": "u", "parameters": {"k": cl.Positive()}, "initial": lambda p: level, "closure": None}
        options |= {"span": (0.0, 1.0), "dt": 0.1, "integrator": integrator}
        return ODESolver(oscillator(physics=lambda t, s, p: -p.k * jnp.sqrt(s.u), **options))

    with pytest.raises(cl.ProblemError) as caught:
        check_physics(tank(0.0), {})
    for part in ("solution is finite", "derivative of 'u' in k is nan at t = 0", "square root", "small number"):
        assert part in str(caught.value), part
    check_physics(tank(1.0), {})


def test_states_in_an_order_the_scheme_cannot_read():
    problem = oscillator(physics=lambda t, s, p, f: (-p.k * s.u - f(s.v), s.v), state=("v", "u"))
    with pytest.raises(cl.ProblemError, match="order the states positions first, then velocities"):
        check_physics(ODESolver(problem), {"f": SMALL.build(jr.key(0), unit_scaling(1))})


def test_too_few_observations():
    problem = oscillator()
    table = pd.DataFrame({"system": ["a", "a", "b", "b"], "time": [0.0, 1.0, 0.0, 1.0], "u": [0.1, 0.2, 0.3, 0.4]})
    message = r"3 observations in all, not more than the 3 parameters of one system \(k, u0, v0\)"
    with pytest.raises(cl.DataError, match=message):
        align(problem, cl.Observations.from_frame(table[:3]))
    with pytest.raises(cl.DataError, match="1 observation in all"):
        align(problem, cl.Observations.from_frame(table[:1]))
    _, matched = align(problem, cl.Observations.from_frame(table))
    np.testing.assert_array_equal(matched.sigma, np.full((2, 2), 0.15))


def test_data_outside_the_span_are_refused():
    data, _ = mass_damper.simulate(2)
    late = dataclasses.replace(data, place=data.place + 1.0)
    with pytest.raises(cl.DataError, match=r"outside the problem's span 0\.0 to 8\.0"):
        align(mass_damper.problem, late)
