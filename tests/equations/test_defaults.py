"""Priors nobody stated."""

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.data import read_table
from closura.equations import align
from closura.equations._align import WIDER

FIRST, LATER = np.array([310.0, 290.0, 305.0]), 150.0


def decay(parameters, initial=lambda p: (p.start, 0.0)):
    return cl.ODE(
        lambda t, s, p: (-p.k * s.u, s.u),
        state=("u", "v"),
        parameters={"k": cl.Positive()} | parameters,
        initial=initial,
        span=(0.0, 1.0),
        observed="u",
        sigma=1.0,
    )


def seen(problem):
    rows = [(k, t, u) for k in range(3) for t, u in ((0.0, FIRST[k]), (0.5, LATER))]
    return align(problem, read_table(pd.DataFrame(rows, columns=["system", "time", "u"])))[0].parameters


def test_where_a_state_begins_data_tell():
    parameters = seen(decay({"start": cl.Real()}))
    start = parameters.kinds["start"]
    assert start.guess == 305.0
    scale = np.std([*FIRST, *[LATER] * 3])
    assert start.width == pytest.approx(WIDER * scale)  # observations are not used twice
    assert start.spread == pytest.approx(0.5 * scale)
    assert np.allclose(parameters.first_scales[:, parameters.names.index("start")], [1 / WIDER, 1 / 3])
    assert parameters.kinds["k"] == cl.Positive()
    assert parameters.notes == (
        "k is taken to be about 1, give or take a factor of 2.7 (no prior stated); start is taken to be about 305 ± 3.8e+02 (from "
        "the first observations); guess= or prior= say better",
    )


def test_positive_ones_keep_their_width():
    start = seen(decay({"start": cl.Positive(shared=True)})).kinds["start"]
    assert (start.guess, start.width, start.shared) == (305.0, 1.0, True)


@pytest.mark.parametrize("kind", [cl.Real(guess=0.0), cl.Real(width=2.0), cl.Normal(3.0, 1.0), cl.Interval(0.0, 900.0)])
def test_what_is_stated_stays(kind):
    problem = decay({"start": kind})
    assert seen(problem).kinds["start"] == problem.parameters.kinds["start"]


def test_what_is_not_where_it_begins_stays():
    problem = decay({"start": cl.Real()}, initial=lambda p: (2.0 * p.start, 0.0))
    assert seen(problem).kinds["start"] == cl.Real()
    unseen = decay({"start": cl.Real()}, initial=lambda p: (1.0, p.start))
    assert seen(unseen).kinds["start"] == cl.Real()


def test_all_stated_says_nothing():
    problem = decay({"start": cl.Real(guess=300.0, width=50.0), "k": cl.Positive(guess=2.0)})
    assert seen(problem) is problem.parameters
