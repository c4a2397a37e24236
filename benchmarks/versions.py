"""Does this version give the same answers as another one? The same fits by both, from nothing, one after the other.

python benchmarks/versions.py FOLDER [--keep FOLDER] [--workers COUNT] [ROW ...]

FOLDER is a checkout of the other version (`git worktree add FOLDER COMMIT`), which runs in this environment. Posterior means of
all numbers are compared in units of their Monte Carlo error. A row is a name below. Where a law is learned its own error is not
counted by that: the other version with another seed, compared with itself, tells how large it is.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _common import ROOT, heading, table

# What is asked of both, and of this version alone: law networks were all there was before.
ROWS = {
    "mass-damper": (["mass-damper"], ["--law", "network"]),
    "mass-damper, law known": (["mass-damper", "--oracle"], []),
    "darcy basis": (["darcy", "--forward", "basis"], ["--law", "network"]),
    "darcy basis, law known": (["darcy", "--forward", "basis", "--oracle"], []),
    "burgers basis": (["burgers", "--forward", "basis"], ["--law", "network"]),
    "burgers basis, law known": (["burgers", "--forward", "basis", "--oracle"], []),
}
COLUMNS = ["run", "numbers", "rms z of posterior means", "largest z", "largest difference in posterior sds"]
COLUMNS += ["rms difference in sds", "verdicts", "seconds, other and this"]


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("other", type=Path)
    options.add_argument("rows", nargs="*", default=list(ROWS))
    options.add_argument("--keep", type=Path, default=Path("runs/versions"))
    options.add_argument("--workers", type=int, default=1)
    asked = options.parse_args(arguments)
    heading("The same answers as another version")

    def fits(row: str) -> tuple[float, float]:
        both, ours = ROWS[row]
        where = asked.keep / row.replace(", ", "-").replace(" ", "-")
        if ours:
            _fit(asked.other, [*both, "--seed", "1"], where / "again")
        return _fit(asked.other, both, where / "other"), _fit(ROOT, both + ours, where / "this")

    with ThreadPoolExecutor(asked.workers) as pool:
        seconds = list(pool.map(fits, asked.rows))
    folders = [asked.keep / row.replace(", ", "-").replace(" ", "-") for row in asked.rows]
    rows = []
    for row, where, (other, this) in zip(asked.rows, folders, seconds):
        rows.append([row, *_compare(where, "this"), f"{other:.0f}, {this:.0f}"])
        if (where / "again").exists():
            rows.append(["the other version, two seeds", *_compare(where, "again"), ""])
    print(table(COLUMNS, rows))


def _fit(version: Path, arguments: list[str], out: Path) -> float:
    """Wall seconds of `closura fit` of a version, of which all but a finished run folder are thrown away."""
    if not (out / "metrics.json").exists():
        start = time.perf_counter()
        environment = os.environ | {"PYTHONPATH": str(version.resolve() / "src")}
        command = [Path(sys.executable).with_name("closura"), "fit", *arguments, "--out", out, "--overwrite", "--quiet"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not (out / "metrics.json").exists():
            raise RuntimeError(done.stderr)
        (out / "seconds.json").write_text(json.dumps(time.perf_counter() - start))
    return float(json.loads((out / "seconds.json").read_text()))


def _compare(where: Path, than: str) -> list[Any]:
    """Of numbers that both fits inferred, by level, system and parameter."""
    keys, fits = ["level", "system", "parameter"], ("other", than)
    other, this = (pd.read_csv(where / which / "summary.csv") for which in fits)
    both = other.merge(this, on=keys, suffixes=("", "_this"))
    error = np.hypot(both["sd"] / np.sqrt(both["ess_bulk"]), both["sd_this"] / np.sqrt(both["ess_bulk_this"]))
    apart = both["mean_this"] - both["mean"]
    z, sds = apart / error, apart / both["sd"]
    words = [json.loads((where / which / "metrics.json").read_text())["converged"] for which in fits]
    said = "the same" if words[0] == words[1] else f"converged {words[0]}, {words[1]}"
    return [
        len(both),
        float(np.sqrt(np.mean(z**2))),
        float(z.abs().max()),
        float(sds.abs().max()),
        float(np.sqrt(np.mean(sds**2))),
        said,
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
