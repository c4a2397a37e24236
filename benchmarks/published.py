"""The published sampler (joint, covariance of all chains) beside the default, 200 chains each, law known and learned.

    python benchmarks/published.py [SEEDS]

Effective samples per second of sampling time in the frozen phase, coverage over all data seeds, and, because freezing the
covariance makes even the published kernel exact in the end, the spread it has before that: the mean ratio of its standard
deviations while its covariance still moves to those of the default.
"""

import sys
import time

import numpy as np
from _common import heading, table

import closura
from closura.diagnose import theta_scores
from closura.learning import Run, Settings
from closura.problems import mass_damper

KINDS = {
    "default (system, halves)": {"chains": 200, "groups": 4},
    "published (joint, self)": {"chains": 200, "groups": 1, "blocks": "joint", "covariance": "self"},
    "joint, halves": {"chains": 200, "groups": 1, "blocks": "joint"},
}


def measure(kind: dict, seed: int) -> dict[str, float]:
    data, truth = mass_damper.simulate(20, seed)
    run = Run(mass_damper.problem, data, Settings(**kind, extend=0, draws=200, thin=5))
    moving = []
    while run.phase == "learn":
        run.advance()
        # The last third of learning: likelihood whole, covariance still that of the moving ensemble.
        if run.iteration > 2 * run.plan.learn / 3:
            moving.append(run.theta()[:, 0])
    while run.phase == "tune":
        run.advance()
    run.advance()
    start, before = time.perf_counter(), sum(len(chunk.theta) for chunk in run.draws)
    while not run.finished:
        run.advance()
    seconds = time.perf_counter() - start
    share = 1 - before / sum(len(chunk.theta) for chunk in run.draws)
    check = run.convergence()
    least = check.least.value
    ensemble = np.stack(moving, axis=1)
    return {
        "ess": least,
        "ess_per_second": least * share / seconds,
        "coverage": theta_scores(run.theta(), truth.theta)[1],
        "coverage_moving": theta_scores(ensemble, truth.theta)[1],
        "rhat": check.rhat_max,
        "sd_moving": ensemble.std(axis=(0, 1)),
        "sd": run.theta().std(axis=(0, 1)),
    }


def main(seeds: int) -> None:
    closura.use_cores()
    heading(f"Against the published sampler (mass-damper, K=20, 200 chains, {seeds} data seeds)")
    found = {name: [measure(kind, seed) for seed in range(seeds)] for name, kind in KINDS.items()}
    reference = [m["sd"] for m in found["default (system, halves)"]]
    rows = []
    for name, runs in found.items():
        mean = {
            key: float(np.mean([m[key] for m in runs]))
            for key in ("ess", "ess_per_second", "coverage", "coverage_moving")
        }
        ratio = {k: float(np.mean([np.mean(m[k] / r) for m, r in zip(runs, reference)])) for k in ("sd_moving", "sd")}
        worst = max(m["rhat"] for m in runs)
        rows.append([name, *mean.values(), ratio["sd_moving"], ratio["sd"], worst])
    columns = ["sampler", "ESS (least)", "ESS / s", "coverage", "coverage, covariance moving"]
    print(table([*columns, "sd ratio, covariance moving", "sd ratio, frozen", "worst R-hat"], rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
