"""Have the chains forgotten where they started, and how many independent draws are they worth?

Two R-hats, the larger counts. Rank-normalised split R-hat over all chains (Vehtari et al. 2021) sees any single chain that
stands apart. Nested R-hat over groups (Margossian et al. 2024) compares groups, which share neither starting point nor
preconditioner; chains of a group start apart, so alone it would not notice that nothing moves. All groups share the learned
closure: neither can see an error in that.

Of very many scalars few draws can be kept, and then independent draws may have an R-hat above 1.01 by chance (the worst of 30,000, with
50 draws of a chain, as in a fleet of 10,000 systems: 1.02): there the limit is as high as that.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import xarray as xr

from ._names import DRAWS, scalar_name

RHAT_LIMIT, ESS_LEAST = 1.01, 400
# Of a variable with more numbers every so-many-th draw is looked at, of each chain these at least; and some scalars at a time.
DIAGNOSED_NUMBERS, DIAGNOSED_DRAWS, AT_ONCE = 3_000_000, 200, 3_000_000
MANY, SHORT = 3000, 50  # scalars from which on, and draws of a chain down to which, chance is allowed for
BY_CHANCE = 0.05  # of converged runs of so many may have an R-hat above the limit
FIGURES = ("rhat", "rhat_chains", "rhat_groups", "ess_bulk", "ess_tail")


class Worst(NamedTuple):
    """The worst of a figure, and of which scalar it is; NaN and nothing where no scalar has one."""

    value: float = float("nan")
    name: str = ""


@dataclass(frozen=True, eq=False)
class Convergence:
    """Figures of every scalar: the variables of the draws, with `figure` (see FIGURES) in place of chain and draw.

    `rhat` is the larger of that over chains and that over groups. What never moved has no R-hat. It
    should be below `limit`.
    """

    figures: xr.Dataset
    limit: float = RHAT_LIMIT

    def worst(self, figure: str) -> Worst:
        """The largest R-hat, or the smallest effective sample size."""
        sign, found = 1.0 if figure.startswith("rhat") else -1.0, Worst()
        for variable in self.figures.sel(figure=figure).data_vars.values():
            values = variable.values.ravel()
            if np.isnan(values).all():
                continue
            index = int(np.nanargmax(sign * values))
            if not sign * found.value >= sign * values[index]:
                found = Worst(float(values[index]), scalar_name(variable, index))
        return found

    @property
    def rhat_max(self) -> float:
        return self.worst("rhat").value

    @property
    def least(self) -> Worst:
        """The smallest effective sample size, bulk or tail."""
        return min(
            (self.worst("ess_bulk"), self.worst("ess_tail")), key=lambda worst: np.nan_to_num(worst.value, nan=np.inf)
        )

    @property
    def enough(self) -> bool:
        """Do these draws suffice?"""
        return bool(self.rhat_max < self.limit and not self.least.value <= ESS_LEAST)


def convergence(draws: xr.Dataset, groups: np.ndarray) -> Convergence:
    """Of each scalar in `draws` (as `named_draws` gives them); `groups` (chain,) numbers the group of each chain."""
    diagnosed = _diagnosed(draws)
    return _dataset(draws, {name: _figures(values, groups) for name, values in diagnosed.items()}, _limit(diagnosed))


def convergence_if_enough(draws: xr.Dataset, groups: np.ndarray) -> Convergence | None:
    """The same where draws suffice. Small variables are asked first, and the first that says no ends it."""
    figures, diagnosed = {}, _diagnosed(draws)
    limit = _limit(diagnosed)
    for name in sorted(diagnosed, key=lambda name: diagnosed[name].size):
        figures[name] = _figures(diagnosed[name], groups)
        alone = _dataset(draws[[name]], {name: figures[name]}, limit)
        if alone.rhat_max >= limit or alone.least.value <= ESS_LEAST:
            return None
    found = _dataset(draws, {name: figures[name] for name in diagnosed}, limit)
    return found if found.enough else None


def _diagnosed(draws: xr.Dataset) -> dict[str, np.ndarray]:
    """Every variable, at every so-many-th draw where it has very many numbers."""
    most = max(1, draws.sizes["draw"] // DIAGNOSED_DRAWS)
    every = {name: min(most, 1 + variable.size // DIAGNOSED_NUMBERS) for name, variable in draws.data_vars.items()}
    return {str(name): variable.values[:, :: every[name]] for name, variable in draws.data_vars.items()}


def _limit(diagnosed: Mapping[str, np.ndarray]) -> float:
    scalars = sum(values[0, 0].size for values in diagnosed.values() if values.shape[1])
    chains, fewest = next(iter(diagnosed.values())).shape[0], min(values.shape[1] for values in diagnosed.values())
    return RHAT_LIMIT if scalars < MANY else max(RHAT_LIMIT, rhat_by_chance(scalars, chains, max(fewest, SHORT)))


def rhat_by_chance(scalars: int, chains: int, draws: int) -> float:
    """What R-hat of the worst of so many scalars exceeds in one of twenty runs, were all draws independent.

        R-hat^2 = 1 + (F - 1) / n,      F = chi^2_(m - 1) / (m - 1)   for m half chains of n draws

    Raw and folded ranks are both asked. Chi-square by its cube root, which is nearly normal (Wilson and Hilferty).
    """
    halves, each = 2 * chains, draws // 2
    if not scalars or not each:
        return 1.0
    z, spread = NormalDist().inv_cdf(1 - BY_CHANCE / (2 * scalars)), 2 / (9 * (halves - 1))
    return math.sqrt(1 + ((1 - spread + z * math.sqrt(spread)) ** 3 - 1) / each)


def _dataset(draws: xr.Dataset, figures: Mapping[str, np.ndarray], limit: float) -> Convergence:
    variables = {
        name: (("figure", *draws[name].dims[2:]), values, draws[name].attrs) for name, values in figures.items()
    }
    return Convergence(xr.Dataset(variables, {**draws.drop_dims(DRAWS).coords, "figure": list(FIGURES)}), limit)


def _figures(draws: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(figure, ...) of draws (chain, draw, ...)."""
    flat = draws.reshape(*draws.shape[:2], -1)
    found = np.full((len(FIGURES), flat.shape[2]), np.nan)
    if flat.shape[1] >= 4:
        size = max(1, AT_ONCE // (flat.shape[0] * flat.shape[1]))
        for start in range(0, flat.shape[2], size):
            here = slice(start, start + size)
            found[:, here] = _figures_of(flat[..., here].astype(float), groups)
    return found.reshape(len(FIGURES), *draws.shape[2:])


def _figures_of(draws: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same of draws (chain, draw, scalar) in double precision."""
    from arviz_stats.base import array_stats

    axes = {"chain_axis": 0, "draw_axis": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chains = array_stats.rhat(draws, **axes)
        nested = chains
        if len(set(groups.tolist())) > 1:
            nested = array_stats.rhat_nested(draws, superchain_ids=groups, **axes)
            nested = np.where(np.isfinite(nested), nested, chains)
        bulk = array_stats.ess(draws, method="bulk", **axes)
        tail = array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes)
    return np.fmax(chains, nested), chains, nested, bulk, tail
