"""Trackers: what each is told, and what happens without its package or when it fails."""

import json
import re
import struct
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from closura.track import Trackers
from closura.track._trackers import TrackerError

METRICS = {"iterations": 6, "rhat_max": 1.5, "converged": True, "mu": {"logit(k / 2)": 2.0}, "warnings": ["x"]}
METRICS |= {"diverged": None, "problem": "springs", "closure_mse": float("nan")}
NUMBERS = {"iterations": 6.0, "rhat_max": 1.5, "converged": 1.0, "mu/logit(k / 2)": 2.0}


class Own:
    """A user's tracker: keeps what it is told."""

    def __init__(self, fails=""):
        self.calls, self.fails = [], fails

    def start(self, settings, step):
        self._call("start", settings, step)

    def log(self, step, values):
        self._call("log", step, values)

    def finish(self, metrics):
        self._call("finish", metrics)

    def _call(self, name, *told):
        if name == self.fails:
            raise ConnectionError("network gone")
        self.calls.append((name, *told))


def follow(trackers, chunk, settings=None, before=(), after=(0, 3), metrics=METRICS):
    """A run of chunks that begin at these iterations, of which some are of an earlier process."""
    history = [chunk(first) for first in before]
    trackers.start(settings or {}, history, 3 * len(before))
    trackers.remember()
    for first in after:
        history.append(chunk(first))
        trackers.follow(history)
    trackers.finish(metrics)


# Whatever has three methods


def test_a_users_own(chunk):
    own = Own()
    follow(Trackers(own, None, "fleet"), chunk, {"chains": 32})
    assert [call[:2] for call in own.calls[:3]] == [("start", {"chains": 32}), ("log", 2), ("log", 5)]
    assert own.calls[0][2] == 0
    assert own.calls[1][2] == {"seconds": 0.0, "loglik": pytest.approx(-1.1)}  # averages, of numbers
    assert own.calls[3] == ("finish", NUMBERS)


def test_resumed_it_is_told_what_is_new(chunk):
    own = Own()
    follow(Trackers([own], None, "fleet"), chunk, before=(0, 3), after=(6,))
    assert [call[:2] for call in own.calls[:2]] == [("start", {}), ("log", 8)]
    assert own.calls[0][2] == 6


def test_numbers_that_are_not_finite_are_left_out_of_averages(chunk):
    own = Own()
    loglik = np.float32([np.nan, 2.0, -np.inf])
    follow(Trackers([own], None, "fleet"), lambda first: chunk(first, loglik=loglik), after=(0,))
    assert own.calls[1][2] == {"seconds": 0.0, "loglik": 2.0}


@pytest.mark.parametrize("fails", ["log", "finish"])
def test_one_that_fails_is_left_out_and_said_once(chunk, recwarn, fails):
    bad, good = Own(fails), Own()
    follow(Trackers([bad, good], None, "fleet"), chunk, after=(0, 3, 6))
    assert [call[0] for call in good.calls] == ["start", "log", "log", "log", "finish"]
    assert [call[0] for call in bad.calls] == (["start"] if fails == "log" else ["start", "log", "log", "log"])
    (said,) = [str(warning.message) for warning in recwarn]
    assert said == "Own (ConnectionError: network gone) no longer follows this run, which goes on"


def test_one_that_cannot_start_is_an_error(chunk):
    good = Own()
    trackers = Trackers([good, Own("start")], None, "fleet")
    with pytest.raises(TrackerError, match=r"Own \(ConnectionError: network gone\) cannot follow this run; put that"):
        trackers.start({}, [], 0)
    trackers.finish({})
    assert good.calls[-1] == ("finish", {})


@pytest.mark.parametrize("asked", ["wandbb", ["WandB"], 3, Own, [[]]], ids=str)
def test_unknown(asked):
    with pytest.raises(TrackerError, match="unknown tracker") as raised:
        Trackers(asked, None, "fleet")
    assert "trackers are tensorboard, wandb, mlflow, and in Python any object with start" in str(raised.value)
    assert ("did you mean 'wandb'? " in str(raised.value)) == (asked in ("wandbb", ["WandB"]))


@pytest.mark.parametrize("asked", [None, "none", ["none"], []], ids=str)
def test_nobody(asked):
    assert Trackers(asked, None, "fleet").waiting == []


# Packages


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
@pytest.mark.parametrize("resume", [False, True])
def test_package_is_missing(uninstalled, tmp_path, name, package, resume):
    uninstalled(package, ModuleType(package) if resume else None)  # a folder of that name is no better than nothing
    says = f"{name} needs the package {package}, which is not installed; pip install 'closura[{name}]', or "
    says += "go on without (--track none)" if resume else "leave it out"
    with pytest.raises(TrackerError, match=re.escape(says)):
        Trackers(name, tmp_path, "fleet", resume)


def test_package_is_broken(monkeypatch, tmp_path):
    class Broken(ModuleType):
        def __getattr__(self, name):
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(sys.modules, "wandb", Broken("wandb"))
    with pytest.raises(TrackerError, match=r"wandb, which cannot be used here \(TypeError: Descriptors cannot be"):
        Trackers("wandb", tmp_path, "fleet")


# TensorBoard


