"""One row a value, and times that are dates."""

import datetime

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from tables import assert_same, assert_says, frame_of, message

from closura.data import DataError
from closura.data._observations import read_table

# One row a value

LONG = "system,time,quantity,value,sigma\nA,0,u,1,.1\nA,0,v,2,.2\nA,1,u,3,.3\nB,0,v,4,.4\n"
WIDE = "system,time,u,v,sigma_u,sigma_v\nA,0,1,2,.1,.2\nA,1,3,,.3,\nB,0,,4,,.4\n"


def test_one_row_a_value_is_the_same_table(save):
    long = read_table(save(LONG))
    assert long.notes == ()
    assert_same(long, read_table(save(WIDE)))
    assert_same(read_table(save(LONG.replace("quantity,value", "Quantity, VALUE "))), long)
    assert_same(read_table(long.to_frame()), long)


def test_noise_may_be_left_out_and_comments_stay_comments(save):
    data = read_table(save("system,time,quantity,value,remark\nA,0,u,1,fine\nA,1, u ,2,\n"))
    assert data.quantities == ("u",)
    assert np.isnan(data.sigma).all()
    assert_says(data.notes[0], "'remark' holds text", "ignored")


@pytest.mark.parametrize(
    ("header", "row", "parts"),
    [
        ("quantity,value,w", "u,1,2", ("'quantity' and 'value' give one value a row", "'w' is a column of values", "remove")),
        ("quantity,value,sigma_u", "u,1,2", ("one value a row", "its noise is 'sigma'", "'sigma_u'", "Rename")),
        ("quantity,value", "1,2", ("'quantity' holds numbers", "Write the name of what was measured")),
        ("quantity,value", ",2", ("the quantity's name is missing", "line 2 (system A, time 0)", "every line")),
        ("quantity,value", "time,2", ("'time' cannot be the name of a quantity", "Rename")),
        ("quantity,value", "sigma_u,2", ("'sigma_u' cannot be the name of a quantity",)),
        ("quantity,value", "u,", ("no measured values", "column 'value' is empty", "into 'value'")),
        ("quantity,value", "u,high", ("no measured values", "column 'value' holds text")),
        ("quantity,reading", "u,2", ("'quantity' holds names", "no column 'value'", "Rename")),
        ("quantity,value,sigma", "u,1,0", ("'sigma' is not a positive number", "line 2")),
    ],
)  # fmt: skip
def test_what_cannot_be_one_row_a_value(save, header, row, parts):
    assert_says(message(save(f"system,time,{header}\nA,0,{row}\n")), "fleet.csv", *parts)


def test_a_value_that_is_missing_or_twice_is_named(save):
    assert_says(
        message(save(LONG + "A,2,u,,.1\n")), "there is no value", "line 6 (system A, time 2)", "delete the line"
    )
    assert_says(message(save(LONG + "A,2,u,x,.1\n")), "column 'value' is not a finite number", "line 6")
    assert_says(message(save(LONG + "A,0,u,1,.3\n")), "line 6", "repeats line 2")


def test_either_name_alone_is_a_quantity(save):
    assert read_table(save("system,time,value\nA,0,1\n")).quantities == ("value",)
    assert read_table(save("system,time,quantity\nA,0,1\n")).quantities == ("quantity",)


# Dates

DATES = "system,time,u\nA,2024-01-03 10:00,1\nA,2024-01-03 11:30,2\nB,2024-02-01,3\nB,2024-02-02 00:00:36,4\n"


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("h", [[0, 1.5], [0, 24.01]]),
        ("Hours", [[0, 1.5], [0, 24.01]]),
        ("min", [[0, 90], [0, 1440.6]]),
        ("s", [[0, 5400], [0, 86436]]),
        ("seconds", [[0, 5400], [0, 86436]]),
        ("d", [[0, 0.0625], [0, 86436 / 86400]]),
        ("day", [[0, 0.0625], [0, 86436 / 86400]]),
    ],
)
def test_dates_are_counted_from_the_first_of_each_system(save, unit, times):
    data = read_table(save(DATES), time_unit=unit)
    np.testing.assert_allclose(data.time, times, rtol=1e-15)
    assert data.notes == (f"times are dates: counted in {unit} from the first of each system",)


def test_dates_need_a_unit(save):
    text = message(save(DATES))
    assert_says(text, "time is not a number", "line 2 (system A, time 2024-01-03 10:00)", "4 in all")
    assert_says(text, "time_unit='h'", "--time-unit h", "from the first of each system")
    assert "time_unit" not in message(save("system,time,u\nA,noon,1\n"))
    assert "time_unit" not in message(save("system,x,u\nA,2024-01-03,1\n"), axes=("x",))


def test_newest_first_is_counted_from_the_earliest(save):
    data = read_table(save("system,time,u\nA,2024-01-03 12:00,1\nA,2024-01-03 10:00,2\n"), time_unit="h")
    np.testing.assert_array_equal(data.time, [[0, 2]])
    np.testing.assert_array_equal(data.value, [[2, 1]])
    assert data.notes[1] == "times sorted in 1 of 1 systems"


@pytest.mark.parametrize(
    "second",
    [
        "2024-01-03 10:00:00.5",
        "2024-01-03T10:00:00.500000",
        "2024/1/3 10:00:00.5",
        "3.1.2024 10:00:00.5",
        '"2024-01-03 10:00:00,5"',
    ],
)
def test_ways_to_write_a_date(save, second):
    data = read_table(save(f"system,time,u\nA,2024-01-03,1\nA,{second},2\n"), time_unit="s")
    np.testing.assert_array_equal(data.time, [[0, 36000.5]])


