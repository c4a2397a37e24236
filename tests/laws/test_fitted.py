"""Sampled laws as results hand them on: how sure they are, and where data supported them."""

import numpy as np
import pytest
from smooth import drawn, observed

from closura.laws import Law, Support, fitted

SEEN = np.linspace(-0.5, 2.5, 40)
GRID = np.linspace(-2.5, 4.5, 29)


@pytest.fixture(scope="module")
def decided():
    """A law that was observed between -0.5 and 2.5, and what is exact of it: 4,000 draws of the posterior."""
    return observed(Law(), 4000, SEEN, 0.3)


def test_mean_sd_interval_and_slope_are_those_of_the_posterior(decided):
    law, covariance, basis = decided
    sd = np.sqrt(np.einsum("ni,ij,nj->n", basis, covariance, basis))
    # 2,000 draws: a standard error of 1.6 % of an sd, 2.2 % of a mean's sd.
    np.testing.assert_allclose(law.sd(SEEN), sd, rtol=0.08)
    np.testing.assert_allclose(law(SEEN), law.draws(SEEN).mean(axis=0), atol=0.12 * sd.max())
    low, high = law.interval(SEEN, level=0.5)
    np.testing.assert_allclose(high - low, 2 * 0.6745 * sd, rtol=0.15)
    step = 1e-2
    np.testing.assert_allclose(law.slope(GRID), (law(GRID + step) - law(GRID - step)) / (2 * step), atol=0.05)
    assert isinstance(law.sd(1.0), float)
    assert law.draws(np.zeros((2, 3))).shape == (4000, 2, 3)


def test_contraction_compares_with_the_prior_at_the_same_sizes(decided):
    """Against closed forms, and of laws nobody's data touched: whatever size they have, there is no contraction."""
    law, covariance, basis = decided
    precision = np.asarray(law.frame.precision(law.law.log_size[0]))
    before, after = np.sum(basis**2 / precision, axis=1), np.einsum("ni,ij,nj->n", basis, covariance, basis)
    np.testing.assert_allclose(law.prior_sd(SEEN), np.sqrt(before), rtol=1e-3)
    np.testing.assert_allclose(law.contraction(SEEN), 1 - after / before, atol=1e-3)
    for size, detail in ((-8.0, -8.0), (5.0, -5.0), (-8.0, 3.0)):
        nobody = drawn(Law(), 4000, log_size=size, detail=detail, spread=0.3)
        assert np.abs(nobody.contraction(GRID)).max() < 0.2


@pytest.mark.parametrize("structure", [{}, {"odd": True}, {"at": {2.0: 3.0}}], ids=str)
def test_the_closed_form_of_the_prior_is_what_its_draws_have(structure):
    law = drawn(Law(**structure), 2000, log_size=4.0, detail=1.0, spread=0.3)
    exact, drawn_sd = np.asarray(law.prior_sd(GRID)), law.prior_draws(GRID).std(axis=0)
    np.testing.assert_allclose(drawn_sd, exact, rtol=0.1, atol=1e-5)
    low, high = law.prior_interval(GRID)
    assert np.all(high - low < 4.5 * exact + 1e-5)


def test_laws_with_a_link_have_the_prior_of_their_draws():
    law = drawn(Law(positive=True), 2000)
    np.testing.assert_allclose(law.prior_sd(GRID), law.prior_draws(GRID).std(axis=0), rtol=1e-5)
    assert np.abs(law.contraction(GRID)).max() < 0.3
    assert np.all(np.asarray(law.prior_interval(GRID)[0]) > 0)


def test_data_support_a_law_where_they_decide_it(decided):
    law, _, _ = decided
    inside = np.asarray(law.supported(GRID))
    assert inside[(GRID >= -0.5) & (GRID <= 2.5)].all()
    assert not inside[(GRID < -2.0) | (GRID > 4.0)].any()
    usual = np.median(law.sd(SEEN))
    rule = (law.contraction(GRID) > 0.75) & (law.sd(GRID) <= 3 * usual)
    ends = law.support.low[0], law.support.high[0]
    apart = np.min(np.abs(GRID[:, None] - ends), axis=1) > 0.05
    np.testing.assert_array_equal(inside[apart], rule[apart])
    assert law.supported(1.0) is True


def test_a_law_nobody_touched_is_supported_nowhere():
    prior = drawn(Law(), 500)
    law = fitted("f", prior.law, ("v",), SEEN[:, None], prior.frame)
    assert law.support.nowhere
    assert not np.any(law.supported(GRID))
    assert law.support.gaps() == ((law.support.low[0], law.support.high[0]),)


def test_where_there_is_one_draw_visits_decide():
    one = drawn(Law(), 1)
    law = fitted("f", one.law, ("v",), SEEN[:, None], one.frame)
    np.testing.assert_array_equal(law.supported(GRID), (law.support.low[0] <= GRID) & (law.support.high[0] >= GRID))
    assert law.supported(1.0)


def test_what_structure_says_is_decided():
    law = drawn(Law(odd=True), 200)
    assert law.contraction(0.0) == 1.0
    assert law.prior_sd(0.0) == law.sd(0.0) == 0.0


def test_gaps():
    support = Support(np.array([0.0]), np.array([10.0]), np.array([1, 1, 0, 0, 1, 0, 1, 1, 1, 1], bool))
    assert support.gaps() == ((2.0, 4.0), (5.0, 6.0))
    assert support.contains(np.array([[1.0], [3.0], [5.5], [9.9], [11.0]])).tolist() == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert Support(np.array([0.0]), np.array([1.0])).gaps() == ()
