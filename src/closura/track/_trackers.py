"""Trackers: programs that show runs. Each needs a package of its own, imported when it is asked for."""

import os
import re
import time
from pathlib import Path
from typing import Protocol, runtime_checkable

EVENTS = "tensorboard"  # folder of TensorBoard's files in a run folder


class TrackerError(ValueError):
    """A tracker that does not exist, is not installed or cannot start; the message says what to do."""


@runtime_checkable
class Tracker(Protocol):
    """Three calls, in this order; whatever has them can follow a run."""

    def start(self, settings: dict[str, object], step: int) -> None:
        """Before the first chunk; `step` is the iteration a resumed run goes on from, else 0."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """After each chunk: averages over its iterations, of which `step` is the last."""

    def finish(self, metrics: dict[str, float]) -> None:
        """At the end, with the numbers of metrics.json; with none where the run broke off."""


class TensorBoard:
    """Scalars in DIR/tensorboard, written at once: tensorboardX's own queue waits for ever once the disk is full."""

    def __init__(self, folder: Path | None, name: str, again: str | None):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        if folder is None:
            raise TrackerError("tensorboard writes into the run folder: name it with out=")
        self.folder, self.id = folder / EVENTS, None
        self._open, self._events, self._summaries = EventsWriter, event_pb2, summary_pb2
        self._file: EventsWriter | None = None

    def start(self, settings: dict[str, object], step: int) -> None:
        self._step = step  # the file is made when there is something to write

    def log(self, step: int, values: dict[str, float]) -> None:
        if self._file is None:
            # Whatever another process wrote from this step on, before it was killed, no longer counts.
            self.folder.mkdir(exist_ok=True)
            self._file = self._open(str(self.folder / "events"), f".{self._step}")
            session = self._events.SessionLog
            self._write(self._step, session_log=session(status=session.START))
        entry = self._summaries.Summary
        tagged = [entry.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step, summary=entry(value=tagged))

    def finish(self, metrics: dict[str, float]) -> None:
        if metrics:
            self.log(self._step, {f"final/{name}": value for name, value in metrics.items()})
        if self._file is not None:
            self._file.close()

    def _write(self, step: int, **what: object) -> None:
        assert self._file is not None
        self._file.write_event(self._events.Event(wall_time=time.time(), step=step, **what))
        self._file.flush()
        self._step = step


class WandB:
    """A run of Weights & Biases, in the project WANDB_PROJECT names, or `closura`."""

    def __init__(self, folder: Path | None, name: str, again: str | None):
        from wandb import init

        self.name, self.id, self._init = name, again, init

    def start(self, settings: dict[str, object], step: int) -> None:
        project = os.environ.get("WANDB_PROJECT", "closura")
        which = {"project": project, "name": self.name, "id": self.id, "resume": "allow", "reinit": "create_new"}
        self._run = self._init(config=settings, **which)
        self.id = self._run.id

    def log(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def finish(self, metrics: dict[str, float]) -> None:
        self._run.summary.update(metrics)
        self._run.finish(exit_code=0 if metrics else 1)


class MLflow:
    """A run of MLflow, where MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

    def __init__(self, folder: Path | None, name: str, again: str | None):
        import mlflow
        from mlflow import start_run  # which a mere folder of that name lacks

        self.name, self.id = name, again
        self._start_run, self._mlflow = start_run, mlflow

    def start(self, settings: dict[str, object], step: int) -> None:
        if self.id is not None:
            self._start_run(run_id=self.id, nested=True)
            return
        self.id = self._start_run(run_name=self.name, nested=True).info.run_id
        self._mlflow.log_params(settings)

    def log(self, step: int, values: dict[str, float]) -> None:
        allowed = {re.sub(r"[^\w/:. -]", "_", name): value for name, value in values.items()}
        self._mlflow.log_metrics(allowed, step=step)

    def finish(self, metrics: dict[str, float]) -> None:
        try:
            if metrics:
                self.log(int(metrics["iterations"]), metrics)
        finally:
            self._mlflow.end_run("FINISHED" if metrics else "FAILED")
