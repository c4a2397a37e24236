"""The elliptic solver by exact solutions, conservation and finite differences; failures as values."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import closura as cl
from closura.forward import EllipticSolver
from closura.forward._krylov import bicgstab
from closura.forward._locate import stencil
from closura.forward._stencil import Stencil
from closura.problem import Range, Scaling, prepare, unit_scaling

THETA = np.array([0.4, -0.3])


def conductivity(u, x, p, f):
    """No product of a function of x and one of u: the equations have no symmetric derivative."""
    return jnp.exp(p.k * x.x * jnp.sin(2 * u)) + 0.3 * f(u) ** 2


def exact(x, p):
    return 0.5 + p.g * x.y + jnp.sin(jnp.pi * x.x / 2) * jnp.cos(jnp.pi * x.y)


def source_of(solution, natural_law=jnp.sin):
    """The source that makes `solution` one, by differentiation."""

    def source(x, p):
        def flow(place):
            value, slope = jax.value_and_grad(lambda at: solution(type(x)(*at), p))(place)
            return conductivity(value, type(x)(*place), p, natural_law) * slope

        return -jnp.trace(jax.jacfwd(flow)(jnp.stack([x.x, x.y])))

    return source


def make(domain, **changes) -> cl.Elliptic:
    options = {"source": source_of(exact), "boundary": exact, "parameters": {"k": cl.Real(), "g": cl.Real()}}
    options |= {"closure": cl.Known(jnp.sin), "coefficient": conductivity} | changes
    return cl.Elliptic(options.pop("coefficient"), options.pop("source"), domain=domain, **options)


def known(problem) -> dict:
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def solve(problem, theta=THETA) -> np.ndarray:
    run = jax.jit(lambda th: EllipticSolver(problem).solution(th, known(problem)))
    return np.asarray(run(jnp.asarray(theta, float)))[:, 0]


def error(problem, solution=exact) -> float:
    p = problem.parameters.constrain(jnp.asarray(THETA, float))
    true = jax.jit(jax.vmap(lambda at: solution(cl.problem._elliptic.Place(*at), p)))(
        jnp.asarray(problem.points, float)
    )
    return float(np.abs(solve(problem) - true).max())


def square(n) -> cl.Rectangle:
    return cl.Rectangle(nodes=(n, n + 2))


@functools.cache
def irregular(level, shape="square") -> cl.Mesh:
    """Six cells a side with their inner nodes moved at random, halved `level` times; L-shaped without its last quarter."""
    grid = cl.Rectangle(nodes=(7, 7))
    points, triangles = grid.points, grid.triangles
    if shape == "L":
        triangles = triangles[~np.all(points[triangles].mean(axis=1) > 0.5, axis=1)]
        used, flat = np.unique(triangles, return_inverse=True)
        points, triangles = points[used], flat.reshape(-1, 3)
    inside = np.setdiff1d(np.arange(len(points)), cl.problem._domain.boundary_edges(triangles))
    points[inside] += np.random.default_rng(0).uniform(-0.04, 0.04, (len(inside), 2))
    for _ in range(level):
        points, triangles = halved(points, triangles)
    return cl.Mesh(points, triangles)


def halved(points, triangles) -> tuple[np.ndarray, np.ndarray]:
    sides = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]], axis=-1)
    edges, number = np.unique(sides.reshape(-1, 2), axis=0, return_inverse=True)
    (a, b, c), (ab, bc, ca) = triangles.T, len(points) + number.reshape(-1, 3).T
    parts = [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
    return np.r_[points, points[edges].mean(axis=1)], np.concatenate([np.stack(part, -1) for part in parts])


# The field


def right(x, y):
    return x > 0.999


def upper_right(x, y):
    return (x > 0.999) & (y > 0.5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("coarse", "fine", "natural", "order"),
    [
        pytest.param(square(13), square(25), None, 1.7, id="grid"),
        pytest.param(square(13), square(25), upper_right, 1.7, id="grid, half a side natural"),
        pytest.param(irregular(1), irregular(2), right, 1.7, id="irregular, a side natural"),
        # At a corner that points inward the largest error falls like h^(4/3).
        pytest.param(irregular(1, "L"), irregular(2, "L"), right, 1.3, id="L, a side natural"),
    ],
)
def test_order(coarse, fine, natural, order):
    """Nothing flows through x = 1 in the exact solution."""
    first, second = (error(make(domain, natural=natural)) for domain in (coarse, fine))
    assert first / second > 2**order
    assert second < 4e-3


@pytest.mark.usefixtures("float64")
def test_natural_on_three_sides():
    """Nothing flows through y = 0, y = 1 and x = 1; what is prescribed at x = 0 has a parameter in it."""

    def solution(x, p):
        return 0.5 + p.g + jnp.sin(jnp.pi * x.x / 2) * jnp.cos(jnp.pi * x.y)

    options = {"boundary": lambda x, p: 0.5 + p.g, "source": source_of(solution)}
    options |= {"natural": lambda x, y: x > 1e-6}
    first, second = (error(make(square(n), **options), solution) for n in (13, 25))
    assert first / second > 2**1.7


def stretched_darcy(domain, **options) -> cl.Elliptic:
    def a(u, x, p, f):
        return jnp.exp(p.k * jnp.sin(jnp.pi * x.x) * jnp.sin(jnp.pi * x.y)) * jax.nn.sigmoid(f(u))

    def s(x, p):
        return 20 * jnp.sin(jnp.pi * x.x) * jnp.sin(jnp.pi * x.y)

    return make(domain, coefficient=a, source=s, boundary=None, closure=cl.Known(lambda u: u**2 / 2), **options)


@pytest.mark.usefixtures("float64")
def test_a_symmetric_problem_has_a_symmetric_solution():
    u = solve(stretched_darcy(cl.Rectangle(nodes=(21, 21)))).reshape(21, 21)
    assert u.max() > 1
    for other in (u[::-1], u[:, ::-1], u.T):
        np.testing.assert_allclose(u, other, atol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("domain", [square(13), irregular(1, "L")], ids=["grid", "L"])
def test_what_the_source_gives_flows_out(domain):
    """Through x = 0, the only side that is not natural: the sum of all equations, in flows along edges or in elements."""
    problem = stretched_darcy(domain, natural=lambda x, y: x > 1e-6)
    u, mesh = solve(problem), EllipticSolver(problem).mesh
    a = np.exp(THETA[0] * np.prod(np.sin(np.pi * problem.points), axis=1)) / (1 + np.exp(-(u**2) / 2))
    if problem.shape:
        u, a, (n, m) = u.reshape(problem.shape), a.reshape(problem.shape), problem.shape
        width = np.r_[0.5, np.ones(m - 2), 0.5] / (m - 1)
        out = np.sum(width * (n - 1) * 0.5 * (a[0] + a[1]) * (u[1] - u[0]))
    else:
        corners = problem.points[domain.triangles]
        gradients = np.linalg.inv(np.concatenate([np.ones((*corners.shape[:2], 1)), corners], axis=2))[:, 1:]
        flow = a[domain.triangles].mean(axis=1)[:, None] * np.einsum("tdi,ti->td", gradients, u[domain.triangles])
        area = 0.5 * np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1]))
        pull = np.einsum("t,tdi,td->ti", area, gradients, flow)
        out = -np.sum(pull[problem.dirichlet[domain.triangles]])
    given = 20 * np.prod(np.sin(np.pi * problem.points), axis=1) * mesh.area
    assert out == pytest.approx(np.sum(given[~problem.dirichlet]), rel=1e-8)
    assert mesh.area.sum() == pytest.approx(0.75 if problem.shape is None else 1.0)


@pytest.mark.parametrize("domain", [square(25), irregular(2)], ids=["grid", "irregular"])
def test_single_precision_is_near_double(domain):
    problem = stretched_darcy(domain)
    single = solve(problem)
    with jax.enable_x64(True):
        double = solve(problem)
    assert single.dtype == np.float32
    assert np.abs(single - double).max() < 1e-4 * double.max()


@pytest.mark.usefixtures("float64")
def test_warm_start_gives_the_same_answer():
    problem = stretched_darcy(square(13))
    solver, laws = EllipticSolver(problem), known(problem)
    warm = jax.jit(lambda: solver.model(laws, None).start)()
    np.testing.assert_allclose(warm, solve(problem, problem.parameters.mean), atol=1e-9)
    there = jax.jit(lambda th: solver.solution(th, laws, warm))(jnp.asarray(THETA))
    np.testing.assert_allclose(there[:, 0], solve(problem), atol=1e-9)


def test_no_source_no_field_whatever_the_start():
    problem = make(square(9), boundary=None, source=lambda x, p: 0.0)
    solver = EllipticSolver(problem)
    u = jax.jit(lambda start: solver.solution(jnp.zeros(2), known(problem), start))(jnp.ones(99))
    assert np.abs(u).max() < 1e-4


# Derivatives


def learned(problem) -> tuple[dict, dict]:
    law = problem.closures["f"].build(jr.key(0), Scaling(jnp.zeros(1), jnp.ones(1), jnp.ones(())))
    return moved({"f": law}, 0.3), {"f": Range(jnp.array([-3.0]), jnp.array([3.0]))}


def moved(laws, step) -> dict:
    """The same law, all weights moved in a random direction."""
    weights, rest = eqx.partition(laws["f"].network, eqx.is_inexact_array)
    flat, unflatten = ravel_pytree(weights)
    network = eqx.combine(unflatten(flat + step * np.random.default_rng(1).normal(size=flat.size)), rest)
    return {"f": eqx.tree_at(lambda c: c.network, laws["f"], network)}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("domain", [square(9), irregular(0)], ids=["grid", "irregular"])
def test_derivatives_against_finite_differences(domain):
    """Forward in theta, several tangents at once; backward in theta and in the law, through its table."""
    problem = make(domain, closure=cl.MLP(width=8, depth=2), natural=lambda x, y: x > 0.999)
    solver, (laws, ranges), theta = EllipticSolver(problem), learned(problem), jnp.asarray(THETA)
    weight = jnp.asarray(np.random.default_rng(2).normal(size=len(problem.points)))

    @eqx.filter_jit
    def score(theta, laws):
        return weight @ solver.solution(theta, prepare(laws, ranges))[:, 0]

    h = 1e-5
    by_hand = [(score(theta + h * e, laws) - score(theta - h * e, laws)) / (2 * h) for e in np.eye(2)]
    forward = jax.jit(jax.vmap(lambda e: jax.jvp(lambda th: score(th, laws), (theta,), (e,))[1]))(jnp.eye(2))
    slope, law_slope = eqx.filter_jit(eqx.filter_grad(lambda both: score(*both)))((theta, laws))
    np.testing.assert_allclose(forward, by_hand, rtol=1e-6)
    np.testing.assert_allclose(slope, by_hand, rtol=1e-6)
    along = ravel_pytree(eqx.filter(moved(laws, 1.0)["f"].network, eqx.is_inexact_array))[0]
    along -= ravel_pytree(eqx.filter(laws["f"].network, eqx.is_inexact_array))[0]
    found = along @ ravel_pytree(eqx.filter(law_slope["f"].network, eqx.is_inexact_array))[0]
    by_hand = (score(theta, moved(laws, h)) - score(theta, moved(laws, -h))) / (2 * h)
    np.testing.assert_allclose(found, by_hand, rtol=1e-5)
    assert abs(found) > 1e-3


# Failures


def test_failure_is_nan_for_that_system_alone():
    """k so large that the coefficient overflows, and a coefficient that is negative, beside systems that can be solved."""
    problem = make(
        square(9), coefficient=lambda u, x, p, f: p.g + jnp.exp(p.k * u) + f(u) ** 2, closure=cl.Known(jnp.sin)
    )
    solver, laws = EllipticSolver(problem), known(problem)
    good = jnp.array([[0.4, 0.3], [0.2, 0.1], [0.1, 0.5]])
    bad = good.at[0].set(jnp.array([0.4, -5.0])).at[2].set(jnp.array([1e6, 0.0]))

    @jax.jit
    def run(theta):
        def each(theta):
            return solver.solution(theta, laws)[:, 0]

        tangents = jax.vmap(lambda e: jax.jvp(jax.vmap(each), (theta,), (jnp.broadcast_to(e, theta.shape),)))(
            jnp.eye(2)
        )
        return *tangents, jax.grad(lambda th: jnp.sum(jax.vmap(each)(th)[1]))(theta)

    (u, du, slope), (good_u, good_du, good_slope) = run(bad), run(good)
    assert np.isfinite(good_u).all()
    inside = ~problem.dirichlet
    for values in (u[0], du[0]):
        assert np.isnan(values[0][inside]).all()
        assert np.isnan(values[2][inside]).all()
    np.testing.assert_allclose(u[:, 1], good_u[:, 1], rtol=1e-5)
    np.testing.assert_allclose(du[:, 1], good_du[:, 1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(slope[1], good_slope[1], rtol=1e-3)


def test_a_law_too_steep_for_full_steps():
    """Newton's steps are halved where the coefficient falls steeply with u."""
    problem = stretched_darcy(square(13)).with_closure(cl.Known(lambda u: 8 * (u - 1)))
    residual = jax.jit(lambda u: EllipticSolver(problem).grid_residual(jnp.asarray(THETA, float), known(problem), u))
    u = solve(problem)
    assert np.abs(residual(jnp.asarray(u)[:, None])).max() < 1e-4 * u.max()


