"""What a run is made of: what does not change (`Setup`), all that does (`State`), and what an iteration tells (`Log`)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ..forward import Likelihood, NoisePrior
from ..laws import AbstractLaw, Range, SolverLaw, SolverLaws, prepare
from ..population import Population, normal, uniforms
from ..sampling import Chains, GroupKeys, Info, Kernel, Posterior, Tuning, per_group, split_keys
from ._hypergradients import AXIS, Replay, Trained
from ._settings import Settings


class State(NamedTuple):
    """All that changes during a run. A checkpoint is this tree, leaf by leaf, by name."""

    keys: GroupKeys
    chains: Chains
    tuning: dict[str, Tuning]  # of each kernel
    law: Trained  # weights of the laws that all chains share, by name, and their optimiser
    surrogate: Trained  # without weights where chains see the solver itself
    replay: Replay | tuple[()]
    ranges: dict[str, Range]  # that the tables of the laws cover


class Schedule(NamedTuple):
    """What changes with the iteration. `prior_weight` brings a population in slowly where one has a wider prior beside it."""

    temperature: Float[Array, "*iteration"]
    adaptation: Float[Array, "*iteration"]
    law_rate: Float[Array, "*iteration"]
    surrogate_rate: Float[Array, "*iteration"]
    prior_weight: Float[Array, "*iteration"]


class Log(NamedTuple):
    """What an iteration tells; averages over chains and systems."""

    loglik: Float[Array, " iteration"]
    log_joint: Float[Array, " iteration"]
    acceptance: Float[Array, " iteration"]
    step_size: Float[Array, " iteration"]
    nonfinite: Float[Array, " iteration"]
    surrogate_loss: Float[Array, " iteration"]
    second_stage: Float[Array, " iteration"]


class Draws(NamedTuple):
    """What is kept of the chains' state."""

    theta: Float[Array, "draw group chain system parameter"]
    phi: PyTree
    log_sigma: PyTree
    law: PyTree

    @classmethod
    def of(cls, chains: Chains) -> "Draws":
        return cls(chains.theta, chains.phi, chains.log_sigma, chains.law)


class Picked(NamedTuple):
    """Draws of some chains, for training and for the gradient in the law.

    `theta` are (group, chain, system, parameter), `sound` where they count, `log_sigma` the size of the noise they hold
    true (None where it is known); `members` are fresh draws of their populations, for training alone.
    """

    theta: Float[Array, "group chain system parameter"]
    sound: Bool[Array, "group chain system"]
    log_sigma: PyTree
    members: Float[Array, "group member system parameter"]


class Setup(eqx.Module):
    """What does not change during a run.

    `likelihood` is what chains see, through the solver or a surrogate; `exact` is always the solver's. `closures` are the
    laws that all chains share, `network` is the surrogate, both without their weights.
    """

    likelihood: Likelihood
    exact: Likelihood
    population: Population
    closures: dict[str, AbstractLaw]
    network: PyTree
    noise: NoisePrior | None
    sweep: tuple[Kernel, ...]
    settings: Settings = eqx.field(static=True)
    fixed: dict[str, SolverLaw] = eqx.field(default_factory=dict)  # laws of an earlier run, as solvers call them
    law_axes: int = eqx.field(static=True, default=1)  # own laws are those of a chain, or (2) of a system of a chain

    @property
    def kernels(self) -> list[Kernel]:
        """Those that run in every iteration."""
        return [kernel for kernel in self.sweep if not kernel.leap]

    @property
    def leaps(self) -> list[Kernel]:
        """Those that run in turn, one before each kept draw."""
        return [kernel for kernel in self.sweep if kernel.leap]

    def learns(self, state: State) -> bool:
        """Is there anything to learn, law or surrogate?"""
        return bool(jax.tree.leaves((state.law.weights, state.surrogate.weights)))

    def tabulate(self, weights: PyTree, ranges: Mapping[str, Range]) -> tuple[SolverLaws, Float[Array, ""]]:
        """The laws as solvers call them, and their log prior."""
        laws = with_weights(self.closures, weights)
        views = prepare(laws, ranges)
        log_prior = sum((law.log_prior(ranges[name], views[name]) for name, law in laws.items()), jnp.zeros(()))
        return views | self.fixed, log_prior

    def posterior(
        self, laws: SolverLaws, state: State, now: Schedule | None = None, delayed_acceptance: bool = False
    ) -> Posterior:
        """The density that kernels leave invariant, under these laws and at this point of the schedule."""
        network = eqx.combine(state.surrogate.weights, self.network)
        return Posterior(
            self.likelihood,
            self.exact,
            self.population if now is None else self.population.annealed(now.prior_weight),
            self.noise,
            self.likelihood.model(laws, network),
            self.exact.model(laws),
            state.ranges,
            1.0 if now is None else now.temperature,
            delayed_acceptance,
            self.law_axes,
        )


