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
from closura.learning import (
    AXIS,
    DRAWS,
    SAME,
    STATE,
    Program,
    Run,
    Schedule,
    Setup,
    State,
    learn,
    make_settings,
    sample,
)
from closura.learning._hypergradients import neighbours
from closura.learning._initialise import blank_cache
from closura.learning._program import GROUPS
from closura.problems import darcy, mass_damper

CHUNK = 20


def bare(setup: Setup, state: State, batches: int, learning: bool) -> Any:
    """Only the solves: `batches` of all chains, with sensitivities where chains need them, and in learning one gradient of the
    law. Nothing is sampled."""
    count = max(1, setup.settings.gradient_chains // setup.settings.groups)

    def iteration(carry: Any, _: None) -> Any:
        theta, weights = carry
        laws, pullback = jax.vjp(lambda w: setup.tabulate(w, state.ranges)[0], weights)
        posterior = setup.posterior(laws, state, sampling=not learning)
        for _ in range(batches):
            stats = posterior.refresh(state.chains._replace(theta=theta)).cache.stats
            # The next batch depends on this one, or the compiler would drop or merge them.
            for found in jax.tree.leaves(stats):
                theta = theta + 1e-9 * found.reshape(*theta.shape[:3], -1)[..., :1]
        if learning:
            picked = neighbours(state.keys, theta, count)
            flat = picked.reshape(-1, *picked.shape[2:])
            found = jax.grad(lambda view: -setup.likelihood.mean(flat, view))(laws)
            (g,) = pullback(jax.tree.map(lambda s: jax.lax.pmean(s, AXIS), found))
            weights = jax.tree.map(lambda w, d: w - 1e-12 * d, weights, g)
        return (theta, weights), None

    (theta, _), _ = jax.lax.scan(iteration, (state.chains.theta, state.law.weights), length=CHUNK)
    return theta


def programs(systems: int, devices: int, known: Any = mass_damper, **settings: Any) -> dict[str, Any]:
    """The two chunks of a run past its tempering, and their bare solves, ready to call."""
    data, _ = known.simulate(systems, 0)
    chosen = {"devices": devices, "iterations": CHUNK, "chunk": CHUNK, "tempering": 0.0}
    run = Run(known.problem, data, make_settings(chosen | settings, known.problem))
    run.advance()
    schedule = Schedule(*(jnp.full(CHUNK, value) for value in (1.0, 0.01, 1e-3, 1e-3, 1.0)))
    learning = Program(learn, run.setup, run.mesh, (STATE, SAME), (STATE, SAME))
    sampling = Program(sample, run.setup, run.mesh, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME))
    solves = {
        name: Program(lambda *a, b=b, g=g: bare(*a, b, g), run.setup, run.mesh, (STATE,), GROUPS)
        for name, b, g in (("bare learning", 2 if run.state.learns else 1, True), ("bare sampling", 1, False))
    }
    leaps = jnp.arange(CHUNK // 2) % max(1, len(run.setup.leaps))
    blank = run.spread(blank_cache(run.setup, run.state, sampling=True))
    settled, _, _ = sampling(blank, jnp.asarray(True), schedule, leaps)
    return {
        "learning": lambda: learning(run.state, schedule),
        "sampling": lambda: sampling(settled, jnp.asarray(False), schedule, leaps),
        "sampling without leaps": lambda: sampling(settled, jnp.asarray(False), schedule, jnp.full_like(leaps, -1)),
        "bare learning": lambda: solves["bare learning"](run.state),
        "bare sampling": lambda: solves["bare sampling"](settled),
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
