"""Posterior predictive: data replicated at posterior draws, where and as the real ones were observed, and how the two compare."""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Array, PRNGKeyArray

from .._compile import jit_soon
from ..data import Observations
from ..diagnose import predicted, solved_draws
from ..forward import Noise
from ..learning import Run
from ..show import ResidualView, evenly

LEAST, MOST, NUMBERS = 100, 200, 4_000_000
STREAM = 7_345  # of the run's seed: apart from all it draws elsewhere
DOTS, STEPS = 3_000, 400  # what a figure shows at most


@dataclass(frozen=True, eq=False)
class Replicas:
    """Predictions at some posterior draws, and data replicated from them; `chain` and `draw` number those in the posterior.

    Arrays are (draw, system, observation), draws of a chain together.
    """

    data: Observations
    noise: Noise
    chain: np.ndarray
    draw: np.ndarray
    predicted: np.ndarray
    sigma: np.ndarray
    value: np.ndarray

    @cached_property
    def residual(self) -> np.ndarray:
        """Standardised, of the real data; standard normal numbers, whatever the noise, where all is well. Padding is zero."""
        return self._residual(self.predicted, self.sigma)

    def _residual(self, predicted: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.data.mask, self.noise.quantile_residuals(self.data.value, predicted, sigma), 0.0)

    @cached_property
    def inside(self) -> np.ndarray:
        """(system, observation): within the central 95 % of its predictive distribution?"""
        from scipy.special import ndtr

        return np.abs(ndtr(self.residual).mean(axis=0) - 0.5) < 0.475

    def chi_square(self, sigma: np.ndarray) -> float:
        """Mean squared residual of the mean prediction, noise of this size."""
        residual = self._residual(self.predicted.mean(axis=0), sigma)[self.data.mask]
        return float(np.mean(residual**2)) if residual.size else float("nan")

    def dataset(self) -> xr.Dataset:
        """The replicated data in ArviZ's schema: `value`, as in observed_data."""
        shape = (len(self.chain), len(self.draw), *self.data.mask.shape)
        value = np.where(self.data.mask, self.value, np.nan).reshape(shape).astype(np.float32)
        coords = {"chain": self.chain, "draw": self.draw, "system": list(self.data.systems)}
        note = "replicated data at some draws of the posterior: chain and draw number them there"
        return xr.Dataset({"value": (("chain", "draw", "system", "observation"), value)}, coords, {"note": note})


def replicate(run: Run) -> Replicas:
    """From 100 to 200 draws spread over the chains (all of them where there are fewer); the run's seed decides the noise."""
    theta, log_sigma, data, target = run.theta(), run.log_sigma(), run.data, run.setup.exact
    most = int(np.clip(NUMBERS // max(1, data.mask.size), LEAST, MOST))
    chain, draw = spread_over(theta.shape[0], theta.shape[1], most)
    some = np.ix_(chain, draw)
    chosen = jnp.asarray(theta[some].reshape(-1, *theta.shape[2:]))
    numbers = theta.shape[1] * chain[:, None] + draw
    # By the likelihood's own forward model: observations need not lie on the time grid.
    expected = jnp.asarray(solved_draws(np.asarray(predicted(target, chosen, *run.views_at(numbers.ravel())))))
    sigma = data.sigma
    if log_sigma is not None:
        inferred = np.exp(log_sigma[some]).reshape(-1, log_sigma.shape[-1]).astype(float)[:, data.quantity]
        sigma = np.where(np.isnan(sigma), inferred, sigma)
    key = jr.fold_in(jr.key(run.settings.seed), STREAM)
    value = _sampled(target.noise, key, expected, jnp.asarray(sigma, float))
    arrays = (np.asarray(a, float) for a in (expected, sigma, value))
    return Replicas(data, target.noise, chain, draw, *arrays)


@jit_soon
def _sampled(noise: Noise, key: PRNGKeyArray, expected: Array, sigma: Array) -> Array:
    return noise.sample(key, expected, sigma)


def spread_over(chains: int, draws: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """As many of each as make at most about `most` together, and at least 100: the middles of equal parts."""
    some = min(chains, most)
    each = most // some
    each = min(draws, each if some * each >= LEAST else each + 1)
    return _middles(chains, some), _middles(draws, each)


def _middles(total: int, count: int) -> np.ndarray:
    return ((np.arange(count) + 0.5) * total / count).astype(int)


def noise_by_quantity(rows: pd.DataFrame, data: Observations) -> pd.DataFrame:
    """(system, quantity): the median sigma of rows like `Observations.rows`; of all systems where one has none, or else NaN."""
    own = rows.groupby(["system", "quantity"])["sigma"].median().unstack("quantity")
    whole = own.reindex(index=list(data.systems), columns=list(data.quantities))
    return whole.fillna(rows.groupby("quantity")["sigma"].median())


def residual_views(replicas: Replicas, table: pd.DataFrame) -> list[ResidualView]:
    """Residuals of each quantity for a figure, from a table of checks: systems that stand out are told apart there."""
    if not np.isfinite(replicas.residual).all():
        return []
    data, odd = replicas.data, table.loc[table["off"] & (table["level"] == "system"), "system"]
    marked = np.isin(data.systems, odd)[:, None] & data.mask
    views = []
    for number, quantity in enumerate(data.quantities):
        here = data.mask & (data.quantity == number)
        if here.any():
            mean = replicas.predicted[:, here].mean(axis=0)
            along = ("time", data.time[here]) if "time" in data.axes else (f"predicted {quantity}", mean)
            views.append(_residual_view(quantity, *along, replicas.residual[:, here], marked[here]))
    return views


def _residual_view(quantity: str, along: str, x: np.ndarray, residual: np.ndarray, odd: np.ndarray) -> ResidualView:
    """Of residuals (draw, observation).

    Runs of equally many observations show what they have in common; ordered residuals, averaged over draws, stand against
    those of as many normal numbers.
    """
    from scipy.special import betaincinv, ndtri

    count, mean = residual.shape[1], residual.mean(axis=0)
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, int(np.clip(count // 15, 1, 25)))
    steps = evenly(count, STEPS)
    rank = steps + 1.0
    low, expected, high = (ndtri(betaincinv(rank, count + 1 - rank, q)) for q in (0.025, 0.5, 0.975))
    shown = evenly(count, DOTS)
    return ResidualView(
        quantity=quantity,
        along=along,
        x=x[order[shown]],
        residual=mean[order[shown]],
        odd=odd[order[shown]],
        run_x=np.array([x[part].mean() for part in parts]),
        run_mean=np.array([mean[part].mean() for part in parts]),
        run_band=np.array([1.96 / np.sqrt(len(part)) for part in parts]),
        expected=expected,
        low=low,
        high=high,
        ordered=np.sort(residual, axis=1).mean(axis=0)[steps],
    )
