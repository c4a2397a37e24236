"""The one verb."""

import os
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from .diagnose import Truth
from .learning import Run, Settings, drive, make_settings
from .problem import ODE, Observations, read_table
from .result import Result, claim, collect, restore, save, store, write_config

CHECKPOINT_EVERY = 30.0


def fit(
    problem: ODE,
    data: Observations | pd.DataFrame | str | Path,
    *,
    truth: Truth | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = True,
    context: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Infer every system's parameters, their population, and the law they share.

    - `problem`: what is known, with a hole (`closura.ODE`).
    - `data`: a long table (path or frame) or `Observations`.
    - `truth`: what synthetic data were made from; adds scores, changes nothing else.
    - `out`: run folder; checked before work starts, checkpointed meanwhile, written at the end.
    - `settings`: see `closura.Settings`; the defaults are meant to do.

    Ctrl-C stops after the current chunk and returns what there is.
    """
    chosen = make_settings(settings)
    if chosen.covariance == "self" and chosen.preconditioner is not None:
        warnings.warn(
            "covariance='self' lets a chain's own position shape its proposal: the posterior comes out too narrow "
            "(it is the published kernel, here for comparison); use covariance='halves'",
            stacklevel=2,
        )
    observations = data if isinstance(data, Observations) else read_table(data)
    folder = None if out is None else Path(out) if resume else claim(Path(out), overwrite=overwrite)
    run = Run(problem, observations, chosen)
    after_chunk = None
    if folder is not None:
        if resume:
            restore(run, folder)
        else:
            _announce(folder, observations, chosen, context)
        after_chunk = _checkpointer(folder)
    finished = drive(run, progress, after_chunk)
    if folder is not None and not finished:
        store(run, folder)
    result = collect(run, truth, context)
    if folder is not None:
        save(result, folder)
    return result


def _announce(folder: Path, data: Observations, settings: Settings, context: dict[str, Any] | None) -> None:
    """What is needed to continue, before the first iteration."""
    write_config({**(context or {}), **settings.model_dump()}, folder)
    data.to_frame().to_csv(folder / "data.csv", index=False)


def _checkpointer(folder: Path) -> Any:
    last = time.perf_counter()

    def after_chunk(run: Run) -> None:
        nonlocal last
        if time.perf_counter() - last > CHECKPOINT_EVERY and not run.finished:
            store(run, folder)
            last = time.perf_counter()

    return after_chunk


def use_cores(count: int | None = None) -> int:
    """One JAX device a core, so that chains run side by side. Call before anything else uses JAX.

    Returns how many devices there are; with a GPU nothing is changed.
    """
    wanted = count or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count or os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:
        if len(jax.devices()) < wanted:
            warnings.warn(
                f"JAX was already in use with {len(jax.devices())} device(s); call closura.use_cores() first thing",
                stacklevel=2,
            )
    return len(jax.devices())
