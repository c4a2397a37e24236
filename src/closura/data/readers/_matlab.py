"""Tables in MATLAB files: vectors of one length, or one struct that holds them."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from .._long_table import DataError, LongTable, Names, table_of_rows


class _Object(NamedTuple):
    """What only MATLAB can read, or what is no column."""

    kind: str


_Content: TypeAlias = "dict[str, np.ndarray | _Object | _Content]"  # dictionaries in it are structs
_PARTS = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 14, 15, 16, 17, 18}  # numbers of MATLAB's file format
_MATRIX, _COMPRESSED = 14, 15
_USELESS = ("sparse matrix", "function")  # no table, however saved
_TABLE = "s = table2struct(T,'ToScalar',true); save('fleet.mat','-struct','s')"
_SAVE = {
    "table": f"In MATLAB: {_TABLE}",
    "timetable": f"In MATLAB: T = timetable2table(T); {_TABLE}",
    "struct array": f"With a table T in MATLAB: {_TABLE}",
    "string": "Save it as a cell array: cellstr(...)",
    "categorical": "Save it as a cell array: cellstr(...)",
    "datetime": "Save numbers: hours(t - t(1)), or text: cellstr(string(t, 'yyyy-MM-dd HH:mm:ss'))",
    "duration": "Save numbers: hours(...) or seconds(...)",
}


def read_matlab(path: Path, axes: Names) -> LongTable:
    with path.open("rb") as file:
        old = file.read(10) == b"MATLAB 5.0"
    needed = ("system", *axes)
    content = _chosen(_version_5(path) if old else _version_7_3(path), needed, path)
    found = {name: np.squeeze(c) for name, c in content.items() if isinstance(c, np.ndarray) and c.size}
    known = {name.lower(): len(column) for name, column in found.items() if column.ndim == 1}
    lengths = list(known.values())
    rows = known.get(axes[0], max(lengths, key=lengths.count, default=1))
    wrong = {name: length for name, length in known.items() if name in needed and length != rows}
    if wrong:
        what = ", ".join(f"'{name}' has {length} entries" for name, length in {**wrong, axes[0]: rows}.items())
        raise DataError(f"{path}: {what}. Make them vectors of one length, an entry per observation")
    notes, columns = [], {}
    for name, column in content.items():
        whole = name.lower().startswith(("system", "sigma"))  # one for all rows will do
        if name in found and (found[name].shape == (rows,) or (found[name].ndim == 0 and (whole or rows == 1))):
            columns[name] = found[name].tolist()
        else:
            kind = f"a {column.kind}, " if isinstance(column, _Object) else ""
            notes.append(f"'{name}' is {kind}not a vector of {rows} entries: ignored")
    return table_of_rows(pd.DataFrame(columns, index=range(rows)), str(path), axes, notes)


def _chosen(content: _Content, needed: Names, path: Path) -> _Content:
    """The variables themselves, or those of the one struct that holds the table."""

    def holds(part: _Content) -> bool:
        return any(name.lower() in needed and not isinstance(value, _Object) for name, value in part.items())

    structs = {name: part for name, part in content.items() if isinstance(part, dict) and holds(part)}
    if not holds(content) and len(structs) > 1:
        raise DataError(f"{path}: several structs hold a table: {', '.join(structs)}. Save one of them")
    if not holds(content) and structs:
        (content,) = structs.values()
    plain = [name.lower() for name, value in content.items() if isinstance(value, np.ndarray)]
    kinds = {name: value.kind for name, value in content.items() if isinstance(value, _Object)}
    objects = [name for name, kind in kinds.items() if kind not in _USELESS]
    if objects and not set(needed) <= set(plain):
        name = next((name for name in objects if name.lower() in needed), objects[0])
        kind = kinds[name]
        what = f"'{name}' is a MATLAB {kind}, which cannot be read outside MATLAB"
        raise DataError(f"{path}: {what}. {_SAVE.get(kind, 'Save numbers, or cell arrays of text')}")
    return content


def _version_5(path: Path) -> _Content:
    from scipy.io import loadmat
    from scipy.io.matlab import MatlabOpaque

    def plain(value: object) -> np.ndarray | _Object | _Content:
        if not isinstance(value, np.ndarray):
            return _Object("sparse matrix")
        if isinstance(value, MatlabOpaque):
            return _Object(str(value["s2"].item(), "latin-1"))
        if value.dtype.names:
            if type(value) is not np.ndarray:
                return _Object("function")
            if value.size != 1:
                return _Object("struct array")
            return {name: plain(value[name].item()) for name in value.dtype.names}
        if value.dtype == object:
            return _cells([plain(cell) for cell in value.ravel()])
        return value

    raw = path.read_bytes()
    if not _whole(raw, 128, len(raw), "little" if raw[126:128] == b"IM" else "big"):
        raise ValueError("its parts do not fit together")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # several objects share one name
        loaded = loadmat(BytesIO(raw))
    named = {name: value for name, value in loaded.items() if not name.startswith("__")}
    return {
        str(value["s0"].item(), "latin-1") if isinstance(value, MatlabOpaque) else name: plain(value)
        for name, value in named.items()
    }


def _whole(raw: bytes, at: int, end: int, order: Literal["little", "big"]) -> bool:
    """Does every part end where its length says? scipy does not ask, and damaged files can crash it."""
    while at < end:
        kind, size = (int.from_bytes(raw[at + skip : at + skip + 4], order) for skip in (0, 4))
        if kind >> 16:  # a short part, in its own head
            kind, size, step = kind & 0xFFFF, kind >> 16, 8
        else:
            step = 8 + size + (0 if kind == _COMPRESSED else -size % 8)
        if kind not in _PARTS or at + step > end or (step == 8 and size > 4):
            return False
        if kind == _MATRIX and not _whole(raw, at + 8, at + 8 + size, order):
            return False
        at += step
    return True


def _version_7_3(path: Path) -> _Content:
    """HDF5, in which arrays are transposed, text is 16-bit numbers, and cells refer to other places."""
    import h5py

    def plain(item: h5py.HLObject) -> np.ndarray | _Object | _Content:
        kind = item.attrs.get("MATLAB_class", b"").decode()
        if "MATLAB_object_decode" in item.attrs:
            return _Object(kind)
        if isinstance(item, h5py.Group):
            if "MATLAB_sparse" in item.attrs:
                return _Object("sparse matrix")
            if any("MATLAB_class" not in part.attrs for part in item.values()):
                return _Object("struct array")
            return {name: plain(part) for name, part in item.items()}
        if "MATLAB_empty" in item.attrs:
            return np.empty(0)
        if kind == "cell":
            return _cells([plain(file[place]) for place in item[()].T.ravel()])
        if kind == "char":
            return np.array(["".join(map(chr, row)) for row in item[()].T])
        return item[()].T

    with h5py.File(path) as file:
        return {name: plain(item) for name, item in file.items() if not name.startswith("#")}


def _cells(cells: list[np.ndarray | _Object | _Content]) -> np.ndarray:
    """Each cell a word or a number."""
    made = np.empty(len(cells), dtype=object)
    made[:] = [cell.item() if isinstance(cell, np.ndarray) and cell.size == 1 else None for cell in cells]
    return made
