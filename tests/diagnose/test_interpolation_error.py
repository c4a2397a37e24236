"""Between snapshots and nodes a solution is read by cubics: how far off is that?"""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from fields import CHANNEL

import closura as cl
from closura.diagnose._discretisation_error import unsuitable
from closura.equations import constant_laws


def channel(snapshots, cells):
    same = {"parameters": CHANNEL.parameters.kinds, "initial": CHANNEL.initial, "sigma": 0.1}
    return cl.Evolution(
        CHANNEL.physics, span=(0.0, 1.0), domain=(-1.0, 1.0), snapshots=snapshots, cells=cells, closure=cl.MLP(), **same
    )


def seen(problem, times, x):
    """Two systems, the second with one observation less."""
    frame = pd.DataFrame({"system": "a", "time": times, "x": x, "u": 0.0})
    frame = pd.concat([frame, frame.iloc[1:].assign(system="b")], ignore_index=True)
    data = cl.Observations.from_frame(frame, axes=problem.axes)
    return data.matched(problem.observed, dict(zip(problem.axes, problem.bounds)), 0.1)


@pytest.mark.parametrize(("snapshots", "cells", "axis"), [(16, 64, "time"), (64, 32, "x")])
def test_the_error_of_reading_is_told_by_axis(snapshots, cells, axis):
    problem, random = channel(snapshots, cells), np.random.default_rng(0)
    data = seen(problem, random.uniform(0, 1, 200), random.uniform(-1, 1, 200))
    wave = {"time": lambda t, x: np.sin(12 * t), "x": lambda t, x: np.sin(4 * np.pi * x)}[axis]
    fit = np.broadcast_to(wave(*problem.points.T), (2, 1, len(problem.points)))
    found = problem.interpolation_error(data, fit, data.sigma)
    node, weight = problem.near(data.place)
    off = (np.sum(weight * fit[0, 0][node], axis=-1) - wave(*np.moveaxis(data.place, -1, 0)))[data.mask] / 0.1
    assert found[axis] == pytest.approx(np.sqrt(np.mean(off**2)), rel=0.35)
    assert all(error < 1e-5 for name, error in found.items() if name != axis)


def test_on_the_grid_nothing_is_off():
    problem = channel(16, 16)
    data = seen(problem, problem.times[[0, 3, 16]], problem.nodes[[0, 5, 15]])
    fit = np.random.default_rng(0).normal(size=(2, 1, len(problem.points)))
    assert problem.interpolation_error(data, fit, data.sigma) == {"time": 0.0, "x": 0.0}


def test_the_step_is_judged_again_once_the_law_is_known():
    def heat(law):
        return cl.Evolution(
            lambda u, ux, uxx, x, t, p, f: f(u) * uxx,
            parameters={"height": cl.Real()},
            initial=lambda x, p: p.height * jnp.sin(jnp.pi * x),
            span=(0.0, 1.0),
            domain=(-1.0, 1.0),
            snapshots=10,
            cells=32,
            dt=0.01,
            closure=cl.Known(law),
        )

    theta = np.array([[0.3], [-0.5]])
    for size, fine in ((0.1, True), (10.0, False)):
        problem = heat(lambda u, size=size: size + 0 * u)
        said = unsuitable(problem, constant_laws(problem.closures, {}), theta)
        assert (said is None) == fine
    assert said is not None
    assert said.startswith("With the law and the parameters found, dt=0.01 is unstable")
