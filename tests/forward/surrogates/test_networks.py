"""Surrogate networks: initial conditions exact at any weights, reading at observed points, derivatives, residuals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import ODESolver, unit_scaling
from closura.forward import SURROGATES, Units, likelihood, seen_through, trainable
from closura.forward.surrogates._frame import Frame
from closura.forward.surrogates._pinn import Pinn
from closura.problems import mass_damper

pytestmark = pytest.mark.usefixtures("float64")

PROBLEM = mass_damper.problem
SIZES = {"basis": {"width": 8, "depth": 2, "rank": 6}, "pinn": {"width": 8, "depth": 2}}
SMALL = {"width": 6, "modes": 5, "depth": 2}


def theta():
    return jnp.asarray([1.5, -0.7, 2.0])


def units():
    return Units(*(jnp.asarray(x) for x in ([1.1, 0.5, 1.0], [0.3, 1.4, 1.4], [2.0, 5.0])))


def observations(times, quantities=("u",)):
    rows = [{"system": "a", "time": t, **dict.fromkeys(quantities, 0.0)} for t in times]
    return cl.Observations.from_frame(pd.DataFrame(rows)).matched(quantities, {"time": PROBLEM.span}, 0.1)


def oscillator(**changes) -> cl.ODE:
    own = PROBLEM
    options = {"state": ("u", "v"), "parameters": own.parameters.kinds, "initial": own.initial, "span": own.span}
    options |= {"dt": own.dt, "integrator": own.integrator, "closure": cl.MLP(), "observed": "u", "sigma": 0.1}
    return cl.ODE(own.physics, **options | changes)


def target(kind, problem=PROBLEM, times=(0.0, 0.64, 4.0), **options):
    """A likelihood, and a network of any weights, not those of a start that adds nothing."""
    data = observations(times, problem.observed)
    made = seen_through(likelihood(problem, data), problem, data, kind, **SIZES.get(kind, SMALL) | options)
    network = made.forward.build(units(), jr.key(0))
    weights, fixed = eqx.partition(network, trainable(network))
    return made, eqx.combine(jax.tree.map(lambda w: w + 0.3 * jr.normal(jr.key(1), w.shape), weights), fixed)


@pytest.mark.parametrize(
    ("offers", "kind", "message"),
    [
        (
            ("solution", "derivatives"),
            "pinn",
            "trained on the residual of an equation, and 'problem' has none; .* solver, basis, fno-supervised",
        ),
        (
            ("residual",),
            "basis",
            "trained on the solution of an equation, and 'problem' has none; .* is fno-physics, pinn",
        ),
    ],
)
def test_a_problem_that_cannot_train_a_surrogate_names_those_it_can(monkeypatch, offers, kind, message):
    monkeypatch.setattr(cl.ODE, "offers", offers)
    with pytest.raises(cl.ProblemError, match=message):
        target(kind, oscillator())


@pytest.mark.parametrize("kind", SURROGATES)
def test_the_initial_state_is_exact(kind):
    _, network = target(kind)
    np.testing.assert_allclose(network.states(theta(), 0)[0], [-0.7, 2.0], atol=1e-12)
    assert float(jnp.abs(network.states(theta(), 0)[-1] - theta()[1:]).max()) > 1e-3


@pytest.mark.parametrize("kind", SURROGATES)
@pytest.mark.parametrize("observed", ["u", ("v", "u")])
def test_observed_points_are_read_from_the_solution(kind, observed):
    names = (observed,) if isinstance(observed, str) else observed
    problem = oscillator(observed=observed)
    made, network = target(kind, problem)
    where = jax.tree.map(lambda a: a[0], made.where)
    predicted = made.forward.predict(theta(), network, where, 0)
    states = network.states(theta(), 0)
    for value, time, quantity in zip(predicted, where.place[:, 0], where.quantity):
        column = problem.state_names.index(names[int(quantity)])
        assert float(value) == pytest.approx(float(states[round(float(time) / 0.08), column]), rel=1e-9)
    np.testing.assert_allclose(made.forward.read(theta(), states, where, 0), predicted, rtol=1e-9)


def test_between_grid_points_a_cubic_is_exact():
    problem, times = PROBLEM, [0.01, 0.5, 3.333, 7.99]
    where = jax.tree.map(lambda a: a[0], problem.observation_index(observations(times)))
    cubic = np.asarray(problem.times) ** 3 - problem.times
    values = jnp.sum(where.weight * jnp.asarray(cubic)[where.node], axis=-1)
    np.testing.assert_allclose(values, np.array(times) ** 3 - np.array(times), rtol=1e-6)


@pytest.mark.parametrize("kind", SURROGATES)
def test_evaluation_is_log_likelihood_and_its_slope(kind):
    made, network = target(kind)
    loglik, score = made.evaluate(theta()[None, None], network)

    def direct(at):
        where = jax.tree.map(lambda a: a[0], made.where)
        value, weight, constant = (part[0] for part in made.measured.prepared)
        residual = value - made.forward.predict(at, network, where, 0)
        return constant - 0.5 * jnp.sum(weight * residual**2)

    assert float(loglik[0, 0]) == pytest.approx(float(direct(theta())), rel=1e-9)
    np.testing.assert_allclose(score[0, 0], jax.grad(direct)(theta()), rtol=1e-6)


@pytest.mark.parametrize("hard", [True, False])
def test_motion_of_a_pinn_against_finite_differences(hard):
    _, network = target("pinn", hard=hard)
    function, time, step = network.function(theta(), 0), jnp.asarray([2.3]), 1e-5
    before, after = (function(time + sign * step) for sign in (-1, 1))
    assert float(function(time)[1]) == pytest.approx(float((after - before)[0]) / (2 * step), rel=1e-6)
    missed = network.missed(theta(), 0, jr.key(0))
    assert bool(jnp.all(jnp.abs(missed) < 1e-12)) is hard


def test_a_pinn_of_a_first_order_problem_predicts_every_state():
    problem = oscillator(integrator=cl.RK4())
    network = Pinn(Frame(units(), problem), jr.key(0), width=8, depth=2)
    assert network.network.out_size == 2
    np.testing.assert_allclose(network.states(theta(), 0)[0], [-0.7, 2.0], atol=1e-12)


def test_a_true_solution_has_a_small_residual_of_fourth_order():
    laws = {"f": cl.Known(mass_damper.laws["f"]).build(jr.key(0), unit_scaling(1))}
    fine = ODESolver(oscillator(integrator=cl.RK4(), dt=0.08 / 16)).solution(theta(), laws, 0)
    sizes = []
    for refine in (1, 2):
        equation = ODESolver(oscillator(dt=0.08 / refine))
        inner = equation.grid_residual(theta(), laws, fine[:: 16 // refine], 0)[2:-2]
        sizes.append(float(jnp.abs(inner).max()))
    assert sizes[0] < 5e-3
    assert np.log2(sizes[0] / sizes[1]) == pytest.approx(4.0, abs=0.4)


def test_residual_of_a_function_is_that_of_its_exact_derivative():
    laws = {"f": cl.Known(mass_damper.laws["f"]).build(jr.key(0), unit_scaling(1))}
    places = jnp.asarray([[0.5], [3.0]])
    found = ODESolver(PROBLEM).point_residual(theta(), laws, lambda t: jnp.concatenate([t**2, jnp.sin(t)]), places, 0)
    for (time,), (first, second) in zip(np.asarray(places), np.asarray(found)):
        u, v = time**2, np.sin(time)
        needed = 10 * np.sin(time) - (0.08 * v**3 + 0.08 * v) - np.exp(1.5) * u
        assert first == pytest.approx(2 * time - v)  # an eighth of the span is one second
        assert second == pytest.approx(np.cos(time) - needed)
