"""Surrogates that see sampled laws: where they look, in which units, and their training on draws of laws and parameters.

While chains of a group share a law, learning trains the surrogate on laws that scatter about it (`_scatter`). Once every chain
has its own, it is trained between chunks of tuning on the draws themselves. When draws are kept it is frozen.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ..forward import solve_systems
from ..laws import first_of, over_draws, prepare
from ..sampling import split_keys
from ._hypergradients import Bilevel, missed
from ._initialise import law_values_over, spread_of, views_of
from ._setup import Draws, Setup, State

VISITED = 0.998  # of the calls of a law lie between the ends of what a surrogate sees of it


def looking_where(setup: Setup, first: State, surrogate: PyTree, seen: Mapping[str, np.ndarray]) -> State:
    """The first state with a surrogate that was trained before, which looks at laws where solutions go."""
    if not first.scatter:
        return first
    laws = first_of(first.chains.law, 2)
    ends = {name: spread_of(seen[name], VISITED) for name in laws}
    values = law_values_over(laws, first.ranges, ends)
    network = eqx.tree_at(lambda b: b.laws, setup.network_with(surrogate), values)
    # Draws that it is first trained on are those of the first laws.
    shape = first.replay.law.shape
    replay = first.replay._replace(law=jnp.broadcast_to(values.of(views_of(laws, first.ranges)), shape))
    weights = eqx.filter(network, jax.tree.map(lambda w: w is not None, surrogate.weights, is_leaf=lambda w: w is None))
    return first._replace(surrogate=surrogate._replace(weights=weights), replay=replay)


def in_units_of_replay(setup: Setup, state: State) -> State:
    """The state with a surrogate that measures laws by how they vary over the draws it is trained on; its function is the same."""
    return state._replace(surrogate=jit_soon(_rescaled)(setup.network, state.surrogate, state.replay.law))


def _rescaled(frame: PyTree, surrogate: PyTree, law: Float[Array, "group slot system value"]) -> PyTree:
    network = eqx.combine(surrogate.weights, frame)
    changed = network.measured_in(network.laws.over(law[:, :, 0].reshape(-1, law.shape[-1])))
    weights = eqx.filter(changed, jax.tree.map(lambda w: w is not None, surrogate.weights, is_leaf=lambda w: w is None))
    return surrogate._replace(weights=weights)


def refine(
    setup: Setup, state: State, draws: tuple[Array, PyTree], rates: Float[Array, " round"]
) -> tuple[State, Float[Array, ""]]:
    """The state with a surrogate that was trained on solutions at draws of parameters and laws, (group, slot, ...), at these
    rates, `inner_steps` steps each; and how far it was from them before, in units of the noise."""
    keys, key_train = split_keys(state.keys, 2)
    theta, own = draws[0], prepare(draws[1], state.ranges, 2)
    laws, _ = setup.tabulate(state.law.weights, state.ranges)
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (theta, own))
    label = solve_systems(setup.exact.forward, flat[0], *over_draws(laws, flat[1]))
    label = label.reshape(*theta.shape[:3], *label.shape[2:])
    sound = jnp.ones(theta.shape[:3], bool)
    level = Bilevel(
        setup, state.surrogate, state.replay, laws, theta, sound, None, theta[:, :0], key_train, rates[0], own
    )
    replay = level.remembered(laws, label)
    error = missed(setup, state.surrogate, replay, theta.shape[1])

    def some_steps(level: Bilevel, now: tuple[Array, Array]) -> tuple[PyTree, Array]:
        number, rate = now
        stepped = jax.vmap(lambda key: jax.random.fold_in(key, number))(key_train)
        return level._replace(keys=stepped, rate=rate).train(laws, replay)

    def body(surrogate: PyTree, now: tuple[Array, Array]) -> tuple[PyTree, Array]:
        return some_steps(level._replace(surrogate=surrogate), now)

    first = _rescaled(setup.network, state.surrogate, replay.law)
    surrogate, _ = lax.scan(body, first, (jnp.arange(len(rates)), rates))
    return state._replace(keys=keys, surrogate=surrogate, replay=replay), error


def spaced(draws: Draws, slots: int) -> tuple[Array, PyTree]:
    """So many draws of every group, evenly over a chunk and over chains."""

    def one(a: Array) -> Array:
        by_group = np.moveaxis(np.asarray(a), 1, 0)
        flat = by_group.reshape(len(by_group), -1, *by_group.shape[3:])
        # Neighbours in the list are chains of one draw: a stride that has no common factor with their number mixes both.
        return jnp.asarray(flat[:, np.linspace(0, flat.shape[1] - 1, slots).astype(int)])

    return one(draws.theta), jax.tree.map(one, draws.law)
