"""What is proposed and accepted at once: one system, what all systems share, or everything.

Each kind of block cuts the chains' state into positions (group, chain, block, dim), puts moved ones back, and says by
which factor of a covariance it is proposed.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..population import Phi
from ._posterior import Target
from ._preconditioner import cholesky, ensemble_covariance, ensemble_factor, identity_like
from ._state import Chains, choose_fields

Position = Float[Array, "group chain block dim"]
PerBlock = Float[Array, "group chain block"]
Factor = Float[Array, "group block dim direction"]


class Blocks(eqx.Module):
    """A way to cut the chains' state into blocks that are independent given the rest; `by_system`: a block is a system."""

    name: ClassVar[str]
    moves: ClassVar[tuple[str, ...]]
    by_system: ClassVar[bool] = False

    @abc.abstractmethod
    def split(self, chains: Chains) -> Position: ...

    @abc.abstractmethod
    def join(self, chains: Chains, position: Position) -> Chains:
        """The chains with these positions; their cache is that of where they were."""

    @abc.abstractmethod
    def factor(self, position: Position, shrink: bool = True) -> Factor:
        """The preconditioner, from the positions of the chains of each group; `shrink` as in `ensemble_covariance`."""

    @abc.abstractmethod
    def identity(self, position: Position) -> Factor:
        """The preconditioner that does nothing."""

    @abc.abstractmethod
    def reduce(self, value: Float[Array, "group chain system"]) -> PerBlock:
        """Log densities of systems to those of blocks."""

    @abc.abstractmethod
    def log_prior(self, chains: Chains, posterior: Target) -> tuple[PerBlock, Position]: ...

    def choose(self, accept: Bool[Array, "group chain block"], new: Chains, old: Chains) -> Chains:
        moved = choose_fields(accept, new, old, ("theta", "cache"))
        return choose_fields(accept[..., 0], new, moved, ("phi",)) if "phi" in self.moves else moved


class SystemBlocks(Blocks):
    """A block is a system. Where parameters are `shared`, only those of its own move, by their covariance given the shared."""

    shared: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    name = "theta"
    moves = ("theta",)
    by_system = True

    def split(self, chains: Chains) -> Position:
        return chains.theta

    def join(self, chains: Chains, position: Position) -> Chains:
        return chains._replace(theta=position)

    def factor(self, position: Position, shrink: bool = True) -> Factor:
        if self.shared is None:
            return ensemble_factor(position, shrink)
        # With the shared ones first, a Cholesky factor's last rows and columns are of the others given them.
        order = np.argsort(~np.array(self.shared), kind="stable")
        back = np.argsort(order)
        return self._own(ensemble_factor(position[..., order], shrink)[..., back, :][..., back])

    def identity(self, position: Position) -> Factor:
        return identity_like(position) if self.shared is None else self._own(identity_like(position))

    def _own(self, factor: Factor) -> Factor:
        own = ~np.array(self.shared)
        return jnp.where(own[:, None] & own, factor, 0.0)

    def reduce(self, value: Array) -> Array:
        return value

    def log_prior(self, chains: Chains, posterior: Target) -> tuple[Array, Array]:
        return posterior.log_prior(chains)


