"""What a run is made of: what does not change (`Setup`), all that does (`State`), and what an iteration tells (`Log`)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..forward import Likelihood, NoisePrior
from ..laws import AbstractLaw, SolverLaw, SolverLaws, first_of, prepare
from ..population import Population
from ..sampling import Chains, GroupKeys, Kernel, Posterior, Told, Tuning, split_keys
from ._settings import Settings

AXIS = "devices"


class Trained(NamedTuple):
    """Weights, their optimiser, and how large gradients have lately been."""

    weights: PyTree
    optimiser: PyTree
    gradient_size: Float[Array, ""]


class Replay(NamedTuple):
    """Recent draws with, for a supervised surrogate, the solver's solutions there, and what it sees of laws that chains sample;
    the oldest is replaced next."""

    theta: Float[Array, "group slot system parameter"]
    label: Array | None  # (group, slot, system, point, state), or None
    next: Int[Array, " group"]
    law: Float[Array, "group slot system value"] | None = None


class State(NamedTuple):
    """All that changes during a run. A checkpoint is this tree, leaf by leaf, by name."""

    keys: GroupKeys
    chains: Chains
    tuning: dict[str, Tuning]  # of each kernel
    law: Trained  # weights of the laws that all chains share, by name, and their optimiser
    surrogate: Trained  # without weights where chains see the solver itself
    replay: Replay | tuple[()]
    ranges: dict[str, PyTree]  # that the tables of the laws cover

    @property
    def learns(self) -> bool:
        """Is there anything to learn, law or surrogate?"""
        return bool(jax.tree.leaves((self.law.weights, self.surrogate.weights)))

    @property
    def log_steps(self) -> Float[Array, "group block"]:
        """Log step sizes of all kernels that have one, side by side."""
        steps = [tuning.log_step for tuning in self.tuning.values() if hasattr(tuning, "log_step")]
        return jnp.concatenate([jnp.zeros((len(self.keys), 0)), *steps], axis=1)


class Schedule(NamedTuple):
    """What changes with the iteration. `prior_weight` brings a population in slowly where one has a wider prior beside it."""

    temperature: Float[Array, "*iteration"]
    adaptation: Float[Array, "*iteration"]
    law_rate: Float[Array, "*iteration"]
    surrogate_rate: Float[Array, "*iteration"]
    prior_weight: Float[Array, "*iteration"]

    @classmethod
    def over(cls, iterations: int, **columns: ArrayLike) -> "Schedule":
        """So many iterations; by default they sample the posterior itself, and nothing is adapted or learned."""
        rest = {"temperature": 1.0, "adaptation": 0.0, "law_rate": 0.0, "surrogate_rate": 0.0, "prior_weight": 1.0}
        whole = {name: jnp.asarray(column, float) for name, column in (rest | columns).items()}
        return cls(**{name: jnp.broadcast_to(column, (iterations,)) for name, column in whole.items()})


class Log(NamedTuple):
    """What an iteration tells; averages over chains and systems. `unsolved_laws` is the share of proposed laws under which some
    system had no finite solution, NaN where none was proposed."""

    loglik: Float[Array, " iteration"]
    log_joint: Float[Array, " iteration"]
    acceptance: Float[Array, " iteration"]
    step_size: Float[Array, " iteration"]
    nonfinite: Float[Array, " iteration"]
    surrogate_loss: Float[Array, " iteration"]
    second_stage: Float[Array, " iteration"]
    unsolved_laws: Float[Array, " iteration"]


class Draws(NamedTuple):
    """What is kept of the chains' state."""

    theta: Float[Array, "draw group chain system parameter"]
    phi: PyTree
    log_sigma: PyTree
    law: PyTree

    @classmethod
    def of(cls, chains: Chains) -> "Draws":
        return cls(chains.theta, chains.phi, chains.log_sigma, chains.law)

    def pooled(self, chains: Chains) -> Chains:
        """The chains' state with all these draws along the chain axis, for kernels to tune on."""

        def by_chain(draws: Array) -> Array:
            return jnp.asarray(np.moveaxis(np.asarray(draws), 0, 1).reshape(draws.shape[1], -1, *draws.shape[3:]))

        pooled = jax.tree.map(by_chain, self)
        return chains._replace(**pooled._asdict())


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
    handed_back: tuple[int, ...] = eqx.field(
        static=True, default=()
    )  # systems where kernels that run in the place of others fail

    @property
    def learning_kernels(self) -> list[Kernel]:
        """Those that run in every iteration of learning."""
        return [kernel for kernel in self.sweep if kernel.learning and not kernel.leap]

    @property
    def independent(self) -> bool:
        """Do proposals that need not follow where chains are take the place of others in all systems while sampling?"""
        return not self.handed_back and any(kernel.replaces is not None for kernel in self.sweep)

    @property
    def sampling_kernels(self) -> list[Kernel]:
        """Those that run in every iteration under frozen laws."""
        replaced, back = {kernel.replaces for kernel in self.sweep}, self.handed_back
        there = [kernel for kernel in self.sweep if not kernel.leap and (back or kernel.name not in replaced)]
        return [(k.of_systems(back) if k.name in replaced else k).frozen() for k in there]

    def moved_blocks(self, tuning: Mapping[str, Tuning]) -> Bool[np.ndarray, " block"]:
        """Which of the blocks that step sizes are of are moved by them while sampling."""
        running = {kernel.name: kernel for kernel in (*self.sampling_kernels, *self.leaps)}
        counts = {name: own.log_step.shape[1] for name, own in tuning.items() if hasattr(own, "log_step")}
        used = [
            running[n].moved_blocks(count) if n in running else np.zeros(count, bool) for n, count in counts.items()
        ]
        return np.concatenate([np.zeros(0, bool), *used])

    def failing(self, tuning: Mapping[str, Tuning]) -> list[int]:
        """Systems where a kernel that runs in the place of another is no use, as its tuning has it, or was before."""
        found = [kernel.fails(tuning[kernel.name]).tolist() for kernel in self.sweep if kernel.replaces is not None]
        return sorted(set(self.handed_back).union(*found))

    @property
    def needs_gradients(self) -> bool:
        """Does any kernel need gradients while sampling?"""
        return any(kernel.gradients for kernel in (*self.sampling_kernels, *self.leaps))

    @property
    def needs_scores(self) -> bool:
        """Does any kernel need predictions of observations while sampling?"""
        return any(kernel.scores for kernel in (*self.sampling_kernels, *self.leaps))

    @property
    def leaps(self) -> list[Kernel]:
        """Those that run in turn, one before each kept draw."""
        return [kernel for kernel in self.sweep if kernel.leap]

    def network_with(self, surrogate: Trained) -> PyTree:
        """The surrogate with these weights; None where chains see the solver itself."""
        return eqx.combine(surrogate.weights, self.network)

    def laws(self, weights: Mapping[str, PyTree]) -> dict[str, AbstractLaw]:
        """The laws that all chains share, with these weights."""
        return {name: law.with_weights(weights[name]) for name, law in self.closures.items()}

    def tuned(self, state: State, draws: Chains) -> State:
        """The state after every kernel learned from many draws at once."""
        posterior = self.posterior(self.tabulate(state.law.weights, state.ranges)[0], state)
        tuning = {kernel.name: kernel.tune(state.tuning[kernel.name], draws, posterior) for kernel in self.sweep}
        return state._replace(tuning=tuning)

    def tabulate(self, weights: PyTree, ranges: Mapping[str, PyTree]) -> tuple[SolverLaws, Float[Array, ""]]:
        """The laws as solvers call them, and their log prior."""
        laws = self.laws(weights)
        views = prepare(laws, ranges)
        log_prior = sum((law.log_prior(ranges[name], views[name]) for name, law in laws.items()), jnp.zeros(()))
        return views | self.fixed, log_prior

    def posterior(
        self, laws: SolverLaws, state: State, now: Schedule | None = None, sampling: bool = False
    ) -> Posterior:
        """The density that kernels leave invariant, under these laws and at this point of the schedule; while `sampling`,
        corrected by the solver if that is asked for, and with gradients only if a kernel needs them."""
        network = self.network_with(state.surrogate)
        laws = {**laws, **prepare(first_of(state.chains.law or {}, 1 + self.law_axes), state.ranges)}
        return Posterior(
            self.likelihood,
            self.exact,
            self.population if now is None else self.population.annealed(now.prior_weight),
            self.noise,
            self.likelihood.model(laws, network),
            self.exact.model(laws),
            state.ranges,
            1.0 if now is None else now.temperature,
            sampling and self.settings.corrected,
            self.law_axes,
            not sampling or self.needs_gradients,
            sampling and self.needs_scores,
        )


