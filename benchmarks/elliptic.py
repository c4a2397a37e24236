"""What a nonlinear Darcy solve costs on one core, alone and with its sensitivities, in a batch of 64, against the grid.

python benchmarks/elliptic.py [NODES ...]
"""

import functools
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _common import heading, side_by_side, table

import closura as cl
from closura.equations import EllipticSolver, unit_scaling
from closura.problems import darcy

BATCH = 64


def solver(domain: cl.Rectangle | cl.Mesh) -> EllipticSolver:
    known = darcy.oracle()
    same = {"parameters": known.parameters.kinds, "closure": known.closures["f"]}
    return EllipticSolver(cl.Elliptic(known.coefficient, known.source, domain=domain, **same))


def jobs(solver: EllipticSolver, theta: jax.Array) -> dict:
    """A batch of solves; the same with all sensitivities; the same with one derivative backward."""
    laws = {"f": solver.problem.closures["f"].build(jr.key(0), unit_scaling(1))}
    start = jax.jit(lambda: solver.prepare_context(laws).start)()
    batch = jax.vmap(lambda th: solver.solution(th, laws, 0, start)[:, 0])

    def linearise(theta):
        def push(direction):
            return jax.jvp(batch, (theta,), (jnp.broadcast_to(direction, theta.shape),))

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(3))

    run = {"solve": batch, "forward": linearise, "backward": jax.grad(lambda th: jnp.sum(batch(th) ** 2))}
    return {name: functools.partial(jax.jit(job), theta) for name, job in run.items()}


def row(name: str, domain: cl.Rectangle | cl.Mesh, theta: jax.Array) -> list:
    found = solver(domain)
    seconds = side_by_side(jobs(found, theta), repeats=5)
    single = np.asarray(jobs(found, theta)["solve"]())
    with jax.enable_x64(True):
        double = np.asarray(jobs(found, jnp.asarray(np.asarray(theta), float))["solve"]())
    error = np.abs(single - double).max() / double.max()
    return [name, *(1e3 * seconds[key] / BATCH for key in ("solve", "forward", "backward")), float(error)]


def main(sizes: list[int]) -> None:
    heading(f"Nonlinear Darcy flow, one core, batch of {BATCH}, single precision")
    theta = jnp.asarray(np.random.default_rng(0).normal(darcy.mu, np.sqrt(darcy.tau), (BATCH, 3)), float)
    rows = [row(f"{n} x {n}", cl.Rectangle(nodes=(n, n)), theta) for n in sizes]
    grid = cl.Rectangle(nodes=(50, 50))
    if 50 in sizes:
        rows.append(row("the same 50 x 50 as a mesh", cl.Mesh(grid.points, grid.triangles), theta))
    columns = [
        "grid",
        "ms a solve",
        "with 3 sensitivities",
        "with a gradient backward",
        "error against double precision",
    ]
    print(table(columns, rows))
    print("\nAim at 50 x 50: a solve <= 2 ms, with sensitivities <= 2 x that beside it.")


if __name__ == "__main__":
    sys.exit(main([int(n) for n in sys.argv[1:]] or [25, 50, 100, 200]))
