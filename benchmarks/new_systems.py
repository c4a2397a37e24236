"""Are new systems judged and inferred rightly, by fleets that sampled the law and by fleets that know it?

python benchmarks/new_systems.py [--first SEED] [--fleets COUNT] [--members COUNT] [--workers COUNT] [--keep FILE]

Each fleet has five mass-dampers; new ones are drawn from the same population and observed as members are. The unit is the
fleet: means over fleets and their standard errors. What was fitted is kept in a file, as by `law.py`.
"""

import argparse
import json
import os
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, commit, heading, kept_rows, table

FLEET, WAYS = 5, ("law sampled", "law known")
FIGURES = ("covered", "turned away", "predicted", "width")
COLUMNS = ["law", "fleets", "theta in 95 %", "turned away", "next observation in 95 %", "sd of theta", "CPU s"]


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--first", type=int, default=500)
    options.add_argument("--fleets", type=int, default=25)
    options.add_argument("--members", type=int, default=20)
    options.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--keep", type=Path, default=ROOT / "benchmarks/kept/new_systems.jsonl")
    asked = options.parse_args(arguments)
    asked.keep.parent.mkdir(parents=True, exist_ok=True)
    heading(f"New systems of fleets of {FLEET}, mass-damper, {asked.fleets} fleets from seed {asked.first}")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT.resolve() / "runs/compiled"))
    seeds = range(asked.first, asked.first + asked.fleets)
    there = {fleet["seed"] for fleet in kept_rows(asked.keep)}
    jobs = [(seed, asked.members) for seed in seeds if seed not in there]
    with get_context("spawn").Pool(asked.workers, maxtasksperchild=8) as pool, asked.keep.open("a") as kept:
        for fleet in pool.imap_unordered(_fit, jobs):
            print(json.dumps({**fleet, "commit": commit()}), file=kept, flush=True)
            print(f"<!-- {fleet} -->", file=sys.stderr, flush=True)
    fleets = [fleet for fleet in kept_rows(asked.keep) if fleet["seed"] in seeds]
    found = {
        way: {key: np.array([fleet[way][key] for fleet in fleets]) for key in (*FIGURES, "seconds")} for way in WAYS
    }
    rows = [
        [way, len(fleets), *(_mean(found[way][key]) for key in FIGURES), f"{np.median(found[way]['seconds']):.0f}"]
        for way in WAYS
    ]
    apart = [found["law sampled"][key] - found["law known"][key] for key in FIGURES[:3]]
    ratio = found["law sampled"]["width"] / found["law known"]["width"]
    rows.append(["difference (sd: ratio)", len(fleets), *map(_mean, apart), _mean(ratio), ""])
    print(table(COLUMNS, rows))
    print("\nAims: theta within 2 points of the law known; at most 2 % turned away, where 1 % is nominal.")


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.3f} ± {error:.3f}"


def _fit(job: tuple[int, int]) -> dict[str, Any]:
    """Fit one fleet, with and without knowing the law, and judge its new systems."""
    import closura as cl
    from closura.problems import mass_damper

    seed, members = job
    cl.use_cores(1)
    data, truth = mass_damper.simulate(FLEET + members, seed)
    frame, theta = data.to_frame(), np.asarray(truth.theta)[FLEET:]
    old = frame["system"].isin(data.systems[:FLEET])
    found: dict[str, Any] = {"seed": seed}
    for way, problem in zip(WAYS, (mass_damper.problem, mass_damper.oracle()), strict=True):
        start = time.process_time()
        result = cl.fit(problem, frame[old], progress=False, devices=1)
        found[way] = _judged(result, frame[~old], theta) | {"seconds": time.process_time() - start}
        found[way]["verdict"] = result.verdict.word
    return found


def _judged(result: Any, frame: Any, theta: np.ndarray) -> dict[str, float]:
    """New systems by all their observations but the last; whether that one is foreseen."""
    last = frame.groupby("system")["time"].transform("max") == frame["time"]
    new = result.newcomer(frame[~last])
    low, high = np.quantile(new.theta, [0.025, 0.975], axis=0)
    order = [list(new.data.systems).index(name) for name in frame["system"].unique()]
    low, high = low[order], high[order]
    foreseen = new.predict(np.unique(frame["time"][last])).merge(frame[last], on=["system", "time"])
    inside = (foreseen["measured 2.5%"] <= foreseen["u"]) & (foreseen["u"] <= foreseen["measured 97.5%"])
    return {
        "covered": float(np.mean((low <= theta) & (theta <= high))),
        "turned away": float(np.mean([not belongs for belongs in new.belongs.values()])),
        "predicted": float(np.mean(inside)),
        "width": float(np.mean(new.theta.std(axis=0))),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
