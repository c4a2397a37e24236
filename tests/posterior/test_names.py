"""Every scalar by its name: in the verdict and in the summary, whatever is shared, correlated, shifted or known."""

import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.diagnose import Evidence, judge
from closura.learning import Run, Settings
from closura.population import Phi

SYSTEMS, CHAINS, DRAWS = ("a", "b", "pump-3"), 16, 100
PARAMETERS = {
    "k": cl.Positive(guess=1.0),
    "rate": cl.Real(shared=True),
    "w": cl.Real(),
    "depth": cl.Positive(guess=1.0, shared=True),
    "u0": cl.Real(),
}


def lines(**changes):
    """Two straight lines; of v the noise is known, of u not."""
    options = {
        "state": ("u", "v"),
        "parameters": PARAMETERS,
        "initial": lambda p: (p.u0, p.w),
        "span": (0.0, 4.0),
        "dt": 0.5,
        "observed": ("u", "v"),
        "sigma": {"v": 0.1},
        "covariates": {"k": ["size", "age"], "u0": ["age"]},
    }
    return cl.ODE(lambda t, s, p: (p.rate * p.depth + 0.0 * s.u, p.k + 0.0 * s.v), **options | changes)


def table():
    time = np.arange(4.0)
    rows = [
        {"system": s, "time": t, "u": t, "v": t, "size": i, "age": i**2} for i, s in enumerate(SYSTEMS) for t in time
    ]
    return pd.DataFrame(rows)


def run_of(problem, hierarchy=True, population="full"):
    settings = Settings(
        chains=CHAINS, groups=2, preconditioner=None, hierarchy=hierarchy, population=population, devices=1
    )
    return Run(problem, cl.data.read_table(table()), settings)


def around(seed, *shape):
    return np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, *shape)).astype(np.float32)


class Drawn:
    """Draws of a run: independent noise, of every number; `apart` moves one group away."""

    def __init__(self, run):
        self.run = run
        shared = np.array(run.problem.parameters.shared)
        theta = around(0, len(SYSTEMS), len(shared))
        self.theta = np.where(shared, theta[:, :, :1], theta)
        self.mu, self.log_tau = around(1, len(shared)), np.where(shared, -np.inf, around(2, len(shared)))
        self.mu[..., shared] = self.theta[:, :, 0, shared]
        self.slope, self.bond, self.log_sigma = around(3, 3), 0.3 * around(4, 3), around(5, 2)

    def apart(self, variable, *place):
        """Move one number of the first group away, by more than it scatters; what is shared, wherever it stands."""
        array = getattr(self, variable)
        array[(slice(0, CHAINS // 2), slice(None), *place)] += 3.0
        if variable == "theta":
            shared = np.array(self.run.problem.parameters.shared)
            self.mu[..., shared] = self.theta[:, :, 0, shared]

    def install(self):
        run = self.run
        effects = self.slope if run.problem.covariates else None
        bonds = self.bond if run.settings.population == "full" else None
        run.theta = lambda: self.theta
        run.phi = lambda: Phi(self.mu, self.log_tau, effects, bonds) if run.settings.hierarchy else ()
        run.log_sigma = lambda: self.log_sigma
        run.theta_draws, run.iteration = [self.theta], run.total
        return run


@pytest.fixture(scope="module")
def run():
    return run_of(lines())


EVERY = [
    (("theta", 2, 0), "log k of system pump-3"),
    (("theta", 1, 4), "u0 of system b"),
    (("mu", 2), "mean of w in the population"),
    (("log_tau", 0), "log variance of log k in the population"),
    (("log_tau", 2), "log variance of w in the population"),
    (("log_tau", 4), "log variance of u0 in the population"),
    (("theta", slice(None), 1), "rate, which all systems share"),
    (("slope", 1), "shift of log k by age in the population"),
    (("slope", 2), "shift of u0 by age in the population"),
    (("bond", 0), "correlation of log k and w in the population"),
    (("log_sigma", 0), "log sigma of u"),
]


@pytest.mark.parametrize(("moved", "name"), EVERY, ids=[name for _, name in EVERY])
def test_the_verdict_names_the_scalar_that_is_off(run, moved, name):
    drawn = Drawn(run)
    drawn.apart(*moved)
    run = drawn.install()
    said = judge(run, Evidence(run.convergence(), 1.0, {})).problems
    assert f"worst for {name}: chains disagree" in said[0]
