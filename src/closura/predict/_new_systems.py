"""A new machine: what the fleet says of it before its data, what it is like after, and whether it belongs."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd

from ..data import DataError, Observations, read_table
from ..diagnose import LEVEL, Membership, membership
from ..equations import Equation, align_data, bind_inputs
from ..forward import likelihood
from ..population import Independent, PopulationDraws, alone
from ..show import Forecast
from ._extrapolation import Joint, remarks_on, survey
from ._fleet import Fleet, not_stated, summary_of
from ._forecast import forecast_view, grid_for, pushed, save_predictions
from ._infer import infer

NAMED = 2.6  # a parameter is named whose best fit is so many times as far off as members' usually are
RHAT_WORTH_A_WORD = 1.1
FEW = 20  # stored draws that a posterior takes at least
TOLD = 20


def new_systems(fleet: Fleet, table: object, until: float | None, seed: int = 0, inputs: object = None) -> "Newcomers":
    """Infer each new system on its own, the population and the law being what they are."""
    problem = fleet.problem if until is None else fleet.problem.extended(until)
    data = matched(problem, table, inputs)
    problem = bind_inputs(problem, data)
    stored, prior = fleet.stored(data), alone(fleet.problem.parameters)
    target, (laws, _) = likelihood(problem, data), fleet.laws()
    draws = infer(target, laws, stored, prior, seed, fleet.stored_tables)
    reference = stored if fleet.hierarchical else _as_population(prior, stored, len(data.systems))
    last, draw = jnp.asarray(draws.theta[-1], float), jnp.asarray(draws.which[-1])
    some_laws, _ = fleet.stored_laws(np.zeros((), int))
    found = membership(target, target.model(some_laws), reference, last, seed, draw, fleet.stored_tables)
    if not fleet.hierarchical:  # nothing conflicts with a population that there is not
        found = found._replace(conflict_p=np.full_like(found.conflict_p, np.nan))
    log_sigma = None
    if stored.log_sigma is not None:
        log_sigma = np.where(not_stated(data), np.asarray(stored.log_sigma)[draws.which], np.nan)
    return Newcomers(fleet, problem, data, draws.theta, draws.which, log_sigma, reference, found, draws.rhat)


def matched(problem: Equation, table: object, inputs: object = None) -> Observations:
    """Data of new systems as the problem sees them: any number of observations, of some of its quantities or all."""
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


def _as_population(prior: Independent, stored: PopulationDraws, systems: int) -> PopulationDraws:
    """The prior in place of a population."""
    count, size = stored.count, len(prior.mean)
    center = jnp.broadcast_to(prior.mean, (count, systems, size))
    white = jnp.broadcast_to(jnp.diag(1 / jnp.sqrt(prior.variance)), (count, size, size))
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
        return dict(zip(self.data.systems, self.found.belongs.tolist()))

    @cached_property
    def prior_draws(self) -> np.ndarray:
        """Theta as the population predicts it without data, (draw, system, parameter)."""
        shape = (len(self._prior_which), len(self.data.systems), self.theta.shape[-1])
        return np.asarray(self.stored.theta_from_normal(jnp.asarray(self._prior_which), jr.normal(jr.key(1), shape)))

    @property
    def _prior_which(self) -> np.ndarray:
        return np.arange(self.stored.count) if self.stored.count > 1 else np.zeros(1000, int)

    def _joint(self, theta: np.ndarray, which: np.ndarray, sizes: np.ndarray | None) -> Joint:
        """Draws that belong together; `which` are the stored draws that each goes with, (draw, system)."""
        return Joint(theta, lambda some: self.fleet.stored_laws(which[some]), sizes)

    @cached_property
    def parameters(self) -> pd.DataFrame:
        """Physical scale; `sds off`: of its best fit from the population's middle, in population standard deviations."""
        kinds = self.problem.parameters
        own, before = (np.asarray(kinds.to_physical(draws), float) for draws in (self.theta, self.prior_draws))
        table, expected = (summary_of(draws, self.data.systems, kinds.names) for draws in (own, before))
        expected = expected.drop(columns=["system", "parameter"]).add_prefix("population ")
        return pd.concat([table, expected], axis=1).assign(**{"sds off": self.found.shift.ravel()})

    def predict(self, times: object = None) -> pd.DataFrame:
        """Quantities and measurements of each new system, its own data counted; on the grid, or at `times`."""
        return self._pushed(self._joint(self.theta, self.which, self.log_sigma), times)

    def before(self, times: object = None) -> pd.DataFrame:
        """What the population alone predicts."""
        sizes = None
        if self.log_sigma is not None:
            inferred = np.asarray(self.stored.log_sigma)[self._prior_which, None]
            sizes = np.where(np.isfinite(self.log_sigma[:1]), inferred, np.nan)
        which = np.repeat(self._prior_which[:, None], len(self.data.systems), axis=1)
        return self._pushed(self._joint(self.prior_draws, which, sizes), times)

    def _pushed(self, drawn: Joint, times: object) -> pd.DataFrame:
        problem, places = grid_for(self.problem, times, None)
        return pushed(self.fleet, problem, self.data, places, drawn, survey(self.fleet, problem, self.data, drawn))

    @cached_property
    def notes(self) -> list[str]:
        """What to know before relying on this."""
        said = [*self.fleet.notes, *self.fleet.left_out]
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
        said += self._few()
        drawn = self._joint(self.theta, self.which, self.log_sigma)
        said += remarks_on(survey(self.fleet, self.problem, self.data, drawn), self.fleet, self.data)
        return said + [note for note in self.data.notes if note not in said]

    def _few(self) -> list[str]:
        """Of systems whose data only few stored draws of population and law can explain."""
        if self.stored.count < 10 * FEW:
            return []
        share = np.stack([np.bincount(which, minlength=self.stored.count) for which in self.which.T]) / len(self.which)
        left = 1 / np.sum(share**2, axis=1)
        few = np.flatnonzero(left < FEW)
        some = ", ".join(self.data.systems[k] for k in few[:3]) + (" ..." if few.size > 3 else "")
        said = (
            f"data of {some} single out {left.min():.0f} of {self.stored.count} draws of population and law: they say more of these "
            "than the fleet does; intervals are too narrow; fit again with these data in the table"
        )
        return [said] if few.size else []

    @cached_property
    def verdicts(self) -> list[str]:
        """A sentence for each new system: does it belong, and if not, why."""
        return [self._verdict(k) for k in range(len(self.data.systems))]

    def _verdict(self, k: int) -> str:
        name, count, found = self.data.systems[k], int(self.data.counts[k]), self.found
        seen = f"{count} observation{'s' * (count != 1)}"
        if found.belongs[k] and not self.fleet.hierarchical:
            return f"{name}: can be fitted ({self._p(found.misfit_p[k])}; {seen})"
        if found.belongs[k]:
            return f"{name}: belongs to the fleet ({self._p(found.conflict_p[k])}; {seen})"
        why = []
        if found.misfit[k]:
            why.append(
                f"no parameters fit its data (residual chi-square {found.chi_square[k]:.3g}, {self._p(found.misfit_p[k])}): "
                "the law may not hold for it, or its noise is larger than stated"
            )
        if found.prior_conflict[k]:
            why.append(f"{self._named(k)} ({self._p(found.conflict_p[k])})")
        return f"{name}: DOES NOT BELONG to the fleet: {'; and '.join(why)}; {seen}"

    def _p(self, p: float) -> str:
        least = 1 / (1 + self.found.members)
        return "p unknown" if np.isnan(p) else f"p < {2 * least:.1g}" if p <= least * 1.01 else f"p = {p:.2g}"

    def _named(self, k: int) -> str:
        """The parameters that are off, and by how much."""
        rows = self.parameters[self.parameters["system"] == self.data.systems[k]]
        score = np.abs(self.found.score[k])
        order = [j for j in np.argsort(-score) if score[j] > NAMED] or [int(np.argmax(score))]
        return "; ".join(
            f"{row['parameter']} = {row['mean']:.4g} ({row['2.5%']:.4g} to {row['97.5%']:.4g}) where members have "
            f"{row['population 2.5%']:.4g} to {row['population 97.5%']:.4g}, {row['sds off']:+.1f} population sds"
            for _, row in rows.iloc[order].iterrows()
        )

    def __str__(self) -> str:
        count = len(self.data.systems)
        shown = [self.verdicts[k] for k in self._odd_first]
        lines = shown[:TOLD]
        if count > 1:
            chance = f" (about {LEVEL * count:.0f} would look odd by chance)" if LEVEL * count >= 1 else ""
            lines = [f"{int(self.found.belongs.sum())} of {count} newcomers belong to the fleet{chance}.", *lines]
        if count > TOLD:
            lines.append(f"... and {count - TOLD} more; all of them in `parameters`")
        else:
            table = self.parameters.set_index(["system", "parameter"])
            lines += ["", table.to_string(float_format=lambda x: f"{x:.4g}")]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    @property
    def _odd_first(self) -> np.ndarray:
        """Numbers of the systems, those that do not belong before the others."""
        return np.argsort(self.found.belongs, kind="stable")

    def plot(self) -> Any:
        """Data, forecast, and in grey what the population said before; of at most six new systems."""
        from ..show._forecast import forecast

        return forecast(self.view)

    @cached_property
    def view(self) -> Forecast:
        names = [self.data.systems[k] for k in self._odd_first]
        titles = [f"{name}: {'belongs' if self.belongs[name] else 'DOES NOT BELONG'}" for name in names]
        whole = forecast_view(self.problem, self.data, self.predict(), self.before(), titles)
        return replace(whole, systems=tuple(names))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write predictions.csv, parameters.csv and a picture."""
        found = {"belongs": self.found.belongs, "p parameters": self.found.conflict_p, "p fit": self.found.misfit_p}
        judged = pd.DataFrame({"system": self.data.systems, **found})
        parameters = self.parameters.merge(judged, on="system")
        return save_predictions(folder, self.predict(), parameters, self.view, overwrite=overwrite)