def weights_of(closures: Mapping[str, AbstractLaw]) -> dict[str, PyTree]:
    """The trainable arrays of each closure; a known law has none."""
    return {name: law.weights for name, law in closures.items()}


def with_weights(closures: Mapping[str, AbstractLaw], weights: Mapping[str, PyTree]) -> dict[str, AbstractLaw]:
    return {name: law.with_weights(weights[name]) for name, law in closures.items()}


def leap_in_turn(setup: Setup, state: State, posterior: Posterior, which: Array) -> State:
    """The chains after leap number `which`; they stay where they are if that is negative."""
    if not setup.leaps:
        return state
    keys, key_leap = split_keys(state.keys, 2)

    def leap(kernel: Kernel) -> Callable[[Chains], Chains]:
        return lambda chains: kernel.step(key_leap, chains, state.tuning[kernel.name], posterior)[0]

    choices = [lambda chains: chains, *(leap(kernel) for kernel in setup.leaps)]
    return state._replace(keys=keys, chains=lax.switch(1 + which, choices, state.chains))


def pick(keys: GroupKeys, setup: Setup, posterior: Posterior, chains: Chains) -> Picked:
    """Draws of a few chains of every group; where one has no likelihood, the middle of the prior stands in for it."""
    settings, population = setup.settings, setup.population
    sound = jnp.isfinite(posterior.loglik_and_grad(chains)[0])
    count = max(1, settings.gradient_chains // settings.groups)
    theta, sound, log_sigma = neighbours(keys, (chains.theta, sound, chains.log_sigma), count)
    members = chains.theta[:, :0]
    if settings.replay_prior_draws:
        held, phi = neighbours(per_group(keys, 1), (chains.theta, chains.phi), settings.replay_prior_draws)
        members = _members(per_group(keys, 2), population, held, phi)
    return Picked(jnp.where(sound[..., None], theta, population.mean), sound, log_sigma, members)


def neighbours(keys: GroupKeys, tree: PyTree, count: int) -> PyTree:
    """`count` neighbouring chains of every group, from a random one on (chains are exchangeable)."""

    def one_group(key: PRNGKeyArray, group: PyTree) -> PyTree:
        chains = jax.tree.leaves(group)[0].shape[0]
        chosen = (jnp.floor(chains * uniforms(key, ())[0]).astype(int) + jnp.arange(min(count, chains))) % chains
        return jax.tree.map(lambda a: a[chosen], group)

    return jax.vmap(one_group)(keys, tree)


def _members(keys: GroupKeys, population: Population, theta: Array, phi: PyTree) -> Array:
    """New systems of the populations that some chains hold; what is shared is as these chains have it."""

    def one_group(key: PRNGKeyArray, theta: Array, phi: PyTree) -> Array:
        (uniform,) = uniforms(key, theta.shape)
        made = jax.vmap(population.theta_from_normal)(phi, normal(uniform))
        return made if population.shared is None else jnp.where(np.array(population.shared), theta, made)

    return jax.vmap(one_group)(keys, theta, phi)


def log_of(posterior: Posterior, state: State, info: Info, loss: Array | float = jnp.nan) -> Log:
    """Averages; the log densities over chains where they are finite."""
    each = posterior.loglik_and_grad(state.chains)[0]
    joint = posterior.log_joint(state.chains, each)
    sound = jnp.isfinite(joint)
    steps = [tuning.log_step for tuning in state.tuning.values() if hasattr(tuning, "log_step")]
    return Log(
        jnp.mean(jnp.sum(each, axis=-1), where=sound),  # NaN when there is none
        jnp.mean(joint, where=sound),
        jnp.mean(info.acceptance),
        jnp.mean(jnp.exp(jnp.concatenate(steps, axis=1))) if steps else jnp.asarray(jnp.nan),
        jnp.mean(1.0 - info.finite),
        jnp.asarray(loss, float),
        jnp.nanmean(info.second),
    )


def over_devices(weight: Array | float, tree: PyTree) -> PyTree:
    """Averages over devices, times a weight."""
    return jax.tree.map(lambda entry: lax.pmean(weight * entry, AXIS), tree)


def reshape(schedule: Schedule, draws: int) -> Schedule:
    """An entry for every sweep, as (draw, sweep)."""
    return jax.tree.map(lambda a: a.reshape(draws, -1), schedule)
