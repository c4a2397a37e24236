"""How well each hypergradient knows the slope of the law, at the end of learning with a surrogate trained on physics.

python benchmarks/slopes.py [FORWARD]
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _common import heading, table

import closura
from closura.laws import prepare
from closura.learning import Run, _hypergradients as _bilevel, make_settings
from closura.learning._hypergradients import AXIS, Bilevel, neighbours
from closura.problems import mass_damper

DATA_SEED, PICKS = 10, 8
WAYS: list[tuple[str, dict[str, Any], float]] = [
    *(("implicit", {"SOLVE_STEPS": n, "DAMPING": d}, 0.0) for n, d in ((12, 1e-3), (50, 1e-4), (100, 1e-5))),
    *(("unrolled", {}, rate) for rate in (2e-4, 2e-3)),
]


def slopes(run: Run, way: str, rate: float) -> tuple[np.ndarray, float]:
    """Slopes in the table of the law, one row a pick of chains, and milliseconds each."""
    setup, state, laws = run.setup, run.state, prepare(run.laws, run.state.ranges)
    theta, loglik = state.chains.theta, run.posterior.loglik_and_grad(state.chains)[0]

    def one(key: Any) -> Any:
        keys = jr.split(key, theta.shape[0])
        draws, sound = neighbours(keys, (theta, jnp.isfinite(loglik)), 1)
        rates = jnp.asarray(rate)
        levels = Bilevel(setup, state.surrogate, state.replay, laws, draws, sound, None, draws[:, :0], keys, rates)
        return getattr(levels, way)()[2]["f"].table.coefficients.ravel()

    program = jax.jit(jax.vmap(one, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1))
    jax.block_until_ready(program(jr.key(0)))
    start = time.perf_counter()
    found = [np.asarray(program(jr.key(i))) for i in range(PICKS)]
    return np.stack(found), 1e3 * (time.perf_counter() - start) / PICKS


def main(kind: str) -> None:
    closura.use_cores()
    heading(f"Slopes of the law (mass-damper, K=20, {kind}, end of learning, data seed {DATA_SEED})")
    data, _ = mass_damper.simulate(20, DATA_SEED)
    run = Run(mass_damper.problem, data, make_settings({"forward": kind}))
    while run.phase == "learn":
        run.advance()
    exact, milliseconds = slopes(run, "adjoint", 0.0)
    rows: list[list[Any]] = [["adjoint", "", 1.0, 1.0, milliseconds]]
    for way, constants, rate in WAYS:
        for name, value in constants.items():
            setattr(_bilevel, name, value)
        found, milliseconds = slopes(run, way, rate)
        sizes = np.linalg.norm(found, axis=1), np.linalg.norm(exact, axis=1)
        cosine = np.mean(np.sum(found * exact, axis=1) / (sizes[0] * sizes[1]))
        said = ", ".join(f"{name.lower()} {value:g}" for name, value in constants.items()) or f"rate {rate:g}"
        rows.append([way, said, float(cosine), float(np.mean(sizes[0] / sizes[1])), milliseconds])
        print(f"<!-- {rows[-1]} -->", flush=True)
    print(table(["slope", "how", "cosine with the exact slope", "size over its", "ms"], rows))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fno-physics")
