"""Everything that is inferred, by name: each variable of the draws with its dims, and labels along them.

One registry for all who speak of single scalars: convergence, verdict, summary and report. Nothing is in it twice: what all
systems share is one scalar, wherever it stands in theta, and has no variance between them. It lives beside the convergence
figures because a run asks while it samples whether its draws suffice.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr

from ..parameters import Parameters
from ..population import Phi, correlations

DRAWS = ("chain", "draw")


class Kind(NamedTuple):
    """Dims of a variable beside chain and draw, one of its scalars in words, and all of them as a title."""

    dims: tuple[str, ...]
    words: str
    title: str


KINDS = {
    "theta": Kind(("system", "parameter"), "{parameter} of system {system}", "parameters of each system"),
    "shared": Kind(("shared_parameter",), "{shared_parameter}, which all systems share", "what all systems share"),
    "mu": Kind(("parameter",), "mean of {parameter} in the population", "mean μ"),
    "log_tau": Kind(("parameter",), "log variance of {parameter} in the population", "log variance log τ"),
    "covariate_effect": Kind(("effect",), "shift of {effect} in the population", "shifts by covariates"),
    "correlation": Kind(("pair",), "correlation of {pair} in the population", "correlations"),
    "log_sigma": Kind(("quantity",), "log sigma of {quantity}", "log size of the noise"),
    "law": Kind(("law_point",), "{law_point}", "law at some inputs"),
    "law_parameter": Kind(("of_law",), "{of_law}", "parameters of laws"),
    "log_size": Kind(("law_name",), "log size of law {law_name} before data", "log size of laws"),
}


def named_draws(
    theta: np.ndarray,
    phi: Phi | tuple[()],
    log_sigma: Mapping[str, np.ndarray],
    parameters: Parameters,
    systems: Sequence[str],
    effects: Sequence[tuple[str, str]] = (),
    laws: Mapping[str, Mapping[str, np.ndarray]] = MappingProxyType({}),
) -> xr.Dataset:
    """Draws (chain, draw, ...) of every scalar, unconstrained, under the names of `KINDS`.

    - `theta`: (chain, draw, system, parameter); `phi`: of all parameters, or () without a population.
    - `log_sigma`: by quantity, those that are inferred, (chain, draw) each.
    - `effects`: which parameter is shifted by which covariate, in the order of `phi`.
    - `laws`: of sampled laws, "law" (by what is read of an input, as in "f(1.5)"), "law_parameter" (as in "c of law f") and
      "log_size" (by law).

    Coordinates are names; where people read another one ("log k" for k), it is the coordinate `<dim>_label`.
    """
    shared, names, labels = np.array(parameters.shared), np.array(parameters.names), np.array(parameters.labels)
    own, label = ~shared, dict(zip(parameters.names, parameters.labels))
    values = {"theta": theta[..., own] if shared.any() else theta}
    coords: dict[str, Sequence[str] | np.ndarray | tuple[str, Sequence[str] | np.ndarray]] = {
        "system": list(systems),
        "parameter": names[own],
        "parameter_label": ("parameter", labels[own]),
    }
    if shared.any():
        values["shared"] = theta[:, :, 0, shared]
        coords |= {"shared_parameter": names[shared], "shared_parameter_label": ("shared_parameter", labels[shared])}
    if phi:
        values |= {"mu": np.asarray(phi.mu)[..., own], "log_tau": np.asarray(phi.log_tau)[..., own]}
        if phi.covariate_effect is not None:
            values["covariate_effect"] = phi.covariate_effect
            coords["effect"] = [f"{name} by {column}" for name, column in effects]
            coords["effect_label"] = ("effect", [f"{label[name]} by {column}" for name, column in effects])
        if phi.correlation is not None:
            one, other = np.tril_indices(own.sum(), -1)
            values["correlation"] = correlations(phi.correlation, int(own.sum()))[..., one, other]
            coords["pair"] = [f"{labels[own][j]} and {labels[own][i]}" for i, j in zip(one, other)]
    if log_sigma:
        values["log_sigma"] = np.stack(list(log_sigma.values()), axis=-1)
        coords["quantity"] = list(log_sigma)
    for name, scalars in ((name, scalars) for name, scalars in laws.items() if scalars):
        values[name] = np.stack(list(scalars.values()), axis=-1)
        coords[KINDS[name].dims[0]] = list(scalars)
    variables = {
        name: ((*DRAWS, *KINDS[name].dims), array, {"words": KINDS[name].words, "title": KINDS[name].title})
        for name, array in values.items()
    }
    return xr.Dataset(variables, coords)


def labels_of(variable: xr.DataArray, dim: str) -> list[str]:
    """What people read along a dim of a variable."""
    return [str(label) for label in variable.coords.get(f"{dim}_label", variable.coords[dim]).values]


def scalar_name(variable: xr.DataArray, index: int) -> str:
    """One scalar of a variable (without chain and draw) in words; `index` counts through all of them."""
    place = np.unravel_index(index, variable.shape)
    labels = {str(dim): labels_of(variable, str(dim))[at] for dim, at in zip(variable.dims, place)}
    return str(variable.attrs["words"]).format(**labels)
