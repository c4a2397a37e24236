"""One table of everything inferred: the population first, then every parameter of every system."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnose import Truth
from ..parameters import Parameters
from ..sampling import Convergence, convergence

POPULATION = "population"
INTERVAL = ("2.5%", "97.5%")


def summarise(tree: xr.DataTree, parameters: Parameters, check: Convergence) -> pd.DataFrame:
    """Mean, sd, central 95 % interval, R-hat and effective sample sizes, a row a number that was inferred.

    `level` tells the population's rows from those of a system that somebody called "population". A parameter's row there is its
    median in the population, physical scale (where covariates shift it, at their means); how much systems differ, shifts and
    correlations are on the unconstrained scale, which their names say. `check` are the figures of the run, in its order.
    """
    posterior, stats = tree["posterior"].to_dataset(), tree["sample_stats"].to_dataset()
    names, labels = parameters.names, dict(zip(parameters.names, parameters.labels))
    varying = np.flatnonzero(~np.array(parameters.shared))
    systems, figures, tables = posterior["system"].values, _Figures(check), []

    def add(called: Iterable[str], draws: np.ndarray, figure: np.ndarray | None = None) -> None:
        figure = figures.of(draws) if figure is None else figure
        tables.append(_rows(POPULATION, POPULATION, list(called), draws, figure))

    theta = np.stack([posterior[name].values for name in names], axis=-1)
    own = _rows("system", np.repeat(systems, len(names)), list(names) * len(systems), theta, figures.of(theta))
    if "mu" in posterior:
        add(names, np.asarray(parameters.to_physical(posterior["mu"].values)))
        add((f"sd of {labels[names[i]]}" for i in varying), np.sqrt(posterior["tau"].values[..., varying]))
    if "shift" in posterior:
        effects = (str(effect).partition(" by ") for effect in posterior["effect"].values)
        add((f"shift of {labels[name]} by {column}" for name, _, column in effects), posterior["shift"].values)
    if "correlation" in posterior:
        one, other = (varying[side] for side in np.tril_indices(len(varying), -1))
        pairs = posterior["correlation"].values[:, :, one, other]
        figures.of(pairs)  # a run follows the numbers they come from
        found = convergence(pairs, stats["group"].values)
        called = (f"correlation of {labels[names[j]]} and {labels[names[i]]}" for i, j in zip(one, other))
        add(called, pairs, _Figures(found).of(pairs))
    if "sigma" in posterior:
        free = ~np.isnan(posterior["sigma"].values).all((0, 1))
        add((f"sigma of {q}" for q in posterior["quantity"].values[free]), posterior["sigma"].values[..., free])
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


class _Figures:
    """Convergence figures (figure, number) of one block of numbers after the other."""

    def __init__(self, check: Convergence):
        self.rest = np.stack([np.fmax(check.rhat, check.rhat_nested), check.ess_bulk, check.ess_tail])

    def of(self, draws: np.ndarray) -> np.ndarray:
        """The next ones, of draws (chain, draw, ...)."""
        count = int(np.prod(draws.shape[2:]))
        these, self.rest = self.rest[:, :count], self.rest[:, count:]
        return these


def _rows(level: str, system: object, names: list[str], draws: np.ndarray, figures: np.ndarray) -> pd.DataFrame:
    flat = draws.reshape(-1, len(names)).astype(float)
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    columns = {"mean": flat.mean(axis=0), "sd": flat.std(axis=0), **dict(zip(INTERVAL, (low, high)))}
    diagnostics = dict(zip(("rhat", "ess_bulk", "ess_tail"), figures))
    return pd.DataFrame({"level": level, "system": system, "parameter": names, **columns, **diagnostics})
