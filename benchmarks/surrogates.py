"""Every surrogate on the mass-damper, K=20, over several data seeds, beside the solver; a hundred systems with the
learned basis; the PINN with its initial condition built in and as a penalty.

python benchmarks/surrogates.py [SEEDS] [ROW ...]
"""

import sys

import numpy as np
from _common import command, heading, table

# What each row adds to the command, and what is asked of it: coverage, closure MSE, fit MSE, time.
ROWS: dict[str, tuple[list[str], str]] = {
    "solver": ([], ""),
    "basis": ([], "92-98 %, 0.50, 1e-4, 3 min"),
    "basis, K=100": (["--systems", "100"], "4 x the time of K=20"),
    "fno-supervised": ([], "90-98 %, 0.60, 3e-4, 12 min"),
    "pinn": ([], "90-98 %, 0.80, 1e-3, 15 min"),
    "pinn, soft": (["--set", "network={hard: false}"], ""),
    "pinn, no hierarchy": (["--no-hierarchy"], ""),
    "fno-physics": ([], "88-98 %, 1.0, 3e-3, 20 min"),
    "fno-physics, implicit": (["--set", "hypergradient=implicit"], ""),
}
KEYS = ("coverage_2sd", "closure_mse", "closure_mse_visited", "surrogate_fit_mse", "surrogate_error", "surrogate_mse")
KEYS += ("solver_mse", "theta_mse")


def main(seeds: int, names: list[str]) -> None:
    heading(f"Surrogates (mass-damper, K=20, {seeds} data seeds)")
    rows = []
    for name in names or list(ROWS):
        extra, aim = ROWS[name]
        found, walls = [], []
        for seed in range(seeds):
            kind = name.split(",")[0]
            metrics, wall = command("mass-damper", "--forward", kind, "--data-seed", str(seed), "--no-cache", *extra)
            found.append(metrics)
            walls.append(wall)
            print(
                f"<!-- {name} {seed}: {wall:.0f} s {[metrics[k] for k in KEYS]} {metrics['warnings']} -->", flush=True
            )
        means = [np.mean([m[key] for m in found]) if found[0][key] is not None else "" for key in KEYS]
        worst = max(m["rhat_max"] for m in found)
        rows.append([name, *map(_plain, means), worst, float(np.mean(walls)), aim])
    print(table(["forward", *KEYS, "worst R-hat", "command s", "aims: coverage, closure, fit, time"], rows))


def _plain(value: object) -> object:
    return float(value) if isinstance(value, np.floating) else value


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:])
