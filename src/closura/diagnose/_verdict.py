"""The verdict: can this posterior be used, if not why, and what to do. No choice here knows the truth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..sampling import ESS_LEAST, RHAT_LIMIT
from ._remarks import Remark

SURROGATE_LIMIT = 0.5
READING_LIMIT = 0.2
# With so many failed proposals every other complaint has this one cause.
HOPELESS = 0.95
MAKE_SOLVABLE = "narrow the priors, lower dt, or choose a stiff integrator"
# Iterations at full temperature near the end of learning that tell whether it had settled.
LEARNING_LEAST = 20


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


class SurrogateError(NamedTuple):
    """How far a surrogate is from the solver at posterior draws, in units of the noise; and for which system most."""

    overall: float
    worst: float
    system: str


def judge(
    run: Any,
    check: Any,
    chi_square: float,
    outside: dict[str, float],
    surrogate_error: SurrogateError | None = None,
    reading: dict[str, float] | None = None,
    checked: Sequence[Remark] = (),
    scheme: str | None = None,
) -> Verdict:
    """Of a run, from its convergence figures, its mean squared standardised residual, calls outside the tables, how far a
    surrogate is from the solver, how well solutions are read between points of their grid (by axis, over the noise), what
    posterior predictive checks found, and what is wrong with the scheme."""
    verdict, settings = Verdict(), run.settings
    if run.diverged is not None:
        verdict.problems.append(f"{run.diverged} What follows is where the run stood before.")
    elif not run.finished:
        doing = {
            "learn": "learning the closure" if run.laws else "warming up",
            "settle": "settling",
            "sample": "sampling",
        }[run.phase]
        verdict.problems.append(
            f"Stopped at iteration {run.iteration} of {run.total}, while {doing}: what follows is where the run stood. "
            "Go on with `closura resume` on its folder."
        )
    failed = _failed_share(run)
    if failed <= HOPELESS:
        if run.theta_draws:
            _judge_chains(verdict, run, check)
        # While a run still learns there is nothing to hold against it but that it stopped.
        if run.phase != "learn":
            _judge_learning(verdict, run)
            _judge_fit(verdict, run, chi_square, checked)
    _judge_sampler(verdict, settings)
    if surrogate_error is not None and run.phase != "learn":
        _judge_surrogate(verdict, settings, surrogate_error)
    for name, share in outside.items():
        if share > 1e-3:
            verdict.remarks.append(
                f"{share:.1%} of the calls of closure {name!r} lie outside its table, where it continues as a straight line."
            )
    for axis, error in (reading or {}).items():
        if error > READING_LIMIT:
            verdict.remarks.append(
                f"Observations lie between the {'snapshots' if axis == 'time' else 'nodes'} of the solution, and reading it there is "
                f"off by about {error:.2g} times the noise: raise the problem's {'snapshots' if axis == 'time' else 'cells'}."
            )
    if scheme is not None:
        verdict.remarks.append(scheme)
    if run.diverged is not None:
        failed = 0.0  # that has been said
    if failed > HOPELESS:
        verdict.problems.append(
            f"{failed:.1%} of the proposals gave no finite solution and were rejected, so that the chains hardly moved: "
            f"{MAKE_SOLVABLE}."
        )
    elif failed > 0.01:
        verdict.remarks.append(
            f"{failed:.1%} of the proposals gave no finite solution and were rejected: {MAKE_SOLVABLE}."
        )
    lonely, known_from = int(np.sum(run.data.counts < 2)), "population" if settings.hierarchy else "prior"
    if lonely:
        have, them = ("system has", "it") if lonely == 1 else ("systems have", "them")
        verdict.remarks.append(f"{lonely} {have} one observation: the {known_from} speaks for {them}.")
    return verdict


def _judge_surrogate(verdict: Verdict, settings: Any, off: SurrogateError) -> None:
    """A surrogate that is off by half the noise moves posteriors visibly. Corrected by the solver it does not, but the law was
    learned from its draws."""
    error = off.overall
    if error <= SURROGATE_LIMIT:
        if off.worst > SURROGATE_LIMIT and not settings.corrected:
            verdict.remarks.append(
                f"For system {off.system} the surrogate is off from the solver by {off.worst:.2f} times the noise (all: "
                f"{error:.2f}): its parameters may be off. Raise --iterations, or sample with --exact."
            )
        return
    size = f"{error:.2f} times the noise" if np.isfinite(error) else "beyond all numbers"
    if settings.corrected:
        verdict.remarks.append(
            f"The surrogate is off by {size}; the kept draws are corrected by the solver, but the law was learned from draws of "
            "the surrogate: raise --iterations, or inner_steps."
        )
        return
    verdict.problems.append(
        f"The surrogate is off from the solver by {size} at posterior draws (should be below {SURROGATE_LIMIT}): raise "
        "--iterations, or inner_steps; sample with --exact, which corrects it by the solver; or use --forward solver."
    )


def _failed_share(run: Any) -> float:
    """The share of proposals without a finite solution."""
    evaluated = run.iteration * run.settings.chains * run.chains.log_step.shape[1]
    return run.nonfinite / evaluated if evaluated else 0.0


def _learns(run: Any) -> bool:
    return any(law.spec.trainable for law in run.laws.values())


def _judge_chains(verdict: Verdict, run: Any, check: Any) -> None:
    larger = np.fmax(check.rhat, check.rhat_nested)
    if any(np.isnan(figures).all() for figures in (larger, check.ess_bulk, check.ess_tail)):
        verdict.problems.append(
            "Whether the chains agree cannot be told: there are fewer than four draws of each, or none ever moved. Raise "
            "--draws; if proposals are rejected throughout, see below."
        )
        return
    worst = check.rhat_max
    if not worst < RHAT_LIMIT:
        verdict.problems.append(
            f"R-hat is {f'{worst:.3f}' if worst < 100 else 'above 100'} (should be below {RHAT_LIMIT}), worst for {_name(run, int(np.nanargmax(larger)))}: chains "
            "disagree. Raise --iterations; if two solutions fit that system equally well, sharpen its prior."
        )
    least = min(np.nanmin(check.ess_bulk), np.nanmin(check.ess_tail))
    if not least > ESS_LEAST:
        verdict.problems.append(
            f"The draws are worth only {least:.0f} independent {'one' if round(least) == 1 else 'ones'} (should exceed "
            f"{ESS_LEAST}): raise --draws or --chains."
        )


def _name(run: Any, index: int) -> str:
    """Which scalar the convergence figures mean: theta first, then mu, log tau, what correlations come from, and noise."""
    labels, systems = run.problem.parameters.labels, run.data.systems
    count = len(labels)
    if index < len(systems) * count:
        return f"{labels[index % count]} of system {systems[index // count]}"
    above: list[str] = []
    if run.settings.hierarchy:
        above += [f"{what} of {label} in the population" for what in ("mean", "log variance") for label in labels]
        shifts = [(name, column) for name, columns in run.problem.covariates.items() for column in columns]
        above += [f"shift of {name} by {column} in the population" for name, column in shifts]
        if run.settings.population == "full":
            pairs = [(labels[j], labels[i]) for i in range(count) for j in range(i)]
            above += [f"correlation of {one} and {other} in the population" for one, other in pairs]
    index -= len(systems) * count
    return above[index] if index < len(above) else "the size of the noise"


def _judge_sampler(verdict: Verdict, settings: Any) -> None:
    if settings.covariance == "self" and settings.preconditioner is not None:
        verdict.remarks.append(
            "covariance='self' is the published kernel, biased while its covariance moves with the chains, as it does while "
            "learning; kept draws use a frozen covariance and are not biased by it."
        )
    if not settings.metropolis:
        verdict.problems.append(
            "metropolis=False leaves a discretisation error in the draws: use it for comparison only."
        )
    if settings.groups < 2:
        verdict.remarks.append(
            "One group of chains: R-hat cannot compare preconditioners or starting points; use groups=4."
        )


def _judge_fit(verdict: Verdict, run: Any, chi_square: float, checked: Sequence[Remark]) -> None:
    """Are the residuals those of noise? Far too large is a problem; what else is odd about them a remark."""
    if not np.sum(run.data.counts):
        return
    if not np.isfinite(chi_square):
        verdict.problems.append(
            f"Whether the fit meets the data cannot be told: some draws predict nothing finite there. {MAKE_SOLVABLE.capitalize()}."
        )
        return
    if chi_square > 2:
        missing, stuck = (
            ("physics is missing that the closure cannot supply", "learning")
            if _learns(run)
            else ("physics is missing", "the chains")
        )
        verdict.problems.append(
            f"The fit misses the data by {np.sqrt(chi_square):.1f} noise standard deviations (root mean square; about 1 is right): "
            f"the noise is larger than stated, {missing}, or {stuck} got stuck. Check sigma and the equation; raise --iterations (now "
            f"{run.settings.iterations}) or try another --seed."
        )
        checked = [one for one in checked if one.level == "system" or one.check not in ("chi_square", "inside")]
    verdict.remarks += [one.text for one in checked]


def _judge_learning(verdict: Verdict, run: Any) -> None:
    """Did the likelihood, or the joint density of data, parameters and population, still rise at the end of learning?

    Where law and parameters trade off against each other the likelihood is flat and only the joint density rises.
    """
    if not _learns(run):
        return
    entries = [entry for entry in run.history if entry["phase"][0] == "learn"]
    steps, tried = run.law_steps, sum(len(entry["phase"]) for entry in entries)
    if steps < 0.9 * tried:
        verdict.problems.append(
            f"The law learned in {steps} of {tried} iterations only: in the others the solver had no finite solution where the "
            f"chains stood; {MAKE_SOLVABLE}."
        )
    kinds = {"loglik": "log likelihood", "log_joint": "log joint density"}
    series = {
        words: np.concatenate([entry[key] for entry in entries])
        for key, words in kinds.items()
        if entries and all(key in entry for entry in entries)
    }
    temperature = np.concatenate([np.zeros(0), *(entry["temperature"] for entry in entries)])
    # At its end a surrogate learns alone: what rises there is not the law's doing.
    alone = getattr(run.settings, "polish", 0.0) if getattr(run, "network", None) is not None else 0.0
    last = slice(int(0.7 * (1 - alone) * len(temperature)), int((1 - alone) * len(temperature)))
    whole = temperature[last] >= 1
    usable = np.all([whole, *(np.isfinite(values[last]) for values in series.values())], axis=0)
    if usable.sum() < LEARNING_LEAST:
        _say_unjudged(verdict, run.settings, whole, usable)
        return
    rises = {words: _rise(values[last][usable], len(run.data.systems)) for words, values in series.items()}
    said = " and ".join(f"{words} up by {rise:.1f}" for words, rise in rises.items() if rise)
    if said:
        verdict.problems.append(
            f"The closure was still improving when learning ended ({said} within the last {len(whole)} iterations): raise "
            f"--iterations (now {run.settings.iterations})."
        )


def _say_unjudged(verdict: Verdict, settings: Any, whole: np.ndarray, usable: np.ndarray) -> None:
    """`whole` and `usable`: which of the last iterations of learning were at full temperature, and finite as well."""
    advice = []
    if len(whole) < LEARNING_LEAST:
        advice.append(f"raise --iterations (now {settings.iterations})")
    if not whole.all():
        advice.append(f"lower --set warmup (now {settings.warmup:g}: the likelihood was tempered nearly to the end)")
    if (whole & ~usable).any():
        advice.append(f"where the likelihood was not finite, {MAKE_SOLVABLE}")
    verdict.problems.append(
        f"Whether the closure had settled cannot be judged: only {usable.sum()} of the last {len(whole)} iterations of "
        f"learning can tell, and it takes {LEARNING_LEAST}. {'; '.join(advice).capitalize()}."
    )


def _rise(series: np.ndarray, systems: int) -> float:
    """By how much the second half lies above the first; zero where that means nothing."""
    before, after = np.array_split(series, 2)
    gain = float(after.mean() - before.mean())
    noise = np.hypot(_standard_error(before), _standard_error(after))
    # One unit of log likelihood a system is what a parameter moves by one standard deviation.
    return gain if gain > 4 * noise and gain > 0.5 * systems else 0.0


def _standard_error(series: np.ndarray, batches: int = 8) -> float:
    """Of the mean of a correlated series, by batch means."""
    size = len(series) // batches
    if size == 0:
        return float("inf")
    means = series[: size * batches].reshape(batches, size).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(batches))
