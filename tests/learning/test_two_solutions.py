"""Every group learns its own law from its own start: where data allow two laws, groups find both, and nobody says converged."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.data import read_table
from closura.learning import Run, make_settings
from closura.runs import collect
from closura.sampling._law_constants import whitened


@pytest.mark.nightly
def test_a_sign_that_data_do_not_tell():
    """u' = a f(u) is as well u' = (-a) (-f)(u)."""
    problem = cl.ODE(
        lambda t, state, p, f: (p.a * f(state.u),),
        state="u",
        parameters={"a": cl.Real(guess=0.0, width=1.0, spread=0.3), "u0": cl.Real(guess=2.0)},
        initial=lambda p: (p.u0,),
        span=(0.0, 4.0),
        dt=0.2,
        closure=cl.Law(nodes=9),
        observed="u",
        sigma=0.05,
    )
    random, time = np.random.default_rng(2), np.linspace(0.0, 4.0, 9)
    rows = []
    for system, (rate, start) in enumerate(zip(1 + 0.1 * random.normal(size=3), 2 + 0.5 * random.normal(size=3))):
        exact = np.arcsinh(np.sinh(start) * np.exp(-rate * time))  # of u' = -rate tanh(u)
        rows += [(system, t, u) for t, u in zip(time, exact + 0.05 * random.normal(size=9))]
    frame = pd.DataFrame(rows, columns=["system", "time", "u"])
    settings = make_settings({"devices": 1, "seed": 2, "draws": 40, "extend": 0, "iterations": 300}, problem)
    run = Run(problem, read_table(frame), settings)
    while not run.finished:
        run.advance()
    signs = np.sign(run.theta()[..., 0].mean(axis=1)).reshape(settings.groups, -1)  # of a, by group
    assert set(np.unique(signs)) == {-1.0, 1.0}
    result = collect(run)
    assert result.verdict.word == "not_converged"
    assert not result.verdict.converged


def test_a_group_that_is_lost_leaves_numbers():
    """Far from any solution sensitivities are enormous: constants of the move stay finite, and it has all directions."""
    frame = jax.tree.map(lambda x: np.asarray(x, float), cl.Law(nodes=9).frame(*_range()))
    random, count = np.random.default_rng(0), len(frame.rigid)
    jacobian = 1e10 * random.normal(size=(5, count))
    sizes = random.normal([10.0, -5.0], 1.0, size=(40, 2))
    draws = random.normal(size=(40, count))
    color, *rest = whitened(jacobian.T @ jacobian, jacobian.T @ jacobian, draws, sizes, frame)
    for part in jax.tree.leaves((color, *rest)):
        assert np.all(np.isfinite(part))
    assert np.linalg.matrix_rank(color / np.linalg.norm(color, axis=0), tol=1e-9) == count


def _range():
    from closura.laws import Range, Scaling

    low, high = jnp.array([-1.0]), jnp.array([1.0])
    return Range(low, high), Scaling(jnp.zeros(1), jnp.ones(1), jnp.ones(()))
