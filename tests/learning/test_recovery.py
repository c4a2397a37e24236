"""A whole run of the published method: a network and parameters are found, MALA does as it was told."""

import jax
import numpy as np
import pytest

from closura.diagnose import closure_mse_visited, theta_scores
from closura.equations import unit_scaling
from closura.laws import MLP, FittedLaw
from closura.learning import Run, Settings
from closura.problems import mass_damper

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def recovered():
    data, truth = mass_damper.simulate(10, 3)
    kernels = ("theta", "population", "differential_evolution", "multi_try")
    problem = mass_damper.problem.with_closure(MLP())
    run = Run(problem, data, Settings(iterations=900, draws=150, sampler=kernels))
    while not run.finished:
        run.advance()
    return run, truth


def test_recovers_law_and_parameters(recovered):
    run, truth = recovered
    theta_mse, coverage = theta_scores(run.theta(), truth.theta)
    forward = run.setup.likelihood.forward
    known = {n: s.build(jax.random.key(0), unit_scaling(1)) for n, s in mass_damper.oracle().closures.items()}
    seen = np.concatenate(
        [np.asarray(forward.law_inputs(jax.numpy.asarray(t, float), known, 0)["f"]) for t in truth.theta]
    )
    law = closure_mse_visited(FittedLaw("f", run.laws["f"], ("v",), None), mass_damper.laws["f"], seen)
    assert theta_mse < 0.25
    assert 0.8 <= coverage <= 1.0
    # The law itself has variance above 1 over these inputs.
    assert law < 0.1
    check = run.convergence()
    assert check.rhat_max < 1.02
    assert check.least.value > 400


def test_acceptance_is_near_its_aim_and_nothing_failed(recovered):
    run, _ = recovered
    sampled = np.concatenate([h["acceptance"] for h in run.history if h["phase"][0] == "sample"])
    assert abs(sampled.mean() - 0.574) < 0.04
    assert run.nonfinite < 0.01 * run.iteration * run.settings.chains * 10
    assert max(run.outside().values()) < 1e-3


def test_temperature_rises_to_one_and_phases_follow(recovered):
    run, _ = recovered
    learn = np.concatenate([h["temperature"] for h in run.history if h["phase"][0] == "learn"])
    assert np.isclose(learn[0], 1e-3, rtol=0.05)
    assert np.all(np.diff(learn) >= 0)
    assert learn[int(0.45 * len(learn))] == 1
    phases = [h["phase"][0] for h in run.history]
    assert phases == sorted(phases, key=["learn", "tune", "sample"].index)
