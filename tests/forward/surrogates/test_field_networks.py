"""Surrogates of fields: conditions exact at any weights, reading at observed points, derivatives, residuals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from fields import PLACES, PLATE, PROBLEMS, observed, theta

import closura as cl
from closura.equations import EllipticSolver, EvolutionSolver, unit_scaling
from closura.forward import SURROGATES, Units, likelihood, seen_through, trainable
from closura.forward.surrogates._frame import Frame
from closura.forward.surrogates._surrogate import choices, surrogate

pytestmark = pytest.mark.usefixtures("float64")

SIZES = {"basis": {"width": 8, "depth": 2, "rank": 6}, "pinn": {"width": 8, "depth": 2}}
SMALL = {"width": 4, "modes": 3, "depth": 2}
CASES = [(name, kind) for name in PROBLEMS for kind in SURROGATES if not (name == "plate" and kind.startswith("fno"))]

SHEET = {"parameters": {"k": cl.Positive()}, "sigma": 0.1}
PLAIN = SHEET | {"initial": lambda x, p: x}


def target(name, kind, **options):
    """A likelihood, and a network of any weights, not those of a start that adds nothing."""
    problem = PROBLEMS[name]
    data = observed(name)
    made = seen_through(likelihood(problem, data), problem, data, kind, **SIZES.get(kind, SMALL) | options)
    count = len(problem.parameters)
    units = Units(jnp.asarray(problem.parameters.mean, float), jnp.full(count, 0.5), jnp.ones(len(problem.state_names)))
    network = made.forward.build(units, jr.key(0))
    weights, fixed = eqx.partition(network, trainable(network))
    return made, eqx.combine(jax.tree.map(lambda w: w + 0.3 * jr.normal(jr.key(1), w.shape), weights), fixed)


def law(function=lambda u: u**2 / 2):
    return {"f": cl.Known(function).build(jr.key(0), unit_scaling(1))}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_conditions_are_exact_and_the_rest_is_free(name, kind):
    _, network = target(name, kind)
    states = np.asarray(network.states(theta(name), 0))[:, 0]
    problem = PROBLEMS[name]
    if name == "channel":
        held = problem.points[:, 0] == 0
        z = float(theta(name)[1])
        expected = z * np.sin(2 * np.pi * problem.points[held, 1]) * np.sin(np.pi * problem.points[held, 1])
    else:
        held, started = problem.known, problem.points[:, 0] == 0
        x, y = problem.points.T[-2:]
        z = float(theta(name)[1]) if name == "tray" else 0.0
        expected = np.where(started, z * np.sin(np.pi * x) * np.sin(2 * np.pi * y), 0.0)[held]
    np.testing.assert_allclose(states[held], expected, atol=1e-5)
    assert np.abs(states[~held]).max() > 1e-3


SOON = (("rock", "basis"), ("plate", "pinn"))


@pytest.mark.parametrize(
    ("name", "kind"), [case if case in SOON else pytest.param(*case, marks=pytest.mark.nightly) for case in CASES]
)
def test_evaluation_is_log_likelihood_and_its_slope(name, kind):
    made, network = target(name, kind)
    at = theta(name)
    loglik, score = made.evaluate(at[None, None], network)

    def direct(at):
        where = jax.tree.map(lambda a: a[0], made.where)
        value, weight, constant = (part[0] for part in made.measured.prepared)
        residual = value - made.forward.predict(at, network, where, 0)
        return constant - 0.5 * jnp.sum(weight * residual**2)

    assert float(loglik[0, 0]) == pytest.approx(float(direct(at)), rel=1e-9)
    np.testing.assert_allclose(score[0, 0], jax.grad(direct)(at), rtol=1e-6)


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, k in CASES if k != "pinn"])
def test_observed_points_are_read_from_the_grid(name, kind):
    made, network = target(name, kind)
    where = jax.tree.map(lambda a: a[0], made.where)
    predicted = made.forward.predict(theta(name), network, where, 0)
    np.testing.assert_allclose(
        made.forward.read(theta(name), network.states(theta(name), 0), where, 0), predicted, rtol=1e-9
    )


def test_a_pinn_is_read_where_it_was_observed_and_is_periodic():
    made, network = target("channel", "pinn")
    where = jax.tree.map(lambda a: a[0], made.where)
    function = network.function(theta("channel"), 0)
    places = np.array(sorted(PLACES["channel"]))
    expected = [float(function(jnp.asarray(place))[0]) for place in places]
    np.testing.assert_allclose(made.forward.predict(theta("channel"), network, where, 0), expected)
    left, right = (float(function(jnp.asarray([0.2, x]))[0]) for x in (-1.0, 1.0))
    assert left == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("name", ["rock", "channel", "tray"])
@pytest.mark.parametrize("hard", [True, False])
def test_soft_conditions_are_missed_and_hard_ones_are_not(name, hard):
    _, network = target(name, "pinn", hard=hard)
    missed = np.abs(np.asarray(network.missed(theta(name), 0, jr.key(0))))
    assert bool(missed.max() < 1e-5) is hard


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_solution_leaves_no_residual_on_the_grid_and_another_field_does(name):
    equation, _ = PROBLEMS[name].solver(observed(name))
    states = equation.solution(theta(name), law(), 0)
    free = np.asarray(jax.vmap(PROBLEMS[name].cutoff)(jnp.asarray(PROBLEMS[name].points)))[:, None]
    small, large = (
        float(jnp.abs(equation.grid_residual(theta(name), law(), states + size * free, 0)).max()) for size in (0.0, 0.1)
    )
    assert small < (0.1 if "time" in PROBLEMS[name].axes else 1e-4)  # in time the residual has an error of its own
    assert large > 5 * small


def test_strong_form_of_a_known_field():
    """u = x (1 - x) y with a = 1: -div grad u = 2 y."""
    problem = cl.Elliptic(
        lambda u, x, p: 1.0 + 0 * u,
        lambda x, p: 2 * x.y + p.s,
        domain=cl.Rectangle(nodes=(5, 5)),
        parameters={"s": cl.Real()},
        sigma=0.1,
    )

    places = jnp.asarray([[0.2, 0.3], [0.7, 0.9]])

    def field(x):
        return (x[0] * (1 - x[0]) * x[1])[None]

    found = EllipticSolver(problem).point_residual(jnp.zeros(1), {}, field, places, 0)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    off = EllipticSolver(problem).point_residual(jnp.ones(1), {}, field, places, 0)
    np.testing.assert_allclose(off, -1 / (2 * np.pi**2), rtol=1e-6)


def test_a_mesh_has_no_fourier_operator():
    with pytest.raises(
        cl.ProblemError, match=r"needs a tensor grid, and 'plate' has none; what works is solver, basis, pinn"
    ):
        target("plate", "fno-supervised")


def test_collocation_stays_in_the_domain():
    from closura.forward.surrogates._pinn import _spread

    for problem in PROBLEMS.values():
        places = np.asarray(_spread(problem, jr.key(0)))
        low, high = np.array(problem.bounds).T
        assert np.all((places >= low) & (places <= high))
    assert not np.any(np.all(np.asarray(_spread(PLATE, jr.key(0))) > 0.5, axis=1)), "the notch of the L"


@pytest.mark.parametrize(
    "sloped",
    [
        cl.Evolution(
            lambda u, ux, uxx, x, t, p: p.k * uxx, boundary="neumann", span=(0.0, 1.0), domain=(0.0, 1.0), **PLAIN
        ),
        cl.Elliptic(
            lambda u, x, p: p.k,
            lambda x, p: 1.0,
            domain=cl.Rectangle(nodes=(6, 6)),
            natural=lambda x, y: x > 0.9,
            **SHEET,
        ),
    ],
    ids=["neumann", "natural"],
)
def test_a_pinn_does_not_pretend_to_know_slopes(sloped):
    assert choices(sloped) == ["solver", "basis", "fno-supervised", "fno-physics"]
    with pytest.raises(
        cl.ProblemError, match=r"knows values at the boundary but no slopes.* what works is solver, basis"
    ):
        surrogate("pinn", sloped, (EvolutionSolver if "time" in sloped.axes else EllipticSolver)(sloped))


def test_thin_meshes_hold_their_boundary_exactly():
    strip = cl.Rectangle(y=(0.0, 0.02), nodes=(30, 4))
    problem = cl.Elliptic(lambda u, x, p: p.k, lambda x, p: 1.0, domain=cl.Mesh(strip.points, strip.triangles), **SHEET)
    frame = Frame(Units(jnp.zeros(1), jnp.ones(1), jnp.ones(1)), problem)
    assert len(frame.held) == problem.dirichlet.sum()
    assert np.all(np.asarray(frame.cutoff)[problem.dirichlet] == 0)
