"""What a person sees while a run works: a bar on a terminal, plain lines elsewhere; and a way to stop it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ._run import Run

PHASES = {"learn": "learning the closure", "tune": "tuning", "sample": "sampling"}
LINE_EVERY = 5.0
WIDE = 120


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Reporter:
    """`update(run, log)` after each chunk. Rate and remaining time are of the iterations, not of compilation."""

    def __init__(self, shown: bool):
        self.console = Console(file=sys.stderr)
        self.shown = shown
        self.bar = shown and self.console.is_terminal
        self.narrow = self.bar and self.console.width < WIDE
        self.last_line = -np.inf
        self.last: tuple[float, int] | None = None
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8 if self.narrow else 30),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.bar,
        )
        self.task = self.progress.add_task("compiling", total=1, state="")

    def update(self, run: Run, log: dict[str, np.ndarray]) -> None:
        if not self.shown:
            return
        now = time.perf_counter()
        at = now - run.seconds_compile
        rate = (run.iteration - self.last[1]) / max(at - self.last[0], 1e-9) if self.last else None
        self.last = (at, run.iteration)
        figures = {
            "it/s": "    …" if rate is None else f"{rate:5.0f}",
            "accept": f"{np.mean(log['acceptance']):.2f}",
            "log-lik": f"{log['loglik'][-1]:.1f}",
            "temper": f"{log['temperature'][-1]:.3f}",
        }
        state = "{it/s} it/s  accept {accept}  log-lik {log-lik}  temper {temper}".format(**figures)
        phase = str(log["phase"][0])
        name = PHASES[phase] if run.laws or phase != "learn" else "warming up"
        if self.bar:
            if self.narrow:
                name, state = name.split()[0], "{it/s}/s acc {accept} ll {log-lik} T {temper}".format(**figures)
            self.progress.update(self.task, total=run.total, completed=run.iteration, description=name, state=state)
        elif now - self.last_line > LINE_EVERY or run.finished:
            left = f"  ETA {(run.total - run.iteration) / rate:.0f} s" if rate else ""
            self.say(f"{run.iteration:>6}/{run.total} {name}: {state}{left}")
            self.last_line = now

    def say(self, text: str) -> None:
        if self.shown:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def stoppable(reporter: Reporter) -> Iterator[threading.Event]:
    """The first Ctrl-C asks to stop after the current chunk, the second stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        with suppress(RuntimeError):  # the signal may have come in the middle of another line
            reporter.say("Stopping after this chunk; what was done is kept. Ctrl-C again stops at once.")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(run: Run, shown: bool, after_chunk: Callable[[Run], None] | None = None) -> bool:
    """Advance a run to its end; returns False if it was stopped before. A second Ctrl-C raises KeyboardInterrupt."""
    reporter = Reporter(shown)
    with reporter.progress, stoppable(reporter) as stop:
        if not reporter.bar:
            reporter.say("compiling …")
        idle = cores() - len(jax.devices())
        if idle > 0 and run.settings.devices is None and jax.default_backend() == "cpu":
            reporter.say(
                f"{idle} of {cores()} cores idle: in Python, call closura.use_cores() before anything uses JAX"
            )
        while not run.finished and run.diverged is None and not stop.is_set():
            reporter.update(run, _advance(run))
            run.prepare_sampling()
            if after_chunk is not None:
                after_chunk(run)
    return run.finished


def _advance(run: Run) -> dict[str, np.ndarray]:
    """One chunk, wholly or not at all: a run that is broken off in the middle of one stands where it stood before."""
    before = {name: list(value) if isinstance(value, list) else value for name, value in vars(run).items()}
    try:
        return run.advance()
    except BaseException:
        vars(run).update(before)
        raise
