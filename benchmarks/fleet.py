"""A fleet of 200: ragged, of unknown noise, with correlated parameters; beside the same fleet complete, diagonal, known.

python benchmarks/fleet.py [SEEDS] [SYSTEMS]
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from _common import command, heading, table

from closura.equations import unit_scaling
from closura.forward import likelihood
from closura.problems import mass_damper

MOST = 40
CORRELATION = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.4], [0.0, -0.4, 1.0]])
PROBLEM = """
from closura.problems import mass_damper
problem = mass_damper.problem
problem.sigma = None
"""


def fleet(systems: int, seed: int, ragged: bool, folder: Path) -> Path:
    """Data and truth as `closura simulate` writes them."""
    random = np.random.default_rng([seed, 7])
    spread = np.sqrt(mass_damper.tau)
    theta = random.multivariate_normal(mass_damper.mu, spread[:, None] * CORRELATION * spread, systems)
    times = mass_damper.problem.times[1:]
    counts = random.integers(1, MOST + 1, systems)  # drawn in either case, so that the systems are the same
    chosen = [np.sort(random.choice(times, MOST, replace=False)) for _ in range(systems)]
    kept = [np.sort(random.choice(at, n, replace=False)) if ragged else at for at, n in zip(chosen, counts)]
    known = dataclasses.replace(mass_damper, places=lambda *_: [at[:, None] for at in kept])
    empty, truth = known._unseen(systems, seed), mass_damper.oracle()
    law = {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in truth.closures.items()}
    exact = likelihood(truth, empty)
    clean = np.asarray(jax.jit(lambda t: exact.predict(t, exact.model(law)))(jnp.asarray(theta, float)[None]))[0]
    value = clean + mass_damper.sigma * random.normal(size=clean.shape)
    frame = dataclasses.replace(empty, value=np.where(empty.mask, value, 0.0)).to_frame()
    folder.mkdir()
    frame.drop(columns="sigma").to_csv(folder / "data.csv", index=False)
    physical = np.asarray(mass_damper.problem.parameters.to_physical(theta))
    rows = pd.DataFrame(physical, columns=list(mass_damper.problem.parameters.names))
    rows.insert(0, "system", list(empty.systems))
    rows.to_csv(folder / "truth.csv", index=False)
    (folder / "problem.py").write_text(PROBLEM)
    return folder


def main(seeds: int, systems: int) -> None:
    heading(f"A fleet of {systems}, mass-damper")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        first = fleet(systems, 0, False, Path(place) / "complete")
        metrics, plain = command("mass-damper", "--data", str(first), "--no-cache")
        rows.append(_row("complete, diagonal, known noise", metrics, plain, 1.0))
        for seed in range(seeds):
            folder = fleet(systems, seed, True, Path(place) / str(seed))
            problem = str(folder / "problem.py")
            metrics, wall = command(problem, "--data", str(folder), "--no-cache", "--set", "population=full")
            rows.append(_row(f"ragged, full, unknown noise; seed {seed}", metrics, wall, wall / plain))
            print(f"<!-- {rows[-1]} {metrics['warnings']} -->", flush=True)
    coverage, error, rhat, ess, wall, ratio = zip(*(row[1:] for row in rows[1:]))
    means = [float(np.mean(figures)) for figures in (coverage, error, wall, ratio)]
    rows.append(["mean (worst R-hat and ESS)", *means[:2], max(rhat), min(ess), *means[2:]])
    print(table(["fleet", "coverage", "theta MSE", "R-hat", "ESS", "command s", "of the first"], rows))
    print("\nAims: coverage 92-98 %, R-hat < 1.01, at most 3 x the first.")


def _row(name: str, metrics: dict, wall: float, ratio: float) -> list:
    return [name, *(metrics[key] for key in ("coverage_2sd", "theta_mse", "rhat_max", "ess_bulk_min")), wall, ratio]


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:3]), *(5, 200)[len(sys.argv) - 1 :])
