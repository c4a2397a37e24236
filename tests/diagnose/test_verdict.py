"""The verdict names what is wrong, for which system and parameter, and what to do."""

from types import SimpleNamespace

import numpy as np
import pytest

from closura import MLP, Known
from closura.diagnose import Remark, SurrogateError, judge
from closura.learning import Settings
from closura.problems import mass_damper
from closura.sampling import Convergence

SYSTEMS = ("A", "B", "C")
SCALARS = 3 * 3 + 2 * 3


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
        "theta_draws": [np.zeros(1)],
        "history": [learned(np.full(200, -10.0)), sampled],
        "laws": {"f": SimpleNamespace(spec=MLP())},
        "chains": SimpleNamespace(log_step=np.zeros((4, 3))),
        "nonfinite": 0,
        "law_steps": 10**6,
        "diverged": None,
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
    assert "only 1 independent one (" in only_problem(verdict(check=make_check(**{which: 1.2})))


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


NOTHING_TO_LEARN = [{}, {"f": SimpleNamespace(spec=Known(np.sin))}]


def rising(rise):
    """A series that still rises by `rise` over the last sixth of its course, and a little noise."""
    noise = np.random.default_rng(0).normal(size=200)
    return -100 + noise + np.linspace(0, rise / 0.15, 200)


def improving(rise):
    return [learned(rising(rise))]


def test_closure_still_improving():
    said = only_problem(verdict(make_run(history=improving(20.0))))
    assert "The closure was still improving when learning ended (log likelihood up by" in said
    assert "raise --iterations (now 1500)" in said


def test_parameters_still_settling_under_a_flat_likelihood():
    """Law and parameters trade off: the likelihood is as it was, the parameters move to where their population is."""
    history = [learned(rising(0.0), log_joint=rising(20.0))]
    said = only_problem(verdict(make_run(history=history)))
    assert "The closure was still improving when learning ended (log joint density up by" in said
    assert "raise --iterations (now 1500)" in said
    assert verdict(make_run(history=[learned(rising(0.0), log_joint=rising(0.5))])).converged
    both = only_problem(verdict(make_run(history=[learned(rising(10.0), log_joint=rising(20.0))])))
    assert "log likelihood up by" in both
    assert "and log joint density up by" in both


def test_a_log_that_has_the_joint_density_only_later():
    """As after a resume of a run that an older version began."""
    first, second = learned(rising(20.0)[:100]), learned(rising(20.0)[100:], log_joint=np.zeros(100))
    assert "(log likelihood up by" in only_problem(verdict(make_run(history=[first, second])))


def test_a_gain_too_small_to_matter():
    assert verdict(make_run(history=improving(0.5))).converged


@pytest.mark.parametrize("laws", NOTHING_TO_LEARN)
def test_a_known_law_does_not_improve(laws):
    assert verdict(make_run(history=improving(20.0), laws=laws)).converged


def test_likelihoods_that_are_not_finite_are_left_out():
    history = improving(20.0)
    history[0]["loglik"][150:170:5] = -np.inf, np.nan, np.inf, np.nan
    assert "still improving" in only_problem(verdict(make_run(history=history)))
    history = improving(0.0)
    history[0]["loglik"][150] = -np.inf
    assert verdict(make_run(history=history)).converged


def test_a_rise_of_the_temperature_is_no_improvement():
    loglik = np.where(np.arange(200) < 170, -500.0, -100.0) + np.random.default_rng(0).normal(size=200)
    assert verdict(make_run(history=[learned(loglik, tempered=170)])).converged


@pytest.mark.parametrize(
    ("settings", "log", "counted", "advice"),
    [
        ({"iterations": 40}, learned(np.zeros(40)), "only 12 of the last 12", "Raise --iterations (now 40)."),
        (
            {"warmup": 0.95},
            learned(np.zeros(200), tempered=190),
            "only 10 of the last 60",
            "Lower --set warmup (now 0.95: the likelihood was tempered nearly to the end).",
        ),
        (
            {"iterations": 30, "warmup": 1.0},
            learned(np.zeros(30), tempered=30),
            "only 0 of the last 9",
            "Raise --iterations (now 30); lower --set warmup (now 1: ",
        ),
        (
            {},
            learned(np.where(np.arange(200) < 150, 0.0, np.nan)),
            "only 10 of the last 60",
            "Where the likelihood was not finite, narrow the priors, lower dt, or choose a stiff integrator.",
        ),
        (
            {},
            learned(np.zeros(200), log_joint=np.full(200, np.nan)),
            "only 0 of the last 60",
            "Where the likelihood was not finite, ",
        ),
    ],
)
def test_learning_that_cannot_be_judged(settings, log, counted, advice):
    run = make_run(settings=Settings(**settings), history=[log])
    said = only_problem(verdict(run))
    assert said.startswith(
        f"Whether the closure had settled cannot be judged: {counted} iterations of learning can tell"
    )
    assert "and it takes 20. " + advice in said
    for laws in NOTHING_TO_LEARN:
        run.laws = laws
        assert verdict(run).converged


def test_misses_the_data():
    said = only_problem(verdict(chi_square=9.0))
    assert "misses the data by 3.0 noise standard deviations" in said
    assert "the noise is larger than stated, physics is missing that the closure cannot supply, or learning got" in said
    assert "Check sigma and the equation; raise --iterations (now 1500) or try another --seed" in said
    for laws in NOTHING_TO_LEARN:
        said = only_problem(verdict(make_run(laws=laws), chi_square=9.0))
        assert "physics is missing, or the chains got stuck" in said


FOUND = [
    Remark("chi_square", "fleet", "all loud"),
    Remark("largest", "system", "one far"),
    Remark("pattern", "fleet", "waves"),
]


