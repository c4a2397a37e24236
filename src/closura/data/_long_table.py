"""A long table, checked: every message says what is wrong, where, and what to do.

    system, time, <one column per observed quantity> [, sigma  or  sigma_<quantity>]
    system, time, quantity, value [, sigma]

Fields have other coordinates: `axes` names them, e.g. ("x", "y") or ("time", "x"), each a column.
`sigma` is the noise's standard deviation for every quantity that has no `sigma_<quantity>` of its own. With
several quantities an empty cell means "not observed". A column with no number in it is a comment.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np
import pandas as pd

Names: TypeAlias = tuple[str, ...]
STACKED = ("quantity", "value")
_NUMBER = r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity))"
# Meant as a number: '1,5', '1,234.5', '0.5mm', '5 mm', '< 0.1'; but not a date or a part number.
ALMOST_NUMBER = r"[<>~]?\s*[+-]?\d+(?:[.,]\d{3})*(?:[.,]\d+(?:[eE][+-]?\d+)?\s?|\s)[^\d\s.,:/-]{0,8}"
DECIMAL_COMMA = r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?"
THOUSANDS = r"[+-]?\d{1,3}(?:(?:\.\d{3})+,\d+|(?:,\d{3})+\.\d+|(?:,\d{3}){2,}|(?:\.\d{3}){2,})"
SLASHED = r"\d{1,2}/\d{1,2}/\d{2,4}"
DECIMAL_POINT = r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?"
_ABSENT = ("", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null", "none", "nat")
_DAY_FIRST = r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(?=\D|$)"
_CLOCK = r"[ T]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_DATE = rf"\d{{4}}([-/])\d{{1,2}}\1\d{{1,2}}(?:{_CLOCK}(?P<zone> ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?)?"
_UNITS = {1: ("s", "sec", "second"), 60: ("min", "minute"), 3600: ("h", "hr", "hour"), 86400: ("d", "day")}


class DataError(ValueError):
    """The table cannot be used as it is; the message says what is wrong, where, and what to do."""


def as_text(column: pd.Series) -> pd.Series:
    return column.astype("str").where(column.notna(), "").str.strip()


def as_numbers(column: pd.Series, decimal: str = ".") -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a column, NaN where there is none, and where it holds something else instead."""
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
    text = as_text(column).str.replace(decimal, ".", regex=False)
    good = text.str.fullmatch(_NUMBER).to_numpy(bool)
    number = text.where(good, "nan").to_numpy(object).astype(np.float64)  # exact, unlike pd.to_numeric
    return number, ~good & ~text.str.lower().isin(_ABSENT).to_numpy()


def as_dates(column: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """The dates of a column, in UTC where they name a zone, missing where there is none; and where a zone is named."""
    column = column.infer_objects()
    if column.dtype.kind == "M":
        when = pd.to_datetime(column, utc=True)
        return when, np.full(len(column), getattr(column.dtype, "tz", None) is not None)
    text = as_text(column).str.replace(_DAY_FIRST, r"\3-\2-\1", regex=True)
    parts = text.str.extract(rf"^(?:{_DATE})$")
    text = text.where(parts[0].notna(), "").str.replace("/", "-", regex=False)
    text = text.str.replace(r"-(\d)(?=\D|$)", r"-0\1", regex=True).str.replace(r"[ T](\d):", r" 0\1:", regex=True)
    text = text.str.replace(",", ".", regex=False).str.replace(r" ?UTC$", "Z", regex=True)
    return pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True), parts["zone"].notna().to_numpy()


def seconds_in(unit: str) -> int:
    for seconds, names in _UNITS.items():
        if unit.strip().lower() in (*names, *(f"{long}s" for long in names if len(long) > 1)):
            return seconds
    raise DataError(f"time_unit={unit!r} is not a unit closura counts in; choose s, min, h or d")


def listed(places: Sequence[str], total: int | None = None) -> str:
    """The first three, and how many more there are."""
    total = len(places) if total is None else total
    return ", ".join(places[:3]) + (f" and {total - 3} more ({total} in all)" if total > 3 else "")


def fix_header(axes: Names) -> str:
    return f"The first line must name the columns: system, {', '.join(axes)}, and one per measured quantity"


def did_you_mean(name: str, names: Sequence[str]) -> str:
    near = [other for other in names if get_close_matches(other.lower(), [name.lower()])]
    return f" Did you mean '{name}' by '{near[0]}'?" if near else ""


class Begins(NamedTuple):
    """The first date of each system, and whether dates have a time zone."""

    first: dict[Hashable, pd.Timestamp]
    zoned: bool


