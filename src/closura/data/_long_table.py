"""A long table, checked: every message says what is wrong, where, and what to do.

    system, time, <one column per observed quantity> [, sigma  or  sigma_<quantity>]
    system, time, quantity, value [, sigma]

Fields have other coordinates: `axes` names them, e.g. ("x", "y") or ("time", "x"), each a column.
`sigma` is the noise's standard deviation for every quantity that has no `sigma_<quantity>` of its own. With
several quantities an empty cell means "not observed". A column with no number in it is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from ._cells import (
    ALMOST_NUMBER,
    DECIMAL_COMMA,
    SLASHED,
    THOUSANDS,
    DataError,
    as_dates,
    as_numbers,
    as_text,
    did_you_mean,
    listed,
    seconds_in,
)

Names: TypeAlias = tuple[str, ...]
STACKED = ("quantity", "value")


class Checked(NamedTuple):
    systems: Names  # in order of first appearance
    quantities: Names
    flat: pd.DataFrame  # one row an observation: row, system and quantity by number, a column an axis, value, sigma


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

    def checked(self, allow_duplicates: bool) -> Checked:
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
        return Checked(names, quantities, flat)

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
            raise DataError(f"{self.source}: two columns are called '{name}'. Rename or remove one")
        code, unique = pd.factorize(frame["system"], use_na_sentinel=False)
        nameless = frame[(as_text(pd.Series(unique)) == "").to_numpy()[code]]
        blank = nameless.index[(nameless.apply(as_text) == "").all(axis=1)]
        if len(blank) == len(frame):
            raise DataError(f"{self.source}: the table is empty, it has no data. Add a line per observation")
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
        self.refuse(
            bad,
            "the time is not a date",
            "Write it as year-month-day hour:minute, like 2024-01-03 10:00 (03/01/2024 may be March)",
        )
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
                raise DataError(f"{self.source}: {what}. Rename the column of values, or '{name}' if it is a comment")
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
            raise DataError(f"{self.source}: no column of measured values; {self.known()}. {fix_header(self.axes)}")
        value, what = np.stack(list(columns.values()), axis=1), f"no value of {' or '.join(columns)}"
        self.refuse(np.isnan(value).all(axis=1), what, "Fill it in, or delete the line")
        for name in self.frame.columns[self.frame.columns.str.startswith("sigma_")]:
            if name[6:] not in self.frame:
                raise DataError(f"{self.source}: '{name}' is noise, but of no column '{name[6:]}'. Rename it")
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
            raise DataError(f"{self.source}: {form}, its noise is 'sigma', and there is '{name}' too. Rename it")
        for name in self.others(*STACKED):
            if self.measured(name) is not None:
                what = f"{form}, but '{name}' is a column of values too"
                raise DataError(f"{self.source}: {what}. Add it as rows with their own 'quantity', or remove it")
        code, names = self.named("quantity")
        self.refuse(self.frame["quantity"] == "", "the quantity's name is missing", "Write it on every line")
        if not np.isnan(as_numbers(pd.Series(names))[0]).any():
            what = f"{form}, but 'quantity' holds numbers"
            raise DataError(f"{self.source}: {what}. Write the name of what was measured, or rename the column")
        for name in [name for name in names if re.fullmatch("system|sigma|sigma_.*", name) or name in self.axes]:
            raise DataError(f"{self.source}: '{name}' cannot be the name of a quantity. Rename it")
        value = self.measured("value")
        if value is None:
            raise DataError(f"{self.source}: no measured values; {self.known()}. Write numbers into 'value'")
        self.refuse(np.isnan(value), "there is no value", "Fill it in, or delete the line")
        cells = {"value": value, "sigma": self.noise("sigma", "the value", np.ones(len(value), dtype=bool))}
        return names, pd.DataFrame({"row": np.arange(len(value)), "quantity": code, **cells})

    def noise(self, column: str, of: str, where: np.ndarray) -> np.ndarray:
        if column not in self.frame:
            return np.full(len(where), np.nan)
        sigma, _ = as_numbers(self.frame[column], self.decimal)
        fix = f"Give the standard deviation of {of}'s noise on every line, or remove the column"
        self.refuse(
            where & ~((sigma > 0) & (sigma < np.inf)), f"column '{column}' is not a positive number", fix, column
        )
        return sigma

    def refuse_duplicates(self, flat: pd.DataFrame) -> None:
        keys = [flat[name].to_numpy() for name in ("system", *self.axes, "quantity", "value")]
        order = np.lexsort(keys[::-1])  # stable: of equal ones the first of the table comes first
        same = np.concatenate([[False], np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)])
        start = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
        row = flat["row"].to_numpy()[order]
        repeats = dict(sorted(zip(row[same].tolist(), row[start[same]].tolist())))
        if repeats:
            some = [f"{self.place(b)} repeats {self.word} {self.lines[a]}" for b, a in list(repeats.items())[:3]]
            what = f"{self.source}: the same observation stands twice: {listed(some, len(repeats))}"
            raise DataError(
                f"{what}. Drop one, or allow it (allow_duplicates=True, --allow-duplicates) if it was truly measured twice"
            )

    def refuse(self, bad: np.ndarray | pd.Series, what: str, remedy: str, column: str = "") -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            some = listed([self.place(row, column) for row in rows[:3].tolist()], rows.size)
            raise DataError(f"{self.source}: {what}: {some}. {remedy}")

    def place(self, row: int, column: str = "") -> str:
        where = ", ".join(f"{name} {str(self.frame[name].iloc[row]) or '?'}" for name in ("system", *self.axes))
        cell = f" has '{self.frame[column].iloc[row]}'" if column else ""
        return f"{self.word} {self.lines[row]} ({where}){cell}"

    def known(self) -> str:
        return "; ".join([f"the columns are: {', '.join(self.frame.columns)}", *self.notes])


def fix_header(axes: Names) -> str:
    return f"The first line must name the columns: system, {', '.join(axes)}, and one per measured quantity"
