"""Posterior predictive checks: silent over a healthy fleet, and not over one with something wrong in it."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

from closura.data import Observations
from closura.diagnose import check_table, remarks
from closura.diagnose._checks import _of_unit_size, autocorrelation, chi_square, holm, largest, pattern, residual_pairs
from closura.equations import NOISES


def observations(systems, places, quantities=1, axes=("time",)):
    """Every quantity of every system, at all of the places (place, axis)."""
    place = np.repeat(np.asarray(places, float), quantities, axis=0)
    shape = (systems, len(place))
    quantity = np.tile(np.arange(quantities, dtype=np.int32), len(places))
    numbers = {"value": np.zeros(shape), "sigma": np.ones(shape), "mask": np.ones(shape, bool)}
    return Observations(
        systems=tuple(f"s{k}" for k in range(systems)),
        quantities=("u", "v")[:quantities],
        place=np.tile(place, (systems, 1, 1)),
        quantity=np.tile(quantity, (systems, 1)),
        axes=axes,
        **numbers,
    )


def posterior(y, draws=100, seed=0):
    """Residuals (draw, system, observation) of the exact posterior of y = a + b t + noise of size one, a and b flat."""
    random, t = np.random.default_rng(seed), np.linspace(-1, 1, y.shape[1])
    columns = np.stack([np.ones_like(t), t], axis=1)
    spread = np.linalg.inv(columns.T @ columns)
    mean = y @ columns @ spread
    lines = mean + random.normal(size=(draws, len(y), 2)) @ np.linalg.cholesky(spread).T
    return y - lines @ columns.T


def noise(systems=20, count=15, seed=0):
    return np.random.default_rng(seed).normal(size=(systems, count))


def checked(y, kind="normal", **more):
    """Table and remarks of a fleet, seen at even times."""
    residual, data = posterior(y), observations(len(y), np.linspace(0, 8, y.shape[1])[:, None])
    inside = np.abs(ndtr(residual).mean(axis=0) - 0.5) < 0.475
    table = check_table(residual, inside, data)
    return table, remarks(table, residual, data, NOISES[kind], **more)


def deviation(p):
    """How far p-values are from uniform (Kolmogorov and Smirnov), in units of where one in a hundred is."""
    ordered = np.sort(p)
    rank = np.arange(len(p) + 1) / len(p)
    apart = max(np.max(rank[1:] - ordered), np.max(ordered - rank[:-1]))
    return apart * np.sqrt(len(p)) / 1.63


@pytest.mark.parametrize(
    ("check", "count"),
    [(check, count) for check in ("chi_square", "largest", "autocorrelation") for count in (2, 13)] + [("pattern", 60)],
)
def test_p_values_of_noise_alone_are_uniform(check, count):
    """Two systems each, one of them ten times louder where the size of the noise must not matter."""
    random, data = np.random.default_rng(0), observations(2, np.arange(count)[:, None])
    near, place, p = residual_pairs(data).within(data.mask), data.place[0], []
    for _ in range(500):
        residual = random.normal(size=(1, 2, count))
        unit = _of_unit_size(residual * [[[1.0], [10.0]]], data)[:, data.mask]
        tests = {
            "chi_square": lambda r=residual: chi_square(r[:, 0]),
            "largest": lambda r=residual: largest(r[:, 0]),
            "autocorrelation": lambda u=unit: autocorrelation(u, near),
            "pattern": lambda r=residual: pattern(r[:, 0], place),
        }
        p.append(tests[check]().p)
    assert deviation(np.array(p)) < 1


@pytest.mark.parametrize("systems", [1, 20, 100])
def test_nothing_is_said_against_a_healthy_fleet(systems):
    table, said = checked(noise(systems))
    assert said == []
    assert not table["off"].any()
    assert table["level"].value_counts().to_dict() == {"system": 4 * systems, "fleet": 5}
    fleet = table[(table["level"] == "fleet") & table["p"].notna()].set_index("check").drop("inside")
    assert ((fleet["low"] < fleet["value"]) & (fleet["value"] < fleet["high"])).all()


def wave(size):
    """What a law that is wrong leaves: the same in all systems."""
    return size * np.sin(np.linspace(0, 9, 15))


def one_loud(y):
    y[7] *= 4
    return y


def outlier(y):
    y[3, 5] += 9
    return y


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        (
            lambda y: y + wave(0.6),
            "pattern",
            "fleet",
            "Residuals of all systems together leave zero together, in a pattern over time",
        ),
        (
            lambda y: 1.4 * y,
            "chi_square",
            "fleet",
            "Residuals of all systems together are larger than the noise explains",
        ),
        (lambda y: 0.6 * y, "chi_square", "fleet", "smaller than noise would leave them"),
        (one_loud, "chi_square", "system", "Residuals of system s7 are larger than the noise explains"),
        (
            outlier,
            "largest",
            "system",
            "Of system s3 single observations are farther off than normal noise explains: u of system s3 at time 2.857",
        ),
    ],
)
def test_what_is_wrong_is_named_once(change, check, level, words):
    _, said = checked(change(noise()))
    assert [(one.check, one.level) for one in said] == [(check, level)]
    assert words in said[0].text


@pytest.mark.parametrize(("kind", "blamed"), [("normal", True), ("poisson", False), ("negative_binomial", True)])
def test_noise_without_a_scale_has_no_sigma_to_blame(kind, blamed):
    table, said = checked(0.2 * noise(), kind)
    assert ("sigma is stated too large" in said[0].text) == blamed
    few = table.assign(off=(table["check"] == "inside") & (table["level"] == "fleet"))
    data = observations(20, np.linspace(0, 8, 15)[:, None])
    (one,) = remarks(few, posterior(noise()), data, NOISES[kind])
    assert f"check {'sigma' if blamed else 'the counts'}, or choose another noise" in one.text


def test_a_law_that_is_very_wrong():
    _, said = checked(noise() + wave(5.0))
    assert {one.level for one in said} == {"system", "fleet"}
    assert "of 20 systems (s" in said[0].text
    assert said[-1].check in ("autocorrelation", "pattern")
    assert "The law is not free enough, or physics is missing; see figures/checks.png" in said[-1].text


def test_without_a_law_none_is_blamed():
    _, said = checked(noise() + wave(0.6), learned=False)
    assert "not know of. Physics is missing; see" in said[-1].text


def test_what_every_system_does_in_its_own_way():
    """Each seems fine by itself, and nothing is common to all."""
    phase = np.random.default_rng(1).uniform(0, 6.3, size=(40, 1))
    _, said = checked(noise(40, 30) + 0.6 * np.sin(np.linspace(0, 12, 30) + phase))
    assert [one.check for one in said] == ["autocorrelation"]
    assert "Neighbouring residuals of all systems together are alike (correlation 0." in said[0].text


def test_an_outlier_is_named_beside_a_system_that_is_louder_still():
    y = outlier(noise())
    y[7] *= 10
    residual = np.abs(posterior(y)).max(axis=(0, 2))
    assert residual[7] > residual[3]
    said = {one.check: one.text for one in checked(y)[1]}
    assert "system s7" in said["chi_square"]
    assert "u of system s3 at time" in said["largest"]


def test_noise_inferred_too_large_makes_neighbours_alike():
    """Draws scatter more than data: no sign of a wrong law."""
    kinds = {"level": ["fleet", "others"], "system": "", "quantity": "u", "check": ["autocorrelation", "chi_square"]}
    table = pd.DataFrame({**kinds, "value": [0.3, 0.5], "low": -0.1, "high": 1.2, "p": [1e-5, 1e-6], "off": True})
    data = observations(20, np.arange(15)[:, None])
    guessed = Observations(**{**vars(data), "sigma": np.full(data.mask.shape, np.nan)})
    assert remarks(table, noise()[None], guessed, NOISES["normal"]) == []
    alone = table.assign(value=[0.3, 1.5])
    assert [one.check for one in remarks(alone, noise()[None], guessed, NOISES["normal"])] == ["autocorrelation"]


def test_heavy_tails_are_not_advised_against_twice():
    assert "or choose noise='student'" in checked(outlier(noise()))[1][0].text
    assert "student" not in checked(outlier(noise()), "student")[1][0].text.replace("student noise explains", "")


def test_others_are_judged_without_those_that_stand_out():
    table, _ = checked(one_loud(noise()))
    by_level = table[table["check"] == "chi_square"].set_index("level")
    assert by_level.loc["fleet", "off"]
    assert not by_level.loc["others", "off"]
    assert by_level.loc["others", "observations"] == 19 * 15


def test_each_quantity_of_a_fleet_by_itself():
    data = observations(20, np.arange(15)[:, None], quantities=2)
    residual = noise(20, 30)[None]
    residual[..., data.quantity[0] == 1] *= 1.5
    table = check_table(residual, np.ones(data.mask.shape, bool), data)
    off = table[table["off"] & (table["level"] == "fleet")]
    assert set(off["quantity"]) == {"v"}
    assert "in v are larger" in remarks(table, residual, data, NOISES["normal"])[-1].text


def test_predictions_that_are_not_finite_say_nothing():
    residual = posterior(noise())
    residual[0, 4, 2] = np.nan
    data = observations(20, np.arange(15)[:, None])
    table = check_table(residual, np.ones(data.mask.shape, bool), data)
    assert table.loc[table["system"].isin(["s4", ""]), "p"].isna().all()
    assert table.loc[~table["system"].isin(["s4", ""]), "p"].notna().all()
    assert remarks(table, residual, data, NOISES["normal"]) == []


def test_observations_that_are_not_there_do_not_count():
    data, y = observations(20, np.arange(15)[:, None]), noise()
    short = Observations(**{**vars(data), "mask": np.arange(15) < np.where(np.arange(20) == 2, 1, 15)[:, None]})
    residual = np.where(short.mask, y, 1e3)[None]
    table = check_table(residual, np.ones(data.mask.shape, bool), short)
    assert not table["off"].any()
    mine = table[table["system"] == "s2"].set_index("check")
    assert set(mine["observations"]) == {1}
    assert mine.loc["chi_square", "value"] == pytest.approx(y[2, 0] ** 2)
    assert np.isnan(mine.loc["autocorrelation", "p"])


def test_neighbours_in_time_are_of_one_quantity_and_system():
    data = observations(2, [[0.0], [1.0], [2.0]], quantities=2)
    assert residual_pairs(data).pairs.tolist() == [[0, 2], [2, 4], [1, 3], [3, 5], [6, 8], [8, 10], [7, 9], [9, 11]]


def test_neighbours_in_a_field_are_nearest_in_units_of_the_data():
    places = [[0.0, 0.0], [0.3, 1.0], [0.0, 100.0], [1.0, 1000.0], [1.0, 1000.0]]
    assert residual_pairs(observations(1, places, axes=("time", "x"))).pairs.tolist() == [[0, 1], [0, 2], [3, 4]]


def test_ends_of_a_sum_of_products():
    """In a field as by the eigenvalues: a star of four about one, and a pair."""
    places = [[0.0, 0.0], [0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1], [5.0, 5.0], [5.1, 5.0]]
    data = observations(1, places, axes=("x", "y"))
    near = residual_pairs(data)
    form = np.zeros((7, 7))
    form[tuple(near.pairs.T)] = 0.5
    assert near.ends[0] == pytest.approx(np.linalg.eigvalsh(form + form.T)[-1], rel=1e-6)
    assert near.links[0] == 5
    line = residual_pairs(observations(1, np.arange(5)[:, None]))
    form = np.diag(np.full(4, 0.5), 1)
    assert line.ends[0] == pytest.approx(np.linalg.eigvalsh(form + form.T)[-1])


def test_inferred_noise_is_not_stated_too_large():
    """One loud system raises it for all: the others are not to blame."""
    data, y = observations(20, np.arange(15)[:, None]), one_loud(noise()) / 1.5
    guessed = Observations(**{**vars(data), "sigma": np.full(data.mask.shape, np.nan)})
    table = check_table(y[None], np.ones(data.mask.shape, bool), data)
    assert [one.level for one in remarks(table, y[None], data, NOISES["normal"])] == ["system", "others"]
    assert [one.level for one in remarks(table, y[None], guessed, NOISES["normal"])] == ["system"]


def test_what_is_significant_but_small_is_not_off():
    """Noise stated 3 % too small, and twenty thousand observations."""
    data = observations(100, np.arange(200)[:, None])
    residual = 1.03 * noise(100, 200)[None]
    fleet = check_table(residual, np.ones(data.mask.shape, bool), data).query("level == 'fleet'").set_index("check")
    assert fleet.loc["chi_square", "p_adjusted"] < 1e-3
    assert not fleet["off"].any()


def test_holm():
    adjusted = holm(np.array([0.01, np.nan, 0.04, 0.03, 0.9]))
    np.testing.assert_allclose(adjusted, [0.04, np.nan, 0.09, 0.09, 0.9])
    assert holm(np.array([0.6, 0.7])).max() == 1.0


def test_table_holds_a_row_a_check():
    table, _ = checked(noise(2))
    assert isinstance(table, pd.DataFrame)
    told = "level system quantity check observations value low high p p_adjusted off"
    assert table.columns.tolist() == told.split()
