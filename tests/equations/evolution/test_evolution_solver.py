"""Schemes by their order in time and space, ends by exact solutions, derivatives by finite differences, failures as values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import closura as cl
from closura.equations import EvolutionSolver, ObservationIndex, unit_scaling
from closura.laws import Range, Scaling, prepare

pytestmark = pytest.mark.usefixtures("float64")
PI = np.pi


def evolution(physics, initial, **changes) -> cl.Evolution:
    options = {"parameters": {"a": cl.Real(guess=1.0)}, "span": (0.0, 0.5), "domain": (0.0, 1.0), "snapshots": 5}
    return cl.Evolution(physics, initial=initial, **options | changes)


def sigmoid(u):
    return 7 * (jax.nn.sigmoid(3 * u) - 0.5)


def burgers(**changes) -> cl.Evolution:
    options = {"parameters": {"nu": cl.Positive(guess=0.05), "z": cl.Real(guess=1.4)}, "closure": cl.Known(sigmoid)}
    options |= {"domain": (-1.0, 1.0), "snapshots": 10, "dt": 0.0025, "sigma": 0.1}
    initial = lambda x, p: p.z * jnp.sin(2 * PI * x) * jnp.sin(PI * x)  # noqa: E731
    return evolution(lambda u, ux, uxx, x, t, p, f: p.nu * uxx - f(u) * ux, initial, **options | changes)


THETA = np.array([np.log(0.05), 1.4])


def known(problem) -> dict:
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def solve(problem, theta=(1.0,), field=0) -> np.ndarray:
    run = jax.jit(lambda th: EvolutionSolver(problem).solution(th, known(problem), 0))
    return np.asarray(run(jnp.asarray(theta, float)))[:, field].reshape(problem.shape)


def off(problem, exact, theta=(1.0,)) -> float:
    """The largest distance from an exact solution exact(x, t)."""
    t, x = problem.points.T
    return float(np.abs(solve(problem, theta).reshape(-1) - exact(x, t)).max())


def learned() -> tuple[dict, dict]:
    law = cl.MLP(width=8, depth=2).build(jr.key(0), Scaling(jnp.zeros(1), jnp.ones(1), jnp.asarray(3.0)))
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8)))
    law = eqx.tree_at(lambda c: c.network.layers[-1].weight, law, weight)
    return {"f": law}, {"f": Range(jnp.array([-2.0]), jnp.array([2.0]))}


# Order


def travelling(**changes) -> cl.Evolution:
    return evolution(lambda u, ux, uxx, x, t, p: -p.a * ux, lambda x, p: jnp.exp(jnp.sin(2 * PI * x)), **changes)


def carried(x, t):
    return np.exp(np.sin(2 * PI * (x - t)))


def test_fourth_order_in_time():
    coarse, fine = (off(travelling(cells=40, dt=dt), carried) for dt in (0.02, 0.01))
    assert 3.8 < np.log2(coarse / fine) < 4.5
    assert fine < 1e-3


@pytest.mark.parametrize(
    ("scheme", "order", "cells"),
    [("central", 2, 80), ("central", 4, 40), ("upwind", 1, 300), ("upwind", 2, 80), ("upwind", 3, 40)],
)
@pytest.mark.parametrize("way", [1.0, -1.0])
def test_order_in_space(scheme, order, cells, way):
    options = {"scheme": scheme, "order": order, "dt": 0.001}
    options |= {"speed": lambda u, p, f: p.a} if scheme == "upwind" else {}
    errors = [off(travelling(cells=n, **options), lambda x, t: carried(x, way * t), (way,)) for n in (cells, 2 * cells)]
    assert order - 0.25 < np.log2(errors[0] / errors[1]) < order + 0.5


@pytest.mark.parametrize("dealias", [True, False])
def test_spectral_beyond_every_order(dealias):
    options = {"span": (0.0, 0.47), "dt": 0.00047, "dealias": dealias}  # snapshots a cell apart would be exact
    errors = [off(travelling(cells=cells, **options), carried) for cells in (10, 20, 40)]
    assert errors[0] / errors[1] > 50
    assert errors[2] < 1e-8


@pytest.mark.parametrize("dealias", [True, False])
def test_heat_is_conserved_and_every_wave_decays_at_its_rate(dealias):
    bumps = lambda x, p: 1 + jnp.cos(2 * PI * x) + 0.3 * jnp.cos(20 * PI * x)  # noqa: E731
    problem = evolution(lambda u, ux, uxx, x, t, p: p.a * uxx, bumps, cells=20, span=(0.0, 0.1), dt=0.0002)
    decay = lambda k, t: np.exp(-0.1 * (k * PI) ** 2 * t) * np.cos(k * PI * problem.points[:, 1])  # noqa: E731
    t = problem.points[:, 0]
    field = solve(
        problem := evolution(problem.physics, bumps, cells=20, span=(0.0, 0.1), dt=0.0002, dealias=dealias), (0.1,)
    )
    np.testing.assert_allclose(
        field.reshape(-1), 1 + decay(2, t) + 0.3 * decay(20, t), atol=1e-6
    )  # the highest one too
    np.testing.assert_allclose(field.sum(axis=1), 20.0, rtol=1e-12)


def test_burgers_against_a_fine_grid():
    fine = solve(burgers(cells=200, dt=0.0125 / 64), THETA)
    for options, most in (({}, 0.02), ({"scheme": "upwind", "speed": lambda u, p, f: f(u)}, 0.12)):
        assert np.abs(solve(burgers(**options), THETA) - fine[:, ::4]).max() < most
    # The law is odd and the initial state is odd about x = 0.5: u(1 - x) = -u(x).
    field = solve(burgers(), THETA)
    np.testing.assert_allclose(field, -field[:, (25 - np.arange(50)) % 50], atol=1e-9)


def test_steep_waves_blow_up_without_dealiasing_alone():
    theta = (np.log(0.02), 1.4)
    assert np.abs(solve(burgers(), theta)).max() < 1.7
    assert not np.abs(solve(burgers(dealias=False), theta)).max() < 10


def test_side_is_the_speed_s_not_the_field_s():
    """A positive field whose waves go left: upwind is on the right, and the other side is all wrong."""
    options = {"cells": 40, "scheme": "upwind", "order": 1, "dt": 0.005}
    good = travelling(speed=lambda u, p, f: p.a, **options)
    assert off(good, lambda x, t: carried(x, -t), (-1.0,)) < 0.8
    wrong = travelling(speed=lambda u, p, f: u, **options)
    assert not off(wrong, lambda x, t: carried(x, -t), (-1.0,)) < 4


# Ends


@pytest.mark.parametrize(("order", "least"), [(2, 1.8), (4, 3.7)])
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((cl.Dirichlet(lambda t, p: jnp.sin(t)), cl.Dirichlet(lambda t, p: jnp.sin(1 + t))), id="values"),
        pytest.param((cl.Neumann(lambda t, p: jnp.cos(t)), cl.Neumann(lambda t, p: jnp.cos(1 + t))), id="slopes"),
        pytest.param((cl.Dirichlet(lambda t, p: jnp.sin(t)), cl.Neumann(lambda t, p: jnp.cos(1 + t))), id="both"),
    ],
)
def test_ends_that_move(ends, order, least):
    """u = sin(x + t), with a source that makes it so."""

    def physics(u, ux, uxx, x, t, p):
        return 0.3 * uxx - u * ux + jnp.cos(x + t) + 0.3 * jnp.sin(x + t) + jnp.sin(x + t) * jnp.cos(x + t)

    options = {"boundary": ends, "order": order, "span": (0.0, 1.0), "dt": 0.0005}
    errors = [
        off(evolution(physics, lambda x, p: jnp.sin(x), cells=n, **options), lambda x, t: np.sin(x + t))
        for n in (10, 20)
    ]
    assert least < np.log2(errors[0] / errors[1]) < least + 1.5


def test_fourth_order_in_time_with_ends_that_move():
    def path(dt):
        problem = evolution(
            lambda u, ux, uxx, x, t, p: 0.02 * uxx - u * ux,
            lambda x, p: 1.0 + 0 * x,
            boundary=(cl.Dirichlet(lambda t, p: 1 + jnp.sin(9 * t)), cl.Neumann()),
            cells=20,
            dt=dt,
        )
        return solve(problem)

    coarse, fine = (np.abs(path(dt) - path(0.1 / 64)).max() for dt in (0.1 / 4, 0.1 / 8))
    assert 3.7 < np.log2(coarse / fine) < 4.6


def test_nothing_leaves_through_ends_without_slope():
    problem = evolution(
        lambda u, ux, uxx, x, t, p: p.a * uxx, lambda x, p: jnp.cos(PI * x), boundary="neumann", cells=20
    )
    assert off(problem, lambda x, t: np.exp(-0.2 * PI**2 * t) * np.cos(PI * x), (0.2,)) < 1e-4
    held = evolution(
        lambda u, ux, uxx, x, t, p: p.a * uxx, lambda x, p: jnp.cos(PI * x), boundary="dirichlet", cells=20
    )
    np.testing.assert_allclose(solve(held, (0.2,))[:, [0, -1]], np.tile([1.0, -1.0], (6, 1)))


def test_several_fields():
    """u_t = v_x, v_t = u_x: waves that go both ways."""
    problem = evolution(
        lambda u, ux, uxx, x, t, p: (p.a * ux.v, p.a * ux.u),
        lambda x, p: (jnp.sin(2 * PI * x), 0 * x),
        field=("u", "v"),
        cells=20,
    )
    t, x = problem.points.T
    np.testing.assert_allclose(solve(problem).reshape(-1), np.sin(2 * PI * x) * np.cos(2 * PI * t), atol=1e-3)
    np.testing.assert_allclose(solve(problem, field=1).reshape(-1), np.cos(2 * PI * x) * np.sin(2 * PI * t), atol=1e-3)


@pytest.mark.parametrize("name", ["tsit5", "kvaerno5"])
def test_adaptive_gives_the_same(name):
    options = {"cells": 30, "span": (0.0, 0.2)}
    path = solve(burgers(integrator=cl.Adaptive(name, 1e-7, 1e-8), **options), THETA)
    np.testing.assert_allclose(path, solve(burgers(**options), THETA), atol=1e-4)


# Observations


def where(problem, places, quantity=None) -> ObservationIndex:
    node, weight = problem.near(places)
    quantity = np.zeros(places.shape[:-1], int) if quantity is None else quantity
    return ObservationIndex(*(jnp.asarray(part) for part in (places, node, weight, quantity)))


def test_observed_on_the_grid_and_between():
    random = np.random.default_rng(0)
    on_grid = burgers(cells=50)
    node = random.integers(0, 11 * 50, size=(2, 7))
    spots = where(on_grid, on_grid.points[node])
    assert spots.node.shape == (2, 7, 1)
    read = jax.jit(jax.vmap(lambda at: EvolutionSolver(on_grid).predict(jnp.asarray(THETA), known(on_grid), at, 0)))
    np.testing.assert_allclose(read(spots), solve(on_grid, THETA).reshape(-1)[node])
    # The end of a periodic domain is its start.
    assert on_grid.near(np.array([[[0.5, 1.0]]]))[0].tolist() == [[[10 * 50]]]

    def between(snapshots, cells):
        problem = travelling(snapshots=snapshots, cells=cells, dt=0.5 / 400)
        spots = where(problem, places)
        assert spots.node.shape == (1, 60, 16)
        seen = jax.jit(lambda at: EvolutionSolver(problem).predict(jnp.ones(1), {}, at, 0))(
            jax.tree.map(lambda a: a[0], spots)
        )
        return np.abs(seen - carried(places[0, :, 1], places[0, :, 0])).max()

    places = random.uniform([0.0, 0.0], [0.5, 1.0], size=(1, 60, 2))
    assert np.log2(between(20, 40) / between(40, 80)) > 3.5


def test_every_quantity_and_bounded_domains():
    problem = evolution(
        lambda u, ux, uxx, x, t, p: (0 * u.u, 0 * u.v),
        lambda x, p: (x**3, p.a + x),
        field=("u", "v"),
        observed=("v", "u"),
        boundary="neumann",
        cells=10,
        dt=0.1,
    )
    places = np.array([[[0.3, 0.03], [0.45, 0.97], [0.5, 1.0]]])
    spots = jax.tree.map(lambda a: a[0], where(problem, places, np.array([[1, 0, 1]])))
    seen = EvolutionSolver(problem).predict(jnp.array([2.0]), {}, spots, 0)
    np.testing.assert_allclose(seen, [0.03**3, 2.97, 1.0])


@pytest.mark.parametrize(
    ("place", "says"),
    [((0.6, 0.0), "time=0.6 was observed outside 0 to 0.5"), ((0.1, -1.5), "x=-1.5 .* widen the problem's domain")],
)
def test_places_outside_are_refused(place, says):
    with pytest.raises(cl.DataError, match=says):
        burgers().near(np.array([[place]]))


# Derivatives


def loss(laws, theta, forward, spots):
    return jnp.sum(jnp.sin(3 * forward.predict(theta, laws, spots, 0)))


@pytest.mark.parametrize(
    "options", [{}, {"scheme": "upwind", "speed": lambda u, p, f: f(u)}], ids=["spectral", "upwind"]
)
def test_derivatives_in_theta_and_in_the_law(options):
    problem = burgers(closure=cl.MLP(width=8, depth=2), cells=20, snapshots=5, dt=0.01, **options)
    law, ranges = learned()
    spots = jax.tree.map(lambda a: a[0], where(problem, problem.points[None, [3, 31, 77, 101, 119]]))
    forward, theta, h = EvolutionSolver(problem), jnp.asarray(THETA), 1e-5
    value = eqx.filter_jit(lambda theta, law: loss(prepare(law, ranges), theta, forward, spots))
    pushed = jax.jit(jax.jacfwd(lambda theta: loss(prepare(law, ranges), theta, forward, spots)))(theta)
    for i in range(2):
        step = jnp.eye(2)[i] * h
        assert float(pushed[i]) == pytest.approx(
            float(value(theta + step, law) - value(theta - step, law)) / (2 * h), rel=1e-6
        )
    back = eqx.filter_jit(
        eqx.filter_grad(lambda law: loss(prepare(law, ranges), theta, forward.for_reverse_mode(), spots))
    )(law)
    slope = back["f"].network.layers[1].weight
    way = jnp.asarray(np.random.default_rng(1).normal(size=slope.shape))
    up, down = (
        value(
            theta,
            {"f": eqx.tree_at(lambda c: c.network.layers[1].weight, law["f"], replace_fn=lambda w, s=s: w + s * way)},
        )
        for s in (h, -h)
    )
    assert float(jnp.sum(slope * way)) == pytest.approx(float(up - down) / (2 * h), rel=1e-5)
    backwards = jax.jit(jax.grad(lambda theta: loss(prepare(law, ranges), theta, forward.for_reverse_mode(), spots)))(
        theta
    )
    np.testing.assert_allclose(backwards, pushed, rtol=1e-9)


# What misses the equation


def test_residuals_vanish_at_solutions_and_only_there():
    problem = burgers(cells=40, snapshots=40, dt=0.00625, span=(0.0, 0.25))
    forward, laws, theta = EvolutionSolver(problem), known(problem), jnp.array([np.log(0.1), 0.6])
    states = forward.solution(theta, laws, 0)
    assert forward.grid_residual(theta, laws, states, 0).shape == (40 * 40, 1)
    right, wrong = (jnp.abs(forward.grid_residual(theta, laws, c * states, 0)[80:-80]).max() for c in (1.0, 1.2))
    assert float(right) < 2e-4 < 0.02 < float(wrong)

    waves = travelling()
    exact = lambda place: jnp.exp(jnp.sin(2 * PI * (place[1] - place[0])))[None]  # noqa: E731
    places = jnp.asarray(np.random.default_rng(0).uniform(size=(9, 2)))
    residual = EvolutionSolver(waves).point_residual(jnp.ones(1), {}, exact, places, 0)
    assert residual.shape == (9, 1)
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)
    heated = evolution(lambda u, ux, uxx, x, t, p: uxx + x, lambda x, p: x)
    residual = EvolutionSolver(heated).point_residual(
        jnp.ones(1), {}, lambda place: (place[0] * place[1] ** 2)[None], places, 0
    )
    t, x = places.T
    np.testing.assert_allclose(residual[:, 0], (x**2 - 2 * t - x) / 16, atol=1e-12)


def test_visited_are_the_inputs_of_the_law():
    problem = burgers(dealias=False)
    seen = jax.jit(lambda th: EvolutionSolver(problem).law_inputs(th, known(problem), 0))(jnp.asarray(THETA))
    np.testing.assert_allclose(seen["f"][:, 0], solve(problem, THETA).reshape(-1), atol=1e-12)


# Failures


def test_a_failed_solve_is_nan_and_the_others_are_what_they_were():
    """u_t = a u^2 leaves every bound at t = 1 / a: after the last observation that is nothing to a system, before it is NaN."""
    problem = evolution(lambda u, ux, uxx, x, t, p: p.a * u**2 + uxx, lambda x, p: 1 + 0 * x, cells=8, snapshots=20)
    late, early = (where(problem, np.array([[[0.1, 0.25], [t, 0.5]]])) for t in (0.5, 0.175))
    late, early = (jax.tree.map(lambda a: a[0], spots) for spots in (late, early))
    predict = jax.jit(jax.vmap(lambda a, at: EvolutionSolver(problem).predict(a, {}, at, 0), in_axes=(0, None)))
    seen = predict(jnp.array([[1.0], [5.0], [0.5]]), late)
    assert np.isfinite(seen[0]).all()
    assert np.isfinite(seen[2]).all()
    assert not np.isfinite(seen[1]).all()
    np.testing.assert_allclose(seen[::2, 1], [2.0, 4 / 3], rtol=1e-3)
    total = lambda a, forward: jnp.sum(forward.predict(a, {}, early, 0))  # noqa: E731
    forward, a = EvolutionSolver(problem), jnp.array([5.65])  # the end comes right after the last observation
    back = jax.jit(jax.grad(lambda a: total(a, forward.for_reverse_mode())))(a)
    np.testing.assert_allclose(back, jax.jit(jax.jacfwd(lambda a: total(a, forward)))(a), rtol=1e-9)
