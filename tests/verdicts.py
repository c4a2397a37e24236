"""Runs as the verdict sees them, and what it says of one thing alone."""

from types import SimpleNamespace

import numpy as np

from closura import MLP, Known, Law
from closura.diagnose import Evidence, judge
from closura.learning import Run, Settings
from closura.population import Phi
from closura.problems import mass_damper
from closura.sampling import convergence, named_draws

SYSTEMS = ("A", "B", "C")
GOOD = {"rhat": 1.0, "rhat_chains": 1.0, "rhat_groups": 1.0, "ess_bulk": 1000.0, "ess_tail": 1000.0}


NOTHING_TO_LEARN = [{}, {"f": SimpleNamespace(spec=Known(np.sin))}]
SAMPLED = {"f": SimpleNamespace(spec=Law())}


def learned(loglik, tempered=0, **more):
    """The log of learning, the likelihood tempered in its first iterations."""
    count = len(loglik)
    temperature = np.where(np.arange(count) < tempered, 0.5, 1.0)
    return {"loglik": loglik, "temperature": temperature, "phase": np.full(count, "learn")} | more


def make_run(**changes):
    """A finished run of three systems as the verdict sees it."""
    sampled = {"loglik": np.full(50, 99.0), "temperature": np.ones(50), "phase": np.full(50, "sample")}
    run = {
        "settings": Settings(),
        "finished": True,
        "phase": "sample",
        "iteration": 1000,
        "total": 1000,
        "chunks": [np.zeros(1)],
        "history": [learned(np.full(200, -10.0)), sampled],
        "laws": {"f": SimpleNamespace(spec=MLP())},
        "blocks": 3,
        "nonfinite": 0,
        "law_steps": 10**6,
        "diverged": None,
        "problem": mass_damper.problem,
        "data": SimpleNamespace(systems=SYSTEMS, counts=np.array([5, 6, 7])),
        "groups": np.repeat(np.arange(4), 4),
        "network": None,
        "learning_notes": [],
    }
    return type("Made", (Run,), {"__init__": lambda self: None, **run | changes})()


def make_draws(draws=2, chains=16, seed=0):
    """Noise, under the names of what three oscillators and their population have."""
    random = np.random.default_rng(seed)
    theta, mu, log_tau = (random.normal(size=(chains, draws, *shape)) for shape in ((3, 3), (3,), (3,)))
    return named_draws(theta, Phi(mu, log_tau), {}, mass_damper.problem.parameters, SYSTEMS)


def make_check(at=("theta", 0, 0), good=GOOD, **figures):
    """Every scalar fine but one."""
    check = convergence(make_draws(), make_run().groups)
    for variable in check.figures.data_vars.values():
        for number, value in enumerate(good.values()):
            variable.values[number] = value
    for figure, value in figures.items():
        check.figures[at[0]].values[(list(GOOD).index(figure), *at[1:])] = value
    return check


def without_figures(figure=np.nan):
    return make_check(good=dict.fromkeys(GOOD, figure))


def verdict(run=None, check=None, chi_square=1.0, outside=None, **more):
    return judge(run or make_run(), Evidence(check or make_check(), chi_square, outside or {"f": 0.0}, **more))


HEADS = {
    "not_converged": "NOT CONVERGED: do not use these results yet.",
    "untrusted": "CANNOT BE TRUSTED: do not use these results.",
}
LEARNED = "Converged given the learned law: intervals leave its error out."


def only_problem(given, word="not_converged") -> str:
    assert not given.converged
    assert given.word == word
    assert given.lines[0] == HEADS[word]
    assert len(given.problems) == 1
    assert given.remarks == []
    return given.problems[0]


def only_remark(given) -> str:
    assert given.converged
    assert given.lines[0] == LEARNED
    assert len(given.remarks) == 1
    return given.remarks[0]


def rising(rise):
    """A series that still rises by `rise` over the last sixth of its course, and a little noise."""
    noise = np.random.default_rng(0).normal(size=200)
    return -100 + noise + np.linspace(0, rise / 0.15, 200)


def improving(rise):
    return [learned(rising(rise))]
