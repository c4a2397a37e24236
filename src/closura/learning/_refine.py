"""Training of a surrogate that sees sampled laws: on solutions at draws of parameters and laws together.

First on draws of the quadratic approximation that the solver's sensitivities tell (`_solver_newton`), then, between chunks of
tuning, on draws of the chains themselves. When draws are kept it is frozen.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..forward import solve_systems
from ..laws import first_of, over_draws, prepare
from ..sampling import split_keys
from ._hypergradients import Bilevel
from ._initialise import law_values_over, spread_of
from ._setup import Draws, Replay, Setup, State, Trained

VISITED = 0.998  # of the calls of a law lie between the ends of what a surrogate sees of it


def looking_where(setup: Setup, state: State, seen: Mapping[str, np.ndarray]) -> State:
    """The state with a surrogate that looks at laws where solutions go."""
    laws = first_of(state.chains.law, 2)
    values = law_values_over(laws, state.ranges, {name: spread_of(seen[name], VISITED) for name in laws})
    network = eqx.tree_at(lambda b: b.laws, setup.network_with(state.surrogate), values)
    return state._replace(surrogate=_with_network(state.surrogate, network))


def _with_network(surrogate: Trained, network: PyTree) -> Trained:
    trained = jax.tree.map(lambda w: w is not None, surrogate.weights, is_leaf=lambda w: w is None)
    return surrogate._replace(weights=eqx.filter(network, trained))


def refine(
    setup: Setup, state: State, draws: tuple[Array, PyTree], rates: Float[Array, " round"]
) -> tuple[State, Float[Array, ""]]:
    """The state with a surrogate that was trained on solutions at draws of parameters and laws, (group, slot, ...), at these
    rates, `inner_steps` steps each; and how far it was from them before, in units of the noise."""
    keys, key_train = split_keys(state.keys, 2)
    laws, _ = setup.tabulate(state.law.weights, state.ranges)
    replay = _solved(setup, state, laws, draws)
    error = missed(setup, state.surrogate, replay)
    level = Bilevel(setup, state.surrogate, replay, laws, *(None,) * 4, key_train, rates)  # type: ignore[arg-type]

    def some_steps(surrogate: Trained, now: tuple[Array, Array]) -> tuple[Trained, Array]:
        number, rate = now
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(key_train)
        return level._replace(surrogate=surrogate, keys=keys, rate=rate).train(laws, replay)

    surrogate, _ = lax.scan(some_steps, _rescaled(setup, state.surrogate, replay), (jnp.arange(len(rates)), rates))
    return state._replace(keys=keys, surrogate=surrogate, replay=replay), error


def _solved(setup: Setup, state: State, laws: PyTree, draws: tuple[Array, PyTree]) -> Replay:
    """The replay with these draws in it; where a solution is not finite, what was there."""
    theta, own = draws[0], prepare(draws[1], state.ranges, 2)
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (theta, own))
    label = solve_systems(setup.exact.forward, flat[0], *over_draws(laws, flat[1]))
    label = label.reshape(*theta.shape[:3], *label.shape[2:])
    law = jax.vmap(jax.vmap(setup.network_with(state.surrogate).laws.of))(own)
    law = jnp.broadcast_to(law[:, :, None], (*theta.shape[:3], law.shape[-1]))
    fine = jnp.all(jnp.isfinite(label), axis=(-2, -1))
    # A draw that cannot be solved is replaced by the next one of its group and system that can.
    source = _next_fine(fine)

    def put(new: Array) -> Array:
        return jnp.take_along_axis(new, source.reshape(source.shape + (1,) * (new.ndim - 3)), axis=1)

    return state.replay._replace(theta=put(theta), label=put(label), law=put(law))


def _next_fine(fine: Array) -> Array:
    """(group, slot, system): the slot itself where it is fine, else another that is."""
    slots = jnp.arange(fine.shape[1])[None, :, None]
    # Cyclic distance to every slot, infinite where that is not fine.
    away = (slots[:, None] - slots[:, :, None]) % fine.shape[1]
    away = jnp.where(fine[:, None], away, fine.shape[1])
    return jnp.argmin(away, axis=2)


def _rescaled(setup: Setup, surrogate: Trained, replay: Replay) -> Trained:
    """The same surrogate, which measures laws by how they vary over these draws."""
    network, law = setup.network_with(surrogate), replay.law
    assert law is not None, "a surrogate that sees laws is trained on some"
    values = network.laws.over(law[:, :, 0].reshape(-1, law.shape[-1]))
    return _with_network(surrogate, network.measured_in(values))


def missed(setup: Setup, surrogate: Trained, replay: Replay) -> Float[Array, ""]:
    """Root mean square distance of a surrogate from the solutions in the replay, at observed points and in units of the noise;
    asked of draws that it was not trained on it is honest."""
    seen, network = setup.likelihood, setup.network_with(surrogate)

    def one_system(theta: Array, label: Array, law: Array, where: PyTree, system: Array) -> tuple[Array, Array]:
        return network.given(law).at(theta, where, system), seen.forward.read(theta, label, where, system)

    def of_chain(theta: Array, label: Array, law: Array) -> Array:
        said, solved = jax.vmap(one_system)(theta, label, law, seen.where, seen.system)
        weight = seen.noise.weight(seen.measured.value, solved, seen.measured.scale)
        return jnp.sum(jnp.where(seen.measured.mask, weight * (said - solved) ** 2, 0.0))

    square = jax.vmap(jax.vmap(of_chain))(replay.theta, replay.label, replay.law)
    return jnp.sqrt(jnp.mean(square) / jnp.sum(seen.measured.mask))


def spaced(draws: Draws, slots: int) -> tuple[Array, PyTree]:
    """So many draws of every group, evenly over a chunk and its chains."""

    def one(a: Array) -> Array:
        by_group = np.moveaxis(np.asarray(a), 1, 0)
        flat = by_group.reshape(len(by_group), -1, *by_group.shape[3:])
        return jnp.asarray(flat[:, np.linspace(0, flat.shape[1] - 1, slots).astype(int)])

    return one(draws.theta), jax.tree.map(one, draws.law)
