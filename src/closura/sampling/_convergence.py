"""Have the chains forgotten where they started, and how many independent draws are they worth?

Two R-hats, the larger counts. Rank-normalised split R-hat over all chains (Vehtari et al. 2021) sees any single chain that
stands apart. Nested R-hat over groups (Margossian et al. 2024) compares groups, which share neither starting point nor
preconditioner; chains of a group start apart, so alone it would not notice that nothing moves. All groups share the learned
closure: neither can see an error in that.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from ._names import DRAWS, scalar_name

RHAT_LIMIT, ESS_LEAST = 1.01, 400
DIAGNOSED_NUMBERS = 3_000_000  # above that every so-many-th draw is looked at
FIGURES = ("rhat", "rhat_chains", "rhat_groups", "ess_bulk", "ess_tail")


class Worst(NamedTuple):
    """The worst of a figure, and of which scalar it is; NaN and nothing where no scalar has one."""

    value: float = float("nan")
    name: str = ""


@dataclass(frozen=True, eq=False)
class Convergence:
    """Figures of every scalar: the variables of the draws, with `figure` (see FIGURES) in place of chain and draw.

    `rhat` is the larger of that over chains and that over groups. What never moved has no R-hat.
    """

    figures: xr.Dataset

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
        return bool(self.rhat_max < RHAT_LIMIT and not self.least.value <= ESS_LEAST)


def convergence(draws: xr.Dataset, groups: np.ndarray) -> Convergence:
    """Of each scalar in `draws` (as `named_draws` gives them); `groups` (chain,) numbers the group of each chain."""
    return _dataset(draws, {name: _figures(values, groups) for name, values in _diagnosed(draws).items()})


def convergence_if_enough(draws: xr.Dataset, groups: np.ndarray) -> Convergence | None:
    """The same where draws suffice. Small variables are asked first, and the first that says no ends it."""
    figures, diagnosed = {}, _diagnosed(draws)
    for name in sorted(diagnosed, key=lambda name: diagnosed[name].size):
        figures[name] = _figures(diagnosed[name], groups)
        alone = _dataset(draws[[name]], {name: figures[name]})
        if alone.rhat_max >= RHAT_LIMIT or alone.least.value <= ESS_LEAST:
            return None
    found = _dataset(draws, {name: figures[name] for name in diagnosed})
    return found if found.enough else None


def _diagnosed(draws: xr.Dataset) -> dict[str, np.ndarray]:
    """Every variable, at every so-many-th draw where there are very many numbers."""
    total = sum(variable.size for variable in draws.data_vars.values())
    every = max(1, min(draws.sizes["draw"] // 100, total // DIAGNOSED_NUMBERS))
    return {str(name): variable.values[:, ::every] for name, variable in draws.data_vars.items()}


def _dataset(draws: xr.Dataset, figures: Mapping[str, np.ndarray]) -> Convergence:
    variables = {
        name: (("figure", *draws[name].dims[2:]), values, draws[name].attrs) for name, values in figures.items()
    }
    return Convergence(xr.Dataset(variables, {**draws.drop_dims(DRAWS).coords, "figure": list(FIGURES)}))


def _figures(draws: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(figure, ...) of draws (chain, draw, ...)."""
    from arviz_stats.base import array_stats

    flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
    found = np.full((len(FIGURES), flat.shape[2]), np.nan)
    if flat.shape[1] >= 4 and flat.shape[2]:
        axes = {"chain_axis": 0, "draw_axis": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chains = array_stats.rhat(flat, **axes)
            nested = chains
            if len(set(groups.tolist())) > 1:
                nested = array_stats.rhat_nested(flat, superchain_ids=groups, **axes)
                nested = np.where(np.isfinite(nested), nested, chains)
            bulk = array_stats.ess(flat, method="bulk", **axes)
            tail = array_stats.ess(flat, method="tail", prob=(0.05, 0.95), **axes)
        found[:] = np.fmax(chains, nested), chains, nested, bulk, tail
    return found.reshape(len(FIGURES), *draws.shape[2:])
