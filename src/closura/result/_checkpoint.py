"""Stop and go on: the state of a run as a file, from which it continues as if it had not stopped."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from ..learning import Run
from ..problem import ProblemError

PLACE, NEW, OLD = "checkpoint", ".checkpoint-new", ".checkpoint-old"


def store(run: Run, folder: Path) -> None:
    """Write DIR/checkpoint aside and move it into place."""
    place, aside, old = folder / PLACE, folder / NEW, folder / OLD
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write(run, aside)
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(place, old)
        os.replace(aside, place)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def forget(folder: Path) -> None:
    """A finished run needs no checkpoint."""
    for name in (PLACE, NEW, OLD):
        shutil.rmtree(folder / name, ignore_errors=True)


def find(folder: Path) -> Path | None:
    """The newest whole checkpoint; the one before, should a run have died while they changed places."""
    places = (folder / PLACE, folder / OLD)
    return next((place for place in places if (place / "progress.json").exists()), None)


def restore(run: Run, folder: Path) -> None:
    """Put a freshly made run (same problem, data and settings) where the stored one stood."""
    place = find(folder)
    if place is None:
        raise ProblemError(f"{folder} holds no checkpoint to continue from; start again")
    try:
        _read(run, place)
    except Exception as error:
        raise ProblemError(
            f"the checkpoint in {folder} is damaged, or does not fit the problem or settings any more "
            f"({type(error).__name__}: {error}); start again with --overwrite"
        ) from None


def _write(run: Run, place: Path) -> None:
    eqx.tree_serialise_leaves(place / "state.eqx", _state(run))
    draws = {f"theta_{i}": theta for i, theta in enumerate(run.theta_draws)}
    draws |= {f"phi_{i}_{j}": leaf for i, phi in enumerate(run.phi_draws) for j, leaf in enumerate(phi)}
    np.savez(place / "draws.npz", **draws)  # type: ignore[arg-type]
    keys = list(run.history[0]) if run.history else []
    np.savez(place / "history.npz", **{key: np.concatenate([h[key] for h in run.history]) for key in keys})  # type: ignore[arg-type]
    progress = {
        "iteration": run.iteration,
        "extended": run.extended,
        "stale": run.stale,
        "nonfinite": run.nonfinite,
        "chunks": len(run.theta_draws),
        "phi_leaves": len(run.phi_draws[0]) if run.phi_draws else 0,
        "seconds": time.perf_counter() - run.began,
    }
    (place / "progress.json").write_text(json.dumps(progress))


def _read(run: Run, place: Path) -> None:
    progress = json.loads((place / "progress.json").read_text())
    keys, chains, law, ranges, factor = eqx.tree_deserialise_leaves(place / "state.eqx", _state(run))
    with np.load(place / "history.npz") as stored:
        history = {key: stored[key] for key in stored.files}
    with np.load(place / "draws.npz") as stored:
        theta = [stored[f"theta_{i}"] for i in range(progress["chunks"])]
        leaves = [[stored[f"phi_{i}_{j}"] for j in range(progress["phi_leaves"])] for i in range(progress["chunks"])]
    run.law, run.ranges = law, ranges
    run.chains = run.spread(chains._replace(keys=jr.wrap_key_data(keys)))
    run.factor = run.spread(factor)
    run.iteration, run.extended = progress["iteration"], progress["extended"]
    run.stale, run.nonfinite = progress["stale"], progress["nonfinite"]
    run.began -= progress["seconds"]
    run.history = _by_phase(history)
    phi = run.setup.blocks.unpack(run.chains.ensemble.position, run.chains.phi)[1]
    run.theta_draws, run.phi_draws = theta, [type(phi)(*parts) if parts else () for parts in leaves]


def _by_phase(history: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """One entry a phase: those who read it go by the phase of an entry's first iteration."""
    if not history:
        return []
    phase = history["phase"]
    cuts = np.flatnonzero(phase[1:] != phase[:-1]) + 1
    parts = {key: np.split(value, cuts) for key, value in history.items()}
    return [{key: part[i] for key, part in parts.items()} for i in range(len(cuts) + 1)]


def _state(run: Run) -> Any:
    """All arrays that change, typed keys as plain numbers (equinox does not store keys)."""
    chains = run.chains._replace(keys=None)
    return jax.device_get((jr.key_data(run.chains.keys), chains, run.law, run.ranges, run.factor))
