"""Are the fixed steps of an ODE short enough for these laws and parameters?"""

import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..equations import ODE, Adaptive, Problem, solver
from ..learning import Run

STEP_LIMIT = 0.3  # of the noise
OFTEN = 0.1  # of draws from the priors


def step_error(run: Run, theta: Float[np.ndarray, "draw system parameter"]) -> Float[np.ndarray, "draw system"] | None:
    """Root mean square over each system's observations, in units of the noise, of what halving the steps changes.

    Infinite where only half the steps give a solution; NaN where neither does. None where steps are not fixed.
    """
    problem, data = run.problem, run.data
    if not isinstance(problem, ODE) or isinstance(problem.integrator, Adaptive):
        return None
    fine = copy.copy(problem)
    fine.steps = 2 * problem.steps
    places = problem.parameters.complete(jnp.asarray(theta, float))
    coarse, halved = (_predicted(p, run, places) for p in (problem, fine))
    noise, sigma = run.setup.exact.noise, run.sigma()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        apart = np.where(data.mask, noise.apart(coarse, halved, sigma), 0.0)
        error = np.sqrt(np.sum(apart**2, axis=-1) / np.maximum(data.counts, 1))
        possible, before = (np.isfinite(noise.apart(x, x, sigma)) for x in (halved, coarse))
    lost = (possible & ~before & data.mask).any(axis=-1)
    return np.where(lost, np.inf, error)


def too_long(problem: Problem, systems: tuple[str, ...], error: np.ndarray | None) -> str | None:
    """What to say of one draw's `step_error` (system,), if anything."""
    if error is None or not (worst := np.nanmax(error, initial=0.0)) > STEP_LIMIT:
        return None
    moved = f"moves by {worst:.2g} times the noise" if np.isfinite(worst) else "becomes finite"
    return (
        f"Steps of dt={problem.dt:.4g} are too long: with half of it what is predicted of system "  # type: ignore[attr-defined]
        f"{systems[int(np.nanargmax(error))]} {moved}; {_remedy(problem)}."
    )


def often_too_long(problem: Problem, error: np.ndarray | None) -> list[str]:
    """The same of `step_error` at draws from the priors (draw, system)."""
    share = 0.0 if error is None else float(np.mean(error > STEP_LIMIT))
    if share <= OFTEN:
        return []
    return [
        f"Steps of dt={problem.dt:.4g} are too long for {share:.0%} of the parameters that the priors allow: halved, "  # type: ignore[attr-defined]
        f"predictions move by more than {STEP_LIMIT} times the noise; {_remedy(problem)}, or narrow the priors."
    ]


def _remedy(problem: Problem) -> str:
    return f"give the problem dt={problem.dt / 4:.4g}, or integrator=cl.Adaptive()"  # type: ignore[attr-defined]


def _predicted(problem: ODE, run: Run, theta: Any) -> np.ndarray:
    forward, where = solver(problem, run.data)

    @eqx.filter_jit
    def predict(theta: Any, laws: Any) -> Any:
        return jax.vmap(jax.vmap(lambda t, w: forward.predict(t, laws, w)), (0, None))(theta, where)

    return np.asarray(predict(theta, run.views), float)
