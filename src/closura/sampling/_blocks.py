"""What is proposed at once: one system (`SystemBlocks`, phi by Gibbs) or everything (`JointBlocks`, as published)."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..population import Phi, Population, log_prior
from ._mala import GroupKeys


@runtime_checkable
class Target(Protocol):
    """The fit of each (chain, system), e.g. `closura.forward.Likelihood`."""

    def evaluate(self, theta: Any, model: Any) -> Any: ...

    def values(self, theta: Any, model: Any) -> Any: ...


class SystemBlocks:
    """A block is a system: theta (..., system, parameter). Phi follows by Gibbs, drawn exactly given theta."""

    @staticmethod
    def dimension(systems: int, parameters: int, hierarchical: bool) -> int:
        return parameters

    def __init__(self, population: Population, systems: int):
        self.population = population

    def pack(self, theta: Array, phi: Any) -> tuple[Array, Any]:
        return theta, phi

    def unpack(self, position: Array, phi: Any) -> tuple[Array, Any]:
        return position, phi

    def evaluate(self, likelihood: Target, model: Any, position: Array) -> Any:
        return likelihood.evaluate(position, model)

    def values(self, likelihood: Target, model: Any, position: Array) -> Any:
        """Fits without slopes."""
        return likelihood.values(position, model)

    def prior(self, position: Array, phi: Any) -> tuple[Array, Array]:
        return jax.vmap(jax.vmap(lambda theta, phi: log_prior(self.population, theta, phi)))(position, phi)

    def log_prior(self, position: Array, phi: Any) -> Array:
        """log p(theta | phi) + log p(phi) of every chain."""
        above = jax.vmap(jax.vmap(self.population.log_hyperprior))(phi) if phi else 0.0
        return jnp.sum(self.prior(position, phi)[0], axis=-1) + above

    def gibbs(self, keys: GroupKeys, position: Array, phi: Any) -> Any:
        """New phi for every chain; `keys` is one a group."""
        noise = jax.vmap(lambda key: self.population.noise(key, position.shape[1]))(keys)
        return jax.vmap(jax.vmap(self.population.gibbs))(noise, position, phi)


class JointBlocks:
    """One block: theta of all systems, mu and log tau in one vector of K P + 2 P numbers."""

    @staticmethod
    def dimension(systems: int, parameters: int, hierarchical: bool) -> int:
        return systems * parameters + (2 * parameters if hierarchical else 0)

    def __init__(self, population: Population, systems: int):
        self.population, self.systems = population, systems
        self.parameters = population.mean.shape[0]

    def pack(self, theta: Array, phi: Any) -> tuple[Array, Any]:
        flat = theta.reshape(*theta.shape[:-2], -1)
        return jnp.concatenate([flat, *phi[:2]], axis=-1)[..., None, :], ()

    def unpack(self, position: Array, phi: Any) -> tuple[Array, Any]:
        flat, count = position[..., 0, :], self.parameters
        theta = flat[..., : self.systems * count].reshape(*flat.shape[:-1], self.systems, count)
        if not self.population.hierarchical:
            return theta, ()
        return theta, Phi(flat[..., -2 * count : -count], flat[..., -count:])

    def values(self, likelihood: Target, model: Any, position: Array) -> Array:
        return jnp.sum(likelihood.values(self.unpack(position, ())[0], model), axis=-1)[..., None]

    def evaluate(self, likelihood: Target, model: Any, position: Array) -> tuple[Array, Array]:
        theta, phi = self.unpack(position, ())
        loglik, score = likelihood.evaluate(theta, model)
        return jnp.sum(loglik, axis=-1)[..., None], self.pack(score, jax.tree.map(jnp.zeros_like, phi))[0]

    def prior(self, position: Array, phi: Any) -> tuple[Array, Array]:
        value, slope = jax.vmap(jax.vmap(jax.value_and_grad(self._log_joint)))(position[..., 0, :])
        return value[..., None], slope[..., None, :]

    def log_prior(self, position: Array, phi: Any) -> Array:
        return jnp.sum(self.prior(position, phi)[0], axis=-1)

    def _log_joint(self, flat: Array) -> Array:
        theta, phi = self.unpack(flat[None], ())
        return jnp.sum(log_prior(self.population, theta, phi)[0]) + self.population.log_hyperprior(phi)

    def gibbs(self, keys: GroupKeys, position: Array, phi: Any) -> Any:
        return phi


BLOCKS: dict[str, type[SystemBlocks] | type[JointBlocks]] = {"system": SystemBlocks, "joint": JointBlocks}
