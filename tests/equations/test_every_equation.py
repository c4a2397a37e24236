"""The same laws over every equation: what `Equation` and `ForwardModel` promise, each of them keeps."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import ForwardModel, align, same_equation, unit_scaling
from closura.laws import SolverLaw

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.usefixtures("hardly_optimised")]
LAW = cl.Known(lambda u: 0.3 * u + 0.1 * u**2)
SAME = {"parameters": {"k": cl.Positive(), "load": cl.Column(), "z": cl.Real()}, "closure": LAW, "sigma": 0.1}
TIMED = SAME | {"span": (0.0, 1.0)}


def ode(**changes):
    def physics(t, s, p, f):
        return s.v, p.load * jnp.sin(3 * t) - f(s.v) - p.k * s.u

    options = {"state": ("u", "v"), "initial": lambda p: (p.z, 0.5), "observed": "u", "dt": 0.1}
    return cl.ODE(physics, **TIMED | options | changes)


def elliptic(**changes):
    options = {"domain": cl.Rectangle(nodes=(6, 5)), "boundary": lambda x, p: 0.1 * p.z * x.x}
    return cl.Elliptic(
        lambda u, x, p, f: p.k * (1 + f(u) ** 2), lambda x, p: p.load * (1 + x.y), **SAME | options | changes
    )


def mesh(**changes):
    points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.4, 0.5], [0.7, 0.4]])
    corners = np.array([[0, 1, 5], [0, 5, 4], [1, 2, 5], [2, 4, 5], [2, 3, 4], [0, 4, 3]])
    return elliptic(domain=cl.Mesh(points, corners), **changes)


def evolution(**changes):
    options = {"initial": lambda x, p: 1 + p.z * jnp.sin(2 * jnp.pi * x), "domain": (0.0, 1.0), "cells": 12}
    options |= {"snapshots": 6, "dt": 1 / 48}

    def physics(u, ux, uxx, x, t, p, f):
        return 0.01 * p.k * uxx - f(u) + p.load * 0.1

    return cl.Evolution(physics, **TIMED | options | changes)


def plane(**changes):
    def physics(u, ux, uxx, x, t, p, f):
        return 0.01 * p.k * (uxx.x + uxx.y) - f(u) + p.load * 0.1

    def initial(x, p):
        return 1 + p.z * jnp.cos(jnp.pi * x.x) * jnp.sin(2 * jnp.pi * x.y)

    options = {"initial": initial, "domain": ((0.0, 1.0), (0.0, 1.0)), "cells": (8, 9), "snapshots": 5, "dt": 0.05}
    options |= {"boundary": {"x": "neumann", "y": "periodic"}}
    return cl.Evolution(physics, **TIMED | options | changes)


EQUATIONS = {
    "rk4": ode,
    "leapfrog": lambda **changes: ode(integrator=cl.Leapfrog(), **changes),
    "adaptive": lambda **changes: ode(integrator=cl.Adaptive(rtol=1e-8, atol=1e-8), **changes),
    "rectangle": elliptic,
    "mesh": mesh,
    "line": evolution,
    "plane": plane,
}
THETA = jnp.array([0.2, 0.4])


@pytest.fixture(params=EQUATIONS, scope="module")
def make(request):
    return EQUATIONS[request.param]


def known(problem):
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def places_of(problem, places):
    """The problem and data of two systems, of other loads, at the same places."""
    table = pd.DataFrame(places, columns=list(problem.axes)).assign(**dict.fromkeys(problem.observed, 1.0))
    table = pd.concat([table.assign(system=name, load=load) for name, load in (("a", 1.0), ("b", 2.0))])
    return align(problem, cl.Observations.from_frame(table, axes=problem.axes))


def inside(problem, count=4):
    """Places within the bounds, off the grid."""
    low, high = np.array(problem.bounds).T
    return low + (high - low) * np.random.default_rng(0).uniform(0.3, 0.6, (count, len(low)))


def test_the_grid_is_what_it_says(make):
    problem = make()
    assert problem.points.shape == (len(problem.points), len(problem.axes))
    assert problem.known.shape == (len(problem.points),)
    assert len(problem.bounds) == len(problem.periodic) == len(problem.axes)
    if problem.shape is None:
        assert problem.triangles.max() == len(problem.points) - 1
    else:
        assert np.prod(problem.shape) == len(problem.points)
    for (low, high), along in zip(problem.bounds, problem.points.T):
        assert low <= along.min() < along.max() <= high
    assert problem.law_input_names().keys() == problem.closures.keys()


def test_predictions_at_nodes_are_the_solution_there(make):
    nodes = np.arange(len(make().points))[1::3]
    problem, data = places_of(make(), make().points[nodes])
    forward, where = problem.solver(data)
    assert isinstance(forward, ForwardModel)
    assert hash(forward) == hash(forward.for_reverse_mode().for_reverse_mode()) or forward.for_reverse_mode() != forward
    laws = known(problem)

    @jax.jit
    def run(where, system):
        states = forward.solution(THETA, laws, system)
        return states, forward.predict(THETA, forward.prepare_context(laws), where, system)

    states, predicted = jax.vmap(run)(where, jnp.arange(2))
    assert states.shape == (2, len(problem.points), len(problem.state_names))
    index = problem.observation_index(data)
    for system in range(2):
        at = jax.tree.map(lambda a: a[system], index)  # noqa: B023
        read = problem.operator(THETA, at, at.states(states[system][at.node]), system)
        np.testing.assert_allclose(predicted[system], read, rtol=1e-5, atol=1e-7)
    assert np.abs(predicted[0] - predicted[1]).max() > 1e-3, "what is known of a system is in its solution"


class Moved(SolverLaw):
    """A law that can be moved along a shape."""

    size: jax.Array
    spec: cl.Known = eqx.field(static=True)

    def __call__(self, u):
        return self.spec.function(u) + self.size * jnp.cos(u)

    def outside(self, x):
        return None


def test_gradients_are_those_of_finite_differences_in_both_modes(make):
    problem, data = places_of(make(), inside(make()))
    forward, where = problem.solver(data)
    at = jax.tree.map(lambda a: a[1], where)

    def loss(theta, size, forward=forward):
        moved = {"f": Moved(jnp.asarray(size), LAW)}
        return jnp.sum(jnp.sin(3 * forward.predict(theta, forward.prepare_context(moved), at, 1)))

    value = jax.jit(loss)
    pushed = jax.jit(jax.jacfwd(loss, argnums=(0, 1)))(THETA, 0.0)
    pulled = jax.jit(jax.grad(lambda *x: loss(*x, forward=forward.for_reverse_mode()), argnums=(0, 1)))(THETA, 0.0)
    step = 1e-4
    for i, way in enumerate(jnp.eye(2)):
        apart = value(THETA + step * way, 0.0) - value(THETA - step * way, 0.0)
        for found in (pushed, pulled):
            assert float(found[0][i]) == pytest.approx(float(apart) / (2 * step), rel=1e-3, abs=1e-5)
    apart = (value(THETA, step) - value(THETA, -step)) / (2 * step)
    for found in (pushed, pulled):
        assert float(found[1]) == pytest.approx(float(apart), rel=1e-3, abs=1e-5)


def test_laws_are_surveyed(make):
    problem, data = places_of(make(), inside(make()))
    forward, laws = problem.solver(data)[0], known(problem)
    states = forward.solution(THETA, laws, 1)
    inputs = forward.law_inputs(THETA, laws, 1)["f"]
    assert inputs.shape[1] == 1
    assert len(inputs) % len(forward.call_times) == 0
    assert np.isfinite(inputs).all()
    assert np.ptp(inputs) > 1e-2
    values = forward.rhs_values(THETA, laws, states, 1)
    assert np.isfinite(values).all()
    more = {"f": cl.Known(lambda u: LAW.function(u) + 1.0).build(jr.key(0), unit_scaling(1))}
    change = forward.law_effect(THETA, laws, more, states, 1)
    assert change.shape == values.shape
    assert np.abs(change).max() > 1e-2
    assert np.abs(forward.law_effect(THETA, laws, laws, states, 1)).max() == 0
    assert problem.rhs_scale(2.0) > 0


def test_a_solution_leaves_hardly_a_residual(make):
    problem, data = places_of(make(), inside(make()))
    if "residual" not in problem.offers:
        pytest.skip("offers none")
    forward, laws = problem.solver(data)[0], known(problem)
    states = forward.solution(THETA, laws, 0)
    right, wrong = (np.abs(forward.grid_residual(THETA, laws, c * states, 0)).mean() for c in (1.0, 1.5))
    assert right < 0.2 * wrong


def test_the_fingerprint_knows_the_law_and_nothing_of_beliefs(make):
    print_ = make().fingerprint()
    assert json.loads(json.dumps(print_)) == print_
    assert sum(number is not None for number in print_) > 3
    assert same_equation(print_, make().fingerprint())
    assert not same_equation(print_, make(closure=cl.Known(lambda u: 0.5 * u)).fingerprint())
    wide = {"k": cl.Positive(width=3.0), "load": cl.Column(), "z": cl.Real(guess=0.5, width=0.2)}
    if type(make()) is not getattr(cl, "Custom", None):  # which is solved where its priors are
        assert same_equation(print_, make(parameters=wide).fingerprint())


def test_another_law_keeps_all_the_rest(make):
    problem = make(name="mine")
    other = problem.with_closure(cl.MLP(width=4))
    assert type(other) is type(problem)
    for kept in ("name", "observed", "state_names", "axes", "bounds", "shape", "sigma", "noise", "offers"):
        assert getattr(other, kept) == getattr(problem, kept), kept
    np.testing.assert_array_equal(other.points, problem.points)
    assert list(other.closures) == ["f"]


def test_time_goes_on_where_there_is_any(make):
    problem = make()
    if "time" not in problem.axes:
        with pytest.raises(cl.ProblemError, match="does not change in time"):
            problem.extended(2.0)
        return
    axis = problem.axes.index("time")
    assert problem.extended(0.5) is problem
    longer = problem.extended(1.55)
    assert longer.bounds[axis][1] >= 1.55
    assert len(longer.points) > len(problem.points)
    own = longer.points[longer.points[:, axis] <= 1 + 1e-9]
    np.testing.assert_allclose(np.unique(own[:, axis]), np.unique(problem.points[:, axis]), atol=1e-9)
    assert problem.bounds[axis][1] == 1.0
    with pytest.raises(cl.ProblemError, match="is not after the problem's start"):
        problem.extended(-1.0)
    times = problem.signal_times()
    assert (times[0], times[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(np.diff(times), times[1] - times[0])


def test_conditions_hold_where_they_are_known(make):
    problem, data = places_of(make(), inside(make()))
    forward, laws = problem.solver(data)[0], known(problem)
    states = np.asarray(forward.solution(THETA, laws, 1))
    points = jnp.asarray(problem.points)
    lift = np.asarray(jax.vmap(lambda place: problem.lift(THETA, place, 1))(points))
    np.testing.assert_allclose(lift[problem.known], states[problem.known], atol=1e-6)
    assert np.all(np.abs(jax.vmap(problem.cutoff)(points)) <= 1.2)


def test_a_finer_grid_is_finer(make):
    problem = make()
    problem.check_scheme()
    refinement = problem.refined()
    if refinement is not None:
        assert len(refinement.equation.points) > len(problem.points)
        assert refinement.equation.bounds == problem.bounds
        assert refinement.fault[0].isupper()


def test_what_is_said_of_costs(make):
    problem = make()
    assert problem.profile in ("curves", "fields", "evolutions")
    assert problem.most_devices is None or problem.most_devices >= 1
    assert cl.Settings(forward=problem.default_forward)
    forward, _ = problem.solver(places_of(problem, inside(problem))[1])
    assert 0 <= forward.working_set_size(0) <= forward.working_set_size(3)
