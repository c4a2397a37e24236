"""Bad tables say what is wrong, on which line, and what to do."""

import numpy as np
import pandas as pd
import pytest
from tables import assert_says, frame_of, message

from closura.data._observations import DataError, Observations, read_table

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
