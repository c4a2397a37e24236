"""The joint density that kernels leave invariant, and what of it is expensive."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..forward import Likelihood, NoisePrior
from ..laws import prepare
from ..population import Population
from ._state import Cache, Chains

Value = Float[Array, "group chain system"]
Gradient = Float[Array, "group chain system parameter"]


@runtime_checkable
class Target(Protocol):
    """What a kernel asks of a density over the chains' state.

        log p  =  temperature * sum_k loglik_k(theta_k, law, log_sigma)  +  sum_k log p(theta_k | phi)  +  log p(phi, log_sigma)

    Given everything else systems are independent, so values come one a system. `refresh` is expensive and fills the
    cache; all else is cheap and reads it.
    """

    temperature: Float[Array, ""] | float
    population: Population
    delayed_acceptance: bool

    def refresh(self, chains: Chains) -> Chains:
        """Evaluate the likelihood where the chains stand, into their cache: its value, and its gradient if kernels need one."""
        ...

    def loglik(self, chains: Chains) -> Value:
        """Log-likelihood, from the cache."""
        ...

    def loglik_and_grad(self, chains: Chains) -> tuple[Value, Gradient]:
        """Log-likelihood and its gradient in theta, from the cache; asked where a kernel of the sweep needs gradients."""
        ...

    def exact_loglik(self, chains: Chains) -> Value:
        """The solver's log-likelihood, from the cache; asked where moves are corrected by it."""
        ...

    def loglik_at(self, chains: Chains) -> Value:
        """Log-likelihood where the chains stand, computed anew: without a gradient, and without the cache."""
        ...

    def log_prior(self, chains: Chains) -> tuple[Value, Gradient]:
        """log p(theta | phi) and its gradient in theta."""
        ...


def system_log_density(posterior: Target, chains: Chains) -> Value:
    """Tempered log density of every system given all else, from the cache."""
    return posterior.temperature * posterior.loglik(chains) + posterior.log_prior(chains)[0]


@runtime_checkable
class JointTarget(Target, Protocol):
    """What kernels that move laws ask beside that: the joint density, and the frames in which laws have their coordinates."""

    ranges: Mapping[str, PyTree]

    def log_joint(self, chains: Chains, loglik: Value) -> Float[Array, "group chain"]:
        """Log density of everything a chain holds, given its log-likelihood."""
        ...

    def score(self, chains: Chains) -> Float[Array, "group chain system observation"]:
        """Gradient of the log-likelihood in what is predicted of each observation, from the cache."""
        ...


class Posterior(eqx.Module):
    """The posterior of a run under given laws and surrogate.

    - `likelihood` is what chains see, through the solver or a surrogate; `exact` is the solver's.
    - `context`, `exact_context` are what these forward models need beside theta, the same for all chains; laws in them that
      chains hold for themselves are those of some chain.
    - `law_axes`: laws that are not shared belong to a chain (1), or to a system of a chain (2).
    - `ranges` are what tables of laws cover, for laws that chains hold for themselves.
    - `population` is p(theta | phi) p(phi); `noise` the prior of the size of the noise, None where that is known.
    - `gradients`: the cache holds gradients too; without them an evaluation costs a fraction. `scores`: it holds predictions.
    - `delayed_acceptance`: what passes under `likelihood` must pass again by how much `exact` differs (Christen and Fox
      2005), so that chains are those of the exact posterior.
    """

    likelihood: Likelihood
    exact: Likelihood
    population: Population
    noise: NoisePrior | None
    context: PyTree
    exact_context: PyTree
    ranges: Mapping[str, PyTree]
    temperature: Float[Array, ""] | float = 1.0
    delayed_acceptance: bool = eqx.field(static=True, default=False)
    law_axes: int = eqx.field(static=True, default=1)
    gradients: bool = eqx.field(static=True, default=True)
    scores: bool = eqx.field(static=True, default=False)

    def by_solver(self) -> "Posterior":
        """The same density with the solver in the place of a surrogate."""
        return dataclasses.replace(self, likelihood=self.exact, context=self.exact_context)

    def refresh(self, chains: Chains) -> Chains:
        evaluate = self.likelihood.evaluate_and_predict if self.gradients else self.likelihood.values_and_predict
        stats, prediction = self._over_chains(evaluate, self.context, chains)
        exact = chains.cache.exact  # not looked at where nothing is corrected
        if self.delayed_acceptance:
            exact = self._over_chains(self.exact.values, self.exact_context, chains)
        return chains._replace(cache=Cache(stats, exact, prediction if self.scores else None))

    def loglik(self, chains: Chains) -> Value:
        if self.gradients:
            return self.loglik_and_grad(chains)[0]
        return jax.vmap(self.likelihood.loglik)(chains.cache.stats, chains.log_sigma)

    def loglik_and_grad(self, chains: Chains) -> tuple[Value, Gradient]:
        return jax.vmap(self.likelihood.loglik_and_grad)(chains.cache.stats, chains.log_sigma)

    def exact_loglik(self, chains: Chains) -> Value:
        return jax.vmap(self.exact.loglik)(chains.cache.exact, chains.log_sigma)

    def score(self, chains: Chains) -> Float[Array, "group chain system observation"]:
        return jax.vmap(self.likelihood.score)(chains.cache.prediction, chains.log_sigma)

    def loglik_at(self, chains: Chains) -> Value:
        values = self._over_chains(self.likelihood.values, self.context, chains)
        return jax.vmap(self.likelihood.loglik)(values, chains.log_sigma)

    def log_prior(self, chains: Chains) -> tuple[Value, Gradient]:
        return jax.vmap(jax.vmap(self.population.log_prior))(chains.theta, chains.phi)

    def log_joint(self, chains: Chains, loglik: Value) -> Float[Array, "group chain"]:
        """Log density of everything a chain holds, given its log-likelihood."""
        total = jnp.sum(loglik + self.log_prior(chains)[0], axis=-1)
        if self.population.hierarchical:
            total = total + jax.vmap(jax.vmap(self.population.log_hyperprior))(chains.phi)
        if self.noise is not None:
            total = total + self.noise.log_prior(chains.log_sigma)
        for name, law in (chains.law or {}).items() if self.law_axes == 1 else ():
            frame = self.ranges[name]
            total = total + jax.vmap(jax.vmap(lambda law, frame=frame: law.log_prior(frame, None)))(law)
        return total

    def _over_chains(self, function: Callable[..., PyTree], context: PyTree, chains: Chains) -> PyTree:
        """Of (chain, system, parameter), for chains of all groups at once."""
        theta = chains.theta
        flat = theta.reshape(-1, *theta.shape[2:])
        own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), chains.law or {})
        # Of every chain, or of every system of every chain.
        found = function(flat, context, prepare(own, self.ranges, self.law_axes), self.law_axes if own else 0)
        return jax.tree.map(lambda a: a.reshape(*theta.shape[:2], *a.shape[1:]), found)
