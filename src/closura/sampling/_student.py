"""Steps of any length that leave Student's t invariant: proposals that reach into tails."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..population import chi_square, chi_square_numbers
from ._preconditioner import dot

DEGREES = 8  # of freedom
SHORT, SHORTEST = 0.25, 4.0


def student_numbers(dimensions: int) -> int:
    """How many uniform numbers the spread of a step takes."""
    return chi_square_numbers(DEGREES + dimensions)


def student_step(
    z: Float[Array, "group *block own"],
    xi: Float[Array, "group *block own"],
    uniform: Float[Array, "group number *block"],
    reach: Float[Array, "group *block"],
) -> tuple[Float[Array, "group *block own"], Float[Array, "group *block"]]:
    """z after a step of this reach (1: wherever z was), and the log ratio of the density of such steps: before over after."""
    spread = jnp.sqrt((DEGREES + dot(z, z)) / chi_square(jnp.moveaxis(uniform, 1, 0), DEGREES + z.shape[-1]))
    drawn = jnp.sqrt(1 - reach[..., None] ** 2) * z + (reach * spread)[..., None] * xi
    return drawn, log_student(z) - log_student(drawn)


def log_student(z: Float[Array, "*block own"]) -> Float[Array, "*block"]:
    """Log density of Student's t, up to a constant."""
    return -0.5 * (DEGREES + z.shape[-1]) * jnp.log1p(dot(z, z) / DEGREES)


def mostly_long(uniform: Float[Array, "*block"]) -> Float[Array, "*block"]:
    """How far steps go, of 1: most all the way, some less, their reaches even on a log scale."""
    return jnp.exp(-SHORTEST * jnp.maximum(uniform - (1 - SHORT), 0.0) / SHORT)
