"""What a fit knows that predictions need: the same from a result in memory and from a run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import PyTree

from ..data import DataError, Observations
from ..equations import Equation
from ..laws import FittedLaw, Laws, SolverLaws, over_draws, prepare
from ..population import PopulationDraws
from ..posterior import described

STORED = 2000
LAW_LEFT_OUT = "the law was learned as one estimate (cl.MLP): intervals leave its error out"


@dataclass(frozen=True, eq=False)
class Fleet:
    """A fitted fleet: `predict` its systems, or ask what it says of a `newcomer`.

    - `theta`: posterior draws (draw, system, parameter), unconstrained; `posterior`: the whole of it, as `Result.posterior`.
    - `closures`: the laws, as `Result.closures`; `notes`: what to know before relying on any of it.
    """

    problem: Equation
    data: Observations
    tree: xr.DataTree
    closures: Mapping[str, FittedLaw]
    notes: tuple[str, ...] = ()

    @property
    def posterior(self) -> xr.Dataset:
        """As `Result.posterior`."""
        return self.tree["posterior"].to_dataset()

    @property
    def theta(self) -> np.ndarray:
        return _flat(self.tree["unconstrained_posterior"].to_dataset()["theta"])

    @property
    def hierarchical(self) -> bool:
        return "mu" in self.tree["posterior"]

    @property
    def log_sigma(self) -> np.ndarray | None:
        """Draws of the inferred sizes of noise (draw, quantity), NaN where known; None where all are."""
        return np.log(_flat(self.posterior["sigma"])) if "sigma" in self.posterior else None

    @property
    def ranges(self) -> dict[str, PyTree]:
        """Of the tables of the laws."""
        return {name: law.table for name, law in self.closures.items()}

    def laws(self, draws: np.ndarray | None = None) -> tuple[SolverLaws, int]:
        """The laws as solvers call them, tabulated as they were while they were learned.

        Those that every draw has its own of are taken at these `draws` of the posterior, numbers of any shape; then all laws
        have the axes of that shape in front, and their number is returned beside them. Else it is 0.
        """
        shared = {name: law.law for name, law in self.closures.items() if not law.law.spec.per_chain}
        axes, own = (0, {}) if draws is None else (draws.ndim, self.own_laws(draws))
        return over_draws(prepare(shared, self.ranges), prepare(own, self.ranges, leading=axes), axes)

    def own_laws(self, draws: np.ndarray) -> Laws:
        """Those that every draw has its own of, at these draws."""
        own = {name: law.law for name, law in self.closures.items() if law.law.spec.per_chain}
        return jax.tree.map(lambda a: jnp.asarray(a)[draws], own)

    @cached_property
    def stored_draws(self) -> np.ndarray:
        """Numbers of the draws that new systems go with."""
        return np.linspace(0, len(self.theta) - 1, min(STORED, len(self.theta))).astype(int)

    def stored(self, data: Observations) -> PopulationDraws:
        """Draws of population and noise, for systems with these (matched) data."""
        posterior, some = self.posterior, self.stored_draws
        center = white = log_sigma = None
        if self.hierarchical:
            mu, tau = (_flat(posterior[name])[some].astype(float) for name in ("mu", "tau"))
            center = np.repeat(mu[:, None], len(data.systems), axis=1)
            if "shift" in posterior:
                center = center + self._shifts(_flat(posterior["shift"])[some], data)
            # What all systems share has no spread among them: of a new system it is what the fit leaves open.
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
        mean, whitening, sizes = (None if a is None else jnp.asarray(a, float) for a in (center, white, log_sigma))
        return PopulationDraws(mean, whitening, sizes, self.own_laws(some) or ())

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
        draws = np.stack([_flat(self.posterior[name]) for name in self.problem.parameters.names], axis=-1)
        return summary_of(draws.astype(float), self.data.systems, self.problem.parameters.names)

    def predict(self, times: object = None, *, until: float | None = None) -> pd.DataFrame:
        """See `Result.predict`."""
        from ._forecast import predict

        return predict(self, times, until)

    def newcomer(self, table: object, *, until: float | None = None, inputs: object = None, seed: int = 0) -> Any:
        """See `Result.newcomer`."""
        from ._new_systems import new_systems

        return new_systems(self, table, until, seed, inputs)


def notes_of(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """What to know of a run before relying on what it predicts."""
    if metrics.get("converged"):
        return (LAW_LEFT_OUT,) if metrics.get("law_learned") else ()
    why = "cannot be trusted" if metrics.get("verdict") == "untrusted" else "had not converged"
    why = why if metrics.get("finished") else "was stopped before its end"
    return (f"this run {why}: predictions are no better than its results", *map(str, metrics.get("warnings", [])[:1]))


def _flat(draws: xr.DataArray) -> np.ndarray:
    """(chain, draw, ...) to (draw, ...)."""
    return draws.values.reshape(-1, *draws.shape[2:])


def not_stated(data: Observations) -> np.ndarray:
    """(quantity,): does nobody say how large its noise is?"""
    here = [data.mask & (data.quantity == number) for number in range(len(data.quantities))]
    return np.array([np.isnan(data.sigma[rows]).any() for rows in here])


def summary_of(draws: np.ndarray, systems: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    """Of draws (draw, system, parameter): a row for every system and parameter."""
    system, parameter = (a.ravel() for a in np.indices(draws.shape[1:]))
    named = {"system": np.array(systems)[system], "parameter": np.array(names)[parameter]}
    return pd.DataFrame({**named, **{key: value.ravel() for key, value in described(draws).items()}})
