"""Is the discretisation fine enough for these laws and parameters? It was chosen before they were known."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..equations import Equation, ProblemError
from ..forward import likelihood
from ..laws import SolverLaws
from ..learning import Run
from ._trajectories import predicted

LIMIT = 0.3  # of the noise
OFTEN = 0.1  # of draws from the priors
JUDGED = 20  # systems


def bad_scheme(run: Run) -> str | None:
    """What is wrong with the discretisation at the parameters found, if anything."""
    theta = run.theta().mean(axis=(0, 1))
    said = unsuitable(run.problem, run.views, theta)
    return said or too_coarse(run.problem, run.data.systems, refinement_error(run, theta[None])[0])


def unsuitable(problem: Equation, laws: SolverLaws, theta: Float[np.ndarray, "system parameter"]) -> str | None:
    """What the equation itself holds against its discretisation, at these parameters."""
    some = np.linspace(0, len(theta) - 1, min(JUDGED, len(theta))).astype(int)
    try:
        problem.check_scheme(laws, jnp.asarray(theta[some], float), jnp.asarray(some))
    except ProblemError as error:
        return f"With the law and the parameters found, {error}."
    return None


def refinement_error(run: Run, theta: Float[np.ndarray, "draw system parameter"]) -> Float[np.ndarray, "draw system"]:
    """Root mean square over each system's observations, in units of the noise, of what a grid twice as fine changes.

    Infinite where only that gives a solution; NaN where neither does, or where the solver controls its error itself.
    """
    data, refinement = run.data, run.problem.refined()
    if refinement is None:
        return np.full(theta.shape[:2], np.nan)
    targets = (run.setup.exact, likelihood(refinement.equation, data))
    coarse, fine = (np.asarray(predicted(t, jnp.asarray(theta, float), run.views), float) for t in targets)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.where(data.mask, run.setup.exact.noise.apart(coarse, fine, run.sigma()), 0.0)
        error = np.sqrt(np.sum(apart**2, axis=-1) / np.maximum(data.counts, 1))
    lost = (np.isfinite(fine) & ~np.isfinite(coarse) & data.mask).any(axis=-1)
    return np.where(lost, np.inf, error)


def too_coarse(problem: Equation, systems: tuple[str, ...], error: np.ndarray) -> str | None:
    """What to say of one draw's `refinement_error` (system,), if anything."""
    refinement = problem.refined()
    if refinement is None or not (worst := np.nanmax(error, initial=0.0)) > LIMIT:
        return None
    moved = f"moves by {worst:.2g} times the noise" if np.isfinite(worst) else "becomes finite"
    return (
        f"{refinement.fault}: with half of it what is predicted of system {systems[int(np.nanargmax(error))]} {moved}; "
        f"{refinement.remedy}."
    )


def often_too_coarse(problem: Equation, error: np.ndarray) -> list[str]:
    """The same of `refinement_error` at draws from the priors (draw, system)."""
    refinement, share = problem.refined(), float(np.mean(error > LIMIT))
    if refinement is None or share <= OFTEN:
        return []
    return [
        f"{refinement.fault} for {share:.0%} of the parameters that the priors allow: halved, predictions move by more than "
        f"{LIMIT} times the noise; {refinement.remedy}, or narrow the priors."
    ]
