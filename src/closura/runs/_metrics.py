"""`metrics.json`: the figures of a run, flat; null where the truth is not known, or a figure does not apply."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..diagnose import Evidence, Trajectories, Truth, Verdict, closure_mse, closure_mse_visited, theta_scores
from ..learning import Run

Metrics = dict[str, Any]
CHAINS = {
    "rhat_max": "rhat",
    "ess_bulk_min": "ess_bulk",
    "ess_tail_min": "ess_tail",
    "rhat_chains_max": "rhat_chains",
    "rhat_groups_max": "rhat_groups",
}


def metrics_of(run: Run, truth: Truth | None, paths: Trajectories, data_seed: int | None) -> Metrics:
    """What was run, how well it did, and what it took."""
    settings, laws, seconds = run.settings, run.laws, time.perf_counter() - run.began
    return {
        "problem": run.problem.name,
        "forward": settings.forward,
        "hierarchical": settings.hierarchy,
        "oracle": bool(run.problem.closures) and not any(law.spec.trainable for law in laws.values()),
        "systems": len(run.data.systems),
        "chains": settings.chains,
        "iterations": run.iteration,
        "seed": settings.seed,
        "data_seed": data_seed,
        **_scores(run, truth, paths),
        "second_stage_acceptance": _second_stage(run),
        **_population(run),
        "noise_sd": _noise(run),
        "seconds_total": seconds,
        "seconds_compile": run.seconds_compile,
        "seconds_per_iteration": (seconds - run.seconds_compile) / max(1, run.iteration),
        "peak_rss_mb": _peak_memory(),
    }


def verdict_metrics(run: Run, verdict: Verdict, found: Evidence, surrogate: Mapping[str, float | None]) -> Metrics:
    """What a verdict is made of, and what it says; `surrogate` are figures of its own."""
    return {
        **{name: number(value) for name, value in surrogate.items()},
        "converged": verdict.converged,
        "finished": run.finished,
        "diverged": run.diverged,
        "warnings": [*verdict.problems, *verdict.remarks],
        **{key: number(found.convergence.worst(figure).value) for key, figure in CHAINS.items()},
        "residual_chi_square": number(found.chi_square),
        "outside_table": dict(found.outside),
    }


def number(value: float | None) -> float | None:
    """As JSON has it: infinities and NaN are null."""
    return None if value is None or not np.isfinite(value) else float(value)


def _scores(run: Run, truth: Truth | None, paths: Trajectories) -> Metrics:
    """Against the truth, where there is one."""
    names = ("theta_mse", "coverage_2sd", "closure_mse", "closure_mse_visited")
    if truth is None:
        return dict.fromkeys(names)
    learned = {name: law for name, law in run.laws.items() if law.spec.trainable}
    laws, ranges, seen = truth.laws or {}, truth.ranges or {}, paths.visited_truth
    on_range = [closure_mse(law, laws[n], ranges[n]) for n, law in learned.items() if n in laws and n in ranges]
    on_visits = [closure_mse_visited(law, laws[n], seen[n]) for n, law in learned.items() if n in seen]
    means = [float(np.mean(part)) if part else None for part in (on_range, on_visits)]
    return dict(zip(names, map(number, (*theta_scores(run.theta(), truth.theta), *means))))


def _population(run: Run) -> Metrics:
    """Posterior means of the population's mean and variance, by the names of the unconstrained parameters."""
    phi, labels = run.phi(), run.problem.parameters.labels
    if not phi:
        return {"mu": None, "tau": None}
    parts = {"mu": phi.mu, "tau": np.exp(phi.log_tau)}
    return {name: dict(zip(labels, part.mean((0, 1)).tolist())) for name, part in parts.items()}


def _second_stage(run: Run) -> float | None:
    """Of the kept draws' phase, where a surrogate was corrected by the solver."""
    figures = [h["second_stage"] for h in run.history if h["phase"][0] == "sample" and "second_stage" in h]
    known = np.concatenate([f[np.isfinite(f)] for f in figures]) if figures else np.zeros(0)
    return float(known.mean()) if known.size else None


def _noise(run: Run) -> float | None:
    """The known noise, where it is one number."""
    sigma = run.sigma()[run.data.mask]
    return float(sigma[0]) if np.all(sigma == sigma[0]) else None


def _peak_memory() -> float | None:
    """Return the most memory this process has held, in MB; None where the system does not say (native Windows)."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
