"""Algorithm 1: sample, train, update.

    learn    chains, surrogate and law move together, the likelihood tempered in
    sample   law and surrogate are frozen: one sweep after the other, every `thin`-th is kept

Both run in chunks on every device at once (see `_program`). What devices exchange are gradients alone: of the tabulated law,
and of the surrogate if there is one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from ..sampling import split_keys, sweep
from ._hypergradients import pick, train
from ._setup import Draws, Log, Schedule, Setup, State, improve, leap_in_turn, log_of, over_devices, reshape


def learn(setup: Setup, state: State, schedule: Schedule) -> tuple[State, Log]:
    """A chunk of learning: in every iteration one sweep of all kernels, the steps of the surrogate, one step of the law."""
    learns = state.learns

    def iteration(state: State, now: Schedule) -> tuple[State, Log]:
        keys, key_sample, key_pick, key_train = split_keys(state.keys, 4)
        (laws, log_prior), pullback = eqx.filter_vjp(lambda w: setup.tabulate(w, state.ranges), state.law.weights)
        posterior = setup.posterior(laws, state, now)
        # The law moved since these positions were accepted: their likelihood is that of another law.
        chains = posterior.refresh(state.chains) if learns else state.chains
        chains, tuning, info = sweep(
            setup.learning_kernels, key_sample, chains, state.tuning, posterior, now.adaptation
        )
        state = state._replace(keys=keys, chains=chains, tuning=tuning)
        loss = jnp.asarray(jnp.nan)
        if learns:
            draws = pick(key_pick, setup, posterior, chains)
            surrogate, replay, gradient, loss = train(key_train, setup, state, laws, draws, now.surrogate_rate)
            # Fisher's identity: averaged over posterior draws this is the gradient of the marginal likelihood.
            gradient = over_devices(now.temperature, gradient)
            law = improve(state.law, pullback((gradient, -jnp.ones_like(log_prior)))[0], now.law_rate)
            state = state._replace(law=law, surrogate=surrogate, replay=replay)
        return state, log_of(posterior, state, info, loss)

    state, log = lax.scan(iteration, state, schedule)
    return state, over_devices(1.0, log)


def sample(
    setup: Setup, state: State, stale: Bool[Array, ""], schedule: Schedule, leaps: Int[Array, " draw"]
) -> tuple[State, Draws, Log]:
    """A chunk under a frozen law and frozen preconditioners; before each kept draw a leap, if `leaps` says which.

    `stale` says that the law moved since the cached likelihoods were computed. The schedule has an entry for every sweep.
    """
    laws, _ = setup.tabulate(state.law.weights, state.ranges)

    def iteration(state: State, now: Schedule) -> tuple[State, Log]:
        keys, key_sample = split_keys(state.keys, 2)
        posterior = setup.posterior(laws, state, now, sampling=True)
        chains, tuning, info = sweep(
            setup.sampling_kernels, key_sample, state.chains, state.tuning, posterior, now.adaptation
        )
        state = state._replace(keys=keys, chains=chains, tuning=tuning)
        return state, log_of(posterior, state, info)

    def keep(state: State, now: tuple[Schedule, Array]) -> tuple[State, tuple[Draws, Log]]:
        state, log = lax.scan(iteration, state, now[0])
        state = leap_in_turn(setup, state, settled, now[1])
        return state, (Draws.of(state.chains), log)

    settled = setup.posterior(laws, state, sampling=True)
    chains = lax.cond(stale, lambda chains: settled.refresh(chains), lambda chains: chains, state.chains)
    state = state._replace(chains=chains)
    state, (draws, log) = lax.scan(keep, state, (reshape(schedule, len(leaps)), leaps))
    return state, draws, over_devices(1.0, jax.tree.map(jnp.ravel, log))
