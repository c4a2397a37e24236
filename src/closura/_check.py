"""Before a long run: do problem and data fit together, what will it cost, and can the answer be found at all?"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .data import Observations, read_table
from .diagnose import confounded, foreseen, often_too_coarse, refinement_error
from .equations import Equation
from .learning import Run, make_settings
from .runs import FolderError, Result, check_names, collect

LEAST_SHARE = 0.02  # of the span that data should cover


@dataclass(eq=False)
class Check:
    """`facts` say what there is, `warnings` what to look at before a long run; `prior` is the fit before any data speak."""

    facts: list[str]
    warnings: list[str]
    prior: Result

    def __str__(self) -> str:
        return "\n".join([*self.facts, *(f"LOOK: {warning}" for warning in self.warnings)] or ["nothing to say"])

    def plot(self) -> Any:
        """Data over what the priors expect."""
        figure = self.prior.plot_fit()
        figure.suptitle(
            "Before any fit: data, and what the priors expect of them (the closure at its start, about zero)"
        )
        for text in (text for legend in figure.legends for text in legend.get_texts() if text.get_text() == "fit"):
            text.set_text("mean of the prior")
        return figure

    def save(self, path: str | Path) -> Path:
        path = Path(path).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.plot().savefig(path, dpi=120)
        except (OSError, ValueError) as error:
            raise FolderError(f"cannot write the picture {path}: {error}; choose another file with --out") from None
        return path


def check(problem: Equation, data: object, *, inputs: object = None, **settings: object) -> Check:
    """Before a long run, in seconds: do problem and data fit together, what will it cost, can the answer be found at all?

    Arguments are those of `fit`. What cannot work raises an error that says what to do: columns, places, solutions or derivatives
    that are not finite. The rest is told when the returned check is printed: what the data are, what a run will take, priors
    that miss the data, laws and parameters that cannot be told apart. Its `warnings` list what to look at, `plot()` shows data
    and what priors expect, `save(path)` writes that picture.
    """
    check_names(problem)
    chosen = make_settings(settings, problem)
    observations = data if isinstance(data, Observations) else read_table(data, axes=problem.axes, inputs=inputs)
    # What is cheap is solved sooner than its programs are compiled well.
    with nullcontext() if problem.expensive else _compiled_quickly():
        run = Run(problem, observations, chosen)
        prior = collect(run)
        steps = often_too_coarse(problem, refinement_error(run, run.theta()[:, 0]))
        looks = [*_places(run), *_expected(run), *steps, *(foreseen(run) if run.sampled else confounded(run))]
    facts = [_data(run), *(f"note: {note}" for note in (*run.data.notes, *run.notes)), _cost(run)]
    if not looks:
        facts.append("nothing in the way: law and parameters can be told apart, and the priors cover the data")
    return Check(facts, looks, prior)


@contextmanager
def _compiled_quickly() -> Iterator[None]:
    """Hardly optimised, for programs that run once."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _data(run: Run) -> str:
    counts, systems = run.data.counts, len(run.data.systems)
    each = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else str(counts.min())
    names = ", ".join(run.problem.parameters.names)
    laws = ", ".join(run.problem.closures) or "none"
    return (
        f"{systems} system{'s' * (systems > 1)}, {counts.sum()} observations ({each} each) of {', '.join(run.data.quantities)}; "
        f"to infer: {names} of each; closures: {laws}"
    )


def _cost(run: Run) -> str:
    """From one evaluation of all chains; learning takes two and a gradient."""
    seen = run.posterior, run.state.chains
    refresh: Any = eqx.filter_jit(type(run.posterior).refresh)
    program = refresh.lower(*seen).compile()
    jax.block_until_ready(program(*seen))
    start = time.perf_counter()
    jax.block_until_ready(program(*seen))
    each = (time.perf_counter() - start) / run.mesh.size
    plan, memory = run.plan, program.compiled.memory_analysis()
    size = (getattr(memory, "temp_size_in_bytes", 0) + 12 * run.numbers_kept) / 1e6 + 600
    seconds = 2.6 * each * plan.learn + 1.2 * each * (plan.tune + plan.sample)
    return (
        f"forward={run.settings.forward}: about {1e3 * 2.6 * each:.0f} ms an iteration, {_span(seconds + 20)} in all{run.setup.likelihood.forward.cost_note}; "
        f"memory about {size / 1e3:.1f} GB"
    )


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _places(run: Run) -> list[str]:
    """Data that cover hardly anything of the span are often in another unit."""
    found = []
    for axis, (name, (low, high)) in enumerate(zip(run.data.axes, run.problem.bounds)):
        at = run.data.place[..., axis][run.data.mask]
        if (at.max() - low) < LEAST_SHARE * (high - low):
            found.append(
                f"All data have {name} below {at.max():.3g}, and the problem goes from {low:g} to {high:g}: is the unit of {name} right? "
                "If it is, shorten the problem, which saves time."
            )
    return found


def _expected(run: Run) -> list[str]:
    """Data far outside of what the priors expect."""
    exact, laws, theta = run.setup.exact, run.views, run.theta()[:, 0]
    draws = np.asarray(jax.jit(lambda t: exact.predict(t, exact.model(laws)))(theta), float)
    draws = np.where(np.isfinite(draws), draws, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where no draw has a solution
        ends = exact.noise.interval(draws, run.sigma(), width=3.0)
        low, high = np.nanmin(ends[0], axis=0), np.nanmax(ends[1], axis=0)
    value = run.data.value
    outside = float((~((value > low) & (value < high)))[run.data.mask].mean())
    if outside <= 0.1:
        return []
    return [
        f"{outside:.0%} of the observations lie outside of everything that {len(draws)} draws from the priors predict (closure at its "
        "start, about zero). Look at the picture: the unit of a column, a guess or a prior may be wrong, or the closure has a "
        "long way to go."
    ]
