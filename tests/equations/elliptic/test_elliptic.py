"""An elliptic problem that cannot be solved says so when it is made; domains, boundaries and what vanishes on them."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import closura as cl

NINE = cl.Rectangle(nodes=(9, 9))
SQUARE = cl.Rectangle(nodes=(5, 6))
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.4, 0.5]])
FAN = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [4, 3, 0]])


def coefficient(u, x, p, f):
    return p.k * jnp.exp(x.x * x.y) * jax.nn.sigmoid(f(u))


GOOD = {
    "coefficient": coefficient,
    "source": lambda x, p: x.x + p.k,
    "domain": SQUARE,
    "parameters": {"k": cl.Positive(), "g": cl.Real()},
    "closure": cl.MLP(width=8, depth=2),
}


def make(**changes) -> cl.Elliptic:
    options = GOOD | changes
    return cl.Elliptic(options.pop("coefficient"), options.pop("source"), **options)


def raises_inside(u, x, p, f):
    raise RuntimeError("no such layer")


BAD = {
    "observed not the field": ({"observed": "w"}, "observed 'w' is not part of the solution, which is u"),
    "coefficient of several numbers": (
        {"coefficient": lambda u, x, p, f: (f(u), u)},
        r"coefficient\(u, x, p, f\) must return 1 number \(a\), it returned 2",
    ),
    "coefficient a matrix": ({"coefficient": lambda u, x, p, f: f(u) * jnp.ones((1, 3))}, r"'a' has shape \(3,\)"),
    "source a vector": ({"source": lambda x, p: jnp.ones(2)}, r"source\(x, p\) must return 1 number"),
    "boundary a vector": ({"boundary": lambda x, p: (x.x, x.y)}, r"boundary\(x, p\) must return 1 number \(u\)"),
    "unknown parameter": (
        {"source": lambda x, p: p.q},
        "the coefficient, the source or the boundary failed: AttributeError: .*'q'",
    ),
    "unknown place": ({"source": lambda x, p: x.z}, "AttributeError: .*'z'"),
    "numpy inside": (
        {"source": lambda x, p: np.exp(x.x)},
        r"uses a function of NumPy or math; take the one of jax.numpy",
    ),
    "raises": ({"coefficient": raises_inside}, "RuntimeError: no such layer"),
    "never called": (
        {"coefficient": lambda u, x, p, f: 1.0 + u**2},
        r"the coefficient never calls the closure 'f'; write coefficient\(u, x, p, f\) with f\(\.\.\.\) in it",
    ),
    "no argument for the law": (
        {"coefficient": lambda u, x, p: 1.0 + u**2},
        r"never calls the closure 'f' \(it takes three arguments; the law is the fourth\)",
    ),
    "all natural": ({"natural": lambda x, y: x > -1}, "the whole boundary is natural, so .* up to a constant only"),
    "natural returns numbers": ({"natural": lambda x, y: x}, r"natural\(x, y\) must return one True or False a point"),
    "natural fails": ({"natural": lambda x, y: x.z}, r"natural\(x, y\) failed on NumPy arrays: AttributeError"),
    "no interior": (
        {"domain": cl.Mesh(CORNERS[:4], [[0, 1, 2], [0, 2, 3]])},
        "every point of the mesh lies on the boundary; refine it",
    ),
    "a loose part": (
        {"domain": cl.Mesh(np.r_[CORNERS, CORNERS + 3], np.r_[FAN, FAN + 5]), "natural": lambda x, y: x > 2},
        r"the part of the domain around \(3, 3\) touches no prescribed value",
    ),
}


@pytest.mark.parametrize(("changes", "says"), BAD.values(), ids=BAD)
def test_bad_problems_say_what_to_do(changes, says):
    with pytest.raises(cl.ProblemError, match=says):
        make(**changes)


@pytest.mark.parametrize(
    ("domain", "says"),
    [
        (lambda: cl.Rectangle(x=(1.0, 0.0)), r"Rectangle: x \(1.0, 0.0\) must run forward"),
        (lambda: cl.Rectangle(y=(0.0, np.inf)), "Rectangle: y="),
        (lambda: cl.Rectangle(nodes=(2, 50)), r"nodes=\(2, 50\) must be two whole numbers, at least 3"),
        (
            lambda: cl.Mesh(np.zeros((3, 3)), FAN),
            r"points must be finite numbers of shape \(N, 2\), got shape \(3, 3\)",
        ),
        (
            lambda: cl.Mesh(CORNERS, FAN[:, :2]),
            r"triangles must be whole numbers of shape \(M, 3\), got shape \(4, 2\)",
        ),
        (lambda: cl.Mesh(CORNERS, FAN * 1.0), "of float64"),
        (lambda: cl.Mesh(CORNERS, FAN + 1), "triangles name points 1 to 5; there are 0 to 4"),
        (lambda: cl.Mesh(np.r_[CORNERS, [[2.0, 2.0]]], FAN), "no triangle uses point 5; remove"),
        (lambda: cl.Mesh(CORNERS[[0, 1, 2, 3, 0]], FAN), r"triangle 0, 3 has \(almost\) no area"),
        (lambda: cl.Mesh(CORNERS, np.r_[FAN, FAN[:1], FAN[:1]]), r"4 triangles share the edge \(0, 4\); they overlap"),
        (lambda: cl.Mesh.from_skfem(SimpleNamespace(p=CORNERS.T, t=np.zeros((4, 2)))), "is not a mesh of triangles"),
    ],
)
def test_bad_domains_say_what_to_do(domain, says):
    with pytest.raises(cl.ProblemError, match=says):
        domain()


def test_what_every_problem_has():
    problem = make(domain=cl.Rectangle(x=(0.0, 2.0), y=(1.0, 2.0), nodes=(5, 3)), sigma=0.1, name="mine", field="head")
    assert (problem.name, problem.observed, problem.state_names) == ("mine", ("head",), ("head",))
    assert (problem.axes, problem.periodic, problem.shape) == (("x", "y"), (False, False), (5, 3))
    assert (problem.bounds, problem.offers) == (((0.0, 2.0), (1.0, 2.0)), ("solution", "derivatives", "residual"))
    np.testing.assert_allclose(problem.points[[0, 1, 3, -1]], [[0, 1], [0, 1.5], [0.5, 1], [2, 2]])
    oracle = problem.with_closure(cl.Known(jnp.sin))
    assert isinstance(oracle.closures["f"], cl.Known)
    for kept in ("coefficient", "source", "domain", "boundary", "sloped", "observed", "state_names", "sigma", "name"):
        assert getattr(oracle, kept) == getattr(problem, kept), kept


def test_place_by_name_and_by_order():
    problem = make(source=lambda x, p: 10 * x[0] + x.y, coefficient=lambda u, x, p: x.x + u, closure=None)
    place = jnp.array([2.0, 3.0])
    assert float(problem.load(jnp.zeros(2), place, 0)) == 23.0
    assert float(problem.conductivity(jnp.zeros(2), {}, 0)(jnp.asarray(5.0), place)) == 7.0


def test_skfem_and_clockwise_triangles_are_the_same_mesh():
    """scikit-fem sorts the corners of a triangle, so that some run clockwise; unused points are dropped."""
    one = cl.Mesh(CORNERS, FAN)
    two = cl.Mesh.from_skfem(SimpleNamespace(p=np.r_[CORNERS, [[9.0, 9.0]]].T, t=np.sort(FAN, axis=1).T))
    np.testing.assert_array_equal(two.points, CORNERS)
    assert [set(t) for t in one.triangles.tolist()] == [set(t) for t in two.triangles.tolist()]
    a, b, c = two.points[two.triangles].swapaxes(0, 1)
    assert np.all(np.cross(b - a, c - a) > 0)


@pytest.mark.parametrize(
    ("natural", "sides", "count"),
    [
        (None, (True, True, True, True), 32),
        (lambda x, y: x > 0.99, (True, False, True, True), 25),
        (lambda x, y: (y < 0.01) | (y > 0.99), (True, True, False, False), 18),
        (lambda x, y: (x > 0.99) & (y > 0.5), None, 29),
    ],
)
@pytest.mark.parametrize("domain", [NINE, cl.Mesh(NINE.points, NINE.triangles)], ids=["rectangle", "mesh"])
def test_free_vanishes_where_values_are_prescribed(domain, natural, sides, count):
    """And nowhere else; corners of a prescribed side are prescribed."""
    problem = make(domain=domain, natural=natural)
    assert problem.sides == (sides if isinstance(domain, cl.Rectangle) else None)
    x, y = problem.points.T
    edge = (np.minimum(x, y) == 0) | (np.maximum(x, y) == 1)
    if natural is None:
        np.testing.assert_array_equal(problem.dirichlet, edge)
    assert problem.dirichlet.sum() == count
    values = np.asarray(jax.vmap(problem.cutoff)(jnp.asarray(problem.points, float)))
    assert np.abs(values[problem.dirichlet]).max() < 1e-3
    assert values[~problem.dirichlet].min() > 0.03
    assert values.max() == pytest.approx(1.0, abs=0.3)
    assert problem.sloped is (natural is not None)


def test_free_is_smooth_inside():
    problem = make(domain=cl.Mesh(CORNERS, FAN))
    hessian = jax.jit(jax.vmap(jax.hessian(problem.cutoff)))(
        jnp.asarray(np.random.default_rng(0).uniform(0.1, 0.9, (50, 2)), float)
    )
    assert np.isfinite(hessian).all()
    assert np.abs(hessian).max() < 100


def test_base_is_the_boundary():
    theta, place = jnp.array([0.3, 2.0]), jnp.array([0.5, 0.25])
    np.testing.assert_array_equal(make().lift(theta, place, 0), [0.0])
    np.testing.assert_array_equal(make(boundary=3.0).lift(theta, place, 0), [3.0])
    np.testing.assert_allclose(make(boundary=lambda x, p: p.g * x.x + x.y).lift(theta, place, 0), [1.25])


def test_making_a_problem_leaves_jax_asleep():
    """The number of devices can still be chosen after it."""
    script = """
