"""Whether learning had settled, and what the verdict says where it had not."""

import numpy as np
import pytest
from verdicts import NOTHING_TO_LEARN, SAMPLED, improving, learned, make_check, make_run, only_problem, rising, verdict

from closura.learning import Settings


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
            {"tempering": 0.95},
            learned(np.zeros(200), tempered=190),
            "only 10 of the last 60",
            "Lower --set tempering (now 0.95: the likelihood was tempered nearly to the end).",
        ),
        (
            {"iterations": 30, "tempering": 1.0},
            learned(np.zeros(30), tempered=30),
            "only 0 of the last 9",
            "Raise --iterations (now 30); lower --set tempering (now 1: ",
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


def test_learning_of_sampled_laws_speaks_for_itself(monkeypatch):
    """Whether likelihoods rise is not asked of laws that go on moving; what their learning notes is a cause where chains disagree."""
    run = make_run(laws=SAMPLED, history=improving(20.0), law_steps=0)
    assert verdict(run).lines == ["Converged."]
    monkeypatch.setattr(type(run), "learning_notes", ["Learning was cut short by the clock."])
    assert verdict(run).lines == ["Converged.", "Learning was cut short by the clock."]
    assert verdict(run, make_check(rhat=1.5)).problems[0] == "Learning was cut short by the clock."
