"""The verdict: can this posterior be used, if not why, and what to do. No choice here knows the truth."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

RHAT_LIMIT = 1.01
ESS_LIMIT = 400


@dataclass
class Verdict:
    """`problems` keep a run from being called converged; `remarks` do not. Each says what to do."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def converged(self) -> bool:
        return not self.problems

    @property
    def lines(self) -> list[str]:
        head = "Converged." if self.converged else "NOT CONVERGED: do not use these results yet."
        return [head, *self.problems, *self.remarks]


def judge(run: Any, check: Any, chi_square: float, outside: dict[str, float]) -> Verdict:
    """Of a run, from its convergence figures, its mean squared standardised residual, and calls outside the tables."""
    verdict, settings = Verdict(), run.settings
    if not run.finished:
        doing = {"learn": "learning the closure", "settle": "settling", "sample": "sampling"}[run.phase]
        verdict.problems.append(
            f"Stopped at iteration {run.iteration} of {run.total}, while {doing}: what follows is where the run stood. "
            "Go on with `closura resume` on its folder."
        )
    if run.theta_draws:
        _judge_chains(verdict, run, check)
    _judge_sampler(verdict, settings)
    _judge_learning(verdict, run)
    if chi_square > 2:
        verdict.remarks.append(
            f"The fit misses the data by {np.sqrt(chi_square):.1f} noise standard deviations (root mean square): sigma is "
            "stated too small, or the physics lacks something the closure cannot supply."
        )
    for name, share in outside.items():
        if share > 1e-3:
            verdict.remarks.append(
                f"{share:.1%} of the calls of closure {name!r} lie outside its table, where it continues as a straight line."
            )
    evaluated = run.iteration * settings.chains * run.chains.log_step.shape[1]
    if evaluated and run.nonfinite > 0.01 * evaluated:
        verdict.remarks.append(
            f"{run.nonfinite / evaluated:.1%} of the proposals gave no finite solution and were rejected: narrow the priors, "
            "lower dt, or choose a stiff integrator."
        )
    if np.any(run.data.counts < 2):
        verdict.remarks.append(
            f"{int(np.sum(run.data.counts < 2))} systems have one observation: the population speaks for them."
        )
    return verdict


def _judge_chains(verdict: Verdict, run: Any, check: Any) -> None:
    if not np.isfinite(check.ess_bulk).any():
        verdict.problems.append(
            "Whether the chains agree cannot be told: there are fewer than four draws of each, or none ever moved. Raise "
            "--draws; if proposals are rejected throughout, see below."
        )
        return
    worst = check.rhat_max
    if not worst < RHAT_LIMIT:
        verdict.problems.append(
            f"R-hat is {f'{worst:.3f}' if worst < 100 else 'above 100'} (should be below {RHAT_LIMIT}), worst for {_name(run, int(np.nanargmax(_larger(check))))}: chains "
            "disagree. Raise --iterations; if two solutions fit that system equally well, sharpen its prior."
        )
    least = min(np.nanmin(check.ess_bulk), np.nanmin(check.ess_tail))
    if not least > ESS_LIMIT:
        verdict.problems.append(
            f"The draws are worth only {least:.0f} independent ones (should exceed {ESS_LIMIT}): raise --draws or --chains."
        )


def _larger(check: Any) -> np.ndarray:
    return np.maximum(check.rhat, check.rhat_nested)


def _name(run: Any, index: int) -> str:
    """Which scalar the convergence figures mean: theta first, then mu, then log tau."""
    labels, systems = run.problem.parameters.labels, run.data.systems
    count = len(labels)
    if index < len(systems) * count:
        return f"{labels[index % count]} of system {systems[index // count]}"
    index -= len(systems) * count
    return f"{'mean' if index < count else 'log variance'} of {labels[index % count]} in the population"


def _judge_sampler(verdict: Verdict, settings: Any) -> None:
    if settings.covariance == "self" and settings.preconditioner is not None:
        verdict.remarks.append("covariance='self' is the published, biased kernel: its spread comes out too small.")
    if not settings.metropolis:
        verdict.problems.append(
            "metropolis=False leaves a discretisation error in the draws: use it for comparison only."
        )
    if settings.groups < 2:
        verdict.remarks.append(
            "One group of chains: R-hat cannot compare preconditioners or starting points; use groups=4."
        )


def _judge_learning(verdict: Verdict, run: Any) -> None:
    """Did the likelihood still rise at the end of learning?"""
    entries = [entry["loglik"] for entry in run.history if entry["phase"][0] == "learn"]
    if not entries or not any(hasattr(law, "network") for law in run.laws.values()):
        return
    loglik = np.concatenate(entries)
    end = len(loglik)
    before, after = loglik[int(0.7 * end) : int(0.85 * end)], loglik[int(0.85 * end) :]
    if len(before) < 10 or not np.isfinite(before).all() or not np.isfinite(after).all():
        return
    gain = after.mean() - before.mean()
    noise = np.hypot(_standard_error(before), _standard_error(after))
    # One unit of log likelihood a system is what a parameter moves by one standard deviation.
    if gain > 4 * noise and gain > 0.5 * len(run.data.systems):
        verdict.problems.append(
            f"The closure was still improving when learning ended (log likelihood up by {gain:.1f} over the last sixth): "
            f"raise --iterations (now {run.settings.iterations})."
        )


def _standard_error(series: np.ndarray, batches: int = 8) -> float:
    """Of the mean of a correlated series, by batch means."""
    size = len(series) // batches
    if size == 0:
        return float("inf")
    means = series[: size * batches].reshape(batches, size).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(batches))
