"""From data to words: a damping of each system's own beside a damping law, which only their sum is known of."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp

import closura as cl
from closura.diagnose import what_data_leave_open
from closura.learning import Run, make_settings
from closura.runs import collect

SIZES = {"chains": 32, "groups": 2, "devices": 1, "iterations": 200, "chunk": 10, "tempering": 0.5, "tune": 100}
SIZES |= {"draws": 60, "thin": 3, "extend": 0}


def physics(t, s, p, f):
    return s.v, 10 * jnp.sin(t) - f(s.v) - p.c * s.v - p.k * s.u


PROBLEM = cl.ODE(
    physics,
    state=("u", "v"),
    parameters={
        "k": cl.Positive(guess=5.0, width=0.3, spread=0.2),
        "c": cl.Real(guess=0.3, width=0.3, spread=0.1),
        "u0": cl.Real(),
        "v0": cl.Real(),
    },
    initial=lambda p: (p.u0, p.v0),
    span=(0.0, 8.0),
    dt=0.08,
    integrator=cl.Leapfrog(),
    closure=cl.Law(nodes=17),
    observed="u",
    sigma=0.15,
)


def measured(systems, seed):
    random, times, parts = np.random.default_rng(seed), np.linspace(0.3, 7.8, 16), []
    for name in range(systems):
        k, c = 5 * np.exp(0.2 * random.normal()), 0.3 + 0.1 * random.normal()
        start = random.normal(), 2 * random.normal()

        def rate(t, y, k=k, c=c):
            return y[1], 10 * np.sin(t) - 0.08 * y[1] - 0.08 * y[1] ** 3 - c * y[1] - k * y[0]

        u = solve_ivp(rate, (0, 8), start, t_eval=times, rtol=1e-8).y[0]
        parts.append(pd.DataFrame({"system": f"s{name}", "time": times, "u": u + 0.15 * random.normal(size=16)}))
    return pd.concat(parts)


@pytest.mark.nightly
def test_a_damping_beside_a_damping_law_is_named():
    data = cl.read_table(measured(5, seed=3), axes=("time",))
    run = Run(PROBLEM, data, make_settings(SIZES, PROBLEM))
    while not run.finished:
        run.advance()
    result = collect(run)
    (found,) = what_data_leave_open(run, result.closures, result.visited)
    assert str(found) == "c and a part of f in proportion to v: only their sum"
    table = result.summary().set_index(["level", "system", "parameter"])["decided_by"]
    assert table["population", "population", "c"] == "prior"
    assert table["population", "population", "k"] == "data"
    assert set(table["system"].unstack()["c"]) == {"population"}
    assert set(table["system"].unstack()["k"]) == {"data"}
    # Of the law itself data say much: what is open is little beside its prior.
    assert result.metrics["law_contraction"]["f"] > 0.9
