"""Darcy flow and Burgers through their forward models, K=20, beside runs that know the law.

python benchmarks/fields.py [SEEDS] [ROW ...]       SEEDS is how many, or FIRST:END; a row is `problem forward[, more]`, e.g. "burgers basis, odd"
"""

import sys

import numpy as np
from _common import command, heading, table

# What is asked of each row: coverage, theta MSE over the oracle's, closure MSE, fit MSE, time.
ROWS = {
    "darcy basis": "92-98 %, 1.2, -, 5e-6, 2 min",
    "darcy solver": ">= 88 %, 1.2, -, -, 40 min",
    "darcy fno-supervised": ">= 88 %, 1.3, 1.5 x basis, 1e-5, 40 min",
    "darcy pinn": ">= 85 %, -, -, 1e-4, 60 min",
    "darcy fno-physics": ">= 85 %, -, -, 6e-5, 60 min",
    "burgers basis": "92-98 %, 1.2, 0.029, 5e-5, 4 min",
    "burgers basis, odd": "92-98 %, 1.2, 0.029, 5e-5, 4 min",
    "burgers fno-supervised": ">= 88 %, 1.3, 0.029, 1e-4, 45 min",
    "darcy basis, no hierarchy": "",
    "burgers basis, no hierarchy": "",
}
MORE = {"odd": ["--set", "law={odd: true}"], "no hierarchy": ["--no-hierarchy"]}
KEYS = ("coverage_2sd", "theta_mse", "closure_mse", "closure_mse_visited", "surrogate_fit_mse", "surrogate_error")
KEYS += ("surrogate_mse", "solver_mse")


def main(seeds: range, names: list[str]) -> None:
    heading(f"Fields (K=20, data seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})")
    rows, oracles = [], {}
    for name in names or list(ROWS):
        plain, _, more = name.partition(", ")
        problem, forward = plain.split()
        found, walls, ratios = [], [], []
        for seed in seeds:
            common = [problem, "--data-seed", str(seed), "--no-cache"]
            if (problem, seed) not in oracles:
                oracles[problem, seed] = command(*common, "--forward", "basis", "--oracle")[0]
            metrics, wall = command(*common, "--forward", forward, *MORE.get(more, []))
            found.append(metrics)
            walls.append(wall)
            ratios.append(metrics["theta_mse"] / oracles[problem, seed]["theta_mse"])
            figures = [metrics[key] for key in KEYS]
            print(
                f"<!-- {name} {seed}: {wall:.0f} s, theta / oracle {ratios[-1]:.3f} {figures} {metrics['warnings']} -->"
            )
            sys.stdout.flush()
        means = [_mean([metrics[key] for metrics in found]) for key in KEYS]
        worst = max(metrics["rhat_max"] for metrics in found)
        # Mean square errors of single data sets differ a lot: the ratio is of the means.
        known = [[oracles[problem, seed][key] for seed in seeds] for key in ("theta_mse", "coverage_2sd")]
        ratio, covered = means[1] / float(np.mean(known[0])), float(np.mean(known[1]))
        rows.append([name, *means, ratio, covered, worst, float(np.mean(walls)), ROWS[name]])
    columns = ["row", *KEYS, "theta / oracle", "coverage of the oracle", "worst R-hat", "command s"]
    print(table([*columns, "aims: coverage, theta / oracle, closure, fit, time"], rows))


def _mean(values: list[float | None]) -> float | str:
    return "" if values[0] is None else float(np.mean(values))


if __name__ == "__main__":
    first, _, end = (sys.argv[1] if len(sys.argv) > 1 else "5").rpartition(":")
    main(range(int(first or 0), int(end)), sys.argv[2:])
