"""What the systems do at posterior draws, and did in truth: solutions on the grid that checks and figures look at."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..equations import Equation
from ..forward import solve_systems
from ..laws import Known, KnownLaw, SolverLaws
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


def quantities(
    problem: Equation, theta: Float[Array, "draw system parameter"], states: Float[Array, "draw system point state"]
) -> Float[Array, "draw system quantity point"]:
    """Observed quantities of solutions on the grid."""
    points = jnp.asarray(problem.points, float)
    of_systems = jax.vmap(lambda t, s, k: problem.operator.on_grid(t, points, s, k).T)
    return jax.vmap(of_systems, (0, 0, None))(theta, states, jnp.arange(theta.shape[1]))


def trajectories(run: Run, truth: Truth | None = None) -> Trajectories:
    """At 32 to 100 draws, spread evenly."""
    forward, problem, theta = run.setup.exact.forward, run.problem, run.theta()
    flat = theta.reshape(-1, *theta.shape[2:])
    each = theta.shape[2] * len(problem.points) * len(problem.observed)
    wanted = int(np.clip(BAND_NUMBERS // each, *DRAWS))
    some = np.linspace(0, len(flat) - 1, min(wanted, len(flat))).astype(int)
    chosen, (laws, axes) = flat[some], run.views_at(some)

    @eqx.filter_jit
    def solve(theta: Array, laws: SolverLaws, axes: int = 0) -> Array:
        return quantities(problem, theta, solve_systems(forward, theta, laws, axes))

    fit = np.asarray(solve(jnp.asarray(chosen), laws, axes))
    true_laws = {} if truth is None else truth.laws or {}
    if truth is None or not problem.closures.keys() <= true_laws.keys():
        return Trajectories(chosen, fit, None, {})
    known = {name: KnownLaw(Known(true_laws[name], spec.inputs)) for name, spec in problem.closures.items()}
    true_theta = jnp.asarray(truth.theta, float)
    calls = eqx.filter_jit(jax.vmap(lambda t, k: forward.law_inputs(t, known, k)))
    seen = calls(true_theta, jnp.arange(len(true_theta)))
    visited = {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in seen.items()}
    return Trajectories(chosen, fit, np.asarray(solve(true_theta[None], known))[0], visited)
