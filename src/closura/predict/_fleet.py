"""What a fit knows that predictions need: the same from a result in memory and from a run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from ..data import DataError, Observations
from ..equations import Equation
from ..laws import Law, Laws, Range, SolverLaws, over_draws, prepare
from ..population import PopulationDraws

STORED = 2000


@dataclass(frozen=True, eq=False)
class Fleet:
    """A fitted fleet: `predict` its systems, or ask what it says of a `newcomer`.

    - `theta`: posterior draws (draw, system, parameter), unconstrained; `posterior`: the whole of it, as `Result.posterior`.
    - `closures`: the laws, as `Result.closures`; `notes`: what to know before relying on any of it.
    """

    problem: Equation
    data: Observations
    tree: xr.DataTree
    closures: Mapping[str, Law]
    notes: tuple[str, ...] = ()

    @property
    def posterior(self) -> xr.Dataset:
        """As `Result.posterior`."""
        return self.tree["posterior"].to_dataset()

    @property
    def theta(self) -> np.ndarray:
        return _flat(self.tree["unconstrained_posterior"]["theta"])

    @property
    def hierarchical(self) -> bool:
        return "mu" in self.tree["posterior"]

    @property
    def log_sigma(self) -> np.ndarray | None:
        """Draws of the inferred sizes of noise (draw, quantity), NaN where known; None where all are."""
        if "sigma" not in self.tree["posterior"]:
            return None
        return np.log(_flat(self.tree["posterior"]["sigma"]))

    @property
    def ranges(self) -> dict[str, Range]:
        """Of the tables of the laws."""
        return {name: law.range for name, law in self.closures.items()}

    def laws(self, own: Laws | tuple[()] = (), axes: int = 1) -> tuple[SolverLaws, int]:
        """The laws as solvers call them, tabulated as they were while they were learned.

        Laws that every draw has its own of are given as `own`, with so many axes in front; then all laws have these, and
        their number is returned beside them. Else it is 0.
        """
        shared = {name: law.law for name, law in self.closures.items() if not law.law.spec.per_chain}
        return over_draws(prepare(shared, self.ranges), prepare(own or {}, self.ranges, leading=axes), axes)

    def own_laws(self, chosen: np.ndarray) -> Laws:
        """Those that every draw has its own of, at these draws."""
        own = {name: law.law for name, law in self.closures.items() if law.law.spec.per_chain}
        return jax.tree.map(lambda a: jnp.asarray(a)[chosen], own)

    def stored(self, data: Observations) -> PopulationDraws:
        """Draws of population and noise, for systems with these (matched) data."""
        posterior, systems = self.tree["posterior"], len(data.systems)
        total = posterior.sizes["chain"] * posterior.sizes["draw"]
        some = np.linspace(0, total - 1, min(STORED, total)).astype(int)
        center = white = log_sigma = None
        if self.hierarchical:
            mu, tau = (_flat(posterior[name])[some].astype(float) for name in ("mu", "tau"))
            center = np.repeat(mu[:, None], systems, axis=1)
            if "shift" in posterior:
                center = center + self._shifts(_flat(posterior["shift"])[some], data)
            # What all systems share has no spread among them: of a newcomer it is what the fit leaves open.
            shared = np.array(self.problem.parameters.shared)
            center[..., shared], tau[:, shared] = mu[:, shared].mean(axis=0), mu[:, shared].var(axis=0)
            factor = np.eye(mu.shape[1])
            if "correlation" in posterior:
                correlation = _flat(posterior["correlation"])[some].astype(float)
                factor = np.linalg.cholesky(np.where(np.isnan(correlation), factor, correlation))
            white = np.linalg.inv(np.sqrt(tau)[:, :, None] * factor)
        unknown = not_stated(data)
        if unknown.any() and self.problem.noise.has_scale:
            log_sigma = self._sizes(unknown, data.quantities)[some]
        arrays = [None if a is None else jnp.asarray(a, float) for a in (center, white, log_sigma)]
        return PopulationDraws(arrays[0], arrays[1], arrays[2], self.own_laws(some) or ())

    def _sizes(self, unknown: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        """Of the noise where a table does not state it: inferred by the fit, or nobody knows."""
        inferred = self.log_sigma
        known = np.zeros(len(names), bool) if inferred is None else np.isfinite(inferred).all(axis=0)
        missing = [name for name, asked, there in zip(names, unknown, known) if asked and not there]
        if missing or inferred is None:
            raise DataError(
                f"noise of {', '.join(missing)} is not known: the fit had it from a column 'sigma' of its table; give the "
                "newcomers such a column too"
            )
        return np.where(unknown, inferred, 0.0)

    def _shifts(self, shift: np.ndarray, data: Observations) -> np.ndarray:
        """(draw, system, parameter): how covariates move the mean; of a unit each, and about their mean in the fleet."""
        names = self.problem.parameters.names
        pairs = [(name, column) for name, columns in self.problem.covariates.items() for column in columns]
        moved = np.zeros((len(shift), len(data.systems), len(names)))
        for effect, (name, column) in enumerate(pairs):
            away = data.constants[column] - self.data.constants[column].mean()
            moved[:, :, names.index(name)] += shift[:, effect, None] * away
        return moved

    def summary(self) -> pd.DataFrame:
        """Mean, standard deviation and 95 % interval of every parameter of every system, physical scale."""
        draws = np.stack([_flat(self.tree["posterior"][name]) for name in self.problem.parameters.names], axis=-1)
        return summary_of(draws.astype(float), self.data.systems, self.problem.parameters.names)

    def predict(self, times: Any = None, *, until: float | None = None) -> pd.DataFrame:
        """See `Result.predict`."""
        from ._forecast import predict

        return predict(self, times, until)

    def newcomer(self, table: Any, *, until: float | None = None, inputs: Any = None, seed: int = 0) -> Any:
        """See `Result.newcomer`."""
        from ._new_systems import welcome

        return welcome(self, table, until, seed, inputs)


def fleet_of(result: Any) -> Fleet:
    return Fleet(result.problem, result.data, result.tree, result.closures, notes_of(result.metrics))


def notes_of(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    if metrics.get("converged"):
        return ()
    why = "was stopped before its end" if not metrics.get("finished") else "had not converged"
    return (f"this run {why}: predictions are no better than its results", *map(str, metrics.get("warnings", [])[:1]))


def _flat(draws: Any) -> np.ndarray:
    """(chain, draw, ...) to (draw, ...)."""
    return draws.values.reshape(-1, *draws.shape[2:])


def not_stated(data: Observations) -> np.ndarray:
    """(quantity,): does nobody say how large its noise is?"""
    here = [data.mask & (data.quantity == number) for number in range(len(data.quantities))]
    return np.array([np.isnan(data.sigma[rows]).any() for rows in here])


def summary_of(draws: np.ndarray, systems: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    """Of draws (draw, system, parameter): a row for every system and parameter."""
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    system, parameter = (a.ravel() for a in np.indices(low.shape))
    columns = {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "2.5%": low, "97.5%": high}
    named = {"system": np.array(systems)[system], "parameter": np.array(names)[parameter]}
    return pd.DataFrame({**named, **{key: value.ravel() for key, value in columns.items()}})
