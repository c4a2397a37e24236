"""Evolutions on a rectangle: what they refuse, their grid, what is known of them before, and how long a step may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import closura as cl
from closura.equations import constant_laws
from closura.equations.evolution._stability import frozen_rates, largest_stable_step, line_rates


def physics(u, ux, uxx, x, t, p, f):
    return p.nu * (uxx.x + uxx.y) - f(u) * ux.y


GOOD = {
    "physics": physics,
    "parameters": {"nu": cl.Positive(guess=0.05, width=0.3, spread=0.3), "z": cl.Real(guess=1.4)},
    "initial": lambda x, p: p.z * jnp.sin(2 * jnp.pi * x.x) * jnp.cos(jnp.pi * x.y),
    "span": (0.0, 0.5),
    "domain": ((0.0, 1.0), (-1.0, 1.0)),
    "closure": cl.MLP(width=8, depth=2),
}


def make(**changes) -> cl.Evolution:
    options = GOOD | changes
    return cl.Evolution(options.pop("physics"), **options)


def test_cells_unless_said():
    assert make().grid.shape == (24, 24)
    assert (
        make(domain=(0.0, 1.0), physics=lambda u, ux, uxx, x, t, p, f: uxx - f(u), initial=lambda x, p: p.z).cells == 50
    )


BAD = {
    "three intervals": (
        {"domain": ((0.0, 1.0),) * 3},
        r"domain has 3 intervals; give \(low, high\) for a line, or \(\(x",
    ),
    "one interval in brackets": ({"domain": ((0.0, 1.0),)}, "domain has 1 interval; give"),
    "an interval backwards": ({"domain": ((0.0, 1.0), (1.0, 0.0))}, r"domain along y \(1.0, 0.0\) must run forward"),
    "an interval and a number": ({"domain": ((0.0, 1.0), 2.0)}, "domain along y=2.0 must be two numbers"),
    "three numbers of cells": ({"cells": (10, 10, 10)}, r"cells=\(10, 10, 10\) must be one whole number for both"),
    "cells of one axis": ({"cells": (10,)}, r"cells=\(10,\) must be one whole number for both axes, or a pair"),
    "cells of a line in pairs": (
        {"cells": (10, 10), "domain": (0.0, 1.0)},
        r"cells=\(10, 10\) must be one whole number$",
    ),
    "few cells along y": ({"cells": (10, 4)}, "at least 8 cells and 3 snapshots are needed, got 4 and 40"),
    "a side that is none": (
        {"boundary": {"x": "periodic", "z": "periodic"}},
        "boundary has the keys 'x', 'z'; it needs one for each axis: 'x', 'y'",
    ),
    "a side is missing": ({"boundary": {"x": "periodic"}}, "it needs one for each axis: 'x', 'y'"),
    "a line has no y": ({"boundary": {"x": "periodic", "y": "neumann"}, "domain": (0.0, 1.0)}, "each axis: 'x'$"),
    "ends of which axis": ({"boundary": (cl.Dirichlet(), cl.Neumann())}, r"write boundary=\{'x': \(low, high\), 'y'"),
    "a side of no kind": ({"boundary": {"x": "open", "y": "periodic"}}, "boundary 'open' is not one of"),
    "half a circle is not spectral": (
        {"boundary": {"x": "periodic", "y": "neumann"}, "scheme": "spectral"},
        "scheme='spectral' is for boundary='periodic'",
    ),
    "a place is no number": (
        {"initial": lambda x, p: jnp.sin(2 * jnp.pi * x)},
        "`x` is not a number, it holds 2 .* or x.x",
    ),
    "a gradient is no number": (
        {"physics": lambda u, ux, uxx, x, t, p, f: f(u) + p.nu * uxx},
        "is not a number, it holds 2 \\(x, y\\)",
    ),
    "one speed": ({"speed": lambda u, p, f: u}, r"speed\(u, p, f\) must return 2 numbers \(along x, along y\)"),
    "speeds of more fields": ({"speed": lambda u, p, f: ((u, u), (u, u))}, "or one for each of 1 fields"),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_bad_problems_say_what_to_do(changes, says):
    with pytest.raises(cl.ProblemError, match=says):
        make(**changes)


def test_grid():
    ends = {"x": "periodic", "y": (cl.Dirichlet(0.0), cl.Neumann())}
    problem = make(cells=(10, 8), snapshots=5, dt=0.05, boundary=ends)
    assert (problem.axes, problem.shape) == (("time", "x", "y"), (6, 10, 9))
    assert problem.bounds == ((0.0, 0.5), (0.0, 1.0), (-1.0, 1.0))
    assert (problem.periodic, problem.cells, problem.scheme) == ((False, True, False), (10, 8), "central")
    points = problem.points.reshape(6, 10, 9, 3)
    np.testing.assert_allclose(points[3, 2, 5], [0.3, 0.2, 0.25])
    known = problem.known.reshape(problem.shape)
    assert known[0].all()
    assert known[:, :, 0].all()
    assert not known[1:, :, 1:].any()
    assert make(cells=12).shape == (41, 12, 12)
    oracle = problem.with_closure(cl.Known(jnp.sin))
    assert (oracle.shape, oracle.ends, oracle.domain) == (problem.shape, problem.ends, problem.domain)


def test_laws_know_what_they_are_of():
    inputs = {"f": cl.MLP(inputs=2), "g": cl.MLP(inputs=3), "h": cl.MLP(inputs=2)}
    one = make(
        physics=lambda u, ux, uxx, x, t, p, f: f.f(u, ux.y) + f.g(uxx.x, uxx.y, x.y) + f.h(t, 2 * u), closure=inputs
    )
    assert one.law_input_names() == {"f": ("u", "u_y"), "g": ("u_xx", "u_yy", "y"), "h": ("time", "input 2")}
    two = make(
        physics=lambda u, ux, uxx, x, t, p, f: (f(ux.a.x, uxx.b.y), u.a),
        field=("a", "b"),
        initial=lambda x, p: (p.z, x.y),
        closure=cl.MLP(inputs=2),
    )
    assert two.law_input_names() == {"f": ("a_x", "b_yy")}


SIDES = {
    "one value": cl.Dirichlet(1.0),
    "kept": "dirichlet",
    "one side": {"x": "neumann", "y": (cl.Dirichlet(lambda t, p: p.z + t), cl.Neumann())},
    "sides that differ": {"x": (cl.Dirichlet(), cl.Dirichlet(-1.0)), "y": cl.Dirichlet(lambda t, p: p.z + t)},
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("sides", SIDES)
def test_what_is_known_is_what_the_solver_has(sides):
    """At the start and along every side that has a value, also where that is there suddenly, or another beside it."""
    from closura.equations import EvolutionSolver

    initial = lambda x, p: 0.2 + x.x * x.y + 0.1 * x.y**2  # noqa: E731
    problem = make(boundary=SIDES[sides], initial=initial, cells=(9, 12), snapshots=4, closure=cl.Known(jnp.sin))
    theta, points = jnp.asarray(problem.parameters.mean, float), jnp.asarray(problem.points, float)
    laws = constant_laws(problem.closures, {})
    states = np.asarray(jax.jit(lambda th: EvolutionSolver(problem).solution(th, laws, 0))(theta))
    base = np.asarray(jax.vmap(lambda place: problem.lift(theta, place, 0))(points))
    np.testing.assert_allclose(base[problem.known], states[problem.known], atol=1e-5)
    free = np.asarray(jax.vmap(problem.cutoff)(points))
    np.testing.assert_allclose(free[problem.known], 0.0, atol=1e-12)
    assert free[~problem.known].min() > 0.01
    slopes = jax.vmap(jax.jacfwd(lambda place: problem.lift(theta, place, 0)))(points)
    assert np.isfinite(slopes).all()


def test_a_circle_joins_its_ends():
    with pytest.raises(cl.ProblemError, match=r"joins y=-1 and y=1, but the initial state is -1.4 at one and 1.4 at"):
        make(initial=lambda x, p: p.z * x.y).check_scheme()
    make(initial=lambda x, p: p.z * x.y, boundary={"x": "periodic", "y": "neumann"}).check_scheme()


# Stability


def spread(u, ux, uxx, x, t, p):
    return uxx.x + 0.5 * uxx.y


def carried(u, ux, uxx, x, t, p):
    return -ux.x + 0.4 * ux.y + 0.001 * (uxx.x + uxx.y)


def steep(u, ux, uxx, x, t, p):
    return (0.2 + u**2) * (uxx.x + 0.5 * uxx.y) - u * ux.x


def stirred(u, ux, uxx, x, t, p):
    return -x.y * ux.x + (x.x - 0.5) * ux.y + 0.001 * (uxx.x + uxx.y)


def waves(u, ux, uxx, x, t, p):
    return u.b, uxx.a.x + uxx.a.y


def reacting(u, ux, uxx, x, t, p):
    return uxx.a.x + uxx.a.y - u.a * u.b**2, 0.5 * (uxx.b.x + uxx.b.y) + u.a * u.b**2


PAIR = {"field": ("a", "b"), "initial": lambda x, p: (jnp.sin(2 * jnp.pi * x.x), 1 + 0.5 * jnp.cos(jnp.pi * x.y))}
EQUATIONS = {"spread": (spread, {}, 0.95), "carried": (carried, {}, 0.9), "steep": (steep, {}, 0.5)}
EQUATIONS |= {"stirred": (stirred, {}, 0.6), "waves": (waves, PAIR, 0.95), "reacting": (reacting, PAIR, 0.95)}
WAYS = {
    "spectral": {},
    "second order": {"scheme": "central", "order": 2},
    "fourth order": {"scheme": "central"},
    "held": {"boundary": "dirichlet"},
    "closed": {"boundary": "neumann"},
    "mixed": {"boundary": {"x": "periodic", "y": (cl.Dirichlet(0.0), cl.Neumann())}},
}


SOON = ("spread", "waves")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "equation", [one if one in SOON else pytest.param(one, marks=pytest.mark.nightly) for one in EQUATIONS]
)
def test_the_limit_is_on_the_safe_side_of_that_of_all_modes(equation, way):
    """Close to it where coefficients are the same everywhere; where they differ the place with the largest decides."""
    rule, options, least = EQUATIONS[equation]
    start = {"initial": lambda x, p: 1.3 + jnp.sin(2 * jnp.pi * x.x) * jnp.cos(jnp.pi * x.y)}
    problem = make(**start | options | WAYS[way], physics=rule, closure=None, cells=(10, 12))
    theta = jnp.asarray(problem.parameters.mean, float)[None]
    frozen, exact = (
        min(map(largest_stable_step, rates(problem, {}, theta, jnp.zeros(len(theta), int))))
        for rates in (frozen_rates, line_rates)
    )
    assert least < frozen / exact < 1.03
    assert problem.stable_step() == pytest.approx(frozen, rel=1e-5)


@pytest.mark.parametrize("order", [1, 3])
def test_upwind_looks_where_waves_come_from(order):
    options = {"physics": carried, "closure": None, "cells": (10, 12), "order": order}
    problem = make(**options, speed=lambda u, p, f: (1.0, -0.4))
    theta = jnp.asarray(problem.parameters.mean, float)[None]
    exact = largest_stable_step(line_rates(problem, {}, theta, jnp.zeros(len(theta), int))[0])
    assert 0.95 < problem.stable_step() / exact < 1.03


def test_unstable_steps_are_named_not_met():
    # Waves of 20 x 20 cells of width 1/20 and 1/10 decay at nu ((20 pi)^2 + (10 pi)^2) = 247 at most.
    heat = {"physics": lambda u, ux, uxx, x, t, p: p.nu * (uxx.x + uxx.y), "closure": None, "cells": 20}
    make(**heat, dt=0.00625).check_scheme()
    with pytest.raises(
        cl.ProblemError, match=r"dt=0.0125 is unstable: .* dt <= 0.0113 at .* fewer cells than \(20, 20\)"
    ):
        make(**heat, dt=0.0125).check_scheme()
    left_out = make(**heat)
    most = jnp.array([np.log(0.05) + 2 * np.hypot(0.3, 0.3), 1.4])
    assert 0.2 < left_out.dt / left_out.stable_step({}, most) <= 0.5


def test_an_equation_that_is_not_finite_says_so():
    with pytest.raises(cl.ProblemError, match="not finite at the initial state"):
        make(physics=lambda u, ux, uxx, x, t, p: uxx.x / (0 * u), closure=None).check_scheme()
