"""history.jsonl: whole lines, each iteration once, whatever happened before."""

import errno
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from closura.track import JsonLines


def read(path):
    """Every line, strictly: JSON knows no NaN."""
    assert path.read_text() == "" or path.read_text().endswith("\n")
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_a_line_an_iteration_as_a_person_would_write_it(tmp_path, chunk):
    lines = JsonLines(tmp_path / "history.jsonl")
    history = []
    lines.follow(history)
    assert read(lines.path) == []  # there to be watched before the first chunk is done
    for first in (0, 3, 6):
        history.append(chunk(first))
        lines.follow(history)
        assert [row["iteration"] for row in read(lines.path)] == list(range(first + 3))
    assert lines.path.read_text().splitlines()[4] == (
        '{"iteration": 4, "phase": "learn", "seconds": 0.375, "loglik": -4.1, "surrogate_loss": null}'
    )


def test_numbers_survive(tmp_path, chunk):
    values = np.float32([1 / 3, 1e-30, -7.25e20])
    lines = JsonLines(tmp_path / "history.jsonl")
    lines.follow([chunk(0, loglik=values)])
    table = pd.read_json(lines.path, lines=True, precise_float=True)
    np.testing.assert_array_equal(table["loglik"].to_numpy(np.float32), values)
    assert table["surrogate_loss"].isna().all()


def test_what_is_no_number_is_null(tmp_path, chunk):
    lines = JsonLines(tmp_path / "history.jsonl")
    lines.follow([chunk(0, loglik=np.float32([np.nan, -np.inf, 1.0]), seconds=np.array([np.inf, 0.0, 0.0]))])
    assert [row["loglik"] for row in read(lines.path)] == [None, None, 1.0]
    assert [row["seconds"] for row in read(lines.path)] == [None, 0.0, 0.0]


@pytest.mark.parametrize("more", ["", '{"iteration": 6, "ph', '{"iteration": 6}\n{"iteration": 7}\n', "ahead " * 1000])
def test_a_killed_process_leaves_no_trace(tmp_path, chunk, more):
    """Its lines may be behind the checkpoint, ahead of it, or cut off."""
    history = [chunk(0), chunk(3)]
    before = JsonLines(tmp_path / "history.jsonl")
    before.follow(history[: 1 if more == "" else 2])
    with before.path.open("a") as file:
        file.write(more)
    again = JsonLines(tmp_path / "history.jsonl")
    again.follow(history)
    assert [row["iteration"] for row in read(again.path)] == list(range(6))
    again.follow([*history, chunk(6, "tune")])
    assert [row["iteration"] for row in read(again.path)] == list(range(9))


def test_a_full_disk_is_said_once_and_made_good(tmp_path, chunk, monkeypatch, recwarn):
    warnings.simplefilter("always")
    lines, history = JsonLines(tmp_path / "history.jsonl"), [chunk(0)]
    lines.follow(history)
    opened = Path.open

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def truncate(self, size):
            self.file.truncate(size)

        def write(self, data):
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(Path, "open", lambda self, *words: Full(opened(self, *words)))
        for first in (3, 6):
            history.append(chunk(first))
            lines.follow(history)
    (said,) = [str(warning.message) for warning in recwarn]
    assert said == f"{lines.path} could not be written: No space left on device; the run goes on without"
    assert not lines.path.read_text().endswith("\n")
    lines.follow([*history, chunk(9)])
    assert [row["iteration"] for row in read(lines.path)] == list(range(12))
