"""Have the chains forgotten where they started, and how many independent draws are they worth?

Two R-hats, the larger counts. Rank-normalised split R-hat over all chains (Vehtari et al. 2021) sees any single chain that
stands apart. Nested R-hat over groups (Margossian et al. 2024) compares groups, which share neither starting point nor
preconditioner; chains of a group start apart, so alone it would not notice that nothing moves. All groups share the learned
closure: neither can see an error in that.
"""

import warnings
from typing import NamedTuple

import numpy as np

RHAT_LIMIT, ESS_LEAST = 1.01, 400


class Convergence(NamedTuple):
    rhat: np.ndarray
    rhat_nested: np.ndarray
    ess_bulk: np.ndarray
    ess_tail: np.ndarray

    @property
    def rhat_max(self) -> float:
        figures = np.fmax(self.rhat, self.rhat_nested)
        return float(np.fmax.reduce(figures)) if figures.size else float("nan")

    @property
    def enough(self) -> bool:
        """Do these draws suffice?"""
        ess = np.fmin.reduce(np.fmin(self.ess_bulk, self.ess_tail), initial=np.inf)
        return bool(self.rhat_max < RHAT_LIMIT and ess > ESS_LEAST)


def convergence(draws: np.ndarray, groups: np.ndarray) -> Convergence:
    """Of each scalar in `draws` (chain, draw, ...); `groups` (chain,) numbers the group of each chain."""
    from arviz_stats.base import array_stats

    flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
    if flat.shape[1] < 4:
        nothing = np.full(flat.shape[2], np.nan)
        return Convergence(nothing, nothing, nothing, nothing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
        nested = (
            array_stats.rhat_nested(flat, superchain_ids=groups, chain_axis=0, draw_axis=1)
            if len(set(groups.tolist())) > 1
            else np.full(flat.shape[2], np.nan)
        )
        bulk = array_stats.ess(flat, chain_axis=0, draw_axis=1, method="bulk")
        tail = array_stats.ess(flat, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95))
    nested = np.where(np.isfinite(nested), nested, rhat)
    return Convergence(*(np.atleast_1d(a) for a in (rhat, nested, bulk, tail)))
