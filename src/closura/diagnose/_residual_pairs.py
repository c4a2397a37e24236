"""Pairs of neighbouring residuals: in time an observation and the next, in fields the nearest; always of one system and quantity."""

from typing import NamedTuple

import numpy as np

from ..data import Observations


class ResidualPairs(NamedTuple):
    """Pairs (pair, 2) of observations, by their places in the flattened arrays; and of every series, that is every system and
    quantity, how many observations and pairs it has, and the largest value of its sum of products on the unit sphere."""

    pairs: np.ndarray
    series: np.ndarray  # (system x observation,), the series an observation is of
    counts: np.ndarray
    links: np.ndarray
    ends: np.ndarray

    def within(self, chosen: np.ndarray) -> "ResidualPairs":
        """Those of some whole series, counted from the first observation of these."""
        flat = chosen.ravel()
        kept, number = np.unique(self.series[flat]), np.cumsum(flat) - 1
        inside = number[self.pairs[flat[self.pairs[:, 0]]]]
        return ResidualPairs(inside, self.series[flat], self.counts[kept], self.links[kept], self.ends[kept])


def residual_pairs(data: Observations) -> ResidualPairs:
    """Of all observations."""
    systems, quantities = len(data.systems), len(data.quantities)
    reach = np.ptp(data.place[data.mask], axis=0)
    place = data.place / np.where(reach > 0, reach, 1.0)
    counts, links, ends = (np.zeros(systems * quantities) for _ in range(3))
    pairs = [np.zeros((0, 2), int)]
    for number in range(systems * quantities):
        k, quantity = divmod(number, quantities)
        here = np.flatnonzero(data.mask[k] & (data.quantity[k] == quantity))
        counts[number] = len(here)
        if len(here) > 1:
            near = _next(len(here)) if len(data.axes) == 1 else _nearest(place[k, here])
            links[number] = len(near)
            ends[number] = (
                np.cos(np.pi / (len(here) + 1)) if len(data.axes) == 1 else _largest_eigenvalue(near, len(here))
            )
            pairs.append(k * data.mask.shape[1] + here[near])
    series = np.arange(systems)[:, None] * quantities + data.quantity
    return ResidualPairs(np.concatenate(pairs), series.ravel(), counts, links, ends)


def _next(count: int) -> np.ndarray:
    at = np.arange(count)
    return np.stack([at[:-1], at[1:]], axis=1)


def _nearest(place: np.ndarray) -> np.ndarray:
    from scipy.spatial import cKDTree

    found, at = cKDTree(place).query(place, k=2)[1], np.arange(len(place))
    nearest = np.where(found[:, 0] == at, found[:, 1], found[:, 0])  # of places that coincide either may come first
    return np.unique(np.sort(np.stack([at, nearest], axis=1), axis=1), axis=0)


def _largest_eigenvalue(links: np.ndarray, count: int) -> float:
    """The largest sum of products on the unit sphere: an eigenvalue, by power iteration."""
    one, other = links.T

    def apply(x: np.ndarray) -> np.ndarray:
        return 0.5 * (np.bincount(one, x[other], count) + np.bincount(other, x[one], count))

    x = np.ones(count)
    for _ in range(100):
        x = x + apply(x)
        x /= np.linalg.norm(x)
    return float(x @ apply(x))
