"""Two levels: the surrogate is trained on the equation with the current law, the law on data seen through the surrogate.

    max over law of  log p(y | law, surrogate*(law)),    surrogate*(law) = argmin of its loss under that law

Three ways to the slope of the upper level in the law (always in the law as the solver calls it: its table):

- `adjoint`: the exact solver's own slope at the draws. Off only by what the surrogate does to the distribution of draws.
- `unrolled`: through the steps the surrogate has just taken, as published.
- `implicit`: through the minimiser of the loss, with a damped Gauss-Newton matrix (Hessians of networks are indefinite).

Every device trains on draws of its own groups; gradients are averaged, so all hold the same surrogate.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ..forward import Draw
from ..population import uniforms
from ..sampling import GroupKeys

AXIS = "devices"
DAMPING = 1e-3
SOLVE_STEPS = 12
HUGE = 1e4  # a solution so many times as large as usual is on its way to infinity: its slopes are not finite any more


class Trained(NamedTuple):
    """Weights, their optimiser, and how large gradients have lately been."""

    weights: PyTree
    optimiser: PyTree
    gradient_size: Float[Array, ""]


class Replay(NamedTuple):
    """Recent draws with, for a supervised surrogate, the solver's solutions there; the oldest is replaced next."""

    theta: Float[Array, "group slot system parameter"]
    label: Array | None  # (group, slot, system, point, state), or None
    next: Int[Array, " group"]


# Inside the root too: slopes through a step exist where a gradient is exactly zero.
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


def train(
    keys: GroupKeys, setup: PyTree, state: PyTree, laws: PyTree, picked: PyTree, rate: Array
) -> tuple[Trained, PyTree, Array, PyTree]:
    """The surrogate after its steps of this iteration, its replay, its loss, and the gradient of the upper level in the laws."""
    theta, sound, log_sigma, members = picked
    levels = Bilevel(setup, state.surrogate, state.replay, laws, theta, sound, log_sigma, members, keys, rate)
    surrogate, replay, gradient, loss = levels.advance()
    return surrogate, replay, loss, gradient


