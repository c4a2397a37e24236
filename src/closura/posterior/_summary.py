"""Everything inferred: as an xarray DataTree in ArviZ's schema, which `posterior.nc` holds, and as one table of figures."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from ..diagnose import DECIDED, Truth
from ..laws import FittedLaw
from ..learning import Run
from ..parameters import Parameters
from ..population import correlations
from ..sampling import Convergence, labels_of
from ..show import ClosureView
from ._law import law_groups, law_unknowns

Variable = tuple[tuple[str, ...], np.ndarray]
DRAWS = ("chain", "draw")
ABOUT = {
    "inference_library": "closura",
    "note": "mu, tau (variance) and shift (by one unit of a covariate, mu being at their means) are on the unconstrained scale",
}
POPULATION = "population"
FIGURES = ("rhat", "ess_bulk", "ess_tail", "contraction")
AT_ONCE = 4_000_000  # numbers that are described at a time, in double precision


def posterior_tree(
    run: Run,
    physical: np.ndarray,
    replicated: xr.Dataset,
    laws: Mapping[str, FittedLaw],
    shown: Sequence[ClosureView],
) -> xr.DataTree:
    """Draws on the physical and the unconstrained scale, the group of each chain, the data, data replicated from the draws, and
    sampled laws on the grids on which they are shown."""
    theta, parameters = run.theta(), run.problem.parameters
    coords = {
        "chain": np.arange(theta.shape[0]),
        "draw": np.arange(theta.shape[1]),
        "system": list(run.data.systems),
        "parameter": list(parameters.names),
    }
    values, labels = _population(run)
    own: dict[str, Variable] = {name: ((*DRAWS, "system"), physical[..., i]) for i, name in enumerate(parameters.names)}
    unconstrained: dict[str, Variable] = {"theta": ((*DRAWS, "system", "parameter"), theta)}
    unconstrained |= law_unknowns(laws, *theta.shape[:2])
    phi = run.phi()
    if phi:
        unconstrained |= {name: ((*DRAWS, "parameter"), getattr(phi, name)) for name in ("mu", "log_tau")}
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs=ABOUT),
            "/posterior": xr.Dataset(own | values, coords | labels, ABOUT),
            "/unconstrained_posterior": xr.Dataset(unconstrained, coords, ABOUT),
            "/sample_stats": xr.Dataset({"group": ("chain", run.groups)}, {"chain": coords["chain"]}),
            "/observed_data": _observed(run),
            "/posterior_predictive": replicated,
            **law_groups(laws, shown, *theta.shape[:2]),
        }
    )


def _population(run: Run) -> tuple[dict[str, Variable], dict[str, list[str]]]:
    """What is above the systems, by name, and the labels along its dims: all parameters, whether systems share them or not."""
    phi, log_sigma, scale, data = run.phi(), run.log_sigma(), run.setup.noise, run.data
    names, shared = list(run.problem.parameters.names), np.array(run.problem.parameters.shared)
    values: dict[str, Variable] = {}
    labels: dict[str, list[str]] = {}
    if phi:
        values |= {"mu": ((*DRAWS, "parameter"), phi.mu), "tau": ((*DRAWS, "parameter"), np.exp(phi.log_tau))}
    if phi and phi.covariate_effect is not None:
        pairs = [(name, column) for name, columns in run.problem.covariates.items() for column in columns]
        unit = np.array([data.constants[column].std() for _, column in pairs])
        labels["effect"] = [f"{name} by {column}" for name, column in pairs]
        values["shift"] = ((*DRAWS, "effect"), phi.covariate_effect / unit)
    if phi and phi.correlation is not None:
        own = np.flatnonzero(~shared)
        both = np.full((*phi.mu.shape, len(names)), np.nan)
        both[..., own[:, None], own] = correlations(phi.correlation, len(own))
        labels["other"] = names
        values["correlation"] = ((*DRAWS, "parameter", "other"), both)
    if log_sigma is not None and scale is not None:
        labels["quantity"] = list(data.quantities)
        values["sigma"] = ((*DRAWS, "quantity"), np.where(scale.free, np.exp(log_sigma), np.nan))
    named = run.draws().get("law_parameter")
    if named is not None:
        labels["of_law"] = named["of_law"].values.tolist()
        values["law_parameter"] = ((*DRAWS, "of_law"), named.values)
    return values, labels


def _observed(run: Run) -> xr.Dataset:
    """(system, observation): the data, NaN where a system has fewer."""
    data, dims = run.data, ("system", "observation")
    places = {axis: data.place[..., i] for i, axis in enumerate(data.axes)}
    numbers = {"value": data.value, "sigma": run.sigma(), **places}
    observed: dict[str, Variable] = {key: (dims, np.where(data.mask, part, np.nan)) for key, part in numbers.items()}
    of = np.where(data.mask, data.quantity, len(data.quantities))
    observed["quantity"] = (dims, np.array([*data.quantities, ""])[of])
    return xr.Dataset(observed, {"system": list(data.systems)})


def summarise(tree: xr.DataTree, parameters: Parameters, check: Convergence, contracted: xr.Dataset) -> pd.DataFrame:
    """Mean, sd, central 95 % interval, R-hat and effective sample sizes, a row a number that was inferred; by how much data
    narrowed it, and who decided it: data, population or prior.

    `level` tells the population's rows from those of a system that somebody called "population". A parameter's row there is its
    median in the population, physical scale (where covariates shift it, at their means); how much systems differ, shifts and
    correlations are on the unconstrained scale, which their names say. The figures of `check` go by the same names, and so does
    what was `contracted`.
    """
    posterior, figures = tree["posterior"].to_dataset(), check.figures.sel(figure=list(FIGURES[:-1]))
    figures = xr.concat([figures, contracted.expand_dims(figure=["contraction"])], "figure", join="left")
    names, labels = list(parameters.names), dict(zip(parameters.names, parameters.labels))
    varying = [name for name, shared in zip(names, parameters.shared) if not shared]
    systems, tables = posterior["system"].values, []

    def add(called: Sequence[str], draws: np.ndarray, found: xr.DataArray) -> None:
        columns = described(draws.reshape(-1, len(called)))
        tables.append(_rows(POPULATION, POPULATION, called, columns, found.values))

    each = [described(posterior[name].values.reshape(-1, len(systems))) for name in names]
    columns = {column: np.stack([one[column] for one in each], axis=-1).ravel() for column in each[0]}
    found = _of_all(figures, "theta", names).sel(system=systems)
    own = _rows("system", np.repeat(systems, len(names)), names * len(systems), columns, found.values)
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
    if "law_parameter" in posterior:
        add(posterior["of_law"].values.tolist(), posterior["law_parameter"].values, figures["law_parameter"])
    table = pd.concat([*tables, own], ignore_index=True)
    from_population = (table["level"] == "system") & table["parameter"].isin(varying) & ("mu" in posterior)
    return table.assign(decided_by=decided_by(table["contraction"], from_population))


def decided_by(contraction: pd.Series, from_population: pd.Series) -> np.ndarray:
    """data, population or prior; "" where that is not known."""
    instead = np.where(from_population, POPULATION, "prior")
    return np.where(contraction.isna(), "", np.where(contraction < DECIDED, instead, "data"))


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
        by = "  (decided by the prior)" if row["decided_by"] == "prior" else ""
        lines.append(f"  {name!s:<24} {estimate:<22} {row['2.5%']:.4g} to {row['97.5%']:.4g}{by}")
    return lines


def _of_all(figures: xr.Dataset, name: str, parameters: Sequence[str]) -> xr.DataArray:
    """Figures (figure, ..., parameter) of all parameters: what systems share is one number wherever it stands."""
    found = figures[name].drop_vars("parameter_label").reindex(parameter=list(parameters))
    if "shared" in figures:
        shared = figures["shared"].drop_vars("shared_parameter_label").rename(shared_parameter="parameter")
        found = found.fillna(shared.reindex(parameter=list(parameters)))
    return found


def _rows(
    level: str, system: object, names: Sequence[str], columns: Mapping[str, np.ndarray], figures: np.ndarray
) -> pd.DataFrame:
    """A row a number, of what describes their draws and of figures (figure, ...)."""
    diagnostics = dict(zip(FIGURES, figures.reshape(len(FIGURES), -1)))
    return pd.DataFrame({"level": level, "system": system, "parameter": list(names), **columns, **diagnostics})


def described(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, standard deviation and ends of the central 95 % of draws (draw, ...)."""
    flat, size = draws.reshape(len(draws), -1), max(1, AT_ONCE // len(draws))
    parts = [_described(flat[:, i : i + size].astype(float)) for i in range(0, max(1, flat.shape[1]), size)]
    return {name: np.concatenate([part[name] for part in parts]).reshape(draws.shape[1:]) for name in parts[0]}


def _described(draws: np.ndarray) -> dict[str, np.ndarray]:
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "2.5%": low, "97.5%": high}
