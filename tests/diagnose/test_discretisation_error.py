"""Steps of an ODE that are too long are noticed: by what halving them changes."""

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.diagnose import often_too_coarse, refinement_error
from closura.diagnose._discretisation_error import too_coarse
from closura.learning import Run, make_settings

RATES = np.array([0.5, 2.0, 20.0])
TIMES = np.array([0.5, 1.0, 2.0])
SIGMA = 0.05


def decay(**changes):
    options = {"state": "u", "parameters": {"rate": cl.Positive(1.0)}, "initial": lambda p: 1.0, "span": (0.0, 2.0)}
    return cl.ODE(lambda t, s, p: -p.rate * s.u, observed="u", sigma=SIGMA, **options | {"dt": 0.25} | changes)


def table(rates=RATES):
    rows = [(f"m{i}", t, np.exp(-rate * t)) for i, rate in enumerate(rates) for t in TIMES]
    return pd.DataFrame(rows, columns=["system", "time", "u"])


def started(problem):
    settings = make_settings({"chains": 32, "devices": 1}, problem)
    return Run(problem, cl.Observations.from_frame(table()), settings)


@pytest.fixture(scope="module")
def error():
    return refinement_error(started(decay()), np.log(RATES)[None, :, None])


def factor(z):
    return 1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4)))


def test_what_halving_changes_is_that_of_rk4(error):
    steps = np.round(TIMES / 0.25)
    coarse, fine = (factor(-RATES[:, None] * 0.25 / n) ** (n * steps) for n in (1, 2))
    expected = np.sqrt(np.mean(((coarse - fine) / SIGMA) ** 2, axis=1))
    np.testing.assert_allclose(error[0, :2], expected[:2], rtol=1e-2, atol=5e-6)  # in single precision
    assert error[0, 2] == pytest.approx(expected[2], rel=1e-3)
    assert error[0, 2] > 1e6  # a rate of 20 is beyond 2.78 / dt


def test_who_is_worst_and_what_to_do_is_said(error):
    problem = decay()
    said = too_coarse(problem, ("m0", "m1", "m2"), error[0])
    assert "Steps of dt=0.25 are too long: with half of it what is predicted of system m2 moves by" in said
    assert "dt=0.0625, or integrator=cl.Adaptive()" in said
    assert too_coarse(problem, ("m0", "m1"), error[0, :2]) is None
    assert too_coarse(decay(integrator=cl.Adaptive()), ("m0",), error[0, 2:]) is None
    assert "m0 becomes finite" in too_coarse(problem, ("m0",), np.array([np.inf]))
    assert too_coarse(problem, ("m0",), np.array([np.nan])) is None


def test_steps_of_their_own_length_are_left_alone():
    assert np.isnan(refinement_error(started(decay(integrator=cl.Adaptive())), np.log(RATES)[None, :, None])).all()


def test_draws_from_the_priors_count_by_how_many_are_off():
    problem, off = decay(), np.full((10, 10), 0.01)
    assert often_too_coarse(problem, off) == []
    off[:2] = 5.0
    assert "too long for 20% of the parameters that the priors allow" in often_too_coarse(problem, off)[0]
    assert often_too_coarse(problem, np.full((10, 10), np.nan)) == []


@pytest.mark.usefixtures("hardly_optimised")
def test_check_and_fit_say_so():
    stiff = decay(parameters={"rate": cl.Positive(20.0)})
    data = table([15.0, 20.0, 25.0])
    sizes = {"chains": 32, "devices": 1}
    assert any("Steps of dt=0.25 are too long for" in line for line in cl.check(stiff, data, **sizes).warnings)
    assert not any("Steps" in line for line in cl.check(decay(), table([0.5, 1.0, 2.0]), **sizes).warnings)
    said = cl.fit(stiff, data, iterations=20, seed=0, **sizes).metrics["warnings"]
    assert any("Steps of dt=0.25 are too long: with half of it" in line for line in said)
