"""The history of a run that still works, as lines anyone can read."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

NAME = "history.jsonl"

History = list[dict[str, np.ndarray]]


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

    def follow(self, history: History) -> None:
        lines = "".join(map(lines_of, history[self.told :])).encode()
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
        self.size, self.told = self.size + len(lines), len(history)


def lines_of(entries: dict[str, np.ndarray]) -> str:
    """A line for each iteration of a chunk."""
    rows = zip(*([_plain(value) for value in column] for column in entries.values()))
    return "".join(json.dumps(dict(zip(entries, row)), allow_nan=False) + "\n" for row in rows)


def _plain(value: Any) -> Any:
    """As JSON has it: no NaN or infinity, and no more digits than single precision has."""
    if not isinstance(value, np.floating):
        return value.item()
    return float(str(value)) if np.isfinite(value) else None
