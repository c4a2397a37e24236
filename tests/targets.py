"""Densities written by hand, as kernels ask for them."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from closura.sampling import Cache, Chains


def flat_prior(theta, phi):
    """Says nothing; theta is (group, chain, system, parameter)."""
    return jnp.zeros(theta.shape[:3]), jnp.zeros_like(theta)


@dataclass
class ByHand:
    """A target from `evaluate(theta (chain, system, parameter)) -> (loglik, gradient)` and `prior(theta, phi)`.

    With `exact(theta) -> loglik` moves are corrected by it. `members(phi, normal, uniform)` are fresh systems.
    """

    evaluate: Any
    prior: Any = flat_prior
    exact: Any = None
    temperature: Any = 1.0
    members: Any = None
    population: Any = field(init=False)

    def __post_init__(self):
        self.population = SimpleNamespace(members=self.members)

    @property
    def delayed_acceptance(self):
        return self.exact is not None

    def _over(self, function, theta):
        found = function(theta.reshape(-1, *theta.shape[2:]))
        return jax.tree.map(lambda a: a.reshape(*theta.shape[:2], *a.shape[1:]), found)

    def refresh(self, chains):
        exact = None if self.exact is None else self._over(self.exact, chains.theta)
        return chains._replace(cache=Cache(self._over(self.evaluate, chains.theta), exact))

    def loglik(self, chains):
        return chains.cache.stats[0]

    def loglik_and_grad(self, chains):
        return chains.cache.stats

    def exact_loglik(self, chains):
        return chains.cache.exact

    def loglik_at(self, chains):
        return self._over(lambda theta: self.evaluate(theta)[0], chains.theta)

    def log_prior(self, chains):
        return self.prior(chains.theta, chains.phi)

    def start(self, theta, phi=()):
        return self.refresh(Chains(theta, phi))
