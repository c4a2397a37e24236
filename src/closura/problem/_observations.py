"""Observations of many systems: a long table, read, checked, and held as padded arrays.

    system, time, <one column per observed quantity> [, sigma  or  sigma_<quantity>]

`sigma` is the noise's standard deviation for every quantity that has no `sigma_<quantity>` of its own. With
several quantities an empty cell means "not observed". A column with no number in it is a comment.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

__all__ = ["DataError", "Observations", "read_table"]

Names: TypeAlias = tuple[str, ...]
Noise: TypeAlias = float | Mapping[str, float] | None

_NUMBER = r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity))"
# Meant as a number: '1,5', '1,234.5', '0.5mm', '5 mm', '< 0.1'; but not a date or a part number.
_ALMOST_NUMBER = r"[<>~]?\s*[+-]?\d+(?:,\d{3})*(?:[.,]\d+(?:[eE][+-]?\d+)?\s?|\s)[^\d\s.,:/-]{0,8}"
_DECIMAL_COMMA = r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)\s*$"
_ABSENT = ("", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null", "none")
_FIX_CELL = "Correct it, or delete the line"


class DataError(ValueError):
    """The table cannot be used as it is; the message says what is wrong, where, and what to do."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Ragged data of K systems, padded: row k holds the observations of system k, sorted by time.

    Arrays are (system, observation). Equal times are ordered by quantity, then as in the table.
    """

    systems: Names  # in order of first appearance
    quantities: Names  # names of the value columns
    time: np.ndarray  # float64, padding repeats the last valid time
    quantity: np.ndarray  # int32, index into quantities, padding 0
    value: np.ndarray  # float64, padding 0
    sigma: np.ndarray  # float64, NaN where the table names no noise, padding 1
    mask: np.ndarray  # bool, False on padding
    notes: Names = ()  # what was tidied up on reading

    @property
    def counts(self) -> np.ndarray:
        """Observations per system."""
        return self.mask.sum(axis=1)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        allow_duplicates: bool = False,
        source: str = "the table",
        line_offset: int = 2,
    ) -> Observations:
        """Check a long table; messages call row i line i + line_offset, its line when saved as CSV."""
        return _Table(frame, np.arange(len(frame)) + line_offset, source, []).checked(allow_duplicates)

    def to_frame(self) -> pd.DataFrame:
        """The long table back; `from_frame` of it gives the same arrays."""
        flat = self._flat()
        flat["replicate"] = flat.groupby(["system", "time", "quantity"]).cumcount()
        row = flat.groupby(["system", "time", "replicate"]).ngroup().to_numpy()
        first = flat.iloc[np.unique(row, return_index=True)[1]]
        cells = np.full((2, len(self.quantities), len(first)), np.nan)
        cells[:, flat["quantity"], row] = flat[["value", "sigma"]].to_numpy().T
        frame = pd.DataFrame({"system": np.array(self.systems)[first["system"]], "time": first["time"].array})
        frame[list(self.quantities)] = cells[0].T
        for name, sigma in zip(self.quantities, cells[1]):
            if not np.isnan(sigma).all():
                frame["sigma" if len(self.quantities) == 1 else f"sigma_{name}"] = sigma
        return frame

    def matched(self, quantities: Names, span: tuple[float, float], sigma: Noise) -> Observations:
        """For a problem: its quantities in its order, times in its span, noise never missing.

        `sigma` is the problem's own noise, for all quantities or by name, used where the table gives none.
        """
        for name in quantities:
            if name not in self.quantities:
                raise DataError(self._lacks(name))
        order = np.array([quantities.index(q) if q in quantities else -1 for q in self.quantities])
        flat = self._flat()
        flat["quantity"] = order[flat["quantity"]]
        flat = flat[flat["quantity"] >= 0]
        silent = np.setdiff1d(np.arange(len(self.systems)), flat["system"])
        if silent.size:
            some = _listed([self.systems[k] for k in silent[:3]], silent.size)
            raise DataError(
                f"{' or '.join(quantities)} was never observed in system {some}. Remove its lines"
            )
        flat = flat.assign(time=self._inside(flat, span), sigma=_fill_sigma(flat, quantities, sigma))
        extra = [
            f"'{name}' is not observed by the problem" for name in self.quantities if name not in quantities
        ]
        return _pack(
            self.systems, quantities, flat, self.notes + tuple(f"column {e}: ignored" for e in extra)
        )

    def _lacks(self, name: str) -> str:
        why = "".join(f" ({note})" for note in self.notes if note.startswith(f"column '{name}' "))
        known = ", ".join(self.quantities) + "." + _did_you_mean(name, self.quantities)
        what = (
            f"the problem observes '{name}', but the table has no such column of values{why}; it has {known}"
        )
        return f"{what} Rename the column in the table, or change what the problem observes"

    def _inside(self, flat: pd.DataFrame, span: tuple[float, float]) -> np.ndarray:
        time, slack = flat["time"].to_numpy(), 1e-6 * (span[1] - span[0])
        bad = np.flatnonzero((time < span[0] - slack) | (time > span[1] + slack))
        if bad.size:
            some = [f"system {self.systems[flat['system'].iloc[i]]} at time {time[i]:g}" for i in bad[:3]]
            what = (
                f"observed outside the problem's span {span[0]:g} to {span[1]:g}: {_listed(some, bad.size)}"
            )
            raise DataError(f"{what}. Check the unit of time, remove these lines, or widen the span")
        return np.clip(time, *span)

    def _flat(self) -> pd.DataFrame:
        system, at = np.nonzero(self.mask)
        arrays = {name: getattr(self, name)[system, at] for name in ("time", "quantity", "value", "sigma")}
        return pd.DataFrame({"system": system, **arrays})


def read_table(
    path: str | os.PathLike[str] | pd.DataFrame, *, allow_duplicates: bool = False
) -> Observations:
    """Observations from a CSV file (comma, semicolon or tab; UTF-8) or a DataFrame.

    `allow_duplicates` keeps lines that repeat system, time and value exactly; otherwise they are an error.
    """
    if isinstance(path, pd.DataFrame):
        return Observations.from_frame(path, allow_duplicates=allow_duplicates)
    return _read_csv(Path(path).expanduser()).checked(allow_duplicates)


@dataclass
class _Table:
    """A table being checked: cells, the line of each row in the file, its name in messages, notes so far."""

    frame: pd.DataFrame
    lines: np.ndarray
    source: str
    notes: list[str]

    def checked(self, allow_duplicates: bool) -> Observations:
        self.tidy_columns()
        self.drop_blank_lines()
        system, names = self.systems()
        time, text = _numbers(self.frame["time"])
        self.refuse(text, "the time is not a number", "Write numbers, e.g. seconds since the start")
        self.refuse(~np.isfinite(time), "the time is missing or infinite", _FIX_CELL)
        quantities, value = self.values()
        sigma = self.sigmas(quantities, ~np.isnan(value))
        row, quantity = np.nonzero(~np.isnan(value))
        flat = pd.DataFrame({"system": system[row], "time": time[row], "quantity": quantity})
        flat = flat.assign(value=value[row, quantity], sigma=sigma[row, quantity])
        if not allow_duplicates:
            self.refuse_duplicates(flat, row)
        order = np.argsort(system, kind="stable")
        back = (np.diff(time[order]) < 0) & (np.diff(system[order]) == 0)
        if back.any():
            count = len(np.unique(system[order][1:][back]))
            self.notes.append(f"times were not in order in {count} of {len(names)} systems: sorted")
        return _pack(names, quantities, flat, tuple(self.notes))

    def tidy_columns(self) -> None:
        names = [str(name).strip() for name in self.frame.columns]
        names = [re.sub(r"(?i)^(system$|time$|sigma$|sigma_)", lambda m: m[0].lower(), n) for n in names]
        named = [name != "" and not name.startswith("Unnamed: ") for name in names]
        self.notes += [f"column {at} has no name: ignored" for at, ok in enumerate(named, 1) if not ok]
        self.frame = self.frame.set_axis(names, axis=1).loc[:, named].reset_index(drop=True)
        for name in ("system", "time"):
            if name not in names:
                what = f"{self.source}: there is no column '{name}'; the columns are: {', '.join(names) or 'none'}."
                hint = " Separate the columns with commas (in pandas: sep=';')." if len(names) == 1 else ""
                hint += (
                    f"{_did_you_mean(name, names)} The first line must name the columns: system, time, ..."
                )
                raise DataError(what + hint)
        for name in self.frame.columns[self.frame.columns.duplicated()]:
            raise DataError(f"{self.source}: two columns are called '{name}'. Rename or remove one")

    def drop_blank_lines(self) -> None:
        nameless = self.frame[_text(self.frame["system"]) == ""]
        blank = nameless.index[(nameless.apply(_text) == "").all(axis=1)]
        if len(blank) == len(self.frame):
            raise DataError(f"{self.source}: the table is empty: column names, but no data. Add the data")
        self.notes += [f"empty lines ignored: {len(blank)}"] if len(blank) else []
        self.frame = self.frame.drop(index=blank).reset_index(drop=True)
        self.lines = np.delete(self.lines, blank)

    def systems(self) -> tuple[np.ndarray, Names]:
        raw, unique = pd.factorize(self.frame["system"])
        text = _text(pd.Series(unique)).str.replace(r"^([+-]?\d+)\.0*$", r"\1", regex=True)
        code, names = pd.factorize(text)  # ' A' and 'A', 3 and 3.0 are the same system
        system = np.where(raw < 0, -1, code[raw])
        missing = (system < 0) | (np.asarray(names) == "")[system]
        self.refuse(missing, "the system's name is missing", "Write it on every line")
        self.frame["system"] = np.asarray(names)[system]
        return system, tuple(names)

    def values(self) -> tuple[Names, np.ndarray]:
        """Names and (row, quantity) values, NaN where not observed."""
        columns: dict[str, np.ndarray] = {}
        for name in self.frame.columns:
            if name in ("system", "time", "sigma") or name.startswith("sigma_"):
                continue
            number, text = _numbers(self.frame[name])
            meant = _text(self.frame[name][text]).str.fullmatch(_ALMOST_NUMBER).mean() > 0.5
            if np.isnan(number).all() and not meant:
                self.notes.append(f"column '{name}' {'holds text' if text.any() else 'is empty'}: ignored")
                continue
            fix = "Write a number like 1.5 (no unit, no decimal comma); if it is a comment, remove the column"
            self.refuse(text, f"column '{name}' holds text where a number should be", fix, name)
            self.refuse(np.isinf(number), f"column '{name}' is infinite", _FIX_CELL)
            columns[name] = number
        if not columns:
            known = "; ".join([f"the columns are: {', '.join(self.frame.columns)}", *self.notes])
            raise DataError(f"{self.source}: no column of measured values ({known}). Add one per quantity")
        value = np.stack(list(columns.values()), axis=1)
        self.refuse(np.isnan(value).all(axis=1), f"no value of {' or '.join(columns)}", _FIX_CELL)
        return tuple(columns), value

    def sigmas(self, quantities: Names, observed: np.ndarray) -> np.ndarray:
        for column in self.frame.columns:
            if column.startswith("sigma_") and column[6:] not in self.frame:
                known = ", ".join(quantities)
                raise DataError(
                    f"{self.source}: '{column}' is noise, but of no column among {known}. Rename it"
                )
        sigma = np.full(observed.shape, np.nan)
        for at, name in enumerate(quantities):
            column = f"sigma_{name}" if f"sigma_{name}" in self.frame else "sigma"
            if column in self.frame:
                sigma[:, at] = _numbers(self.frame[column])[0]
                bad = observed[:, at] & ~((sigma[:, at] > 0) & np.isfinite(sigma[:, at]))
                fix = f"Give the standard deviation of {name}'s noise on every line, or remove the column"
                self.refuse(bad, f"column '{column}' must hold positive numbers", fix, column)
        return sigma

    def refuse_duplicates(self, flat: pd.DataFrame, row: np.ndarray) -> None:
        keys = ["system", "time", "quantity", "value"]
        again = flat.duplicated(keys).to_numpy()
        if again.any():
            first = flat.assign(row=row).groupby(keys)["row"].transform("min").to_numpy()
            pairs = np.unique(np.stack([row[again], first[again]], axis=1), axis=0)
            some = [f"{self.place(b)} repeats line {self.lines[a]}" for b, a in pairs[:3]]
            what = f"{self.source}: the same observation stands twice: {_listed(some, len(pairs))}"
            raise DataError(f"{what}. Drop one, or pass allow_duplicates=True if it was truly measured twice")

    def refuse(self, bad: np.ndarray, what: str, remedy: str, column: str | None = None) -> None:
        """Raise if any row is bad, naming the first three and, given a column, what stands there."""
        rows = np.flatnonzero(bad)
        if rows.size:
            some = [self.place(row, column) for row in rows[:3]]
            raise DataError(f"{self.source}: {what}: {_listed(some, rows.size)}. {remedy}")

    def place(self, row: int, column: str | None = None) -> str:
        system, time = (str(self.frame[name].iloc[row]).strip() for name in ("system", "time"))
        found = "" if column is None else f" has '{self.frame[column].iloc[row]}'"
        return f"line {self.lines[row]} (system {system}, time {time}){found}"


def _read_csv(path: Path) -> _Table:
    text = _read_text(path)
    skip = text.count("\n", 0, len(text) - len(text.lstrip(" \t\n,;")))
    sep = max(",;\t", key=text.split("\n", skip + 1)[skip].count)
    try:  # no header for pandas: the first line fixes the number of cells, so that a longer one is an error
        cells = pd.read_csv(
            io.StringIO(text),
            sep=sep,
            skiprows=skip,
            header=None,
            dtype=str,
            na_filter=False,
            skip_blank_lines=False,
        )
    except pd.errors.ParserError as error:
        what = f"{path}: not readable as CSV ({str(error).split('C error: ')[-1].strip()})"
        fix = (
            'Write 1.5, not 1,5; put text with commas in quotes; close quotes ("); remove commas at line ends'
        )
        raise DataError(f"{what}. {fix}") from None
    breaks = np.zeros(len(cells), dtype=int)
    if '"' in text:  # a quoted cell may run over several lines
        breaks = cells.apply(lambda column: column.str.count("\n")).sum(axis=1).to_numpy()
    lines = skip + 1 + np.arange(len(cells)) + np.cumsum(breaks) - breaks
    body = cells.iloc[1:].set_axis(cells.iloc[0].tolist(), axis=1)
    if sep != ";":
        return _Table(body, lines[1:], str(path), [])
    note = "columns are separated by semicolons: a decimal comma is read as a point (1,5 as 1.5)"
    return _Table(body.replace(regex=_DECIMAL_COMMA, value=r"\1.\2"), lines[1:], str(path), [note])


def _read_text(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror}; looked in {path.parent.resolve()})"
        raise DataError(f"{what}. Check the file's name and folder") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"{path}: line {line} is not UTF-8 text (a spreadsheet, perhaps?)"
        raise DataError(f"{what}. Save the file as 'CSV UTF-8' and read that") from None
    if "\x00" in text:
        raise DataError(f"{path}: not a text file. Save the table as 'CSV UTF-8' and read that")
    if not text.strip(" \t\n,;"):
        raise DataError(f"{path}: the file is empty. The first line must name the columns: system, time, ...")
    return text


def _fill_sigma(flat: pd.DataFrame, quantities: Names, sigma: Noise) -> np.ndarray:
    by_name = sigma if isinstance(sigma, Mapping) else dict.fromkeys(quantities, sigma)
    default = np.array([by_name.get(name) for name in quantities], dtype=np.float64)
    filled = np.where(flat["sigma"].isna(), default[flat["quantity"]], flat["sigma"])
    for at in flat["quantity"][~(filled > 0)].unique():
        fix = f"Add a column 'sigma' (or 'sigma_{quantities[at]}') with its standard deviation to the table"
        raise DataError(f"no noise is known for {quantities[at]}. {fix}, or give the problem sigma=0.1, say")
    return filled


def _pack(systems: Names, quantities: Names, flat: pd.DataFrame, notes: Names) -> Observations:
    flat = flat.iloc[np.lexsort((flat["quantity"], flat["time"], flat["system"]))]
    counts = np.bincount(flat["system"], minlength=len(systems))
    mask = np.arange(counts.max()) < counts[:, None]
    last = flat["time"].to_numpy()[np.cumsum(counts) - 1]
    arrays = {
        "time": np.repeat(last[:, None], counts.max(), axis=1),
        "quantity": np.zeros(mask.shape, np.int32),
    }
    arrays |= {"value": np.zeros(mask.shape), "sigma": np.ones(mask.shape)}
    for name, array in arrays.items():
        array[mask] = flat[name]
    return Observations(systems, quantities, **arrays, mask=mask, notes=notes)


def _numbers(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a column, NaN where there is none, and where it holds something else instead."""
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
    text = _text(column)
    good = text.str.fullmatch(_NUMBER).to_numpy(bool)
    number = np.full(len(text), np.nan)
    number[good] = text[good].to_numpy(object).astype(np.float64)  # exact, as float(); pd.to_numeric is not
    return number, ~good & ~text.str.lower().isin(_ABSENT).to_numpy()


def _text(column: pd.Series) -> pd.Series:
    return column.astype("str").where(column.notna(), "").str.strip()


def _listed(places: list[str], total: int) -> str:
    return ", ".join(places[:3]) + (f" and {total - 3} more ({total} in all)" if total > 3 else "")


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = {other.lower(): other for other in names}
    found = get_close_matches(name.lower(), near, n=1)
    return f" Did you mean '{near[found[0]]}'?" if found else ""
