"""What data do not decide, from covariances whose answer is known; and what is said of it."""

import numpy as np
import pytest

from closura.diagnose._undecided import Number, OnGrid, Party, Undecided, Unknowns, advice, in_words, undecided

V = np.linspace(-3.0, 4.0, 32)
CUBIC = 0.08 * V + 0.08 * V**3
# Shapes of a law, and their standard deviations before data: wide where anybody would ask, narrow where nobody does.
SHAPES = np.stack([np.ones(32), V, V**2, V**3 / 10, np.sin(6 * V)], axis=1)
WIDE = np.array([3.0, 3.0, 3.0, 1.0, 0.01])


def on_grid(name="f", mean=CUBIC):
    return OnGrid(name, ("v",), V[:, None], mean)


def answers(numbers, before, seen, laws=1, mean=CUBIC, noise=0.01):
    """Numbers with sds `before` and laws of `SHAPES`; `seen` are functions (point, unknown) that data tell up to `noise`."""
    prior = np.diag(np.concatenate([before, *[WIDE] * laws]) ** 2)
    posterior = np.linalg.inv(np.linalg.inv(prior) + seen.T @ seen / noise**2)
    rows = np.zeros((len(numbers) + 32 * laws, len(prior)))
    rows[: len(numbers), : len(numbers)] = np.eye(len(numbers))
    for i in range(laws):
        rows[len(numbers) + 32 * i :][:32, len(numbers) + 5 * i :][:, :5] = SHAPES
    unknowns = Unknowns(numbers, [on_grid("fgh"[i], mean) for i in range(laws)])
    return undecided(unknowns, rows @ prior @ rows.T, rows @ posterior @ rows.T)


def beside(shape, sign=1.0):
    """A number that acts as a shape of the law does."""
    return np.concatenate([sign * np.reshape(shape, (32, 1)), SHAPES], axis=1)


def said(found):
    return [str(one) for one in found]


def test_data_that_decide_everything():
    apart = np.concatenate([beside(V), np.eye(6)[:1]])
    assert answers([Number("c")], [0.5], apart) == []


@pytest.mark.parametrize("narrow", [0.01, 0.5, 30.0])
def test_a_damping_of_each_system_beside_a_damping_law(narrow):
    """Whichever of both its prior holds: what data know is the sum."""
    assert said(answers([Number("c")], [narrow], beside(V))) == ["c and a part of f in proportion to v: only their sum"]


def test_what_is_subtracted_is_known_by_its_difference():
    level = beside(np.ones(32), -1.0)
    assert said(answers([Number("q", log=True)], [0.5], level)) == ["q and a constant in f: only their difference"]


def test_a_mass_and_two_laws():
    """u'' = -(spring + damping) / m: a larger mass wants both laws larger, by the same factor."""
    size = np.linalg.lstsq(SHAPES, CUBIC, rcond=None)[0]
    seen = np.zeros((64, 11))
    seen[:32, 1:6] = seen[32:, 6:] = SHAPES
    seen[:, 0] = -np.tile(CUBIC, 2)
    assert np.abs(SHAPES @ size - CUBIC).max() < 1e-8
    words = ["m, the size of f and the size of g: only their ratios"]
    assert said(answers([Number("m", log=True)], [0.5], seen, laws=2)) == words
    assert said(answers([Number("m", log=True)], [0.5], seen[:32, :6])) == ["m and the size of f: only their ratio"]


def test_two_laws_that_share_a_constant():
    seen = np.zeros((66, 10))
    seen[:32, :5] = seen[32:64, 5:] = SHAPES
    seen[:, [0, 5]] = 0.0
    seen[:64, [0, 5]] = 1.0
    assert said(answers([], [], seen, laws=2)) == ["a constant in f and a constant in g: only their sum"]


def test_parameters_by_themselves():
    seen = np.zeros((2, 8))
    seen[0, :2], seen[1, 2] = (1.0, 1.0), 1.0
    numbers = [Number("a", log=True), Number("b", log=True), Number("w")]
    whole = np.concatenate([seen, np.eye(8)[3:]])
    assert said(answers(numbers, [1.0] * 3, whole)) == ["a and b: only their product"]
    whole[1, 2] = 0.0
    found = answers(numbers, [1.0] * 3, whole)
    assert in_words(found) == "w; nor a and b: only their product"
    assert {name for one in found for name in one.names} == {"a", "b", "w"}


def test_numbers_that_are_open_each_for_itself_are_not_thrown_together():
    found = answers([Number("a"), Number("b"), Number("c")], [1.0, 1.0, 1.0], np.eye(8)[3:])
    assert in_words(found) == "a, b and c"


def test_a_law_nobodys_data_touch():
    found = answers([Number("c")], [0.5], np.eye(6)[:1])
    assert said(found) == ["the law f"]
    assert "its band is that of the prior" in advice(found[0])


def test_wiggles_that_no_data_see_are_not_held_against_a_law():
    blind = np.concatenate([np.zeros((32, 1)), SHAPES], axis=1)
    blind[:, 5] = 0.0
    assert answers([Number("c")], [0.5], np.concatenate([blind, np.eye(6)[:1]])) == []


def test_half_of_the_variance_is_the_limit():
    for noise, count in ((1.1, 1), (0.9, 0)):
        assert len(answers([Number("c")], [1.0], np.diag([1.0, *[1e3] * 5]), noise=noise)) == count


def test_what_can_be_done_about_it():
    both = Undecided((Party("m", "number", "m", 1.0, "log"), Party("the size of f", "part", "f", 1.0, "log")))
    assert advice(both).startswith("Data do not decide m and the size of f: only their ratio. ")
    assert "fix m (a plain number among the parameters), or a value of the law that is known" in advice(both)
    alone = Undecided((Party("k", "number", "k"),))
    assert advice(alone).startswith(
        "Data do not decide k: the prior speaks. Fix k (a plain number among the parameters)"
    )
    mean = Undecided((Party("the mean of log k in the population", "mean", "k"),))
    assert "hierarchy=False does without a population" in advice(mean)
