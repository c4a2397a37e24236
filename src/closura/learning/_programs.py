"""The compiled loops. `learn` interleaves sampling with closure learning; `sample` advances chains under a frozen closure.

Both run in chunks on every device at once: groups of chains are spread over devices, the law is the same everywhere, and
the only thing devices exchange is the gradient of the tabulated law.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec
from jaxtyping import Array, Float, PRNGKeyArray

from ..forward import Likelihood
from ..population import Population, uniforms
from ..problem import Range, prepare
from ..sampling import BLOCKS, Ensemble, GroupKeys, adapt, init, step
from ._settings import Settings

AXIS = "devices"
GROUPS, SAME, DRAWS = Spec(AXIS), Spec(), Spec(None, AXIS)


class Chains(NamedTuple):
    """What belongs to the chains; every array has the group axis first."""

    keys: GroupKeys
    ensemble: Ensemble
    phi: Any
    log_step: Float[Array, "group block"]


class Law(NamedTuple):
    """The trainable part of the closures, by name, its optimiser, and how large gradients have lately been."""

    weights: Any
    optimiser: Any
    gradient_size: Float[Array, ""]


class Setup(eqx.Module):
    """What does not change during a run."""

    likelihood: Likelihood
    population: Population
    closures: dict[str, Any]
    settings: Settings = eqx.field(static=True)

    @property
    def blocks(self) -> Any:
        return BLOCKS[self.settings.blocks](self.population, self.likelihood.value.shape[0])

    @property
    def optimiser(self) -> Any:
        return optax.adam(optax.cosine_decay_schedule(self.settings.learning_rate, self.settings.iterations, 0.02))


class Schedule(NamedTuple):
    """What changes with the iteration."""

    temperature: Float[Array, " iteration"]
    adaptation: Float[Array, " iteration"]


class Log(NamedTuple):
    """What an iteration tells; averages over chains and systems."""

    loglik: Float[Array, " iteration"]
    log_joint: Float[Array, " iteration"]
    acceptance: Float[Array, " iteration"]
    step_size: Float[Array, " iteration"]
    nonfinite: Float[Array, " iteration"]


class Draws(NamedTuple):
    theta: Float[Array, "draw group chain system parameter"]
    phi: Any


def weights_of(closures: dict[str, Any]) -> dict[str, Any]:
    """The trainable arrays of each closure; a known law has none."""
    return {name: eqx.filter(getattr(c, "network", None), eqx.is_inexact_array) for name, c in closures.items()}


def with_weights(closures: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    return {
        name: eqx.tree_at(lambda c: c.network, closure, eqx.combine(weights[name], closure.network))
        if hasattr(closure, "network")
        else closure
        for name, closure in closures.items()
    }


def learn(
    setup: Setup, chains: Chains, law: Law, ranges: dict[str, Range], schedule: Schedule
) -> tuple[Chains, Law, Log]:
    """A chunk of learning: per iteration one MALA step of every chain, one Gibbs draw of phi, one step of the law."""
    blocks, settings = setup.blocks, setup.settings
    learns = bool(jax.tree.leaves(law.weights))

    def solver_view(weights: Any) -> tuple[Any, Array]:
        """The laws as the solver calls them, and their log prior."""
        laws = with_weights(setup.closures, weights)
        views = prepare(laws, ranges)
        return views, sum((law.log_prior(ranges[n], views[n]) for n, law in laws.items()), jnp.zeros(()))

    def iteration(carry: tuple[Chains, Law], now: Schedule) -> tuple[tuple[Chains, Law], Log]:
        chains, law = carry
        keys, key_move, key_phi, key_pick = _split(chains.keys, 4)
        (prepared, log_prior), pull = eqx.filter_vjp(solver_view, law.weights)

        def evaluate(position: Array) -> tuple[Array, Array]:
            return blocks.evaluate(setup.likelihood, prepared, position)

        # The law moved since these positions were accepted: their likelihood is that of another law.
        ensemble = init(chains.ensemble.position, evaluate) if learns else chains.ensemble
        ensemble, info = step(
            key_move,
            ensemble,
            chains.phi,
            chains.log_step,
            None,
            evaluate,
            blocks.prior,
            temperature=now.temperature,
            covariance="frozen" if settings.preconditioner is None else settings.covariance,
            metropolis=settings.metropolis,
        )
        phi = blocks.gibbs(key_phi, ensemble.position, chains.phi)
        if learns:
            theta, _ = blocks.unpack(ensemble.position, phi)
            count = max(1, settings.gradient_chains // settings.groups)
            picked, sound = _pick(key_pick, (theta, jnp.isfinite(ensemble.loglik)), count)
            picked = jnp.where(sound[..., None], picked, setup.population.mean)
            # Fisher's identity: the mean of this over posterior draws is the slope of the marginal likelihood.
            slope = eqx.filter_grad(lambda view: -setup.likelihood.mean(picked, view, sound))(prepared)
            slope = jax.tree.map(lambda s: now.temperature * lax.pmean(s, AXIS), slope)
            (gradient,) = pull((slope, -jnp.ones_like(log_prior)))
            law = _improve(setup.optimiser, law, gradient)
        log_step = adapt(chains.log_step, info, now.adaptation)
        return (Chains(keys, ensemble, phi, log_step), law), _log(blocks, ensemble, phi, info, log_step)

    (chains, law), log = lax.scan(iteration, (chains, law), schedule)
    return chains, law, _everywhere(log)


def sample(
    setup: Setup,
    chains: Chains,
    law: Law,
    ranges: dict[str, Range],
    factor: Array,
    stale: Array,
    schedule: Schedule,
    *,
    thin: int,
) -> tuple[Chains, Draws, Log]:
    """A chunk under a frozen law and a frozen preconditioner: one evaluation a chain and step, every `thin`-th kept.

    `stale` says that the law moved since the cached likelihoods were computed.
    """
    blocks, settings = setup.blocks, setup.settings
    prepared = prepare(with_weights(setup.closures, law.weights), ranges)

    def evaluate(position: Array) -> tuple[Array, Array]:
        return blocks.evaluate(setup.likelihood, prepared, position)

    def iteration(chains: Chains, rate: Array) -> tuple[Chains, Log]:
        keys, key_move, key_phi = _split(chains.keys, 3)
        ensemble, info = step(
            key_move,
            chains.ensemble,
            chains.phi,
            chains.log_step,
            factor,
            evaluate,
            blocks.prior,
            covariance="frozen",
            metropolis=settings.metropolis,
        )
        phi = blocks.gibbs(key_phi, ensemble.position, chains.phi)
        log_step = adapt(chains.log_step, info, rate)
        return Chains(keys, ensemble, phi, log_step), _log(blocks, ensemble, phi, info, log_step)

    def keep(chains: Chains, rates: Array) -> tuple[Chains, tuple[Draws, Log]]:
        chains, log = lax.scan(iteration, chains, rates)
        return chains, (Draws(*blocks.unpack(chains.ensemble.position, chains.phi)), log)

    ensemble = lax.cond(stale, lambda e: init(e.position, evaluate), lambda e: e, chains.ensemble)
    rates = schedule.adaptation.reshape(-1, thin)
    chains, (draws, log) = lax.scan(keep, chains._replace(ensemble=ensemble), rates)
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
    """`count` neighbouring chains of every group, from a random one on (chains are exchangeable); groups joined."""

    def one_group(key: PRNGKeyArray, group: Any) -> Any:
        chains = jax.tree.leaves(group)[0].shape[0]
        chosen = (jnp.floor(chains * uniforms(key, ())[0]).astype(int) + jnp.arange(min(count, chains))) % chains
        return jax.tree.map(lambda a: a[chosen], group)

    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.vmap(one_group)(keys, tree))


def _improve(optimiser: Any, law: Law, gradient: Any) -> Law:
    """One step of the optimiser, on a gradient in units of its own recent size and cut off at ten of them.

    Adam does not mind the units, but it remembers a single huge gradient for thousands of iterations, and chains that come
    in from far away make such gradients. One that is not finite teaches nothing: that step is skipped.
    """
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(g)) for g in jax.tree.leaves(gradient)]))
    fine = jnp.isfinite(largest) & (largest > 0)
    largest = jnp.where(fine, largest, 1.0)
    size = largest * optax.global_norm(jax.tree.map(lambda g: g / largest, gradient))
    usual = jnp.where(law.gradient_size > 0, law.gradient_size, size)
    usual = usual * jnp.minimum(10.0, size / usual) ** 0.1
    factor = jnp.minimum(10.0, size / usual) / size
    update, state = optimiser.update(jax.tree.map(lambda g: g * factor, gradient), law.optimiser)
    stepped = Law(optax.apply_updates(law.weights, update), state, usual)
    return jax.tree.map(lambda new, old: jnp.where(fine, new, old), stepped, law)


def _log(blocks: Any, ensemble: Ensemble, phi: Any, info: Any, log_step: Array) -> Log:
    """Averages; the log densities over chains where they are finite."""
    loglik = jnp.sum(ensemble.loglik, axis=-1)
    joint = loglik + blocks.log_prior(ensemble.position, phi)
    sound = jnp.isfinite(joint)
    return Log(
        jnp.mean(loglik, where=sound),  # NaN when there is none
        jnp.mean(joint, where=sound),
        jnp.mean(info.acceptance),
        jnp.mean(jnp.exp(log_step)),
        jnp.mean(1.0 - info.finite),
    )


def _everywhere(log: Log) -> Log:
    """Average over devices, once a chunk."""
    return jax.tree.map(lambda entry: lax.pmean(jnp.ravel(entry), AXIS), log)
