"""From a run to a result: everything that is said, drawn or kept of it."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from ..diagnose import (
    Evidence,
    Trajectories,
    Truth,
    Verdict,
    bad_scheme,
    check_table,
    confounded,
    contraction,
    judge,
    law_contraction,
    remarks,
    scores,
    spot_check,
    trajectories,
    typical_inputs,
    what_data_leave_open,
)
from ..equations import Equation, ProblemError, kinds_in_words
from ..laws import FittedLaw, fitted, unresolved
from ..learning import Run
from ..posterior import (
    closure_view,
    noise_by_quantity,
    posterior_tree,
    replicate,
    residual_views,
    summarise,
    true_values,
)
from ..sampling import labels_of
from ..show import TraceView
from ._checkpoint import whole_history
from ._result import Result

Figures = Mapping[str, object]
EMPTY_HISTORY = ("iteration", "acceptance", "loglik", "temperature", "step_size", "phase")
# Names the posterior needs for itself.
TAKEN: tuple[str, ...] = ("mu", "tau", "sigma", "correlation", "shift", "effect", "quantity")
TAKEN += ("chain", "draw", "system", "parameter", "other")


def check_names(problem: Equation) -> None:
    """Parameters become variables of the posterior: refuse names that mean something else there."""
    if not isinstance(problem, Equation):
        raise ProblemError(
            f"a problem is a {kinds_in_words()}, not a {type(problem).__name__}; of a problem "
            "file, import `problem`, or use the command line: closura fit FILE --data TABLE"
        )
    for name in problem.parameters.names:
        if name in TAKEN:
            raise ProblemError(
                f"a parameter cannot be called {name!r}: in the posterior that name means something else "
                f"(taken: {', '.join(TAKEN)}); rename it, e.g. {name}_"
            )


@np.errstate(over="ignore", invalid="ignore")  # trajectories of a run that went wrong need not be finite
def collect(run: Run, truth: Truth | None = None, context: Mapping[str, object] | None = None) -> Result:
    """`context` are settings the run does not know: where data came from, seeds of synthetic data."""
    context, problem, data, visited = dict(context or {}), run.problem, run.data, run.visited()
    run.join_chunks()
    paths, replicas, noise = trajectories(run, truth), replicate(run), run.setup.exact.noise
    checks = check_table(replicas.residual, replicas.inside, data)
    surrogate = spot_check(run, paths, truth)
    learned = any(spec.trainable for spec in problem.closures.values())
    unit = noise.unit(replicas.predicted.mean(axis=0), run.sigma())
    laws = _laws(run, visited)
    found = Evidence(
        convergence=run.convergence(),
        chi_square=replicas.chi_square(run.sigma()),
        outside=run.outside(),
        surrogate_error=surrogate.error,
        reading=problem.interpolation_error(data, paths.fit.mean(axis=0), unit),
        checked=remarks(checks, replicas.residual, data, noise, learned=learned),
        scheme=None if run.diverged or run.phase == "learn" else bad_scheme(run),
        draws=run.draws(),
        log_step=run.log_steps,
        stepped=run.setup.moved_blocks(run.state.tuning) if run.phase != "learn" else None,
        undecided=what_data_leave_open(run, laws, visited) if run.chunks else (),
    )
    verdict = judge(run, found)
    if verdict.converged and verdict.learned:
        verdict.remarks += confounded(run)
    remarked, narrowed = _sampled_laws(run, laws, visited)
    verdict.remarks += remarked
    scored = {"data_seed": context.get("data_seed"), **scores(run, truth, paths, laws), "law_contraction": narrowed}
    shown = [closure_view(law, visited[law.name], truth) for law in laws.values()]
    physical = np.asarray(problem.parameters.to_physical(run.theta()))
    tree = posterior_tree(run, physical, replicas.dataset(), laws, shown)
    table = summarise(tree, problem.parameters, found.convergence, contraction(run))
    drawn = _view_parts(run, physical, truth, paths) | {
        "summary": table,
        "truth_summary": true_values(table, problem.parameters, truth),
        "closures": shown,
        "surrogate_fit": surrogate.fit,
        "surrogate_apart": _surrogate_apart(run, surrogate.fit, paths),
        "checks": checks,
        "residuals": residual_views(replicas, checks),
    }
    return Result(
        problem=problem,
        data=data,
        settings={**context, **run.settings.model_dump()},
        verdict=verdict,
        metrics=finite(_metrics(run, found, verdict, scored, surrogate.figures)),
        tree=tree,
        history=pd.DataFrame(whole_history(run), columns=None if run.history else EMPTY_HISTORY),
        closures=laws,
        network=run.network,
        visited=visited,
        truth=truth,
        summary_table=table,
        checks_table=checks,
        view_parts=drawn,
    )


def _sampled_laws(
    run: Run, laws: Mapping[str, FittedLaw], visited: Mapping[str, np.ndarray]
) -> tuple[list[str], dict[str, float]]:
    """What is to be said of sampled laws, and the share of the prior's variance of each that data took: at half of the inputs
    visited at least so much."""
    known = [law for name, law in laws.items() if law.law.spec.sampled and run.chunks and len(visited[name])]
    narrowed = {law.name: law_contraction(law, typical_inputs(visited[law.name])) for law in known}
    remarked = [remark for law in known if (remark := unresolved(law))]
    return remarked, {name: float(np.median(values)) for name, values in narrowed.items()}


def _laws(run: Run, visited: Mapping[str, np.ndarray]) -> dict[str, FittedLaw]:
    """The laws with where data supported them, and the range of their tables."""
    inputs = run.problem.law_input_names()
    frames = jax.device_get(run.state.ranges)
    own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), run.kept.law) or {}
    laws = {name: own.get(name, law) for name, law in run.laws.items()}
    return {name: fitted(name, law, inputs[name], visited[name], frames[name]) for name, law in laws.items()}


def _metrics(run: Run, found: Evidence, verdict: Verdict, scored: Figures, surrogate: Figures) -> dict[str, Any]:
    """`metrics.json`: what was run, how well it did, and what it took, flat; None where a figure does not apply."""
    settings, phi, worst = run.settings, run.phi(), found.convergence.worst
    population = {"mu": phi.mu, "tau": np.exp(phi.log_tau)} if phi else {}
    labels = run.problem.parameters.labels
    means = {name: dict(zip(labels, values.mean((0, 1)).tolist())) for name, values in population.items()}
    second = [h["second_stage"] for h in run.history if h["phase"][0] == "sample" and "second_stage" in h]
    passed = np.concatenate([[], *second])
    passed = passed[np.isfinite(passed)]
    sigma, seconds = run.sigma()[run.data.mask], time.perf_counter() - run.began
    return {
        "problem": run.problem.name,
        "forward": settings.forward,
        "hierarchical": settings.hierarchy,
        "oracle": bool(run.problem.closures) and not any(law.spec.trainable for law in run.laws.values()),
        "systems": len(run.data.systems),
        "chains": settings.chains,
        "iterations": run.iteration,
        "seed": settings.seed,
        **scored,
        # Of the phase of the kept draws, where a surrogate was corrected by the solver.
        "second_stage_acceptance": float(passed.mean()) if passed.size else None,
        # Posterior means, by the names of the unconstrained parameters.
        "mu": means.get("mu"),
        "tau": means.get("tau"),
        "noise_sd": float(sigma[0]) if np.all(sigma == sigma[0]) else None,
        "seconds_total": seconds,
        "seconds_compile": run.seconds_compile,
        "seconds_per_iteration": (seconds - run.seconds_compile) / max(1, run.iteration),
        "peak_rss_mb": _peak_memory(),
        **surrogate,
        "verdict": verdict.word,
        "undecided": verdict.names,
        "converged": verdict.converged,
        # The law is one estimate, and intervals leave its error out.
        "law_learned": verdict.learned,
        "finished": run.finished,
        "diverged": run.diverged,
        "warnings": [*verdict.problems, *verdict.remarks],
        "rhat_max": worst("rhat").value,
        "ess_bulk_min": worst("ess_bulk").value,
        "ess_tail_min": worst("ess_tail").value,
        "rhat_chains_max": worst("rhat_chains").value,
        "rhat_groups_max": worst("rhat_groups").value,
        "residual_chi_square": found.chi_square,
        "outside_table": dict(found.outside),
    }


def finite(value: object) -> Any:
    """Without infinities and NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _peak_memory() -> float | None:
    """Return the most memory this process has held, in MB; None where the system does not say (native Windows)."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _view_parts(run: Run, physical: np.ndarray, truth: Truth | None, paths: Trajectories) -> dict[str, Any]:
    """What figures and report show of a run, as plain arrays."""
    theta, phi, problem, noise = run.theta(), run.phi(), run.problem, run.setup.exact.noise
    low, high = np.quantile(paths.fit, [0.025, 0.975], axis=0)
    rows, sigma = run.data.rows(), run.sigma()[run.data.mask]
    bar_low, bar_high = noise.interval(rows["value"].to_numpy(), sigma)
    return {
        "parameters": problem.parameters.names,
        "labels": problem.parameters.labels,
        "systems": run.data.systems,
        "theta": theta,
        "physical": physical,
        "groups": run.groups,
        "mu": phi.mu if phi else None,
        "tau": np.exp(phi.log_tau) if phi else None,
        "population": traces_of(run, truth),
        "grid": problem.points,
        "quantities": problem.observed,
        "fit_mean": paths.fit.mean(axis=0),
        "fit_low": low,
        "fit_high": high,
        "observations": rows.assign(sigma=sigma, low=bar_low, high=bar_high),
        "truth_fit": paths.truth,
        **{name: getattr(problem, name) for name in ("axes", "shape", "triangles")},
        **{name: getattr(noise, name) for name in ("bar_label", "residual_label", "scale_label")},
        **{f"truth_{name}": getattr(truth, name, None) for name in ("theta", "mu", "tau")},
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


def _surrogate_apart(run: Run, fit: np.ndarray | None, paths: Trajectories) -> np.ndarray | None:
    """(system, quantity, point): surrogate - solver in units of the noise, of its usual scale where a quantity of a system
    was not observed."""
    if fit is None:
        return None
    scale = noise_by_quantity(run.data.rows().assign(sigma=run.sigma()[run.data.mask]), run.data).to_numpy()
    return run.setup.exact.noise.apart(fit, paths.fit.mean(axis=0), scale[..., None])
