"""Good tables give the arrays they should, come back as tables, and fit the problem they are read for."""

import numpy as np
import pandas as pd
import pytest
from tables import assert_same, assert_says, frame_of, message

from closura.data._observations import DataError, read_table
from closura.parameters import LogNormal

ARRAYS = ("time", "quantity", "value", "sigma", "mask")
SPAN = {"time": (0.0, 10.0)}


# Reading


def test_ragged_table_is_padded(save):
    data = read_table(save("system,time,u,sigma\nB,0,1,.1\nB,2,2,.2\nB,3,3,.3\nA,5,4,.4\n"))
    assert data.systems == ("B", "A")
    assert data.quantities == ("u",)
    np.testing.assert_array_equal(data.time, [[0, 2, 3], [5, 5, 5]])
    np.testing.assert_array_equal(data.value, [[1, 2, 3], [4, 0, 0]])
    np.testing.assert_array_equal(data.sigma, [[0.1, 0.2, 0.3], [0.4, 1, 1]])
    np.testing.assert_array_equal(data.mask, [[True, True, True], [True, False, False]])
    np.testing.assert_array_equal(data.counts, [3, 1])
    assert [getattr(data, name).dtype for name in ARRAYS] == ["f8", "i4", "f8", "f8", "?"]
    assert data.notes == ()


def test_noise_not_named_is_nan_and_padding_is_one():
    data = read_table(frame_of("A 0 1; A 1 2; B 0 3"))
    np.testing.assert_array_equal(data.sigma, [[np.nan, np.nan], [np.nan, 1]])


def test_unsorted_and_interleaved_systems():
    data = read_table(frame_of("A 2 20; B 0 5; A 1 10; B 1 6"))
    assert data.systems == ("A", "B")
    np.testing.assert_array_equal(data.time, [[1, 2], [0, 1]])
    np.testing.assert_array_equal(data.value, [[10, 20], [5, 6]])
    assert data.notes == ("times sorted in 1 of 2 systems",)


def test_sorted_but_interleaved_needs_no_note():
    assert read_table(frame_of("A 0 1; B 0 1; A 1 2; B 1 2")).notes == ()


def test_partial_observation_of_several_quantities(save):
    data = read_table(save("system,time,u,v\nA,0,1,\nA,1,,2\nA,2,3,NaN\nA,3,4,5\n"))
    assert data.quantities == ("u", "v")
    np.testing.assert_array_equal(data.time, [[0, 1, 2, 3, 3]])
    np.testing.assert_array_equal(data.quantity, [[0, 1, 0, 0, 1]])
    np.testing.assert_array_equal(data.value, [[1, 2, 3, 4, 5]])


def test_own_noise_goes_before_the_common_one(save):
    text = "system,time,u,v,sigma,sigma_u\nA,0,1,2,.5,.1\nA,1,,2,.6,\n"
    data = read_table(save(text))
    np.testing.assert_array_equal(data.sigma, [[0.1, 0.5, 0.6]])


def test_noise_may_be_empty_where_nothing_was_observed(save):
    data = read_table(save("system,time,u,v,sigma_u,sigma_v\nA,0,1,,.1,\nA,1,,2,,.2\n"))
    np.testing.assert_array_equal(data.sigma, [[0.1, 0.2]])


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ([3.0, 3.0, 4.0], ("3", "4")),
        ([7, 3, 7], ("7", "3")),
        ([0.5, 1.0, 0.5], ("0.5", "1")),
        (["3", "3.0", " 3 "], ("3",)),
        (["007", "7", "NA"], ("007", "7", "NA")),
        (["v1.0", "pump 2", "v1.0"], ("v1.0", "pump 2")),
        (pd.Categorical(["y", "x", "y"]), ("y", "x")),
    ],
)
def test_names_of_systems(column, names):
    data = read_table(pd.DataFrame({"system": column, "time": [0, 1, 2], "u": [1, 2, 3]}))
    assert data.systems == names
    assert all(type(name) is str for name in data.systems)
    assert data.counts.sum() == 3


def test_na_and_none_may_name_a_system_in_a_file(save):
    assert read_table(save("system,time,u\nNA,0,1\nNone,0,2\n")).systems == ("NA", "None")