@dataclass
class LongTable:
    """A table being checked; messages call its rows by `word` and `lines`, and count in `source`."""

    frame: pd.DataFrame
    lines: np.ndarray
    source: str = "the table"
    notes: list[str] = field(default_factory=list)
    axes: Names = ("time",)
    decimal: str = "."
    word: str = "line"
    time_unit: str | None = None
    begins: Begins | None = None  # where another table began to count; that of this one, once it is checked

    def checked(self, allow_duplicates: bool) -> tuple[Names, Names, pd.DataFrame]:
        """Systems in order of first appearance, quantities, and a frame with one row an observation: row, system and quantity
        by number, a column an axis, value, sigma."""
        self.tidy()
        system, names = self.named("system")
        self.refuse(self.frame["system"] == "", "the system's name is missing", "Write it on every line")
        places = {axis: self.coordinate(axis) for axis in self.axes}
        quantities, flat = self.stacked() if set(STACKED) <= set(self.frame) else self.side_by_side()
        row = flat["row"].to_numpy()
        flat = flat.assign(system=system[row], **{axis: at[row] for axis, at in places.items()})
        if not allow_duplicates:
            self.refuse_duplicates(flat)
        late = flat[flat.groupby(["system", "quantity"])[self.axes[0]].diff() < 0]
        if len(late) and self.axes == ("time",):
            self.notes.append(f"times sorted in {late['system'].nunique()} of {len(names)} systems")
        return names, quantities, flat

    def tidy(self) -> None:
        """Known names in lower case, columns without a name and empty rows left out."""
        levels = [name for name in self.frame.index.names if name in ("system", *self.axes)]
        frame = self.frame.reset_index([name for name in levels if name not in self.frame])
        names = [str(name).strip() for name in frame.columns]
        pair = STACKED if set(STACKED) <= {name.lower() for name in names} else ()
        known = "|".join(f"{re.escape(name)}$" for name in ("system", *self.axes, "sigma", *pair))
        names = [re.sub(rf"(?i)^({known}|sigma_)", lambda m: m[0].lower(), n) for n in names]
        named = [name != "" and not name.startswith("Unnamed: ") for name in names]
        self.notes += [f"column {at} has no name: ignored" for at, ok in enumerate(named, 1) if not ok]
        frame = frame.set_axis(names, axis=1).loc[:, named].reset_index(drop=True)
        for name in [name for name in ("system", *self.axes) if name not in frame]:
            known = f"the columns are: {', '.join(names) or 'none'}.{did_you_mean(name, names)}"
            alone = " Separate them with commas (pandas: sep=';')." if len(names) == 1 else ""
            raise DataError(f"{self.source}: there is no column '{name}'; {known}{alone} {fix_header(self.axes)}")
        for name in frame.columns[frame.columns.duplicated()]:
            self.stop(f"two columns are called '{name}'", "Rename or remove one")
        code, unique = pd.factorize(frame["system"], use_na_sentinel=False)
        nameless = frame[(as_text(pd.Series(unique)) == "").to_numpy()[code]]
        blank = nameless.index[(nameless.apply(as_text) == "").all(axis=1)]
        if len(blank) == len(frame):
            self.stop("the table is empty, it has no data", "Add a line per observation")
        self.frame = frame.drop(index=blank).reset_index(drop=True) if len(blank) else frame
        self.lines = np.delete(self.lines, blank)

    def named(self, column: str) -> tuple[np.ndarray, Names]:
        """Which name each row has, and the names: ' A' and 'A', 3 and 3.0 are the same."""
        raw, unique = pd.factorize(self.frame[column], use_na_sentinel=False)
        text = as_text(pd.Series(unique)).str.replace(r"^([+-]?\d+)\.0*$", r"\1", regex=True)
        code, names = pd.factorize(text.to_numpy(object))
        self.frame[column] = names[code[raw]]
        return code[raw], tuple(names)

    def coordinate(self, axis: str) -> np.ndarray:
        if axis == "time" and self.time_unit is not None:
            return self.elapsed(self.time_unit)
        at, _ = as_numbers(self.frame[axis], self.decimal)
        unit = "say in seconds" if axis == "time" else "say in metres"
        fix = f"Write a number like 1.5, {unit}{self.hint(axis, ~np.isfinite(at))}"
        self.refuse(~np.isfinite(at), f"the {axis} is not a number", fix)
        return at

    def elapsed(self, unit: str) -> np.ndarray:
        """Dates, counted in this unit from the earliest of each system; durations, as they are."""
        column, one = self.frame["time"].infer_objects(), seconds_in(unit)
        if column.dtype.kind == "m":
            self.refuse(column.isna(), "the time is missing", "Write it on every line")
            self.notes.append(f"times are durations: counted in {unit}")
            return (column.dt.total_seconds() / one).to_numpy(np.float64)
        when, zoned = as_dates(column)
        bad, number = when.isna().to_numpy(), np.zeros(len(column), dtype=bool)
        number[bad] = ~np.isnan(as_numbers(column[bad], self.decimal)[0])
        what = f"the time is a number, and time_unit='{unit}' is for dates"
        self.refuse(number, what, "Drop time_unit (--time-unit) if times are numbers, or write dates on every line")
        fix = "Write it as year-month-day hour:minute, like 2024-01-03 10:00 (03/01/2024 may be March)"
        self.refuse(bad, "the time is not a date", fix)
        if zoned.any():
            fix = "Write 2024-01-03 10:00+01:00 on every line, or the zone on none"
            self.refuse(~zoned, "the date has no time zone, but others have one", fix)
        first = when.groupby(self.frame["system"].to_numpy()).min().to_dict()
        if self.begins is None:
            self.begins = Begins(first, bool(zoned.any()))
            self.notes.append(f"times are dates: counted in {unit} from the first of each system")
        if zoned.any() != self.begins.zoned:
            here, there = ("have a", "have none") if zoned.any() else ("have no", "have one")
            fix = "Write the zone in both tables, or in neither"
            self.refuse(~bad, f"dates {here} time zone, and those of the observations {there}", fix)
        since = when - self.frame["system"].map(first | self.begins.first)
        return (since.dt.total_seconds() / one).to_numpy(np.float64)

    def hint(self, column: str, bad: np.ndarray) -> str:
        """What else could be meant by cells that are no numbers."""
        cells = self.frame[column][bad][:3].infer_objects()
        if column == "time" and (cells.dtype.kind in "mM" or as_dates(cells)[0].notna().any()):
            return (
                ". Dates are counted from the first of each system with time_unit='h' (or s, min, d) in cl.read_table, "
                "--time-unit h on the command line"
            )
        if column == "time" and as_text(cells).str.match(SLASHED).any():
            return (
                ". Is it a date? Day and month cannot be told apart in 03/04/2024: write 2024-04-03 (or 2024-03-04), and "
                "say in which unit to count with time_unit='h', --time-unit h on the command line"
            )
        if as_text(cells).str.fullmatch(THOUSANDS).any():
            return ". Leave out what separates thousands: 1234.5, not 1,234.5 or 1.234,5"
        if as_text(cells).str.fullmatch(DECIMAL_COMMA).any():
            return ". Decimal commas are read if semicolons or tabs separate the columns, and none has a decimal point"
        return ""

    def others(self, *taken: str) -> Iterable[str]:
        """Columns that are neither places nor noise."""
        names = "|".join(map(re.escape, ("system", *self.axes, *taken)))
        return self.frame.columns[~self.frame.columns.str.fullmatch(f"{names}|sigma|sigma_.*")]

    def measured(self, name: str) -> np.ndarray | None:
        """The numbers of a column, NaN where not observed; none if it is a comment."""
        number, text = as_numbers(self.frame[name], self.decimal)
        meant = as_text(self.frame[name][text]).str.fullmatch(ALMOST_NUMBER).mean() > 0.5
        if np.isnan(number).all() and not meant:
            if name.lower() == "quantity" and text.any():
                what = f"column '{name}' holds names, but there is no column 'value'"
                self.stop(what, f"Rename the column of values, or '{name}' if it is a comment")
            found = f"holds text, {self.place(int(text.argmax()), name)}" if text.any() else "is empty"
            self.notes.append(f"column '{name}' {found}: ignored")
            return None
        bad = text | np.isinf(number)
        fix = "Write a number (1.5: no unit, no decimal comma), or remove the column if it is a comment"
        self.refuse(bad, f"column '{name}' is not a finite number", fix + self.hint(name, bad), name)
        return number

    def side_by_side(self) -> tuple[Names, pd.DataFrame]:
        """One column a quantity."""
        found = {name: self.measured(name) for name in self.others()}
        columns = {name: number for name, number in found.items() if number is not None}
        if not columns:
            self.stop(f"no column of measured values; {self.known()}", fix_header(self.axes))
        value, what = np.stack(list(columns.values()), axis=1), f"no value of {' or '.join(columns)}"
        self.refuse(np.isnan(value).all(axis=1), what, "Fill it in, or delete the line")
        for name in self.frame.columns[self.frame.columns.str.startswith("sigma_")]:
            if name[6:] not in self.frame:
                self.stop(f"'{name}' is noise, but of no column '{name[6:]}'", "Rename it")
        row, quantity = np.nonzero(~np.isnan(value))
        sigma = np.full(value.shape, np.nan)
        for at, name in enumerate(columns):
            column = f"sigma_{name}" if f"sigma_{name}" in self.frame else "sigma"
            sigma[:, at] = self.noise(column, name, ~np.isnan(value[:, at]))
        cells = {"value": value[row, quantity], "sigma": sigma[row, quantity]}
        return tuple(columns), pd.DataFrame({"row": row, "quantity": quantity, **cells})

    def stacked(self) -> tuple[Names, pd.DataFrame]:
        """One row a value, named in a column of its own."""
        form = "columns 'quantity' and 'value' give one value a row"
        for name in self.frame.columns[self.frame.columns.str.startswith("sigma_")]:
            self.stop(f"{form}, its noise is 'sigma', and there is '{name}' too", "Rename it")
        for name in self.others(*STACKED):
            if self.measured(name) is not None:
                what = f"{form}, but '{name}' is a column of values too"
                self.stop(what, "Add it as rows with their own 'quantity', or remove it")
        code, names = self.named("quantity")
        self.refuse(self.frame["quantity"] == "", "the quantity's name is missing", "Write it on every line")
        if not np.isnan(as_numbers(pd.Series(names))[0]).any():
            what = f"{form}, but 'quantity' holds numbers"
            self.stop(what, "Write the name of what was measured, or rename the column")
        for name in [name for name in names if re.fullmatch("system|sigma|sigma_.*", name) or name in self.axes]:
            self.stop(f"'{name}' cannot be the name of a quantity", "Rename it")
        value = self.measured("value")
        if value is None:
            self.stop(f"no measured values; {self.known()}", "Write numbers into 'value'")
        self.refuse(np.isnan(value), "there is no value", "Fill it in, or delete the line")
        cells = {"value": value, "sigma": self.noise("sigma", "the value", np.ones(len(value), dtype=bool))}
        return names, pd.DataFrame({"row": np.arange(len(value)), "quantity": code, **cells})

    def noise(self, column: str, of: str, where: np.ndarray) -> np.ndarray:
        if column not in self.frame:
            return np.full(len(where), np.nan)
        sigma, _ = as_numbers(self.frame[column], self.decimal)
        fix = f"Give the standard deviation of {of}'s noise on every line, or remove the column"
        bad = where & ~((sigma > 0) & (sigma < np.inf))
        self.refuse(bad, f"column '{column}' is not a positive number", fix, column)
        return sigma

    def refuse_duplicates(self, flat: pd.DataFrame) -> None:
        keys = ["system", *self.axes, "quantity", "value"]
        same = flat[flat.duplicated(keys, keep=False)]
        first = same.groupby(keys)["row"].transform("min")
        repeats = first[same["row"] > first].groupby(same["row"]).max()
        if len(repeats):
            some = [
                f"{self.place(b)} repeats {self.word} {self.lines[a]}"
                for b, a in zip(repeats.index[:3].tolist(), repeats)
            ]
            fix = "Drop one, or allow it (allow_duplicates=True, --allow-duplicates) if it was truly measured twice"
            self.stop(f"the same observation stands twice: {listed(some, len(repeats))}", fix)

    def refuse(self, bad: np.ndarray | pd.Series, what: str, remedy: str, column: str = "") -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            some = listed([self.place(row, column) for row in rows[:3].tolist()], rows.size)
            self.stop(f"{what}: {some}", remedy)

    def stop(self, what: str, remedy: str) -> NoReturn:
        raise DataError(f"{self.source}: {what}. {remedy}")

    def place(self, row: int, column: str = "") -> str:
        where = ", ".join(f"{name} {str(self.frame[name].iloc[row]) or '?'}" for name in ("system", *self.axes))
        cell = f" has '{self.frame[column].iloc[row]}'" if column else ""
        return f"{self.word} {self.lines[row]} ({where}){cell}"

    def known(self) -> str:
        return "; ".join([f"the columns are: {', '.join(self.frame.columns)}", *self.notes])


def table_of_rows(frame: pd.DataFrame, source: str, axes: Names, notes: list[str]) -> LongTable:
    """A table that has no lines of text: messages count its rows from 1."""
    return LongTable(frame, np.arange(len(frame)) + 1, source, notes, axes, word="row")
