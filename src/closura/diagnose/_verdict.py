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
from ._discretisation_error import Coarse
from ._remarks import NEARLY_AGREE, Remark, disagreements, odd_steps, repeated_draws
from ._trajectories import SurrogateError
from ._undecided import Undecided, advice, in_words

SURROGATE_LIMIT = 0.5
JOINT_LIMIT = 1.0  # units of log likelihood
READING_LIMIT = 0.2
# With so many failed proposals every other complaint has this one cause.
HOPELESS = 0.95
MAKE_SOLVABLE = "narrow the priors, lower dt, or choose a stiff integrator"
KNOW_MORE = f"state what is known of the law (dissipative=True, increasing=True, ...), end the span where data end, {MAKE_SOLVABLE}"
# Iterations at full temperature near the end of learning that tell whether it had settled.
LEARNING_LEAST = 20
# Of proposals that had no solution: said, and (while draws are kept) too many to trust what is left.
FAILED_SAID, FAILED_LIMIT = 0.02, 0.2
HEADS = {
    "not_converged": "NOT CONVERGED: do not use these results yet.",
    "untrusted": "CANNOT BE TRUSTED: do not use these results.",
}
LEFT_OUT = "intervals leave its error out"


class Fault(NamedTuple):
    """What keeps a run from being used, and what to do; `word` is what it makes of the verdict."""

    word: str
    text: str


@dataclass
class Verdict:
    """One of four words, why, and what to do.

    - `faults` keep a run from being used, causes first: the first one's word is the verdict's. `remarks` do not.
    - `undecided`: what data do not decide, of a run that can be used.
    - `learned`: a law is one estimate, and intervals leave its error out.
    """

    faults: list[Fault] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    learned: bool = False

    @property
    def word(self) -> str:
        """converged, undecided, not_converged or untrusted."""
        if self.faults:
            return self.faults[0].word
        return "undecided" if self.undecided else "converged"

    @property
    def converged(self) -> bool:
        return not self.faults

    @property
    def problems(self) -> list[str]:
        return [fault.text for fault in self.faults]

    @property
    def names(self) -> list[str]:
        """Of all that data do not decide."""
        return list(dict.fromkeys(name for one in self.undecided for name in one.names))

    @property
    def head(self) -> str:
        """The verdict in one line."""
        if self.faults:
            return HEADS[self.word]
        if self.undecided:
            given = f" given the learned law ({LEFT_OUT})" if self.learned else ""
            return f"Converged{given}, but data do not decide {in_words(self.undecided)}."
        return f"Converged given the learned law: {LEFT_OUT}." if self.learned else "Converged."

    @property
    def lines(self) -> list[str]:
        return [self.head, *self.problems, *self.remarks]

    def not_converged(self, *texts: str) -> None:
        self.faults += [Fault("not_converged", text) for text in texts]

    def untrusted(self, *texts: str) -> None:
        self.faults += [Fault("untrusted", text) for text in texts]


class Evidence(NamedTuple):
    """What a verdict is made of, beside the run itself.

    - `convergence`: figures of every scalar; `draws` by name and `log_step` (group, block), of which `stepped` are in use: do
      the chains move?
    - `chi_square`: mean squared standardised residual; `checked`: what posterior predictive checks found.
    - `outside`: share of calls of each law outside its table.
    - `surrogate_error`: how far a surrogate is from the solver.
    - `reading`: how well solutions are read between points of their grid, by axis, over the noise.
    - `scheme`: what is wrong with the steps in time, if anything.
    - `undecided`: what data do not decide.
    """

    convergence: Convergence
    chi_square: float
    outside: Mapping[str, float]
    surrogate_error: SurrogateError | None = None
    reading: Mapping[str, float] = MappingProxyType({})
    checked: Sequence[Remark] = ()
    scheme: Coarse | None = None
    draws: xr.Dataset | None = None
    log_step: np.ndarray | None = None
    stepped: np.ndarray | None = None
    undecided: Sequence[Undecided] = ()


def judge(run: Run, found: Evidence) -> Verdict:
    """Can this run be used, and if not, why, and what to do? Causes first."""
    verdict = Verdict(learned=_adam_learns(run))
    failed = run.nonfinite / max(1, run.iteration * run.settings.chains * run.blocks)
    _judge_end(verdict, run)
    if run.diverged is None:  # else that has been said
        _judge_failures(verdict, run, failed)
    _judge_sampler(verdict, run.settings)
    if failed <= HOPELESS:
        if run.chunks:
            _judge_chains(verdict, run, found)
        # While a run still learns there is nothing to hold against it but that it stopped.
        if run.phase != "learn":
            _judge_learning(verdict, run)
            _judge_fit(verdict, run, found.chi_square, found.checked)
    if found.surrogate_error is not None and run.phase != "learn":
        _judge_surrogate(verdict, run.settings, found.surrogate_error)
    _judge_discretisation(verdict, run, found)
    lonely, known_from = int(np.sum(run.data.counts < 2)), "population" if run.settings.hierarchy else "prior"
    if lonely:
        have, them = ("system has", "it") if lonely == 1 else ("systems have", "them")
        verdict.remarks.append(f"{lonely} {have} one observation: the {known_from} speaks for {them}.")
    if verdict.converged:
        verdict.undecided += found.undecided
    # Where chains nearly agree it may be why they do not.
    if verdict.converged or (run.finished and found.convergence.rhat_max < NEARLY_AGREE):
        verdict.remarks[:0] = [advice(one) for one in found.undecided]
    return verdict