# Inside the root too: gradients through a step exist where a gradient is exactly zero.
OPTIMISER = optax.scale_by_adam(eps_root=1e-16)


def begin(weights: PyTree) -> Trained:
    empty = jax.eval_shape(OPTIMISER.init, weights)
    return Trained(weights, jax.tree.map(lambda x: jnp.asarray(np.zeros(x.shape, x.dtype)), empty), jnp.zeros(()))


def improve(trained: Trained, gradient: PyTree, rate: Array | float) -> Trained:
    """One step of Adam, on a gradient in units of its own recent size and cut off at ten of them.

    Adam does not mind the units, but it remembers a single huge gradient for thousands of iterations, and chains that come
    in from far away make such gradients. One that is not finite teaches nothing: that step is skipped.
    """
    if not jax.tree.leaves(trained.weights):
        return trained
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(g)) for g in jax.tree.leaves(gradient)]))
    fine = jnp.isfinite(largest) & (largest > 0)
    largest = jnp.where(fine, largest, 1.0)
    size = largest * optax.global_norm(jax.tree.map(lambda g: g / largest, gradient))
    usual = jnp.where(trained.gradient_size > 0, trained.gradient_size, size)
    usual = usual * jnp.minimum(10.0, size / usual) ** 0.1
    factor = jnp.minimum(10.0, size / usual) / size
    update, state = OPTIMISER.update(jax.tree.map(lambda g: g * factor, gradient), trained.optimiser)
    weights = jax.tree.map(lambda w, u: w - rate * u, trained.weights, update)
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), Trained(weights, state, usual), trained)


