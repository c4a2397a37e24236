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
from ..learning import Draws, Run, State
from ..track import HISTORY

COUNTERS = ("iteration", "extended", "setbacks", "stale", "nonfinite")
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
    progress = {name: getattr(run, name) for name in COUNTERS}
    progress |= {"chunks": len(run.draws), "seconds": time.perf_counter() - run.began}
    arrays = {"progress": np.array(json.dumps(progress))}
    arrays |= {f"state{path}": leaf for path, leaf in _named(_plain(run.state))}
    for number, chunk in enumerate(run.draws):
        arrays |= {f"draws[{number}]{path}": leaf for path, leaf in _named(chunk)}
    keys = list(run.history[0]) if run.history else []
    return arrays | {f"history_{key}": np.concatenate([h[key] for h in run.history]) for key in keys}


def _take(run: Run, arrays: dict[str, np.ndarray]) -> None:
    progress = json.loads(str(arrays["progress"]))
    fresh = _plain(run.state)
    for path, leaf in _named(fresh):
        stored = arrays[f"state{path}"]
        if (stored.shape, stored.dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(
                f"{path}: stored {stored.dtype}{list(stored.shape)}, the run has {leaf.dtype}{list(leaf.shape)}"
            )
    state = _filled(fresh, "state", arrays)
    run.state = run.spread(state._replace(keys=jr.wrap_key_data(state.keys)))
    for name in COUNTERS:
        setattr(run, name, progress[name])
    run.began -= progress["seconds"]
    run.history = _by_phase({k.removeprefix("history_"): v for k, v in arrays.items() if k.startswith("history_")})
    one = Draws.of(run.state.chains)
    run.draws = [_filled(one, f"draws[{number}]", arrays) for number in range(progress["chunks"])]


def _by_phase(history: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """One entry a phase: those who read it go by the phase of an entry's first iteration."""
    if not history:
        return []
    phase = history["phase"]
    cuts = np.flatnonzero(phase[1:] != phase[:-1]) + 1
    parts = {key: np.split(value, cuts) for key, value in history.items()}
    return [{key: part[i] for key, part in parts.items()} for i in range(len(cuts) + 1)]


def _plain(state: State) -> State:
    """The state on the host, typed keys as plain numbers."""
    return jax.device_get(state._replace(keys=jr.key_data(state.keys)))


def _named(tree: Any) -> list[tuple[str, np.ndarray]]:
    """Every leaf by its path, like `.chains.theta`."""
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _filled(tree: Any, prefix: str, arrays: dict[str, np.ndarray]) -> Any:
    """The tree with the leaves of that name."""
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[prefix + jax.tree_util.keystr(path)], tree)
