"""What elliptic solvers are asked beside solving: residuals, observed places, batches over devices, calls of the law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elliptic import THETA, conductivity, exact, irregular, known, make, solve, source_of, square, stretched_darcy

import closura as cl
from closura.equations import EllipticSolver, ObservationIndex
from closura.equations._shared import Place
from closura.equations.elliptic._locate import nodes_near

# Residuals


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("domain", [square(17), irregular(1)], ids=["grid", "irregular"])
def test_grid_residual_is_the_error_of_u(domain):
    """For smooth and rough errors alike."""
    problem = make(domain)
    solver, laws, theta = EllipticSolver(problem), known(problem), jnp.asarray(THETA)
    u = solve(problem)
    run = jax.jit(lambda u: solver.grid_residual(theta, laws, u[:, None], 0))
    assert np.abs(run(jnp.asarray(u))).max() < 1e-9
    rough = np.random.default_rng(0).normal(size=len(u))
    for change in (np.prod(np.sin(np.pi * problem.points), axis=1), rough):
        change = np.where(problem.dirichlet, 0.0, 1e-5 * change)
        assert 0.6 < np.linalg.norm(run(jnp.asarray(u + change))) / np.linalg.norm(change) < 1.7


@pytest.mark.usefixtures("float64")
def test_point_residual_is_the_strong_form():
    problem = make(square(5))
    solver, laws, theta = EllipticSolver(problem), known(problem), jnp.asarray(THETA)
    place, p = Place, problem.parameters.constrain(theta, 0)
    places = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (20, 2)))

    def other(x, p):
        return exact(x, p) + x.x**2 * x.y

    def residual(function):
        return jax.jit(
            lambda: solver.point_residual(theta, laws, lambda at: function(place(*at), p)[None], places, 0)
        )()

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
    node, weight = nodes_near(problem, places)
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
        nodes_near(make(domain), places)
    _, weight = nodes_near(make(domain), places, np.arange(6).reshape(2, 3) < 5)
    assert (weight[1, 2].sum(), weight.sum()) == (0, pytest.approx(5))


@pytest.mark.parametrize("domain", [square(9), irregular(0)], ids=["grid", "irregular"])
def test_predictions_in_a_batch_over_devices(domain):
    """Chains by systems with tangents outermost, as a sampler asks, inside shard_map; against one solve each."""
    problem = stretched_darcy(domain)
    solver, laws = EllipticSolver(problem), known(problem)
    random = np.random.default_rng(0)
    places = random.uniform(0.1, 0.9, (3, 4, 2))
    node, weight = nodes_near(problem, places)
    where = ObservationIndex(
        jnp.asarray(places, float),
        jnp.asarray(node, jnp.int32),
        jnp.asarray(weight, float),
        jnp.zeros((3, 4), jnp.int32),
    )
    theta = jnp.asarray(random.normal(size=(2, 3, 2)), float)

    def linearise(theta):
        model = solver.prepare_context(laws)
        predict = jax.vmap(jax.vmap(lambda th, at: solver.predict(th, model, at, 0)), in_axes=(0, None))

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
    seen = jax.jit(lambda th: solver.law_inputs(th, known(problem), 0))(jnp.asarray(THETA, float))
    u = solve(problem)
    np.testing.assert_allclose(seen["a"][:, 0], u, rtol=1e-6)
    np.testing.assert_allclose(seen["b"], np.stack([u, problem.points[:, 0]], -1), rtol=1e-6)
