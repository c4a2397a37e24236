"""What figures and the report need to know about a run or a forecast, as plain arrays and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class BandView:
    """How sure a law is, on the grid of its view; (n,) each.

    - `sd`, `low`, `high`: posterior standard deviation, and the ends of the pointwise 95 % band.
    - `slope`, `slope_low`, `slope_high`: the law's derivative in its first input, mean and 95 % band.
    - `draws`: (draw, n), some draws of the posterior.
    - `prior_sd`, `prior` (ends of the 95 % band): before data; None where the law has no prior over functions.
    """

    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    slope: np.ndarray
    slope_low: np.ndarray
    slope_high: np.ndarray
    draws: np.ndarray
    prior_sd: np.ndarray | None = None
    prior: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class ClosureView:
    """One closure f, evaluated on a grid of its inputs, with where the systems went.

    - `grid`: (n, inputs), the points where f is shown; `value`: (n,), f there.
    - `density`: (n,), density of the visited inputs (integrates to about 1).
    - `support`: the interval in which data supported f, for one input, otherwise None; `gaps`: where in it they did not.
    - `truth`: (n,), the true f where it is known.
    - `known`: f was given (an oracle run), not learned.
    - `supported`: (n,), did data support f there?
    - `band`: how sure f is; None where it is a single function.
    """

    name: str
    inputs: tuple[str, ...]
    grid: np.ndarray
    value: np.ndarray
    density: np.ndarray
    support: tuple[float, float] | None
    truth: np.ndarray | None
    known: bool = False
    supported: np.ndarray | None = None
    gaps: tuple[tuple[float, float], ...] = ()
    band: BandView | None = None

    @property
    def inside(self) -> np.ndarray:
        """(n,): does a point lie where data supported f? Of one input."""
        x = self.grid[:, 0]
        low, high = self.support or (-np.inf, np.inf)
        held = [(x > start) & (x < stop) for start, stop in self.gaps]
        return (x >= low) & (x <= high) & ~np.any([np.zeros(len(x), bool), *held], axis=0)

    @property
    def undecided(self) -> list[tuple[float, float]]:
        """The stretches of the grid where data did not support f. Of one input."""
        first, last = self.grid[:, 0].min(), self.grid[:, 0].max()
        low, high = self.support or (first, last)
        clipped = [(max(a, first), min(b, last)) for a, b in ((first, low), *self.gaps, (high, last))]
        return [(float(start), float(stop)) for start, stop in clipped if stop > start]

    @property
    def undecided_label(self) -> str:
        return "no data here" if self.band is None else "not decided by data"

    def value_label(self, name: str) -> str:
        """What the line is, of a law that is called so."""
        return f"given {name}" if self.known else f"learned {name}" if self.band is None else f"{name}, posterior mean"

    def limits(self) -> tuple[float, float] | None:
        """Limits that show f, and its band, where there are data; extrapolation gets at most as much room again."""
        curves = [self.value if part is None else part for part in (self.value, self.truth)]
        curves += [] if self.band is None else [self.band.low, self.band.high]
        return self._around(np.stack(curves))

    def slope_limits(self) -> tuple[float, float] | None:
        """The same for the law's derivative."""
        band = self.band
        if band is None:
            return None
        true = [] if self.truth is None else [self.true_slope()]
        return self._around(np.stack([band.slope, band.slope_low, band.slope_high, *true]))

    def true_slope(self) -> np.ndarray:
        """(n,): the derivative of the true law, where that is known. Of one input."""
        assert self.truth is not None
        order = np.argsort(self.grid[:, 0])
        slope = np.empty(len(order))
        slope[order] = np.gradient(self.truth[order], self.grid[order, 0])
        return slope

    def _around(self, curves: np.ndarray) -> tuple[float, float] | None:
        inside = self.inside if self.inside.any() else np.ones(len(self.grid), bool)
        seen, every = (part[np.isfinite(part)] for part in (curves[:, inside], curves))
        if not seen.size or np.ptp(every) == 0:
            return None
        room = np.ptp(seen) or np.ptp(every)
        bottom, top = max(every.min(), seen.min() - room), min(every.max(), seen.max() + room)
        return float(bottom - 0.05 * room), float(top + 0.05 * room)

    def visited_level(self) -> float | None:
        """The density above which 99 % of the visited inputs lie, on an even grid; None if unknown."""
        ordered = np.sort(self.density)[::-1]
        if ordered.size != len(self.grid) or not np.isfinite(ordered).all() or ordered.sum() <= 0:
            return None
        return float(ordered[np.searchsorted(ordered.cumsum(), 0.99 * ordered.sum())])