def _judge_end(verdict: Verdict, run: Run) -> None:
    """Did it come to its end?"""
    if run.diverged is not None:
        verdict.not_converged(f"{run.diverged} What follows is where the run stood before.")
    elif not run.finished:
        learning = "learning the closure" if run.laws else "warming up"
        doing = {"learn": learning, "tune": "tuning", "sample": "sampling"}[run.phase]
        verdict.not_converged(
            f"Stopped at iteration {run.iteration} of {run.total}, while {doing}: what follows is where the run stood. "
            "Go on with `closura resume` on its folder."
        )


def _judge_chains(verdict: Verdict, run: Run, found: Evidence) -> None:
    """Causes first: step sizes, then draws that repeat, then what comes of it."""
    if found.log_step is not None:
        blocks = [*(f"system {name}" for name in run.data.systems), "what all systems share"]
        if run.settings.blocks == "joint":
            blocks = ["the joint block"]
        used = np.arange(found.log_step.shape[1]) if found.stepped is None else np.flatnonzero(found.stepped)
        steps, blocks = found.log_step[:, used], [blocks[i] for i in used]
        verdict.not_converged(*odd_steps(steps, blocks, run.settings.preconditioner is not None))
    if found.draws is not None:
        verdict.untrusted(*repeated_draws(found.draws, run.groups))
    verdict.not_converged(*disagreements(found.convergence, run.settings))


def _judge_discretisation(verdict: Verdict, run: Run, found: Evidence) -> None:
    """Tables of laws, grids and steps."""
    for name, share in found.outside.items():
        if share > 1e-3:
            narrow = ", and its band is narrower than it should be" if run.laws[name].spec.sampled else ""
            verdict.remarks.append(
                f"{share:.1%} of the calls of closure {name!r} lie outside its table, where it continues as a straight line{narrow}."
            )
    for axis, error in found.reading.items():
        if error > READING_LIMIT:
            verdict.remarks.append(
                f"Observations lie between the {'snapshots' if axis == 'time' else 'nodes'} of the solution, and reading it there is "
                f"off by about {error:.2g} times the noise: raise the problem's {'snapshots' if axis == 'time' else 'cells'}."
            )
    if found.scheme is not None and found.scheme.serious:
        verdict.untrusted(found.scheme.text)
    elif found.scheme is not None:
        verdict.remarks.append(found.scheme.text)


def _judge_failures(verdict: Verdict, run: Run, failed: float) -> None:
    """The share of proposals without a solution, `failed` of all: what is kept lies where the solver works, and ends there."""
    rejected = "of the proposals gave no finite solution and were rejected"
    lately = _while_kept(run, "nonfinite")
    if failed > HOPELESS:
        verdict.untrusted(f"{failed:.1%} {rejected}, so that the chains hardly moved: {MAKE_SOLVABLE}.")
    elif lately > FAILED_LIMIT:
        verdict.untrusted(
            f"{lately:.1%} {rejected} while draws were kept: the posterior ends where the solver fails. {MAKE_SOLVABLE.capitalize()}."
        )
    elif failed > FAILED_SAID:
        verdict.remarks.append(f"{failed:.1%} {rejected}: {MAKE_SOLVABLE}.")
    # A law is proposed for all systems at once: among proposals of them all it hardly counts.
    unsolved = _while_kept(run, "unsolved_laws")
    said = f"Under {unsolved:.1%} of the laws that were proposed some system had no finite solution, and they were rejected"
    if unsolved > FAILED_LIMIT:
        verdict.untrusted(f"{said}: the posterior of the law ends where the solver fails; {KNOW_MORE}.")
    elif unsolved > FAILED_SAID:
        verdict.remarks.append(f"{said}: {KNOW_MORE}.")


def _while_kept(run: Run, name: str) -> float:
    """The mean of what was logged while draws were kept; zero where there is none."""
    kept = [entry[name] for entry in run.history if entry["phase"][0] == "sample" and name in entry]
    told = np.concatenate([np.zeros(0), *kept])
    told = told[~np.isnan(told)]
    return float(told.mean()) if told.size else 0.0


