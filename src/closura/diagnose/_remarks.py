"""What was found of chains and residuals, in words: which systems, and what to do."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..data import Observations
from ..forward import Noise
from ..learning import Settings
from ..sampling import ESS_LEAST, Convergence, labels_of

NAMED = 5
SYSTEMATIC = ("autocorrelation", "pattern")
PICTURE = "see figures/checks.png"
# A proposal is accepted in about 57 % of the steps, so that of draws two steps apart one in five repeats the one before.
REPEATED, ABOVE_USUAL = 0.6, 0.3
PAIRS = 100  # of consecutive draws of a group, at least, that tell how often they repeat
STEP_RATIO = 1000.0  # to what is usual
SAID = 3
STEP_RANGE = (0.01, 10.0)  # of what is usual where a preconditioner takes out the units
NEARLY_AGREE = 1.2  # R-hat
START_AGAIN = "Raise --iterations or --chains, or try another --seed"


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
    level = np.where(rows["check"].isin(SYSTEMATIC), "fleet", "others" if others else "fleet")
    kept = rows[rows["level"] == level]
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


def disagreements(check: Convergence, settings: Settings) -> list[str]:
    """What is wrong with R-hat and effective sample sizes, of which scalar, and what to do: chains that nearly agree need time alone."""
    worst, least = check.worst("rhat"), check.least
    if any(np.isnan(check.worst(figure).value) for figure in ("rhat", "ess_bulk", "ess_tail")):
        return [
            "Whether the chains agree cannot be told: there are fewer than four draws of each, or none ever moved. Raise "
            "--draws; if proposals are rejected throughout, see below."
        ]
    said = []
    if not worst.value < check.limit:
        size = f"{worst.value:.3f}" if worst.value < 100 else "above 100"
        nearly = worst.value < NEARLY_AGREE
        cure = f"Sample longer: --draws {4 * settings.draws} (now {settings.draws})" if nearly else "Raise --iterations"
        said.append(
            f"R-hat is {size} (should be below {check.limit:.4g}), worst for {worst.name}: chains disagree. {cure}; if two solutions fit "
            "that system equally well, sharpen its prior."
        )
    if not least.value > ESS_LEAST:
        ones = "one" if round(least.value) == 1 else "ones"
        said.append(
            f"The draws of {least.name} are worth only {least.value:.0f} independent {ones} (should exceed {ESS_LEAST}): raise "
            "--draws or --chains."
        )
    return said


def repeated_draws(draws: xr.Dataset, groups: np.ndarray) -> list[str]:
    """Which blocks stand still in a group: draws of a chain that equal, in all numbers of the block, the one before.

    That counts above 60 %, and 30 points above the best group of the same block (of a single group, above other blocks): where
    all groups are slow the effective sample size tells. R-hat need not see it, because chains that stand apart spread as wide
    as chains that move.
    """
    count = len(np.unique(groups))
    if min(np.bincount(groups)) * (draws.sizes["draw"] - 1) < PAIRS:
        return []
    shares, blocks = [np.zeros((count, 0))], []
    for name in ("theta", "shared"):
        if name not in draws or not draws[name].size:
            continue
        values, numbers = draws[name].values, ", ".join(draws[name].coords[draws[name].dims[-1]].values)
        same = (values[:, 1:] == values[:, :-1]).all(axis=-1).reshape(len(values), values.shape[1] - 1, -1)
        shares.append(np.stack([same[groups == group].mean(axis=(0, 1)) for group in range(count)]))
        blocks += [numbers] if name == "shared" else [f"{numbers} of {one}" for one in labels_of(draws[name], "system")]
    share = np.concatenate(shares, axis=1)
    usual = np.broadcast_to(share.min(axis=0) if count > 1 else np.median(share), share.shape)
    stuck = np.argwhere(share > np.maximum(REPEATED, usual + ABOVE_USUAL))
    said = [
        f"draws of {blocks[block]} in group {group} repeat {share[group, block]:.0%} of the time (elsewhere {usual[group, block]:.0%})"
        for group, block in sorted(map(tuple, stuck), key=lambda at: -share[at])
    ]
    return [f"{_some(said)}: these chains hardly move. {START_AGAIN}."] if said else []


def odd_steps(log_step: np.ndarray, blocks: Sequence[str], preconditioned: bool) -> list[str]:
    """Which step sizes ran away or collapsed, from their logarithms (group, block).

    With a preconditioner all steps are in one unit, and about 1; without, only those of one block can be compared.
    """
    if not log_step.size:
        return []
    usual = np.broadcast_to(np.nanmedian(log_step, axis=0), log_step.shape)
    if preconditioned:
        usual = np.full(log_step.shape, np.clip(np.nanmedian(log_step), *np.log(STEP_RANGE)))
    away = np.where(np.isnan(log_step), np.inf, np.abs(log_step - usual))
    said = []
    for at in sorted(map(tuple, np.argwhere(away > np.log(STEP_RATIO))), key=lambda at: -away[at]):
        went = "collapsed" if log_step[at] < usual[at] else "ran away"
        said.append(
            f"the step size of {blocks[at[1]]} in group {at[0]} {went} to {np.exp(log_step[at]):.2g} (usual here: {np.exp(usual[at]):.2g})"
        )
    return [f"{_some(said)}: these chains cannot be trusted. {START_AGAIN}."] if said else []


def _some(said: list[str]) -> str:
    """The first few as the beginning of a sentence, and how many more there are."""
    more = [f"{len(said) - SAID} more like these"] if len(said) > SAID else []
    whole = "; ".join([*said[:SAID], *more])
    return whole[0].upper() + whole[1:]
