"""Observations of many systems: a long table, read, checked, and held as padded arrays.

    system, time, <one column per observed quantity> [, sigma  or  sigma_<quantity>]

Fields have other coordinates: `axes` names them, e.g. ("x", "y") or ("time", "x"), each a column.
`sigma` is the noise's standard deviation for every quantity that has no `sigma_<quantity>` of its own. With
several quantities an empty cell means "not observed". A column with no number in it is a comment.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ._priors import Prior

__all__ = ["DataError", "Observations", "read_table"]

Names: TypeAlias = tuple[str, ...]
Noise: TypeAlias = float | Prior | Mapping[str, float | Prior] | None
_NUMBER = r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity))"
# Meant as a number: '1,5', '1,234.5', '0.5mm', '5 mm', '< 0.1'; but not a date or a part number.
_ALMOST_NUMBER = r"[<>~]?\s*[+-]?\d+(?:[.,]\d{3})*(?:[.,]\d+(?:[eE][+-]?\d+)?\s?|\s)[^\d\s.,:/-]{0,8}"
_ABSENT = ("", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null", "none")


class DataError(ValueError):
    """The table cannot be used as it is; the message says what is wrong, where, and what to do."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Ragged data of K systems, padded: row k holds the observations of system k, sorted by place (time, if that is all)."""

    systems: Names  # in order of first appearance
    quantities: Names  # names of the value columns
    place: np.ndarray  # float64 (system, observation, axis); padding repeats the last valid place
    quantity: np.ndarray  # int32 (system, observation), as all that follow; index into quantities, padding 0
    value: np.ndarray  # float64, padding 0
    sigma: np.ndarray  # float64, NaN where the table names no noise, padding 1
    mask: np.ndarray  # bool, False on padding
    notes: Names = ()  # what was tidied up on reading
    axes: Names = ("time",)  # what places are made of

    @property
    def time(self) -> np.ndarray:
        """When: (system, observation)."""
        return self.place[..., self.axes.index("time")]

    @property
    def counts(self) -> np.ndarray:
        """Observations per system."""
        return self.mask.sum(axis=1)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        axes: Sequence[str] = ("time",),
        allow_duplicates: bool = False,
        source: str = "the table",
        line_offset: int = 2,
    ) -> Observations:
        """Check a long table; messages call row i line i + line_offset, its line when saved as CSV."""
        lines = np.arange(len(frame)) + line_offset
        return _Table(frame, lines, source, [], tuple(axes)).checked(allow_duplicates)

    def to_frame(self) -> pd.DataFrame:
        """The long table back; `from_frame` of it gives the same arrays."""
        flat = self._flat()
        here = ["system", *self.axes]
        flat["replicate"] = flat.groupby([*here, "quantity"]).cumcount()
        row = flat.groupby([*here, "replicate"]).ngroup().to_numpy()
        first = flat.iloc[np.unique(row, return_index=True)[1]]
        cells = np.full((len(first), 2, len(self.quantities)), np.nan)
        cells[row, :, flat["quantity"]] = flat[["value", "sigma"]]
        places = {axis: first[axis].array for axis in self.axes}
        frame = pd.DataFrame({"system": np.array(self.systems)[first["system"]], **places})
        frame[list(self.quantities)] = cells[:, 0]
        frame[["sigma" if len(self.quantities) == 1 else f"sigma_{q}" for q in self.quantities]] = cells[:, 1]
        return frame.dropna(axis=1, how="all")

    def matched(self, quantities: Names, bounds: Mapping[str, tuple[float, float]], sigma: Noise) -> Observations:
        """For a problem: its quantities in its order, places within its bounds, `sigma` where the table has none."""
        if self.axes != tuple(bounds):
            wanted = ", ".join(map(repr, bounds))
            raise DataError(
                f"the table was read with the coordinates {', '.join(self.axes)}, the problem has {', '.join(bounds)}; read it "
                f"with cl.read_table(path, axes=[{wanted}]), or give its path to cl.fit"
            )
        for name in [name for name in quantities if name not in self.quantities]:
            why = "".join(f" ({note})" for note in self.notes if note.startswith(f"column '{name}' "))
            what = f"the problem observes '{name}', but the table has no such column of values{why}"
            known = f"it has: {', '.join(self.quantities)}.{_did_you_mean(name, self.quantities)}"
            raise DataError(f"{what}; {known} Rename a column, or change what the problem observes")
        order = np.array([quantities.index(q) if q in quantities else -1 for q in self.quantities])
        flat = self._flat().assign(quantity=order[self.quantity[self.mask]]).query("quantity >= 0")
        silent = np.setdiff1d(np.arange(len(self.systems)), flat["system"])
        if silent.size:
            some = _listed([self.systems[k] for k in silent[:3]], silent.size)
            raise DataError(f"system {some}: {' or '.join(quantities)} was never observed. Remove its lines")
        inside = {axis: self._inside(flat, axis, span) for axis, span in bounds.items()}
        flat = flat.assign(**inside, sigma=_filled(flat, quantities, sigma))
        extra = [f"column '{q}' is not in the problem" for q in self.quantities if q not in quantities]
        return _pack(self.systems, quantities, flat, (*self.notes, *(f"{e}: ignored" for e in extra)), self.axes)

    def _inside(self, flat: pd.DataFrame, axis: str, span: tuple[float, float]) -> np.ndarray:
        at, slack = flat[axis].to_numpy(), 1e-6 * (span[1] - span[0])
        bad = np.flatnonzero((at < span[0] - slack) | (at > span[1] + slack))
        if bad.size:
            some = [f"system {self.systems[flat['system'].iloc[i]]} at {axis} {at[i]}" for i in bad[:3]]
            extent = "span" if axis == "time" else f"extent in {axis},"
            what = f"observed outside the problem's {extent} {span[0]} to {span[1]}: {_listed(some, bad.size)}"
            raise DataError(f"{what}. Check the unit of {axis}, remove these lines, or widen the {extent.split()[0]}")
        return np.clip(at, *span)

    def _flat(self) -> pd.DataFrame:
        arrays = {name: getattr(self, name)[self.mask] for name in ("quantity", "value", "sigma")}
        places = dict(zip(self.axes, self.place[self.mask].T))
        return pd.DataFrame({"system": np.nonzero(self.mask)[0], **places, **arrays})


