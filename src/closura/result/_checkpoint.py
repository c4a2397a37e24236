"""Stop and go on: the state of a run as a file, from which it continues as if it had not stopped."""

import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from ..learning import Run
from ..problem import ProblemError


def store(run: Run, folder: Path) -> None:
    """Write DIR/checkpoint aside and move it into place."""
    folder.mkdir(parents=True, exist_ok=True)
    place, aside, old = folder / "checkpoint", folder / ".checkpoint-new", folder / ".checkpoint-old"
    aside.mkdir(exist_ok=True)
    eqx.tree_serialise_leaves(aside / "state.eqx", _state(run))
    draws = {f"theta_{i}": theta for i, theta in enumerate(run.theta_draws)}
    draws |= {f"phi_{i}_{j}": leaf for i, phi in enumerate(run.phi_draws) for j, leaf in enumerate(phi)}
    np.savez(aside / "draws.npz", **draws)  # type: ignore[arg-type]
    keys = list(run.history[0]) if run.history else []
    np.savez(aside / "history.npz", **{key: np.concatenate([h[key] for h in run.history]) for key in keys})  # type: ignore[arg-type]
    progress = {
        "iteration": run.iteration,
        "extended": run.extended,
        "stale": run.stale,
        "nonfinite": run.nonfinite,
        "chunks": len(run.theta_draws),
        "phi_leaves": len(run.phi_draws[0]) if run.phi_draws else 0,
    }
    (aside / "progress.json").write_text(json.dumps(progress))
    if place.exists():
        os.replace(place, old)
    os.replace(aside, place)
    _clear(old)


def restore(run: Run, folder: Path) -> None:
    """Put a freshly made run (same problem, data and settings) where the stored one stood."""
    place = folder / "checkpoint"
    if not (place / "progress.json").exists():
        raise ProblemError(f"{folder} holds no checkpoint to continue from")
    try:
        state = eqx.tree_deserialise_leaves(place / "state.eqx", _state(run))
    except Exception as error:
        raise ProblemError(
            f"the checkpoint in {folder} does not fit the problem or settings any more ({error})"
        ) from None
    keys, chains, run.law, run.ranges, factor = state
    run.chains = run.spread(chains._replace(keys=jr.wrap_key_data(keys)))
    run.factor = run.spread(factor)
    progress = json.loads((place / "progress.json").read_text())
    run.iteration, run.extended = progress["iteration"], progress["extended"]
    run.stale, run.nonfinite = progress["stale"], progress["nonfinite"]
    with np.load(place / "history.npz") as stored:
        run.history = [{key: stored[key] for key in stored.files}] if stored.files else []
    with np.load(place / "draws.npz") as stored:
        chunks = range(progress["chunks"])
        run.theta_draws = [stored[f"theta_{i}"] for i in chunks]
        leaves = [[stored[f"phi_{i}_{j}"] for j in range(progress["phi_leaves"])] for i in chunks]
    if progress["phi_leaves"]:
        kind = type(run.setup.blocks.unpack(run.chains.ensemble.position, run.chains.phi)[1])
        run.phi_draws = [kind(*parts) for parts in leaves]
    else:
        run.phi_draws = [() for _ in chunks]


def _state(run: Run) -> Any:
    """All arrays that change, typed keys as plain numbers (equinox does not store keys)."""
    chains = run.chains._replace(keys=None)
    return jax.device_get((jr.key_data(run.chains.keys), chains, run.law, run.ranges, run.factor))


def _clear(path: Path) -> None:
    if path.exists():
        for item in path.iterdir():
            item.unlink()
        path.rmdir()
