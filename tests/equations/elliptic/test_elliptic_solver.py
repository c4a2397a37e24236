"""The elliptic solver by exact solutions, conservation and finite differences; failures as values."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from elliptic import THETA, error, irregular, known, make, solve, source_of, square, stretched_darcy
from jax.flatten_util import ravel_pytree

import closura as cl
from closura.equations import EllipticSolver
from closura.equations.elliptic._krylov import bicgstab
from closura.laws import Range, Scaling, prepare

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
    warm = jax.jit(lambda: solver.prepare_context(laws).start)()
    np.testing.assert_allclose(warm, solve(problem, problem.parameters.mean), atol=1e-9)
    there = jax.jit(lambda th: solver.solution(th, laws, 0, warm))(jnp.asarray(THETA))
    np.testing.assert_allclose(there[:, 0], solve(problem), atol=1e-9)


def test_no_source_no_field_whatever_the_start():
    problem = make(square(9), boundary=None, source=lambda x, p: 0.0)
    solver = EllipticSolver(problem)
    u = jax.jit(lambda start: solver.solution(jnp.zeros(2), known(problem), 0, start))(jnp.ones(99))
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
        return weight @ solver.solution(theta, prepare(laws, ranges), 0)[:, 0]

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
            return solver.solution(theta, laws, 0)[:, 0]

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
    residual = jax.jit(lambda u: EllipticSolver(problem).grid_residual(jnp.asarray(THETA, float), known(problem), u, 0))
    u = solve(problem)
    assert np.abs(residual(jnp.asarray(u)[:, None])).max() < 1e-4 * u.max()


def test_bicgstab():
    random = np.random.default_rng(0)
    matrix = jnp.asarray(np.eye(30) + 0.1 * random.normal(size=(30, 30)), float)
    rhs = jnp.asarray(random.normal(size=(3, 30)), float).at[1].set(0.0).at[2].set(jnp.nan)
    x, size, took = jax.jit(jax.vmap(lambda b: bicgstab(lambda v: matrix @ v, b, 1e-4, 50)))(rhs)
    np.testing.assert_allclose(matrix @ x[0], rhs[0], atol=2e-4)
    assert (float(size[1]), np.abs(x[1]).max()) == (0.0, 0.0)
    assert np.isnan(size[2])
    assert 1 < took[0] < 50
    assert list(took[1:]) == [0, 0]


@pytest.mark.parametrize("level", [0.0, 3e3])
def test_a_field_on_a_high_level_is_solved_for_what_rises_above_it(level):
    """In single precision, to what rounding leaves."""
    problem = cl.Elliptic(
        lambda u, x, p: p.k * (1 + 0.3 * jnp.tanh(u - level)),
        lambda x, p: 10.0,
        domain=cl.Rectangle(nodes=(9, 9)),
        parameters={"k": cl.Positive(guess=1.0)},
        boundary=level,
        sigma=0.1,
    )
    rise = jax.jit(lambda t: EllipticSolver(problem).solution(t, {}, 0).max() - level)(jnp.zeros(1))
    assert float(rise) == pytest.approx(0.6655, abs=0.003)
