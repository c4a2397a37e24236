"""Tables in text files: separated by commas, semicolons or tabs, in UTF-8."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd

from .._long_table import DECIMAL_COMMA, DECIMAL_POINT, DataError, LongTable, Names, fix_header

BIG = 20e6  # bytes; above, a file of numbers is read without looking at each cell
_BLANK = " \t\r\n,;"


def read_text(path: Path, axes: Names) -> LongTable:
    raw = path.read_bytes()
    raw = raw[3:] if raw.startswith(b"\xef\xbb\xbf") else raw
    fast = _numeric(raw, str(path), axes) if len(raw) > BIG else None
    return _careful(_decoded(raw, path, axes), str(path), axes) if fast is None else fast


def _decoded(raw: bytes, path: Path, axes: Names) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line} is not UTF-8 text. Save the table as 'CSV UTF-8'") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if "\x00" in text or not text.strip(_BLANK):
        what = "is not a text file. Save the table as 'CSV UTF-8'" if "\x00" in text else "the file is empty"
        raise DataError(f"{path}: {what}. {fix_header(axes)}")
    return text


def _careful(text: str, source: str, axes: Names) -> LongTable:
    skip, sep = _layout(text)
    if text.count("\n", 0) < skip or not text.split("\n", skip)[skip].strip():
        raise DataError(f"{source}: there is nothing but remarks (#). {fix_header(axes)}")
    if remark := _header_in_remarks(text, skip, axes):
        raise DataError(
            f"{source}: line {remark} names the columns, but begins with #, which makes it a remark. Remove the #"
        )
    file = io.StringIO(text)
    try:  # header=None: the first line fixes the number of cells, so that a longer one is an error
        cells = pd.read_csv(
            file, sep=sep, skiprows=skip, header=None, dtype=str, na_filter=False, skip_blank_lines=False
        )
    except pd.errors.ParserError as error:
        what = re.sub(r"row (\d+)", lambda m: f"line {int(m[1]) + 1}", str(error).split(": ")[-1].strip())
        fix = "Write 1.5, not 1,5; put text with commas in quotes, and close them; end no line with a comma"
        raise DataError(f"{source}: not readable as CSV ({what}). {fix}") from None
    lines = skip + 1 + np.arange(len(cells))
    if '"' in text:
        breaks = cells.apply(lambda column: column.str.count("\n")).sum(axis=1).to_numpy()
        lines += np.cumsum(breaks) - breaks
    body = cells.iloc[1:].set_axis(cells.iloc[0].tolist(), axis=1)
    decimal, notes = _decimal(body, sep, source)
    return LongTable(body, lines[1:], source, notes, axes, decimal)


def _layout(text: str) -> tuple[int, str]:
    """Lines before the header, empty or remarks (#), and what separates columns."""
    before = re.match(r"(?:[ \t,;]*(?:#[^\n]*)?\n)*", text)
    skip = before[0].count("\n") if before else 0
    return skip, max(",;\t", key=text.split("\n", skip + 1)[skip].count)


def _header_in_remarks(text: str, skip: int, axes: Names) -> int | None:
    """The line of a header that is commented out, where the first line that is not has none."""
    lines = [re.split(r"[,;\t]", line.lower().lstrip("# ")) for line in text.split("\n", skip + 1)[: skip + 1]]
    named = [{"system", *axes} <= {cell.strip(' "') for cell in line} for line in lines]
    return None if named[-1] or not any(named) else named.index(True) + 1


def _decimal(body: pd.DataFrame, sep: str, source: str) -> tuple[str, list[str]]:
    numbers = {name: column for name, column in body.items() if str(name).strip().lower() != "system"}
    if sep == ";":
        for name, column in numbers.items():
            found = [column[column.str.strip().str.fullmatch(mark)] for mark in (DECIMAL_COMMA, DECIMAL_POINT)]
            if all(map(len, found)):
                comma, point = (cells.iloc[0].strip() for cells in found)
                raise DataError(
                    f"{source}: column '{name}' has decimal commas ({comma}) and points ({point}). Write all with a comma, or all "
                    "with a point, and leave out what separates thousands"
                )
        return ",", ["columns separated by semicolons: decimal commas read as points"]
    if sep == "\t":
        columns = numbers.values()
        commas, points = (any(c.str.fullmatch(mark).any() for c in columns) for mark in (DECIMAL_COMMA, DECIMAL_POINT))
        if commas and not points:
            return ",", ["columns separated by tabs: decimal commas read as points"]
    return ".", []


def _numeric(raw: bytes, source: str, axes: Names) -> LongTable | None:
    """A table in which all but names are numbers, a row a line; if it is not one, none: a closer look must be taken."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    try:
        head = raw[:100_000].decode(errors="replace").replace("\r\n", "\n")
        skip, sep = _layout(head)
        names = next(csv.reader([head.split("\n", skip + 1)[skip]], delimiter=sep))
        text = pa.dictionary(pa.int32(), pa.string())
        kinds = {name: text if name.strip().lower() == "system" else pa.float64() for name in names}
        if len(kinds) < len(names):
            return None
        decimal = "," if sep == ";" else "."
        table = arrow.read_csv(
            pa.BufferReader(raw),
            arrow.ReadOptions(skip_rows=skip, block_size=1 << 24),
            arrow.ParseOptions(delimiter=sep),
            arrow.ConvertOptions(column_types=kinds, decimal_point=decimal),
        )
    except pa.ArrowInvalid:
        return None
    if raw.rstrip(b"\r\n").count(b"\n") - skip != len(table):  # empty lines or breaks in cells: lines must be counted
        return None
    lines = np.arange(len(table)) + skip + 2
    notes = _decimal(pd.DataFrame(), sep, source)[1]
    return LongTable(table.to_pandas(self_destruct=True), lines, source, notes, axes, decimal)
