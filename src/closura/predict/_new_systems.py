"""A new machine: what the fleet says of it before its data, what it is like after, and whether it belongs."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd

from ..data import DataError, Observations, read_table
from ..diagnose import LEVEL, Membership, membership
from ..equations import Equation, align_data, bind_inputs
from ..forward import likelihood
from ..laws import SolverLaws
from ..population import PopulationDraws, alone
from ..show import Forecast
from ._fleet import Fleet, not_stated, summary_of
from ._forecast import beyond_support, grid_for, noise_sizes, pushed, some_draws, summarised
from ._infer import CURVES, FIELDS, infer

NAMED = 2.6  # a parameter is named whose best fit is so many times as far off as members' usually are
RHAT_WORTH_A_WORD = 1.1
TOLD = 20


def welcome(fleet: Fleet, table: Any, until: float | None, seed: int = 0, inputs: Any = None) -> "Newcomers":
    """Infer each newcomer on its own, the population and the law being what they are."""
    problem = fleet.problem if until is None else fleet.problem.extended(until)
    data = matched(problem, table, inputs)
    problem = bind_inputs(problem, data)
    stored, wide = fleet.stored(data), alone(fleet.problem.parameters)
    target, (laws, _) = likelihood(problem, data), fleet.laws()
    draws = infer(target, laws, stored, wide, seed, FIELDS if problem.expensive else CURVES, fleet.ranges)
    reference = stored if fleet.hierarchical else _as_population(wide, stored, len(data.systems))
    last, draw = jnp.asarray(draws.theta[-1], float), jnp.asarray(draws.which[-1])
    found = membership(target, target.model(laws), reference, last, seed, draw, fleet.ranges)
    log_sigma = None
    if stored.log_sigma is not None:
        log_sigma = np.where(not_stated(data), np.asarray(stored.log_sigma)[draws.which], np.nan)
    return Newcomers(fleet, problem, data, draws.theta, draws.which, log_sigma, reference, found, draws.rhat)


def matched(problem: Equation, table: Any, inputs: Any = None) -> Observations:
    """Newcomers' data as the problem sees them: any number of observations, of some of its quantities or all."""
    data = table if isinstance(table, Observations) else read_table(table, axes=problem.axes, inputs=inputs)
    missing = tuple(name for name in problem.observed if name not in data.quantities)
    if len(missing) < len(problem.observed):
        data = replace(data, quantities=(*data.quantities, *missing))
    if "time" in data.axes and "time" in problem.axes:
        end, last = problem.bounds[problem.axes.index("time")][1], float(data.time[data.mask].max())
        if last > end + 1e-6 * abs(end):
            raise DataError(
                f"observed at time {last:g}, after the problem's end, {end:g}; make it last longer with until={last:g} "
                f"(--until {last:g}), or check the unit of time"
            )
    return align_data(problem, data)


def _as_population(wide: Any, stored: PopulationDraws, systems: int) -> PopulationDraws:
    """The prior in place of a population."""
    count = stored.count
    center = jnp.broadcast_to(wide.mean, (count, systems, len(wide.mean)))
    white = jnp.broadcast_to(jnp.diag(1 / jnp.sqrt(wide.variance)), (count, len(wide.mean), len(wide.mean)))
    return PopulationDraws(center, white, stored.log_sigma, stored.law)


