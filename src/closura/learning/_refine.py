"""Training of a surrogate that sees sampled laws: on solutions at draws of parameters and laws together.

First on draws of the quadratic approximation that the solver's sensitivities tell (`_solver_newton`), then, between chunks of
tuning, on draws of the chains themselves. When draws are kept it is frozen.
"""

import math
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ..forward import Surrogate, block_size
from ..laws import first_of, prepare
from ..sampling import split_keys
from ._initialise import law_values_over, spread_of, views_of
from ._setup import AXIS, Draws, Replay, Setup, State, Trained, begin, improve

BATCH = 128  # draws in one step
WIDER = 1.4  # than those of chains, half of the draws
BEYOND = 0.02  # of the range in which laws are called, that a surrogate sees of them on either side of it


def looking_where(setup: Setup, state: State, first: State, seen: Mapping[str, np.ndarray]) -> State:
    """The state with a surrogate that looks at laws where solutions go; `first` is where the draws come from that it has."""
    laws = first_of(state.chains.law, 2)
    values = law_values_over(laws, state.ranges, {name: _ends(seen[name]) for name in laws})
    network = eqx.tree_at(lambda b: b.laws, setup.network_with(state.surrogate), values)
    assert values is not None, "a surrogate that sees laws sees some"
    before = values.of(views_of(first_of(first.chains.law, 2), first.ranges))
    kept = state.replay
    assert isinstance(kept, Replay), "a surrogate has one"
    kept = kept._replace(law=jnp.broadcast_to(before, (*kept.theta.shape[:3], len(before))))
    return state._replace(surrogate=_with_network(state.surrogate, network), replay=kept)


