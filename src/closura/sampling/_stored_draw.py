"""Which draw of the fleet's posterior a new system goes with."""

import equinox as eqx
import jax
from jaxtyping import Array

from ..population import Empirical
from ._accept import Bid, bid, highest_bid
from ._kernel import Kernel, Tuning
from ._posterior import Target
from ._state import Chains, GroupKeys, per_group, uniforms_by_group


class StoredDraw(Kernel):
    """Chooses the stored draw of each system anew, among the current one and `candidates` picked at random.

    Candidates weigh p(theta | phi_s) L(y | theta, sigma_s, law_s) (conditional importance resampling: exact for any number of
    them). Where stored draws have laws of their own each candidate takes a solve, otherwise none does: then 15 are good,
    else 3.
    """

    candidates: int = eqx.field(static=True, default=15)

    name = "stored_draw"
    moves = ("phi", "log_sigma", "law")

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        population, shape = posterior.population, chains.theta.shape[1:3]
        assert isinstance(population, Empirical), "which draw a system goes with is asked of stored draws"
        given = jax.vmap(jax.vmap(population.given))

        def weight(state: Chains) -> Array:
            loglik = posterior.loglik_at(state) if chains.law else posterior.loglik(state)
            return posterior.temperature * loglik + posterior.log_prior(state)[0]

        def stored(number: Array) -> Bid:
            which, tie = uniforms_by_group(per_group(keys, number), shape, shape)
            fields = given(population.index(which))
            return fields, bid(weight(chains._replace(**fields)), tie)

        # The current one comes first, and stays if none can be told from another.
        current = {field: getattr(chains, field) for field in jax.eval_shape(given, chains.phi)}
        _, tie = uniforms_by_group(keys, shape, shape)
        moved = chains._replace(**highest_bid((current, bid(weight(chains), tie)), stored, self.candidates))
        return posterior.refresh(moved) if chains.law else moved, None
