"""From a run to a result: posterior in ArviZ's schema, metrics, what the figures show."""

import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from ..diagnose import (
    Truth,
    check_table,
    closure_mse,
    closure_mse_visited,
    confounded,
    judge,
    quantities,
    reading_error,
    remarks,
    spot_check,
    step_error,
    theta_scores,
    too_long,
    unstable,
)
from ..equations import ODE, Elliptic, Evolution, Problem, ProblemError, unit_scaling
from ..forward import solve_many
from ..laws import Closure, Known
from ..learning import Run
from ..population import correlation_factor
from ..posterior import Law, closure_view, replicate, residual_views, summarise, support_of, true_values
from ._result import Result

BAND_NUMBERS = 2_000_000
# Names the posterior needs for itself.
TAKEN = (
    "mu",
    "tau",
    "sigma",
    "correlation",
    "shift",
    "effect",
    "quantity",
    "chain",
    "draw",
    "system",
    "parameter",
    "other",
)


def check_names(problem: Problem) -> None:
    """Parameters become variables of the posterior: refuse names that mean something else there."""
    if not isinstance(problem, ODE | Elliptic | Evolution):
        raise ProblemError(
            f"a problem is a cl.ODE(...), cl.Elliptic(...) or cl.Evolution(...), not a {type(problem).__name__}; of a problem "
            "file, import `problem`, or use the command line: closura fit FILE --data TABLE"
        )
    for name in problem.parameters.names:
        if name in TAKEN:
            raise ProblemError(
                f"a parameter cannot be called {name!r}: in the posterior that name means something else "
                f"(taken: {', '.join(TAKEN)}); rename it, e.g. {name}_"
            )


@np.errstate(over="ignore", invalid="ignore")  # trajectories of a run that went wrong need not be finite
def collect(run: Run, truth: Truth | None = None, context: dict[str, Any] | None = None) -> Result:
    """`context` are settings the run does not know: where data came from, seeds of synthetic data."""
    context = dict(context or {})
    check, visited = run.convergence(), run.visited()
    paths = _paths(run, truth)
    replicas = replicate(run)
    chi_square = replicas.chi_square(run.sigma())
    checks = check_table(replicas.residual, replicas.inside, run.data)
    outside = run.outside()
    spot, surrogate_error = spot_check(run, paths, truth)
    reading = reading_error(run.problem, run.data, paths["fit"].mean(axis=0), run.sigma())
    learned = any(not isinstance(spec, Known) for spec in run.problem.closures.values())
    checked = remarks(checks, replicas.residual, run.data, run.problem.noise, learned=learned)
    scheme = None if run.diverged or run.phase == "learn" else _bad_scheme(run)
    verdict = judge(run, check, chi_square, outside, surrogate_error, reading, checked, scheme)
    if verdict.converged and run.laws:
        verdict.remarks += confounded(run)
    metrics = (
        _metrics(run, truth, check, context, paths)
        | {n: _number(x) for n, x in spot.items()}
        | {
            "converged": verdict.converged,
            "finished": run.finished,
            "diverged": run.diverged,
            "warnings": [*verdict.problems, *verdict.remarks],
            "rhat_max": _number(check.rhat_max),
            "ess_bulk_min": _number(np.nanmin(check.ess_bulk, initial=np.inf)),
            "ess_tail_min": _number(np.nanmin(check.ess_tail, initial=np.inf)),
            "rhat_chains_max": _number(np.nanmax(check.rhat, initial=-np.inf)),
            "rhat_groups_max": _number(np.nanmax(check.rhat_nested, initial=-np.inf)),
            "residual_chi_square": _number(chi_square),
            "outside_table": outside,
        }
    )
    history = (
        pd.DataFrame({key: np.concatenate([h[key] for h in run.history]) for key in run.history[0]})
        if run.history
        else (pd.DataFrame(columns=["iteration", "acceptance", "loglik", "temperature", "step_size", "phase"]))
    )
    inputs = run.problem.law_inputs()
    tables = {name: (np.asarray(ends.low), np.asarray(ends.high)) for name, ends in run.ranges.items()}
    laws = {
        name: Law(name, law, inputs[name], support_of(visited[name]), tables[name]) for name, law in run.laws.items()
    }
    tree = _tree(run)
    tree["posterior_predictive"] = xr.DataTree(replicas.dataset())
    table = summarise(tree, run.problem.parameters, check)
    return Result(
        problem=run.problem,
        data=run.data,
        settings={**context, **run.settings.model_dump()},
        verdict=verdict,
        metrics=metrics,
        tree=tree,
        history=history,
        closures=laws,
        network=run.network,
        visited=visited,
        truth=truth,
        summary_table=table,
        checks_table=checks,
        view_parts=_view_parts(run, truth, laws, visited, paths)
        | {"summary": table, "truth_summary": true_values(table, run.problem.parameters, truth)}
        | {"checks": checks, "residuals": residual_views(replicas, checks)},
    )