def test_bicgstab():
    random = np.random.default_rng(0)
    matrix = jnp.asarray(np.eye(30) + 0.1 * random.normal(size=(30, 30)), float)
    rhs = jnp.asarray(random.normal(size=(3, 30)), float).at[1].set(0.0).at[2].set(jnp.nan)
    x, size = jax.jit(jax.vmap(lambda b: bicgstab(lambda v: matrix @ v, b, 1e-4, 50)))(rhs)
    np.testing.assert_allclose(matrix @ x[0], rhs[0], atol=2e-4)
    assert (float(size[1]), np.abs(x[1]).max()) == (0.0, 0.0)
    assert np.isnan(size[2])


# Residuals


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("domain", [square(17), irregular(1)], ids=["grid", "irregular"])
def test_grid_residual_is_the_error_of_u(domain):
    """Preconditioned, for smooth and rough errors alike; by the diagonal, for rough ones."""
    problem = make(domain)
    solver, laws, theta = EllipticSolver(problem), known(problem), jnp.asarray(THETA)
    u = solve(problem)
    run = jax.jit(lambda u, way: solver.grid_residual(theta, laws, u[:, None], way), static_argnums=1)
    for way in (True, False):
        assert np.abs(run(jnp.asarray(u), way)).max() < 1e-9
    random = np.random.default_rng(0).normal(size=len(u))
    for rough, change in ((False, np.prod(np.sin(np.pi * problem.points), axis=1)), (True, random)):
        change = np.where(problem.dirichlet, 0.0, 1e-5 * change)
        smooth, scaled = (
            np.linalg.norm(run(jnp.asarray(u + change), way)) / np.linalg.norm(change) for way in (True, False)
        )
        assert 0.6 < smooth < 1.7
        assert (0.6 < scaled < 1.7) if rough else scaled < 0.1


