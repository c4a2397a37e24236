"""The verdict names what is wrong, for which system and parameter, and what to do."""

from types import SimpleNamespace

import numpy as np
import pytest

from closura.diagnose import judge
from closura.learning import Settings
from closura.problems import mass_damper
from closura.sampling import Convergence

SYSTEMS = ("A", "B", "C")
SCALARS = 3 * 3 + 2 * 3


def make_run(**changes):
    """A finished run of three systems as the verdict sees it."""
    learned = {"loglik": np.full(200, -10.0), "phase": np.full(200, "learn")}
    run = {
        "settings": Settings(),
        "finished": True,
        "phase": "sample",
        "iteration": 1000,
        "total": 1000,
        "theta_draws": [np.zeros(1)],
        "history": [learned, {"loglik": np.full(50, 99.0), "phase": np.full(50, "sample")}],
        "laws": {"f": SimpleNamespace(network=None)},
        "chains": SimpleNamespace(log_step=np.zeros((4, 3))),
        "nonfinite": 0,
        "problem": mass_damper.problem,
        "data": SimpleNamespace(systems=SYSTEMS, counts=np.array([5, 6, 7])),
    }
    return SimpleNamespace(**run | changes)


def make_check(rhat=1.0, nested=1.0, bulk=1000.0, tail=1000.0, at=0):
    """Every scalar fine but one."""
    arrays = [np.full(SCALARS, good) for good in (1.0, 1.0, 1000.0, 1000.0)]
    for array, value in zip(arrays, (rhat, nested, bulk, tail)):
        array[at] = value
    return Convergence(*arrays)


def verdict(run=None, check=None, chi_square=1.0, outside=None):
    return judge(run or make_run(), check or make_check(), chi_square, outside or {"f": 0.0})


def only_problem(given) -> str:
    assert not given.converged
    assert given.lines[0] == "NOT CONVERGED: do not use these results yet."
    assert len(given.problems) == 1
    assert given.remarks == []
    return given.problems[0]


def only_remark(given) -> str:
    assert given.converged
    assert given.lines[0] == "Converged."
    assert len(given.remarks) == 1
    return given.remarks[0]


def test_nothing_wrong():
    given = verdict()
    assert given.converged
    assert given.lines == ["Converged."]


@pytest.mark.parametrize(
    ("at", "name"),
    [
        (0, "log k of system A"),
        (5, "v0 of system B"),
        (7, "u0 of system C"),
        (9, "mean of log k in the population"),
        (11, "mean of v0 in the population"),
        (13, "log variance of u0 in the population"),
    ],
)
@pytest.mark.parametrize("which", ["rhat", "nested"])
def test_chains_that_disagree(at, name, which):
    said = only_problem(verdict(check=make_check(**{which: 1.234}, at=at)))
    assert f"R-hat is 1.234 (should be below 1.01), worst for {name}: chains disagree" in said
    assert "Raise --iterations" in said


def test_rhat_at_its_limit():
    assert verdict(check=make_check(rhat=1.0099)).converged
    assert not verdict(check=make_check(rhat=1.01)).converged


@pytest.mark.parametrize("which", ["bulk", "tail"])
def test_few_effective_draws(which):
    said = only_problem(verdict(check=make_check(**{which: 123.4})))
    assert "worth only 123 independent ones (should exceed 400): raise --draws or --chains" in said


@pytest.mark.parametrize(("phase", "doing"), [("learn", "learning the closure"), ("settle", "settling")])
def test_stopped_before_sampling(phase, doing):
    """R-hat of no draws is not a number and not a reproach."""
    nothing = Convergence(*(np.full(SCALARS, np.nan) for _ in range(4)))
    run = make_run(finished=False, phase=phase, iteration=70, theta_draws=[])
    said = only_problem(verdict(run, nothing))
    assert said.startswith(f"Stopped at iteration 70 of 1000, while {doing}")
    assert "`closura resume`" in said


def test_stopped_while_sampling():
    given = verdict(make_run(finished=False, iteration=900), make_check(rhat=1.2))
    assert "Stopped at iteration 900 of 1000, while sampling" in given.problems[0]
    assert "R-hat is 1.200" in given.problems[1]


def improving(rise):
    """Log likelihoods that still rise by `rise` from the last third to the end, and a little noise."""
    noise = np.random.default_rng(0).normal(size=200)
    loglik = -100 + noise + np.linspace(0, rise / 0.15, 200)
    return [{"loglik": loglik, "phase": np.full(200, "learn")}]


def test_closure_still_improving():
    said = only_problem(verdict(make_run(history=improving(20.0))))
    assert "The closure was still improving when learning ended (log likelihood up by" in said
    assert "raise --iterations (now 1500)" in said


def test_a_gain_too_small_to_matter():
    assert verdict(make_run(history=improving(0.5))).converged


def test_a_known_law_does_not_improve():
    assert verdict(make_run(history=improving(20.0), laws={"f": SimpleNamespace()})).converged


def test_likelihoods_that_are_not_finite_are_not_judged():
    history = improving(20.0)
    history[0]["loglik"][150] = -np.inf
    assert verdict(make_run(history=history)).converged


def test_short_learning_is_not_judged():
    history = [{"loglik": np.arange(40.0), "phase": np.full(40, "learn")}]
    assert verdict(make_run(history=history)).converged


def test_misses_the_data():
    said = only_remark(verdict(chi_square=9.0))
    assert "misses the data by 3.0 noise standard deviations" in said
    assert "sigma is stated too small, or the physics lacks something" in said


def test_calls_outside_the_table():
    said = only_remark(verdict(outside={"f": 0.05, "g": 0.0005}))
    assert "5.0% of the calls of closure 'f' lie outside its table" in said


def test_proposals_without_a_solution():
    evaluated = 1000 * 64 * 3
    said = only_remark(verdict(make_run(nonfinite=0.2 * evaluated)))
    assert "20.0% of the proposals gave no finite solution" in said
    assert "narrow the priors, lower dt, or choose a stiff integrator" in said
    assert verdict(make_run(nonfinite=0.009 * evaluated)).lines == ["Converged."]


def test_systems_with_one_observation():
    run = make_run(data=SimpleNamespace(systems=SYSTEMS, counts=np.array([1, 1, 7])))
    assert "2 systems have one observation" in only_remark(verdict(run))


def test_kernels_for_comparison():
    said = only_problem(verdict(make_run(settings=Settings(metropolis=False))))
    assert "metropolis=False leaves a discretisation error" in said
    assert "biased" in only_remark(verdict(make_run(settings=Settings(covariance="self"))))
    assert "R-hat cannot compare" in only_remark(verdict(make_run(settings=Settings(groups=1))))


def test_too_few_draws_to_judge():
    """Fewer than four draws, or chains that never moved: no figure, and no verdict of convergence."""
    nothing = Convergence(*(np.full(SCALARS, np.nan) for _ in range(4)))
    assert not verdict(check=nothing).converged


def test_some_figures_missing():
    """A scalar that never moved has no R-hat; the others are judged."""
    check = make_check(rhat=1.5, at=4)
    check.rhat[0] = check.rhat_nested[0] = check.ess_bulk[0] = np.nan
    assert "worst for u0 of system B" in verdict(check=check).problems[0]