def _tree(run: Run) -> xr.DataTree:
    theta, phi = run.theta(), run.phi()
    names, data = list(run.problem.parameters.names), run.data
    physical = np.asarray(run.problem.parameters.to_physical(theta))
    coords = {
        "chain": np.arange(theta.shape[0]),
        "draw": np.arange(theta.shape[1]),
        "system": list(data.systems),
        "parameter": names,
    }
    dims = ("chain", "draw", "system")
    posterior: dict[str, Any] = {name: (dims, physical[..., i]) for i, name in enumerate(names)}
    unconstrained: dict[str, Any] = {"theta": ((*dims, "parameter"), theta)}
    if phi:
        posterior |= {
            "mu": (("chain", "draw", "parameter"), phi.mu),
            "tau": (("chain", "draw", "parameter"), np.exp(phi.log_tau)),
        }
        unconstrained |= {
            "mu": (("chain", "draw", "parameter"), phi.mu),
            "log_tau": (("chain", "draw", "parameter"), phi.log_tau),
        }
        if phi.slope is not None:
            pairs = [(name, column) for name, columns in run.problem.covariates.items() for column in columns]
            coords["effect"] = [f"{name} by {column}" for name, column in pairs]
            unit = np.array([data.constants[column].std() for _, column in pairs])
            posterior["shift"] = (("chain", "draw", "effect"), phi.slope / unit)
        if phi.bond is not None:
            varying = np.flatnonzero(~np.array(run.problem.parameters.shared))
            of_bonds = jnp.vectorize(lambda b: correlation_factor(b, len(varying)), signature="(b)->(p,p)")
            factor = np.asarray(of_bonds(phi.bond))
            coords["other"] = names
            both = np.full((*theta.shape[:2], len(names), len(names)), np.nan)
            both[..., varying[:, None], varying] = factor @ np.swapaxes(factor, -1, -2)
            posterior["correlation"] = (("chain", "draw", "parameter", "other"), both)
    log_sigma, scale = run.log_sigma(), run.setup.scale
    if log_sigma is not None and scale is not None:
        coords["quantity"] = list(data.quantities)
        posterior["sigma"] = (("chain", "draw", "quantity"), np.where(scale.free, np.exp(log_sigma), np.nan))
    observed = {
        key: (("system", "observation"), np.where(data.mask, value, np.nan))
        for key, value in (("value", data.value), ("sigma", run.sigma()))
    }
    for i, axis in enumerate(data.axes):
        observed[axis] = (("system", "observation"), np.where(data.mask, data.place[..., i], np.nan))
    names_of = np.array([*data.quantities, ""])[np.where(data.mask, data.quantity, len(data.quantities))]
    observed["quantity"] = (("system", "observation"), names_of)
    attributes = {
        "inference_library": "closura",
        "note": "mu, tau (variance) and shift (by one unit of a covariate, mu being at their means) are on the unconstrained scale",
    }
    systems = {"system": list(data.systems)}
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs=attributes),
            "/posterior": xr.Dataset(posterior, coords, attributes),
            "/unconstrained_posterior": xr.Dataset(unconstrained, coords, attributes),
            "/sample_stats": xr.Dataset({"group": ("chain", run.groups)}, {"chain": coords["chain"]}),
            "/observed_data": xr.Dataset(observed, systems),
        }
    )