def events(folder):
    """Of all its files: records are a length, its checksum, an event, its checksum."""
    for path in sorted((folder / "tensorboard").iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4


def scalars(folder):
    return [(e.step, {v.tag: v.simple_value for v in e.summary.value}) for e in events(folder) if e.summary.value]


def test_tensorboard(tmp_path, chunk):
    trackers, history = Trackers("tensorboard", tmp_path, "fleet"), [chunk(0)]
    trackers.start({}, [], 0)
    assert list(tmp_path.iterdir()) == []
    trackers.follow(history)
    assert scalars(tmp_path) == [(2, {"seconds": 0.0, "loglik": pytest.approx(-1.1)})]  # while it runs
    trackers.follow([*history, chunk(3)])
    trackers.finish(METRICS)
    assert [step for step, _ in scalars(tmp_path)] == [2, 5, 5]
    assert scalars(tmp_path)[-1][1] == {f"final/{name}": value for name, value in NUMBERS.items()}


def test_tensorboard_forgets_what_a_killed_process_wrote_ahead(tmp_path, chunk):
    follow(Trackers("tensorboard", tmp_path, "fleet"), chunk, metrics={})
    follow(Trackers("tensorboard", tmp_path, "fleet", resume=True), chunk, before=(0,), after=(3, 6), metrics={})
    assert [step for step, _ in scalars(tmp_path)] == [2, 5, 5, 8]
    begins = [event.step for event in events(tmp_path) if event.session_log.status == SessionLog.START]
    assert begins == [0, 3]  # TensorBoard drops steps from there on


def test_tensorboard_needs_a_folder():
    with pytest.raises(TrackerError, match="tensorboard writes into the run folder: name it with out="):
        Trackers("tensorboard", None, "fleet")


# W&B and MLflow: the calls they were seen to take


@pytest.fixture
def wandb(monkeypatch):
    """In its place: what it was called with."""
    calls = []

    class Run(SimpleNamespace):
        def log(self, values, *, step):
            calls.append(("log", step, values))

        def finish(self, *, exit_code):
            calls.append(("finish", exit_code, dict(self.summary)))

    def init(**options):
        calls.append(("init", options))
        return Run(id=options["id"] or "abc", summary={})

    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return calls


def test_wandb(wandb, tmp_path, chunk, monkeypatch):
    follow(Trackers("wandb", tmp_path, "fleet"), chunk, {"chains": 32})
    options = {"project": "closura", "name": "fleet", "id": None, "resume": "allow", "reinit": "create_new"}
    assert wandb[0] == ("init", {"config": {"chains": 32}, **options})
    assert [call[:2] for call in wandb[1:]] == [("log", 2), ("log", 5), ("finish", 0)]
    assert wandb[-1][2] == NUMBERS
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    follow(Trackers("wandb", tmp_path, "fleet", resume=True), chunk, before=(0, 3), after=(6,), metrics={})
    assert (wandb[4][1]["id"], wandb[4][1]["project"]) == ("abc", "mine")  # the same run goes on
    assert wandb[-1] == ("finish", 1, {})


@pytest.fixture
def mlflow(monkeypatch):
    """In its place: what it was called with; it is as strict about names."""
    calls = []

    def start_run(run_id=None, run_name=None, *, nested):
        calls.append(("start_run", run_id, run_name, nested))
        return SimpleNamespace(info=SimpleNamespace(run_id="0815"))

    def log_metrics(metrics, *, step):
        assert all(re.fullmatch(r"[/\w.\- :]+", name) for name in metrics)
        calls.append(("log_metrics", step, metrics))

    def told(name):
        return lambda *given: calls.append((name, *given))

    fake = {"start_run": start_run, "log_metrics": log_metrics}
    fake |= {name: told(name) for name in ("log_params", "end_run")}
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(**fake))
    return calls


def test_mlflow(mlflow, tmp_path, chunk):
    follow(Trackers("mlflow", tmp_path, "fleet"), chunk, {"chains": 32})
    assert mlflow[:2] == [("start_run", None, "fleet", True), ("log_params", {"chains": 32})]
    assert [call[:2] for call in mlflow[2:]] == [
        *(("log_metrics", step) for step in (2, 5, 6)),
        ("end_run", "FINISHED"),
    ]
    assert mlflow[4][2].keys() == {"iterations", "rhat_max", "converged", "mu/logit_k / 2_"}
    del mlflow[:]
    follow(Trackers("mlflow", tmp_path, "fleet", resume=True), chunk, before=(0, 3), after=(6,), metrics={})
    assert mlflow[0] == ("start_run", "0815", None, True)  # the same run goes on
    assert [call[:2] for call in mlflow[1:]] == [("log_metrics", 8), ("end_run", "FAILED")]


@pytest.mark.usefixtures("wandb", "mlflow")
def test_runs_of_trackers_are_remembered(tmp_path, chunk):
    follow(Trackers(["tensorboard", "wandb"], tmp_path, "fleet"), chunk)
    follow(Trackers("mlflow", tmp_path, "fleet", resume=True), chunk)
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"wandb": "abc", "mlflow": "0815"}
    (tmp_path / "trackers.json").write_text("{")
    follow(Trackers("wandb", tmp_path, "fleet", resume=True), chunk)
    assert json.loads((tmp_path / "trackers.json").read_text()) == {"wandb": "abc"}
