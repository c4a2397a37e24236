"""What is known of each system: numbers in columns, and signals in time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sizes import FEW, NETWORKS, TRAINING

import closura as cl
from closura.data import read_table
from closura.equations import align
from closura.forward import likelihood
from closura.learning import Run, Settings

pytestmark = pytest.mark.usefixtures("hardly_optimised")
MASS = {"a": 1.0, "b": 2.0, "c": 5.0}
TIMES = np.array([0.4, 1.1, 2.0, 3.3])


def tank(**changes):
    """A tank of known size is filled at a known rate and leaks at an unknown one."""
    options = {
        "state": "u",
        "parameters": {"k": cl.Positive(), "mass": cl.Column(), "force": cl.Signal()},
        "initial": lambda p: 1.0 / p.mass,
        "span": (0.0, 4.0),
        "dt": 0.02,
        "observed": "u",
        "sigma": 0.1,
    }
    return cl.ODE(lambda t, s, p: (p.force(t) - p.k * s.u) / p.mass, **options | changes)


def force(system, t):
    """Measured at every quarter, so that lines between the points are what is meant."""
    nodes = np.arange(0.0, 4.01, 0.25)
    return np.interp(t, nodes, np.sin(nodes * (1 + "abc".index(system))))


def observed(**more):
    rows = [{"system": s, "time": t, "u": 0.3, "mass": MASS[s]} for s in MASS for t in TIMES]
    return pd.DataFrame(rows).assign(**more)


def signals(until=4.0):
    nodes = np.arange(0.0, until + 0.01, 0.25)
    return pd.concat([pd.DataFrame({"system": s, "time": nodes, "force": force(s, nodes)}) for s in "cab"])


def by_hand(system, k):
    """The same, by many small steps of Euler's method."""
    dt, u, found = 1e-4, 1.0 / MASS[system], []
    for pushed in force(system, dt * np.arange(40_001)).tolist():
        found.append(u)
        u += dt * (pushed - k * u) / MASS[system]
    return np.array(found)[np.round(TIMES / dt).astype(int)]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "integrator", [cl.RK4(), cl.Adaptive("tsit5", rtol=1e-8, atol=1e-8)], ids=["fixed", "adaptive"]
)
def test_each_system_has_its_own(integrator):
    problem, data = align(tank(integrator=integrator), read_table(observed(), inputs=signals()))
    found = likelihood(problem, data)
    theta = jnp.log(jnp.array([0.5, 1.0, 2.0]))[None, :, None]
    predicted = np.asarray(eqx.filter_jit(lambda f, t: f.predict(t, f.model({})))(found, theta))[0]
    for row, system, k in zip(predicted, MASS, (0.5, 1.0, 2.0)):
        np.testing.assert_allclose(row, by_hand(system, k), atol=2e-4)
    # The tangents are of parameters alone.
    assert jax.eval_shape(lambda t: found.linearise(t, found.model({}))[1], theta).shape == (1, 1, 3, 4)


def test_a_signal_may_be_a_column_of_the_data():
    frame = observed()
    frame["force"] = [force(s, t) for s, t in zip(frame["system"], frame["time"])]
    _, data = align(tank(), read_table(frame))
    times, values = data.signals["force"][1]
    np.testing.assert_allclose(times, TIMES)
    np.testing.assert_allclose(values, force("b", TIMES))


