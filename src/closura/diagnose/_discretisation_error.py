"""Is the discretisation fine enough for these laws and parameters? It was chosen before they were known."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..equations import Equation, ProblemError
from ..forward import Likelihood, likelihood
from ..laws import SolverLaws
from ..learning import Run
from ..sampling import scalar_name
from ._trajectories import predicted

LIMIT = 0.3  # of the noise
OFTEN = 0.1  # of draws from the priors
JUDGED = 20  # systems
# Posterior standard deviations by which a finer grid moves a number: said, and too many to trust it. Of so many draws.
MOVES_SAID, MOVES_LIMIT, MOVING_DRAWS = 0.2, 0.5, 128


class Coarse(NamedTuple):
    """What is wrong with the discretisation, and whether any number moves by more than half its standard deviation."""

    text: str
    serious: bool


class Moved(NamedTuple):
    """The number that a finer grid moves most, by how many of its posterior standard deviations."""

    name: str
    by: float


NOTHING_MOVES = Moved("", 0.0)


def bad_scheme(run: Run) -> Coarse | None:
    """What is wrong with the discretisation at the parameters found, if anything."""
    theta = run.theta().mean(axis=(0, 1))
    said = unsuitable(run.problem, run.views, theta)
    if said is not None:
        return Coarse(said, serious=True)
    error = refinement_error(run, theta[None])[0]
    # No number moves by more standard deviations than all predictions together by units of the noise.
    bound = float(np.sqrt(np.nansum(error**2 * run.data.counts)))
    if not bound > MOVES_SAID:
        return None
    moved = most_moved(run) if run.chunks and np.isfinite(bound) else Moved("", bound)
    said = too_coarse(run.problem, run.data.systems, error, moved)
    return None if said is None else Coarse(said, serious=moved.by > MOVES_LIMIT)


def most_moved(run: Run) -> Moved:
    """By how much a grid twice as fine would move what is inferred, to first order, from draws of the posterior:

        E'[x] - E[x]  =  Cov(x, log likelihood on the fine grid - log likelihood on this one)

    Of a system's own parameters the difference of its own data counts; what chance leaves of so few draws is taken off.
    """
    refinement, data, exact = run.problem.refined(), run.data, run.setup.exact
    theta = run.theta().reshape(-1, *run.theta().shape[2:])
    some = np.linspace(0, len(theta) - 1, min(MOVING_DRAWS, len(theta))).astype(int)
    if refinement is None or len(some) < 4:
        return NOTHING_MOVES
    laws, axes = run.views_at(some)
    value, sigma = jnp.asarray(data.value), jnp.asarray(run.sigma())

    def loglik(target: Likelihood) -> np.ndarray:
        said = predicted(target, jnp.asarray(theta[some], float), laws, axes)
        each = np.asarray(exact.noise.log_prob(value, said, sigma))
        return np.sum(each, axis=-1, dtype=float, where=data.mask)

    change = loglik(likelihood(refinement.equation, data)) - loglik(exact)  # (draw, system)
    found = [NOTHING_MOVES]
    for name, variable in run.draws().data_vars.items():
        x = variable.values.reshape(len(theta), *variable.shape[2:])[some].astype(float)
        by = change[..., None] if name == "theta" else change.sum(axis=1)
        size = np.abs(_shift(x.reshape(len(some), *variable.shape[2:]), by)).ravel()
        if size.size:
            found.append(Moved(scalar_name(variable[0, 0], int(np.argmax(size))), float(size.max())))
    return max(found, key=lambda one: one.by)


def _shift(x: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Covariance over draws (the first axis) in standard deviations of x, nearer to zero by two standard errors."""
    away, by = (part - part.mean(axis=0) for part in (x, change.reshape(*change.shape, *[1] * (x.ndim - change.ndim))))
    spread = x.std(axis=0)
    moved = np.mean(away * by, axis=0) / np.where(spread > 0, spread, np.inf)
    chance = 2 * np.std(away / np.where(spread > 0, spread, np.inf) * by - moved, axis=0) / np.sqrt(len(x))
    return np.sign(moved) * np.maximum(np.abs(moved) - chance, 0.0)


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


def too_coarse(
    problem: Equation, systems: tuple[str, ...], error: np.ndarray, moved: Moved = NOTHING_MOVES
) -> str | None:
    """What to say of one draw's `refinement_error` (system,), and of what it moves, if anything."""
    refinement = problem.refined()
    worst = np.nanmax(error, initial=0.0)
    if refinement is None or not (worst > LIMIT or moved.by > MOVES_SAID):
        return None
    by = f"moves by {worst:.2g} times the noise" if np.isfinite(worst) else "becomes finite"
    also = (
        f", and {moved.name} by {moved.by:.2g} of its standard deviations"
        if moved.name and moved.by > MOVES_SAID
        else ""
    )
    return (
        f"{refinement.fault}: with half of it what is predicted of system {systems[int(np.nanargmax(error))]} {by}{also}; "
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