import jax, closura as cl
square = cl.Rectangle(nodes=(9, 9))
for domain in (square, cl.Mesh(square.points, square.triangles)):
    cl.Elliptic(lambda u, x, p, f: p.k + f(u) ** 2, lambda x, p: x.x, domain=domain, parameters={"k": cl.Positive()},
                closure=cl.MLP(), boundary=lambda x, p: x.y, natural=lambda x, y: x > 0.99)
jax.config.update("jax_num_cpu_devices", 2)
assert len(jax.devices()) == 2, jax.devices()
"""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_meshes_in_parts_that_do_not_hang_together():
    half = cl.Rectangle(x=(0.0, 0.5), nodes=(3, 5))
    points = np.concatenate([half.points, half.points + np.array([0.5, 0.0])])
    with pytest.raises(cl.ProblemError, match=r"points 10 and 15 lie in the same place.*merge such points"):
        cl.Mesh(points, np.concatenate([half.triangles, half.triangles + len(half.points)]))


def test_a_point_that_hangs_on_an_edge():
    """Two triangles beside one large one: they share a side, but not its middle."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [1.0, 1.0]])
    with pytest.raises(cl.ProblemError, match=r"point 2 lies on the edge \(1, 3\) between two others"):
        cl.Mesh(points, np.array([[0, 1, 3], [1, 4, 2], [2, 4, 3]]))
    assert len(cl.Mesh(points, np.array([[0, 1, 2], [0, 2, 3], [1, 4, 2], [2, 4, 3]])).triangles) == 4


@pytest.mark.parametrize("wrong", [{"nodes": 20}, {"nodes": (20.5, 20)}, {"x": 1.0}, {"y": (0.0, 1.0, 2.0)}])
def test_rectangles_that_are_none(wrong, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checker
    with pytest.raises(cl.ProblemError, match=r"Rectangle: .* two"):
        cl.Rectangle(**wrong)
