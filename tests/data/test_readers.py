"""One small ragged fleet, in every format: the same arrays. Files that cannot be read say what they are and what to do."""

import contextlib
import gzip
import io
import struct
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matlab import object_5, save_7_3
from scipy.io import netcdf_file, savemat
from scipy.sparse import csc_array
from tables import assert_same, assert_says, message

from closura.data import _observations
from closura.data._observations import DataError, read_table

FLEET = pd.DataFrame(
    {
        "system": ["pump B", "pump B", "pump B", "A"],
        "time": [0.0, 0.5, 2.0, 0.5],
        "u": [1.5, 2.5, 0.1, 4.0],
        "v": [np.nan, 7.0, 8.0, 9.0],
        "sigma": [0.1, 0.2, 0.3, 0.4],
    }
)
COLUMNS = {name: FLEET[name].to_numpy(object if name == "system" else float) for name in FLEET}
GRID = FLEET.set_index(["system", "time"]).to_xarray().reindex(system=["pump B", "A"])
LONG = FLEET.melt(["system", "time", "sigma"], var_name="quantity").dropna()


def book(path, sheets, **place):
    with pd.ExcelWriter(path, engine="openpyxl") as writer:
        for name, frame in sheets.items():
            frame.to_excel(writer, sheet_name=name, index=False, **place)


WRITE = {
    "comma.csv": lambda path: FLEET.to_csv(path, index=False),
    "tab.tsv": lambda path: FLEET.to_csv(path, index=False, sep="\t"),
    "semicolon.txt": lambda path: FLEET.to_csv(path, index=False, sep=";"),
    "comma_decimals.csv": lambda path: FLEET.to_csv(path, index=False, sep=";", decimal=","),
    "tab_decimals.tsv": lambda path: FLEET.to_csv(path, index=False, sep="\t", decimal=","),
    "long.csv": lambda path: LONG.to_csv(path, index=False),
    "plain.parquet": FLEET.to_parquet,
    "indexed.parquet": lambda path: FLEET.set_index(["system", "time"]).to_parquet(path),
    "one.xlsx": lambda path: book(path, {"fleet": FLEET}),
    "low.xlsx": lambda path: book(path, {"empty": pd.DataFrame(), "fleet": FLEET}, startrow=3, startcol=2),
    "four.nc": lambda path: GRID.to_netcdf(path, engine="h5netcdf"),
    "three.nc": lambda path: GRID.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT"),
    "rows.nc": lambda path: xr.Dataset({n: ("row", c) for n, c in COLUMNS.items()}).to_netcdf(path, engine="h5netcdf"),
    "five.mat": lambda path: savemat(path, COLUMNS, oned_as="column"),
    "packed.mat": lambda path: savemat(path, COLUMNS, oned_as="row", do_compression=True),
    "struct.mat": lambda path: savemat(path, {"fleet": COLUMNS, "fs": 100.0}),
    "seven.mat": lambda path: save_7_3(path, COLUMNS),
    "seven_struct.mat": lambda path: save_7_3(path, COLUMNS, inside="fleet"),
}
NOTES = {
    "semicolon.txt": ("columns separated by semicolons: decimal commas read as points",),
    "comma_decimals.csv": ("columns separated by semicolons: decimal commas read as points",),
    "tab_decimals.tsv": ("columns separated by tabs: decimal commas read as points",),
    "low.xlsx": ("sheet 'fleet' of 2 read",),
}
BINARY = ["plain.parquet", "one.xlsx", "four.nc", "three.nc", "five.mat", "packed.mat", "seven.mat"]


@pytest.fixture
def made(tmp_path):
    def write(name):
        WRITE[name](tmp_path / name)
        return tmp_path / name

    return write


def says(source, *parts, **options):
    assert_says(message(source, **options), *parts)


# What can be read


@pytest.mark.parametrize("name", WRITE)
def test_every_file_gives_the_same_fleet(made, name):
    data = read_table(made(name))
    assert_same(data, read_table(FLEET))
    assert data.notes == NOTES.get(name, ())


