"""What posterior predictive checks found, in words: which systems, and what to do."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from ..data import Observations
from ..forward import Noise

NAMED = 5
SYSTEMATIC = ("autocorrelation", "pattern")
PICTURE = "see figures/checks.png"


class Remark(NamedTuple):
    check: str
    level: str
    text: str


def remarks(
    table: pd.DataFrame, residual: np.ndarray, data: Observations, noise: Noise, *, learned: bool = True
) -> list[Remark]:
    """Of a table of checks (see `check_table`) and its residuals (draw, system, observation); every system is named once.

    `learned`: there is a law that may not be free enough.
    """
    cause = "The law is not free enough, or physics is missing" if learned else "Physics is missing"
    off = table[table["off"]]
    found = []
    for check, rows in _by_cause(off[off["level"] == "system"]):
        who = _who(rows["system"].tolist(), len(data.systems))
        found.append(Remark(check, "system", _words(check, rows, who, residual, data, noise, cause)))
    for number, quantity in enumerate(data.quantities):
        rows = off[off["quantity"] == quantity]
        stated = not np.isnan(data.sigma[data.mask & (data.quantity == number)]).any()
        for check, row in _by_cause(_of_all(rows, others="others" in set(table["level"]), stated=stated)):
            level = str(row["level"].iloc[0])
            who = "the other systems together" if level == "others" else "all systems together"
            who += f" in {quantity}" if len(data.quantities) > 1 else ""
            found.append(Remark(check, level, _words(check, row, who, residual, data, noise, cause)))
    return found


def _of_all(rows: pd.DataFrame, others: bool, stated: bool) -> pd.DataFrame:
    """What counts against systems as a whole: where some stand out, sizes of residuals of the others.

    These are too small only if somebody stated the noise: where it is inferred, those that stand out have raised it.
    """
    systematic = rows["check"].isin(SYSTEMATIC)
    kept = rows[
        (systematic & (rows["level"] == "fleet")) | (~systematic & (rows["level"] == ("others" if others else "fleet")))
    ]
    quiet = (rows["check"] == "chi_square") & (rows["value"] < 1)
    if quiet.any():
        kept = kept[kept["check"] != "autocorrelation"]
    return kept if stated else kept[~quiet.loc[kept.index]]


def _by_cause(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Each system (or all as one) under the check that says most; the others follow from it.

    Noise smaller than stated makes residuals alike, for draws then scatter more than data; noise larger than stated makes
    them opposite.
    """
    if rows.empty:
        return []
    high, square = rows["value"] > 1, rows["check"] == "chi_square"
    loud = rows["system"].isin(rows.loc[square & high, "system"])
    weight = rows["p"].where(~rows["check"].isin(SYSTEMATIC), rows["p"] - 2)
    weight = weight.where(~square | high, -3.0)
    weight = weight.where(~loud | (rows["check"] != "autocorrelation") | (rows["value"] > 0), 1.0)
    worst = rows.loc[weight.groupby(rows["system"], sort=False).idxmin()]
    return [(str(check), part.sort_values("p")) for check, part in worst.groupby("check", sort=False)]


def _who(systems: list[str], total: int) -> str:
    some = ", ".join(systems[:NAMED])
    if len(systems) > NAMED:
        return f"{len(systems)} of {total} systems ({some}, ...)"
    return f"system{'s' * (len(systems) > 1)} {some}"


def _words(
    check: str, rows: pd.DataFrame, who: str, residual: np.ndarray, data: Observations, noise: Noise, cause: str
) -> str:
    value, low, high = (float(rows[name].iloc[0]) for name in ("value", "low", "high"))
    usual = f"{value:.2f}, where noise leaves {low:.2f} to {high:.2f}"
    if check == "chi_square" and value > 1:
        return (
            f"Residuals of {who} are larger than the noise explains (mean square {usual}): {noise.if_larger}. "
            f"{PICTURE.capitalize()}."
        )
    if check == "chi_square":
        return f"Residuals of {who} are smaller than noise would leave them (mean square {usual}): {noise.if_smaller}."
    if check == "largest":
        system = rows["system"].iloc[0]
        where = _farthest(residual, data, None if system == "" else data.systems.index(system))
        remedy = f", or choose noise={noise.for_outliers!r}" if noise.for_outliers else ""
        return (
            f"Of {who} single observations are farther off than {noise.title} noise explains: {where} by {value:.1f} standard "
            f"deviations. Look at them; leave out what is wrong{remedy}."
        )
    if check == "pattern":
        over = "time" if "time" in data.axes else "their places"
        return (
            f"Residuals of {who} leave zero together, in a pattern over {over} (its share of the squares {usual}): the fit is off "
            f"systematically, which error bars do not know of. {cause}; {PICTURE}."
        )
    if check == "autocorrelation":
        alike = "alike" if value > 0 else "opposite"
        return (
            f"Neighbouring residuals of {who} are {alike} (correlation {usual}): the fit is off systematically, which error bars "
            f"do not know of. {cause}; {PICTURE}. (Or the noise itself is not independent.)"
        )
    return (
        f"Of {who} only {value:.0%} of the observations lie inside their 95 % predictive intervals: check {noise.to_check}, or "
        "choose another noise."
    )


def _farthest(residual: np.ndarray, data: Observations, system: int | None) -> str:
    size = np.where(data.mask, np.abs(residual.mean(axis=0)), -np.inf)
    if system is not None:
        size[np.arange(len(size)) != system] = -np.inf
    k, at = np.unravel_index(int(np.argmax(size)), size.shape)
    where = ", ".join(f"{axis} {place:.4g}" for axis, place in zip(data.axes, data.place[k, at]))
    return f"{data.quantities[data.quantity[k, at]]} of system {data.systems[k]} at {where}"
