"""Preconditioners: the factor L of a covariance, whose columns are the directions in which a block is proposed.

Positions are (group, chain, block, dim); a factor is (group, block, dim, direction).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SMALLEST = 1e-35  # variances of parameters in any units are larger, float32 can hold it


class FullBlock(NamedTuple):
    """Proposes in all directions, by the covariance of the block."""

    def factor(self, position: Float[Array, "group chain block dim"], shrink: bool = True) -> Array:
        return cholesky(ensemble_covariance(position, shrink))

    def identity(self, position: Float[Array, "group chain block dim"]) -> Array:
        """The factor that does nothing."""
        return identity_like(position)


class OwnGivenShared(NamedTuple):
    """Proposes those parameters of a system that are its own, by their covariance given the shared ones."""

    shared: tuple[bool, ...]

    def factor(self, position: Float[Array, "group chain block dim"], shrink: bool = True) -> Array:
        # With the shared ones first, a Cholesky factor's last rows and columns are of the others given them.
        order = np.argsort(~np.array(self.shared), kind="stable")
        return self._own(
            FullBlock().factor(position[..., order], shrink)[..., np.argsort(order), :][..., np.argsort(order)]
        )

    def identity(self, position: Float[Array, "group chain block dim"]) -> Array:
        return self._own(identity_like(position))

    def _own(self, factor: Array) -> Array:
        own = ~np.array(self.shared)
        return jnp.where(own[:, None] & own, factor, 0.0)


class SharedJoint(NamedTuple):
    """Proposes shared parameters in all systems at once; those of their own go along as they do from chain to chain.

    One block of all systems, their rows one after the other.
    """

    shared: tuple[bool, ...]

    def factor(self, position: Float[Array, "group chain 1 dim"], shrink: bool = True) -> Array:
        chains, dim = position.shape[1], position.shape[-1]
        flat = position[:, :, 0]
        away = flat - jnp.mean(flat, axis=1, keepdims=True)
        held = away[..., np.flatnonzero(self.shared)]
        covariance = ensemble_covariance(held[:, :, None], shrink)[:, 0]
        along = jnp.einsum("gci,gcs->gis", away, held) / chains
        # Few chains tell little of how so many numbers go along.
        along = chains / (chains + dim) * jnp.swapaxes(jnp.linalg.solve(covariance, jnp.swapaxes(along, 1, 2)), 1, 2)
        return (self._with(along) @ cholesky(covariance))[:, None]

    def identity(self, position: Float[Array, "group chain 1 dim"]) -> Array:
        alone = self._with(jnp.zeros((position.shape[0], position.shape[-1], sum(self.shared))))
        return alone[:, None]

    def _with(self, along: Float[Array, "group dim direction"]) -> Array:
        """Shared rows move by one, in every system."""
        rows, one = np.tile(self.shared, along.shape[1] // len(self.shared)), np.eye(along.shape[2])
        unit = np.zeros(along.shape[1:])
        unit[rows] = np.tile(one, (rows.sum() // len(one), 1))
        return jnp.where(rows[:, None], unit, along)


Preconditioner = FullBlock | OwnGivenShared | SharedJoint


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


def identity_like(position: Float[Array, "group chain block dim"]) -> Float[Array, "group block dim dim"]:
    groups, _, blocks, dim = position.shape
    return jnp.broadcast_to(jnp.eye(dim), (groups, blocks, dim, dim))