@pytest.mark.parametrize("name", WRITE)
def test_names_of_files_do_not_matter(made, name):
    path = made(name)
    other = path.rename(path.with_name("fleet.nc" if name.endswith("x") else "fleet.xlsx"))
    data = read_table(str(other))
    assert_same(data, read_table(FLEET))
    assert data.notes[0].startswith(f"{other.name} is a")
    assert data.notes[0].endswith(": read as such")


def test_the_note_names_what_it_is(made):
    path = made("one.xlsx")
    assert read_table(path.rename(path.with_name("fleet.csv"))).notes == (
        "fleet.csv is an Excel workbook: read as such",
    )


@pytest.mark.parametrize(
    "source",
    [
        FLEET.to_dict("list"),
        {**COLUMNS, "sigma": FLEET["sigma"]},
        FLEET.set_index(["system", "time"]),
        GRID,
        GRID.stack(row=("system", "time")),
        LONG.rename(columns=str.upper),
    ],
    ids=["lists", "arrays", "index", "xarray", "stacked", "long"],
)
def test_every_object_gives_the_same_fleet(source):
    assert_same(read_table(source), read_table(FLEET))


def test_polars():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.from_pandas(FLEET)
    assert_same(read_table(frame), read_table(FLEET))
    assert_same(read_table(frame.lazy().filter(polars.col("time") >= 0)), read_table(FLEET))


def test_one_number_may_stand_for_a_column():
    data = read_table({"system": "A", "time": [0, 1], "u": np.array([1, 2]), "sigma": 0.5})
    np.testing.assert_array_equal(data.sigma, [[0.5, 0.5]])


def test_what_is_no_table():
    says({"time": [0, 1], "u": [1]}, "vectors of one length", "time (2,), u (1,)")
    says({"time": [0, 1], "u": [[1], [2]]}, "u (2, 1)")
    says({"time": [0, 1], "u": [[1], [2, 3]]}, "lists of several lengths")
    says({}, "vectors of one length", "there are none")
    says([1, 2], "cannot be read from a list", "mapping of names to columns")
    says(FLEET, "sheet='a' is for Excel", "drop it", sheet="a")


# Excel


def test_sheets(made, tmp_path):
    path = tmp_path / "book.xlsx"
    book(path, {"empty": pd.DataFrame(), "first": FLEET, "second": FLEET.assign(system="S")})
    assert read_table(path).notes == ("sheet 'first' of 3 read",)
    assert read_table(path, sheet="second").systems == ("S",)
    says(path, "no sheet 'third'", "empty, first, second", sheet="third")
    says(path, "empty", "first line must name", sheet="empty")
    says(made("comma.csv"), "comma.csv is a text file", "drop it", sheet="first")
    book(path, {"a": pd.DataFrame(), "b": pd.DataFrame()})
    says(path, "the sheets are empty")


def test_rows_are_called_as_in_the_sheet(tmp_path):
    path = tmp_path / "book.xlsx"
    book(path, {"fleet": FLEET.astype({"u": object}).replace({"u": {0.1: "broken"}})}, startrow=3, startcol=1)
    says(path, "row 7 (system pump B, time 2.0) has 'broken'")  # three empty rows, the header, two good ones


def test_cells_of_a_workbook_are_of_any_kind(tmp_path):
    path = tmp_path / "book.xlsx"
    mixed = pd.DataFrame({"system": [1, "1", 1.0], "time": [0, "1", 2.5], "u": [1, None, 3], "v": ["", 2.0, None]})
    book(path, {"fleet": mixed.astype(object)})
    data = read_table(path)
    assert data.systems == ("1",)
    np.testing.assert_array_equal(data.value, [[1, 2, 3]])


# Labelled arrays


def test_variables_of_fewer_dimensions_are_repeated(tmp_path):
    u = np.arange(12.0).reshape(2, 3, 2)
    u[1, 2] = np.nan
    places = {"system": ["B", "A"], "time": [0.0, 1.0, 2.0], "x": [0.1, 0.2]}
    data = xr.Dataset({"u": (list(places), u), "mass": ("system", [5.0, 6.0]), "sigma": 0.1}, places)
    data.to_netcdf(tmp_path / "field.nc", engine="h5netcdf")
    for source in (data, tmp_path / "field.nc"):
        found = read_table(source, axes=("time", "x"))
        assert found.notes == ("'mass' does not depend on time, x: repeated",)
        assert found.quantities == ("u", "mass")
        assert found.counts.tolist() == [12, 8]  # two places of A have no u, and mass alone is no row
        frame = found.to_frame()
        assert frame.groupby("system")["mass"].unique().map(list).to_dict() == {"A": [6.0], "B": [5.0]}
        np.testing.assert_array_equal(frame["u"], u[~np.isnan(u)])