def test_steps_hold_until_the_next():
    doses = pd.DataFrame(
        {"system": [s for s in "abc" for _ in range(2)], "time": [0.0, 1.5] * 3, "force": [2.0, 5.0] * 3}
    )
    problem = cl.ODE(
        lambda t, s, p: p.dose(t) - p.k * s.u,
        state="u",
        parameters={"k": cl.Positive(), "dose": cl.Signal("force", between="previous")},
        initial=lambda p: 1.0,
        span=(0.0, 4.0),
        observed="u",
        sigma=0.1,
    )
    problem, _ = align(problem, read_table(observed(), inputs=doses))
    dose = problem.parameters.constrain(jnp.array([0.0]), 2).dose
    np.testing.assert_allclose([dose(t) for t in (0.0, 1.48, 1.5, 1.52, 4.0)], [2.0, 2.0, 5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("data", "inputs", "says"),
    [
        (
            observed(),
            None,
            "the problem reads 'force' as a signal, but no table has such a column of numbers; there are: u, mass",
        ),
        (observed(), signals().query("system != 'b'"), "the signal 'force' is missing for system b; add its lines"),
        (observed().drop(columns="mass"), signals(), "the problem knows 'mass' of every system"),
        (observed(mass=[1.0, 2.0] * 6), signals(), "'mass' must be one number a system, but system a has 1 and 2"),
    ],
)
def test_what_is_missing_is_said(data, inputs, says):
    with pytest.raises(cl.DataError, match=says):
        align(tank(), read_table(data, inputs=inputs))


def test_signals_that_end_early_are_noted():
    _, data = align(tank(), read_table(observed(), inputs=signals(2.0)))
    assert "signal 'force' ends before the observations of system a, b, c: held at its last value" in data.notes


def test_surrogates_see_numbers_but_no_signals():
    with pytest.raises(
        cl.ProblemError, match="forward='basis' sees numbers alone, and systems of 'problem' have signals"
    ):
        Run(tank(), read_table(observed(), inputs=signals()), Settings(forward="basis", **FEW))


def leaking():
    return cl.ODE(
        lambda t, s, p, f: -p.k * f(s.u) / p.mass,
        state="u",
        parameters={"k": cl.Positive(), "mass": cl.Column()},
        initial=lambda p: 1.0,
        span=(0.0, 4.0),
        dt=0.2,
        closure=cl.MLP(width=4, depth=1),
        observed="u",
        sigma=0.1,
    )


@pytest.mark.nightly
def test_surrogates_know_columns():
    training = TRAINING | {"network": NETWORKS["basis"], "hypergradient": "adjoint"}
    run = Run(leaking(), read_table(observed()), Settings(forward="basis", **training, **FEW))
    assert run.network.frame.units.theta_center.shape == (2,)
    while not run.finished:
        run.advance()
    assert np.isfinite(run.theta()).all()
    states = np.asarray([run.network.states(jnp.zeros(1), k) for k in range(3)])
    assert np.ptp(states, axis=0).max() > 1e-3, "the mass is one of its inputs"


@pytest.mark.nightly
def test_from_tables_to_folder_and_back(tmp_path):
    problem = tank()
    out = tmp_path / "run"
    result = cl.fit(problem, observed(), inputs=signals(), out=out, progress=False, **FEW)
    assert result.posterior["k"].shape == (16, 4, 3)
    stored = read_table(out / "data.csv", inputs=out / "inputs.csv")
    _, again = align(tank(), stored)
    for (t, x), (t_again, x_again) in zip(result.data.signals["force"], again.signals["force"]):
        np.testing.assert_allclose(t, t_again)
        np.testing.assert_allclose(x, x_again)
    np.testing.assert_allclose(again.constants["mass"], [1.0, 2.0, 5.0])
    # A newcomer brings its own, and a forecast goes on with them.
    new = result.newcomer(observed().query("system == 'c'").assign(mass=3.0), inputs=signals().assign(force=2.0))
    assert list(new.belongs) == ["c"]
    level = new.predict(times=[4.0])["mean"].item() * float(np.exp(new.theta).mean())
    assert level == pytest.approx(2.0, rel=0.5), "it fills until as much leaks as comes in"
    assert result.predict(until=5.0)["time"].max() == pytest.approx(5.0)


@pytest.mark.usefixtures("float64")
def test_fields_have_them_too():
    rod = cl.Evolution(
        lambda u, u_x, u_xx, x, t, p: p.spread * u_xx + p.heat(t),
        field="u",
        domain=(0.0, 1.0),
        cells=16,
        span=(0.0, 1.0),
        snapshots=10,
        boundary="periodic",
        initial=lambda x, p: jnp.sin(2 * jnp.pi * x),
        parameters={"k": cl.Real(), "spread": cl.Column(), "heat": cl.Signal()},
        observed={"u": lambda state, p: state.u + p.k},
        sigma=0.1,
    )
    table = pd.DataFrame({"system": ["a", "a", "b", "b"], "time": 0.5, "x": [0.25, 0.75] * 2, "u": 0.0})
    table["spread"] = [0.01, 0.01, 0.05, 0.05]
    heat = pd.DataFrame({"system": ["a", "a", "b", "b"], "time": [0.0, 1.0] * 2, "heat": [1.0, 1.0, 0.0, 2.0]})
    problem, data = align(rod, read_table(table, axes=("time", "x"), inputs=heat))
    found = likelihood(problem, data)
    predicted = np.asarray(jax.jit(lambda t: found.predict(t, found.model({})))(jnp.zeros((1, 2, 1))))[0]
    fading = np.exp(-((2 * np.pi) ** 2) * 0.5 * np.array([0.01, 0.05]))
    np.testing.assert_allclose(predicted, np.array([[0.5], [0.25]]) + fading[:, None] * [1, -1], atol=1e-4)


def test_a_field_at_rest_has_no_signals():
    with pytest.raises(cl.ProblemError, match="'load' is a Signal, a function of time, which nothing here knows"):
        cl.Elliptic(
            lambda u, x, p: p.k,
            lambda x, p: 1.0,
            domain=cl.Rectangle(nodes=(8, 8)),
            parameters={"k": cl.Positive(), "load": cl.Signal()},
        )
