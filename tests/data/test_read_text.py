"""Decimal commas, and text files too big to look at every cell."""

import numpy as np
import pandas as pd
import pytest
from tables import assert_same, assert_says, message

from closura.data._observations import read_table
from closura.data.readers import _text as _read_text

# Decimal commas


def test_decimal_commas_in_quotes_get_a_hint(save):
    assert_says(
        message(save('system,time,u\nA,0,1\nA,1,"1,5"\n')),
        "line 3",
        "'1,5'",
        "if semicolons or tabs separate the columns",
    )
    assert_says(
        message(save('system,time,u\nA,0,1\nA,"0,5",1\n')), "time is not a number", "if semicolons or tabs separate"
    )


def test_tabs_with_both_marks_are_not_guessed(save):
    assert_says(
        message(save("system\ttime\tu\nA\t0.5\t1\nA\t1.5\t1,5\n")), "line 3", "'1,5'", "none has a decimal point"
    )


def test_a_comma_in_a_name_is_no_decimal_comma(save):
    data = read_table(save("system\ttime\tu\n1,5\t0\t1\n"))
    assert data.systems == ("1,5",)
    assert data.notes == ()


# Big files


@pytest.mark.parametrize(
    "options", [{}, {"sep": "\t"}, {"sep": ";"}, {"sep": ";", "decimal": ","}, {"sep": "\t", "decimal": ","}]
)
def test_big_files_are_read_alike(save, options, monkeypatch):
    frame = pd.DataFrame(
        {"system": ["B", "B", "A"], "time": [0.0, 0.5, 2.0], "u": [1.5, 0.1, 4], "v": [np.nan, 7, 0.5]}
    )
    path = save(frame.to_csv(index=False, **options))
    small = read_table(path)
    assert_same(small, read_table(frame))
    monkeypatch.setattr(_read_text, "BIG", 0)
    big = read_table(path)
    assert_same(big, small)
    assert big.notes == small.notes


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("system,time,u\n007,0,1\nNA,0,\n", True),
        ("\n\r\nsystem;time;u\r\nA;0,5;1\r\nA;1;2\r\n\r\n", True),
        ("\ufeffsystem,time,u\nA,0,1\n", True),
        ("system,time,u\nA,0,1\n\nA,1,2\n", False),
        ('system,time,u\n"A\nB",0,1\n', False),
        ("system,time,u,note\nA,0,1,fine\n", False),
        ("system,time,u,u\nA,0,1,2\n", False),
        ("system,time,u\nA,0,1,2\n", False),
    ],
)
def test_only_plain_tables_of_numbers_are_read_without_a_closer_look(text, fast):
    table = _read_text._numeric(text.encode().removeprefix(b"\xef\xbb\xbf"), "fleet.csv", ("time",))
    assert (table is not None) == fast


def test_lines_of_big_files_are_counted(save, monkeypatch):
    monkeypatch.setattr(_read_text, "BIG", 0)
    assert_says(message(save("\nsystem,time,u\nA,0,1\nA,1,2\nA,0,1\n")), "line 5 (system A, time 0.0) repeats line 3")
    assert_says(message(save("system,time,u\nA,0,1\n\nA,1,x\n")), "line 4", "'x'")


def test_numbers_of_big_files_are_exact(save, monkeypatch):
    monkeypatch.setattr(_read_text, "BIG", 0)
    values = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.arange(-25, 25).repeat(10)
    frame = pd.DataFrame({"system": "A", "time": np.arange(500), "u": values})
    np.testing.assert_array_equal(read_table(save(frame.to_csv(index=False))).value[0], values)


def test_remarks_before_the_header_are_skipped_but_counted(save):
    text = "# measured by Ann, in May\n\n#\nsystem,time,u\na,0,1\na,1,1,5\n"
    assert_says(message(save(text)), "line 6")
    assert read_table(save(text.replace("1,5", "2"))).value.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("system,time,u\na,03/04/2024,1\n", "Day and month cannot be told apart in 03/04/2024: write 2024-04-03"),
        ("system;time;u\na;0;1.234,5\n", "Leave out what separates thousands"),
        ('system,time,u\na,0,"1,234,567.5"\n', "Leave out what separates thousands"),
    ],
)
def test_what_may_have_been_meant(save, text, hint):
    assert_says(message(save(text)), hint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# system,time,u\nA,0,1\n", "line 1 names the columns, but begins with #"),
        ("# one\n# two\n", "nothing but remarks"),
        ("system;time;u\nA;0;1.234\nA;1;987,5\n", "'u' has decimal commas (987,5) and points (1.234)"),
    ],
)
def test_what_would_be_misread_is_refused(save, text, said):
    assert_says(message(save(text)), said)
