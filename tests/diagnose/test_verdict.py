"""The verdict names what is wrong, for which system and parameter, and what to do."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from closura import MLP, Known, Law
from closura.diagnose import Evidence, Party, Remark, SurrogateError, Undecided, judge
from closura.diagnose._remarks import odd_steps, repeated_draws
from closura.equations import NOISES
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


# Four words


OPEN = Undecided((Party("m", "number", "m", 1.0, "log"), Party("the size of f", "part", "f", 1.0, "log")))


def test_what_data_do_not_decide_is_in_the_first_line():
    given = verdict(make_run(laws=SAMPLED), undecided=[OPEN])
    assert given.word == "undecided"
    assert given.converged
    assert given.lines[0] == "Converged, but data do not decide m and the size of f: only their ratio."
    assert given.lines[1].startswith("Data do not decide m and the size of f: only their ratio. The interval of each")
    assert given.names == ["m", "the size of f"]
    assert verdict(undecided=[OPEN]).lines[0] == (
        "Converged given the learned law (intervals leave its error out), but data do not decide m and the size of f: only their ratio."
    )


def test_chains_that_do_not_agree_have_decided_nothing_yet():
    given = verdict(make_run(laws=SAMPLED), make_check(rhat=1.1), undecided=[OPEN])
    assert (given.word, given.names) == ("not_converged", [])
    assert given.remarks[0].startswith("Data do not decide m")  # which may be why
    assert verdict(make_run(laws=SAMPLED), make_check(rhat=1.5), undecided=[OPEN]).remarks == []


def test_the_first_cause_gives_the_word():
    """Without a test of proposals nothing that comes of them can be trusted, whether chains agree or not."""
    both = verdict(make_run(settings=Settings(metropolis=False)), make_check(rhat=1.5))
    assert both.word == "untrusted"
    assert "metropolis=False" in both.problems[0]
    assert "R-hat is 1.500" in both.problems[1]
    misses = verdict(check=make_check(rhat=1.5), chi_square=9.0)
    assert misses.word == "not_converged"
    stopped = verdict(make_run(finished=False, settings=Settings(metropolis=False)))
    assert stopped.word == "not_converged"


def test_proposals_that_fail_while_draws_are_kept():
    def failing(share):
        sampled = {"loglik": np.full(50, 99.0), "phase": np.full(50, "sample"), "nonfinite": np.full(50, share)}
        return verdict(make_run(history=[learned(np.full(200, -10.0)), sampled]))

    said = only_problem(failing(0.25), "untrusted")
    assert "25.0% of the proposals gave no finite solution and were rejected while draws were kept" in said
    assert failing(0.15).converged


def test_learning_of_sampled_laws_speaks_for_itself(monkeypatch):
    """Whether likelihoods rise is not asked of laws that go on moving; what their learning notes is a cause where chains disagree."""
    run = make_run(laws=SAMPLED, history=improving(20.0), law_steps=0)
    assert verdict(run).lines == ["Converged."]
    monkeypatch.setattr(type(run), "learning_notes", ["Learning was cut short by the clock."])
    assert verdict(run).lines == ["Converged.", "Learning was cut short by the clock."]
    assert verdict(run, make_check(rhat=1.5)).problems[0] == "Learning was cut short by the clock."


# Chains that hardly move ----------------------------------------------------------------------------------------------


def standing(share, system=2, group=2, draws=101):
    """Independent draws, of which one system's in one group repeat the one before that often."""
    made, random = make_draws(draws), np.random.default_rng(1)
    theta = made["theta"].values
    for chain in np.flatnonzero(make_run().groups == group):
        for draw in np.flatnonzero(random.random(draws - 1) < share) + 1:
            theta[chain, draw, system] = theta[chain, draw - 1, system]
    return made


