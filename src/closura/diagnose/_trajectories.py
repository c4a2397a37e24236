"""What the systems do at posterior draws, and did in truth: solutions on the grid that checks and figures look at."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..equations import Problem, unit_scaling
from ..forward import solve_many
from ..laws import Closures, Known
from ..learning import Run
from ._truth import Truth

BAND_NUMBERS = 2_000_000
DRAWS = (32, 100)  # at least and at most


class Trajectories(NamedTuple):
    """Some draws (draw, system, parameter) and the observed quantities at them, (draw, system, quantity, point).

    Where the truth is known, `truth` is (system, quantity, point), and `visited_truth` what the laws were called with there,
    name -> (call, input).
    """

    draws: np.ndarray
    fit: np.ndarray
    truth: np.ndarray | None
    visited_truth: dict[str, np.ndarray]


def quantities(problem: Problem, theta: Array, states: Array) -> Array:
    """Observed quantities of a solution on the grid, (quantity, point)."""
    return problem.sensors.on_grid(theta, jnp.asarray(problem.points, float), states).T


def trajectories(run: Run, truth: Truth | None = None) -> Trajectories:
    """At 32 to 100 draws, spread evenly."""
    forward, problem, theta = run.setup.exact.forward, run.problem, run.theta()
    flat = theta.reshape(-1, *theta.shape[2:])
    each = theta.shape[2] * len(problem.points) * len(problem.observed)
    wanted = int(np.clip(BAND_NUMBERS // each, *DRAWS))
    chosen = flat[np.linspace(0, len(flat) - 1, min(wanted, len(flat))).astype(int)]

    @eqx.filter_jit
    def solve(theta: Array, laws: Closures) -> Array:
        theta = problem.parameters.complete(theta)
        flat = theta.reshape(-1, theta.shape[-1])
        paths = jax.vmap(lambda t, s: quantities(problem, t, s))(flat, solve_many(forward, flat, laws))
        return paths.reshape(*theta.shape[:-1], *paths.shape[1:])

    fit = np.asarray(solve(jnp.asarray(chosen), run.views))
    true_laws = {} if truth is None else truth.laws or {}
    if truth is None or not problem.closures.keys() <= true_laws.keys():
        return Trajectories(chosen, fit, None, {})
    known = {
        name: Known(true_laws[name], spec.inputs).build(jax.random.key(0), unit_scaling(spec.inputs))
        for name, spec in problem.closures.items()
    }
    true_theta = jnp.asarray(truth.theta, float)
    seen = eqx.filter_jit(jax.vmap(lambda t: forward.visited(t, known)))(problem.parameters.complete(true_theta))
    visited = {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in seen.items()}
    return Trajectories(chosen, fit, np.asarray(solve(true_theta[None], known))[0], visited)
