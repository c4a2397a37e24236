"""One table of everything inferred: the population first, then every parameter of every system."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnose import Truth
from ..parameters import Parameters
from ..sampling import Convergence, labels_of

POPULATION = "population"
INTERVAL = ("2.5%", "97.5%")
FIGURES = ("rhat", "ess_bulk", "ess_tail")


def summarise(tree: xr.DataTree, parameters: Parameters, check: Convergence) -> pd.DataFrame:
    """Mean, sd, central 95 % interval, R-hat and effective sample sizes, a row a number that was inferred.

    `level` tells the population's rows from those of a system that somebody called "population". A parameter's row there is its
    median in the population, physical scale (where covariates shift it, at their means); how much systems differ, shifts and
    correlations are on the unconstrained scale, which their names say. The figures of `check` go by the same names.
    """
    posterior, figures = tree["posterior"].to_dataset(), check.figures.sel(figure=list(FIGURES))
    names, labels = list(parameters.names), dict(zip(parameters.names, parameters.labels))
    varying = [name for name, shared in zip(names, parameters.shared) if not shared]
    systems, tables = posterior["system"].values, []

    def add(called: Sequence[str], draws: np.ndarray, found: xr.DataArray) -> None:
        tables.append(_rows(POPULATION, POPULATION, called, draws, found.values))

    theta = np.stack([posterior[name].values for name in names], axis=-1)
    found = _of_all(figures, "theta", names).sel(system=systems)
    own = _rows("system", np.repeat(systems, len(names)), names * len(systems), theta, found.values)
    if "mu" in posterior:
        add(names, np.asarray(parameters.to_physical(posterior["mu"].values)), _of_all(figures, "mu", names))
        spread = np.sqrt(posterior["tau"].sel(parameter=varying).values)
        add([f"sd of {labels[name]}" for name in varying], spread, figures["log_tau"].sel(parameter=varying))
    if "shift" in posterior:
        found = figures["covariate_effect"].sel(effect=posterior["effect"].values)
        add([f"shift of {label}" for label in labels_of(found, "effect")], posterior["shift"].values, found)
    if "correlation" in posterior:
        one, other = np.tril_indices(len(varying), -1)
        pairs = posterior["correlation"].sel(parameter=varying, other=varying).values[:, :, one, other]
        called = [f"{labels[varying[j]]} and {labels[varying[i]]}" for i, j in zip(one, other)]
        add([f"correlation of {pair}" for pair in called], pairs, figures["correlation"].sel(pair=called))
    if "sigma" in posterior:
        free = figures["quantity"].values
        add([f"sigma of {q}" for q in free], posterior["sigma"].sel(quantity=free).values, figures["log_sigma"])
    return pd.concat([*tables, own], ignore_index=True)


def true_values(table: pd.DataFrame, parameters: Parameters, truth: Truth | None) -> np.ndarray | None:
    """What each row of the table is in truth; NaN where that is not known, None if nothing is."""
    if truth is None:
        return None
    known: dict[str, float] = {}
    if truth.mu is not None:
        known |= dict(zip(parameters.names, np.asarray(parameters.to_physical(truth.mu), float)))
    if truth.tau is not None:
        known |= {f"sd of {label}": np.sqrt(tau) for label, tau in zip(parameters.labels, truth.tau)}
    above = table["parameter"][table["level"] == POPULATION]
    own = np.asarray(parameters.to_physical(truth.theta), float).ravel()
    return np.concatenate([[known.get(name, np.nan) for name in above], own])


def population_lines(table: pd.DataFrame) -> list[str]:
    """The population in words, physical scale."""
    rows = table[table["level"] == POPULATION].set_index("parameter")
    if rows.empty:
        return []
    lines = [f"{POPULATION:<26} {'mean ± sd':<22} 95 %"]
    for name, row in rows.iterrows():
        estimate = f"{row['mean']:.4g} ± {row['sd']:.2g}"
        lines.append(f"  {name!s:<24} {estimate:<22} {row['2.5%']:.4g} to {row['97.5%']:.4g}")
    return lines


def _of_all(figures: xr.Dataset, name: str, parameters: Sequence[str]) -> xr.DataArray:
    """Figures (figure, ..., parameter) of all parameters: what systems share is one number wherever it stands."""
    found = figures[name].drop_vars("parameter_label").reindex(parameter=list(parameters))
    if "shared" in figures:
        shared = figures["shared"].drop_vars("shared_parameter_label").rename(shared_parameter="parameter")
        found = found.fillna(shared.reindex(parameter=list(parameters)))
    return found


def _rows(level: str, system: object, names: Sequence[str], draws: np.ndarray, figures: np.ndarray) -> pd.DataFrame:
    """A row a number, of draws (chain, draw, ...) and figures (figure, ...)."""
    flat = draws.reshape(-1, len(names)).astype(float)
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    columns = {"mean": flat.mean(axis=0), "sd": flat.std(axis=0), **dict(zip(INTERVAL, (low, high)))}
    diagnostics = dict(zip(FIGURES, figures.reshape(len(FIGURES), -1)))
    return pd.DataFrame({"level": level, "system": system, "parameter": list(names), **columns, **diagnostics})