def test_draws_of_one_group_of_one_system_that_repeat():
    said = only_problem(verdict(draws=standing(0.81)), "untrusted")
    assert said.startswith("Draws of k, u0, v0 of C in group 2 repeat 8")
    assert "% of the time (elsewhere 0%): these chains hardly move. Raise --iterations" in said
    assert verdict(draws=standing(0.5)).converged
    assert verdict(draws=standing(0.81, draws=20)).converged  # too few to tell


def test_draws_that_repeat_in_part_do_not_count():
    """Of a system that moves in one parameter and stands in the others: no step was rejected."""
    made = standing(0.81)
    made["theta"].values[..., 0] = np.random.default_rng(2).normal(size=made["theta"].shape[:3])
    assert verdict(draws=made).converged


def test_a_run_in_which_most_draws_repeat_has_nobody_who_stands_out():
    """That costs effective draws, which are counted: nothing is wrong with any one group. Nor where a system is slow in all of them."""
    made = make_draws(101)
    theta = made["theta"].values
    theta[:, :, 1] = np.repeat(theta[:, ::10, 1], 10, axis=1)[:, :101]
    assert repeated_draws(made, make_run().groups) == []
    assert "of B in group 0 repeat 90% of the time (elsewhere 0%)" in repeated_draws(made, np.zeros(16, int))[0]
    theta[:] = np.repeat(theta[:, ::4], 4, axis=1)[:, :101]
    assert repeated_draws(made, np.zeros(16, int)) == []


def test_many_that_repeat_are_counted():
    made = make_draws(101)
    made["theta"].values[:4] = made["theta"].values[:4, :1]
    made["theta"].values[4:8, :, :2] = made["theta"].values[4:8, :1, :2]
    said = only_problem(verdict(draws=made), "untrusted")
    assert "of A in group 0 repeat 100% of the time (elsewhere 0%); draws of k, u0, v0 of B in group 0" in said
    assert "; 2 more like these" in said


def steps(changed=None, groups=4, blocks=3, usual=0.8):
    log_step = np.log(np.full((groups, blocks), usual))
    for place, value in (changed or {}).items():
        log_step[place] = np.log(value)
    return log_step


def test_step_sizes_out_of_range_come_before_what_follows_from_them():
    assert verdict(log_step=steps()).converged
    assert verdict(log_step=steps({(1, 2): 80.0, (0, 0): 0.008})).converged
    given = verdict(log_step=steps({(1, 2): 3.4e6}), check=make_check(rhat=1.5))
    assert given.problems[0].startswith(
        "The step size of system C in group 1 ran away to 3.4e+06 (usual here: 0.8): these"
    )
    assert "R-hat is 1.500" in given.problems[1]
    assert "system A in group 0 collapsed to 1e-09" in only_problem(verdict(log_step=steps({(0, 0): 1e-9})))
    assert "ran away to inf" in verdict(log_step=steps({(0, 0): np.inf})).problems[0]


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_step_sizes_that_all_went_wrong():
    """Where a preconditioner takes out the units, a step of a million is wrong whatever the others have."""
    assert len(verdict(log_step=steps(usual=3e6)).problems) == 1
    assert verdict(make_run(settings=Settings(preconditioner=None)), log_step=steps(usual=3e6)).converged
    units = steps() + np.log([1.0, 1e6, 1e-6])
    assert odd_steps(units, SYSTEMS, preconditioned=False) == []
    assert len(odd_steps(units, SYSTEMS, preconditioned=True)) == 1
    assert "of B in group 0 collapsed to 0" in odd_steps(units + steps({(0, 1): 0.0}), SYSTEMS, preconditioned=False)[0]


def test_blocks_have_names_of_their_own():
    joint = make_run(settings=Settings(blocks="joint", chains=200))
    assert "of the joint block in group 1" in verdict(joint, log_step=steps({(1, 0): 1e6}, blocks=1)).problems[0]
    parameters = SimpleNamespace(shared=(True, False))
    sharing = make_run(problem=SimpleNamespace(parameters=parameters))
    said = verdict(sharing, log_step=steps({(1, 3): 1e6}, blocks=4)).problems[0]
    assert "The step size of what all systems share in group 1" in said
