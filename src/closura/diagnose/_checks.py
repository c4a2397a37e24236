"""Posterior predictive checks: do the data look like data of this fit?

Residuals are compared, draw by draw, with those of data replicated at that draw. On the scale of the noise the latter are
standard normal numbers whatever the draw, so that every draw has its p-value without simulation, and the posterior
predictive one is their mean. Though parameters were fitted to the same data, it falls below a level at most twice as often
as it should (Meng 1994), in practice more seldom.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..data import Observations

ALPHA = 0.02  # of all checks of a level together; a healthy fleet has something said against it more seldom
# How far from what replicated data give it must be to matter: with very many observations anything is significant.
LEAST = {"chi_square": 0.1, "largest": 0.0, "autocorrelation": 0.05, "inside": 0.01, "pattern": 0.02}
INSIDE = 0.95
MOST_CELLS = {1: 12, 2: 4}  # along an axis, by their number
IN_CELL = 8  # observations at least, on average
ENDS = np.array([0.025, 0.975])


class Found(NamedTuple):
    """What a check found: a figure, the central 95 % of it in replicated data, and its p-value."""

    value: float
    low: float
    high: float
    p: float


NOTHING = Found(*[float("nan")] * 4)
Row = dict[str, str | float]


class ResidualPairs(NamedTuple):
    """Pairs (pair, 2) of neighbouring observations of one system and quantity: in time one and the next, in fields the nearest;
    by their places in the flattened arrays. And of every series, that is every system and quantity, how many observations and
    pairs it has, and the largest value of its sum of products on the unit sphere."""

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


def check_table(residual: np.ndarray, inside: np.ndarray, data: Observations) -> pd.DataFrame:
    """Checks of every system, of all (each quantity by itself), and of all without those that stand out.

    - `residual`: (draw, system, observation), standardised, standard normal where all is well.
    - `inside`: (system, observation), was it within the central 95 % of its predictive distribution?

    Columns level, system, quantity, check, observations, value, low, high, p, p_adjusted (by Holm, within a level), off. The
    figures: `chi_square`, mean squared residual; `largest` residual; `autocorrelation` of neighbours (in time; in fields each
    with the nearest); share `inside`; and of all systems `pattern`: the share of squares in means over stretches of time (or cells of
    places). The size of the noise, also of one system alone, does not matter to autocorrelation and pattern.
    """
    near = residual_pairs(data)
    unit = _of_unit_size(residual, data)

    def tested(level: str, system: str, quantity: str, chosen: np.ndarray) -> Iterator[Row]:
        mine, even = (part[:, chosen].astype(float, copy=False) for part in (residual, unit))
        tests = {
            "chi_square": lambda: chi_square(mine),
            "largest": lambda: largest(mine),
            "autocorrelation": lambda: autocorrelation(even, near.within(chosen)),
            "inside": lambda: share_inside(inside[chosen]),
        }
        if level != "system":
            tests["pattern"] = lambda: pattern(even, data.place[chosen])
        for check, test in tests.items():
            about = {"level": level, "system": system, "quantity": quantity, "check": check}
            found = test() if np.isfinite(mine).all() else NOTHING
            yield {**about, "observations": int(chosen.sum()), **found._asdict()}

    def together(level: str, systems: np.ndarray) -> Iterator[Row]:
        for number, quantity in enumerate(data.quantities):
            chosen = data.mask & (data.quantity == number) & systems[:, None]
            if chosen.any():
                yield from tested(level, "", quantity, chosen)

    every = np.arange(len(data.systems))
    alone = (tested("system", data.systems[k], "", data.mask & (every == k)[:, None]) for k in every)
    own = _adjusted(chain.from_iterable(alone))
    odd = np.isin(data.systems, own.loc[own["off"], "system"])
    tables = [_adjusted(together("fleet", every >= 0))]
    if odd.any() and not odd.all():
        tables.append(_adjusted(together("others", ~odd)))
    return pd.concat([*tables, own], ignore_index=True)


def _adjusted(rows: Iterable[Row]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows))
    adjusted = holm(table["p"].to_numpy())
    apart = (table["value"] - 0.5 * (table["low"] + table["high"])).abs()
    return table.assign(p_adjusted=adjusted, off=(adjusted < ALPHA) & (apart > table["check"].map(LEAST)))


def holm(p: np.ndarray) -> np.ndarray:
    """p-values adjusted for their number (Holm 1979); those that are NaN do not count."""
    order = np.argsort(p)  # NaN last
    count = int(np.isfinite(p).sum())
    raised = np.fmin(1.0, np.maximum.accumulate(p[order][:count] * np.arange(count, 0, -1)))
    adjusted = np.full(p.shape, np.nan)
    adjusted[order[:count]] = raised
    return adjusted


def chi_square(residual: np.ndarray) -> Found:
    """Mean square of residuals (draw, observation)."""
    from scipy.special import chdtrc, chdtri

    count = residual.shape[1]
    squares = np.sum(residual**2, axis=1)
    low, high = (chdtri(count, 1 - ENDS) / count).tolist()
    return Found(float(squares.mean()) / count, low, high, _two_sided(chdtrc(count, squares)))


def largest(residual: np.ndarray) -> Found:
    from scipy.special import ndtr, ndtri

    count, farthest = residual.shape[1], np.abs(residual).max(axis=1)
    low, high = (-ndtri(-0.5 * np.expm1(np.log(ENDS) / count))).tolist()
    p = -np.expm1(count * np.log1p(-2 * ndtr(-farthest)))
    return Found(float(farthest.mean()), low, high, float(p.mean()))


def autocorrelation(residual: np.ndarray, near: ResidualPairs) -> Found:
    """Mean product of neighbours, residuals of unit size.

    Of independent normal numbers that is a quadratic form on a sphere (one for every system and quantity), whose variance is
    known, and which is close to a beta distribution between its ends (Durbin and Watson 1951).
    """
    from scipy.special import betainc, betaincinv

    links = len(near.pairs)
    if not links:
        return NOTHING
    one, other = near.pairs.T
    form = np.einsum("dp,dp->d", residual[:, one], residual[:, other])
    end = float(np.sum(near.counts * near.ends))
    variance = float(np.sum(near.counts * near.links / (near.counts + 2)))
    shape = max(0.5 * (end**2 / variance - 1), 0.5)
    low, high = (end / links * (2 * betaincinv(shape, shape, ENDS) - 1)).tolist()
    above = betainc(shape, shape, np.clip(0.5 - 0.5 * form / end, 0.0, 1.0))
    return Found(float(form.mean()) / links, low, high, _two_sided(above))


def share_inside(inside: np.ndarray) -> Found:
    """Too few only: of data the fit has seen, more than their share lie inside."""
    from scipy.special import bdtr

    count, within = inside.size, int(inside.sum())
    low, high = (np.searchsorted(bdtr(np.arange(count + 1), count, INSIDE), ENDS) / count).tolist()
    return Found(within / count, low, high, float(bdtr(within, count, INSIDE)))


def pattern(residual: np.ndarray, place: np.ndarray) -> Found:
    """Of residuals (draw, observation) of unit size at places (observation, axis): do they leave zero together anywhere?

    The share of their squares that is in means over cells.
    """
    from scipy.special import betainc, betaincinv

    cell = _cells(place)
    sizes = np.bincount(cell)
    if len(sizes) < 2:
        return NOTHING
    sums = np.stack([residual[:, cell == c].sum(axis=1) for c in range(len(sizes))], axis=1)
    share = np.sum(sums**2 / sizes, axis=1) / np.sum(residual**2, axis=1)
    shared, rest = 0.5 * len(sizes), 0.5 * (len(cell) - len(sizes))
    low, high = betaincinv(shared, rest, ENDS).tolist()
    return Found(float(share.mean()), low, high, float(betainc(rest, shared, np.clip(1 - share, 0.0, 1.0)).mean()))


def _cells(place: np.ndarray) -> np.ndarray:
    """(observation,): the number of the cell a place lies in; cells hold about as many along each axis, and none is empty."""
    count, axes = place.shape
    most = int(min(MOST_CELLS.get(axes, 2), (count / IN_CELL) ** (1 / axes)))
    if most < 2:
        return np.zeros(count, int)
    inner = np.arange(1, most) / most
    columns = [np.searchsorted(np.unique(np.quantile(x, inner, method="higher")), x, side="right") for x in place.T]
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _of_unit_size(residual: np.ndarray, data: Observations) -> np.ndarray:
    """Mean square one for every draw, system and quantity: no system speaks louder than the others."""
    member = data.mask[..., None] & (data.quantity[..., None] == np.arange(len(data.quantities)))
    squares = np.einsum("dso,soq->dsq", residual**2, member.astype(residual.dtype))
    size = np.sqrt(squares / np.maximum(member.sum(axis=1), 1))
    mine = np.take_along_axis(size, np.broadcast_to(data.quantity, residual.shape), axis=-1)
    return residual / np.where(mine > 0, mine, 1.0)


def _two_sided(above: np.ndarray) -> float:
    """From p-values, a draw each, of values this large."""
    p = float(np.mean(above))
    return min(1.0, 2 * min(p, 1 - p))


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
        if len(here) < 2:
            continue
        if len(data.axes) == 1:
            near = np.arange(len(here) - 1)[:, None] + np.arange(2)
            ends[number] = np.cos(np.pi / (len(here) + 1))
        else:
            near = _nearest(place[k, here])
            ends[number] = _largest_eigenvalue(near, len(here))
        links[number] = len(near)
        pairs.append(k * data.mask.shape[1] + here[near])
    series = np.arange(systems)[:, None] * quantities + data.quantity
    return ResidualPairs(np.concatenate(pairs), series.ravel(), counts, links, ends)


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
