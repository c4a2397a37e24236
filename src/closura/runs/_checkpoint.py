"""Stop and go on: the state of a run as a file, from which it continues as if it had not stopped."""

import json
import os
import re
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
FORMAT = 2  # of what is in it; that of version 0.1 had no number
DRAWS = "draws."


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
    progress = {
        "format": FORMAT,
        "iteration": run.iteration,
        "extended": run.extended,
        "setbacks": run.setbacks,
        "stale": run.stale,
        "nonfinite": run.nonfinite,
        "seconds": time.perf_counter() - run.began,
    }
    arrays = {"progress": np.array(json.dumps(progress))}
    arrays |= {f"state_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(_state(run)))}
    chunks = [_draws(theta, *above) for theta, above in zip(run.theta_draws, run.above_draws)]
    if chunks:
        arrays |= _by_name(jax.tree.map(lambda *parts: np.concatenate(parts), *chunks))
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
    kept, theta, above = _draws(0, *run.above_now), [], []
    if f"{DRAWS}theta" in arrays:
        kept = jax.tree.unflatten(jax.tree.structure(kept), [arrays[name] for name in _by_name(kept)])
        theta, above = [kept["theta"]], [(kept["phi"], kept["log_sigma"])]
    run.learned, run.ranges = learned, ranges
    run.chains = run.spread(chains._replace(keys=jr.wrap_key_data(keys)))
    run.factor = run.spread(factor)
    run.iteration, run.extended = progress["iteration"], progress["extended"]
    run.setbacks = progress["setbacks"]
    run.stale, run.nonfinite = progress["stale"], progress["nonfinite"]
    run.began -= progress["seconds"]
    run.history = _by_phase({k.removeprefix("history_"): v for k, v in arrays.items() if k.startswith("history_")})
    run.theta_draws, run.above_draws = theta, above


def _draws(theta: Any, phi: Any, log_sigma: Any) -> dict[str, Any]:
    return {"theta": theta, "phi": phi, "log_sigma": log_sigma}


def _by_name(draws: dict[str, Any]) -> dict[str, Any]:
    """Draws under the names of their parts: draws.theta, draws.phi.mu, draws.phi.log_tau, draws.log_sigma, ..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(draws)
    return {DRAWS + jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


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
