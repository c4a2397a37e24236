"""Several fresh candidates at once, of which the likelihood chooses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from ..population import normal, uniforms
from ._accept import decide, is_finite, randomness
from ._kernel import Kernel, Tuning
from ._posterior import Target
from ._state import Chains, GroupKeys, Info, choose, choose_fields, per_group


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
        own = randomness(keys, chains.theta.shape)
        members = jax.vmap(jax.vmap(posterior.population.members))

        def bid(loglik: Array, uniform: Array) -> Array:
            """The largest of these (Gumbel's) is one chosen in proportion to the likelihoods."""
            tempered = posterior.temperature * loglik
            return jnp.where(jnp.isnan(tempered), -jnp.inf, tempered) - jnp.log(-jnp.log(uniform))

        def one(best: tuple[dict[str, PyTree], Array], number: Array) -> tuple[tuple[dict[str, PyTree], Array], None]:
            place, which, tie = _draws(per_group(keys, number), chains.theta.shape)
            fresh = members(chains.phi, place, which)
            if self.shared is not None:
                fresh["theta"] = jnp.where(np.array(self.shared), chains.theta, fresh["theta"])
            found = bid(posterior.loglik_at(chains._replace(**fresh)), tie)
            better = found > best[1]
            return (choose(better, fresh, best[0]), jnp.where(better, found, best[1])), None

        here = bid(posterior.loglik_and_grad(chains)[0], jnp.exp(own.log_uniform))
        moved = jax.eval_shape(members, chains.phi, chains.theta, here)
        start = {field: getattr(chains, field) for field in moved}
        (fields, _), _ = lax.scan(one, (start, here), jnp.arange(1, 1 + self.tries))
        chosen = posterior.refresh(chains._replace(**fields))
        value, gradient = posterior.loglik_and_grad(chosen)
        # The choice was the first stage: what is left to decide is whether it can be evaluated, and the second.
        certain = own._replace(log_uniform=jnp.full_like(value, -jnp.inf))
        accept, info = decide(certain, posterior, chains, chosen, jnp.zeros_like(value), is_finite(value, gradient))
        return choose_fields(accept, chosen, chains, (*fields, "cache")), info


def _draws(keys: GroupKeys, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Of each system standard normal numbers, and two uniform ones."""

    def one_group(key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        place, which, tie = uniforms(key, shape[1:], shape[1:3], shape[1:3])
        return normal(place), which, tie

    return jax.vmap(one_group)(keys)