@pytest.mark.parametrize(
    "second", ["2024-01-03 12:00Z", "2024-01-03 13:00+01:00", "2024-01-03 06:30 -0530", "2024-01-03T12:00:00 UTC"]
)
def test_time_zones_are_minded(save, second):
    data = read_table(save(f"system,time,u\nA,2024-01-03 10:00+00:00,1\nA,{second},2\n"), time_unit="h")
    np.testing.assert_array_equal(data.time, [[0, 2]])


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_frames_of_dates(zone):
    when = pd.to_datetime(["2024-03-31 01:00", "2024-03-31 04:00"]).tz_localize(zone)
    frame = pd.DataFrame({"system": "A", "time": when, "u": [1, 2]})
    hours = [[0, 3 if zone is None else 2]]  # that night clocks were put forward
    np.testing.assert_array_equal(read_table(frame, time_unit="h").time, hours)
    np.testing.assert_array_equal(read_table(frame.astype({"time": object}), time_unit="h").time, hours)


def test_durations():
    frame = frame_of("A 0 1; A 1 2").assign(time=pd.to_timedelta([30, 90], unit="min"))
    assert_says(message(frame), "time is not a number", "time_unit='h'")
    data = read_table(frame, time_unit="h")
    np.testing.assert_array_equal(data.time, [[0.5, 1.5]])
    assert data.notes == ("times are durations: counted in h",)
    assert_says(message(frame.assign(time=[pd.Timedelta(0), pd.NaT]), time_unit="h"), "the time is missing", "line 3")


def test_dates_of_workbooks_and_arrays(tmp_path):
    when = [datetime.datetime(2024, 1, 3, 10), datetime.datetime(2024, 1, 3, 12)]
    frame = pd.DataFrame({"system": "A", "time": when, "u": [1.0, 2.0]})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    xr.Dataset({"u": ("time", [1.0, 2.0])}, {"time": when}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    for name in ("a.xlsx", "a.nc"):
        assert_says(message(tmp_path / name), "time is not a number", "time_unit='h'")
        np.testing.assert_array_equal(read_table(tmp_path / name, time_unit="h").time, [[0, 2]])


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("1.5", ("the time is a number, and time_unit='h' is for dates", "Drop time_unit")),
        ("", ("the time is not a date", "like 2024-01-03 10:00")),
        ("noon", ("the time is not a date",)),
        ("2024-02-30", ("the time is not a date", "time 2024-02-30")),
        ("03/04/2024", ("the time is not a date", "year-month-day")),
        ("2024-01-03 10:00 CET", ("the time is not a date",)),
        ("2024-01-03 10:00Z", ("the date has no time zone, but others have one", "on every line, or the zone on none")),
    ],
)
def test_bad_dates(save, cell, parts):
    path = save(f"system,time,u\nA,2024-01-03 10:00,1\nA,{cell},2\n")
    where = "line 2" if cell.endswith("Z") else "line 3 (system A"
    assert_says(message(path, time_unit="h"), *parts, where)


def test_units_that_do_not_fit(save):
    assert_says(message(save(DATES), time_unit="weeks"), "time_unit='weeks'", "choose s, min, h or d")
    assert_says(message(save("system,time,u\nA,0,1\n"), time_unit="h"), "the time is a number", "Drop time_unit")
    assert_says(message(save("system,x,u\nA,0,1\n"), axes=("x",), time_unit="h"), "the axes are x", "drop it")


def test_dates_beside_places(save):
    text = "system,time,x,u\nA,2024-01-03,0.1,1\nA,2024-01-04,0.1,2\n"
    np.testing.assert_array_equal(
        read_table(save(text), axes=("time", "x"), time_unit="d").place, [[[0, 0.1], [1, 0.1]]]
    )


DATED = {
    "system": ["A", "A", "B"],
    "time": ["2024-01-03 10:00", "2024-01-03 11:30", "2024-02-01 00:00"],
    "u": [1.0, 2.0, 3.0],
}


def test_dates_of_inputs_count_from_where_the_observations_do():
    load = {
        "system": ["A", "A", "B", "B"],
        "time": ["2024-01-03 09:00", "2024-01-03 12:00", "2024-02-01 00:30", "2024-02-01 06:00"],
        "load": [5.0, 6.0, 7.0, 8.0],
    }
    data = read_table(DATED, time_unit="h", inputs=load)
    assert data.inputs is not None
    np.testing.assert_allclose(data.inputs.time, [[-1.0, 2.0], [0.5, 6.0]])
    with pytest.raises(DataError, match="the time is a number, and time_unit='h' is for dates"):
        read_table(DATED, time_unit="h", inputs=load | {"time": [0.0, 1.0, 0.0, 1.0]})
    zoned = [f"{time}+01:00" for time in load["time"]]
    with pytest.raises(DataError, match="dates have a time zone, and those of the observations have none"):
        read_table(DATED, time_unit="h", inputs=load | {"time": zoned})
    lasting = DATED | {"time": pd.to_timedelta(["0h", "1h", "0h"])}
    with pytest.raises(DataError, match="times are dates, and those of the observations are not"):
        read_table(lasting, time_unit="h", inputs=load)
