"""The posterior in ArviZ's schema, as an xarray DataTree: what `posterior.nc` holds."""

import numpy as np
import xarray as xr

from ..learning import Run
from ..population import correlations

Variable = tuple[tuple[str, ...], np.ndarray]
DRAWS = ("chain", "draw")
ABOUT = {
    "inference_library": "closura",
    "note": "mu, tau (variance) and shift (by one unit of a covariate, mu being at their means) are on the unconstrained scale",
}


def posterior_tree(run: Run, replicated: xr.Dataset) -> xr.DataTree:
    """Draws on the physical and the unconstrained scale, the group of each chain, the data, and data replicated from the draws."""
    theta, parameters = run.theta(), run.problem.parameters
    coords = {
        "chain": np.arange(theta.shape[0]),
        "draw": np.arange(theta.shape[1]),
        "system": list(run.data.systems),
        "parameter": list(parameters.names),
    }
    values, labels = _population(run)
    physical = np.asarray(parameters.to_physical(theta))
    own: dict[str, Variable] = {name: ((*DRAWS, "system"), physical[..., i]) for i, name in enumerate(parameters.names)}
    unconstrained: dict[str, Variable] = {"theta": ((*DRAWS, "system", "parameter"), theta)}
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
    return values, labels


def _observed(run: Run) -> xr.Dataset:
    """(system, observation): the data, NaN where a system has fewer."""
    data, dims = run.data, ("system", "observation")
    numbers = {"value": data.value, "sigma": run.sigma()} | {
        axis: data.place[..., i] for i, axis in enumerate(data.axes)
    }
    observed: dict[str, Variable] = {key: (dims, np.where(data.mask, part, np.nan)) for key, part in numbers.items()}
    of = np.where(data.mask, data.quantity, len(data.quantities))
    observed["quantity"] = (dims, np.array([*data.quantities, ""])[of])
    return xr.Dataset(observed, {"system": list(data.systems)})