def _judge_surrogate(verdict: Verdict, settings: Settings, off: SurrogateError) -> None:
    """A surrogate that is off by half the noise moves posteriors visibly. Corrected by the solver it does not, but the law was
    learned from its draws."""
    size = f"{off.overall:.2f} times the noise" if np.isfinite(off.overall) else "beyond all numbers"
    exceeds = not off.overall <= SURROGATE_LIMIT
    if off.unsolved > FAILED_SAID and not settings.corrected:
        verdict.untrusted(
            f"At {off.unsolved:.1%} of posterior draws the solver has no solution, and the surrogate says one: {MAKE_SOLVABLE}, or sample with "
            "--delayed-acceptance."
        )
    if exceeds and settings.corrected:
        verdict.remarks.append(
            f"The surrogate is off by {size}; the kept draws are corrected by the solver, but the law was learned from draws of "
            "the surrogate: raise --iterations, or inner_steps."
        )
    elif exceeds:
        verdict.untrusted(
            f"The surrogate is off from the solver by {size} at posterior draws (should be below {SURROGATE_LIMIT}): raise "
            "--iterations, or inner_steps; sample with --delayed-acceptance, which corrects it by the solver; or use --forward solver."
        )
    elif off.joint is not None and not off.joint <= JOINT_LIMIT and not settings.corrected:
        verdict.untrusted(
            f"The surrogate is off from the solver by {off.overall:.3f} times the noise at posterior draws. One test moves the law in all "
            f"systems at once, and over all observations that makes {off.joint:.1f} units of log likelihood (should be below {JOINT_LIMIT:g}): raise "
            "inner_steps or replay; sample with --delayed-acceptance, which corrects it by the solver; or use --forward solver."
        )
    elif off.worst > SURROGATE_LIMIT and not settings.corrected:
        verdict.remarks.append(
            f"For system {off.system} the surrogate is off from the solver by {off.worst:.2f} times the noise (all: "
            f"{off.overall:.2f}): its parameters may be off. Raise --iterations, or sample with --delayed-acceptance."
        )


def _learns(run: Run) -> bool:
    return any(law.spec.trainable for law in run.laws.values())


def _adam_learns(run: Run) -> bool:
    """Is there a law that all chains share, learned as one estimate?"""
    return any(law.spec.trainable and not law.spec.sampled for law in run.laws.values())


def _judge_sampler(verdict: Verdict, settings: Settings) -> None:
    if settings.covariance == "self" and settings.preconditioner is not None:
        verdict.remarks.append(
            "covariance='self' is the published kernel, biased while its covariance moves with the chains, as it does while "
            "learning; kept draws use a frozen covariance and are not biased by it."
        )
    if not settings.metropolis:
        verdict.untrusted("metropolis=False leaves a discretisation error in the draws: use it for comparison only.")
    if settings.groups < 2:
        verdict.remarks.append(
            "One group of chains: R-hat cannot compare preconditioners or starting points; use groups=4."
        )


def _judge_fit(verdict: Verdict, run: Run, chi_square: float, checked: Sequence[Remark]) -> None:
    """Are the residuals those of noise? Far too large is a problem; what else is odd about them a remark."""
    if not np.sum(run.data.counts):
        return
    if not np.isfinite(chi_square):
        verdict.untrusted(
            f"Whether the fit meets the data cannot be told: some draws predict nothing finite there. {MAKE_SOLVABLE.capitalize()}."
        )
        return
    if chi_square > 2:
        noise, missing, stuck = noise_of(run.problem), "physics is missing", "the chains"
        if _learns(run):
            missing, stuck = "physics is missing that the closure cannot supply", "learning"
        verdict.untrusted(
            f"The fit misses the data by {np.sqrt(chi_square):.1f} noise standard deviations (root mean square; about 1 is right): "
            f"{noise.misfit}, {missing}, or {stuck} got stuck. Check {noise.to_check} and the equation; raise --iterations (now "
            f"{run.settings.iterations}) or try another --seed."
        )
        checked = [one for one in checked if one.level == "system" or one.check not in ("chi_square", "inside")]
    verdict.remarks += [one.text for one in checked]


def _judge_learning(verdict: Verdict, run: Run) -> None:
    """Did the likelihood, or the joint density of data, parameters and population, still rise at the end of learning?

    Where law and parameters trade off against each other the likelihood is flat and only the joint density rises. Laws that
    chains sample go on moving: what their learning has to say (`run.learning_notes`) is a cause only where chains disagree.
    """
    notes = run.learning_notes
    if any(fault.word == "not_converged" for fault in verdict.faults):
        place = 0 if run.finished else 1  # after that it was stopped
        verdict.faults[place:place] = [Fault("not_converged", note) for note in notes]
    else:
        verdict.remarks += notes
    if not _adam_learns(run):
        return
    entries = [entry for entry in run.history if entry["phase"][0] == "learn"]
    steps, tried = run.law_steps, sum(len(entry["phase"]) for entry in entries)
    if steps < 0.9 * tried:
        verdict.not_converged(
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
        verdict.not_converged(
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
    verdict.not_converged(
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
