"""What predictions say of themselves: how much of their variance is the law's, and whether they extrapolate."""

import dataclasses

import numpy as np
import pytest
from joint import SPEC, TIMES, fleet, laws, newcomer, ramp
from laws import law_of

import closura as cl
from closura.diagnose import Membership
from closura.laws import FittedLaw, KnownLaw
from closura.laws._basis import largest, node_places
from closura.predict import Newcomers
from closura.predict._law_share import _explained
from closura.predict._new_systems import matched

pytestmark = pytest.mark.usefixtures("hardly_optimised")


def drawn(count=2000, law_sd=0.1):
    """u = a + b t + F(t) with a, b and the law independent: sd of a and b 0.2."""
    random = np.random.default_rng(0)
    theta = random.normal(0.0, 0.2, (count, 2, 2))
    coordinates = law_sd * random.normal(size=(count, 2))
    return fleet(ramp(0.1), theta, theta.mean(axis=1), np.full((count, 2), 0.04), laws(coordinates))


def test_the_share_is_that_of_the_law_in_the_variance():
    """var F / (var a + t^2 var b + var F), in closed form; three standard errors of 400 draws are 0.1."""
    table = drawn().predict(TIMES)
    law = 0.1**2 * 9 * (TIMES**2 + (TIMES**2 - TIMES) ** 2)
    exact = law / (0.2**2 * (1 + TIMES**2) + law)
    assert np.ptp(exact) > 0.3
    np.testing.assert_allclose(table["law_share"], np.tile(exact, 2), atol=0.1)
    assert not table["extrapolates"].any()


def test_the_share_does_not_grow_with_what_is_asked_of_the_law():
    """Sixteen numbers that have nothing to do with a quantity explain nothing of it, on average; all of what they make up."""
    random = np.random.default_rng(1)
    values, q = random.normal(size=(400, 16)), random.normal(size=(400, 300))
    assert _explained(q, values).mean() < 0.03
    np.testing.assert_allclose(_explained(values @ random.normal(size=(16, 5)), values), 1.0, atol=1e-6)
    assert np.isnan(_explained(np.ones((400, 1)), values)).all()
    q[7] = np.inf  # a draw that could not be solved
    assert np.isfinite(_explained(q, values)).all()


def test_without_a_sampled_law_there_is_no_share():
    fitted = drawn(200)
    given = dataclasses.replace(fitted, problem=fitted.problem.with_closure(cl.Known(lambda t: 0.0 * t)), closures={})
    law = FittedLaw("f", KnownLaw(given.problem.closures["f"]), ("t",), None)
    table = dataclasses.replace(given, closures={"f": law}).predict(TIMES)
    assert table["law_share"].isna().all()
    assert not table["extrapolates"].any()


def test_rows_say_from_when_on_they_extrapolate():
    """Data supported the law up to time 1: a forecast relies on more as soon as a twentieth of its calls do."""
    fitted = drawn(400)
    with pytest.warns(UserWarning, match=r"the law f is asked for more than data supported .t 0 to 1. by s.* first at"):
        table = fitted.predict(until=2.0)
    assert table["extrapolates"].dtype == bool
    assert not table.loc[table["time"] <= 1.0, "extrapolates"].any()
    assert table.loc[table["time"] > 1.1, "extrapolates"].all()
    # Of a new system all calls count: a tenth of those up to 0.5625 are later than 0.5.
    narrow = dataclasses.replace(fitted.closures["f"], support=laws([[0, 0]], support=(0.0, 0.5)).support)
    new = unfitted(dataclasses.replace(fitted, closures={"f": narrow}))
    rows = new.predict()
    assert not rows.loc[rows["time"] <= 0.5, "extrapolates"].any()
    assert rows.loc[rows["time"] > 0.55, "extrapolates"].all()
    assert any("is asked for more than data supported (t 0 to 0.5)" in note for note in new.notes)


def unfitted(fitted) -> Newcomers:
    """A new system as the population alone has it."""
    data = matched(fitted.problem, newcomer([0.0]))
    which, stored, found = np.arange(400)[:, None], fitted.stored(data), Membership(*np.ones((6, 1)), 1)
    return Newcomers(fitted, fitted.problem, data, fitted.theta[:, :1], which, None, stored, found, np.ones(1))


def test_beyond_the_table_predictions_are_as_open_as_the_prior():
    """The table ends near 1: a law of known past goes on as its prior does, where straight lines would be sure of themselves."""
    count, still = 2000, np.zeros((2000, 2, 2))
    tau, law = np.full((count, 2), 0.04), laws(np.zeros((count, 2)))
    fitted = fleet(ramp(0.1), still, still[:, 0], tau, law)
    with pytest.warns(UserWarning, match="extrapolation"):
        table = fitted.predict(until=2.0).query("system == 's0'").set_index("time")
    end = float(law.frame.high[0])
    assert table["sd"].loc[:1.0].max() < 1e-3
    # The trend's third derivative is white noise: u has sd d^3.5 / (6 sqrt 7) at distance d from the end, in the units of input
    # and law, if all of the trend is known inside. Coordinates on nine nodes leave more open, and detail goes on too: within three
    # standard errors of 400 draws.
    least = 0.5 * ((2.0 - end) / 0.5) ** 3.5 / (6 * np.sqrt(7))
    z, nodes = np.linspace((end - 0.5) / 0.5, 3.0, 801), node_places(law.frame.axis, law.frame.scaling)[0]
    prior, variance = SPEC.prior(law.frame.scaling), 0.0
    for kernel, count, size in zip((prior.trend, prior.fine), prior.counts(9), (1.0, np.exp(-5.0))):
        told = largest(kernel, z, nodes[nodes != 0], 1.0, count)[:, 0]
        left_open = kernel(z, z, 1.0)[:, 0] - told @ told.T
        variance += 0.25 * size * np.trapezoid(np.trapezoid(left_open, z), z)
    assert least < table["sd"].loc[2.0]
    assert table["sd"].loc[2.0] == pytest.approx(np.sqrt(variance), rel=0.1)
    assert table["law_share"].loc[2.0] > 0.9
    with pytest.warns(UserWarning, match="lie even beyond its table, where it is a straight line"):
        fitted.predict(until=6.0)


def test_a_network_says_that_intervals_leave_its_error_out():
    fitted = drawn(400)
    assert fitted.left_out == ()
    single = dataclasses.replace(fitted, closures={"f": law_of("f")})
    with pytest.warns(UserWarning, match="intervals leave the error of the learned law out: f is one estimate") as said:
        single.predict(until=1.2)
    assert sum("leave the error" in str(warning.message) for warning in said) == 1
    notes = unfitted(single).notes
    assert sum("leave the error" in note for note in notes) == 1


def test_draws_that_cannot_be_solved_are_left_out_and_counted():
    fitted = drawn(400)
    theta = fitted.tree["unconstrained_posterior"]["theta"].values
    theta[0, :20, 0] = np.inf
    with pytest.warns(UserWarning, match="5% of the draws of s0 could not be solved and are left out"):
        table = fitted.predict(TIMES)
    assert np.isfinite(table[["mean", "sd", "2.5%", "measured 97.5%", "law_share"]]).all(axis=None)