@pytest.mark.usefixtures("float64")
def test_point_residual_is_the_strong_form():
    problem = make(square(5))
    solver, laws, theta = EllipticSolver(problem), known(problem), jnp.asarray(THETA)
    place, p = cl.problem._elliptic.Place, problem.parameters.constrain(theta)
    places = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (20, 2)))

    def other(x, p):
        return exact(x, p) + x.x**2 * x.y

    def residual(function):
        return jax.jit(lambda: solver.point_residual(theta, laws, lambda at: function(place(*at), p)[None], places))()

    assert np.abs(residual(exact)).max() < 1e-12
    each = jax.jit(jax.vmap(lambda at: [s(place(*at), p) for s in (source_of(other), source_of(exact))]))(places)
    a = jax.jit(jax.vmap(lambda at: conductivity(other(place(*at), p), place(*at), p, jnp.sin)))(places)
    np.testing.assert_allclose(residual(other)[:, 0], (each[0] - each[1]) / (2 * np.pi**2 * a), rtol=1e-9)


# Observations


@pytest.mark.parametrize(
    "domain", [cl.Rectangle(x=(0.0, 2.0), y=(-1.0, 0.0), nodes=(7, 9)), irregular(1, "L")], ids=["grid", "L"]
)
def test_stencil_interpolates_linearly(domain):
    problem = make(domain)
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(3), (2, 40))
    places = np.einsum(
        "koi,koid->kod", weights, domain.points[domain.triangles[random.integers(len(domain.triangles), size=(2, 40))]]
    )
    places[0, :3] = domain.points[[0, 11, -1]]
    node, weight = stencil(problem, places)
    assert node.shape == weight.shape == (2, 40, 3)
    assert weight.min() >= 0
    np.testing.assert_allclose(np.einsum("koi,koid->kod", weight, domain.points[node]), places, atol=1e-9)
    np.testing.assert_array_equal(np.sort(weight[0, :3]), [[0, 0, 1]] * 3)
    np.testing.assert_array_equal(node[0, :3][weight[0, :3] == 1], [0, 11, len(domain.points) - 1])


