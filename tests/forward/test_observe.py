"""Sensors that see functions of the state: every forward model reads them alike."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from fields import CHANNEL, ROCK

import closura as cl
from closura.equations import unit_scaling
from closura.forward import Units, likelihood, seen_through, trainable
from closura.forward.surrogates._surrogate import SURROGATES

pytestmark = pytest.mark.usefixtures("float64")
TIMES = {"on": [0.4, 1.2, 2.0], "off": [0.43, 1.21, 1.97]}


def spring(observed, **changes):
    options = {
        "state": ("u", "v"),
        "parameters": {"k": cl.Positive(guess=4.0), "u0": cl.Real(guess=1.0)},
        "initial": lambda p: (p.u0, 0.5),
        "span": (0.0, 2.0),
        "dt": 0.05,
        "sigma": 0.1,
        "closure": cl.MLP(width=4, depth=1),
    }
    return cl.ODE(lambda t, s, p, f: (s.v, -p.k * s.u - f(s.v)), observed=observed, **options | changes)


SEEN = {"energy": lambda s, p: 0.5 * s.v**2 + 0.5 * p.k * s.u**2, "late": lambda s, p, t: t * s.u}


def table(times, *columns):
    return pd.DataFrame({"system": "a", "time": times, **dict.fromkeys(columns, 1.0)})


def made(problem, frame, kind="solver"):
    data = cl.Observations.from_frame(frame, axes=problem.axes)
    data = data.matched(problem.observed, dict(zip(problem.axes, problem.bounds)), problem.sigma)
    return seen_through(likelihood(problem, data), problem, data, kind)


def laws_of(problem):
    spec = problem.closures["f"]
    return {"f": cl.Known(lambda x: 0.3 * x, spec.inputs).build(jr.key(0), unit_scaling(spec.inputs))}


@pytest.mark.parametrize(
    ("at", "integrator"),
    [("on", cl.RK4()), ("off", cl.RK4()), ("off", cl.Leapfrog()), ("off", cl.Adaptive(rtol=1e-8, atol=1e-8))],
)
def test_functions_of_the_states_an_ode_has(at, integrator):
    times = TIMES[at]
    problem, plain = spring(SEEN, integrator=integrator), spring(("u", "v"), integrator=integrator)
    theta, laws = jnp.asarray([1.2, 0.8]), laws_of(problem)
    model = made(problem, table(times, "energy", "late"))
    components = made(plain, table(times, "u", "v"))
    got = jax.jit(lambda t: model.predict(t[None, None], laws))(theta)[0, 0]
    u, v = np.asarray(jax.jit(lambda t: components.predict(t[None, None], laws))(theta))[0, 0].reshape(-1, 2).T
    expected = np.stack([0.5 * v**2 + 0.5 * np.exp(1.2) * u**2, np.array(times) * u], axis=-1).ravel()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", SURROGATES)
def test_surrogates_see_what_solutions_show(kind):
    problem = spring(SEEN)
    model = made(problem, table(TIMES["off"], "energy", "late"), kind)
    units = Units(jnp.asarray([1.0, 1.0]), jnp.asarray([0.5, 0.5]), jnp.asarray([1.0, 2.0]))
    network = model.forward.build(units, jr.key(1))
    weights, rest = eqx.partition(network, trainable(network))
    network = eqx.combine(jax.tree.map(lambda a: a + 0.1 * jr.normal(jr.key(2), a.shape), weights), rest)
    theta = jnp.asarray([1.2, 0.8])
    where = jax.tree.map(lambda a: a[0], model.where)

    @eqx.filter_jit
    def both(network):
        return model.predict(theta[None, None], network)[0, 0], network.states(theta, 0)

    got, states = map(np.asarray, both(network))
    from_grid = np.asarray(jax.jit(lambda s: model.forward.read(theta, s, where, 0))(jnp.asarray(states)))
    np.testing.assert_allclose(got, from_grid, rtol=2e-3 if kind == "pinn" else 1e-9)
    # Between nodes states are interpolated, then seen.
    u = np.asarray(where.states(jnp.asarray(states)[where.node]))[:, 0][1::2]
    np.testing.assert_allclose(from_grid[1::2], np.array(TIMES["off"]) * u, rtol=1e-9)


@pytest.mark.parametrize(
    ("problem", "places"), [(CHANNEL, [[0.1, 0.25], [0.12, -0.9]]), (ROCK, [[0.25, 0.5], [0.3, 0.33]])]
)
def test_functions_of_fields(problem, places):
    squared = type(problem).__new__(type(problem))
    squared.__dict__.update(problem.__dict__)
    from closura.equations._index import ObservationOperator

    squared.operator = ObservationOperator(
        {"power": lambda s, p, at: s.u**2 + at[0]}, problem.state_names, problem.parameters, 2
    )
    frame = pd.DataFrame(places, columns=list(problem.axes)).assign(system="a")
    theta, laws = jnp.asarray(problem.parameters.mean), laws_of(problem)
    u, power = (
        np.asarray(eqx.filter_jit(lambda m, t: m.predict(t, m.model(laws)))(m, theta[None, None]))[0, 0]
        for m in (made(problem, frame.assign(u=1.0)), made(squared, frame.assign(power=1.0)))
    )
    np.testing.assert_allclose(power, u**2 + np.array(places)[:, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("observed", "says"),
    [
        ("w", "observed 'w' is not part of the solution, which is u, v. A function of it is written as"),
        ({"w": 3.0}, "observed 'w' is 3.0; write a function like lambda state, p"),
        ({"w": lambda s, p: (s.u, s.v)}, "observed 'w' must return 1 number"),
        ({"w": lambda s, p: s.x}, "what is observed failed: AttributeError"),
        ({"w": lambda s, p: np.exp(s.u)}, "what is observed uses a function of NumPy"),
        ((), "nothing is observed"),
    ],
)
def test_messages(observed, says, monkeypatch):
    import jaxtyping

    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(cl.ProblemError, match=says):
        spring(observed)
