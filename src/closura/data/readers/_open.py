"""Whatever holds a long table, opened: files, told apart by their first bytes, frames, arrays and mappings."""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._long_table import DataError, LongTable, Names, fix_header, table_of_rows
from ._arrays import from_dataset, read_netcdf
from ._matlab import read_matlab
from ._text import read_text

_CSV = "Save the table as 'CSV UTF-8'"


def open_table(source: object, axes: Names, sheet: str | None = None) -> LongTable:
    if isinstance(source, str | PathLike):
        return _open_file(Path(fspath(source)).expanduser(), axes, sheet)
    if sheet is not None:
        raise DataError(f"sheet={sheet!r} is for Excel workbooks; drop it")
    library = type(source).__module__.partition(".")[0]
    if library == "xarray":
        return from_dataset(source, name_of(source), axes)
    if hasattr(source, "collect") and library == "polars":
        source = source.collect()
    if isinstance(source, Mapping):
        frame = _columns(source)
    elif isinstance(source, pd.DataFrame):
        frame = source
    elif hasattr(source, "to_pandas"):
        frame = source.to_pandas()
    else:
        raise DataError(
            f"a table cannot be read from {name_of(source)}; give the path of a file, a frame of pandas or polars, an "
            "xarray Dataset, or a mapping of names to columns"
        )
    return LongTable(frame, np.arange(len(frame)) + 2, axes=axes)


def name_of(source: object) -> str:
    """In messages."""
    if isinstance(source, str | PathLike):
        return str(Path(fspath(source)).expanduser())
    known = isinstance(source, Mapping) or hasattr(source, "to_pandas") or hasattr(source, "columns")
    return "the table" if known else f"a {type(source).__name__}"


def _columns(source: Mapping[object, object]) -> pd.DataFrame:
    try:
        shapes = {str(name): np.asarray(column).shape for name, column in source.items()}
    except ValueError:
        raise DataError("the table: a column holds lists of several lengths. Write one number in a row") from None
    if len({shape for shape in shapes.values() if shape}) != 1 or any(len(shape) > 1 for shape in shapes.values()):
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "there are none"
        raise DataError(f"the table: columns must be vectors of one length. Their shapes: {found}")
    return pd.DataFrame({str(name): _vector(column) for name, column in source.items()})


def _vector(column: object) -> object:
    if np.asarray(column).ndim == 0:
        return column  # the same for all rows
    return list(column) if isinstance(column, Sequence) else np.asarray(column)


class _Kind(NamedTuple):
    name: str  # with its article
    endings: Names
    read: Callable[[Path, Names], LongTable]


def _open_file(path: Path, axes: Names, sheet: str | None) -> LongTable:
    try:
        with path.open("rb") as file:
            head = file.read(1024)
    except OSError as error:
        raise DataError(f"{path.absolute()}: {error.strerror}. Check its name and folder") from None
    kind = _told_by(head, path)
    if sheet is not None and kind is not _EXCEL:
        raise DataError(f"{path} is {kind.name}, and sheet={sheet!r} is for Excel workbooks; drop it")
    try:
        table = kind.read(path, axes) if sheet is None else _read_excel(path, axes, sheet)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # libraries fail on damaged files in any way they like
        why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        what = f"it looks like {kind.name}, but is damaged, cut short or not one ({why})"
        raise DataError(f"{path}: {what}. {_CSV}, or write the file again") from None
    if path.suffix.lower() not in kind.endings:
        table.notes.insert(0, f"{path.name} is {kind.name}: read as such")
    return table


def _told_by(head: bytes, path: Path) -> _Kind:
    """What a file is, whatever it is called."""
    for magic, kind in _KINDS.items():
        if head.startswith(magic):
            return kind
    for magic, (name, remedy) in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(f"{path}: it is {name}. {remedy}")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _unpacked(path)
    start = b"".join(head.removeprefix(b"\xef\xbb\xbf").split())[:5].lower()
    if start.startswith((b"<html", b"<!doc", b"<?xml", b"<tabl")):
        raise DataError(f"{path}: it is a page or XML, not a table of text. {_CSV}")
    if start.startswith((b"{", b"[{", b"[[")):
        raise DataError(f"{path}: it looks like JSON. {_CSV}, or give cl.read_table a mapping of names to columns")
    return _TEXT


