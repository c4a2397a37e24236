"""Evolutions on a rectangle: by their order in time and space, against the line they contain, by what they conserve."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import EvolutionSolver, ObservationIndex, unit_scaling

pytestmark = pytest.mark.usefixtures("float64")
PI = np.pi
THETA = (1.0,)


def evolution(physics, initial, **changes) -> cl.Evolution:
    options = {"parameters": {"a": cl.Real(guess=1.0)}, "span": (0.0, 0.5), "snapshots": 4}
    options |= {"domain": ((0.0, 1.0), (0.0, 1.0)), "cells": 10}
    return cl.Evolution(physics, initial=initial, **options | changes)


def known(problem) -> dict:
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def solve(problem, theta=THETA, field=0) -> np.ndarray:
    run = jax.jit(lambda th: EvolutionSolver(problem).solution(th, known(problem), 0))
    return np.asarray(run(jnp.asarray(theta, float)))[:, field].reshape(problem.shape)


def diffusion(u, ux, uxx, x, t, p):
    return p.a * (uxx.x + uxx.y)


def rule(u, ux, uxx):
    """A nonlinear equation with another coefficient in each place, so that none can be mistaken for another."""
    return 0.3 * uxx.x + 0.2 * uxx.y - u * ux.x + 0.4 * ux.y


def forced(exact):
    """The equation with a source that makes exact(t, x, y) its solution."""

    def physics(u, ux, uxx, x, t, p):
        at = (t, x.x, x.y)
        slope_t, *slopes = jax.grad(exact, argnums=(0, 1, 2))(*at)
        bends = [jax.grad(jax.grad(exact, argnums=i), argnums=i)(*at) for i in (1, 2)]
        return rule(u, ux, uxx) + slope_t - rule(exact(*at), type(ux)(*slopes), type(ux)(*bends))

    return physics


def off(problem, exact) -> float:
    truth = jax.vmap(exact)(*jnp.asarray(problem.points).T)
    return float(np.abs(solve(problem).ravel() - truth).max())


def held(t, x, y):
    return 1.0 + jnp.sin(t) + jnp.sin(PI * x) * jnp.sin(2 * PI * y) * jnp.exp(-t)


def sloped(t, x, y):
    return jnp.sin(x + t) + jnp.cos(2 * y - t)


def round_and_round(t, x, y):
    return jnp.exp(jnp.sin(2 * PI * (x - t))) * (1.3 + jnp.cos(2 * PI * y))


ENDS = {
    "values": (held, cl.Dirichlet(lambda t, p: 1.0 + jnp.sin(t))),
    "slopes": (
        sloped,
        {
            "x": (cl.Neumann(lambda t, p: jnp.cos(t)), cl.Neumann(lambda t, p: jnp.cos(1 + t))),
            "y": (cl.Neumann(lambda t, p: 2 * jnp.sin(t)), cl.Neumann(lambda t, p: -2 * jnp.sin(2 - t))),
        },
    ),
    "circles": (round_and_round, "periodic"),
}


@pytest.mark.parametrize(("order", "least"), [(2, 1.8), (4, 3.6)])
@pytest.mark.parametrize("ends", ENDS)
def test_order_in_space(ends, order, least):
    exact, boundary = ENDS[ends]
    cells = (20, 40) if ends == "circles" else (10, 20)
    options = {"boundary": boundary, "scheme": "central", "order": order, "span": (0.0, 0.1), "dt": 0.025 / 64}
    errors = [
        off(evolution(forced(exact), lambda x, p: exact(0.0, x.x, x.y), cells=(n, n * 6 // 5), **options), exact)
        for n in cells
    ]
    assert least < np.log2(errors[0] / errors[1]) < least + 1.6


@pytest.mark.parametrize("dealias", [True, False])
def test_spectral_beyond_every_order(dealias):
    def errors(n):
        options = {"span": (0.0, 0.1), "dt": 0.025 / 64, "dealias": dealias, "cells": (n, 8)}
        initial = lambda x, p: round_and_round(0.0, x.x, x.y)  # noqa: E731
        return off(evolution(forced(round_and_round), initial, **options), round_and_round)

    assert errors(10) / errors(20) > 50
    assert errors(32) < 1e-8


def test_order_in_time():
    """With ends that move."""

    def path(dt):
        boundary = {"x": (cl.Dirichlet(lambda t, p: 1 + jnp.sin(9 * t)), cl.Neumann()), "y": "periodic"}
        initial = lambda x, p: 1.0 + 0.1 * jnp.sin(PI * x.x) * jnp.cos(2 * PI * x.y)  # noqa: E731
        physics = lambda u, ux, uxx, x, t, p: 0.02 * (uxx.x + uxx.y) - u * ux.x  # noqa: E731
        return solve(evolution(physics, initial, boundary=boundary, dt=dt))

    coarse, fine = (np.abs(path(dt) - path(0.125 / 64)).max() for dt in (0.125 / 4, 0.125 / 8))
    assert 3.7 < np.log2(coarse / fine) < 4.6


@pytest.mark.parametrize("options", [{}, {"scheme": "central"}, {"boundary": "neumann", "order": 2}])
def test_mass_is_conserved(options):
    bumps = lambda x, p: jnp.exp(jnp.sin(2 * PI * x.x)) * (1 + x.y**2 * (1 - x.y) ** 2)  # noqa: E731
    problem = evolution(diffusion, bumps, cells=(10, 12), **options)
    field = solve(problem, (0.3,))
    for axis, line in enumerate(problem.nodes, start=1):
        weight = np.ones(len(line))
        if not problem.periodic[axis]:
            weight[[0, -1]] = 0.5
        field = field * weight.reshape([-1 if i == axis else 1 for i in range(3)])
    mass = field.sum(axis=(1, 2))
    np.testing.assert_allclose(mass, mass[0], rtol=1e-12)
    assert np.ptp(solve(problem, (0.3,))[-1]) < 0.2 * np.ptp(solve(problem, (0.3,))[0])


SCHEMES = {
    "dealiased": {},
    "central": {"boundary": {"x": (cl.Dirichlet(0.5), cl.Neumann(0.2)), "y": "neumann"}},
    "upwind": {"speed": lambda u, p, f: (u, -0.3)},
}


@pytest.mark.parametrize("name", SCHEMES)
def test_exchange_of_x_and_y(name):
    options = SCHEMES[name]
    swapped = dict(options)
    if "boundary" in options:
        swapped["boundary"] = {"x": options["boundary"]["y"], "y": options["boundary"]["x"]}
    if "speed" in options:
        swapped["speed"] = lambda u, p, f: (-0.3, u)
    initial = lambda x, p: 0.5 + jnp.sin(2 * PI * x.x) * jnp.cos(PI * x.y)  # noqa: E731
    one = evolution(
        lambda u, ux, uxx, x, t, p: 0.02 * uxx.x + 0.01 * uxx.y - u * ux.x + 0.3 * ux.y + 0.1 * x.x * x.y**2,
        initial,
        domain=((0.0, 1.0), (-1.0, 1.0)),
        cells=(12, 10),
        dt=0.025,
        **options,
    )
    other = evolution(
        lambda u, ux, uxx, x, t, p: 0.02 * uxx.y + 0.01 * uxx.x - u * ux.y + 0.3 * ux.x + 0.1 * x.y * x.x**2,
        lambda x, p: initial(type(x)(x.y, x.x), p),
        domain=((-1.0, 1.0), (0.0, 1.0)),
        cells=(10, 12),
        dt=0.025,
        **swapped,
    )
    np.testing.assert_allclose(solve(one), np.swapaxes(solve(other), 1, 2), atol=1e-12)
    assert np.ptp(solve(one)[-1], axis=1).max() > 0.1


@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize("name", ["dealiased", "central", "held", "upwind"])
def test_the_same_as_a_line_where_nothing_changes_across(name, axis):
    ends = {
        "central": (cl.Dirichlet(lambda t, p: 0.5 + t), cl.Neumann(0.2)),
        "held": (cl.Dirichlet(), cl.Neumann(0.2)),
    }.get(name, "periodic")
    law = {"closure": cl.Known(lambda u: u**2 / 2), "dt": 0.025}
    initial = lambda x: 0.5 + 0.4 * jnp.sin(2 * PI * x)  # noqa: E731
    line = evolution(
        lambda u, ux, uxx, x, t, p, f: 0.02 * uxx - f(u) * ux + 0.1 * x,
        lambda x, p: initial(x),
        domain=(0.0, 1.0),
        boundary=ends,
        cells=14,
        **law | ({"speed": lambda u, p, f: f(u)} if name == "upwind" else {}),
    )
    first, other = (0, 1) if axis == "x" else (1, 0)
    speed = {"speed": lambda u, p, f: (f(u), 1.0) if axis == "x" else (1.0, f(u))} if name == "upwind" else {}
    plane = evolution(
        lambda u, ux, uxx, x, t, p, f: (
            0.02 * uxx[first] + 0.05 * uxx[other] - f(u) * ux[first] - 0.3 * ux[other] + 0.1 * x[first]
        ),
        lambda x, p: initial(x[first]),
        boundary={axis: ends, "y" if axis == "x" else "x": "neumann" if ends != "periodic" else "periodic"},
        cells=(14, 8) if axis == "x" else (8, 14),
        **law | speed,
    )
    expected = np.expand_dims(solve(line), 2 - first)
    np.testing.assert_allclose(solve(plane), np.broadcast_to(expected, plane.shape), atol=1e-11)


def test_values_are_held_along_their_sides():
    sides = {"x": (cl.Dirichlet(), cl.Dirichlet(lambda t, p: p.a * t)), "y": (cl.Dirichlet(2.0), cl.Neumann())}
    problem = evolution(diffusion, lambda x, p: x.y**2 + x.x, boundary=sides, cells=(9, 8))
    field = solve(problem, (0.5,))
    np.testing.assert_allclose(field[:, 0, 1:], np.tile(problem.nodes[1][1:] ** 2, (5, 1)))
    np.testing.assert_allclose(field[:, -1, 1:], np.tile(0.5 * problem.times[:, None], 8))
    np.testing.assert_allclose(field[:, :, 0], 2.0)  # and the corners: y comes last
    assert np.abs(field[-1, 1:-1, 1:] - field[0, 1:-1, 1:]).min() > 1e-3


def test_several_fields():
    """Waves in the plane: u_t = v, v_t = u_xx + u_yy, and a third field that follows the gradient of the first."""
    problem = evolution(
        lambda u, ux, uxx, x, t, p: (u.v, p.a**2 * (uxx.u.x + uxx.u.y), ux.u.y),
        lambda x, p: (jnp.sin(2 * PI * x.x) * jnp.cos(2 * PI * x.y), 0.0, 0.0),
        field=("u", "v", "w"),
        dt=0.0125 / 4,
    )
    t, x, y = problem.points.T
    pace = np.sqrt(8) * PI
    u = np.sin(2 * PI * x) * np.cos(2 * PI * y) * np.cos(pace * t)
    w = -2 * PI * np.sin(2 * PI * x) * np.sin(2 * PI * y) * np.sin(pace * t) / pace
    np.testing.assert_allclose(solve(problem).ravel(), u, atol=1e-5)
    np.testing.assert_allclose(solve(problem, field=2).ravel(), w, atol=1e-5)


def test_adaptive_gives_the_same():
    initial = lambda x, p: jnp.cos(PI * x.x) * jnp.cos(PI * x.y)  # noqa: E731
    fixed, adaptive = (
        solve(evolution(diffusion, initial, boundary="neumann", integrator=integrator), (0.1,))
        for integrator in (cl.RK4(), cl.Adaptive("tsit5", 1e-7, 1e-8))
    )
    np.testing.assert_allclose(adaptive, fixed, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"boundary": {"x": "neumann", "y": cl.Neumann(0.3)}}])
def test_bands_and_matrices_agree(options, monkeypatch):
    problem = evolution(diffusion, lambda x, p: 0.0 * x.x, scheme="central", cells=(21, 19), **options)
    field = jnp.asarray(np.random.default_rng(0).normal(size=problem.grid.shape))
    dense = problem.grid.derivatives(field, ((0.1, 0.2), (0.3, 0.4)))
    monkeypatch.setattr("closura.equations.evolution._schemes.DENSE", 0)
    banded = problem.grid.derivatives(field, ((0.1, 0.2), (0.3, 0.4)))
    for one, other in zip(jax.tree.leaves(dense), jax.tree.leaves(banded), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


# Observations


def smooth(**changes) -> cl.Evolution:
    initial = lambda x, p: p.a * jnp.cos(PI * x.x) * jnp.cos(2 * PI * x.y)  # noqa: E731
    ends = {"x": "neumann", "y": "periodic"}
    return evolution(lambda u, ux, uxx, x, t, p: 0.05 * (uxx.x + uxx.y), initial, boundary=ends, **changes)


def where(problem, places) -> ObservationIndex:
    node, weight = problem.near(places)
    return ObservationIndex(*(jnp.asarray(part) for part in (places, node, weight, np.zeros(places.shape[:-1], int))))


def test_observed_on_the_grid_and_between():
    random, problem = np.random.default_rng(0), smooth()
    node = random.integers(0, len(problem.points), size=(2, 7))
    spots = where(problem, problem.points[node])
    assert spots.node.shape == (2, 7, 1)
    read = jax.vmap(lambda at: EvolutionSolver(problem).predict(jnp.ones(1), {}, at, 0))(spots)
    np.testing.assert_allclose(read, solve(problem).ravel()[node], atol=1e-12)
    places = random.uniform(0, [0.5, 1.0, 1.0], size=(1, 60, 3))

    def between(cells):
        fine = smooth(cells=cells, snapshots=cells // 2)
        assert where(fine, places).node.shape == (1, 60, 64)
        spots = jax.tree.map(lambda a: a[0], where(fine, places))
        t, x, y = places[0].T
        truth = np.exp(-0.25 * PI**2 * t) * np.cos(PI * x) * np.cos(2 * PI * y)
        return np.abs(EvolutionSolver(fine).predict(jnp.ones(1), {}, spots, 0) - truth).max()

    assert np.log2(between(10) / between(20)) > 3.3


@pytest.mark.parametrize(
    ("place", "says"),
    [((0.1, 0.5, 1.2), "y=1.2 was observed outside 0 to 1, .* domain"), ((0.7, 0.5, 0.5), "time=0.7")],
)
def test_places_outside_are_refused(place, says):
    with pytest.raises(cl.DataError, match=says):
        smooth().near(np.array([[place]]))


@pytest.mark.parametrize("axis", ["time", "x", "y"])
def test_the_error_of_reading_is_told_by_axis(axis):
    wave = {"time": 12.0, "x": PI, "y": 2 * PI}[axis]
    sizes = {"time": {"snapshots": 8, "cells": 32}, "x": {"cells": (10, 32)}, "y": {"cells": (32, 10)}}[axis]
    problem = smooth(**{"snapshots": 32} | sizes, dt=None, sigma=0.1)
    frame = pd.DataFrame(np.random.default_rng(0).uniform(0, [0.5, 1.0, 1.0], (200, 3)), columns=problem.axes)
    data = cl.Observations.from_frame(frame.assign(system="a", u=0.0), axes=problem.axes)
    data = data.matched(problem.observed, dict(zip(problem.axes, problem.bounds)), 0.1)
    number = problem.axes.index(axis)
    fit = np.cos(wave * problem.points[:, number])[None, None]
    node, weight = problem.near(data.place)
    apart = np.sum(weight * fit[0, 0][node], axis=-1) - np.cos(wave * data.place[..., number])
    found = problem.interpolation_error(data, fit, data.sigma)
    assert found[axis] == pytest.approx(np.sqrt(np.mean((apart / 0.1) ** 2)), rel=0.4)
    assert all(error < 1e-5 for name, error in found.items() if name != axis)


# Derivatives, and what misses the equation


def test_derivatives_against_differences():
    problem = evolution(
        lambda u, ux, uxx, x, t, p, f: 0.05 * (uxx.x + p.a * uxx.y) - f(u) * ux.x,
        lambda x, p: p.a * jnp.sin(2 * PI * x.x) * jnp.cos(2 * PI * x.y),
        closure=cl.Known(lambda u: u**2),
        dt=0.025,
    )
    forward, spots = EvolutionSolver(problem), jax.tree.map(lambda a: a[0], where(problem, problem.points[None, 3::97]))
    loss = lambda a, forward=forward: jnp.sum(jnp.sin(3 * forward.predict(a, known(problem), spots, 0)))  # noqa: E731
    value, at, h = jax.jit(loss), jnp.array([0.8]), 1e-5
    pushed = float(jax.jit(jax.jacfwd(loss))(at)[0])
    assert pushed == pytest.approx(float(value(at + h) - value(at - h)) / (2 * h), rel=1e-6)
    back = jax.jit(jax.grad(lambda a: loss(a, forward.for_reverse_mode())))(at)
    assert float(back[0]) == pytest.approx(pushed, rel=1e-9)


def test_residuals_vanish_at_solutions_and_only_there():
    problem = smooth(snapshots=20, cells=12)
    forward, theta = EvolutionSolver(problem), jnp.ones(1)
    states = forward.solution(theta, {}, 0)
    assert forward.grid_residual(theta, {}, states, 0).shape == (20 * 13 * 12, 1)
    right, wrong = (float(jnp.abs(forward.grid_residual(theta, {}, states**c, 0)).max()) for c in (1, 3))
    assert right < 2e-3 < 0.02 < wrong

    def exact(place):
        t, x, y = place
        return (jnp.exp(-0.25 * PI**2 * t) * jnp.cos(PI * x) * jnp.cos(2 * PI * y))[None]

    places = jnp.asarray(np.random.default_rng(0).uniform(size=(9, 3)))
    np.testing.assert_allclose(forward.point_residual(theta, {}, exact, places, 0), 0.0, atol=1e-12)
    tilted = evolution(lambda u, ux, uxx, x, t, p: ux.x + 2 * ux.y + 3 * uxx.y + x.x * x.y, lambda x, p: x.x)
    found = EvolutionSolver(tilted).point_residual(theta, {}, lambda place: (place[1] * place[2] ** 2)[None], places, 0)
    _, x, y = places.T
    np.testing.assert_allclose(found[:, 0], -(y**2 + 4 * x * y + 6 * x + x * y) / 16, atol=1e-12)


def test_visited_are_the_inputs_of_the_law():
    problem = evolution(
        lambda u, ux, uxx, x, t, p, f: f(ux.x, ux.y) + uxx.x,
        lambda x, p: jnp.sin(2 * PI * x.x) * jnp.cos(2 * PI * x.y),
        closure=cl.Known(lambda a, b: 0 * a * b, inputs=2),
        dealias=False,
    )
    seen = EvolutionSolver(problem).law_inputs(jnp.ones(1), known(problem), 0)["f"]
    _, x, y = problem.points[:100].T
    slopes = np.stack([np.cos(2 * PI * x) * np.cos(2 * PI * y), -np.sin(2 * PI * x) * np.sin(2 * PI * y)], axis=-1)
    np.testing.assert_allclose(seen[:100], 2 * PI * slopes, atol=1e-9)


def test_nothing_after_the_last_observation_is_solved():
    problem = smooth(sigma=0.1)
    frame = pd.DataFrame({"system": "a", "time": [0.125, 0.25], "x": 0.5, "y": 0.9, "u": 0.0})
    data = cl.Observations.from_frame(frame, axes=problem.axes)
    forward, spots = problem.solver(data.matched(problem.observed, dict(zip(problem.axes, problem.bounds)), 0.1))
    assert forward.count == 2
    assert spots.node.shape == (1, 2, 1)
