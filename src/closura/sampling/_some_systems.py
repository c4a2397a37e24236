"""A kernel that moves some of the systems: those for which the one that runs in its place is no use.

Given all else systems are independent: what leaves the posterior of a few given the rest as it is leaves all of it so. Only
these few are solved, with gradients that the cache of the others need not hold.
"""

import dataclasses

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..population import Population
from ._kernel import Kernel, Tuning
from ._posterior import Gradient, Posterior, Target, Value
from ._state import Chains, GroupKeys, Info


class SomeSystems(Kernel):
    """Moves `systems` by `kernel`, of which a block is a system, and which moves all chains at once; its tuning is that of all
    systems."""

    kernel: Kernel
    systems: tuple[int, ...] = eqx.field(static=True)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.kernel.name

    @property
    def moves(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.kernel.moves

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, Info]:
        assert isinstance(posterior, Posterior), "systems are picked from a likelihood"
        some = SomeOfPosterior.of(posterior, chains, self.systems)
        before = some.refresh(chains._replace(theta=chains.theta[:, :, self._rows]))
        moved, info = self.kernel.step(keys, before, self._own(tuning), some)
        moved = some.as_cached(moved)
        theta, cache = (self._put(getattr(chains, field), getattr(moved, field)) for field in ("theta", "cache"))
        return chains._replace(theta=theta, cache=cache), info

    def init(self, chains: Chains) -> Tuning:
        return self.kernel.init(chains)

    def tune(self, tuning: Tuning, draws: Chains, posterior: Target) -> Tuning:
        return self.kernel.tune(tuning, draws, posterior)

    def adapt(self, tuning: Tuning, info: Info, rate: Float[Array, ""] | float) -> Tuning:
        adapted = self.kernel.adapt(self._own(tuning), info, rate)
        return jax.tree.map(lambda whole, own: whole.at[:, self._rows].set(own), tuning, adapted)

    def frozen(self) -> "SomeSystems":
        return dataclasses.replace(self, kernel=self.kernel.frozen())

    def moved_blocks(self, count: int) -> np.ndarray:
        return np.isin(np.arange(count), self.systems)

    @property
    def _rows(self) -> np.ndarray:
        return np.array(self.systems)

    def _own(self, tuning: Tuning) -> Tuning:
        return jax.tree.map(lambda a: a[:, self._rows], tuning)

    def _put(self, whole: PyTree, part: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: a.at[:, :, self._rows].set(b), whole, part)


class SomeOfPosterior(eqx.Module):
    """The posterior of some systems given all else; a `Target` of chains with these systems alone.

    - `own` has the likelihood of these systems, and gradients; its prior is not to be asked.
    - `whole` is the posterior of all systems, `chains` hold them all.
    """

    temperature: Float[Array, ""] | float
    population: Population
    delayed_acceptance: bool = eqx.field(static=True)
    own: Posterior
    whole: Posterior
    chains: Chains
    systems: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, whole: Posterior, chains: Chains, systems: tuple[int, ...]) -> "SomeOfPosterior":
        # Every array of a likelihood has the system axis first.
        seen, exact = jax.tree.map(lambda a: a[np.array(systems)], (whole.likelihood, whole.exact))
        own = dataclasses.replace(whole, likelihood=seen, exact=exact, gradients=True, scores=False)
        return cls(whole.temperature, whole.population, whole.delayed_acceptance, own, whole, chains, systems)

    def refresh(self, chains: Chains) -> Chains:
        return self.own.refresh(chains)

    def as_cached(self, chains: Chains) -> Chains:
        """Evaluate what the cache of all systems holds."""
        return dataclasses.replace(self.own, gradients=self.whole.gradients, scores=self.whole.scores).refresh(chains)

    def loglik(self, chains: Chains) -> Value:
        return self.own.loglik(chains)

    def loglik_and_grad(self, chains: Chains) -> tuple[Value, Gradient]:
        return self.own.loglik_and_grad(chains)

    def exact_loglik(self, chains: Chains) -> Value:
        return self.own.exact_loglik(chains)

    def loglik_at(self, chains: Chains) -> Value:
        return self.own.loglik_at(chains)

    def log_prior(self, chains: Chains) -> tuple[Value, Gradient]:
        rows = np.array(self.systems)
        theta = self.chains.theta.at[:, :, rows].set(chains.theta)
        value, gradient = self.whole.log_prior(self.chains._replace(theta=theta))
        return value[:, :, rows], gradient[:, :, rows]