def leap_in_turn(setup: Setup, state: State, posterior: Posterior, which: Array) -> State:
    """The chains after leap number `which`; they stay where they are if that is negative."""
    if not setup.leaps:
        return state
    keys, key_leap = split_keys(state.keys, 2)

    def leap(kernel: Kernel) -> Callable[[Chains], Chains]:
        return lambda chains: kernel.step(key_leap, chains, state.tuning[kernel.name], posterior)[0]

    choices = [lambda chains: chains, *(leap(kernel) for kernel in setup.leaps)]
    return state._replace(keys=keys, chains=lax.switch(1 + which, choices, state.chains))


def log_of(posterior: Posterior, state: State, info: Told, loss: Array | float = jnp.nan) -> Log:
    """Averages; the log densities over chains where they are finite."""
    each = posterior.loglik(state.chains)
    joint = posterior.log_joint(state.chains, each)
    sound = jnp.isfinite(joint)
    return Log(
        jnp.mean(jnp.sum(each, axis=-1), where=sound),  # NaN when there is none
        jnp.mean(joint, where=sound),
        jnp.nanmean(info.acceptance),
        jnp.mean(jnp.exp(state.log_steps)),
        jnp.mean(1.0 - info.finite),
        jnp.asarray(loss, float),
        jnp.nanmean(info.second),
        jnp.mean(1.0 - info.laws.finite, where=~jnp.isnan(info.laws.acceptance)),
    )


def over_devices(weight: Array | float, tree: PyTree) -> PyTree:
    """Averages over devices, times a weight."""
    return jax.tree.map(lambda entry: lax.pmean(weight * entry, AXIS), tree)


def reshape(schedule: Schedule, draws: int) -> Schedule:
    """An entry for every sweep, as (draw, sweep)."""
    return jax.tree.map(lambda a: a.reshape(draws, -1), schedule)
