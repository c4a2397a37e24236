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
from ..laws import FittedLaw, Laws, SolverLaws, StoredLaw, over_draws, prepare
from ..population import PopulationDraws
from ..posterior import described
from ._law_share import directions, values_at

STORED = 2000
LOOKED_AT = 12  # inputs at which laws are looked at for what follows them
CLOSELY = 1e-3  # share of the variance of a shared parameter that is left open at least
LEFT_OUT = "intervals leave the error of the learned law out: {} is one estimate, not a posterior (cl.Law() has one)"


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
    def left_out(self) -> tuple[str, ...]:
        """What intervals know nothing of: the error of laws that are a single estimate."""
        single = [name for name, law in self.closures.items() if law.learned and not law.law.spec.per_chain]
        return (LEFT_OUT.format(", ".join(single)),) if single else ()

    @cached_property
    def continued(self) -> dict[str, FittedLaw]:
        """The laws on tables long enough for what was not in the fit: beyond those of the fit every draw goes on by its prior."""
        return {name: law.continued() for name, law in self.closures.items()}

    @property
    def ranges(self) -> dict[str, PyTree]:
        """Of the tables of the laws."""
        return {name: law.table for name, law in self.continued.items()}

    def laws(self, draws: np.ndarray | None = None) -> tuple[SolverLaws, int]:
        """The laws as solvers call them, tabulated as they were while they were learned, and further out.

        Those that every draw has its own of are taken at these `draws` of the posterior, numbers of any shape; then all laws
        have the axes of that shape in front, and their number is returned beside them. Else it is 0.
        """
        shared = {name: law.law for name, law in self.continued.items() if not law.law.spec.per_chain}
        axes, own = (0, {}) if draws is None else (draws.ndim, self.own_laws(draws))
        return over_draws(prepare(shared, self.ranges), prepare(own, self.ranges, leading=axes), axes)

    def own_laws(self, draws: np.ndarray) -> Laws:
        """Those that every draw has its own of, at these draws."""
        own = {name: law.law for name, law in self.continued.items() if law.law.spec.per_chain}
        return jax.tree.map(lambda a: jnp.asarray(a)[draws], own)

    def stored_laws(self, which: np.ndarray) -> tuple[SolverLaws, int]:
        """As `laws`, at these of the stored draws."""
        own = {name: StoredLaw(self.closures[name].law.spec, jnp.asarray(which)) for name in self.stored_tables}
        return over_draws(self.laws()[0], prepare(own, self.stored_tables, leading=which.ndim), which.ndim)

    @cached_property
    def stored_tables(self) -> SolverLaws:
        """Laws that every draw has its own of, as solvers call them, at the stored draws."""
        return prepare(self.own_laws(self.stored_draws), self.ranges, leading=1)

    @cached_property
    def stored_draws(self) -> np.ndarray:
        """Numbers of the draws that new systems go with."""
        return np.linspace(0, len(self.theta) - 1, min(STORED, len(self.theta))).astype(int)

    def stored(self, data: Observations) -> PopulationDraws:
        """Draws of population, noise and laws, for systems with these (matched) data."""
        posterior, some = self.posterior, self.stored_draws
        center = white = log_sigma = None
        if self.hierarchical:
            mu, tau = (_flat(posterior[name])[some].astype(float) for name in ("mu", "tau"))
            center = np.repeat(mu[:, None], len(data.systems), axis=1)
            if "shift" in posterior:
                center = center + self._shifts(_flat(posterior["shift"])[some], data)
            shared = np.array(self.problem.parameters.shared)
            if shared.any():
                center[..., shared], tau[:, shared] = self._shared(mu, tau, shared)
            factor = np.eye(mu.shape[1])
            if "correlation" in posterior:
                correlation = _flat(posterior["correlation"])[some].astype(float)
                factor = np.linalg.cholesky(np.where(np.isnan(correlation), factor, correlation))
            white = np.linalg.inv(np.sqrt(tau)[:, :, None] * factor)
        unknown = not_stated(data)
        if unknown.any() and self.problem.noise.has_scale:
            log_sigma = self._sizes(unknown, data.quantities)[some]
        mean, whitening, sizes = (None if a is None else jnp.asarray(a, float) for a in (center, white, log_sigma))
        numbers = jnp.arange(len(some))
        laws = {name: StoredLaw(self.closures[name].law.spec, numbers) for name in self.stored_tables}
        return PopulationDraws(mean, whitening, sizes, laws or ())

    def _shared(self, mu: np.ndarray, tau: np.ndarray, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Center (draw, 1, shared) and variance of what all systems share, given all else of each stored draw.

        It has no spread among systems: of a new one it is what the fit leaves open, and that may follow the law or the
        population. What follows them linearly is each draw's own, the rest is normal with the variance that is left.
        """
        others = [mu[:, ~shared], np.log(tau[:, ~shared])]
        if self.log_sigma is not None:
            others.append(np.nan_to_num(self.log_sigma[self.stored_draws]))
        for name, law in self.stored_tables.items():
            support, random = self.closures[name].support, np.random.default_rng(0)
            if support is not None:
                others.append(
                    values_at(law, 1, random.uniform(support.low, support.high, (LOOKED_AT, len(support.low))))
                )
        value, along = mu[:, shared], directions(np.concatenate(others, axis=1))
        follows = along @ (along.T @ (value - value.mean(axis=0)))
        left = np.var(value - value.mean(axis=0) - follows, axis=0)
        return (value.mean(axis=0) + follows)[:, None], np.maximum(left, CLOSELY * value.var(axis=0))

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
        return summary_of(draws, self.data.systems, self.problem.parameters.names)

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
        return ()
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
