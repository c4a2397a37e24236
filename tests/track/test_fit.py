"""Whole fits that are followed: nothing twice, nothing missing, and a folder that is left tidy."""

import json

import numpy as np
import pandas as pd
import pytest
from sizes import LAW, RUN, SYSTEMS

import closura as cl
from closura.learning._setup import Log
from closura.problems import mass_damper

pytestmark = [pytest.mark.usefixtures("hardly_optimised"), pytest.mark.xdist_group("track")]

TOTAL = 24  # iterations of such a run


class Steps:
    """Where it was told to begin, and each step; one of them may be the last."""

    def __init__(self, stop=None):
        self.steps, self.stop = [], stop

    def start(self, settings, step):
        self.settings, self.first = settings, step

    def log(self, step, values):
        self.steps.append(step)
        if step == self.stop:
            raise KeyboardInterrupt

    def finish(self, metrics):
        self.metrics = metrics


@pytest.fixture
def fit(monkeypatch):
    """`fit(...)` of a small fleet, without figures."""
    monkeypatch.setattr("closura.show.save_figures", lambda *_: {})
    problem = mass_damper.problem.with_closure(cl.MLP(**LAW))
    data, _ = mass_damper.simulate(SYSTEMS, 0)
    return lambda **options: cl.fit(problem, data, progress=False, **RUN, **options)


def iterations(path):
    return [json.loads(line, parse_constant=pytest.fail)["iteration"] for line in path.read_text().splitlines()]


@pytest.mark.nightly
def test_stopped_and_resumed(fit, tmp_path):
    """Killed after a chunk that is in no checkpoint, in the middle of a line; then resumed."""
    folder, first = tmp_path / "run", Steps(stop=7)
    with pytest.raises(KeyboardInterrupt):
        fit(out=folder, track=["tensorboard", first])
    assert (first.first, first.steps, first.metrics) == (0, [3, 7], {})
    assert first.settings["problem"] == "mass-damper"
    assert first.settings["chains"] == 32
    live = folder / "history.jsonl"
    assert iterations(live) == list(range(8))
    seen = pd.read_json(live, lines=True, precise_float=True)
    with live.open("a") as file:
        file.write(live.read_text().splitlines()[-1].replace("7", "8", 1) + '\n{"iteration": 9, "pha')

    class Looking(Steps):
        lines = ()

        def log(self, step, values):
            super().log(step, values)
            self.lines += (iterations(live),)

    second = Looking()
    result = fit(out=folder, track=["tensorboard", second], resume=True)
    assert (second.first, second.steps) == (8, [11, 15, 19, 23])
    assert second.lines == tuple(list(range(step + 1)) for step in second.steps)
    assert second.metrics["iterations"] == TOTAL
    assert second.metrics["mu/log k"] == pytest.approx(result.metrics["mu"]["log k"])
    assert not live.exists()  # its place is taken
    table = pd.read_parquet(folder / "history.parquet")
    assert table["iteration"].tolist() == list(range(TOTAL))
    assert list(table.columns) == list(seen.columns)
    assert list(table.columns) == ["iteration", "phase", "seconds", "temperature", *Log._fields]
    for name in seen.columns.drop("phase"):
        np.testing.assert_array_equal(seen[name].to_numpy(table[name].dtype), table[name][:8], err_msg=name)
    assert len(list((folder / "tensorboard").iterdir())) == 2


def test_overwritten_runs_leave_nothing_to_trackers(fit, tmp_path):
    folder = tmp_path / "run"
    for name in ("events.out.tfevents.1.host", "mine.txt"):
        (folder / "tensorboard").mkdir(parents=True, exist_ok=True)
        (folder / "tensorboard" / name).write_text("old")
    for name in ("history.jsonl", "trackers.json"):
        (folder / name).write_text("old")
    (folder / "config.yaml").write_text("about:\n  versions:\n    closura: 0.1.0\n")
    with pytest.raises(KeyboardInterrupt):
        fit(out=folder, overwrite=True, track=Steps(stop=3))
    assert iterations(folder / "history.jsonl") == list(range(4))
    assert not (folder / "trackers.json").exists()
    assert [path.name for path in (folder / "tensorboard").iterdir()] == ["mine.txt"]


@pytest.mark.nightly
def test_without_a_folder_nothing_is_written(fit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = Steps()
    fit(track=steps)
    assert steps.steps == [3, 7, 11, 15, 19, 23]
    assert steps.metrics["iterations"] == TOTAL
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_cannot_start_spares_the_old_run(fit, tmp_path):
    class Refusing(Steps):
        def start(self, settings, step):
            raise PermissionError("not logged in")

    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("about:\n  versions:\n    closura: 0.1.0\n")
    with pytest.raises(cl.TrackerError, match="not logged in"):
        fit(out=folder, overwrite=True, track=Refusing())
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_a_tracker_that_fails_costs_nothing_but_itself(fit, tmp_path):
    class Failing(Steps):
        def log(self, step, values):
            raise ConnectionError("network gone")

    with pytest.warns(UserWarning, match=r"Failing \(ConnectionError: network gone\) no longer follows this run"):
        result = fit(out=tmp_path / "run", track=Failing())
    assert result.metrics["finished"]
    assert (tmp_path / "run" / "report.html").exists()