@dataclass(frozen=True, eq=False)
class ResidualView:
    """Standardised residuals of one quantity, which scatter like standard normal numbers where all is well.

    - `x`, `residual`, `odd`: (observation,), where each lies `along` an axis, its mean over draws, and does its system stand out?
    - `run_x`, `run_mean`, `run_band`: (run,), means of observations that follow each other, and how far noise takes these.
    - `expected`, `low`, `high`, `ordered`: (rank,), residuals in order: of normal numbers, their 95 % band, and of the data.
    """

    quantity: str
    along: str
    x: np.ndarray
    residual: np.ndarray
    odd: np.ndarray
    run_x: np.ndarray
    run_mean: np.ndarray
    run_band: np.ndarray
    expected: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ordered: np.ndarray


@dataclass(frozen=True, eq=False)
class TraceView:
    """One variable above the systems: of each of its scalars a label, draws (chain, draw, scalar), and the truth where known."""

    title: str
    labels: tuple[str, ...]
    draws: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """A finished run as the figures see it.

    - `verdict`: first line the verdict, then reasons and what to do.
    - `parameters`, `labels`: physical names ("k") and their unconstrained names ("log k").
    - `theta`, `physical`: (chain, draw, system, parameter), unconstrained and physical scale.
    - `groups`: (chain,), which chains share a preconditioner.
    - `mu`, `tau`: (chain, draw, parameter), population mean and variance; None without hierarchy.
    - `population`: everything inferred above the systems, by name.
    - `axes`, `grid`: coordinates by name, and the points (point, axis) of a solution; `shape` where they form a tensor grid,
      `triangles` where they are a mesh.
    - `fit_mean`, `fit_low`, `fit_high`: (system, quantity, point), mean and 95 % band.
    - `surrogate_fit`: like `fit_mean`, as the surrogate says it; None where there is none. `surrogate_apart`: how far it is
      from that, in units of the noise.
    - `observations`: columns system, one per coordinate, quantity, value, sigma, and low and high: the ends of its error bar.
      `bar_label`, `residual_label`, `scale_label`: what error bars, residuals and sigma are under this noise.
    - `history`: columns iteration, acceptance, loglik, temperature, step_size, phase.
    - `summary`: columns level, system, parameter, mean, sd, 2.5%, 97.5%, rhat, ess_bulk, ess_tail, the population first;
      `truth_summary`: (row,), what is true of it.
    - `residuals`: of each quantity; `checks`: columns level, system, quantity, check, observations, value, low, high, p,
      p_adjusted, off.
    - `truth_*`: the truth of synthetic data, unconstrained; None on real data, NaN where unknown.
    """

    title: str
    converged: bool
    verdict: list[str]
    parameters: tuple[str, ...]
    labels: tuple[str, ...]
    systems: tuple[str, ...]
    theta: np.ndarray
    physical: np.ndarray
    groups: np.ndarray
    mu: np.ndarray | None
    tau: np.ndarray | None
    grid: np.ndarray
    quantities: tuple[str, ...]
    fit_mean: np.ndarray
    fit_low: np.ndarray
    fit_high: np.ndarray
    observations: pd.DataFrame
    closures: list[ClosureView]
    history: pd.DataFrame
    metrics: Mapping[str, object]
    settings: Mapping[str, object]
    summary: pd.DataFrame
    truth_theta: np.ndarray | None
    truth_mu: np.ndarray | None
    truth_tau: np.ndarray | None
    truth_fit: np.ndarray | None
    surrogate_fit: np.ndarray | None = None
    axes: tuple[str, ...] = ("time",)
    shape: tuple[int, ...] | None = None
    triangles: np.ndarray | None = None
    truth_summary: np.ndarray | None = None
    residuals: Sequence[ResidualView] = ()
    checks: pd.DataFrame | None = None
    surrogate_apart: np.ndarray | None = None
    bar_label: str = "data ± σ"
    residual_label: str = "(data − fit) / σ"
    scale_label: str = "Standard deviation of the measurement noise."
    population: Sequence[TraceView] = ()

    def spread(self, count: int) -> np.ndarray:
        """At most `count` systems, spread along the direction in which the estimates differ most."""
        means = np.nan_to_num(self.theta.mean((0, 1)))
        scaled = (means - means.mean(0)) / np.maximum(means.std(0), 1e-12)
        direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
        # The sign of a singular vector is free: fix it, so that the same systems are picked everywhere.
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        order = np.argsort((scaled @ direction).round(9), kind="stable")
        return np.sort(order[evenly(len(order), count)])

    def population_density(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """N(x; mu, tau) of one parameter: x, and rows 2.5 %, mean, 97.5 % over the draws of (mu, tau)."""
        assert self.mu is not None
        assert self.tau is not None
        mu, tau = self.mu[..., index].ravel(), self.tau[..., index].ravel()
        means, reach = self.theta[..., index].mean((0, 1)), 3.3 * np.sqrt(np.median(tau))
        x = np.linspace(min(means.min(), mu.mean() - reach), max(means.max(), mu.mean() + reach), 300)
        kept = evenly(mu.size, 1000)
        curves = normal_density(x, mu[kept, None], tau[kept, None])
        low, high = np.quantile(curves, [0.025, 0.975], axis=0)
        return x, np.stack([low, curves.mean(0), high])

    def physical_ticks(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Where round physical values of a parameter lie on its unconstrained axis: (places, values).

        Read off the draws, so that any monotone transform will do; empty where the two scales are the same or
        the physical value is not a function of this parameter alone.
        """
        x, order = np.unique(self.theta[..., index], return_index=True)
        value = self.physical[..., index].ravel()[order].astype(float)
        kept = evenly(x.size, 200)
        x, value = x[kept], value[kept]
        sign = np.sign(value[-1] - value[0])
        known = self.labels[index] != self.parameters[index] and np.isfinite(value).all() and np.ptp(value) > 0
        if not known or (np.diff(sign * value) < -1e-4 * np.ptp(value)).any():
            return np.empty(0), np.empty(0)
        marks = _round_values(float(value.min()), float(value.max()))
        return np.interp(sign * marks, np.maximum.accumulate(sign * value), x), marks

    def seen(self, system: int, quantity: int) -> pd.DataFrame:
        """Observations of one quantity of one system."""
        table = self.observations
        return table[(table["system"] == self.systems[system]) & (table["quantity"] == self.quantities[quantity])]

    def shown_chains(self) -> np.ndarray:
        """At most eight chains, as many from each group."""
        kinds = np.unique(self.groups)[:8]
        return np.concatenate([np.flatnonzero(self.groups == kind)[: 8 // len(kinds)] for kind in kinds])


@dataclass(frozen=True, eq=False)
class Forecast:
    """- `after`, `before`: columns system, one per coordinate, quantity, 2.5%, 97.5%, mean, and those of a measurement;
      `before` is what the population said without data, None where it is not shown.
    - `observed`: columns system, one per coordinate, quantity, value.
    - `titles`: a sentence for each system.
    - `grid`: the places of `after` in their order (point, axis), of a structured `shape`, or else joined by `triangles`.
    """

    axes: tuple[str, ...]
    systems: tuple[str, ...]
    quantities: tuple[str, ...]
    after: pd.DataFrame
    before: pd.DataFrame | None
    observed: pd.DataFrame
    titles: list[str]
    grid: np.ndarray
    shape: tuple[int, ...] | None
    triangles: np.ndarray | None


def evenly(total: int, count: int) -> np.ndarray:
    """At most `count` indices spread evenly over range(total), first and last included."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int))


def normal_density(x: np.ndarray, mean: np.ndarray | float, variance: np.ndarray | float) -> np.ndarray:
    variance = np.maximum(variance, 1e-12)
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def counted(some: int, everything: int, what: str) -> str:
    """'3 of 12 systems', '1 chain'."""
    plural = what if everything == 1 else f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{some} of {everything} {plural}" if some < everything else f"{some} {plural}"


def label(text: str, limit: int = 24) -> str:
    """A name as text for a figure: one line, not too long, a dollar sign not taken for mathematics."""
    line = " ".join(str(text).split())
    if len(line) > limit:
        line = f"{line[: limit - limit // 3 - 1]}…{line[-(limit // 3) :]}"
    return line.replace("$", r"\$")


def _round_values(low: float, high: float) -> np.ndarray:
    if low > 0 and high > 15 * low:
        digits = [1, 2, 5] if high < 150 * low else [1]
        marks = np.outer(10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high) + 1), digits).ravel()
    else:
        step = 10 ** np.floor(np.log10((high - low) / 5))
        step *= next(digit for digit in (1, 2, 5, 10) if digit * step >= (high - low) / 5)
        marks = step * np.arange(np.ceil(low / step), high / step + 1)
    return marks[(marks >= low) & (marks <= high)]