def _unpacked(path: Path) -> _Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):  # the second: a compression zipfile does not know
        what = "it looks like an Excel workbook or another zip file, but is damaged or cut short, and it is not text"
        raise DataError(f"{path}: {what}. {_CSV}, or write the file again") from None
    if "xl/workbook.xml" in names:
        return _EXCEL
    if "xl/workbook.bin" in names or "content.xml" in names:
        raise DataError(f"{path}: it is a workbook, but not of the format .xlsx. {_CSV}, or as .xlsx")
    inside = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") or "nothing"
    what = f"it is a zip file that holds no workbook but {inside}"
    raise DataError(f"{path}: {what}. Unpack it and name the table inside")


def _read_excel(path: Path, axes: Names, sheet: str | None = None) -> LongTable:
    import openpyxl

    with path.open("rb") as file:  # openpyxl would refuse a workbook with another ending
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        pages = {page.title: page for page in book.worksheets}
        if sheet is not None and sheet not in pages:
            raise DataError(f"{path} has no sheet '{sheet}'; its sheets are: {', '.join(pages)}")
        chosen, cells = "", pd.DataFrame()
        for chosen in pages if sheet is None else [sheet]:
            pages[chosen].reset_dimensions()  # some programs write wrong ones
            cells = pd.DataFrame(list(pages[chosen].values), dtype=object)
            cells = cells.where(cells.notna() & (cells != ""), None).dropna(axis=1, how="all")
            filled = np.flatnonzero(cells.notna().any(axis=1))
            if filled.size:
                break
        else:
            raise DataError(f"{path}: the sheet{'s are' if len(pages) > 1 else ' is'} empty. {fix_header(axes)}")
    top = int(filled[0])
    names = ["" if name is None else name for name in cells.iloc[top]]
    body = cells.iloc[top + 1 :].set_axis(names, axis=1).infer_objects()
    notes = [f"sheet '{chosen}' of {len(pages)} read"] if len(pages) > 1 else []
    return LongTable(body, np.arange(top + 1, len(cells)) + 1, str(path), notes, axes, word="row")


def _read_parquet(path: Path, axes: Names) -> LongTable:
    return table_of_rows(pd.read_parquet(path), str(path), axes, [])


_TEXT = _Kind("a text file", ("", ".csv", ".tsv", ".tab", ".txt", ".dat"), read_text)
_EXCEL = _Kind("an Excel workbook", (".xlsx", ".xlsm"), _read_excel)
_NETCDF = _Kind("a NetCDF file", (".nc", ".nc4", ".cdf", ".netcdf"), read_netcdf)
_MATLAB = _Kind("a MATLAB file", (".mat",), read_matlab)
_KINDS = {
    b"PAR1\x15": _Kind("a Parquet file", (".parquet", ".pq", ".parq"), _read_parquet),
    **dict.fromkeys((b"CDF\x01", b"CDF\x02", b"CDF\x05", b"\x89HDF\r\n\x1a\n"), _NETCDF),
    **dict.fromkeys((b"MATLAB 5.0", b"MATLAB 7.3"), _MATLAB),
}
_UNPACK = "Unpack it, and name the file inside"
_OLD_EXCEL = "an old Excel workbook (.xls), or one with a password"
_FOREIGN = {
    b"\xd0\xcf\x11\xe0": (_OLD_EXCEL, f"{_CSV}, or as .xlsx without a password"),
    b"%PDF": ("a PDF", f"Find the table it was made from. {_CSV}"),
    b"\x1f\x8b": ("compressed (gzip)", _UNPACK),
    b"BZh91AY": ("compressed (bzip2)", _UNPACK),
    b"\xfd7zXZ": ("compressed (xz)", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("compressed (zstd)", _UNPACK),
    b"7z\xbc\xaf": ("compressed (7z)", _UNPACK),
    b"ARROW1": ("an Arrow (Feather) file", "Save the table as Parquet: frame.to_parquet(...)"),
    b"\x93NUMPY": ("an array of NumPy", "Give cl.read_table a mapping of names to columns"),
    b"SQLite format 3": ("a database (SQLite)", f"Export the table from it. {_CSV}"),
    b"{\\rtf": ("a text document (RTF)", _CSV),
}
