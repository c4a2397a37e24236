"""Which draw of the fleet's posterior a new system goes with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array

from ..population import Empirical
from ._accept import Bid, bid, highest_bid
from ._kernel import Kernel, Tuning
from ._posterior import Target
from ._state import Chains, GroupKeys, choose, per_group, uniforms_by_group


class StoredDraw(Kernel):
    """Chooses the stored draw s of each system anew, among the current one and `candidates` picked at random.

    Candidates weigh p(theta | phi_s) L(y | theta, sigma_s, law_s) (conditional importance resampling: exact for any number of
    them). Where stored draws have laws of their own each candidate takes a solve, and the choice one with derivatives: then
    3 are good, in half of the sweeps (`share`). Otherwise nothing is solved, and 15 are.

    Theta stays, or, where a solve is taken anyway, in half of the steps goes along with the population: its distance from the
    population's mean in population standard deviations stays, so that candidates weigh L(y | theta_s, sigma_s, law_s). That
    leads from law to law where parameters and law follow each other.
    """

    candidates: int = eqx.field(static=True, default=15)
    share: float = eqx.field(static=True, default=1.0)

    name = "stored_draw"
    moves = ("theta", "phi", "log_sigma", "law")

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        if self.share >= 1:
            return self._chosen(keys, chains, posterior), None
        now = jr.uniform(per_group(keys, 0)[0]) < self.share
        return lax.cond(now, lambda: self._chosen(keys, chains, posterior), lambda: chains), None

    def _chosen(self, keys: GroupKeys, chains: Chains, posterior: Target) -> Chains:
        population, shape = posterior.population, chains.theta.shape[1:3]
        assert isinstance(population, Empirical), "which draw a system goes with is asked of stored draws"
        given, solved = jax.vmap(jax.vmap(population.given)), bool(chains.law)
        carried, log_volume = jax.vmap(jax.vmap(population.carried)), jax.vmap(jax.vmap(population.log_volume))
        tie, coin = uniforms_by_group(keys, shape, shape)
        along = coin < 0.5

        def weight(state: Chains, loglik: Array) -> Array:
            """Log density; where theta goes along, in population standard deviations, which differ from draw to draw."""
            value = posterior.temperature * loglik + posterior.log_prior(state)[0]
            return value + jnp.where(along, log_volume(state.phi), 0.0) if solved else value

        def stored(number: Array) -> Bid:
            which, tie = uniforms_by_group(per_group(keys, number), shape, shape)
            fields = given(population.index(which))
            if not solved:
                state = chains._replace(**fields)
                return fields, bid(weight(state, posterior.loglik(state)), tie)
            fields["theta"] = choose(along, carried(chains.theta, chains.phi, fields["phi"]), chains.theta)
            state = chains._replace(**fields)
            return fields, bid(weight(state, posterior.loglik_at(state)), tie)

        # The current one comes first, and stays if none can be told from another.
        moving = (*jax.eval_shape(given, chains.phi), *(["theta"] if solved else []))
        current = {field: getattr(chains, field) for field in moving}
        here = bid(weight(chains, posterior.loglik(chains)), tie)
        moved = chains._replace(**highest_bid((current, here), stored, self.candidates))
        return posterior.refresh(moved) if solved else moved
