"""Good tables give the arrays they should; bad ones say what is wrong, on which line, and what to do."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from closura.problem._observations import DataError, Observations, read_table

ARRAYS = ("time", "quantity", "value", "sigma", "mask")
SPAN = (0.0, 10.0)


@pytest.fixture
def save(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "fleet.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def frame_of(text: str) -> pd.DataFrame:
    """'A 0 1; A 1 2' as a table of system, time, u."""
    rows = [row.split() for row in text.split(";")]
    return pd.DataFrame([(s, float(t), float(u)) for s, t, u in rows], columns=["system", "time", "u"])


def assert_same(left: Observations, right: Observations) -> None:
    assert left.systems == right.systems
    assert left.quantities == right.quantities
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


def message(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path, **options)
    return str(caught.value)


def assert_says(text: str, *parts: str) -> None:
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"


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


# Bad values


@pytest.mark.parametrize("cell", ["", "NaN", "NA", "null"])
def test_missing_value_of_the_only_quantity(save, cell):
    text = message(save(f"system,time,u\nA,0,1\nA,0.5,{cell}\n"))
    assert_says(text, "fleet.csv", "no value of u", "line 3", "system A", "time 0.5", "delete the line")


def test_row_without_any_value(save):
    text = message(save("system,time,u,v\nA,0,1,\nA,1,,\nA,2,,2\n"))
    assert_says(text, "no value of u or v", "line 3 (system A, time 1)", "Fill it in")


def test_line_cut_short(save):
    assert_says(message(save("system,time,u\nA,0,1\nA,1\n")), "no value of u", "line 3")


@pytest.mark.parametrize("cell", ["abc", "inf", "-Infinity", "1e999", "1_000", "0x10", "#DIV/0!", "1.5 mm"])
def test_cell_that_is_not_a_finite_number(save, cell):
    text = message(save(f"system,time,u\n3.0,0,1\n3.0,1,{cell}\n"))
    assert_says(text, "column 'u'", "not a finite number", f"line 3 (system 3, time 1) has '{cell}'", "Write a")


@pytest.mark.parametrize("cells", [("1,5", "2,5"), ("1,234.5", "2,000.0"), ("0.5mm", "0.6mm"), ("< 0.1", "3 V")])
def test_column_meant_as_numbers_is_not_a_comment(save, cells):
    text = message(save(f'system,time,v,u\nA,0,7,"{cells[0]}"\nA,1,8,"{cells[1]}"\n'))
    assert_says(text, "column 'u'", "line 2", f"'{cells[0]}'", "decimal comma", "unit", "comment")


def test_mixed_decimal_marks_in_a_semicolon_file(save):
    text = message(save("system;time;u\nA;0;2\nA;1;1.234,5\n"))
    assert_says(text, "column 'u'", "line 3", "'1.234,5'")


def test_many_bad_lines_are_counted():
    frame = pd.DataFrame({"system": "A", "time": np.arange(100), "u": [1.0] * 50 + [np.inf] * 50})
    text = message(frame)
    assert_says(text, "line 52", "line 53", "line 54", "47 more", "50 in all")
    assert "line 55" not in text


def test_three_bad_lines_are_all_named():
    text = message(pd.DataFrame({"system": "A", "time": range(4), "u": [1, *[np.inf] * 3]}))
    assert_says(text, "line 3", "line 4", "line 5")
    assert "more" not in text


def test_line_numbers_after_a_cell_of_several_lines(save):
    text = message(save('system,time,u,note\nA,0,1,"two\nlines"\nA,1,bad,"again\ntwo"\nA,2,worse,\n'))
    assert_says(text, "line 4 (system A, time 1) has 'bad'", "line 6 (system A, time 2) has 'worse'")


def test_line_offset_and_source():
    with pytest.raises(DataError, match=r"^sheet 2: .*line 11 "):
        Observations.from_frame(frame_of("A 0 1; A 1 inf"), source="sheet 2", line_offset=10)


@pytest.mark.parametrize("cell", ["", "nan", "inf", "noon", "2024-01-01", '"0,5"'])
def test_bad_time(save, cell):
    text = message(save(f"system,time,u\nA,0,1\nA,{cell},2\n"))
    assert_says(text, "time is not a number", "line 3 (system A", "Write a number")


def test_dates_are_not_times():
    when = pd.to_datetime(["2024-01-01", "2024-01-02"])
    text = message(pd.DataFrame({"system": ["A", "A"], "time": when, "u": [1, 2]}))
    assert_says(text, "time is not a number", "line 2", "2024-01-01", "seconds")


@pytest.mark.parametrize("names", [["A", None], ["A", ""], ["A", np.nan], [1.0, np.nan]])
def test_missing_system(names):
    text = message(pd.DataFrame({"system": names, "time": [0.0, 1.0], "u": [1, 2]}))
    assert_says(text, "system's name is missing", "line 3", "time 1.0", "every line")


def test_all_systems_missing():
    text = message(pd.DataFrame({"system": [None, None], "time": [0, 1], "u": [1, 2]}))
    assert_says(text, "system's name is missing", "line 2", "line 3")


# Bad noise


@pytest.mark.parametrize("cell", ["0", "-0.1", "", "nan", "inf", "small"])
def test_bad_noise(save, cell):
    text = message(save(f"system,time,u,sigma\nA,0,1,0.1\nA,1,2,{cell}\n"))
    assert_says(text, "'sigma'", "not a positive number", "line 3 (system A, time 1)", f"'{cell}'", "remove the")


def test_bad_noise_of_one_quantity(save):
    text = message(save("system,time,u,v,sigma_v\nA,0,1,,\nA,1,1,2,-3\n"))
    assert_says(text, "'sigma_v'", "line 3", "'-3'", "standard deviation of v")


def test_noise_of_nothing(save):
    assert_says(message(save("system,time,u,sigma_w\nA,0,1,1\n")), "'sigma_w'", "no column 'w'", "Rename")


# Duplicates


def test_duplicate_names_both_lines():
    text = message(frame_of("A 0 1; B 0 1; A 0 2; A 0 1"))
    assert_says(text, "line 5 (system A, time 0.0) repeats line 2", "Drop one", "allow_duplicates=True")
    assert "B" not in text


def test_duplicates_are_counted_by_line(save):
    text = message(save("system,time,u,v\n" + "A,0,1,2\n" * 6))
    assert_says(text, "line 3", "line 4", "line 5", "2 more (5 in all)")
    assert text.count("line 3 ") == 1


def test_duplicate_written_in_two_ways(save):
    assert_says(message(save("system,time,u\n1,0.5,1\n1.0,.50,1e0\n")), "line 3", "repeats line 2")


def test_duplicates_allowed(save):
    path = save("system,time,u\nA,0,1\nA,0,1\n")
    np.testing.assert_array_equal(read_table(path, allow_duplicates=True).value, [[1, 1]])


@pytest.mark.parametrize("text", ["A 0 1; A 0 2", "A 0 1; A 1 1", "A 0 1; B 0 1"])
def test_replicates_are_not_duplicates(text):
    assert read_table(frame_of(text)).counts.sum() == 2


# Columns


def test_missing_column_lists_what_there_is(save):
    text = message(save("A,0.0,1.5\nA,1.0,2.5\n"))
    assert_says(text, "no column 'system'", "A, 0.0, 1.5", "first line must name the columns")


@pytest.mark.parametrize(("header", "name"), [("sytem,time,u", "system"), ("system,tme,u", "time")])
def test_misspelt_column(save, header, name):
    wrong = header.split(",")[0 if name == "system" else 1]
    assert_says(message(save(f"{header}\nA,0,1\n")), f"no column '{name}'", f"'{name}' by '{wrong}'?")


def test_separated_by_spaces(save):
    assert_says(message(save("system time u\nA 0 1\n")), "system time u", "commas")


def test_frame_read_with_the_wrong_separator():
    assert_says(message(pd.DataFrame({"system;time;u": ["A;0;1"]})), "system;time;u", "sep=';'")


@pytest.mark.parametrize("header", ["system,time,u,u", "system,time,u, u "])
def test_two_columns_of_one_name(save, header):
    assert_says(message(save(f"{header}\nA,0,1,2\n")), "two columns", "'u'", "Rename")


def test_two_columns_that_could_be_time(save):
    assert_says(message(save("system,time,Time,u\nA,0,1,2\n")), "two columns", "'time'")


def test_no_column_of_values(save):
    text = message(save("system,time,u,w,sigma\nA,0,,high,1\nA,1,,low,1\n"))
    assert_says(text, "no column of measured values", "column 'u' is empty", "column 'w' holds text", "'high'")


# Files


def test_file_not_found(tmp_path):
    assert_says(message(tmp_path / "flet.csv"), "flet.csv", "No such file", "Check its name and folder")


def test_folder_instead_of_file(tmp_path):
    assert_says(message(str(tmp_path)), str(tmp_path), "directory")


@pytest.mark.parametrize("content", ["", "\n\n", " , ,\n,,\n"])
def test_empty_file(save, content):
    assert_says(message(save(content)), "fleet.csv", "empty", "first line must name the columns")


@pytest.mark.parametrize("content", ["system,time,u\n", "system,time,u\n\n,,\n"])
def test_table_without_data(save, content):
    assert_says(message(save(content)), "empty", "no data", "Add a line")


def test_empty_frames():
    assert_says(message(pd.DataFrame()), "no column 'system'", "none")
    assert_says(message(pd.DataFrame({"system": [], "time": [], "u": []})), "empty", "no data")


@pytest.mark.parametrize("content", [b"PK\x03\x04\xff\xfe\x00", b"\x00\x01\x02", "system,time,u".encode("utf-16")])
def test_binary_file(save, content):
    assert_says(message(save(content)), "fleet.csv", "not", "text", "Save the table as 'CSV UTF-8'")


def test_not_utf8_names_the_line(save):
    text = message(save("system,time,u\nA,0,1\npompe à eau,0,1\n".encode("latin-1")))
    assert_says(text, "line 3", "not UTF-8", "CSV UTF-8")


def test_line_with_too_many_cells(save):
    text = message(save("\nsystem,time,u\nA,0,1\nA,0,5,1,5\n"))
    assert_says(text, "not readable as CSV", "Expected 3 fields", "line 4", "saw 5", "1.5, not 1,5")


def test_every_line_with_too_many_cells_is_not_taken_for_an_index(save):
    assert_says(message(save("system,time,u\nA,0,1,\nA,1,2,\n")), "line 2", "end no line with a comma")


def test_quote_never_closed(save):
    assert_says(message(save('system,time,u\nA,0,1\n"B,0,2\nB,1,2\n')), "line 3", "quotes", "close")


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


@pytest.mark.parametrize("sigma", [None, {}, {"u": 0.1}, 0.0, -1.0, float("nan"), float("inf")])
def test_matched_without_noise(save, sigma):
    data = read_table(save("system,time,u,v,sigma_u\nA,0,1,2,.1\n"))
    with pytest.raises(DataError, match=r"no noise is known for v\. Add a column 'sigma', or give the problem sigma"):
        data.matched(("u", "v"), SPAN, sigma)


# Speed


def test_a_million_rows_take_seconds(save):
    rng = np.random.default_rng(0)
    n = 1_000_000
    frame = pd.DataFrame({"system": rng.integers(0, 2000, n), "time": rng.random(n), "u": rng.random(n)})
    start = time.perf_counter()
    data = read_table(frame)
    assert data.counts.sum() == n
    assert time.perf_counter() - start < 10  # about 1 s; a Python loop over rows takes minutes
