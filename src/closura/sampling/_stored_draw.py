"""Which draw of the fleet's posterior a new system goes with."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from ..population import Empirical, uniforms
from ._kernel import Kernel, Tuning
from ._posterior import Target
from ._state import Chains, GroupKeys, choose, per_group


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
        population, shape = posterior.population, chains.theta.shape[:3]
        assert isinstance(population, Empirical), "which draw a system goes with is asked of stored draws"
        given = jax.vmap(jax.vmap(population.given))

        def bid(state: Chains, tie: Array) -> Array:
            """The largest of these (Gumbel's) is one chosen in proportion to the weights."""
            loglik = posterior.loglik_at(state) if chains.law else posterior.loglik_and_grad(state)[0]
            weight = posterior.temperature * loglik + posterior.log_prior(state)[0]
            # The current one, which comes first, if none can be told from another.
            return jnp.where(jnp.isfinite(weight), weight, -jnp.inf) - jnp.log(-jnp.log(tie))

        def one(best: tuple[dict[str, PyTree], Array], number: Array) -> tuple[tuple[dict[str, PyTree], Array], None]:
            which, tie = _uniforms(per_group(keys, number), shape)
            fields = given(population.index(which))
            found = bid(chains._replace(**fields), tie)
            better = found > best[1]
            return (choose(better, fields, best[0]), jnp.where(better, found, best[1])), None

        start = {field: getattr(chains, field) for field in jax.eval_shape(given, chains.phi)}
        first = bid(chains, _uniforms(keys, shape)[1])
        (fields, _), _ = lax.scan(one, (start, first), jnp.arange(1, 1 + self.candidates))
        chains = chains._replace(**fields)
        return posterior.refresh(chains) if chains.law else chains, None


def _uniforms(keys: GroupKeys, shape: tuple[int, ...]) -> list[Array]:
    def one_group(key: PRNGKeyArray) -> list[Array]:
        return uniforms(key, shape[1:], shape[1:])

    return jax.vmap(one_group)(keys)