def test_column_names_are_stripped_and_case_does_not_matter(save):
    data = read_table(save(" System ,TIME, U ,Sigma\nA,0,1,.1\n"))
    assert data.quantities == ("U",)
    assert data.sigma[0, 0] == 0.1


def test_table_without_default_index():
    frame = frame_of("A 0 1; A 1 2; B 0 3")
    assert_same(read_table(frame.set_index(pd.Index([9, 9, 4]))), read_table(frame))


def test_the_table_given_is_not_changed():
    frame = frame_of("A 2 1; A 1 2")
    before = frame.copy()
    read_table(frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("text", ["system,time,u\r\nA,0,1\r\nA,1,2\r\n", "system\ttime\tu\nA\t0\t1\nA\t1\t2"])
def test_windows_lines_and_tabs(save, text):
    assert_same(read_table(save(text)), read_table(frame_of("A 0 1; A 1 2")))


def test_byte_order_mark(save):
    assert read_table(save("system,time,u\nµ,0,1\n".encode("utf-8-sig"))).systems == ("µ",)


def test_semicolons_with_decimal_commas_are_read_and_said(save):
    data = read_table(save('system;time;u\n"Pump 1, left";0,5;-1,25\n"Pump 1, left";1;1,5E-01\n'))
    assert data.systems == ("Pump 1, left",)
    np.testing.assert_array_equal(data.time, [[0.5, 1]])
    np.testing.assert_array_equal(data.value, [[-1.25, 0.15]])
    assert_says(data.notes[0], "semicolons", "decimal commas")


def test_empty_lines_are_ignored_but_counted(save):
    text = "\n\nsystem,time,u\nA,0,1\n\n,,\n   \nA,1,2\n\n"
    assert_same(read_table(save(text)), read_table(frame_of("A 0 1; A 1 2")))
    assert_says(message(save(text + "A,2,oops\n")), "line 10", "'oops'")


def test_comment_columns_are_ignored_with_a_note(save):
    text = "system,time,u,remark,date,lot,nothing\nA,0,1,fine,2024-01-01,12A,\nA,1,2,,1.2.2024,13B,\n"
    data = read_table(save(text))
    assert data.quantities == ("u",)
    assert len(data.notes) == 4
    assert_says(data.notes[0], "'remark'", "text", "line 2", "'fine'", "ignored")
    assert_says(data.notes[3], "'nothing'", "empty", "ignored")


@pytest.mark.parametrize("text", [",system,time,u\n0,A,0,1\n1,A,1,2\n", "system,time,u,\nA,0,1,\nA,1,2,\n"])
def test_columns_without_a_name_are_ignored_with_a_note(save, text):
    data = read_table(save(text))
    assert data.quantities == ("u",)
    assert_says(data.notes[0], "no name", "ignored")


def test_an_index_saved_by_pandas_is_ignored():
    frame = frame_of("A 0 1; A 1 2").assign(**{"Unnamed: 0": [0, 1]})
    assert read_table(frame).quantities == ("u",)


def test_replicates_are_kept_in_the_order_of_the_table():
    data = read_table(frame_of("A 0 3; A 0 1; A 0 2"))
    np.testing.assert_array_equal(data.value, [[3, 1, 2]])


def test_numbers_are_read_exactly(save):
    values = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.arange(-100, 100).repeat(10)
    frame = pd.DataFrame({"system": "A", "time": np.arange(2000), "u": values})
    data = read_table(save(frame.to_csv(index=False)))
    np.testing.assert_array_equal(data.value[0], values)


# Back to a table


TWO = """system,time,u,v,sigma_u
B,1,1.5,,0.1
B,0,0.1,7,0.2
10,0,,3,
B,1,2.5,9,0.3
B,1,,8,
10,2,4,,0.4
"""


@pytest.mark.parametrize(
    "text",
    [TWO, "system,time,u\n3,0,1\n3,1,0.1\nA,0.3,2\n", "system,time,u,v,sigma\nA,0,1,2,.5\nA,1,,2,.6\n"],
)
def test_round_trip(save, text):
    data = read_table(save(text))
    frame = data.to_frame()
    assert_same(read_table(frame), data)
    assert_same(read_table(save(frame.to_csv(index=False))), data)
    assert read_table(frame).notes == ()


def test_to_frame_columns_and_rows(save):
    frame = read_table(save(TWO)).to_frame()
    assert list(frame.columns) == ["system", "time", "u", "v", "sigma_u"]
    assert frame["system"].tolist() == ["B", "B", "B", "10", "10"]
    assert frame["time"].tolist() == [0, 1, 1, 0, 2]
    np.testing.assert_array_equal(frame["u"], [0.1, 1.5, 2.5, np.nan, 4])
    np.testing.assert_array_equal(frame["v"], [7, 9, 8, 3, np.nan])
    one = read_table(pd.DataFrame({"system": ["A"], "time": [0], "u": [1], "sigma": [0.1]}))
    assert list(one.to_frame().columns) == ["system", "time", "u", "sigma"]


def test_round_trip_of_duplicates():
    data = read_table(frame_of("A 0 1; A 0 1; A 1 2"), allow_duplicates=True)
    assert_same(read_table(data.to_frame(), allow_duplicates=True), data)


def test_round_trip_of_random_ragged_data():
    rng = np.random.default_rng(1)
    n = 500
    value = np.where(rng.random((n, 3)) < 0.5, rng.standard_normal((n, 3)), np.nan)
    value[:, 0] = np.where(np.isnan(value).all(axis=1), 0.5 + np.arange(n), value[:, 0])
    frame = pd.DataFrame(value, columns=["u", "v", "w"])
    frame = frame.assign(system=rng.integers(0, 17, n), time=rng.integers(0, 9, n) / 7, sigma=rng.random(n) + 0.1)
    data = read_table(frame)
    assert data.counts.sum() == np.isfinite(value).sum()
    assert_same(read_table(data.to_frame()), data)
    k, j = np.nonzero(data.mask)
    names = np.array(data.systems)[k].astype(int)
    got = sorted(zip(names, data.time[k, j], data.quantity[k, j], data.value[k, j], data.sigma[k, j]))
    row, column = np.nonzero(np.isfinite(value))
    true = frame.iloc[row]
    assert got == sorted(zip(true["system"], true["time"], column, value[row, column], true["sigma"]))


# For a problem


def test_matched_renumbers_and_drops_columns(save):
    data = read_table(save("system,time,extra,u,v\nA,0,9,1,2\nB,1,9,,4\nA,3,9,,\n"))
    matched = data.matched(("v", "u"), SPAN, 0.5)
    assert matched.quantities == ("v", "u")
    assert matched.systems == ("A", "B")
    np.testing.assert_array_equal(matched.quantity, [[0, 1], [0, 0]])
    np.testing.assert_array_equal(matched.value, [[2, 1], [4, 0]])
    np.testing.assert_array_equal(matched.time, [[0, 0], [1, 1]])
    np.testing.assert_array_equal(matched.sigma, [[0.5, 0.5], [0.5, 1]])
    np.testing.assert_array_equal(matched.mask, [[True, True], [True, False]])
    assert_says(matched.notes[-1], "'extra'", "ignored")


def test_matched_quantity_without_a_column(save):
    data = read_table(save("system,time,U,v,u\nA,0,1,2,low\nA,1,1,2,high\n"))
    with pytest.raises(DataError) as caught:
        data.matched(("v", "u"), SPAN, 1.0)
    assert_says(str(caught.value), "'u'", "U, v", "'u' by 'U'?", "holds text", "'low'", "Rename a column")


def test_matched_system_without_a_value(save):
    data = read_table(save("system,time,u,v\nA,0,1,\nB,0,,1\nB,1,,2\n"))
    with pytest.raises(DataError, match=r"system B: u was never observed\. Remove its lines"):
        data.matched(("u",), SPAN, 1.0)


def test_matched_times_outside_the_span():
    data = read_table(frame_of("A 0 1; A 11 1; B -1 1; B 5 1; C 12 1; D 13 1"))
    with pytest.raises(DataError) as caught:
        data.matched(("u",), SPAN, 1.0)
    parts = (
        "span 0.0 to 10.0",
        "system A at time 11.0",
        "system B at time -1.0",
        "1 more (4 in all)",
        "unit of",
    )
    assert_says(str(caught.value), *parts)


def test_matched_times_just_outside_are_clipped():
    data = read_table(frame_of("A -0.000009 1; A 10.000009 2"))
    np.testing.assert_array_equal(data.matched(("u",), SPAN, 1.0).time, [[0, 10]])
    with pytest.raises(DataError, match=r"10\.000011"):
        read_table(frame_of("A 0 1; A 10.000011 2")).matched(("u",), SPAN, 1.0)


def test_matched_fills_only_missing_noise(save):
    data = read_table(save("system,time,u,v,sigma_u\nA,0,1,2,.1\n"))
    np.testing.assert_array_equal(data.matched(("u", "v"), SPAN, 0.7).sigma, [[0.1, 0.7]])
    np.testing.assert_array_equal(data.matched(("v", "u"), SPAN, {"v": 0.2, "u": 9.0}).sigma, [[0.2, 0.1]])
    np.testing.assert_array_equal(data.matched(("u",), SPAN, None).sigma, [[0.1]])


@pytest.mark.parametrize("sigma", [None, {}, {"u": 0.1}, {"v": LogNormal(0.0, 1.0)}, LogNormal(0.0, 1.0)])
def test_noise_that_nobody_knows_is_left_open(save, sigma):
    data = read_table(save("system,time,u,v,sigma_u\nA,0,1,2,.1\n"))
    np.testing.assert_array_equal(data.matched(("u", "v"), SPAN, sigma).sigma, [[0.1, np.nan]])


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_that_cannot_be(save, sigma):
    data = read_table(save("system,time,u,v,sigma_u\nA,0,1,2,.1\n"))
    with pytest.raises(
        DataError, match="noise of v must be positive, and known for all of its observations or for none"
    ):
        data.matched(("v",), SPAN, sigma)


# Size


def test_a_million_rows():
    """A Python loop over rows would take minutes here."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    frame = pd.DataFrame({"system": rng.integers(0, 2000, n), "time": rng.random(n), "u": rng.random(n)})
    assert read_table(frame).counts.sum() == n


# Fields


FIELD = "system,x,y,u\nA,0.5,0.1,1\nA,0.2,0.3,2\nA,0.2,0.1,3\nB,0,1,4\n"


def test_places_may_have_any_coordinates(save):
    data = read_table(save(FIELD), axes=("x", "y"))
    assert data.axes == ("x", "y")
    np.testing.assert_array_equal(data.place[0], [[0.2, 0.1], [0.2, 0.3], [0.5, 0.1]])
    np.testing.assert_array_equal(data.place[1], [[0, 1]] * 3)
    np.testing.assert_array_equal(data.value, [[3, 2, 1], [4, 0, 0]])
    assert data.notes == ()
    again = read_table(data.to_frame(), axes=data.axes)
    for name in ("place", "value", "quantity", "mask"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name))


def test_two_sensors_at_one_time_are_not_duplicates(save):
    text = "system,time,x,u\nA,1,0.1,5\nA,1,0.2,5\n"
    assert read_table(save(text), axes=("time", "x")).counts.tolist() == [2]
    assert_says(message(save(text + "A,1,0.2,5\n"), axes=("time", "x")), "line 4", "time 1, x 0.2")


def test_a_coordinate_that_is_missing_or_no_number(save):
    assert_says(message(save(FIELD), axes=("x", "z")), "no column 'z'", "system, x, z, and one per")
    assert_says(message(save("system,x,u\nA,left,1\n"), axes=("x",)), "the x is not a number", "line 2")


def test_a_field_must_lie_in_the_domain_it_was_read_for(save):
    data, square = read_table(save(FIELD), axes=("x", "y")), {"x": (0.0, 1.0), "y": (0.0, 0.5)}
    with pytest.raises(DataError, match=r"extent in y, 0.0 to 0.5: system B at y 1.0"):
        data.matched(("u",), square, 1.0)
    with pytest.raises(DataError, match=r"coordinates x, y, the problem has time; .* axes=\['time'\]"):
        data.matched(("u",), SPAN, 1.0)
