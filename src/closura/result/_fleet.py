"""What a fit knows that predictions need: the same from a result in memory and from a run folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import xarray as xr

from ..learning import Stored
from ..learning._start import check_data
from ..problem import DataError, Known, Observations, Problem, ProblemError, prepare, read_table, unit_scaling
from ._law import Law
from ._laws_file import law_from, read_laws

STORED = 2000


class LoadError(ValueError):
    """The folder holds nothing to predict from; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """A fitted fleet: `predict` its systems, or ask what it says of a `newcomer`.

    - `theta`: posterior draws (draw, system, parameter), unconstrained; `posterior`: the whole of it, as `Result.posterior`.
    - `closures`: the laws, as `Result.closures`; `notes`: what to know before relying on any of it.
    """

    problem: Problem
    data: Observations
    tree: xr.DataTree
    closures: Mapping[str, Law]
    notes: tuple[str, ...] = ()

    @property
    def posterior(self) -> xr.Dataset:
        return self.tree["posterior"].to_dataset()

    @property
    def theta(self) -> np.ndarray:
        draws = self.tree["unconstrained_posterior"]["theta"].values
        return draws.reshape(-1, *draws.shape[2:])

    @property
    def hierarchical(self) -> bool:
        return "mu" in self.tree["posterior"]

    @property
    def log_sigma(self) -> np.ndarray | None:
        """Draws of the inferred sizes of noise (draw, quantity), NaN where known; None where all are."""
        if "sigma" not in self.tree["posterior"]:
            return None
        return np.log(_flat(self.tree["posterior"]["sigma"]))

    def laws(self) -> dict[str, Any]:
        """The laws as the solver calls them, tabulated as they were while they were learned."""
        return prepare({n: law.law for n, law in self.closures.items()}, {n: law.range for n, law in self.closures.items()})

    def stored(self, data: Observations) -> Stored:
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
            factor = np.eye(mu.shape[1])
            if "correlation" in posterior:
                factor = np.linalg.cholesky(_flat(posterior["correlation"])[some].astype(float))
            white = np.linalg.inv(np.sqrt(tau)[:, :, None] * factor)
        unknown = np.array([np.isnan(data.sigma[data.mask & (data.quantity == q)]).any() for q in range(len(data.quantities))])
        if unknown.any():
            log_sigma = self._sizes(unknown, data.quantities)[some]
        arrays = (None if a is None else jnp.asarray(a, float) for a in (center, white, log_sigma))
        return Stored(*arrays)

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

    def predict(self, times: Any = None, *, until: float | None = None) -> pd.DataFrame:
        """See `Result.predict`."""
        from ._predict import predict

        return predict(self, times, until)

    def newcomer(self, table: Any, *, until: float | None = None, seed: int = 0) -> Any:
        """See `Result.newcomer`."""
        from ._newcomers import welcome

        return welcome(self, table, until, seed)


def fleet_of(result: Any) -> Fleet:
    return Fleet(result.problem, result.data, result.tree, result.closures, _notes(result.metrics))


def load(folder: str | Path, problem: Problem) -> Fleet:
    """A fitted fleet from its run folder, to predict with; `problem` is the one it was fitted with."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise LoadError(f"there is no folder {folder}; name one that `closura fit` wrote, with --out or under runs/")
    if not (folder / "posterior.nc").is_file():
        stopped = (folder / "checkpoint.npz").is_file()
        todo = f"continue that run with `closura resume {folder}`" if stopped else "name the folder of a run that has ended"
        raise LoadError(f"{folder} holds no posterior (posterior.nc); {todo}")
    try:
        with xr.open_datatree(folder / "posterior.nc", engine="h5netcdf") as stored:
            tree = stored.load()
        metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
        systems = tuple(map(str, tree["posterior"]["system"].values))
        names = tuple(map(str, tree["posterior"]["parameter"].values))
    except Exception as error:
        raise LoadError(
            f"the results in {folder} cannot be read ({type(error).__name__}: {error}); copy the folder again, or fit again"
        ) from None
    if names != problem.parameters.names:
        raise ProblemError(
            f"{folder} was fitted with the parameters {', '.join(names)}, the problem has {', '.join(problem.parameters.names)}; "
            "give the problem it was fitted with"
        )
    data = check_data(problem, read_table(folder / "data.csv", axes=problem.axes, allow_duplicates=True))
    if data.systems != systems:
        raise LoadError(f"data.csv and posterior.nc in {folder} are not of the same run; copy the folder again, or fit again")
    return Fleet(problem, data, tree, _laws(folder, problem), _notes(metrics))


def _laws(folder: Path, problem: Problem) -> dict[str, Law]:
    learned, facts = read_laws(folder)
    laws = {}
    for name, spec in problem.closures.items():
        if name not in facts["closures"]:
            raise ProblemError(f"{folder} has no law {name!r}; give the problem it was fitted with")
        about = facts["closures"][name]
        law = learned.get(name)
        if law is None:
            if not isinstance(spec, Known):
                raise ProblemError(f"law {name!r} was given in {folder} (Known), not learned; give the problem it was fitted with")
            law = law_from(name, about, spec.build(jr.key(0), unit_scaling(spec.inputs)))
        laws[name] = law
    return laws


def _notes(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    if metrics.get("converged"):
        return ()
    why = "was stopped before its end" if not metrics.get("finished") else "had not converged"
    return (f"this run {why}: predictions are no better than its results", *map(str, metrics.get("warnings", [])[:1]))


def _flat(draws: Any) -> np.ndarray:
    """(chain, draw, ...) to (draw, ...)."""
    return draws.values.reshape(-1, *draws.shape[2:])
