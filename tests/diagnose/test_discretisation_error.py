"""Steps of an ODE that are too long are noticed: by what halving them changes."""

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.diagnose import bad_scheme, often_too_coarse, refinement_error
from closura.diagnose._discretisation_error import most_moved, too_coarse
from closura.learning import Run, make_settings
from closura.learning._setup import Draws
from closura.population import Phi

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


def settled(problem, rates, spread):
    """A run whose draws are those of systems with these rates, each as unsure on the log scale as `spread`."""
    run, random = started(problem), np.random.default_rng(0)
    theta = np.log(rates)[:, None] + spread * random.normal(size=(50, 4, 8, 3, 1))
    run.chunks = [Draws(theta, Phi(theta.mean(-2), np.zeros((50, 4, 8, 1))), None, ())]
    run.iteration = run.total
    return run


def test_a_step_matters_by_how_far_it_moves_what_is_inferred():
    """Against the posterior of each rate on the fine grid, by quadrature."""
    rates, spread, dt = np.array([0.5, 2.0, 6.0]), 0.1, 0.25
    run = settled(decay(), rates, spread)
    z = np.log(rates[2]) + spread * np.linspace(-5, 5, 2001)
    steps = np.round(TIMES / dt)
    coarse, fine = (factor(-np.exp(z)[:, None] * dt / n) ** (n * steps) for n in (1, 2))
    true = np.exp(-RATES[2] * TIMES)  # what the run was given
    gain = np.sum((coarse - true) ** 2 - (fine - true) ** 2, axis=1) / (2 * SIGMA**2)
    weight = np.exp(-0.5 * ((z - np.log(rates[2])) / spread) ** 2)
    first_order = np.average((gain - np.average(gain, weights=weight)) * z, weights=weight) / spread
    found = most_moved(run)
    assert found.name == "log rate of system m2"
    assert abs(first_order) > 0.1
    # Chance has been taken off: two standard errors of 128 draws.
    assert 0.5 * abs(first_order) < found.by < abs(first_order)


def test_steps_too_short_to_move_anything_are_not_spoken_of():
    assert bad_scheme(settled(decay(dt=0.02), np.array([0.5, 1.0, 2.0]), 0.1)) is None


def test_what_moves_by_half_a_standard_deviation_cannot_be_trusted():
    found = bad_scheme(settled(decay(), np.array([0.5, 2.0, 9.0]), 0.1))
    assert found.serious
    assert "and log rate of system m2 by" in found.text
    assert "dt=0.0625, or integrator=cl.Adaptive()" in found.text
    assert bad_scheme(settled(decay(dt=0.0625), np.array([0.5, 2.0, 9.0]), 0.1)) is None