@dataclass(frozen=True, eq=False)
class Newcomers:
    """Systems that were not in the fit; `print` it: verdicts first.

    - `parameters`: a row for every system and parameter, beside what the population says.
    - `belongs`: name -> does it? `found` has the p-values behind that.
    - `predict()`: as `Result.predict`; `before()`: the same from the population alone.
    - `theta`: posterior draws (draw, system, parameter), unconstrained.
    """

    fleet: Fleet
    problem: Equation
    data: Observations
    theta: np.ndarray
    which: np.ndarray  # the stored draw that each goes with, (draw, system)
    log_sigma: np.ndarray | None
    stored: PopulationDraws
    found: Membership
    rhat: np.ndarray

    @property
    def belongs(self) -> dict[str, bool]:
        """Name -> does it belong to the fleet?"""
        return dict(zip(self.data.systems, self._odd_ones[0].tolist()))

    @property
    def _odd_ones(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Does it belong, do its parameters conflict with the population, does nothing fit? Without a population nothing conflicts."""
        conflict = self.found.prior_conflict & self.fleet.hierarchical
        return ~(conflict | self.found.misfit), conflict, self.found.misfit

    @cached_property
    def prior_draws(self) -> np.ndarray:
        """Theta as the population predicts it without data, (draw, system, parameter)."""
        index = jnp.asarray(self._prior_which)
        shape = (len(index), len(self.data.systems), self.theta.shape[-1])
        return np.asarray(self.stored.theta_from_normal(index, jr.normal(jr.key(1), shape)))

    @property
    def _prior_which(self) -> np.ndarray:
        return np.arange(self.stored.count) if self.stored.count > 1 else np.zeros(1000, int)

    def _laws(self, which: np.ndarray) -> tuple[SolverLaws, int]:
        """At stored draws of each system, (draw, system)."""
        return self.fleet.laws(jax.tree.map(lambda a: a[which], self.stored.law), 2)

    @cached_property
    def parameters(self) -> pd.DataFrame:
        """Physical scale; `sds off`: of its best fit from the population's middle, in population standard deviations."""
        kinds = self.problem.parameters
        own, before = (
            np.asarray(kinds.to_physical(jnp.asarray(t, float)), float) for t in (self.theta, self.prior_draws)
        )
        table, expected = (summary_of(draws, self.data.systems, kinds.names) for draws in (own, before))
        expected = expected.drop(columns=["system", "parameter"]).add_prefix("population ")
        return pd.concat([table, expected], axis=1).assign(**{"sds off": self.found.shift.ravel()})

    def predict(self, times: Any = None) -> pd.DataFrame:
        """Quantities and measurements of each newcomer, its own data counted; on the grid, or at `times`."""
        return self._pushed(self.theta, self.which, self.log_sigma, times)

    def before(self, times: Any = None) -> pd.DataFrame:
        """What the population alone predicts."""
        sizes = (
            None
            if self.stored.log_sigma is None or self.log_sigma is None
            else np.asarray(self.stored.log_sigma)[:, None]
        )
        if sizes is not None and self.log_sigma is not None:
            sizes = np.where(np.isfinite(self.log_sigma[:1]), sizes, np.nan)
        which = np.repeat(self._prior_which[:, None], len(self.data.systems), axis=1)
        return self._pushed(self.prior_draws, which, sizes, times)

    def _pushed(self, theta: np.ndarray, which: np.ndarray, log_sigma: np.ndarray | None, times: Any) -> pd.DataFrame:
        problem, places = grid_for(self.problem, times, None)
        theta, chosen = some_draws(theta, len(self.data.systems) * len(places) * len(problem.observed))
        sizes = noise_sizes(self.fleet, self.data, None if log_sigma is None else log_sigma[chosen])
        paths = pushed(problem, self.data, self._laws(which[chosen]), theta, places)
        return summarised(problem, self.data.systems, places, paths, sizes)

    @cached_property
    def notes(self) -> list[str]:
        """What to know before relying on this."""
        said = list(self.fleet.notes)
        if not self.fleet.hierarchical:
            said.append("the fit inferred no population (hierarchy=False): newcomers are judged by the prior alone")
        known = [name for name in self.data.systems if name in self.fleet.data.systems]
        if known:
            some = ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")
            said.append(f"called like a system of the fit: {some}; taken for another one, whose data are these alone")
        apart = np.flatnonzero(~(self.rhat < RHAT_WORTH_A_WORD))
        if apart.size:
            some = ", ".join(self.data.systems[k] for k in apart[:3]) + (" ..." if apart.size > 3 else "")
            said.append(f"chains of {some} do not agree well (R-hat {self.rhat.max():.3g}): take intervals with care")
        said += beyond_support(self.problem, self.data, self.fleet.closures, self._laws(self.which), self.theta)
        return said + [note for note in self.data.notes if note not in said]

    @cached_property
    def verdicts(self) -> list[str]:
        """A sentence for each newcomer: does it belong, and if not, why."""
        return [self._verdict(k) for k in range(len(self.data.systems))]

    def _verdict(self, k: int) -> str:
        name, count = self.data.systems[k], int(self.data.counts[k])
        belongs, conflict, misfit = (bool(each[k]) for each in self._odd_ones)
        seen = f"{count} observation{'s' * (count != 1)}"
        if belongs and not self.fleet.hierarchical:
            return f"{name}: can be fitted ({self._p(self.found.misfit_p[k])}; {seen})"
        if belongs:
            return f"{name}: belongs to the fleet ({self._p(self.found.conflict_p[k])}; {seen})"
        why = []
        if misfit:
            why.append(
                f"no parameters fit its data (residual chi-square {self.found.chi_square[k]:.3g}, {self._p(self.found.misfit_p[k])}): "
                "the law may not hold for it, or its noise is larger than stated"
            )
        if conflict:
            why.append(f"{self._named(k)} ({self._p(self.found.conflict_p[k])})")
        return f"{name}: DOES NOT BELONG to the fleet: {'; and '.join(why)}; {seen}"

    def _p(self, p: float) -> str:
        least = 1 / (1 + self.found.members)
        return "p unknown" if np.isnan(p) else f"p < {2 * least:.1g}" if p <= least * 1.01 else f"p = {p:.2g}"

    def _named(self, k: int) -> str:
        """The parameters that are off, and by how much."""
        rows = self.parameters[self.parameters["system"] == self.data.systems[k]]
        score = np.abs(self.found.score[k])
        order = [j for j in np.argsort(-score) if score[j] > NAMED] or [int(np.argmax(score))]
        told = []
        for j in order:
            row = rows.iloc[j]
            told.append(
                f"{row['parameter']} = {row['mean']:.4g} ({row['2.5%']:.4g} to {row['97.5%']:.4g}) where members have "
                f"{row['population 2.5%']:.4g} to {row['population 97.5%']:.4g}, {row['sds off']:+.1f} population sds"
            )
        return "; ".join(told)

    def __str__(self) -> str:
        fits = self._odd_ones[0]
        shown = [line for line, fine in zip(self.verdicts, fits) if not fine]
        shown += [line for line, fine in zip(self.verdicts, fits) if fine]
        lines = shown[:TOLD]
        if len(shown) > 1:
            chance = f" (about {LEVEL * len(fits):.0f} would look odd by chance)" if LEVEL * len(fits) >= 1 else ""
            lines = [f"{int(fits.sum())} of {len(fits)} newcomers belong to the fleet{chance}.", *lines]
        if len(shown) > TOLD:
            lines.append(f"... and {len(shown) - TOLD} more; all of them in `parameters`")
        if len(fits) <= TOLD:
            table = self.parameters.set_index(["system", "parameter"])
            lines += ["", table.to_string(float_format=lambda x: f"{x:.4g}")]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def plot(self) -> Any:
        """Data, forecast, and in grey what the population said before; of at most six newcomers."""
        from ..show._forecast import forecast

        return forecast(self.view)

    @cached_property
    def view(self) -> Forecast:
        fits = self._odd_ones[0]
        order = np.argsort(fits, kind="stable")  # who does not belong comes first
        systems = tuple(self.data.systems[k] for k in order)
        titles = [f"{self.data.systems[k]}: {'belongs' if fits[k] else 'DOES NOT BELONG'}" for k in order]
        whole = view_of(self.problem, self.data, self.predict(), self.before(), titles)
        return replace(whole, systems=systems)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write predictions.csv, parameters.csv and a picture."""
        from ._files import save

        columns = {
            "belongs": self._odd_ones[0],
            "p parameters": np.where(self.fleet.hierarchical, self.found.conflict_p, np.nan),
            "p fit": self.found.misfit_p,
        }
        judged = pd.DataFrame({"system": self.data.systems, **columns})
        return save(folder, self.predict(), self.parameters.merge(judged, on="system"), self.view, overwrite=overwrite)


def view_of(
    problem: Equation, data: Observations, after: pd.DataFrame, before: pd.DataFrame | None, titles: list[str]
) -> Forecast:
    grid = problem.points, problem.shape, problem.triangles
    return Forecast(problem.axes, data.systems, problem.observed, after, before, data.rows(), titles, *grid)
