"""The default command over several data sets, beside the oracle: is it right, is it calibrated, how long does it take?

python benchmarks/quality.py [SYSTEMS] [SEEDS]
"""

import sys

import numpy as np
from _common import command, heading, table

KEYS = ("theta_mse", "coverage_2sd", "closure_mse", "closure_mse_visited", "rhat_max", "ess_bulk_min", "peak_rss_mb")


def main(systems: int, seeds: int) -> None:
    heading(f"mass-damper, K={systems}, default settings, {seeds} data seeds")
    rows, oracle_mse, walls, found = [], [], [], []
    for seed in range(seeds):
        shared = ["mass-damper", "--systems", str(systems), "--data-seed", str(seed), "--no-cache"]
        metrics, wall = command(*shared)
        oracle, _ = command(*shared, "--oracle")
        found.append(metrics)
        oracle_mse.append(oracle["theta_mse"])
        walls.append(wall)
        rows.append(
            [seed, *(metrics[k] for k in KEYS), oracle["theta_mse"], oracle["coverage_2sd"], wall, metrics["converged"]]
        )
        print(f"<!-- seed {seed}: {rows[-1]} -->", flush=True)
    mean = {key: float(np.mean([m[key] for m in found])) for key in KEYS}
    rows.append(["**mean**", *mean.values(), float(np.mean(oracle_mse)), "", float(np.mean(walls)), ""])
    print(table(["data seed", *KEYS, "oracle theta_mse", "oracle coverage", "command s", "converged"], rows))
    ratio = mean["theta_mse"] / float(np.mean(oracle_mse))
    print(
        f"\ntheta MSE / oracle {ratio:.3f} (aim 1.25); closure MSE {mean['closure_mse']:.3f} (aim 0.50); pooled coverage "
        f"{mean['coverage_2sd']:.3f} (aim 0.92-0.98); worst R-hat {max(m['rhat_max'] for m in found):.4f} (aim 1.01); "
        f"least ESS {min(m['ess_bulk_min'] for m in found):.0f} (aim 400); slowest command {max(walls):.0f} s"
    )


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]) if len(sys.argv) > 2 else (int(sys.argv[1]) if len(sys.argv) > 1 else 20, 5))
