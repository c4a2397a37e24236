"""The part of a run whose chains sample laws through a surrogate: learned by the solver, then seen through a network.

learn    Gauss-Newton steps by the solver alone, the likelihood tempered in: they find law and parameters
tune     the surrogate is trained about these, and between chunks on the draws of chains, which walk on it
sample   as always: everything is frozen
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..sampling import per_group, split_keys
from ._initialise import spread_of, table_range
from ._kept import Kept
from ._newton import MARGIN, ROUNDS, reframed_to, restated, retabled
from ._program import GROUPS, SAME, STATE, Program
from ._refine import looking_where, refine, spaced
from ._schedule import FIRST_TEMPERATURE
from ._setup import Draws, Log, State
from ._solver_newton import ARRIVED, NEARLY_ARRIVED, best_first, drawn, gauss_newton_round, quadratics

TEMPERED = 6  # rounds, over which the likelihood comes in
LOOKED = 4  # rounds from one look at where solutions go to the next
WIDER = 1.3  # than the quadratic approximation are the draws that a surrogate is first trained on
TRAINING = 400  # rounds of `inner_steps` steps
REFINED_AT = 0.5  # of the first rate


class LawSurrogate(Kept):
    """What a run does where a surrogate sees the laws that chains sample."""

    arrived: int
    surrogate_errors: list[float]
    _first: State
    stale: bool
    iteration: int

    @property
    def trained_on_laws(self) -> bool:
        """Is there a surrogate that sees laws which chains sample?"""
        return self.network is not None and bool(self.sampled)

    def _solver_round(self) -> dict[str, np.ndarray]:
        """One Gauss-Newton step of parameters and laws. Where it has arrived, laws get their units from where solutions go then;
        where it has arrived once more, they are learned."""
        temperature = float(FIRST_TEMPERATURE ** max(0.0, 1 - self.iteration / TEMPERED))
        posterior, kernels = self.posterior.by_solver(), self._gibbs_kernels
        keys, chains = split_keys(self.state.keys, 2), self.state.chains
        if self.iteration == 0:
            chains = best_first(posterior, chains)
        tuning = {kernel.name: self.state.tuning[kernel.name] for kernel in kernels}
        chains, told, length = gauss_newton_round(keys[1], posterior, kernels, tuning, chains, temperature)
        decrement = np.array([quadratic.decrement for quadratic in told])
        self.state = self.spread(self.state._replace(keys=keys[0], chains=chains))
        near = ARRIVED if self.arrived else NEARLY_ARRIVED
        there = temperature == 1 and bool(np.all((decrement < near) | (length == 0)))
        late = self.arrived == 0 and 2 * (self.iteration + 1) >= self.plan.learn
        if there or late:
            self.arrived = ROUNDS if self.arrived else 1
        if self.arrived == 1 and (there or late):
            self._restate()
        elif (self.iteration + 1) % LOOKED == 0:
            ranges = {name: table_range(x) for name, x in self.visited().items() if name in self.sampled}
            chains, frames = retabled(self.state.chains, self.state.ranges, ranges, temperature == 1)
            self.state = self.spread(self.state._replace(chains=chains, ranges=frames))
        entries = self._log("learn", _log_of(decrement, length), 1, np.array([temperature]))
        if self.arrived >= ROUNDS and self.iteration < self.plan.learn:
            self.plan, self.learned = self.plan._replace(learn=self.iteration), self.iteration
        self._end_learning(temperature)  # by the clock
        return entries

    def _restate(self) -> None:
        """Units of the laws' inputs from where solutions go; laws stay the same as nearly as their new tables allow."""
        seen, frames, laws = self.visited(), dict(self.state.ranges), dict(self.state.chains.law)
        for name in self.sampled:
            old, law = frames[name], laws[name]
            frames[name] = restated(old, law, spread_of(seen[name], 0.95), table_range(seen[name], MARGIN))
            laws[name] = reframed_to(law, old, frames[name])
        chains = self.state.chains._replace(law=laws)
        self.state = self.spread(self.state._replace(chains=chains, ranges=frames))

    def _begin_surrogate(self) -> None:
        """Train a surrogate about where learning by the solver ended."""
        if not self.trained_on_laws:
            return
        keys, chains = split_keys(self.state.keys, 2), self.state.chains
        told = quadratics(self.posterior.by_solver(), chains, 1.0)
        state = self.state._replace(keys=keys[0])
        self.state = self.spread(looking_where(self.setup, state, self._first, self.visited()))
        for half in range(2):
            draws = drawn(per_group(keys[1], half), chains, told, self._some, WIDER)
            self._train(draws, self.settings.surrogate_rate)

    def _refine(self, draws: Draws) -> None:
        """Train the surrogate on draws of a chunk of tuning, beside half of those that it knows."""
        if self.trained_on_laws:
            self._train(spaced(draws, self._some), REFINED_AT * self.settings.surrogate_rate)
            self.stale = True

    @property
    def _some(self) -> int:
        """Draws of a group that are solved at once, to train a surrogate on: half of the replay."""
        return max(1, self.settings.replay // 2)

    def _train(self, draws: tuple[Array, PyTree], rate: float) -> None:
        if "refine" not in self._programs:
            self._programs["refine"] = Program(refine, self.setup, self.mesh, (STATE, GROUPS, SAME), (STATE, SAME))
        steps = TRAINING * self.settings.inner_steps
        rates = rate * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps)))
        some = jax.tree.map(lambda a: jax.device_put(a, jax.sharding.NamedSharding(self.mesh, GROUPS)), draws)
        # What it does not look at changes its form between learning and sampling.
        whole = self.state
        told, error = self._programs["refine"](whole._replace(chains=(), tuning={}), some, jnp.asarray(rates, float))
        self.state = told._replace(chains=whole.chains, tuning=whole.tuning)
        self.surrogate_errors.append(float(error))

    @property
    def _gibbs_kernels(self) -> list:
        """Kernels that draw what stands above the systems given theta."""
        above = {"phi", "log_sigma"}
        return [kernel for kernel in self.setup.learning_kernels if set(kernel.moves) <= above]


def _log_of(decrement: np.ndarray, length: np.ndarray) -> Log:
    none = np.full(1, np.nan)
    return Log(none, -decrement.mean(keepdims=True), length.mean(keepdims=True), none, np.zeros(1), none, none)