@pytest.mark.parametrize(
    ("domain", "outside"), [(square(9), (1.2, 0.5)), (irregular(0, "L"), (0.8, 0.9)), (square(9), (np.nan, 0.0))]
)
def test_places_outside_the_domain_are_refused(domain, outside):
    places = np.full((2, 3, 2), 0.25)
    places[1, 2] = outside
    says = (
        rf"observed outside the domain, .* \({outside[0]:.6g}, {outside[1]:.6g}\) of system number 2\. Check the unit"
    )
    with pytest.raises(cl.DataError, match=says):
        stencil(make(domain), places)
    _, weight = stencil(make(domain), places, np.arange(6).reshape(2, 3) < 5)
    assert (weight[1, 2].sum(), weight.sum()) == (0, pytest.approx(5))


@pytest.mark.parametrize("domain", [square(9), irregular(0)], ids=["grid", "irregular"])
def test_predictions_in_a_batch_over_devices(domain):
    """Chains by systems with tangents outermost, as a sampler asks, inside shard_map; against one solve each."""
    problem = stretched_darcy(domain)
    solver, laws = EllipticSolver(problem), known(problem)
    random = np.random.default_rng(0)
    node, weight = stencil(problem, random.uniform(0.1, 0.9, (3, 4, 2)))
    zeros = np.zeros((3, 4))
    where = Stencil(
        jnp.asarray(zeros, float),
        jnp.asarray(node, jnp.int32),
        jnp.asarray(weight, float),
        jnp.asarray(zeros, jnp.int32),
    )
    theta = jnp.asarray(random.normal(size=(2, 3, 2)), float)

    def linearise(theta):
        model = solver.model(laws, None)
        predict = jax.vmap(jax.vmap(lambda th, at: solver.predict(th, model, at)), in_axes=(0, None))

        def push(e):
            return jax.jvp(lambda th: predict(th, where), (theta,), (jnp.broadcast_to(e, theta.shape),))

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(2))

    mesh, spec = jax.make_mesh((1,), ("device",)), jax.sharding.PartitionSpec
    sharded = jax.shard_map(
        linearise, mesh=mesh, in_specs=spec("device"), out_specs=(spec("device"), spec(None, "device")), check_vma=False
    )
    values, slopes = jax.jit(sharded)(jax.device_put(theta, jax.sharding.NamedSharding(mesh, spec("device"))))
    alone = solve(problem, theta[1, 2])
    np.testing.assert_allclose(values[1, 2], np.sum(weight[2] * alone[node[2]], axis=-1), rtol=1e-4)
    assert slopes.shape == (2, 2, 3, 4)
    assert not slopes[1].any(), "this problem has no g in it"
    assert np.abs(slopes[0]).min() > 1e-3


def test_visited_are_the_inputs_of_the_law():
    problem = make(
        square(9),
        closure={"a": cl.Known(jnp.sin), "b": cl.Known(lambda u, x: u * x, inputs=2)},
        coefficient=lambda u, x, p, f: 2 + f.a(u) + 0.1 * f.b(u, x.x),
    )
    solver = EllipticSolver(problem)
    seen = jax.jit(lambda th: solver.visited(th, known(problem)))(jnp.asarray(THETA, float))
    u = solve(problem)
    np.testing.assert_allclose(seen["a"][:, 0], u, rtol=1e-6)
    np.testing.assert_allclose(seen["b"], np.stack([u, problem.points[:, 0]], -1), rtol=1e-6)
