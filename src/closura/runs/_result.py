"""What a fit returns: verdict first, then posterior, laws, history, figures, and a folder to keep them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import PyTree

from ..data import Observations
from ..diagnose import Truth, Verdict
from ..equations import Equation
from ..laws import FittedLaw, choose, export_law
from ..posterior import closure_view, population_lines, table_of
from ..predict import Fleet, Newcomers, notes_of
from ..show import View


@dataclass(eq=False)
class Result:
    """A finished (or stopped) fit.

    - `verdict`: converged or not, why, and what to do; `print(result)` starts with it.
    - `closures`: the learned laws by name; `metrics`: flat dict of figures.
    - `network`: the surrogate, None with the solver; `network.states(theta, row)` on the grid, theta unconstrained, row that of a system.
    - `tree`: the whole DataTree that `posterior.nc` holds; `history`: one row an iteration.
    """

    problem: Equation
    data: Observations
    settings: dict[str, Any]
    verdict: Verdict
    metrics: dict[str, Any]
    tree: xr.DataTree
    history: pd.DataFrame
    closures: Mapping[str, FittedLaw]
    network: PyTree
    visited: Mapping[str, np.ndarray]
    truth: Truth | None
    summary_table: pd.DataFrame
    checks_table: pd.DataFrame
    view_parts: Mapping[str, Any]

    @property
    def posterior(self) -> xr.Dataset:
        """Draws of everything inferred, in ArviZ's schema; `posterior["k"]` is (chain, draw, system), physical scale."""
        return self.tree["posterior"].to_dataset()

    @property
    def converged(self) -> bool:
        """Can these results be used? `verdict` says why not, and what to do."""
        return self.verdict.converged

    @property
    def closure(self) -> FittedLaw:
        """The law, of a problem that has one: `result.closure(x)` is its posterior mean at numbers or arrays, beside it
        `.sd(x)`, `.interval(x, level=0.95)`, `.draws(x)`, `.slope(x)`, `.supported(x)`."""
        if len(self.closures) != 1:
            names = ", ".join(self.closures) or "none"
            raise ValueError(f"this problem has {len(self.closures)} closures ({names}); use result.closures[name](x)")
        return next(iter(self.closures.values()))

    def closure_table(self, name: str | None = None, points: int = 200) -> pd.DataFrame:
        """A law on `points` places along each input: inputs, f, how sure it is (of a law that chains do not share: sd, lower and
        upper end of its 95 % band, prior_sd, slope), density of visited inputs, and whether data supported f."""
        law = choose(self.closures, name)
        if points < 2:
            raise ValueError(f"points={points} makes no table; take at least 2")
        return table_of(closure_view(law, self.visited[law.name], self.truth, points))

    def export_closure(self, path: str | Path, name: str | None = None, *, overwrite: bool = False) -> Path:
        """Write a learned law for use elsewhere: .py (needs NumPy alone), .c (C99) or .csv (the table)."""
        law = choose(self.closures, name)
        table = partial(self.closure_table, law.name)
        return export_law(law, path, table, problem=self.problem.name, converged=self.converged, overwrite=overwrite)

    def summary(self) -> pd.DataFrame:
        """Every number inferred, the population first: mean, sd, 95 % interval, R-hat and effective sample sizes.

        Columns level, system, parameter, mean, sd, 2.5%, 97.5%, rhat, ess_bulk, ess_tail. Values of parameters are on the
        physical scale; what is on another says so in its name ("sd of log k").
        """
        return self.summary_table.copy()

    def checks(self) -> pd.DataFrame:
        """Posterior predictive checks of all systems together, and of each: what was found, what replicated data give, p-values.

        Columns level, system, quantity, check, observations, value, low, high, p, p_adjusted (for the number of checks of its
        level), off.
        """
        return self.checks_table.copy()

    def __str__(self) -> str:
        lines = [*self.verdict.lines, "", *population_lines(self.summary_table)]
        shown = ("theta_mse", "coverage_2sd", "closure_mse", "rhat_max", "ess_bulk_min", "seconds_total")
        lines.append("  ".join(f"{k} {self.metrics[k]:.4g}" for k in shown if self.metrics.get(k) is not None))
        return "\n".join(lines)

    @cached_property
    def fleet(self) -> Fleet:
        """All that predictions need; `closura.load` gives the same from a run folder."""
        return Fleet(self.problem, self.data, self.tree, self.closures, notes_of(self.metrics))

    def predict(self, times: object = None, *, until: float | None = None) -> pd.DataFrame:
        """Posterior draws pushed through the solver: a row for every system, place and quantity, with mean, sd and 95 % interval
        of the quantity, and the 95 % interval of a new measurement of it.

        On the problem's grid, or at `times`; `until` goes on past the problem's span.
        """
        return self.fleet.predict(times, until=until)

    def newcomer(self, table: object, *, until: float | None = None, inputs: object = None) -> Newcomers:
        """Systems that were not in the fit, from their own few data (whatever `closura.read_table` takes): parameters, forecast,
        and whether they belong to the fleet at all. Population and law stay what they are."""
        return self.fleet.newcomer(table, until=until, inputs=inputs)

    @cached_property
    def view(self) -> View:
        """All that figures and report need, as plain arrays."""
        return View(
            title=self.problem.name,
            converged=self.converged,
            verdict=self.verdict.lines,
            metrics=self.metrics,
            settings=self.settings,
            history=self.history,
            **self.view_parts,
        )

    def plot_closure(self) -> Any:
        """The law, and where the data were: a figure of Matplotlib."""
        return self._figure("closure")

    def plot_fit(self) -> Any:
        """Data and fit of some systems."""
        return self._figure("fit")

    def plot_checks(self) -> Any:
        """Residuals: do they scatter like noise?"""
        return self._figure("checks")

    def plot_population(self) -> Any:
        """The population, and every system's estimate."""
        return self._figure("population")

    def _figure(self, name: str) -> Any:
        from ..show._figures import FIGURES

        return FIGURES[name][0](self.view)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run folder; refuses one that holds another run, unless `overwrite`."""
        from ._folder import check, save

        path = Path(folder).expanduser()
        check(path, overwrite=overwrite)
        save(self, path, replace=True)
        return path