def _ends(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All calls lie between these: a law that differs where a single system goes must not look the same."""
    low, high = spread_of(inputs, 1.0)
    return low - BEYOND * (high - low), high + BEYOND * (high - low)


def _with_network(surrogate: Trained, network: PyTree) -> Trained:
    trained = jax.tree.map(lambda w: w is not None, surrogate.weights, is_leaf=lambda w: w is None)
    return surrogate._replace(weights=eqx.filter(network, trained))


def refine(
    setup: Setup, state: State, draws: tuple[Array, PyTree], steps: Int[Array, ""]
) -> tuple[State, Float[Array, ""]]:
    """The state with a surrogate that was trained on solutions at draws of parameters and laws, (group, slot, system, ...), and at
    those before them, in so many steps; and how far the old one is from these draws, in units of the noise."""
    keys, key_train = split_keys(state.keys, 2)
    laws, _ = setup.tabulate(state.law.weights, state.ranges)
    replay = _solved(setup, state, laws, draws)
    error = missed(setup, state.surrogate, _newest(replay, -(-draws[0].shape[1] // 2)))
    # Solved by all devices; what follows is the same on each of them.
    data, every = lax.all_gather((jax.random.key_data(key_train), replay), AXIS, tiled=True)
    key_first, key_steps = jax.random.split(jax.random.wrap_key_data(data[0]))
    # From new weights: those of other units, or of draws without tails, lead far astray beyond the draws they are trained on.
    network = _renewed(setup.network_with(state.surrogate), every, key_first)
    trained = _regressed(network, every, key_steps, setup.settings.surrogate_rate, steps)
    surrogate = _with_network(state.surrogate, trained)
    return state._replace(keys=keys, surrogate=surrogate, replay=replay), lax.pmean(error, AXIS)


def _flat(replay: Replay) -> tuple[Array, Array, Array, Array]:
    """Parameters, system, solution and law of every draw of every system."""
    system = jnp.broadcast_to(jnp.arange(replay.theta.shape[2]), replay.theta.shape[:3])
    parts: PyTree = (replay.theta, system, replay.label, replay.law)
    theta, system, label, law = (a.reshape(-1, *a.shape[3:]) for a in parts)
    return theta, system, label, law


def _renewed(network: PyTree, replay: Replay, key: Array) -> PyTree:
    """A new network in units of these draws: laws as they vary, solutions by their principal components."""
    theta, system, label, law = _flat(replay)
    return network.renewed(key, network.laws.over(law), jax.vmap(network.frame.part)(theta, system, label))


def _regressed(network: PyTree, replay: Replay, key: Array, rate: float, steps: Int[Array, ""]) -> PyTree:
    """The network trained on the coefficients of these draws: the same loss as on whole solutions, without their points. The
    rate decays by a cosine to a hundredth."""
    theta, system, label, law = _flat(replay)
    inputs = jax.vmap(network.inputs)(theta, system, law)
    targets = network.targets(jax.vmap(network.frame.part)(theta, system, label))
    weight = jnp.sum((network.frame.cutoff[:, None, None] * network.basis) ** 2, axis=(0, 1))
    weight = weight / jnp.sum(weight)
    learned = jax.tree.map(lambda _: False, network)
    learned = eqx.tree_at(
        lambda n: (n.network, n.linear), learned, (jax.tree.map(eqx.is_inexact_array, network.network), True)
    )
    weights, rest = eqx.partition(network, learned)

    def loss(weights: PyTree, chosen: Array) -> Array:
        said = jax.vmap(eqx.combine(weights, rest).coefficients)(inputs[chosen])
        return jnp.mean(jnp.sum(weight * (said - targets[chosen]) ** 2, axis=-1))

    def step(number: Array, trained: Trained) -> Trained:
        chosen = jax.random.randint(jax.random.fold_in(key, number), (BATCH,), 0, len(inputs))
        now = rate * (0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * number / steps)))
        return improve(trained, jax.grad(loss)(trained.weights, chosen), now)

    trained = lax.fori_loop(0, steps, step, begin(weights))
    return eqx.combine(trained.weights, rest)


def _solved(setup: Setup, state: State, laws: PyTree, draws: tuple[Array, PyTree]) -> Replay:
    """The replay with these draws in the place of the oldest."""
    forward, (theta, own) = setup.exact.forward, draws
    system = jnp.broadcast_to(jnp.arange(theta.shape[2]), theta.shape[:3])
    parts = jax.tree.map(lambda a: a.reshape(-1, *a.shape[3:]), (theta, system, own))
    values = setup.network_with(state.surrogate).laws.of

    def solve(one: tuple[Array, Array, PyTree]) -> tuple[Array, Array]:
        views = prepare(one[2], state.ranges)
        return forward.solution(one[0], {**laws, **views}, one[1]), values(views)

    size = block_size(system.size, forward.working_set_size(0) * theta.dtype.itemsize)
    found = lax.map(solve, parts, batch_size=size)
    label, law = jax.tree.map(lambda a: a.reshape(*theta.shape[:3], *a.shape[1:]), found)
    fine = jnp.all(jnp.isfinite(label), axis=(-2, -1))
    # A draw that cannot be solved is replaced by the next one of its group and system that can; if none can, the old ones stay.
    source, some = _next_fine(fine), jnp.any(fine, axis=1, keepdims=True)

    replay, count = state.replay, theta.shape[1]
    assert isinstance(replay, Replay), "a surrogate has one"
    place = (replay.next[:, None] + jnp.arange(count)) % replay.theta.shape[1]

    def put(old: Array, new: Array) -> Array:
        more, at = (1,) * (new.ndim - 3), (jnp.arange(len(place))[:, None], place)
        found = jnp.take_along_axis(new, source.reshape(source.shape + more), axis=1)
        return old.at[at].set(jnp.where(some.reshape(some.shape + more), found, old[at]))

    kept = jax.tree.map(put, (replay.theta, replay.label, replay.law), (theta, label, law))
    return Replay(kept[0], kept[1], (replay.next + count) % replay.theta.shape[1], kept[2])


def _next_fine(fine: Array) -> Array:
    """(group, slot, system): the slot itself where it is fine, else another that is."""
    slots = jnp.arange(fine.shape[1])[None, :, None]
    # Cyclic distance to every slot, infinite where that is not fine.
    away = (slots[:, None] - slots[:, :, None]) % fine.shape[1]
    away = jnp.where(fine[:, None], away, fine.shape[1])
    return jnp.argmin(away, axis=2)


def _newest(replay: Replay, count: int) -> Replay:
    """So many draws of every group, that came last."""
    last = (replay.next[:, None] - 1 - jnp.arange(count)) % replay.theta.shape[1]
    pick = jax.vmap(lambda group, at: group[at])
    theta, label, law = jax.tree.map(lambda a: pick(a, last), (replay.theta, replay.label, replay.law))
    return Replay(theta, label, replay.next, law)


def missed(setup: Setup, surrogate: Trained, replay: Replay) -> Float[Array, ""]:
    """Root mean square distance of a surrogate from the solutions in the replay, at observed points and in units of the noise;
    asked of draws that it was not trained on it is honest."""
    seen, network = setup.likelihood, setup.network_with(surrogate)
    assert isinstance(seen.forward, Surrogate), "nothing else is trained"
    read = seen.forward.read

    def one_system(theta: Array, label: Array, law: Array, where: PyTree, system: Array) -> tuple[Array, Array]:
        return network.given(law).at(theta, where, system), read(theta, label, where, system)

    def of_chain(theta: Array, label: PyTree, law: PyTree) -> Array:
        said, solved = jax.vmap(one_system)(theta, label, law, seen.where, seen.system)
        weight = seen.noise.weight(seen.measured.value, solved, seen.measured.scale)
        return jnp.sum(jnp.where(seen.measured.mask, weight * (said - solved) ** 2, 0.0))

    square = jax.vmap(jax.vmap(of_chain))(replay.theta, replay.label, replay.law)
    return jnp.sqrt(jnp.mean(square) / jnp.sum(seen.measured.mask))


def spaced(draws: Draws, slots: int) -> tuple[Array, PyTree]:
    """So many draws of every group and system, each with its law: systems take theirs from different draws of a chunk and its
    chains, so that as many laws as possible are among them. The first half is wider than the posterior."""
    systems = draws.theta.shape[3]

    def by_group(a: Array) -> np.ndarray:
        moved = np.moveaxis(np.asarray(a), 1, 0)
        return moved.reshape(len(moved), -1, *moved.shape[3:])

    theta, laws = by_group(draws.theta), jax.tree.map(by_group, draws.law)
    number = np.arange(slots * systems) * _stride(theta.shape[1]) % theta.shape[1]
    number = number.reshape(slots, systems)
    # Away from their mean, law and parameters together: chains go where a network is wrong if it was not trained in their tails.
    wider = np.where(np.arange(slots) < slots // 2, WIDER, 1.0)[:, None, None]

    def widened(a: np.ndarray, picked: np.ndarray) -> Array:
        mean = a.mean(axis=1)[:, None] if a.ndim == 4 else a.mean(axis=1)[:, None, None]
        return jnp.asarray(mean + wider * (picked - mean))

    own = {}
    for name, law in laws.items():
        own[name] = jax.tree.map(lambda a: jnp.asarray(a[:, number]), law)
        if law.weights is not None:
            own[name] = own[name].with_weights(widened(law.weights, law.weights[:, number]))
    return widened(theta, theta[:, number, np.arange(systems)]), own


def _stride(count: int) -> int:
    """A step that visits all of so many draws, far from each other."""
    return next(step for step in range(max(1, int(0.618 * count)), 0, -1) if math.gcd(step, count) == 1)