def test_names_of_systems_may_be_plain_bytes(tmp_path):
    with netcdf_file(tmp_path / "a.nc", "w") as file:
        for name, size in (("row", 2), ("letters", 4)):
            file.createDimension(name, size)
        for name, column in {"time": [0.0, 1.0], "u": [1.0, 2.0]}.items():
            file.createVariable(name, "d", ("row",))[:] = column
        file.createVariable("system", "c", ("row", "letters"))[:] = np.array([list("pump"), list("fan ")], "c")
    assert read_table(tmp_path / "a.nc").systems == ("pump", "fan")


def test_arrays_without_systems_are_one():
    array = xr.DataArray([1.0, np.nan, 3.0], {"time": [0.0, 1.0, 2.0]}, name="u")
    data = read_table(array)
    assert data.systems == ("1",)
    np.testing.assert_array_equal(data.time, [[0, 2]])
    assert_says(data.notes[0], "no dimension or coordinate 'system'", "'1'")


def test_systems_may_be_a_coordinate_or_have_no_names():
    array = xr.DataArray([[1.0], [2.0]], {"time": [0.0]}, ("unit", "time"), "u")
    assert read_table(array.assign_coords(system=("unit", ["B", "A"]))).systems == ("B", "A")
    data = read_table(array.rename(unit="system"))
    assert data.systems == ("0", "1")
    assert data.notes == ("systems have no names: numbered 0 to 1",)


def test_arrays_that_do_not_say_enough():
    says(xr.DataArray([1.0], {"time": [0.0]}), "no name", "rename('u')")
    says(xr.DataArray([1.0], dims="time", name="u"), "dimension 'time' has no values", "assign_coords(time=...)")
    says(xr.Dataset(coords={"time": [0.0]}), "there are no variables")
    says(xr.DataArray([1.0], {"x": [0.0]}, name="u"), "no column 'time'", "x, u, system")


# MATLAB


def test_systems_of_matlab_may_be_numbers_or_one_name(tmp_path):
    numbers = {"system": [3, 3, 4], "time": [0.0, 1, 0], "u": [1.0, 2, 3]}
    savemat(tmp_path / "a.mat", numbers)
    assert read_table(tmp_path / "a.mat").systems == ("3", "4")
    savemat(tmp_path / "a.mat", {**numbers, "system": "pump"})
    assert read_table(tmp_path / "a.mat").systems == ("pump",)
    save_7_3(tmp_path / "b.mat", {name: np.array(column, float) for name, column in numbers.items()})
    assert read_table(tmp_path / "b.mat").systems == ("3", "4")


def test_what_else_is_in_a_workspace_is_ignored_with_a_note(tmp_path):
    savemat(tmp_path / "a.mat", {**COLUMNS, "fs": 100.0, "K": np.eye(3), "info": {"who": "me"}})
    data = read_table(tmp_path / "a.mat")
    assert_same(data, read_table(FLEET))
    assert data.notes == tuple(f"'{name}' is not a vector of 4 entries: ignored" for name in ("fs", "K", "info"))
    savemat(tmp_path / "a.mat", {"time": [0.0, 1.0], "u": [1.0, 2.0], "S": csc_array(np.eye(3))})
    says(tmp_path / "a.mat", "no column 'system'", "time, u")
    save_7_3(tmp_path / "b.mat", COLUMNS, objects={"when": "datetime"})
    assert read_table(tmp_path / "b.mat").notes == ("'when' is a datetime, not a vector of 4 entries: ignored",)


