"""What the benchmarks share: timing side by side, running the command line, tables."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def side_by_side(jobs: dict[str, Callable[[], Any]], repeats: int = 9) -> dict[str, float]:
    """Median seconds of each job, taken in turn so that a slow spell of the machine meets all of them."""
    import jax

    for job in jobs.values():
        jax.block_until_ready(job())
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            jax.block_until_ready(job())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def command(
    *arguments: str, environment: dict[str, str] | None = None, keep: Path | None = None
) -> tuple[dict[str, Any], float]:
    """Run `closura fit ...` as a user would, from nothing; its metrics and the wall time of the whole command.

    The run folder is left in `keep`, in place of one that is there.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        closura = Path(sys.executable).with_name("closura")
        start = time.perf_counter()
        done = subprocess.run(
            [closura, "fit", *arguments, "--out", out, "--quiet"],
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
        )
        wall = time.perf_counter() - start
        if not (out / "metrics.json").exists():
            raise RuntimeError(done.stderr)
        if keep is not None:
            shutil.rmtree(keep, ignore_errors=True)
            shutil.move(out, keep)
        return json.loads(((keep or out) / "metrics.json").read_text()), wall


def table(columns: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table."""
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def commit() -> str:
    describe = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return describe.stdout.strip()


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """What earlier runs of a benchmark left: a line each."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def heading(title: str) -> None:
    cores = len(os.sched_getaffinity(0))
    print(f"\n## {title}\n\n{time.strftime('%Y-%m-%d')}, commit {commit()}, {cores} cores\n", flush=True)
