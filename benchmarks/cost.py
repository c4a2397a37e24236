"""What an iteration costs against the bare solves in it, against the number of systems, and against one device.

python benchmarks/cost.py
"""

import resource
import sys
from typing import Any

import jax
import jax.numpy as jnp
from _common import heading, side_by_side, table

import closura
from closura.laws import prepare
from closura.learning import Run, Schedule, learn, make_settings, sample
from closura.learning._hypergradients import AXIS
from closura.learning.algorithm import DRAWS, GROUPS, SAME, Program, _pick, _split, with_weights
from closura.problems import darcy, mass_damper

CHUNK = 20


def bare(setup: Any, chains: Any, learned: Any, ranges: Any, batches: int, gradient: bool) -> Any:
    """Only the solves: `batches` of all chains with sensitivities, and one closure gradient. Nothing is sampled."""
    blocks, settings = setup.blocks, setup.settings

    def iteration(carry: Any, _: None) -> Any:
        position, weights = carry
        prepared, pull = jax.vjp(lambda w: prepare(with_weights(setup.closures, w), ranges), weights)
        for _ in range(batches):
            flat = position.reshape(-1, *position.shape[2:])
            loglik, score = blocks.evaluate(setup.likelihood, prepared, flat)
            # The next batch depends on this one, or the compiler would drop or merge them.
            position = position + 1e-9 * (score + loglik[..., None]).reshape(position.shape)
        if gradient:
            picked = _pick(_split(chains.keys, 1)[0], position, max(1, settings.gradient_chains // settings.groups))
            picked = picked.reshape(-1, *picked.shape[2:])
            slope = jax.grad(lambda view: -setup.likelihood.mean(picked, view))(prepared)
            (g,) = pull(jax.tree.map(lambda s: jax.lax.pmean(s, AXIS), slope))
            weights = jax.tree.map(lambda w, d: w - 1e-12 * d, weights, g)
        return (position, weights), None

    (position, _), _ = jax.lax.scan(iteration, (chains.ensemble.position, learned.law.weights), length=CHUNK)
    return position


def programs(systems: int, devices: int, known: Any = mass_damper, **settings: Any) -> dict[str, Any]:
    """The two chunks of a run past its warm-up, and their bare solves, ready to call."""
    data, _ = known.simulate(systems, 0)
    chosen = {"devices": devices, "iterations": CHUNK, "chunk": CHUNK, "tempering": 0.0}
    run = Run(known.problem, data, make_settings(chosen | settings, known.problem))
    run.advance()
    schedule = Schedule(*(jnp.full(CHUNK, value) for value in (1.0, 0.01, 1e-3, 1e-3)))
    learning = Program(learn, run.setup, run.mesh, (GROUPS, SAME, SAME, SAME), (GROUPS, SAME, SAME))
    inputs = (GROUPS, SAME, SAME, GROUPS, SAME, SAME)
    sampling = Program(lambda *a: sample(*a, thin=2), run.setup, run.mesh, inputs, (GROUPS, DRAWS, SAME))
    solves = {
        name: Program(lambda *a, b=b, g=g: bare(*a, b, g), run.setup, run.mesh, (GROUPS, SAME, SAME), GROUPS)
        for name, b, g in (("bare learning", 2, True), ("bare sampling", 1, False))
    }
    fresh = jnp.asarray(False)
    return {
        "learning": lambda: learning(run.chains, run.learned, run.ranges, schedule),
        "sampling": lambda: sampling(run.chains, run.learned, run.ranges, run.factor, fresh, schedule),
        "bare learning": lambda: solves["bare learning"](run.chains, run.learned, run.ranges),
        "bare sampling": lambda: solves["bare sampling"](run.chains, run.learned, run.ranges),
    }


def main() -> None:
    cores = closura.use_cores()
    heading("Cost of an iteration (mass-damper, 64 chains)")
    seconds = side_by_side(programs(20, cores))
    rows = [
        [
            phase,
            1e3 * seconds[phase] / CHUNK,
            1e3 * seconds[f"bare {phase}"] / CHUNK,
            seconds[phase] / seconds[f"bare {phase}"],
            aim,
        ]
        for phase, aim in (("learning", "<= 1.4"), ("sampling", "<= 1.3"))
    ]
    print(table(["phase", "ms an iteration", "ms of bare solves", "ratio", "aim"], rows), flush=True)

    one, all_ = programs(20, 1), programs(20, cores)
    jobs = {f"{n} {phase}": p[phase] for n, p in (("one", one), ("all", all_)) for phase in ("learning", "sampling")}
    seconds = side_by_side(jobs)
    rows = [[p, seconds[f"one {p}"] / seconds[f"all {p}"], ">= 1.6"] for p in ("learning", "sampling")]
    print("\n" + table(["phase", f"{cores} devices against one", "aim"], rows), flush=True)

    jobs = {str(k): programs(k, cores)["learning"] for k in (20, 100, 1000)}
    seconds = side_by_side(jobs, repeats=3)
    rows = [[k, 1e3 * s / CHUNK, s / seconds["20"], "<= 55" if k == "1000" else ""] for k, s in seconds.items()]
    print("\n" + table(["systems", "ms a learning iteration", "against K=20", "aim"], rows))
    jobs = {str(k): programs(k, cores, darcy, forward="basis")["learning"] for k in (10, 20, 50, 100, 200)}
    seconds = side_by_side(jobs, repeats=3)
    rows = [[k, 1e3 * s / CHUNK, s / seconds["20"]] for k, s in seconds.items()]
    print("\n" + table(["systems (darcy, basis)", "ms a learning iteration", "against K=20"], rows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process, all of these included: {peak:.0f} MB (aim < 3000)")


if __name__ == "__main__":
    sys.exit(main())