@pytest.mark.parametrize(
    ("name", "kind", "remedy"),
    [
        ("T", "table", "s = table2struct(T,'ToScalar',true); save('fleet.mat','-struct','s')"),
        ("T", "timetable", "timetable2table"),
        ("system", "string", "cellstr"),
        ("time", "datetime", "hours(t - t(1))"),
        ("m", "containers.Map", "cell arrays of text"),
    ],
)
def test_objects_only_matlab_reads(tmp_path, name, kind, remedy):
    (tmp_path / "a.mat").write_bytes(object_5(name, kind))
    save_7_3(tmp_path / "b.mat", {"u": np.arange(3.0)}, objects={name: kind})
    for path in (tmp_path / "a.mat", tmp_path / "b.mat"):
        says(path, f"'{name}' is a MATLAB {kind}", remedy)


def test_structs_that_are_no_table(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"one": COLUMNS, "two": COLUMNS})
    says(path, "several structs hold a table: one, two", "Save one of them")
    savemat(path, {"T": np.array([("A", 0.0), ("B", 1.0)], [("system", object), ("time", float)])})
    says(path, "'T' is a MATLAB struct array", "table2struct")
    savemat(path, {**COLUMNS, "system": np.arange(3)})
    says(path, "'system' has 3 entries, 'time' has 4 entries", "one length")


# Files that cannot be read


def zipped(*names):
    with zipfile.ZipFile(made := io.BytesIO(), "w") as archive:
        for name in names:
            archive.writestr(name, "system,time,u\n")
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, ("an old Excel workbook (.xls)", "as .xlsx")),
        (zipped("a.csv", "b.csv", "c.csv", "d.csv"), ("no workbook but a.csv, b.csv, c.csv, ...", "Unpack it")),
        (zipped(), ("no workbook but nothing",)),
        (zipped("mimetype", "content.xml"), ("a workbook, but not of the format .xlsx",)),
        (b"%PDF-1.7\n", ("a PDF", "the table it was made from")),
        (gzip.compress(b"system,time,u\n", mtime=0), ("gzip", "Unpack it")),
        (b'[\n {"system": "A"}]', ("looks like JSON", "mapping")),
        ("\ufeff<!DOCTYPE html>".encode(), ("a page or XML", "'CSV UTF-8'")),
        (b"ARROW1\0\0", ("Arrow", "to_parquet")),
        (b"MATLAB 5.0 MAT-file", ("looks like a MATLAB file", "cut short", "write the file again")),
    ],
)
def test_files_that_are_no_tables_say_what_they_are(save, content, parts):
    says(save(content), "fleet.csv", *parts)


@pytest.mark.parametrize("name", BINARY)
def test_a_file_cut_short_says_so(made, name):
    path = made(name)
    whole = path.read_bytes()
    for share in (0.3, 0.6, 0.9, 0.99):
        path.write_bytes(whole[: int(share * len(whole))])
        says(path, "looks like a", "cut short", "write the file again")


@pytest.mark.parametrize("name", BINARY)
def test_a_damaged_file_is_refused(made, name):
    path = made(name)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 4 : len(raw) // 2] = b"\xa5" * (len(raw) // 2 - len(raw) // 4)
    path.write_bytes(raw)
    with pytest.raises(DataError):
        read_table(path)


def test_a_damaged_array_is_let_go_in_silence(made, monkeypatch):
    path, complaints = made("four.nc"), []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    whole = path.read_bytes()
    for start in range(64, len(whole), 640):
        path.write_bytes(whole[:start] + b"\xa5" * 8 + whole[start + 8 :])
        with contextlib.suppress(DataError):
            read_table(path)
    assert complaints == []


def test_parts_that_do_not_fit_would_crash_scipy(made):
    path = made("five.mat")
    whole = path.read_bytes()
    for head, wrong in (((9, 32), (99, 32)), ((9, 32), (14, 32)), ((9, 32), (9, 1 << 20)), ((14, 80), (14, 8))):
        path.write_bytes(whole.replace(struct.pack("<II", *head), struct.pack("<II", *wrong), 1))
        says(path, "looks like a MATLAB file", "its parts do not fit together")


def test_too_little_memory_is_said(made, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(_observations, "_pack", full)
    says(made("comma.csv"), "comma.csv: there is not enough memory", "fewer rows")
