"""Stop and go on: the state of a run as a file, from which it continues as if it had not stopped."""

import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from ..equations import ProblemError
from ..learning import Run
from ..track import HISTORY

PLACE, ASIDE = "checkpoint.npz", ".checkpoint-new.npz"


def store(run: Run, folder: Path) -> None:
    """Write DIR/checkpoint.npz aside and move it into place: at any moment there is a whole one, or none."""
    aside = folder / ASIDE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(aside, **_arrays(run))
        os.replace(aside, folder / PLACE)
    finally:
        aside.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """A finished run needs no checkpoint, and has its history as a table."""
    for name in (PLACE, ASIDE, HISTORY):
        (folder / name).unlink(missing_ok=True)


def find(folder: Path) -> Path | None:
    place = folder / PLACE
    return place if place.is_file() else None


def restore(run: Run, folder: Path) -> None:
    """Put a freshly made run (same problem, data and settings) where the stored one stood."""
    place = find(folder)
    if place is None:
        raise ProblemError(f"{folder} holds no checkpoint to continue from; start again")
    try:
        with np.load(place, allow_pickle=False) as stored:
            _take(run, {name: stored[name] for name in stored.files})
    except Exception as error:
        raise ProblemError(
            f"the checkpoint in {folder} is damaged, or does not fit the problem or settings any more "
            f"({type(error).__name__}: {error}); start again with --overwrite"
        ) from None


def _arrays(run: Run) -> dict[str, Any]:
    progress = {
        "iteration": run.iteration,
        "extended": run.extended,
        "setbacks": run.setbacks,
        "stale": run.stale,
        "nonfinite": run.nonfinite,
        "chunks": len(run.theta_draws),
        "phi_leaves": len(jax.tree.leaves(run.above_draws[0])) if run.above_draws else 0,
        "seconds": time.perf_counter() - run.began,
    }
    arrays = {"progress": np.array(json.dumps(progress))}
    arrays |= {f"state_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(_state(run)))}
    arrays |= {f"theta_{i}": theta for i, theta in enumerate(run.theta_draws)}
    arrays |= {
        f"phi_{i}_{j}": leaf for i, phi in enumerate(run.above_draws) for j, leaf in enumerate(jax.tree.leaves(phi))
    }
    keys = list(run.history[0]) if run.history else []
    return arrays | {f"history_{key}": np.concatenate([h[key] for h in run.history]) for key in keys}


def _take(run: Run, arrays: dict[str, np.ndarray]) -> None:
    progress = json.loads(str(arrays["progress"]))
    fresh, structure = jax.tree.flatten(_state(run))
    leaves = [arrays[f"state_{i}"] for i in range(len(fresh))]
    for old, new in zip(leaves, fresh, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ValueError(f"stored {old.dtype}{list(old.shape)} where the run has {new.dtype}{list(new.shape)}")
    keys, chains, learned, ranges, factor = jax.tree.unflatten(structure, leaves)
    theta = [arrays[f"theta_{i}"] for i in range(progress["chunks"])]
    parts = [[arrays[f"phi_{i}_{j}"] for j in range(progress["phi_leaves"])] for i in range(progress["chunks"])]
    run.learned, run.ranges = learned, ranges
    run.chains = run.spread(chains._replace(keys=jr.wrap_key_data(keys)))
    run.factor = run.spread(factor)
    run.iteration, run.extended = progress["iteration"], progress["extended"]
    run.setbacks = progress["setbacks"]
    run.stale, run.nonfinite = progress["stale"], progress["nonfinite"]
    run.began -= progress["seconds"]
    run.history = _by_phase({k.removeprefix("history_"): v for k, v in arrays.items() if k.startswith("history_")})
    structure = jax.tree.structure(run.above_now)
    run.theta_draws, run.above_draws = theta, [jax.tree.unflatten(structure, leaves) for leaves in parts]


def _by_phase(history: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """One entry a phase: those who read it go by the phase of an entry's first iteration."""
    if not history:
        return []
    phase = history["phase"]
    cuts = np.flatnonzero(phase[1:] != phase[:-1]) + 1
    parts = {key: np.split(value, cuts) for key, value in history.items()}
    return [{key: part[i] for key, part in parts.items()} for i in range(len(cuts) + 1)]


def _state(run: Run) -> Any:
    """All arrays that change, typed keys as plain numbers."""
    chains = run.chains._replace(keys=None)
    return jax.device_get((jr.key_data(run.chains.keys), chains, run.learned, run.ranges, run.factor))