class SharedBlock(Blocks):
    """One block of all systems, their rows one after the other: what they share moves in all of them at once, and those of
    their own go along as they do from chain to chain."""

    shared: tuple[bool, ...] = eqx.field(static=True)

    name = "shared"
    moves = ("theta",)

    def split(self, chains: Chains) -> Position:
        return chains.theta.reshape(*chains.theta.shape[:2], 1, -1)

    def join(self, chains: Chains, position: Position) -> Chains:
        theta = position.reshape(*position.shape[:2], -1, len(self.shared))
        # The same in all systems to the last digit.
        return chains._replace(theta=jnp.where(np.array(self.shared), theta[..., :1, :], theta))

    def factor(self, position: Position, shrink: bool = True) -> Factor:
        chains, dim = position.shape[1], position.shape[-1]
        flat = position[:, :, 0]
        away = flat - jnp.mean(flat, axis=1, keepdims=True)
        held = away[..., np.flatnonzero(self.shared)]
        covariance = ensemble_covariance(held[:, :, None], shrink)[:, 0]
        along = jnp.einsum("gci,gcs->gis", away, held) / chains
        # Few chains tell little of how so many numbers go along.
        along = chains / (chains + dim) * jnp.swapaxes(jnp.linalg.solve(covariance, jnp.swapaxes(along, 1, 2)), 1, 2)
        return (self._with(along) @ cholesky(covariance))[:, None]

    def identity(self, position: Position) -> Factor:
        return self._with(jnp.zeros((position.shape[0], position.shape[-1], sum(self.shared))))[:, None]

    def _with(self, along: Float[Array, "group dim direction"]) -> Array:
        """Shared rows move by one, in every system."""
        rows, one = np.tile(self.shared, along.shape[1] // len(self.shared)), np.eye(along.shape[2])
        unit = np.zeros(along.shape[1:])
        unit[rows] = np.tile(one, (rows.sum() // len(one), 1))
        return jnp.where(rows[:, None], unit, along)

    def reduce(self, value: Array) -> Array:
        return jnp.sum(value, axis=-1, keepdims=True)

    def log_prior(self, chains: Chains, posterior: Target) -> tuple[Array, Array]:
        value, gradient = posterior.log_prior(chains)
        return self.reduce(value), self.split(chains._replace(theta=gradient))


class JointBlock(Blocks):
    """One block: theta of all systems, mu and log tau in one vector of K P + 2 P numbers, as published."""

    systems: int = eqx.field(static=True)
    parameters: int = eqx.field(static=True)
    hierarchical: bool = eqx.field(static=True, default=True)

    name = "joint"
    moves = ("theta", "phi")

    @staticmethod
    def dimension(systems: int, parameters: int, hierarchical: bool) -> int:
        return systems * parameters + (2 * parameters if hierarchical else 0)

    def split(self, chains: Chains) -> Position:
        flat = chains.theta.reshape(*chains.theta.shape[:2], -1)
        return jnp.concatenate([flat, *chains.phi[:2]], axis=-1)[:, :, None]

    def join(self, chains: Chains, position: Position) -> Chains:
        theta, phi = self._parts(position[:, :, 0])
        return chains._replace(theta=theta, phi=phi)

    def factor(self, position: Position, shrink: bool = True) -> Factor:
        return ensemble_factor(position, shrink)

    def identity(self, position: Position) -> Factor:
        return identity_like(position)

    def reduce(self, value: Array) -> Array:
        return jnp.sum(value, axis=-1, keepdims=True)

    def log_prior(self, chains: Chains, posterior: Target) -> tuple[Array, Array]:
        def log_joint(flat: Array) -> Array:
            theta, phi = self._parts(flat)
            log_hyperprior = posterior.population.log_hyperprior(phi)
            return jnp.sum(posterior.population.log_prior(theta, phi)[0]) + log_hyperprior

        flat = self.split(chains)[:, :, 0]
        value, gradient = jax.vmap(jax.vmap(jax.value_and_grad(log_joint)))(flat)
        return value[..., None], gradient[:, :, None]

    def _parts(self, flat: Array) -> tuple[Array, Phi | tuple[()]]:
        own = self.systems * self.parameters
        theta = flat[..., :own].reshape(*flat.shape[:-1], self.systems, self.parameters)
        if not self.hierarchical:
            return theta, ()
        mu, log_tau = jnp.split(flat[..., own:], 2, axis=-1)
        return theta, Phi(mu, log_tau)


def log_density(blocks: Blocks, chains: Chains, posterior: Target) -> tuple[PerBlock, Position]:
    """Tempered log density of every block and its gradient, from the cache."""
    loglik, score = posterior.loglik_and_grad(chains)
    log_prior, gradient = blocks.log_prior(chains, posterior)
    value = posterior.temperature * blocks.reduce(loglik) + log_prior
    # The likelihood does not depend on phi.
    score = blocks.split(chains._replace(theta=score, phi=jax.tree.map(jnp.zeros_like, chains.phi)))
    return value, posterior.temperature * score + gradient
