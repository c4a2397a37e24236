"""Runs whose law has a kink, a jump or a known form."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from sizes import SYSTEMS

from closura.laws import Law
from closura.learning import Run, make_settings
from closura.parameters import Positive, Real
from closura.problems import mass_damper
from closura.runs import _collect, collect

SMALL = {"chains": 32, "groups": 2, "devices": 1, "iterations": 30, "chunk": 5, "tempering": 0.5, "tune": 10}
SMALL |= {"draws": 4, "thin": 1, "extend": 0}


def power(v, p):
    return p.c * v * (v**2 + 1e-6) ** (0.5 * (p.m - 1))


KINDS = {
    "kink": (Law(nodes=9, kink=0.0), lambda v: 0.4 * jnp.abs(v) + 0.2 * v, set()),
    "jump": (Law(nodes=9, jump=0.0), lambda v: 0.5 * jnp.tanh(4 * v) + 0.3 * v, {"height", "width"}),
    "form": (
        Law(nodes=9, around=power, parameters={"c": Positive(0.3), "m": Real(2.0, width=0.5)}),
        lambda v: 0.1 * v**3 + 0.1 * jnp.sin(2 * v),
        {"c", "m"},
    ),
}


@pytest.mark.parametrize(
    "kind", ["jump", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("kink", "form"))]
)
def test_runs_go_through(kind, monkeypatch):
    monkeypatch.setattr(_collect, "unresolved", lambda found: f"Law {found.name} bends.")
    law, true, names = KINDS[kind]
    data, _ = dataclasses.replace(mass_damper, laws={"f": true}).simulate(SYSTEMS, 0)
    problem = mass_damper.problem.with_closure(law)
    run = Run(problem, data, make_settings(SMALL, problem))
    while not run.finished:
        run.advance()
    kept, frame = run.kept.law["f"], run.state.ranges["f"]
    assert kept.weights.shape == (32, 4, law.coordinates)
    assert np.all(np.isfinite(kept.weights))
    assert np.std(kept.weights, axis=(0, 1)).min() > 0
    named = kept.named(frame)
    assert set(named) == names
    assert all(value.shape == (32, 4) and np.all(np.isfinite(value)) for value in named.values())
    # They are judged and told as all that is inferred.
    wanted = {f"{name} of law f" for name in names}
    drawn = run.draws()
    assert set(drawn["of_law"].values if names else ()) == wanted
    assert ("law_parameter" in run.convergence().figures) == bool(names)
    result = collect(run)
    assert "Law f bends." in result.verdict.remarks
    summary = result.summary()
    told = summary[summary["parameter"].isin(wanted)]
    assert set(told["parameter"]) == wanted
    assert np.all(np.isfinite(told[["mean", "sd", "rhat"]]))