class Bilevel(NamedTuple):
    """One iteration's view of both levels; draws as in `Picked`."""

    setup: PyTree
    surrogate: Trained
    replay: PyTree  # a Replay, or () where nothing is trained
    laws: PyTree
    draws: Array
    sound: Array
    log_sigma: PyTree
    newcomers: Array
    keys: GroupKeys
    rate: Array

    def advance(self) -> tuple[Trained, PyTree, PyTree, Array]:
        """The surrogate and its replay after this iteration, the slope of the upper level in the laws, the loss."""
        if not jax.tree.leaves(self.surrogate.weights):
            flat, sound = _joined(self.draws), _joined(self.sound)
            slope = eqx.filter_grad(lambda laws: -self.exact_mean(laws, flat, sound))(self.laws)
            return self.surrogate, self.replay, slope, jnp.asarray(jnp.nan)
        return getattr(self, self.setup.settings.hypergradient)()

    # The lower level --------------------------------------------------------------------------------------------------

    def labels(self, laws: PyTree, draws: Array) -> Array:
        """The solver's solutions at draws."""
        solver = self.setup.exact.forward.for_reverse_mode()
        return _each_system(lambda theta, system: solver.solution(theta, laws, system))(draws)

    def remembered(self, laws: PyTree, label: Array | None) -> Replay:
        """The replay with draws (`label` are their solutions) and newcomers in it, as many as it holds. A solution that is
        not finite, or a draw that does not count, is left out."""
        replay, slots = self.replay, self.replay.theta.shape[1]
        draws, fine = self.draws, jnp.broadcast_to(self.sound, self.draws.shape[:3])
        if self.newcomers.shape[1]:
            draws = jnp.concatenate([draws, self.newcomers], axis=1)
            fine = jnp.concatenate([fine, jnp.ones(self.newcomers.shape[:3], bool)], axis=1)
            if label is not None:
                label = jnp.concatenate([label, self.labels(laws, self.newcomers)], axis=1)
        if label is not None:
            fine = fine & jnp.all(jnp.isfinite(label), axis=(-2, -1))
        draws, label, fine = jax.tree.map(lambda a: a[:, -slots:], (draws, label, fine))
        count = draws.shape[1]
        place = (replay.next[:, None] + jnp.arange(count)) % slots

        def put(old: Array, new: Array) -> Array:
            def one_group(old: Array, new: Array, place: Array, fine: Array) -> Array:
                keep = fine.reshape(fine.shape + (1,) * (new.ndim - 2))
                return old.at[place].set(jnp.where(keep, new, old[place]))

            return jax.vmap(one_group)(old, new, place, fine)

        theta = put(replay.theta, draws)
        stored = None if label is None else put(replay.label, label)
        return Replay(theta, stored, (replay.next + count) % slots)

    def residual(self, weights: PyTree, laws: PyTree, batch: Draw) -> Float[Array, "draw condition"]:
        network, forward = eqx.combine(weights, self.setup.network), self.setup.likelihood.forward
        return jax.vmap(lambda draw: forward.residual(network, laws, draw))(batch)

    def loss(self, weights: PyTree, laws: PyTree, batch: Draw) -> Float[Array, ""]:
        return jnp.mean(self.residual(weights, laws, batch) ** 2)

    def batch(self, replay: Replay, keys: GroupKeys) -> Draw:
        """Draws picked at random from the replay of every group, with keys for what a loss draws itself."""
        size = max(1, self.setup.settings.batch // self.setup.settings.groups)
        slots, systems = replay.theta.shape[1:3]

        def one_group(key: Array, theta: Array, label: Array | None) -> PyTree:
            (u,) = uniforms(key, (2, size))
            slot, system = (jnp.floor(n * x).astype(int) for n, x in zip((slots, systems), u))
            picked = None if label is None else label[slot, system]
            return Draw(theta[slot, system], system, picked, jr.split(key, size))

        picked = jax.vmap(one_group)(keys, replay.theta, replay.label)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), picked)

    def train(self, laws: PyTree, replay: Replay) -> tuple[Trained, Float[Array, ""]]:
        """The surrogate after its steps of this iteration, and its loss before the last of them."""

        def step(surrogate: Trained, keys: GroupKeys) -> tuple[Trained, Array]:
            batch = self.batch(replay, keys)
            loss, gradient = jax.value_and_grad(self.loss)(surrogate.weights, laws, batch)
            return improve(surrogate, lax.pmean(gradient, AXIS), self.rate), loss

        keys = jax.vmap(lambda key: jr.split(key, self.setup.settings.inner_steps))(self.keys)
        surrogate, losses = lax.scan(step, self.surrogate, jnp.swapaxes(keys, 0, 1))
        return surrogate, lax.pmean(losses[-1], AXIS)

    # The upper level --------------------------------------------------------------------------------------------------

    def misfit(self, weights: PyTree) -> Float[Array, ""]:
        """Minus the log likelihood of the data at the draws, seen through the surrogate; averaged over draws."""
        network = eqx.combine(weights, self.setup.network)
        flat, sound = _joined(self.draws), _joined(self.sound)
        return -self.setup.likelihood.mean(flat, network, sound, _joined(self.log_sigma))

    def exact_mean(self, laws: PyTree, draws: Array, sound: Array) -> Float[Array, ""]:
        return self.setup.exact.mean(draws, self.setup.exact.model(laws), sound, _joined(self.log_sigma))

    def adjoint(self) -> tuple[Trained, Replay, PyTree, Array]:
        slope, label = self._solvable(self._exact_slope)
        replay = self.remembered(self.laws, label)
        surrogate, loss = self.train(self.laws, replay)
        return surrogate, replay, slope, loss

    def _exact_slope(self, draws: Array, sound: Array) -> tuple[PyTree, PyTree, Array]:
        """The solver's slope at draws, its solutions there if they are wanted, and where there are any."""
        setup = self.setup

        def exact(laws: PyTree) -> tuple[Array, PyTree]:
            if setup.likelihood.forward.labelled:
                # The solutions that label the draws are read at the observed points: no solve is made twice.
                label = self.labels(laws, draws)
                seen = setup.likelihood
                read = jax.vmap(lambda *at: jax.vmap(seen.forward.read)(*at, seen.where, seen.system))
                predicted = jax.vmap(read)(draws, label)
                scale = self.setup.network.frame.units.state_scale
                fine = jnp.all(jnp.abs(label) < HUGE * scale, axis=(-2, -1))
            else:
                label, solver = None, setup.exact.forward.for_reverse_mode()
                predicted = setup.exact.predict(_joined(draws), setup.exact.model(laws), solver)
                predicted = predicted.reshape(*draws.shape[:2], *predicted.shape[1:])
                scale = jnp.max(self.setup.network.frame.units.state_scale)
                fine = jnp.all(jnp.abs(predicted) < HUGE * scale, axis=-1)
            mean = setup.exact.mean_of(_joined(predicted), _joined(sound & fine), _joined(self.log_sigma))
            return -mean, (label, fine)

        (_, (label, fine)), slope = eqx.filter_value_and_grad(exact, has_aux=True)(self.laws)
        return slope, label, fine

    def _solvable(self, slope_of: Callable[[Array, Array], PyTree]) -> tuple[PyTree, PyTree]:
        """Slope and labels where the solver can solve. Chains see the surrogate and may stand where it cannot, and one solve
        that overflows makes the slope of a shared law NaN: then once more, with a draw that can be solved in place of such."""
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(slope_of, self.draws, self.sound))

        def again(state: PyTree) -> PyTree:
            tries, draws, sound, (_, _, fine) = state
            solved = draws.reshape(-1, draws.shape[-1])[jnp.argmax(fine)]
            draws = jnp.where(fine[..., None] | (tries == 0), draws, solved)
            sound = sound & (fine | (tries == 0))
            return tries + 1, draws, sound, slope_of(draws, sound)

        def needed(state: PyTree) -> Array:
            tries, _, _, (_, _, fine) = state
            return (tries == 0) | ((tries == 1) & ~jnp.all(fine))

        sound = jnp.broadcast_to(self.sound, self.draws.shape[:3])
        _, _, _, (slope, label, _) = lax.while_loop(needed, again, (jnp.asarray(0), self.draws, sound, empty))
        return slope, label

    def unrolled(self) -> tuple[Trained, Replay, PyTree, Array]:
        def upper(laws: PyTree) -> tuple[Array, PyTree]:
            # Only fresh labels know this law; older ones are what they are.
            labelled = self.setup.likelihood.forward.labelled
            replay = self.remembered(laws, self.labels(laws, self.draws) if labelled else None)
            surrogate, loss = self.train(laws, replay)
            return self.misfit(surrogate.weights), (surrogate, replay, loss)

        (_, (surrogate, replay, loss)), slope = eqx.filter_value_and_grad(upper, has_aux=True)(self.laws)
        return surrogate, replay, slope, loss

    def implicit(self) -> tuple[Trained, Replay, PyTree, Array]:
        labelled = self.setup.likelihood.forward.labelled
        known = self.labels(self.laws, self.draws) if labelled else None
        replay = self.remembered(self.laws, known)
        surrogate, loss = self.train(self.laws, replay)
        theta = self.draws.reshape(-1, self.draws.shape[-1])
        system = jnp.broadcast_to(jnp.arange(self.draws.shape[2]), self.draws.shape[:3]).reshape(-1)
        keys = jax.vmap(lambda key: jr.split(key, theta.shape[0] // len(self.keys)))(self.keys).reshape(-1)

        def residual(weights: PyTree, laws: PyTree, label: PyTree) -> Array:
            flat = label.reshape(theta.shape[0], *label.shape[3:]) if labelled else None
            return self.residual(weights, laws, Draw(theta, system, flat, keys))

        there = surrogate.weights
        value, push = jax.linearize(lambda w: residual(w, self.laws, known), there)
        pull = jax.linear_transpose(push, there)

        def curvature(v: PyTree) -> PyTree:
            (back,) = pull(push(v) / value.size)
            return jax.tree.map(lambda a, b: lax.pmean(a, AXIS) + DAMPING * b, back, v)

        target = lax.pmean(jax.grad(self.misfit)(there), AXIS)
        direction, _ = jax.scipy.sparse.linalg.cg(curvature, target, maxiter=SOLVE_STEPS)
        _, pull_laws = eqx.filter_vjp(
            lambda laws: residual(there, laws, self.labels(laws, self.draws) if labelled else None), self.laws
        )
        (slope,) = pull_laws(-push(direction) / value.size)
        return surrogate, replay, slope, loss


def _each_system(function: Callable[..., Array]) -> Callable[..., Array]:
    """function(theta, system) over groups, chains and systems."""
    over = jax.vmap(jax.vmap(jax.vmap(function), (0, None)), (0, None))
    return lambda draws: over(draws, jnp.arange(draws.shape[2]))


def _joined(tree: PyTree) -> PyTree:
    """(group, chain, ...) to (group x chain, ...)."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)
