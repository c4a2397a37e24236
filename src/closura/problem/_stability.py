"""What an evolution equation bears: the largest step that is stable, and whether a circle joins its ends."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._closure import Closures
from ._shared import ProblemError, unit_scaling

NOT_FINITE = (
    "the equation is not finite at the initial state; look for a division by zero or a root of a negative number in physics "
    "and initial, at the parameters' guesses and two standard deviations to either side (a parameter that must be positive "
    "is a cl.Positive)"
)


def stable_step(problem: Any, laws: Closures, theta: Float[Array, "*draw parameter"]) -> float:
    """The largest step of RK4 that is stable about the initial state, for these laws and all of these parameters."""
    size = len(problem.state_names) * problem.shape[1]

    def linearised(theta: Float[Array, " parameter"]) -> Float[Array, "field node field node"]:
        """How the rates change with the fields, at the start."""
        rhs, begin = problem.rate(theta, laws), jnp.asarray(problem.span[0], float)
        return jax.jacfwd(lambda y: jnp.stack(rhs(begin, tuple(y))))(jnp.stack(problem.start(theta)))

    with jax.ensure_compile_time_eval():
        at = jnp.asarray(theta, float).reshape(-1, problem.parameters.width)
        matrices = np.asarray(jax.jit(jax.vmap(linearised))(at), float)
    if not np.isfinite(matrices).all():
        raise ProblemError(NOT_FINITE)
    return min(largest_stable_step(np.linalg.eigvals(matrix.reshape(size, size))) for matrix in matrices)


def largest_stable_step(rates: np.ndarray) -> float:
    """The largest step at which RK4 damps what the equation damps, for linear modes exp(rate t).

    Its limit is 2.78 for a rate on the negative real axis and 2.83 on the imaginary one. Modes that grow by themselves may.
    """
    radius = np.abs(rates).max()
    if radius == 0:
        return math.inf
    steps = np.geomspace(1e-2, 1e3, 4000) / radius
    z = steps[:, None] * rates
    factor = np.abs(1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4))))
    unstable = np.any(factor > 1.001 * np.exp(np.clip(z.real, 0.0, 50.0)), axis=1)
    return float(steps[max(np.argmax(unstable) - 1, 0)]) if unstable.any() else math.inf


def faint_laws(problem: Any) -> dict[str, Any]:
    """Laws as a fit starts with them: hardly any, or those that are known."""
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def believed(problem: Any) -> Float[Array, "place parameter"]:
    """The guess, and two standard deviations to both sides of it for every parameter."""
    parameters = problem.parameters
    mean, sd = parameters.mean, np.sqrt(parameters.mean_variance + np.exp(parameters.log_variance))
    places = np.concatenate([mean[None], mean + np.diag(2 * sd), mean - np.diag(2 * sd)])
    systems = parameters.given.systems
    return jnp.concatenate([parameters.complete(jnp.tile(jnp.asarray(place, float), (systems, 1))) for place in places])


def check_circle(problem: Any) -> None:
    """On a circle the last place is the first: does the initial state know?"""
    if not problem.periodic[1]:
        return
    theta, (low, high) = jnp.asarray(problem.parameters.middle, float), problem.domain
    fields = np.asarray(jnp.stack(problem.start(theta)), float)
    last = np.asarray(problem.base(theta, jnp.asarray([problem.span[0], high], float)), float)
    if np.any(np.abs(last - fields[:, 0]) > 0.1 * np.ptp(fields, axis=1)):
        raise ProblemError(
            f"boundary='periodic' joins x={low:g} and x={high:g}, but the initial state is {fields[0, 0]:.4g} at one and "
            f"{last[0]:.4g} at the other; give boundary='dirichlet', 'neumann', or a pair (low, high) of cl.Dirichlet and "
            "cl.Neumann"
        )
