"""All trackers of one run: found before it starts, told after each chunk, left out when they fail."""

import contextlib
import difflib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ._json_lines import History
from ._trackers import MLflow, TensorBoard, Tracker, TrackerError, WandB

IDS = "trackers.json"
KNOWN: dict[str, Any] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


class Trackers:
    """One that fails while the run works is left out, with a warning: hours of work are worth more."""

    def __init__(self, asked: Any, folder: Path | None, name: str, resume: bool = False):
        wanted = asked if isinstance(asked, list | tuple) else [asked]
        wanted = [one for one in wanted if one is not None and one != "none"]
        ids = _read_ids(folder) if folder is not None and resume else {}
        self.folder = folder
        self.without = "go on without (--track none)" if resume else "leave it out"
        self.waiting = [_find(one, folder, name, ids, self.without) for one in wanted]
        self.following: list[Any] = []
        self.told = 0

    def start(self, settings: dict[str, Any], history: History, step: int) -> None:
        """What a resumed run did before, its `history`, they know."""
        self.told = len(history)
        for tracker in self.waiting:
            try:
                tracker.start(settings, step)
            except Exception as error:
                raise TrackerError(
                    f"{_says(tracker, error)} cannot follow this run; put that right, or {self.without}"
                ) from error
            self.following.append(tracker)

    def remember(self) -> None:
        """Note in the run folder under which names trackers keep this run, so that it can go on there."""
        ids = {
            name: kept.id for kept in self.following for name, kind in KNOWN.items() if type(kept) is kind and kept.id
        }
        if ids and self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / IDS).write_text(json.dumps(_read_ids(self.folder) | ids) + "\n", "utf-8")

    def follow(self, history: History) -> None:
        """After each chunk."""
        for entries in history[self.told :]:
            self._each("log", int(entries["iteration"][-1]), _averages(entries))
        self.told = len(history)

    def finish(self, metrics: dict[str, Any]) -> None:
        self._each("finish", _numbers(metrics))

    def _each(self, call: str, *told: Any) -> None:
        for tracker in tuple(self.following):
            try:
                getattr(tracker, call)(*told)
            except Exception as error:
                self.following.remove(tracker)
                warnings.warn(f"{_says(tracker, error)} no longer follows this run, which goes on", stacklevel=2)


def _find(asked: Any, folder: Path | None, name: str, ids: dict[str, str], without: str) -> Any:
    if isinstance(asked, Tracker) and not isinstance(asked, type):
        return asked
    if not isinstance(asked, str) or asked not in KNOWN:
        near = difflib.get_close_matches(str(asked).lower(), KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TrackerError(
            f"unknown tracker {asked!r}; {hint}trackers are {', '.join(KNOWN)}, and in Python any object with start, log and finish"
        )
    try:
        return KNOWN[asked](folder, name, ids.get(asked))
    except TrackerError:
        raise
    except Exception as error:  # a package may fail in any way while it is imported
        missing = isinstance(error, ImportError)
        why = "is not installed" if missing else f"cannot be used here ({type(error).__name__}: {error})"
        raise TrackerError(
            f"{asked} needs the package {PACKAGES[asked]}, which {why}; pip install 'closura[{asked}]', or {without}"
        ) from error


def _read_ids(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / IDS).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _says(tracker: Any, error: Exception) -> str:
    return f"{type(tracker).__name__} ({type(error).__name__}: {error})"


def _averages(entries: dict[str, np.ndarray]) -> dict[str, float]:
    """Over the iterations of a chunk, of figures that are numbers."""
    sound = {key: column[np.isfinite(column)] for key, column in entries.items() if column.dtype.kind == "f"}
    return {key: float(column.mean()) for key, column in sound.items() if column.size}


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """Those of metrics that are numbers; of tables in it under `table/name`."""
    flat = dict(metrics)
    for key, table in metrics.items():
        if isinstance(table, dict):
            flat |= {f"{key}/{name}": value for name, value in table.items()}
    return {key: float(value) for key, value in flat.items() if isinstance(value, int | float) and math.isfinite(value)}
