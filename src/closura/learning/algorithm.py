"""The compiled loops. `learn` interleaves sampling with learning; `sample` advances chains under a frozen law and surrogate.

Both run in chunks on every device at once: groups of chains are spread over devices, the law is the same everywhere, and
the only things devices exchange are gradients: of the tabulated law, and of the surrogate if there is one.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec
from jaxtyping import Array, Float, PRNGKeyArray

from ..forward import Likelihood, Scale
from ..laws import Range, prepare
from ..population import Population, Sharing, normal, uniforms
from ..sampling import BLOCKS, PLAIN, Ensemble, GroupKeys, Weigh, adapt, init, jump, renew, turns
from ._hypergradients import AXIS, Bilevel, Trained, improve
from ._settings import Settings

GROUPS, SAME, DRAWS = Spec(AXIS), Spec(), Spec(None, AXIS)


class Chains(NamedTuple):
    """What belongs to the chains; every array has the group axis first."""

    keys: GroupKeys
    ensemble: Ensemble
    phi: Any
    log_step: Float[Array, "group block"]
    replay: Any = ()
    log_sigma: Any = None  # (group, chain, quantity), where the size of the noise is inferred


class Learned(NamedTuple):
    """What is learned: the closures, by name, and the surrogate (without weights where the solver itself is used)."""

    law: Trained
    surrogate: Trained


class Setup(eqx.Module):
    """What does not change during a run.

    `likelihood` is what chains see, through the solver or a surrogate; `exact` is always the solver's. `network` is the
    surrogate without its weights.
    """

    likelihood: Likelihood
    exact: Likelihood
    population: Population
    closures: dict[str, Any]
    network: Any
    scale: Scale | None
    settings: Settings = eqx.field(static=True)

    @property
    def blocks(self) -> Any:
        return BLOCKS[self.settings.blocks](self.population, self.likelihood.value.shape[0])

    @property
    def shared(self) -> tuple[bool, ...] | None:
        """Which parameters are the same in all systems; None where none is."""
        return self.population.shared if isinstance(self.population, Sharing) else None

    def model(self, laws: Any, surrogate: Trained) -> Any:
        """What the forward model that chains see needs beside theta."""
        return self.likelihood.model(laws, eqx.combine(surrogate.weights, self.network))

    def above(self, chains: "Chains") -> tuple[Any, Any]:
        """What the chains are conditioned on while theta moves."""
        return chains.phi, chains.log_sigma

    def prior(self, position: Array, above: Any) -> tuple[Array, Array]:
        return self.blocks.prior(position, above[0])

    def member(self, above: Any, normal: Array) -> Array:
        return self.population.scatter(above[0], normal)

    @property
    def weigh(self) -> Weigh:
        if self.scale is None:
            return PLAIN
        return Weigh(
            lambda fit, above: jax.vmap(self.likelihood.weigh)(fit, above[1]),
            lambda fit, above: jax.vmap(self.exact.weigh_values)(fit, above[1]),
        )

    def new_sizes(self, keys: GroupKeys, ensemble: Ensemble, log_sigma: Any, temperature: Any = 1.0) -> Any:
        """Draw the size of the noise given the residuals; those of the solver, where moves are corrected by it."""
        if self.scale is None:
            return None
        seen, fit = (self.likelihood, ensemble.fit) if ensemble.exact is None else (self.exact, ensemble.exact)

        def one_group(key: PRNGKeyArray, square: Array, log_sigma: Array) -> Array:
            assert self.scale is not None
            key = jr.fold_in(key, 1)  # the key itself draws the population
            return self.scale.gibbs(key, seen.family, square, seen.counts, seen.member, log_sigma, temperature)

        return jax.vmap(one_group)(keys, fit.square, log_sigma)


class Schedule(NamedTuple):
    """What changes with the iteration."""

    temperature: Float[Array, " iteration"]
    adaptation: Float[Array, " iteration"]
    law_rate: Float[Array, " iteration"]
    surrogate_rate: Float[Array, " iteration"]


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
    theta: Float[Array, "draw group chain system parameter"]
    phi: Any
    log_sigma: Any


def weights_of(closures: dict[str, Any]) -> dict[str, Any]:
    """The trainable arrays of each closure; a known law has none."""
    return {name: law.weights for name, law in closures.items()}


def with_weights(closures: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    return {name: law.with_weights(weights[name]) for name, law in closures.items()}


views_of = eqx.filter_jit(prepare)  # where nothing around it is compiled


def learn(
    setup: Setup, chains: Chains, learned: Learned, ranges: dict[str, Range], schedule: Schedule
) -> tuple[Chains, Learned, Log]:
    """A chunk of learning: per iteration one MALA step of every chain, one Gibbs draw of phi, the surrogate's steps if
    there is one, and one step of the law."""
    blocks, settings = setup.blocks, setup.settings
    moves = bool(jax.tree.leaves((learned.law.weights, learned.surrogate.weights)))

    def solver_view(weights: Any) -> tuple[Any, Array]:
        """The laws as the solver calls them, and their log prior."""
        laws = with_weights(setup.closures, weights)
        views = prepare(laws, ranges)
        return views, sum((law.log_prior(ranges[n], views[n]) for n, law in laws.items()), jnp.zeros(()))

    def iteration(carry: tuple[Chains, Learned], now: Schedule) -> tuple[tuple[Chains, Learned], Log]:
        chains, (law, surrogate) = carry
        keys, key_move, key_phi, key_pick, key_train = _split(chains.keys, 5)
        (prepared, log_prior), pull = eqx.filter_vjp(solver_view, law.weights)
        model = setup.model(prepared, surrogate)

        def evaluate(position: Array) -> Any:
            return blocks.evaluate(setup.likelihood, model, position)

        # The law moved since these positions were accepted: their likelihood is that of another law.
        ensemble = chains.ensemble
        if moves:
            ensemble = init(ensemble.position, evaluate)._replace(exact=ensemble.exact)
        ensemble, info = turns(
            key_move,
            ensemble,
            setup.above(chains),
            chains.log_step,
            None,
            evaluate,
            setup.prior,
            temperature=now.temperature,
            covariance="frozen" if settings.preconditioner is None else settings.covariance,
            metropolis=settings.metropolis,
            weigh=setup.weigh,
            shared=setup.shared,
        )
        phi = blocks.gibbs(key_phi, ensemble.position, chains.phi)
        log_sigma = setup.new_sizes(key_phi, ensemble, chains.log_sigma, now.temperature)
        loglik = setup.weigh.fit(ensemble.fit, (phi, log_sigma))[0]
        replay, loss = chains.replay, jnp.asarray(jnp.nan)
        if moves:
            theta, phi_of_each = blocks.unpack(ensemble.position, phi)
            count = max(1, settings.gradient_chains // settings.groups)
            picked, sound, sizes = _pick(key_pick, (theta, jnp.isfinite(loglik), log_sigma), count)
            picked = jnp.where(sound[..., None], picked, setup.population.mean)
            # Fisher's identity: the mean of this over posterior draws is the slope of the marginal likelihood.
            newcomers = _newcomers(key_pick, setup.population, theta, phi_of_each, settings.newcomers)
            levels = Bilevel(
                setup, surrogate, replay, prepared, picked, sound, sizes, newcomers, key_train, now.surrogate_rate
            )
            surrogate, replay, slope, loss = levels.advance()
            slope = jax.tree.map(lambda s: now.temperature * lax.pmean(s, AXIS), slope)
            (gradient,) = pull((slope, -jnp.ones_like(log_prior)))
            law = improve(law, gradient, now.law_rate)
        log_step = adapt(chains.log_step, info, now.adaptation)
        chains = Chains(keys, ensemble, phi, log_step, replay, log_sigma)
        return (chains, Learned(law, surrogate)), _log(setup, chains, loglik, info, loss)

    (chains, learned), log = lax.scan(iteration, (chains, learned), schedule)
    return chains, learned, _everywhere(log)


def sample(
    setup: Setup,
    chains: Chains,
    learned: Learned,
    ranges: dict[str, Range],
    factor: Any,
    stale: Array,
    schedule: Schedule,
    *,
    thin: int,
) -> tuple[Chains, Draws, Log]:
    """A chunk under a frozen law and a frozen preconditioner: one evaluation a chain and step, every `thin`-th kept, and
    before each that is a leap to another solution, in turn one that some chain is in and one that none may be in.

    `stale` says that the law moved since the cached likelihoods were computed.
    """
    blocks, settings = setup.blocks, setup.settings
    laws = prepare(with_weights(setup.closures, learned.law.weights), ranges)
    model, exact_model = setup.model(laws, learned.surrogate), setup.exact.model(laws)

    def evaluate(position: Array) -> Any:
        return blocks.evaluate(setup.likelihood, model, position)

    def values(position: Array) -> Any:
        return blocks.values(setup.likelihood, model, position)

    def exactly(position: Array) -> Any:
        return blocks.values(setup.exact, exact_model, position)

    correct = exactly if settings.corrected else None

    def iteration(chains: Chains, rate: Array) -> tuple[Chains, Log]:
        keys, key_move, key_phi = _split(chains.keys, 3)
        ensemble, info = turns(
            key_move,
            chains.ensemble,
            setup.above(chains),
            chains.log_step,
            factor,
            evaluate,
            setup.prior,
            covariance="frozen",
            metropolis=settings.metropolis,
            correct=correct,
            weigh=setup.weigh,
            shared=setup.shared,
        )
        phi = blocks.gibbs(key_phi, ensemble.position, chains.phi)
        log_sigma = setup.new_sizes(key_phi, ensemble, chains.log_sigma)
        loglik = setup.weigh.fit(ensemble.fit, (phi, log_sigma))[0]
        chains = Chains(keys, ensemble, phi, adapt(chains.log_step, info, rate), chains.replay, log_sigma)
        return chains, _log(setup, chains, loglik, info)

    def leap(chains: Chains, number: Array) -> Chains:
        keys, key_leap = _split(chains.keys, 2)
        above = setup.above(chains)
        same: dict[str, Any] = {"shared": setup.shared, "correct": correct, "weigh": setup.weigh}

        def among_others(ensemble: Ensemble) -> Ensemble:
            return jump(key_leap, ensemble, above, evaluate, setup.prior, **same)[0]

        def among_members(ensemble: Ensemble) -> Ensemble:
            return renew(key_leap, ensemble, above, evaluate, setup.member, values, **same)[0]

        if not setup.population.hierarchical:
            return chains._replace(keys=keys, ensemble=among_others(chains.ensemble))
        ensemble = lax.cond(number % 2 == 0, among_others, among_members, chains.ensemble)
        return chains._replace(keys=keys, ensemble=ensemble)

    def keep(chains: Chains, now: tuple[Array, Array]) -> tuple[Chains, tuple[Draws, Log]]:
        number, rates = now
        chains, log = lax.scan(iteration, chains, rates)
        if settings.blocks == "system" and settings.metropolis:
            chains = leap(chains, number)
        theta, phi = blocks.unpack(chains.ensemble.position, chains.phi)
        return chains, (Draws(theta, phi, chains.log_sigma), log)

    ensemble = lax.cond(stale, lambda e: init(e.position, evaluate, correct), lambda e: e, chains.ensemble)
    rates = schedule.adaptation.reshape(-1, thin)
    chains, (draws, log) = lax.scan(keep, chains._replace(ensemble=ensemble), (jnp.arange(len(rates)), rates))
    return chains, draws, _everywhere(log)


class Program:
    """`function(setup, ...)` over all devices, compiled once, ahead of its first call.

    The setup's arrays are arguments, so other data of the same shape find it in the compilation cache.
    """

    def __init__(self, function: Callable[..., Any], setup: Setup, mesh: Mesh, in_specs: Any, out_specs: Any):
        self.arrays, static = eqx.partition(setup, eqx.is_array)

        def whole(arrays: Setup, *rest: Any) -> Any:
            return function(eqx.combine(arrays, static), *rest)

        specs = {"in_specs": (SAME, *in_specs), "out_specs": out_specs}
        if mesh.size > 1:
            spread = jax.shard_map(whole, mesh=mesh, check_vma=False, **specs)
        else:
            spread = jax.vmap(whole, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1)
        self._jitted = jax.jit(spread)
        self._compiled: Any = None
        self.seconds_compile = 0.0

    def __call__(self, *rest: Any) -> Any:
        if self._compiled is None:
            start = time.perf_counter()
            self._compiled = self._jitted.lower(self.arrays, *rest).compile()
            self.seconds_compile = time.perf_counter() - start
        return self._compiled(self.arrays, *rest)


def _split(keys: GroupKeys, count: int) -> list[GroupKeys]:
    """`count` new keys a group, as `count` arrays over groups."""
    return list(jnp.moveaxis(jax.vmap(lambda key: jr.split(key, count))(keys), 1, 0))


def _pick(keys: GroupKeys, tree: Any, count: int) -> Any:
    """`count` neighbouring chains of every group, from a random one on (chains are exchangeable)."""

    def one_group(key: PRNGKeyArray, group: Any) -> Any:
        chains = jax.tree.leaves(group)[0].shape[0]
        chosen = (jnp.floor(chains * uniforms(key, ())[0]).astype(int) + jnp.arange(min(count, chains))) % chains
        return jax.tree.map(lambda a: a[chosen], group)

    return jax.vmap(one_group)(keys, tree)


def _newcomers(keys: GroupKeys, population: Population, theta: Array, phi: Any, count: int) -> Array:
    """(group, count, system, parameter): new systems, of the populations that some chains hold."""
    if not count:
        return theta[:, :0]
    for_pick, for_noise = (jax.vmap(lambda key, i=i: jr.fold_in(key, i))(keys) for i in (1, 2))
    theta, phi = _pick(for_pick, (theta, phi), count)

    def one_group(key: PRNGKeyArray, theta: Array, phi: Any) -> Array:
        (noise,) = uniforms(key, theta.shape)

        made = jax.vmap(population.scatter)(phi, normal(noise))
        return jnp.where(np.array(population.shared), theta, made) if isinstance(population, Sharing) else made

    return jax.vmap(one_group)(for_noise, theta, phi)


def _log(setup: Setup, chains: Chains, each: Array, info: Any, loss: Array | float = jnp.nan) -> Log:
    """Averages; the log densities over chains where they are finite. `each` is the log likelihood of each system."""
    loglik = jnp.sum(each, axis=-1)
    joint = loglik + setup.blocks.log_prior(chains.ensemble.position, chains.phi)
    if setup.scale is not None:
        joint = joint + setup.scale.log_prior(chains.log_sigma)
    sound = jnp.isfinite(joint)
    return Log(
        jnp.mean(loglik, where=sound),  # NaN when there is none
        jnp.mean(joint, where=sound),
        jnp.mean(info.acceptance),
        jnp.mean(jnp.exp(chains.log_step)),
        jnp.mean(1.0 - info.finite),
        jnp.asarray(loss, float),
        jnp.nanmean(info.second),
    )


def _everywhere(log: Log) -> Log:
    """Average over devices, once a chunk."""
    return jax.tree.map(lambda entry: lax.pmean(jnp.ravel(entry), AXIS), log)