def _paths(run: Run, truth: Truth | None) -> dict[str, Any]:
    """Posterior draws and their trajectories of the observed quantities, (draw, system, quantity, time); the truth's too."""
    forward, problem = run.setup.exact.forward, run.problem
    theta = run.theta()
    flat = theta.reshape(-1, *theta.shape[2:])
    wanted = int(np.clip(BAND_NUMBERS // (theta.shape[2] * len(problem.points) * len(problem.observed)), 32, 100))
    chosen = flat[np.linspace(0, len(flat) - 1, min(wanted, len(flat))).astype(int)]

    @eqx.filter_jit
    def solve(theta: Any, laws: Any) -> Any:
        theta = problem.parameters.complete(theta)
        flat = theta.reshape(-1, theta.shape[-1])
        paths = jax.vmap(lambda t, s: quantities(problem, t, s))(flat, solve_many(forward, flat, laws))
        return paths.reshape(*theta.shape[:-1], *paths.shape[1:])

    laws = run.views
    fit = np.asarray(solve(jnp.asarray(chosen), laws))
    paths: dict[str, Any] = {"draws": chosen, "fit": fit, "truth": None, "visited_truth": {}}
    true_laws = {} if truth is None else truth.laws or {}
    if truth is not None and problem.closures.keys() <= true_laws.keys():
        known = {
            n: Known(true_laws[n], s.inputs).build(jax.random.key(0), unit_scaling(s.inputs))
            for n, s in problem.closures.items()
        }
        true_theta = jnp.asarray(truth.theta, float)[None]
        paths["truth"] = np.asarray(solve(true_theta, known))[0]
        true_theta = problem.parameters.complete(true_theta[0])
        seen = eqx.filter_jit(jax.vmap(lambda t: forward.visited(t, known)))(true_theta)
        paths["visited_truth"] = {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in seen.items()}
    return paths


def _bad_scheme(run: Run) -> str | None:
    """What is wrong with the steps at the parameters found, if anything; they were chosen before these were known."""
    theta = run.theta().mean(axis=(0, 1))
    if isinstance(run.problem, Evolution):
        return unstable(run.problem, run.views, theta)
    error = step_error(run, theta[None])
    return None if error is None else too_long(run.problem, run.data.systems, error[0])


def _metrics(
    run: Run, truth: Truth | None, check: Any, context: dict[str, Any], paths: dict[str, Any]
) -> dict[str, Any]:
    theta, phi, settings = run.theta(), run.phi(), run.settings
    learned = {n: law for n, law in run.laws.items() if isinstance(law, Closure)}
    theta_mse = coverage = law_mse = law_mse_visited = None
    if truth is not None:
        theta_mse, coverage = theta_scores(theta, truth.theta)
        laws, ranges, seen = truth.laws or {}, truth.ranges or {}, paths["visited_truth"]
        on_range = [closure_mse(law, laws[n], ranges[n]) for n, law in learned.items() if n in laws and n in ranges]
        on_visits = [closure_mse_visited(law, laws[n], seen[n]) for n, law in learned.items() if n in seen]
        law_mse = float(np.mean(on_range)) if on_range else None
        law_mse_visited = float(np.mean(on_visits)) if on_visits else None
    labels = run.problem.parameters.labels
    seconds = time.perf_counter() - run.began
    return {
        "problem": run.problem.name,
        "forward": settings.forward,
        "hierarchical": settings.hierarchy,
        "oracle": bool(run.problem.closures) and not learned,
        "systems": len(run.data.systems),
        "chains": settings.chains,
        "iterations": run.iteration,
        "seed": settings.seed,
        "data_seed": context.get("data_seed"),
        "theta_mse": _number(theta_mse),
        "coverage_2sd": _number(coverage),
        "closure_mse": _number(law_mse),
        "closure_mse_visited": _number(law_mse_visited),
        "second_stage_acceptance": _second_stage(run),
        "mu": dict(zip(labels, phi.mu.mean((0, 1)).tolist())) if phi else None,
        "tau": dict(zip(labels, np.exp(phi.log_tau).mean((0, 1)).tolist())) if phi else None,
        "noise_sd": _noise(run),
        "seconds_total": seconds,
        "seconds_compile": run.seconds_compile,
        "seconds_per_iteration": (seconds - run.seconds_compile) / max(1, run.iteration),
        "peak_rss_mb": _peak_memory(),
    }


def _peak_memory() -> float | None:
    """Return the most memory this process has held, in MB; None where the system does not say (native Windows)."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _second_stage(run: Run) -> float | None:
    """Of the kept draws' phase, where a surrogate was corrected by the solver."""
    figures = [h["second_stage"] for h in run.history if h["phase"][0] == "sample" and "second_stage" in h]
    known = np.concatenate([f[np.isfinite(f)] for f in figures]) if figures else np.zeros(0)
    return float(known.mean()) if known.size else None


def _noise(run: Run) -> float | None:
    """The known noise, where it is one number."""
    sigma = run.sigma()[run.data.mask]
    return float(sigma[0]) if np.all(sigma == sigma[0]) else None


def _number(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _view_parts(
    run: Run, truth: Truth | None, laws: dict[str, Law], visited: dict[str, np.ndarray], paths: dict[str, Any]
) -> dict[str, Any]:
    theta, phi, parameters, data = run.theta(), run.phi(), run.problem.parameters, run.data
    low, high = np.quantile(paths["fit"], [0.025, 0.975], axis=0)
    systems, places = np.nonzero(data.mask)
    family, value, sigma = run.setup.exact.family, data.value[systems, places], run.sigma()[systems, places]
    frame = pd.DataFrame(
        {
            "system": np.array(data.systems)[systems],
            **dict(zip(data.axes, data.place[systems, places].T)),
            "quantity": np.array(data.quantities)[data.quantity[systems, places]],
            "value": value,
            "sigma": sigma,
            **dict(zip(("low", "high"), family.ends(value, sigma))),
        }
    )
    return {
        "parameters": parameters.names,
        "labels": parameters.labels,
        "systems": data.systems,
        "theta": theta,
        "physical": np.asarray(parameters.to_physical(theta)),
        "groups": run.groups,
        "mu": phi.mu if phi else None,
        "tau": np.exp(phi.log_tau) if phi else None,
        "axes": run.problem.axes,
        "grid": run.problem.points,
        "shape": run.problem.shape,
        "triangles": run.problem.triangles,
        "quantities": run.problem.observed,
        "fit_mean": paths["fit"].mean(axis=0),
        "fit_low": low,
        "fit_high": high,
        "observations": frame,
        "log_noise": family.log,
        "closures": [closure_view(law, visited[law.name], truth) for law in laws.values()],
        "truth_theta": truth.theta if truth else None,
        "truth_mu": truth.mu if truth else None,
        "truth_tau": truth.tau if truth else None,
        "truth_fit": paths["truth"],
        "surrogate_fit": paths.get("surrogate"),
    }
