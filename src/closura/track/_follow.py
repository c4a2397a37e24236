"""What follows one run: its history as lines, and trackers, found before it starts and left out when they fail."""

import contextlib
import difflib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ._trackers import MLflow, TensorBoard, Tracker, TrackerError, WandB

HISTORY = "history.jsonl"
IDS = "trackers.json"
KNOWN: dict[str, type[TensorBoard | WandB | MLflow]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}
Chunk = dict[str, np.ndarray]  # a column a figure, a row an iteration


class JsonLines:
    """A line an iteration, added after each chunk.

    What this object wrote and nothing else is in the file: lines of a process that was killed, which may be ahead of its
    checkpoint or cut off, give way to those of the history it is told first.
    """

    def __init__(self, path: Path):
        self.path = path
        self.size = 0  # bytes that are whole lines
        self.told = 0  # entries of the history in them
        self.failed = False

    def follow(self, history: list[Chunk]) -> None:
        lines = "".join(map(_lines, history[self.told :])).encode()
        try:
            with self.path.open("ab") as file:
                file.truncate(self.size)
                file.write(lines)
        except OSError as error:
            if not self.failed:
                why = error.strerror or error
                warnings.warn(f"{self.path} could not be written: {why}; the run goes on without", stacklevel=2)
            self.failed = True
            return
        self.size += len(lines)
        self.told = len(history)


def _lines(entries: Chunk) -> str:
    rows = zip(*([_plain(value) for value in column] for column in entries.values()))
    return "".join(json.dumps(dict(zip(entries, row)), allow_nan=False) + "\n" for row in rows)


def _plain(value: np.generic) -> object:
    """As JSON has it: no NaN or infinity, and no more digits than single precision has."""
    if not isinstance(value, np.floating):
        return value.item()
    return float(str(value)) if np.isfinite(value) else None


class Trackers:
    """One that fails while the run works is left out, with a warning: hours of work are worth more."""

    def __init__(self, asked: object, folder: Path | None, name: str, resume: bool = False):
        wanted = asked if isinstance(asked, list | tuple) else [asked]
        ids = _read_ids(folder) if folder is not None and resume else {}
        self.folder = folder
        self.without = "go on without (--track none)" if resume else "leave it out"
        self.waiting = [self._find(one, name, ids) for one in wanted if one is not None and one != "none"]
        self.following: list[Tracker] = []
        self.told = 0

    def _find(self, asked: object, name: str, ids: dict[str, str]) -> Tracker:
        if isinstance(asked, Tracker) and not isinstance(asked, type):
            return asked
        if not isinstance(asked, str) or asked not in KNOWN:
            near = difflib.get_close_matches(str(asked).lower(), KNOWN, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise TrackerError(
                f"unknown tracker {asked!r}; {hint}trackers are {', '.join(KNOWN)}, and in Python any object with start, log and finish"
            )
        try:
            return KNOWN[asked](self.folder, name, ids.get(asked))
        except TrackerError:
            raise
        except Exception as error:  # a package may fail in any way while it is imported
            missing = isinstance(error, ImportError)
            why = "is not installed" if missing else f"cannot be used here ({type(error).__name__}: {error})"
            needs = f"{asked} needs the package {PACKAGES[asked]}, which {why}"
            raise TrackerError(f"{needs}; pip install 'closura[{asked}]', or {self.without}") from error

    def start(self, settings: dict[str, object], history: list[Chunk], step: int) -> None:
        """What a resumed run did before, its `history`, they know."""
        self.told = len(history)
        for tracker in self.waiting:
            try:
                tracker.start(settings, step)
            except Exception as error:
                what = f"{_says(tracker, error)} cannot follow this run"
                raise TrackerError(f"{what}; put that right, or {self.without}") from error
            self.following.append(tracker)

    def remember(self) -> None:
        """Note in the run folder under which names trackers keep this run, so that it can go on there."""
        kept = {name: one.id for one in self.following for name, kind in KNOWN.items() if isinstance(one, kind)}
        ids = {name: id for name, id in kept.items() if id}
        if ids and self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / IDS).write_text(json.dumps(_read_ids(self.folder) | ids) + "\n", "utf-8")

    def follow(self, history: list[Chunk]) -> None:
        """After each chunk."""
        for entries in history[self.told :]:
            self._each("log", int(entries["iteration"][-1]), _averages(entries))
        self.told = len(history)

    def finish(self, metrics: Mapping[str, object]) -> None:
        self._each("finish", _numbers(metrics))

    def _each(self, call: str, *told: object) -> None:
        for tracker in tuple(self.following):
            try:
                getattr(tracker, call)(*told)
            except Exception as error:
                self.following.remove(tracker)
                warnings.warn(f"{_says(tracker, error)} no longer follows this run, which goes on", stacklevel=2)


def _read_ids(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / IDS).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _says(tracker: Tracker, error: Exception) -> str:
    return f"{type(tracker).__name__} ({type(error).__name__}: {error})"


def _averages(entries: Chunk) -> dict[str, float]:
    """Over the iterations of a chunk, of figures that are numbers."""
    sound = {key: column[np.isfinite(column)] for key, column in entries.items() if column.dtype.kind == "f"}
    return {key: float(column.mean()) for key, column in sound.items() if column.size}


def _numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """Those of metrics that are numbers; of tables in it under `table/name`."""
    flat = dict(metrics)
    for key, table in metrics.items():
        if isinstance(table, dict):
            flat |= {f"{key}/{name}": value for name, value in table.items()}
    return {key: float(value) for key, value in flat.items() if isinstance(value, int | float) and math.isfinite(value)}
