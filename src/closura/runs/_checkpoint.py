"""Stop and go on: the state of a run as a file, from which it continues as if it had not stopped."""

import json
import os
import re
import time
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PyTree

from ..equations import ProblemError
from ..learning import Draws, Run, State
from ..track import HISTORY

COUNTERS = (
    "iteration",
    "extended",
    "setbacks",
    "handed_back",
    "stale",
    "nonfinite",
    "arrived",
    "levels",
    "learned",
    "cut_short",
    "law_inputs",
)
PLACE, ASIDE = "checkpoint.npz", ".checkpoint-new.npz"
Tree = TypeVar("Tree", State, Draws)
FORMAT = 4  # of what is in it; that of version 0.1 had no number


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
            arrays = {name: stored[name] for name in stored.files}
        if json.loads(str(arrays["progress"])).get("format") != FORMAT:
            raise _other_version(folder)
        _take(run, arrays)
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(
            f"the checkpoint in {folder} is damaged, or does not fit the problem or settings any more "
            f"({type(error).__name__}: {error}); start again with --overwrite"
        ) from None


def _other_version(folder: Path) -> ProblemError:
    config = folder / "config.yaml"
    stamp = re.search(r"\bclosura: (\S+)", config.read_text("utf-8")) if config.is_file() else None
    written = f"closura {stamp[1]}" if stamp else "another version of closura"
    return ProblemError(
        f"the checkpoint in {folder} was written by {written}, and this version cannot continue it; finish that run with the "
        f"version that began it, or start again with `closura fit --config {config} --out {folder} --overwrite`"
    )


def _arrays(run: Run) -> dict[str, Any]:
    progress = {name: getattr(run, name) for name in COUNTERS}
    progress |= {"format": FORMAT, "seconds": time.perf_counter() - run.began}
    arrays = {"progress": np.array(json.dumps(progress))} | _by_name("state", _plain(run.state))
    if run.chunks:
        arrays |= _by_name("draws", jax.tree.map(lambda *parts: np.concatenate(parts), *run.chunks))
    return arrays | {f"history.{key}": values for key, values in whole_history(run).items()}


def whole_history(run: Run) -> dict[str, np.ndarray]:
    """An entry an iteration of all that was logged; nothing before the first."""
    keys = run.history[0] if run.history else ()
    return {key: np.concatenate([entry[key] for entry in run.history]) for key in keys}


def _take(run: Run, arrays: dict[str, np.ndarray]) -> None:
    progress = json.loads(str(arrays["progress"]))
    fresh = _plain(run.blank_state(**{name: progress[name] for name in ("iteration", "learned", "handed_back")}))
    for name, leaf in _by_name("state", fresh).items():
        stored = arrays[name]
        if (stored.shape, stored.dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(f"{name} is {stored.dtype}{list(stored.shape)} there, {leaf.dtype}{list(leaf.shape)} here")
    state = _filled("state", fresh, arrays)
    chunks = [_filled("draws", Draws.of(fresh.chains), arrays)] if "draws.theta" in arrays else []
    for name in COUNTERS:
        setattr(run, name, progress[name])
    run.plan = run.plan if run.learned is None else run.plan._replace(learn=run.learned)
    run.state = run.spread(state._replace(keys=jr.wrap_key_data(state.keys)))
    run.chunks = chunks
    run.began -= progress["seconds"]
    run.history = _by_phase({k.removeprefix("history."): v for k, v in arrays.items() if k.startswith("history.")})


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


def _name(prefix: str, path: tuple[object, ...]) -> str:
    """Of a leaf of a tree, like state.chains.theta or draws.phi.mu."""
    return f"{prefix}.{jax.tree_util.keystr(path, simple=True, separator='.')}"


def _by_name(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    return {_name(prefix, path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _filled(prefix: str, tree: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """A tree of that structure with the stored leaves."""
    return jax.tree_util.tree_map_with_path(lambda path, _: arrays[_name(prefix, path)], tree)