def test_what_checks_found_is_remarked():
    given = judge(make_run(), make_check(), 1.5, {}, checked=FOUND)
    assert given.lines == ["Converged.", "all loud", "one far", "waves"]
    learning = make_run(finished=False, phase="learn", theta_draws=[])
    assert judge(learning, make_check(), 1.5, {}, checked=FOUND).remarks == []


def test_a_misfit_is_not_said_twice():
    given = judge(make_run(), make_check(), 9.0, {}, checked=FOUND)
    assert len(given.problems) == 1
    assert given.remarks == ["one far", "waves"]


@pytest.mark.parametrize("chi_square", [np.nan, np.inf])
def test_predictions_that_are_not_finite(chi_square):
    said = only_problem(verdict(chi_square=chi_square))
    assert "Whether the fit meets the data cannot be told" in said
    assert "Narrow the priors" in said
    nothing = SimpleNamespace(systems=(), counts=np.zeros(0, int))
    assert verdict(make_run(data=nothing), chi_square=chi_square).converged


def test_a_run_that_still_learns_is_held_to_nothing_else():
    run = make_run(finished=False, phase="learn", iteration=40, theta_draws=[], history=[learned(np.arange(40.0))])
    assert only_problem(verdict(run, chi_square=1e6)).startswith("Stopped at iteration 40")


def test_calls_outside_the_table():
    said = only_remark(verdict(outside={"f": 0.05, "g": 0.0005}))
    assert "5.0% of the calls of closure 'f' lie outside its table" in said


def test_proposals_without_a_solution():
    evaluated = 1000 * 64 * 3
    said = only_remark(verdict(make_run(nonfinite=0.2 * evaluated)))
    assert "20.0% of the proposals gave no finite solution" in said
    assert "narrow the priors, lower dt, or choose a stiff integrator" in said
    assert verdict(make_run(nonfinite=0.009 * evaluated)).lines == ["Converged."]


@pytest.mark.parametrize("figure", [np.nan, 5.0])
def test_hardly_any_proposal_with_a_solution(figure):
    """Whatever else is wrong has this cause, and advice on anything else would mislead."""
    check = Convergence(*(np.full(SCALARS, figure) for _ in range(4)))
    history = [learned(np.full(200, -np.inf))]
    run = make_run(nonfinite=0.96 * 1000 * 64 * 3, history=history)
    said = only_problem(verdict(run, check, chi_square=np.nan))
    assert "96.0% of the proposals gave no finite solution" in said
    assert "narrow the priors, lower dt, or choose a stiff integrator" in said
    run.nonfinite = 0.94 * 1000 * 64 * 3
    assert len(verdict(run, check, chi_square=np.nan).problems) > 1


@pytest.mark.parametrize(
    ("counts", "hierarchy", "words"),
    [
        ((1, 6, 7), True, "1 system has one observation: the population speaks for it."),
        ((1, 1, 7), True, "2 systems have one observation: the population speaks for them."),
        ((1, 6, 7), False, "1 system has one observation: the prior speaks for it."),
    ],
)
def test_systems_with_one_observation(counts, hierarchy, words):
    data = SimpleNamespace(systems=SYSTEMS, counts=np.array(counts))
    assert only_remark(verdict(make_run(data=data, settings=Settings(hierarchy=hierarchy)))) == words


def test_kernels_for_comparison():
    said = only_problem(verdict(make_run(settings=Settings(metropolis=False))))
    assert "metropolis=False leaves a discretisation error" in said
    said = only_remark(verdict(make_run(settings=Settings(covariance="self"))))
    assert "biased while its covariance moves with the chains, as it does while learning" in said
    assert "kept draws use a frozen covariance and are not biased" in said
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
    check.rhat_nested[4] = np.nan
    assert "worst for u0 of system B" in verdict(check=check).problems[0]


def test_learning_that_diverged_comes_first():
    run = make_run(finished=False, phase="learn", theta_draws=[], diverged="Learning diverged: lower the rate.")
    lines = verdict(run).lines
    assert lines[1] == "Learning diverged: lower the rate. What follows is where the run stood before."
    assert not any("Stopped at" in line for line in lines)


@pytest.mark.parametrize(
    ("error", "corrected", "says"),
    [
        (0.49, False, None),
        (0.51, False, "by 0.51 times the noise"),
        (np.nan, False, "beyond all numbers"),
        (2.0, True, None),
    ],
)
def test_a_surrogate_off_by_half_the_noise(error, corrected, says):
    run = make_run()
    run.settings = SimpleNamespace(**run.settings.model_dump(), corrected=corrected)
    found = judge(run, make_check(), 1.0, {"f": 0.0}, SurrogateError(error, error, "A"))
    assert found.converged is (says is None)
    if says:
        assert says in found.problems[0]
        assert "--exact" in found.problems[0]


def test_a_surrogate_that_fails_one_system_names_it():
    run = make_run()
    run.settings = SimpleNamespace(**run.settings.model_dump(), corrected=False)
    found = judge(run, make_check(), 1.0, {"f": 0.0}, SurrogateError(0.2, 0.9, "B"))
    assert found.converged
    assert "For system B the surrogate is off from the solver by 0.90 times the noise (all: 0.20)" in found.remarks[0]


@pytest.mark.parametrize(
    ("axis", "remedy"), [("time", "raise the problem's snapshots"), ("x", "raise the problem's cells")]
)
def test_solutions_that_cannot_be_read_between_their_points(axis, remedy):
    fine, coarse = (judge(make_run(), make_check(), 1.0, {}, None, {axis: error}) for error in (0.1, 0.4))
    assert fine.remarks == []
    assert coarse.converged
    assert "off by about 0.4 times the noise" in coarse.remarks[0]
    assert remedy in coarse.remarks[0]
