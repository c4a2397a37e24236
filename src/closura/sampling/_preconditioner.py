"""Preconditioners: the factor L of a covariance, whose columns are the directions in which a block is proposed.

Positions are (group, chain, block, dim); a factor is (group, block, dim, direction).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST = 1e-35  # variances of parameters in any units are larger, float32 can hold it


def ensemble_covariance(
    position: Float[Array, "group chain block dim"], shrink: bool = True
) -> Float[Array, "group block dim dim"]:
    """Covariance over the chains of each group.

    With few chains a dimension, correlations are noise: `shrink` takes them in by d / (d + n). That is a function of chains
    that stand still, so the kernel stays exact.
    """
    chains, dim = position.shape[1], position.shape[-1]
    away = position - jnp.mean(position, axis=1, keepdims=True)
    sample = jnp.einsum("gcbi,gcbj->gbij", away, away) / chains
    variance = jnp.diagonal(sample, axis1=-2, axis2=-1)
    diagonal = variance[..., None] * jnp.eye(dim)
    weight = dim / (dim + chains) if shrink else 0.0
    return (1 - weight) * sample + weight * diagonal + 1e-6 * diagonal + SMALLEST * jnp.eye(dim)


def ensemble_factor(
    position: Float[Array, "group chain block dim"], shrink: bool = True
) -> Float[Array, "group block dim dim"]:
    """All directions, by the covariance over the chains of each group."""
    return cholesky(ensemble_covariance(position, shrink))


def cholesky(matrix: Float[Array, "*batch dim dim"]) -> Float[Array, "*batch dim dim"]:
    """Cholesky factor; for a few dimensions written out, because a batch of LAPACK calls costs more than the solves."""
    dim = matrix.shape[-1]
    if dim > 8:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[Array]] = []
    for i in range(dim):
        row: list[Array] = []
        for j in range(i + 1):
            rest = matrix[..., i, j] - sum((a * b for a, b in zip(row, rows[j] if j < i else row)), jnp.zeros(()))
            row.append(jnp.sqrt(jnp.maximum(rest, SMALLEST)) if i == j else rest / rows[j][j])
        rows.append(row)
    zero = jnp.zeros_like(matrix[..., 0, 0])
    return jnp.stack([jnp.stack(row + [zero] * (dim - len(row)), axis=-1) for row in rows], axis=-2)


def dot(x: Float[Array, "*#batch dim"], y: Float[Array, "*#batch dim"]) -> Array:
    """Of a few dimensions, written out: a loop over the last axis costs more than the rest of a step."""
    return sum((x[..., i] * y[..., i] for i in range(x.shape[-1])), jnp.zeros(()))


def times(matrix: Float[Array, "*#batch dim dim"], x: Float[Array, "*#batch dim"]) -> Array:
    """M x."""
    return jnp.stack([dot(matrix[..., i, :], x) for i in range(x.shape[-1])], axis=-1)


def times_transposed(lower: Float[Array, "*#batch dim dim"], x: Float[Array, "*#batch dim"]) -> Array:
    """L^T x."""
    return jnp.stack([dot(lower[..., j:, j], x[..., j:]) for j in range(x.shape[-1])], axis=-1)


def solve_lower(lower: Float[Array, "*#batch dim dim"], x: Float[Array, "*#batch dim"]) -> Array:
    """L^-1 x."""
    found: list[Array] = []
    for i in range(x.shape[-1]):
        known = sum((lower[..., i, j] * found[j] for j in range(i)), jnp.zeros(()))
        found.append((x[..., i] - known) / lower[..., i, i])
    return jnp.stack(found, axis=-1)


def solve_transposed(lower: Float[Array, "*#batch dim dim"], x: Float[Array, "*#batch dim"]) -> Array:
    """L^-T x."""
    found: dict[int, Array] = {}
    for i in reversed(range(x.shape[-1])):
        known = sum((lower[..., j, i] * found[j] for j in range(i + 1, x.shape[-1])), jnp.zeros(()))
        found[i] = (x[..., i] - known) / lower[..., i, i]
    return jnp.stack([found[i] for i in range(x.shape[-1])], axis=-1)


def identity_like(position: Float[Array, "group chain block dim"]) -> Float[Array, "group block dim dim"]:
    """The factor that does nothing."""
    groups, _, blocks, dim = position.shape
    return jnp.broadcast_to(jnp.eye(dim), (groups, blocks, dim, dim))
