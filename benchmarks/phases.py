"""Where an iteration with a surrogate spends its time, and what the slope of the law costs against an unrolled one.

python benchmarks/phases.py [FORWARD ...]
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
from _common import heading, side_by_side, table

import closura
from closura.forward import SURROGATES
from closura.learning import SAME, STATE, Program, Run, Schedule, Setup, State, learn
from closura.learning._hypergradients import Bilevel
from closura.learning._program import GROUPS
from closura.learning._settings import make_settings
from closura.problems import mass_damper
from closura.sampling import sweep

CHUNK = 4


def moving(setup: Setup, state: State) -> Any:
    """Only the moves: the likelihood anew, one sweep of every chain."""
    posterior = setup.posterior(setup.tabulate(state.law.weights, state.ranges)[0], state)

    def iteration(chains: Any, _: None) -> Any:
        return sweep(setup.kernels, state.keys, posterior.refresh(chains), state.tuning, posterior)[0], None

    return jax.lax.scan(iteration, state.chains, length=CHUNK)[0]


def training(setup: Setup, state: State) -> Any:
    """Only the surrogate's own steps."""
    laws, draws = setup.tabulate(state.law.weights, state.ranges)[0], state.replay.theta[:, :1]

    def iteration(surrogate: Any, _: None) -> Any:
        sound, rate = jnp.ones(draws.shape[:3], bool), jnp.asarray(1e-3)
        levels = Bilevel(setup, surrogate, state.replay, laws, draws, sound, None, draws[:, :0], state.keys, rate)
        return levels.train(laws, state.replay)[0], None

    return jax.lax.scan(iteration, state.surrogate, length=CHUNK)[0]


def jobs(kind: str, cores: int) -> dict[str, Any]:
    data, _ = mass_damper.simulate(20, 0)
    found: dict[str, Any] = {}
    for slope in ("", "unrolled"):
        chosen = {"forward": kind, "devices": cores, "iterations": CHUNK, "chunk": CHUNK}
        settings = make_settings(chosen | ({"hypergradient": slope} if slope else {}))
        run = Run(mass_damper.problem, data, settings)
        run.advance()
        schedule = Schedule(*(jnp.full(CHUNK, value) for value in (1.0, 0.01, 1e-3, 1e-3, 1.0)))
        whole = Program(learn, run.setup, run.mesh, (STATE, SAME), (STATE, SAME))
        found[slope or "whole"] = lambda w=whole, r=run, s=schedule: w(r.state, s)
        if not slope:
            parts = {
                "moves": Program(moving, run.setup, run.mesh, (STATE,), GROUPS),
                "training": Program(training, run.setup, run.mesh, (STATE,), SAME),
            }
            for name, part in parts.items():
                found[name] = lambda p=part, r=run: p(r.state)
    return found


def main(kinds: list[str]) -> None:
    cores = closura.use_cores()
    heading("Parts of a learning iteration (mass-damper, K=20, default settings)")
    rows = []
    for kind in kinds or list(SURROGATES):
        seconds = side_by_side(jobs(kind, cores), repeats=5)
        each = {name: 1e3 * s / CHUNK for name, s in seconds.items()}
        slope = each["whole"] - each["moves"] - each["training"]
        kept = make_settings({"forward": kind}).hypergradient
        rows.append([kind, each["whole"], each["moves"], each["training"], slope, kept, each["unrolled"]])
        rows[-1].append(each["unrolled"] / each["whole"])
        print(f"<!-- {rows[-1]} -->", flush=True)
    columns = ["forward", "ms an iteration", "chains move", "surrogate's steps", "slope of the law (the rest)"]
    print(table([*columns, "which slope", "ms with unrolled slope", "unrolled / default"], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
