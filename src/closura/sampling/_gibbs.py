"""Exact draws of what stands above the systems: hyperparameters of the population, sizes of the noise."""

import jax
from jaxtyping import Array, PRNGKeyArray

from ..forward import ResidualStats
from ._kernel import Kernel, Tuning
from ._posterior import Posterior, Target
from ._state import Chains, GroupKeys


class PopulationGibbs(Kernel):
    """Draws phi from p(phi | theta of all systems)."""

    name = "population"
    moves = ("phi",)

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        population, count = posterior.population, chains.theta.shape[1]
        random = jax.vmap(lambda key: population.randomness(key, count))(keys)
        phi = jax.vmap(jax.vmap(population.gibbs))(random, chains.theta, chains.phi)
        return chains._replace(phi=phi), None


class NoiseGibbs(Kernel):
    """Draws the size of the noise given the residuals; those of the solver, where moves are corrected by it."""

    name = "noise"
    moves = ("log_sigma",)

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        assert isinstance(posterior, Posterior), "residuals are asked of a likelihood"
        noise, corrected = posterior.noise, posterior.delayed_acceptance
        assert noise is not None, "there is no size of the noise to infer"
        seen = posterior.exact if corrected else posterior.likelihood
        stats = chains.cache.exact if corrected else chains.cache.stats

        def one_group(key: PRNGKeyArray, stats: ResidualStats, log_sigma: Array) -> Array:
            return seen.gibbs_noise(key, noise, stats, log_sigma, posterior.temperature)

        return chains._replace(log_sigma=jax.vmap(one_group)(keys, stats, chains.log_sigma)), None
