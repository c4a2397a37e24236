"""What is known of each system beside its data: numbers, and signals in time. The physics reads both from `p`."""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

BETWEEN = ("linear", "previous")
Theta = Float[Array, " parameter"]  # of one system, unconstrained
System = Int[Array, ""] | int  # the row of a system in its data
Series = tuple[tuple[np.ndarray, np.ndarray], ...]  # of every system, times and values


@dataclass(frozen=True)
class Column:
    """A number known of every system, in a column of the table: `p.mass`.

    - `name`: of the column; that of the parameter by default.
    """

    name: str | None = None


@dataclass(frozen=True)
class Signal:
    """A known function of time of every system (a load, a dose, the weather), measured at some times: `p.force(t)`.

    - `name`: of its column, in the table of inputs or among the observations; that of the parameter by default.
    - `between`: "linear" joins the points, "previous" holds each until the next. Before the first and after the last the
      signal stays as it is there.
    """

    name: str | None = None
    between: str = "linear"

    def __post_init__(self) -> None:
        if self.between not in BETWEEN:
            raise ValueError(f"Signal: between={self.between!r} must be one of {', '.join(map(repr, BETWEEN))}")


class Sampled(NamedTuple):
    """A signal of all systems at equal steps of time, which are found without a search."""

    values: np.ndarray
    begin: float
    step: float
    between: str

    def at(self, system: System, t: ArrayLike) -> Array:
        values = jnp.asarray(self.values, float)
        place = jnp.clip((jnp.asarray(t, float) - self.begin) / self.step, 0.0, values.shape[1] - 1.0)
        if self.between == "previous":
            return values[system, jnp.floor(place + 1e-3).astype(int)]  # times are rounded
        node = jnp.minimum(jnp.floor(place), values.shape[1] - 2.0).astype(int)
        left = values[system, node]
        return left + (place - node) * (values[system, node + 1] - left)


class KnownInputs:
    """Columns and signals of a problem; once `bound` to data, also their values, one row a system."""

    def __init__(self, stated: Mapping[str, object]):
        self.columns = {n: kind.name or n for n, kind in stated.items() if isinstance(kind, Column)}
        self.signals = {n: kind for n, kind in stated.items() if isinstance(kind, Signal)}
        self.signal_columns = {n: kind.name or n for n, kind in self.signals.items()}
        self.numbers: dict[str, np.ndarray] | None = None
        self.sampled: dict[str, Sampled] = {}

    def __bool__(self) -> bool:
        return bool(self.columns or self.signals)

    @property
    def systems(self) -> int:
        """How many are told apart."""
        known = [*(self.numbers or {}).values(), *(signal.values for signal in self.sampled.values())]
        return len(known[0]) if known else 1

    def bound(
        self, constants: Mapping[str, np.ndarray], series: Mapping[str, Series], times: np.ndarray
    ) -> "KnownInputs":
        """With the columns of a table, and signals sampled at these `times`."""
        made = copy.copy(self)
        made.numbers = {n: np.asarray(constants[column], float) for n, column in self.columns.items()}
        made.sampled = {}
        for name, column in self.signal_columns.items():
            kind = self.signals[name].between
            rows = np.stack([_resampled(*one, times, kind) for one in series[column]])
            made.sampled[name] = Sampled(rows, float(times[0]), float(times[1] - times[0]), kind)
        return made

    def numbers_of(self, system: System) -> dict[str, Array]:
        """The columns of a system; ones before there are data."""
        if self.numbers is None:
            return dict.fromkeys(self.columns, jnp.ones(()))
        return {n: jnp.asarray(column, float)[system] for n, column in self.numbers.items()}

    def signals_of(self, system: System) -> dict[str, Callable[[ArrayLike], Array]]:
        """The signals of a system; zero before there are data."""
        silent: dict[str, Callable[[ArrayLike], Array]] = dict.fromkeys(self.signals, _silent)
        return silent | {n: functools.partial(signal.at, system) for n, signal in self.sampled.items()}

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and scale of each column over systems."""
        columns = list((self.numbers or {}).values())
        spread = [column.std() for column in columns]
        return np.array([column.mean() for column in columns]), np.array([s if s > 0 else 1.0 for s in spread])


def _silent(t: ArrayLike) -> Array:
    return jnp.zeros_like(jnp.asarray(t, float))


def _resampled(time: np.ndarray, value: np.ndarray, times: np.ndarray, between: str) -> np.ndarray:
    if between == "linear":
        return np.interp(times, time, value)
    step = times[1] - times[0]
    return value[np.clip(np.searchsorted(time, times + 1e-6 * step, side="right") - 1, 0, None)]
