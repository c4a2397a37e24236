"""Chains that hardly move: draws that repeat, and step sizes out of range."""

from types import SimpleNamespace

import numpy as np
import pytest
from verdicts import SYSTEMS, make_check, make_draws, make_run, only_problem, verdict

from closura.diagnose._remarks import odd_steps, repeated_draws
from closura.learning import Settings


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
