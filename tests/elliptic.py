"""Elliptic problems with known solutions, on grids and irregular meshes."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import closura as cl
from closura.equations import EllipticSolver, unit_scaling
from closura.equations._shared import Place
from closura.equations.elliptic._domain import boundary_edges

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
    run = jax.jit(lambda th: EllipticSolver(problem).solution(th, known(problem), 0))
    return np.asarray(run(jnp.asarray(theta, float)))[:, 0]


def error(problem, solution=exact) -> float:
    p = problem.parameters.constrain(jnp.asarray(THETA, float), 0)
    true = jax.jit(jax.vmap(lambda at: solution(Place(*at), p)))(jnp.asarray(problem.points, float))
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
    inside = np.setdiff1d(np.arange(len(points)), boundary_edges(triangles))
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


def stretched_darcy(domain, **options) -> cl.Elliptic:
    def a(u, x, p, f):
        return jnp.exp(p.k * jnp.sin(jnp.pi * x.x) * jnp.sin(jnp.pi * x.y)) * jax.nn.sigmoid(f(u))

    def s(x, p):
        return 20 * jnp.sin(jnp.pi * x.x) * jnp.sin(jnp.pi * x.y)

    return make(domain, coefficient=a, source=s, boundary=None, closure=cl.Known(lambda u: u**2 / 2), **options)
