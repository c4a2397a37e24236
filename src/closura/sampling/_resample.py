"""Resampling on the way from a tempered target to the posterior, as in sequential Monte Carlo."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..population import Empirical
from ._kernel import Kernel
from ._posterior import Target
from ._state import Chains, GroupKeys, uniforms_by_group


class Annealing(NamedTuple):
    """What the chains were last weighed with; one a group, all the same."""

    temperature: Float[Array, " group"]
    prior_weight: Float[Array, " group"]


class Resample(Kernel):
    """Replaces chains of each system by others of their group, by how much better these suit the target of this iteration
    than that of the one before. Once the target stands still nothing is replaced.

    Only where systems are independent: every system of a chain is replaced on its own.
    """

    first_temperature: float = eqx.field(static=True, default=1e-4)

    name = "resample"
    moves = ("theta", "phi", "log_sigma", "law")

    def init(self, chains: Chains) -> Annealing:
        groups = chains.theta.shape[0]
        return Annealing(jnp.full(groups, self.first_temperature), jnp.zeros(groups))

    def step(self, keys: GroupKeys, chains: Chains, tuning: Annealing, posterior: Target) -> tuple[Chains, Annealing]:
        before, population = tuning.temperature[0], posterior.population
        assert isinstance(population, Empirical), "systems are independent given stored draws alone"
        loglik = posterior.loglik(chains)
        earlier = population.annealed(tuning.prior_weight[0])
        log_prior = jax.vmap(jax.vmap(earlier.log_prior))(chains.theta, chains.phi)[0]
        gain = (posterior.temperature - before) * loglik + posterior.log_prior(chains)[0] - log_prior
        gain = jnp.where(jnp.isfinite(loglik), gain, -jnp.inf)
        (start,) = uniforms_by_group(keys, gain.shape[2:])
        chosen = _systematic(gain, start)
        still = (posterior.temperature == before) & (population.weight == tuning.prior_weight[0])
        chosen = jnp.where(still, jnp.arange(gain.shape[1])[:, None], chosen)

        def pick(a: Array) -> Array:
            return jnp.take_along_axis(a, chosen.reshape(*chosen.shape, *(1,) * (a.ndim - 3)), axis=1)

        now = (posterior.temperature, population.weight)
        return jax.tree.map(pick, chains), Annealing(*(jnp.full_like(old, new) for old, new in zip(tuning, now)))

    def adapt(self, tuning: Annealing, info: Annealing, rate: Array | float) -> Annealing:
        return info


def _systematic(
    log_weight: Float[Array, "group chain system"], start: Float[Array, "group system"]
) -> Int[Array, "group chain system"]:
    """Which chain stands where after systematic resampling; where no weight is finite, all weigh the same."""
    best = jnp.max(log_weight, axis=1, keepdims=True)
    weight = jnp.exp(log_weight - jnp.where(jnp.isfinite(best), best, 0.0))
    weight = jnp.where(jnp.isfinite(best), weight, 1.0)
    total = jnp.cumsum(weight, axis=1) / jnp.sum(weight, axis=1, keepdims=True)
    chains = log_weight.shape[1]
    places = (jnp.arange(chains)[:, None] + start[:, None]) / chains
    return jnp.minimum(jnp.sum(total[:, None] < places[:, :, None], axis=2), chains - 1)
