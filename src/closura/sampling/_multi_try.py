"""Several fresh candidates at once, of which the likelihood chooses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..population import normal
from ._accept import Bid, bid, decide, highest_bid, randomness
from ._kernel import Kernel, Tuning
from ._posterior import Target
from ._state import Chains, GroupKeys, Info, choose_fields, per_group, uniforms_by_group


class MultiTry(Kernel):
    """Chooses every system by likelihood among where it is and `tries` fresh members of its population.

    That leads to solutions none of the chains is in. Candidates come from p(theta | phi), so nothing but the likelihood
    weighs them. Exact. Parameters that are `shared` by all systems stay.
    """

    shared: tuple[bool, ...] | None = eqx.field(static=True, default=None)
    tries: int = eqx.field(static=True, default=3)

    name = "multi_try"
    moves = ("theta",)
    leap = True

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, Info]:
        own, shape = randomness(keys, chains.theta.shape), chains.theta.shape[1:]
        members = jax.vmap(jax.vmap(posterior.population.members))

        def fresh_members(number: Array) -> Bid:
            place, which, tie = uniforms_by_group(per_group(keys, number), shape, shape[:2], shape[:2])
            fresh = members(chains.phi, normal(place), which)
            if self.shared is not None:
                fresh["theta"] = jnp.where(np.array(self.shared), chains.theta, fresh["theta"])
            return fresh, bid(posterior.temperature * posterior.loglik_at(chains._replace(**fresh)), tie)

        here = bid(posterior.temperature * posterior.loglik(chains), jnp.exp(own.log_uniform))
        moved = jax.eval_shape(members, chains.phi, chains.theta, here)
        start = {field: getattr(chains, field) for field in moved}
        fields = highest_bid((start, here), fresh_members, self.tries)
        chosen = posterior.refresh(chains._replace(**fields))
        value = posterior.loglik(chosen)
        # The choice was the first stage: what is left to decide is whether it can be evaluated, and the second.
        certain = own._replace(log_uniform=jnp.full_like(value, -jnp.inf))
        accept, info = decide(certain, posterior, chains, chosen, jnp.zeros_like(value), jnp.isfinite(value))
        return choose_fields(accept, chosen, chains, (*fields, "cache")), info
