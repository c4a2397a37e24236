"""What an iteration costs that moves a law too, against one of theta and population alone, and how often laws move.

python benchmarks/law_cost.py [SYSTEMS ...]
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _common import heading, side_by_side, table

import closura
from closura.learning import DRAWS, SAME, STATE, Program, Run, make_settings, sample
from closura.learning._schedule import sample_schedule
from closura.problems import mass_damper

CHUNK = 100
SETTINGS = {"devices": 1, "extend": 0, "draws": 40, "iterations": 600}


def tuned(systems: int) -> tuple[dict[str, Any], float]:
    """Chunks of sampling with and without the kernels that move the law, ready to call; and the acceptance of law moves."""
    data, _ = mass_damper.simulate(systems, 1000)
    run = Run(mass_damper.problem, data, make_settings(SETTINGS, mass_damper.problem))
    while not run.finished:
        run.advance()
    schedule = sample_schedule(run.settings, "sample", np.arange(CHUNK))
    jobs = {}
    for name, kernels in (
        ("all", run.setup.sweep),
        ("theta alone", tuple(kernel for kernel in run.setup.sweep if "law" not in kernel.moves)),
    ):
        setup = dataclasses.replace(run.setup, sweep=kernels)
        program = Program(sample, setup, run.mesh, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME))
        leaps = jnp.full(CHUNK // run.plan.thin, -1)
        jobs[name] = lambda program=program, leaps=leaps: program(run.state, jnp.asarray(False), schedule, leaps)
    return jobs, float(np.mean(run.state.tuning["law f"].acceptance))


def main(sizes: list[int]) -> None:
    closura.use_cores(1)
    heading("Cost of an iteration that moves a law (mass-damper, 32 chains, one device)")
    rows = []
    for systems in sizes:
        jobs, acceptance = tuned(systems)
        seconds = side_by_side(jobs, repeats=5)
        whole, alone = (1e3 * seconds[name] / CHUNK for name in ("all", "theta alone"))
        rows.append([systems, whole, alone, whole / alone, acceptance])
        jax.clear_caches()
    columns = [
        "systems",
        "ms an iteration",
        "theta and population alone",
        "ratio (aim 2.2)",
        "law moves accepted (aim 0.3)",
    ]
    print(table(columns, rows))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [3, 20, 100, 1000])
