"""What figures and report show of a run, as plain arrays: the parts of a `View` that come from the run itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..diagnose import Trajectories, Truth
from ..laws import Law
from ..learning import Run
from ..posterior import closure_view
from ..sampling import labels_of
from ..show import TraceView


def view_parts(
    run: Run, truth: Truth | None, laws: Mapping[str, Law], visited: Mapping[str, np.ndarray], paths: Trajectories
) -> dict[str, Any]:
    theta, phi, problem = run.theta(), run.phi(), run.problem
    low, high = np.quantile(paths.fit, [0.025, 0.975], axis=0)
    return {
        "parameters": problem.parameters.names,
        "labels": problem.parameters.labels,
        "systems": run.data.systems,
        "theta": theta,
        "physical": np.asarray(problem.parameters.to_physical(theta)),
        "groups": run.groups,
        "mu": phi.mu if phi else None,
        "tau": np.exp(phi.log_tau) if phi else None,
        "population": traces_of(run, truth),
        "axes": problem.axes,
        "grid": problem.points,
        "shape": problem.shape,
        "triangles": problem.triangles,
        "quantities": problem.observed,
        "fit_mean": paths.fit.mean(axis=0),
        "fit_low": low,
        "fit_high": high,
        "observations": _observations(run),
        "bar_label": run.setup.exact.noise.bar_label,
        "residual_label": run.setup.exact.noise.residual_label,
        "scale_label": run.setup.exact.noise.scale_label,
        "closures": [closure_view(law, visited[law.name], truth) for law in laws.values()],
        "truth_theta": truth.theta if truth else None,
        "truth_mu": truth.mu if truth else None,
        "truth_tau": truth.tau if truth else None,
        "truth_fit": paths.truth,
    }


def traces_of(run: Run, truth: Truth | None) -> list[TraceView]:
    """Every variable above the systems, by name, on the scale it was sampled on."""
    known: dict[str, np.ndarray] = {}
    shared = np.array(run.problem.parameters.shared)
    if truth is not None:
        known["shared"] = np.asarray(truth.theta)[0, shared]
        known |= {} if truth.mu is None else {"mu": np.asarray(truth.mu)[~shared]}
        known |= {} if truth.tau is None else {"log_tau": np.log(np.asarray(truth.tau)[~shared])}
    return [
        TraceView(part.attrs["title"], tuple(labels_of(part, str(part.dims[-1]))), part.values, known.get(str(name)))
        for name, part in run.draws().data_vars.items()
        if name != "theta"
    ]


def _observations(run: Run) -> pd.DataFrame:
    """The data, with the size of the noise where it was inferred, and the ends of error bars."""
    rows, sigma = run.data.rows(), run.sigma()[run.data.mask]
    low, high = run.setup.exact.noise.interval(rows["value"].to_numpy(), sigma)
    return rows.assign(sigma=sigma, low=low, high=high)


def surrogate_apart(run: Run, fit: np.ndarray | None, paths: Trajectories) -> np.ndarray | None:
    """(system, quantity, point): surrogate - solver in units of the noise, of its usual scale where a quantity of a system
    was not observed."""
    if fit is None:
        return None
    data, sigma = run.data, run.sigma()
    scale = np.full((len(data.systems), len(data.quantities)), np.nan)
    for system, quantity in np.ndindex(*scale.shape):
        here = data.mask[system] & (data.quantity[system] == quantity)
        every = data.mask & (data.quantity == quantity)
        scale[system, quantity] = np.median(sigma[system, here] if here.any() else sigma[every])
    return run.setup.exact.noise.apart(fit, paths.fit.mean(axis=0), scale[..., None])
