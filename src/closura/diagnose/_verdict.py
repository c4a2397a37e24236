"""The verdict: can this posterior be used, if not why, and what to do. No choice here knows the truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr

from ..forward import noise_of
from ..learning import Run, Settings
from ..sampling import Convergence
from ._remarks import Remark, disagreements, odd_steps, repeated_draws
from ._trajectories import SurrogateError

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


class Evidence(NamedTuple):
    """What a verdict is made of, beside the run itself.

    - `convergence`: figures of every scalar; `draws` by name and `log_step` (group, block): do the chains move?
    - `chi_square`: mean squared standardised residual; `checked`: what posterior predictive checks found.
    - `outside`: share of calls of each law outside its table.
    - `surrogate_error`: how far a surrogate is from the solver.
    - `reading`: how well solutions are read between points of their grid, by axis, over the noise.
    - `scheme`: what is wrong with the steps in time, if anything.
    """

    convergence: Convergence
    chi_square: float
    outside: Mapping[str, float]
    surrogate_error: SurrogateError | None = None
    reading: Mapping[str, float] = MappingProxyType({})
    checked: Sequence[Remark] = ()
    scheme: str | None = None
    draws: xr.Dataset | None = None
    log_step: np.ndarray | None = None


def judge(run: Run, found: Evidence) -> Verdict:
    """Can this run be used, and if not, why, and what to do?"""
    verdict = Verdict()
    failed = run.nonfinite / max(1, run.iteration * run.settings.chains * run.blocks)
    _judge_end(verdict, run)
    if failed <= HOPELESS:
        if run.chunks:
            _judge_chains(verdict, run, found)
        # While a run still learns there is nothing to hold against it but that it stopped.
        if run.phase != "learn":
            _judge_learning(verdict, run)
            _judge_fit(verdict, run, found.chi_square, found.checked)
    _judge_sampler(verdict, run.settings)
    if found.surrogate_error is not None and run.phase != "learn":
        _judge_surrogate(verdict, run.settings, found.surrogate_error)
    _judge_discretisation(verdict, found)
    if run.diverged is None:  # else that has been said
        _judge_failures(verdict, failed)
    lonely, known_from = int(np.sum(run.data.counts < 2)), "population" if run.settings.hierarchy else "prior"
    if lonely:
        have, them = ("system has", "it") if lonely == 1 else ("systems have", "them")
        verdict.remarks.append(f"{lonely} {have} one observation: the {known_from} speaks for {them}.")
    return verdict


def _judge_end(verdict: Verdict, run: Run) -> None:
    """Did it come to its end?"""
    if run.diverged is not None:
        verdict.problems.append(f"{run.diverged} What follows is where the run stood before.")
    elif not run.finished:
        learning = "learning the closure" if run.laws else "warming up"
        doing = {"learn": learning, "tune": "tuning", "sample": "sampling"}[run.phase]
        verdict.problems.append(
            f"Stopped at iteration {run.iteration} of {run.total}, while {doing}: what follows is where the run stood. "
            "Go on with `closura resume` on its folder."
        )


def _judge_chains(verdict: Verdict, run: Run, found: Evidence) -> None:
    """Causes first: step sizes, then draws that repeat, then what comes of it."""
    if found.log_step is not None:
        blocks = [*(f"system {name}" for name in run.data.systems), "what all systems share"]
        if run.settings.blocks == "joint":
            blocks = ["the joint block"]
        verdict.problems += odd_steps(found.log_step, blocks, run.settings.preconditioner is not None)
    if found.draws is not None:
        verdict.problems += repeated_draws(found.draws, run.groups)
    verdict.problems += disagreements(found.convergence)


def _judge_discretisation(verdict: Verdict, found: Evidence) -> None:
    """Tables of laws, grids and steps."""
    for name, share in found.outside.items():
        if share > 1e-3:
            verdict.remarks.append(
                f"{share:.1%} of the calls of closure {name!r} lie outside its table, where it continues as a straight line."
            )
    for axis, error in found.reading.items():
        if error > READING_LIMIT:
            verdict.remarks.append(
                f"Observations lie between the {'snapshots' if axis == 'time' else 'nodes'} of the solution, and reading it there is "
                f"off by about {error:.2g} times the noise: raise the problem's {'snapshots' if axis == 'time' else 'cells'}."
            )
    if found.scheme is not None:
        verdict.remarks.append(found.scheme)


def _judge_failures(verdict: Verdict, failed: float) -> None:
    """The share of proposals without a solution."""
    rejected = f"{failed:.1%} of the proposals gave no finite solution and were rejected"
    if failed > HOPELESS:
        verdict.problems.append(f"{rejected}, so that the chains hardly moved: {MAKE_SOLVABLE}.")
    elif failed > 0.01:
        verdict.remarks.append(f"{rejected}: {MAKE_SOLVABLE}.")


def _judge_surrogate(verdict: Verdict, settings: Settings, off: SurrogateError) -> None:
    """A surrogate that is off by half the noise moves posteriors visibly. Corrected by the solver it does not, but the law was
    learned from its draws."""
    size = f"{off.overall:.2f} times the noise" if np.isfinite(off.overall) else "beyond all numbers"
    exceeds = not off.overall <= SURROGATE_LIMIT
    if exceeds and settings.corrected:
        verdict.remarks.append(
            f"The surrogate is off by {size}; the kept draws are corrected by the solver, but the law was learned from draws of "
            "the surrogate: raise --iterations, or inner_steps."
        )
    elif exceeds:
        verdict.problems.append(
            f"The surrogate is off from the solver by {size} at posterior draws (should be below {SURROGATE_LIMIT}): raise "
            "--iterations, or inner_steps; sample with --delayed-acceptance, which corrects it by the solver; or use --forward solver."
        )
    elif off.worst > SURROGATE_LIMIT and not settings.corrected:
        verdict.remarks.append(
            f"For system {off.system} the surrogate is off from the solver by {off.worst:.2f} times the noise (all: "
            f"{off.overall:.2f}): its parameters may be off. Raise --iterations, or sample with --delayed-acceptance."
        )


def _learns(run: Run) -> bool:
    return any(law.spec.trainable for law in run.laws.values())


def _judge_sampler(verdict: Verdict, settings: Settings) -> None:
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


def _judge_fit(verdict: Verdict, run: Run, chi_square: float, checked: Sequence[Remark]) -> None:
    """Are the residuals those of noise? Far too large is a problem; what else is odd about them a remark."""
    if not np.sum(run.data.counts):
        return
    if not np.isfinite(chi_square):
        verdict.problems.append(
            f"Whether the fit meets the data cannot be told: some draws predict nothing finite there. {MAKE_SOLVABLE.capitalize()}."
        )
        return
    if chi_square > 2:
        noise, missing, stuck = noise_of(run.problem), "physics is missing", "the chains"
        if _learns(run):
            missing, stuck = "physics is missing that the closure cannot supply", "learning"
        verdict.problems.append(
            f"The fit misses the data by {np.sqrt(chi_square):.1f} noise standard deviations (root mean square; about 1 is right): "
            f"{noise.misfit}, {missing}, or {stuck} got stuck. Check {noise.to_check} and the equation; raise --iterations (now "
            f"{run.settings.iterations}) or try another --seed."
        )
        checked = [one for one in checked if one.level == "system" or one.check not in ("chi_square", "inside")]
    verdict.remarks += [one.text for one in checked]


def _judge_learning(verdict: Verdict, run: Run) -> None:
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
    told = [key for key in kinds if entries and all(key in entry for entry in entries)]
    series = {kinds[key]: np.concatenate([entry[key] for entry in entries]) for key in told}
    temperature = np.concatenate([np.zeros(0), *(entry["temperature"] for entry in entries)])
    # At its end a surrogate learns alone: what rises there is not the law's doing.
    alone = run.settings.surrogate_finetune if run.network is not None else 0.0
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


def _say_unjudged(verdict: Verdict, settings: Settings, whole: np.ndarray, usable: np.ndarray) -> None:
    """`whole` and `usable`: which of the last iterations of learning were at full temperature, and finite as well."""
    advice = []
    if len(whole) < LEARNING_LEAST:
        advice.append(f"raise --iterations (now {settings.iterations})")
    if not whole.all():
        advice.append(
            f"lower --set tempering (now {settings.tempering:g}: the likelihood was tempered nearly to the end)"
        )
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
    means = series[: size * batches].reshape(batches, size).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(batches))
