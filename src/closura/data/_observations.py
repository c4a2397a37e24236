"""Observations of many systems: read from whatever holds a long table, and held as padded arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from ..parameters import Prior, Series
from ._long_table import DataError, LongTable, Names, did_you_mean, listed, seconds_in
from .readers._open import name_of, open_table

Sigma: TypeAlias = float | Prior | Mapping[str, float | Prior] | None


@dataclass(frozen=True, eq=False)
class Observations:
    """Data as `read_table` gives them.

    - `systems`: their names; `quantities`: names of what was measured; `axes`: what places are made of, e.g. ("time", "x").
    - `place`, `quantity`, `value`, `sigma`, `mask`: row k holds the observations of system k, sorted by place; rows are padded,
      and `mask` is False on padding. `sigma` is NaN where the table names no noise.
    - `notes`: what was guessed, left out or rearranged on reading.
    """

    systems: Names  # in order of first appearance
    quantities: Names  # names of the value columns
    place: np.ndarray  # float64 (system, observation, axis); padding repeats the last valid place
    quantity: np.ndarray  # int32 (system, observation), as all that follow; index into quantities, padding 0
    value: np.ndarray  # float64, padding 0
    sigma: np.ndarray  # float64, NaN where the table names no noise, padding 1
    mask: np.ndarray  # bool, False on padding
    notes: Names = ()  # what was tidied up on reading
    axes: Names = ("time",)  # what places are made of
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)  # known of each system, (system,)
    signals: Mapping[str, Series] = field(default_factory=dict)  # known of each system, (times, values)
    inputs: Observations | None = None  # a table of its own, for signals

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
        return _made(LongTable(frame, lines, source, axes=tuple(axes)), None, allow_duplicates)

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
        frame = frame.dropna(axis=1, how="all")
        return frame.assign(**{name: known[first["system"]] for name, known in self.constants.items()})

    def matched(
        self,
        quantities: Names,
        bounds: Mapping[str, tuple[float, float]],
        sigma: Sigma,
        constants: Sequence[str] = (),
        signals: Sequence[str] = (),
    ) -> Observations:
        """For a problem: its quantities in its order, places within its bounds, `sigma` where the table has none, and columns
        that are `constants` of a system, or its `signals` in time."""
        if self.axes != tuple(bounds):
            wanted = ", ".join(map(repr, bounds))
            raise DataError(
                f"the table was read with the coordinates {', '.join(self.axes)}, the problem has {', '.join(bounds)}; read it "
                f"with cl.read_table(path, axes=[{wanted}]), or give its path to cl.fit"
            )
        for name in [name for name in quantities if name not in self.quantities]:
            why = "".join(f" ({note})" for note in self.notes if note.startswith(f"column '{name}' "))
            what = f"the problem observes '{name}', but the table has no such column of values{why}"
            raise DataError(f"{what}; {self._has(name)} Rename a column, or change what the problem observes")
        order = np.array([quantities.index(q) if q in quantities else -1 for q in self.quantities])
        flat = self._flat().assign(quantity=order[self.quantity[self.mask]]).query("quantity >= 0")
        silent = [self.systems[k] for k in np.setdiff1d(np.arange(len(self.systems)), flat["system"])]
        if silent:
            raise DataError(f"system {listed(silent)}: {' or '.join(quantities)} was never observed. Remove its lines")
        inside = {axis: self._inside(flat, axis, span) for axis, span in bounds.items()}
        flat = flat.assign(**inside, sigma=_filled(flat, quantities, sigma))
        told = {name: self._constant(name) for name in constants}
        heard = {name: self._signal(name) for name in signals}
        used = {*quantities, *constants, *signals}
        notes = (
            *self.notes,
            *(f"column '{q}' is not in the problem: ignored" for q in self.quantities if q not in used),
            *(note for name, series in heard.items() for note in self._short(name, series)),
        )
        return replace(_pack(self.systems, quantities, flat, notes, self.axes), constants=told, signals=heard)

    def _has(self, name: str) -> str:
        return f"it has: {', '.join(self.quantities)}.{did_you_mean(name, self.quantities)}"

    def _signal(self, name: str) -> Series:
        """Times and values of a signal, for every system: from the table of inputs, or a column among the observations."""
        if name in self.signals:
            return self.signals[name]
        table = self.inputs if self.inputs is not None and name in self.inputs.quantities else self
        if name not in table.quantities:
            known = (*(self.inputs.quantities if self.inputs else ()), *self.quantities)
            raise DataError(
                f"the problem reads '{name}' as a signal, but no table has such a column of numbers; there are: "
                f"{', '.join(known)}.{did_you_mean(name, known)} Give a second table with system, time and {name} (--inputs FILE, "
                "or inputs=), or add the column to the observations"
            )
        row = {system: k for k, system in enumerate(table.systems)}
        here = table.mask & (table.quantity == table.quantities.index(name))
        silent = [system for system in self.systems if system not in row or not here[row[system]].any()]
        if silent:
            raise DataError(f"the signal '{name}' is missing for system {listed(silent)}; add its lines")
        return tuple((table.time[k][here[k]], table.value[k][here[k]]) for k in map(row.__getitem__, self.systems))

    def _short(self, name: str, series: Series) -> list[str]:
        """Which signals end before the observations do."""
        last = np.where(self.mask, self.time, -np.inf).max(axis=1)
        gaps = [np.diff(time).max(initial=0.0) for time, _ in series]
        short = [s for s, (time, _), gap, end in zip(self.systems, series, gaps, last) if end > time[-1] + gap]
        where = f"the observations of system {listed(short)}"
        return [f"signal '{name}' ends before {where}: held at its last value"] if short else []

    def inputs_frame(self) -> pd.DataFrame | None:
        """Signals as a table that `inputs` of `read_table` takes."""
        tables = [
            pd.DataFrame({"system": system, "time": time, name: value})
            for name, series in self.signals.items()
            for system, (time, value) in zip(self.systems, series)
        ]
        return pd.concat(tables).groupby(["system", "time"], sort=False).first().reset_index() if tables else None

    def _constant(self, name: str) -> np.ndarray:
        """One value of each system, from a column that says the same on all its lines (or on some, the rest empty)."""
        if name in self.constants:
            return self.constants[name]
        if name not in self.quantities:
            what = f"the problem knows '{name}' of every system, but the table has no such column of numbers"
            raise DataError(f"{what}; {self._has(name)}")
        here = self.mask & (self.quantity == self.quantities.index(name))
        missing = [self.systems[k] for k in np.flatnonzero(~here.any(axis=1))]
        if missing:
            what = f"'{name}' is missing for system {listed(missing)}"
            raise DataError(f"{what}. Write it on one of its lines, or leave the system out")
        low = self.value.min(axis=1, initial=np.inf, where=here)
        high = self.value.max(axis=1, initial=-np.inf, where=here)
        moving = np.flatnonzero(high - low > 1e-9 * np.maximum(abs(low), abs(high)))
        if moving.size:
            k = moving[0]
            raise DataError(
                f"'{name}' must be one number a system, but system {self.systems[k]} has {low[k]:g} and {high[k]:g}; give the mean, "
                "say, on all of its lines"
            )
        return low

    def _inside(self, flat: pd.DataFrame, axis: str, span: tuple[float, float]) -> np.ndarray:
        at, slack = flat[axis].to_numpy(), 1e-6 * (span[1] - span[0])
        bad = np.flatnonzero((at < span[0] - slack) | (at > span[1] + slack))
        if bad.size:
            some = [f"system {self.systems[flat['system'].iloc[i]]} at {axis} {at[i]}" for i in bad[:3]]
            extent = "span" if axis == "time" else f"extent in {axis},"
            what = f"observed outside the problem's {extent} {span[0]} to {span[1]}: {listed(some, bad.size)}"
            raise DataError(f"{what}. Check the unit of {axis}, remove these lines, or widen the {extent.split()[0]}")
        return np.clip(at, *span)

    def rows(self) -> pd.DataFrame:
        """A row an observation, in the order of the arrays: names of system and quantity, place, value, sigma."""
        flat = self._flat()
        system, quantity = np.array(self.systems), np.array(self.quantities)
        return flat.assign(system=system[flat["system"]], quantity=quantity[flat["quantity"]])

    def _flat(self) -> pd.DataFrame:
        arrays = {name: getattr(self, name)[self.mask] for name in ("quantity", "value", "sigma")}
        places = dict(zip(self.axes, self.place[self.mask].T))
        return pd.DataFrame({"system": np.nonzero(self.mask)[0], **places, **arrays})


def read_table(
    source: object,
    *,
    axes: Sequence[str] = ("time",),
    allow_duplicates: bool = False,
    time_unit: str | None = None,
    sheet: str | None = None,
    inputs: object = None,
) -> Observations:
    """Observations from a long table: columns system, time, and one a quantity; or system, time, quantity, value.

    - `source`: a file (text, Excel, Parquet, NetCDF or MATLAB, told apart by content), a frame of pandas or polars, an
      xarray Dataset, or a mapping of names to columns.
    - `axes`: columns that say where, e.g. ("time", "x").
    - `allow_duplicates`: the same observation may stand twice.
    - `time_unit`: times are dates; count them in s, min, h or d from the first of each system.
    - `sheet`: of a workbook; else the first that is not empty.
    - `inputs`: a second such table, of known signals (`closura.Signal`): system, time, and one column each. Its dates count
      from where those of the first do.
    """
    if inputs is not None and "time" not in axes:
        raise DataError(f"inputs are signals in time, and the axes are {', '.join(axes)}; use a column of the table")
    if time_unit is not None:
        seconds_in(time_unit)
        if "time" not in axes:
            raise DataError(f"time_unit={time_unit!r} is for times, and the axes are {', '.join(axes)}; drop it")
    try:
        table = open_table(source, tuple(axes), sheet)
        data = _made(table, time_unit, allow_duplicates)
        if inputs is None:
            return data
        source, second = inputs, open_table(inputs, ("time",))
        second.begins = table.begins
        data = replace(data, inputs=_made(second, time_unit, allow_duplicates))
        if table.begins is None and second.begins is not None:
            what = f"{second.source}: times are dates, and those of the observations are not"
            raise DataError(f"{what}; write both alike")
        return data
    except MemoryError:
        what = f"{name_of(source)}: there is not enough memory for this table"
        raise DataError(f"{what}. Keep fewer rows or columns of it, or use a machine with more memory") from None


def _made(table: LongTable, time_unit: str | None, allow_duplicates: bool) -> Observations:
    table.time_unit = time_unit
    systems, quantities, flat = table.checked(allow_duplicates)
    return _pack(systems, quantities, flat, tuple(table.notes), table.axes)


def by_quantity(sigma: Sigma, quantities: Names) -> dict[str, float | Prior | None]:
    """What is stated of the noise of each quantity: one for all, or by name."""
    return {name: sigma.get(name) if isinstance(sigma, Mapping) else sigma for name in quantities}


def _filled(flat: pd.DataFrame, quantities: Names, sigma: Sigma) -> np.ndarray:
    """Noise of every row: the table's, else the problem's, else NaN, to be inferred; of one quantity all or none."""
    stated = list(by_quantity(sigma, quantities).values())
    default = np.array([np.nan if s is None or isinstance(s, Prior) else s for s in stated], dtype=np.float64)
    filled = np.where(flat["sigma"].isna(), default[flat["quantity"]], flat["sigma"])
    for at, name in enumerate(quantities):
        here, told = filled[flat["quantity"] == at], stated[at]
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
