"""The one verb."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from .data import DataError, Observations, read_table
from .diagnose import Truth
from .equations import Equation
from .learning import Run, cores, drive, make_settings
from .runs import (
    FolderError,
    Result,
    check,
    check_names,
    claim,
    collect,
    find_checkpoint,
    forget,
    release,
    restore,
    save,
    store,
)
from .track import HISTORY, JsonLines, Trackers

CHECKPOINT_EVERY = 30.0
SELF_COVARIANCE = (
    "covariance='self' lets a chain's own position shape its proposal, which biases the chains while the closure "
    "is learned (kept draws use a frozen covariance and are not biased by it); it is the published kernel, here "
    "for comparison: use covariance='halves'"
)


def fit(
    problem: Equation,
    data: object,
    *,
    inputs: object = None,
    truth: Truth | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = True,
    track: object = (),
    context: Mapping[str, object] | None = None,
    **settings: object,
) -> Result:
    """Infer every system's parameters, their population, and the law they share.

    - `problem`: what is known, with a hole (`closura.ODE`, `Elliptic`, `Evolution`).
    - `data`: whatever `closura.read_table` takes (a file, a frame, ...), or the `Observations` it gives.
    - `inputs`: a second table, of known signals (`closura.Signal`): system, time, and one column each.
    - `truth`: what synthetic data were made from; adds scores, changes nothing else.
    - `out`: run folder; checked before work starts, checkpointed meanwhile, written at the end.
    - `overwrite` replaces the run in that folder, `resume` continues it.
    - `track`: who else follows the run: "tensorboard", "wandb", "mlflow", or objects like `closura.Tracker`; one or several.
    - `progress`: say on stderr what is being done.
    - `context`: anything else to note in the folder's `config.yaml`.
    - `settings`: those of `closura.Settings`, by name; the defaults are meant to do.

    Returns a `Result`; `print` it for the verdict.

    Ctrl-C stops after the current chunk and returns what there is.
    """
    check_names(problem)
    chosen = make_settings(settings, problem)
    if chosen.covariance == "self" and chosen.preconditioner is not None:
        warnings.warn(SELF_COVARIANCE, stacklevel=2)
    observations = data if isinstance(data, Observations) else read_table(data, axes=problem.axes, inputs=inputs)
    folder = _checked_folder(out, overwrite, resume)
    trackers = Trackers(track, folder, problem.name if folder is None else folder.absolute().name, resume)
    _check_truth(truth, len(observations.systems), len(problem.parameters))
    run = Run(problem, observations, chosen)
    for note in run.notes if progress else ():
        print(f"note: {note}", file=sys.stderr)
    told = {**(context or {}), **chosen.model_dump()}
    if folder is not None and resume:
        restore(run, folder)
    elif folder is not None:
        check(folder, overwrite=overwrite, room=_room(run))

    def work() -> Result:
        if folder is None:
            drive(run, progress, lambda run: trackers.follow(run.history))
            return collect(run, truth, context)
        if not resume:
            claim(folder, problem, run.data, truth, told)
        return _in_folder(run, folder, lambda: collect(run, truth, context), progress, trackers, fresh=not resume)

    return _followed(trackers, run, {"problem": problem.name, **told}, work)


def _checked_folder(out: str | Path | None, overwrite: bool, resume: bool) -> Path | None:
    """The run folder, which exists if a run is to be continued and is free if not."""
    if out is None and resume:
        raise ValueError("resume=True continues a run folder: name it with out=")
    folder = None if out is None else Path(out).expanduser()
    if folder is not None and not resume:
        check(folder, overwrite=overwrite)
    return folder


def _followed(trackers: Trackers, run: Run, told: dict[str, object], work: Callable[[], Result]) -> Result:
    """The result of `work`, while trackers follow the run."""
    metrics: dict[str, object] = {}
    try:
        trackers.start(told, run.history, run.iteration)
        result = work()
        metrics = result.metrics
    finally:
        trackers.finish(metrics)
    return result


def _in_folder(
    run: Run, folder: Path, collected: Callable[[], Result], progress: bool, trackers: Trackers, fresh: bool
) -> Result:
    """Drive a run and keep it in its folder: the results, or whatever allows to continue."""
    lines, checkpoint = JsonLines(folder / HISTORY), _checkpointer(folder)

    def after_chunk(run: Run) -> None:
        lines.follow(run.history)
        trackers.follow(run.history)
        checkpoint(run)

    try:
        trackers.remember()
        lines.follow(run.history)
        if not drive(run, progress, after_chunk) and run.diverged is None:
            _keep(run, folder)
        result = collected()
        save(result, folder)
    except BaseException as error:
        if run.iteration == 0:  # nothing to continue
            if fresh:
                release(folder)
            raise
        kept = _keep(run, folder)
        go_on = f"`closura resume {folder}` continues from there"
        if isinstance(error, FolderError):
            done = f"what was computed is kept in its checkpoint; {go_on}" if kept else "no checkpoint could be kept"
            raised = FolderError(f"{error}; {done}")
            raised.result = error.result
            raise raised from None
        if kept:
            error.add_note(f"What was computed is kept in {folder}: {go_on}.")
        raise
    if run.finished or run.diverged is not None:  # one that diverged would do so again
        forget(folder)
    return result


def _check_truth(truth: Truth | None, systems: int, parameters: int) -> None:
    if truth is not None and np.shape(truth.theta) != (systems, parameters):
        raise DataError(
            f"truth.theta has shape {np.shape(truth.theta)}; {systems} systems with {parameters} parameters need "
            f"({systems}, {parameters}), in the order of the table and the problem"
        )


def _room(run: Run) -> float:
    """Bytes a run that need not be extended takes at most: draws on two scales and in a checkpoint, replicated data, and the report."""
    replicas = 4 * 200 * run.data.mask.size
    return 50e6 + replicas + 3 * run.numbers_kept * jax.numpy.result_type(float).itemsize


def _keep(run: Run, folder: Path) -> bool:
    """Store a checkpoint if that is possible; is there one now?"""
    try:
        store(run, folder)
    except OSError as error:
        warnings.warn(f"no checkpoint could be written to {folder}: {error.strerror or error}", stacklevel=2)
    return find_checkpoint(folder) is not None


def _checkpointer(folder: Path) -> Callable[[Run], None]:
    last = time.perf_counter()

    def after_chunk(run: Run) -> None:
        nonlocal last
        if time.perf_counter() - last > CHECKPOINT_EVERY and not run.finished:
            _keep(run, folder)
            last = time.perf_counter()

    return after_chunk


def use_cores(count: int | None = None) -> int:
    """One JAX device a core (or `count` of them), so that chains run side by side. Call it before anything else uses JAX.

    Returns how many devices there are; with a GPU nothing is changed.
    """
    wanted = count or cores()
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:
        if len(jax.devices()) < wanted:
            warnings.warn(
                f"JAX was already in use with {len(jax.devices())} device(s); call closura.use_cores() first thing",
                stacklevel=2,
            )
    return len(jax.devices())
