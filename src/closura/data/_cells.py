"""What the cells of a table hold: text, numbers, dates."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import pandas as pd

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


def listed(places: list[str], total: int) -> str:
    return ", ".join(places[:3]) + (f" and {total - 3} more ({total} in all)" if total > 3 else "")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    near = [other for other in names if get_close_matches(other.lower(), [name.lower()])]
    return f" Did you mean '{name}' by '{near[0]}'?" if near else ""
