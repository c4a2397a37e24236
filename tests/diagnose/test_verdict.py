"""The verdict names what is wrong, for which system and parameter, and what to do."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from verdicts import (
    LEARNED,
    NOTHING_TO_LEARN,
    SAMPLED,
    SYSTEMS,
    learned,
    make_check,
    make_run,
    only_problem,
    only_remark,
    verdict,
    without_figures,
)

from closura.diagnose import Remark, SurrogateError
from closura.equations import NOISES
from closura.learning import Settings
from closura.problems import mass_damper


def test_nothing_wrong():
    given = verdict()
    assert given.converged
    assert given.word == "converged"
    assert given.lines == [LEARNED]
    for laws in (*NOTHING_TO_LEARN, SAMPLED):
        assert verdict(make_run(laws=laws)).lines == ["Converged."]


@pytest.mark.parametrize(
    ("at", "name"),
    [
        (("theta", 0, 0), "log k of system A"),
        (("theta", 1, 2), "v0 of system B"),
        (("theta", 2, 1), "u0 of system C"),
        (("mu", 0), "mean of log k in the population"),
        (("mu", 2), "mean of v0 in the population"),
        (("log_tau", 1), "log variance of u0 in the population"),
    ],
)
def test_chains_that_disagree(at, name):
    said = only_problem(verdict(check=make_check(at, rhat=1.234)))
    assert f"R-hat is 1.234 (should be below 1.01), worst for {name}: chains disagree" in said
    assert "Raise --iterations" in said


def test_chains_that_nearly_agree_need_time_alone():
    said = only_problem(verdict(check=make_check(rhat=1.1)))
    assert "Sample longer: --draws 1200 (now 300); if two solutions" in said
    assert "Raise" not in said


def test_rhat_at_its_limit():
    assert verdict(check=make_check(rhat=1.0099)).converged
    assert not verdict(check=make_check(rhat=1.01)).converged


@pytest.mark.parametrize("which", ["ess_bulk", "ess_tail"])
def test_few_effective_draws(which):
    said = only_problem(verdict(check=make_check(("theta", 2, 1), **{which: 123.4})))
    assert "The draws of u0 of system C are worth only 123 independent ones (should exceed 400): raise --draws" in said
    assert "only 1 independent one (" in only_problem(verdict(check=make_check(**{which: 1.2})))


@pytest.mark.parametrize(("phase", "doing"), [("learn", "learning the closure"), ("tune", "tuning")])
def test_stopped_before_sampling(phase, doing):
    """R-hat of no draws is not a number and not a reproach."""
    nothing = without_figures()
    run = make_run(finished=False, phase=phase, iteration=70, chunks=[])
    said = only_problem(verdict(run, nothing))
    assert said.startswith(f"Stopped at iteration 70 of 1000, while {doing}")
    assert "`closura resume`" in said


def test_stopped_while_sampling():
    given = verdict(make_run(finished=False, iteration=900), make_check(rhat=1.2))
    assert "Stopped at iteration 900 of 1000, while sampling" in given.problems[0]
    assert "R-hat is 1.200" in given.problems[1]


def test_misses_the_data():
    said = only_problem(verdict(chi_square=9.0), "untrusted")
    assert "misses the data by 3.0 noise standard deviations" in said
    assert "the noise is larger than stated, physics is missing that the closure cannot supply, or learning got" in said
    assert "Check sigma and the equation; raise --iterations (now 1500) or try another --seed" in said
    for laws in NOTHING_TO_LEARN:
        said = only_problem(verdict(make_run(laws=laws), chi_square=9.0), "untrusted")
        assert "physics is missing, or the chains got stuck" in said


def test_noise_without_a_scale_has_no_sigma_to_check():
    problem = copy.copy(mass_damper.problem)
    problem.noise = NOISES["poisson"]
    said = only_problem(verdict(make_run(problem=problem), chi_square=9.0), "untrusted")
    assert "the counts scatter more than those of independent events, physics is missing" in said
    assert "Check the counts and the equation; raise --iterations (now 1500)" in said
    assert "sigma" not in said


FOUND = [
    Remark("chi_square", "fleet", "all loud"),
    Remark("largest", "system", "one far"),
    Remark("pattern", "fleet", "waves"),
]


def test_what_checks_found_is_remarked():
    given = verdict(chi_square=1.5, checked=FOUND)
    assert given.lines == [LEARNED, "all loud", "one far", "waves"]
    learning = make_run(finished=False, phase="learn", chunks=[])
    assert verdict(learning, chi_square=1.5, checked=FOUND).remarks == []


def test_a_misfit_is_not_said_twice():
    given = verdict(chi_square=9.0, checked=FOUND)
    assert len(given.problems) == 1
    assert given.remarks == ["one far", "waves"]


@pytest.mark.parametrize("chi_square", [np.nan, np.inf])
def test_predictions_that_are_not_finite(chi_square):
    said = only_problem(verdict(chi_square=chi_square), "untrusted")
    assert "Whether the fit meets the data cannot be told" in said
    assert "Narrow the priors" in said
    nothing = SimpleNamespace(systems=(), counts=np.zeros(0, int))
    assert verdict(make_run(data=nothing), chi_square=chi_square).converged


def test_a_run_that_still_learns_is_held_to_nothing_else():
    run = make_run(finished=False, phase="learn", iteration=40, chunks=[], history=[learned(np.arange(40.0))])
    assert only_problem(verdict(run, chi_square=1e6)).startswith("Stopped at iteration 40")


def test_calls_outside_the_table():
    said = only_remark(verdict(outside={"f": 0.05, "g": 0.0005}))
    assert "5.0% of the calls of closure 'f' lie outside its table" in said
    assert "its band is narrower than it should be" not in said
    given = verdict(make_run(laws=SAMPLED), outside={"f": 0.05})
    assert "continues as a straight line, and its band is narrower than it should be." in given.remarks[0]


def test_proposals_without_a_solution():
    evaluated = 1000 * 64 * 3
    said = only_remark(verdict(make_run(nonfinite=0.2 * evaluated)))
    assert "20.0% of the proposals gave no finite solution" in said
    assert "narrow the priors, lower dt, or choose a stiff integrator" in said
    assert verdict(make_run(nonfinite=0.019 * evaluated)).lines == [LEARNED]


@pytest.mark.parametrize(("share", "word"), [(0.019, "converged"), (0.05, "converged"), (0.3, "untrusted")])
def test_laws_without_a_solution(share, word):
    """One law in twenty is proposed for all systems at once: among proposals of them all that hardly counts."""
    kept = {"phase": np.full(50, "sample"), "unsolved_laws": np.where(np.arange(50) % 2, share, np.nan)}
    given = verdict(make_run(laws=SAMPLED, history=[learned(np.full(200, -10.0)), kept]))
    assert given.word == word
    said = (
        f"Under {share:.1%} of the laws that were proposed some system had no finite solution, and they were rejected"
    )
    assert any(line.startswith(said) for line in given.lines) == (share > 0.02)
    assert all("dissipative=True" in line for line in given.lines if line.startswith(said))


@pytest.mark.parametrize("figure", [np.nan, 5.0])
def test_hardly_any_proposal_with_a_solution(figure):
    """Whatever else is wrong has this cause, and advice on anything else would mislead."""
    check = without_figures(figure)
    history = [learned(np.full(200, -np.inf))]
    run = make_run(nonfinite=0.96 * 1000 * 64 * 3, history=history)
    said = only_problem(verdict(run, check, chi_square=np.nan), "untrusted")
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
    said = only_problem(verdict(make_run(settings=Settings(metropolis=False))), "untrusted")
    assert "metropolis=False leaves a discretisation error" in said
    said = only_remark(verdict(make_run(settings=Settings(covariance="self"))))
    assert "biased while its covariance moves with the chains, as it does while learning" in said
    assert "kept draws use a frozen covariance and are not biased" in said
    assert "R-hat cannot compare" in only_remark(verdict(make_run(settings=Settings(groups=1))))


def test_too_few_draws_to_judge():
    """Fewer than four draws, or chains that never moved: no figure, and no verdict of convergence."""
    assert not verdict(check=without_figures()).converged


def test_some_figures_missing():
    """A scalar that never moved has no R-hat; the others are judged."""
    check = make_check(("theta", 1, 1), rhat=1.5)
    check.figures["theta"].values[:4, 0, 0] = np.nan
    assert "worst for u0 of system B" in verdict(check=check).problems[0]


def test_learning_that_diverged_comes_first():
    run = make_run(finished=False, phase="learn", chunks=[], diverged="Learning diverged: lower the rate.")
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
    run = make_run(settings=Settings(forward="basis", delayed_acceptance=corrected))
    found = verdict(run, surrogate_error=SurrogateError(error, error, "A"))
    assert found.converged is (says is None)
    if says:
        assert says in found.problems[0]
        assert "--delayed-acceptance" in found.problems[0]


def test_a_surrogate_off_over_all_systems_at_once():
    """Where chains sample laws one test is for all data, and small errors add."""
    run = make_run(settings=Settings(forward="basis"))
    fine, off, unsolved = (
        verdict(run, surrogate_error=SurrogateError(0.03, 0.05, "A", joint, share))
        for joint, share in ((0.9, 0.01), (1.3, 0.0), (0.5, 0.05))
    )
    assert fine.converged
    assert not off.converged
    assert "1.3 units of log likelihood (should be below 1)" in off.problems[0]
    assert "At 5.0% of posterior draws the solver has no solution" in unsolved.problems[0]


def test_a_surrogate_that_fails_one_system_names_it():
    found = verdict(make_run(settings=Settings(forward="basis")), surrogate_error=SurrogateError(0.2, 0.9, "B"))
    assert found.converged
    assert "For system B the surrogate is off from the solver by 0.90 times the noise (all: 0.20)" in found.remarks[0]


@pytest.mark.parametrize(
    ("axis", "remedy"), [("time", "raise the problem's snapshots"), ("x", "raise the problem's cells")]
)
def test_solutions_that_cannot_be_read_between_their_points(axis, remedy):
    fine, coarse = (verdict(reading={axis: error}) for error in (0.1, 0.4))
    assert fine.remarks == []
    assert coarse.converged
    assert "off by about 0.4 times the noise" in coarse.remarks[0]
    assert remedy in coarse.remarks[0]
