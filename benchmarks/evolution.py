"""What a solve of Burgers' equation costs: schemes and cells, the batch, and where the time goes; how far each is off.

python benchmarks/evolution.py
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _common import heading, side_by_side, table

import closura as cl
from closura.equations import EvolutionSolver, unit_scaling
from closura.laws import Range, prepare

SYSTEMS = 20
SCHEMES: dict[str, dict[str, Any]] = {
    "spectral": {},
    "spectral, not dealiased": {"dealias": False},
    "central": {"scheme": "central"},
    "upwind": {"scheme": "upwind", "speed": lambda u, p, f: f(u)},
}


def law(u: Any) -> Any:
    return 7 * (jax.nn.sigmoid(3 * u) - 0.5)


def burgers(closure: Any, **options: Any) -> cl.Evolution:
    """u_t + f(u) u_x = nu u_xx on [-1, 1), periodic; theta = (log nu, z)."""
    return cl.Evolution(
        lambda u, ux, uxx, x, t, p, f: p.nu * uxx - f(u) * ux,
        parameters={
            "nu": cl.Positive(guess=0.03, width=0.3, spread=0.2),
            "z": cl.Real(guess=1.2, width=0.55, spread=0.45),
        },
        initial=lambda x, p: p.z * jnp.sin(2 * jnp.pi * x) * jnp.sin(jnp.pi * x),
        span=(0.0, 0.5),
        domain=(-1.0, 1.0),
        closure=closure,
        **options,
    )


def laws(problem: cl.Evolution) -> dict[str, Any]:
    built = {name: spec.build(jr.key(0), unit_scaling(1)) for name, spec in problem.closures.items()}
    return prepare(built, {"f": Range(jnp.array([-3.0]), jnp.array([3.0]))})


def draws(chains: int) -> jax.Array:
    """Parameters as the population has them."""
    normal = np.random.default_rng(0).normal(size=(chains * SYSTEMS, 2))
    return jnp.asarray(np.array([np.log(0.05), 1.4]) + np.sqrt([0.07, 0.2]) * normal, float)


def solving(problem: cl.Evolution, theta: jax.Array, tangents: int, block: int | None = None) -> Callable[[], Any]:
    """Solves of a batch with that many sensitivities, in blocks."""
    prepared, forward = laws(problem), EvolutionSolver(problem)
    solve = jax.vmap(lambda th, prepared: forward.solution(th, prepared, 0)[::7, 0], in_axes=(0, None))

    def batch(theta: jax.Array, prepared: Any) -> Any:
        def push(direction: jax.Array) -> Any:
            return jax.jvp(lambda th: solve(th, prepared), (theta,), (jnp.broadcast_to(direction, theta.shape),))

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(2)[:tangents]) if tangents else solve(theta, prepared)

    def blocks(theta: jax.Array, prepared: Any) -> Any:
        return jax.lax.map(lambda part: batch(part, prepared), theta.reshape(-1, block or len(theta), 2))

    compiled = jax.jit(blocks)
    return lambda: compiled(theta, prepared)


def learning(problem: cl.Evolution, theta: jax.Array) -> Callable[[], Any]:
    """The gradient of a mean square in the law, in reverse."""
    prepared, forward = laws(problem), EvolutionSolver(problem).for_reverse_mode()

    def loss(prepared: Any, theta: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(lambda th: forward.solution(th, prepared, 0))(theta) ** 2)

    compiled = jax.jit(jax.grad(loss))
    return lambda: compiled(prepared, theta)


def show(title: str, jobs: dict[str, tuple[cl.Evolution, int, Callable[[], Any]]], repeats: int = 3) -> None:
    seconds = side_by_side({name: job for name, (_, _, job) in jobs.items()}, repeats)
    rows = [[name, p.steps, 1e3 * seconds[name] / solves] for name, (p, solves, _) in jobs.items()]
    print(table([title, "steps", "ms a system"], rows) + "\n", flush=True)


def by_scheme() -> None:
    jobs = {}
    for name, options in SCHEMES.items():
        for cells in (25, 50, 100) if name == "spectral" else (25, 50, 100, 200):
            problem = burgers(cl.MLP(width=64, depth=2), cells=cells, **options)
            chains = {25: 16, 50: 16, 100: 3, 200: 1}[cells]
            jobs[f"{name}, {cells} cells"] = (problem, chains * SYSTEMS, solving(problem, draws(chains), 2))
    show("scheme, with both sensitivities", jobs)


def by_batch() -> None:
    problem = burgers(cl.MLP(width=64, depth=2))
    cases = {"1 chain": (1, None), "16 chains": (16, None), "64 chains": (64, None)}
    cases |= {f"64 chains in blocks of {block}": (64, block) for block in (16, 32, 64, 128, 320)}
    jobs = {name: (problem, c * SYSTEMS, solving(problem, draws(c), 2, block)) for name, (c, block) in cases.items()}
    show("spectral, 50 cells", jobs)


def by_part() -> None:
    table_, formula, linear = cl.MLP(width=64, depth=2), cl.Known(law), cl.Known(lambda u: 3 * u)
    jobs = {}
    for name, closure, tangents, options in (
        ("as fitted", table_, 2, {}),
        ("no sensitivities", table_, 0, {}),
        ("law as a formula", formula, 2, {}),
        ("law a multiplication", linear, 2, {}),
        ("not dealiased", table_, 2, {"dealias": False}),
        ("published step, not dealiased", table_, 2, {"dealias": False, "dt": 0.00125}),
        ("published step", table_, 2, {"dt": 0.00125}),
    ):
        problem = burgers(closure, **options)
        jobs[name] = (problem, 16 * SYSTEMS, solving(problem, draws(16), tangents, 64))
    problem = burgers(table_)
    jobs["gradient in the law, one chain"] = (problem, SYSTEMS, learning(problem, draws(1)))
    show("spectral, 50 cells, blocks of 64", jobs)


def errors() -> None:
    """Root mean square distance from 400 spectral cells, in double precision."""
    cases = [(0.03, 1.4), (0.05, 0.7), (0.05, 1.4), (0.05, 2.3), (0.1, 1.4)]
    thetas = jnp.asarray([[np.log(nu), z] for nu, z in cases], float)

    def fields(**options: Any) -> np.ndarray:
        problem = burgers(cl.Known(law), **options)
        solve = jax.jit(jax.vmap(lambda th: EvolutionSolver(problem).solution(th, laws(problem), 0)))
        return np.asarray(solve(thetas)).reshape(len(cases), *problem.shape)

    fine, rows = fields(cells=400, dt=0.0125 / 256), []
    for name, options in SCHEMES.items():
        for cells in (50, 100):
            off = fields(cells=cells, **options) - fine[..., :: 400 // cells]
            rows.append([f"{name}, {cells} cells", *(float(e) for e in np.sqrt(np.mean(off**2, axis=(1, 2))))])
    print(table(["error", *(f"nu {nu}, z {z}" for nu, z in cases)], rows))


def main() -> None:
    heading("Solves of Burgers' equation (one core, float32)")
    by_part()
    by_batch()
    by_scheme()
    with jax.enable_x64(True):
        errors()


if __name__ == "__main__":
    main()
