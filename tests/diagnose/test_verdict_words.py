"""The four words of the verdict, and who of several causes gives the word."""

import numpy as np
from verdicts import SAMPLED, learned, make_check, make_run, only_problem, verdict

from closura.diagnose import Party, Undecided
from closura.learning import Settings

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
