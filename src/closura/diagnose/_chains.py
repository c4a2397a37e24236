"""Are the chains sound: do they move, with step sizes like those of others, and do they agree?"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ..sampling import ESS_LEAST, RHAT_LIMIT, Convergence, labels_of

# A proposal is accepted in about 57 % of the steps, so that of draws two steps apart one in five repeats the one before.
REPEATED, ABOVE_USUAL = 0.6, 0.3
PAIRS = 100  # of consecutive draws of a group, at least, that tell how often they repeat
STEP_RATIO = 1000.0  # to what is usual
STEP_RANGE = (0.01, 10.0)  # of what is usual where a preconditioner takes out the units
NAMED = 3
START_AGAIN = "Raise --iterations or --chains, or try another --seed"


def disagreements(check: Convergence) -> list[str]:
    """What is wrong with R-hat and effective sample sizes, of which scalar, and what to do."""
    worst, least = check.worst("rhat"), check.least
    if any(np.isnan(check.worst(figure).value) for figure in ("rhat", "ess_bulk", "ess_tail")):
        return [
            "Whether the chains agree cannot be told: there are fewer than four draws of each, or none ever moved. Raise "
            "--draws; if proposals are rejected throughout, see below."
        ]
    said = []
    if not worst.value < RHAT_LIMIT:
        size = f"{worst.value:.3f}" if worst.value < 100 else "above 100"
        said.append(
            f"R-hat is {size} (should be below {RHAT_LIMIT}), worst for {worst.name}: chains disagree. Raise --iterations; if "
            "two solutions fit that system equally well, sharpen its prior."
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
    more = [f"{len(said) - NAMED} more like these"] if len(said) > NAMED else []
    whole = "; ".join([*said[:NAMED], *more])
    return whole[0].upper() + whole[1:]