def read_table(
    path: str | Path | pd.DataFrame, *, axes: Sequence[str] = ("time",), allow_duplicates: bool = False
) -> Observations:
    """Observations from a CSV file (comma, semicolon or tab; UTF-8) or a DataFrame, in the format above."""
    if isinstance(path, pd.DataFrame):
        return Observations.from_frame(path, axes=axes, allow_duplicates=allow_duplicates)
    return _read_csv(Path(path).expanduser(), tuple(axes)).checked(allow_duplicates)


@dataclass
class _Table:
    """A table being checked: cells, the line of each row in the file, its name in messages, notes so far."""

    frame: pd.DataFrame
    lines: np.ndarray
    source: str
    notes: list[str]
    axes: Names = ("time",)
    decimal: str = "."

    def checked(self, allow_duplicates: bool) -> Observations:
        self.tidy()
        system, names = self.systems()
        places = {axis: self.coordinate(axis) for axis in self.axes}
        quantities, value = self.values()
        row, quantity = np.nonzero(~np.isnan(value))
        here = {axis: at[row] for axis, at in places.items()}
        flat = pd.DataFrame({"row": row, "system": system[row], **here, "quantity": quantity})
        flat = flat.assign(value=value[row, quantity], sigma=self.sigmas(quantities, value)[row, quantity])
        if not allow_duplicates:
            self.refuse_duplicates(flat)
        late = (pd.Series(places[self.axes[0]]).groupby(system).diff() < 0).to_numpy()
        if late.any() and self.axes == ("time",):
            self.notes.append(f"times sorted in {len(np.unique(system[late]))} of {len(names)} systems")
        return _pack(names, quantities, flat, tuple(self.notes), self.axes)

    def coordinate(self, axis: str) -> np.ndarray:
        at, _ = self.numbers(axis)
        unit = "say in seconds" if axis == "time" else "say in metres"
        self.refuse(~np.isfinite(at), f"the {axis} is not a number", f"Write a number like 1.5, {unit}")
        return at

    def tidy(self) -> None:
        names = [str(name).strip() for name in self.frame.columns]
        known = "|".join(f"{re.escape(name)}$" for name in ("system", *self.axes, "sigma"))
        names = [re.sub(rf"(?i)^({known}|sigma_)", lambda m: m[0].lower(), n) for n in names]
        named = [name != "" and not name.startswith("Unnamed: ") for name in names]
        self.notes += [f"column {at} has no name: ignored" for at, ok in enumerate(named, 1) if not ok]
        frame = self.frame.set_axis(names, axis=1).loc[:, named].reset_index(drop=True)
        for name in [name for name in ("system", *self.axes) if name not in frame]:
            known = f"the columns are: {', '.join(names) or 'none'}.{_did_you_mean(name, names)}"
            alone = " Separate them with commas (pandas: sep=';')." if len(names) == 1 else ""
            raise DataError(f"{self.source}: there is no column '{name}'; {known}{alone} {_fix_header(self.axes)}")
        for name in frame.columns[frame.columns.duplicated()]:
            raise DataError(f"{self.source}: two columns are called '{name}'. Rename or remove one")
        nameless = frame[_text(frame["system"]) == ""]
        blank = nameless.index[(nameless.apply(_text) == "").all(axis=1)]
        if len(blank) == len(frame):
            raise DataError(f"{self.source}: the table is empty, it has no data. Add a line per observation")
        self.frame = frame.drop(index=blank).reset_index(drop=True)
        self.lines = np.delete(self.lines, blank)

    def systems(self) -> tuple[np.ndarray, Names]:
        raw, unique = pd.factorize(self.frame["system"], use_na_sentinel=False)
        text = _text(pd.Series(unique)).str.replace(r"^([+-]?\d+)\.0*$", r"\1", regex=True)
        code, names = pd.factorize(text.to_numpy(object))  # ' A' and 'A', 3 and 3.0 are the same system
        self.frame["system"] = names[code[raw]]
        self.refuse(self.frame["system"] == "", "the system's name is missing", "Write it on every line")
        return code[raw], tuple(names)

    def values(self) -> tuple[Names, np.ndarray]:
        """Names and (row, quantity) values, NaN where not observed."""
        columns: dict[str, np.ndarray] = {}
        taken = "|".join(map(re.escape, ("system", *self.axes)))
        for name in self.frame.columns[~self.frame.columns.str.fullmatch(f"{taken}|sigma|sigma_.*")]:
            number, text = self.numbers(name)
            meant = _text(self.frame[name][text]).str.fullmatch(_ALMOST_NUMBER).mean() > 0.5
            if np.isnan(number).all() and not meant:
                found = f"holds text, {self.place(int(text.argmax()), name)}" if text.any() else "is empty"
                self.notes.append(f"column '{name}' {found}: ignored")
                continue
            fix = "Write a number (1.5: no unit, no decimal comma), or remove the column if it is a comment"
            self.refuse(text | np.isinf(number), f"column '{name}' is not a finite number", fix, name)
            columns[name] = number
        if not columns:
            known = "; ".join([f"the columns are: {', '.join(self.frame.columns)}", *self.notes])
            raise DataError(f"{self.source}: no column of measured values; {known}. {_fix_header(self.axes)}")
        value, what = np.stack(list(columns.values()), axis=1), f"no value of {' or '.join(columns)}"
        self.refuse(np.isnan(value).all(axis=1), what, "Fill it in, or delete the line")
        return tuple(columns), value

    def sigmas(self, quantities: Names, value: np.ndarray) -> np.ndarray:
        for name in self.frame.columns[self.frame.columns.str.startswith("sigma_")]:
            if name[6:] not in self.frame:
                raise DataError(f"{self.source}: '{name}' is noise, but of no column '{name[6:]}'. Rename it")
        sigma = np.full(value.shape, np.nan)
        for at, name in enumerate(quantities):
            column = f"sigma_{name}" if f"sigma_{name}" in self.frame else "sigma"
            if column in self.frame:
                sigma[:, at] = self.numbers(column)[0]
                bad = ~np.isnan(value[:, at]) & ~((sigma[:, at] > 0) & (sigma[:, at] < np.inf))
                fix = f"Give the standard deviation of {name}'s noise on every line, or remove the column"
                self.refuse(bad, f"column '{column}' is not a positive number", fix, column)
        return sigma

    def refuse_duplicates(self, flat: pd.DataFrame) -> None:
        first = flat.groupby(["system", *self.axes, "quantity", "value"])["row"].transform("min")
        repeats = dict(zip(flat["row"][first < flat["row"]], first[first < flat["row"]]))
        if repeats:
            some = [f"{self.place(b)} repeats line {self.lines[a]}" for b, a in list(repeats.items())[:3]]
            what = f"{self.source}: the same observation stands twice: {_listed(some, len(repeats))}"
            raise DataError(
                f"{what}. Drop one, or allow it (allow_duplicates=True, --allow-duplicates) if it was truly measured twice"
            )

    def refuse(self, bad: np.ndarray | pd.Series, what: str, remedy: str, column: str = "") -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            some = _listed([self.place(row, column) for row in rows[:3].tolist()], rows.size)
            raise DataError(f"{self.source}: {what}: {some}. {remedy}")

    def place(self, row: int, column: str = "") -> str:
        where = ", ".join(f"{name} {str(self.frame[name].iloc[row]) or '?'}" for name in ("system", *self.axes))
        cell = f" has '{self.frame[column].iloc[row]}'" if column else ""
        return f"line {self.lines[row]} ({where}){cell}"

    def numbers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of a column, NaN where there is none, and where it holds something else instead."""
        column = self.frame[name]
        if column.dtype.kind in "iuf":
            return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), dtype=bool)
        text = _text(column).str.replace(self.decimal, ".", regex=False)
        good = text.str.fullmatch(_NUMBER).to_numpy(bool)
        number = text.where(good, "nan").to_numpy(object).astype(np.float64)  # exact, unlike pd.to_numeric
        return number, ~good & ~text.str.lower().isin(_ABSENT).to_numpy()


def _fix_header(axes: Names) -> str:
    return f"The first line must name the columns: system, {', '.join(axes)}, and one per measured quantity"


def _read_csv(path: Path, axes: Names) -> _Table:
    text = _read_text(path, axes)
    skip = text.count("\n", 0, len(text) - len(text.lstrip(" \t\n,;")))
    sep = max(",;\t", key=text.split("\n", skip + 1)[skip].count)
    options: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False, "skip_blank_lines": False}
    try:  # header=None: the first line fixes the number of cells, so that a longer one is an error
        cells = pd.read_csv(io.StringIO(text), sep=sep, skiprows=skip, **options)
    except pd.errors.ParserError as error:
        what = re.sub(r"row (\d+)", lambda m: f"line {int(m[1]) + 1}", str(error).split(": ")[-1].strip())
        fix = "Write 1.5, not 1,5; put text with commas in quotes, and close them; end no line with a comma"
        raise DataError(f"{path}: not readable as CSV ({what}). {fix}") from None
    breaks = cells.apply(lambda column: column.str.count("\n")).sum(axis=1).to_numpy()  # in quoted cells
    lines = skip + 1 + np.arange(len(cells)) + np.cumsum(breaks) - breaks
    body = cells.iloc[1:].set_axis(cells.iloc[0].tolist(), axis=1)
    notes = ["columns separated by semicolons: decimal commas read as points"] if sep == ";" else []
    return _Table(body, lines[1:], str(path), notes, axes, decimal="," if sep == ";" else ".")


def _read_text(path: Path, axes: Names) -> str:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path.absolute()}: {error.strerror}. Check its name and folder") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line} is not UTF-8 text. Save the table as 'CSV UTF-8'") from None
    if "\x00" in text or not text.strip(" \t\n,;"):
        what = "is not a text file. Save the table as 'CSV UTF-8'" if "\x00" in text else "the file is empty"
        raise DataError(f"{path}: {what}. {_fix_header(axes)}")
    return text


def _filled(flat: pd.DataFrame, quantities: Names, sigma: Noise) -> np.ndarray:
    """Noise of every row: the table's, else the problem's, else NaN, to be inferred; of one quantity all or none."""
    by_name = sigma if isinstance(sigma, Mapping) else dict.fromkeys(quantities, sigma)
    stated = [by_name.get(name) for name in quantities]
    default = np.array([np.nan if s is None or isinstance(s, Prior) else s for s in stated], dtype=np.float64)
    filled = np.where(flat["sigma"].isna(), default[flat["quantity"]], flat["sigma"])
    for at, name in enumerate(quantities):
        here = filled[flat["quantity"] == at]
        told = stated[at]
        refused = not (told is None or isinstance(told, Prior) or 0 < told < np.inf)
        if refused or not (np.isnan(here).all() or ((here > 0) & (here < np.inf)).all()):
            raise DataError(
                f"noise of {name} must be positive, and known for all of its observations or for none: fill the column 'sigma', "
                "leave it out to have the noise inferred, or give the problem sigma > 0"
            )
    return filled


def _pack(systems: Names, quantities: Names, flat: pd.DataFrame, notes: Names, axes: Names) -> Observations:
    # Equal places are ordered by quantity, then as in the table: the order that survives `to_frame`.
    flat = flat.iloc[np.lexsort((flat["quantity"], *(flat[axis] for axis in axes[::-1]), flat["system"]))]
    counts = np.bincount(flat["system"], minlength=len(systems))
    mask = np.arange(counts.max()) < counts[:, None]
    last = flat[list(axes)].to_numpy()[np.cumsum(counts) - 1]
    place, quantity = np.repeat(last[:, None], counts.max(), axis=1), np.zeros(mask.shape, np.int32)
    value, sigma = np.zeros(mask.shape), np.ones(mask.shape)
    place[mask] = flat[list(axes)]
    quantity[mask], value[mask], sigma[mask] = (flat[name] for name in ("quantity", "value", "sigma"))
    return Observations(systems, quantities, place, quantity, value, sigma, mask, notes, axes)


def _text(column: pd.Series) -> pd.Series:
    return column.astype("str").where(column.notna(), "").str.strip()


def _listed(places: list[str], total: int) -> str:
    return ", ".join(places[:3]) + (f" and {total - 3} more ({total} in all)" if total > 3 else "")


def _did_you_mean(name: str, names: Sequence[str]) -> str:
    near = [other for other in names if get_close_matches(other.lower(), [name.lower()])]
    return f" Did you mean '{name}' by '{near[0]}'?" if near else ""
