"""Two levels: the surrogate is trained on the equation with the current law, the law on data seen through the surrogate.

    max over law of  log p(y | law, surrogate*(law)),    surrogate*(law) = argmin of its loss under that law

Three ways to the gradient of the upper level in the law (always in the law as the solver calls it: its table):

- `adjoint`: the exact solver's own gradient at the draws. Off only by what the surrogate does to the distribution of draws.
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
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ..forward import Draw, Surrogate
from ..population import Population, normal
from ..sampling import Chains, GroupKeys, Posterior, per_group, uniforms_by_group
from ._setup import AXIS, Replay, Setup, State, Trained, improve

DAMPING = 1e-3
SOLVE_STEPS = 12
HUGE = 1e4  # a solution so many times as large as usual is on its way to infinity: its gradient is not finite any more


class Picked(NamedTuple):
    """Draws of some chains, for training and for the gradient in the law.

    `theta` are (group, chain, system, parameter), `sound` where they count, `log_sigma` the size of the noise they hold
    true (None where it is known); `prior_draws` are fresh draws of their populations, for training alone.
    """

    theta: Float[Array, "group chain system parameter"]
    sound: Bool[Array, "group chain system"]
    log_sigma: PyTree
    prior_draws: Float[Array, "group draw system parameter"]


def pick(keys: GroupKeys, setup: Setup, posterior: Posterior, chains: Chains) -> Picked:
    """Draws of a few chains of every group; where one has no likelihood, the middle of the prior stands in for it."""
    settings, population = setup.settings, setup.population
    sound = jnp.isfinite(posterior.loglik(chains))
    count = max(1, settings.gradient_chains // settings.groups)
    theta, sound, log_sigma = neighbours(keys, (chains.theta, sound, chains.log_sigma), count)
    prior_draws = chains.theta[:, :0]
    if settings.replay_prior_draws:
        held, phi = neighbours(per_group(keys, 1), (chains.theta, chains.phi), settings.replay_prior_draws)
        prior_draws = members(per_group(keys, 2), population, held, phi)
    return Picked(jnp.where(sound[..., None], theta, population.mean), sound, log_sigma, prior_draws)


def neighbours(keys: GroupKeys, tree: PyTree, count: int) -> PyTree:
    """`count` neighbouring chains of every group, from a random one on (chains are exchangeable)."""
    chains = jax.tree.leaves(tree)[0].shape[1]
    (uniform,) = uniforms_by_group(keys, ())
    chosen = (jnp.floor(chains * uniform).astype(int)[:, None] + jnp.arange(min(count, chains))) % chains
    return jax.tree.map(lambda a: jax.vmap(lambda group, at: group[at])(a, chosen), tree)


def members(keys: GroupKeys, population: Population, theta: Array, phi: PyTree) -> Array:
    """New systems of the populations that some chains hold; what is shared is as these chains have it."""
    (uniform,) = uniforms_by_group(keys, theta.shape[1:])
    made = jax.vmap(jax.vmap(population.theta_from_normal))(phi, normal(uniform))
    return made if population.shared is None else jnp.where(np.array(population.shared), theta, made)


def train(
    keys: GroupKeys, setup: Setup, state: State, laws: PyTree, picked: Picked, rate: Array
) -> tuple[Trained, PyTree, PyTree, Array]:
    """The surrogate after its steps of this iteration, its replay, the gradient of the upper level in the laws, the loss."""
    return Bilevel(setup, state.surrogate, state.replay, laws, *picked, keys, rate).advance()


class Bilevel(NamedTuple):
    """One iteration's view of both levels; draws as in `Picked`."""

    setup: Setup
    surrogate: Trained
    replay: PyTree  # a Replay, or () where nothing is trained
    laws: PyTree
    draws: Array
    sound: Array
    log_sigma: PyTree
    prior_draws: Array
    keys: GroupKeys
    rate: Array

    def advance(self) -> tuple[Trained, PyTree, PyTree, Array]:
        """What `train` returns, by the way that the settings ask for."""
        if not jax.tree.leaves(self.surrogate.weights):
            exact, (draws, sound, log_sigma) = self.setup.exact, _joined((self.draws, self.sound, self.log_sigma))
            gradient = eqx.filter_grad(lambda laws: -exact.mean(draws, exact.model(laws), sound, log_sigma))(self.laws)
            return self.surrogate, self.replay, gradient, jnp.asarray(jnp.nan)
        return getattr(self, self.setup.settings.hypergradient)()

    @property
    def forward(self) -> Surrogate:
        forward = self.setup.likelihood.forward
        assert isinstance(forward, Surrogate), "nothing else is trained"
        return forward

    # The lower level --------------------------------------------------------------------------------------------------

    def labels(self, laws: PyTree, draws: Array) -> Array | None:
        """The solver's solutions at draws, for a supervised surrogate."""
        if not self.forward.labelled:
            return None
        solver = self.setup.exact.forward.for_reverse_mode()
        return _each_system(lambda theta, system: solver.solution(theta, laws, system))(draws)

    def remembered(self, laws: PyTree, label: Array | None) -> Replay:
        """The replay with draws (`label` are their solutions) and draws of the prior in it, as many as it holds. A solution
        that is not finite, or a draw that does not count, is left out."""
        replay, slots = self.replay, self.replay.theta.shape[1]
        draws, fine = self.draws, jnp.broadcast_to(self.sound, self.draws.shape[:3])
        if self.prior_draws.shape[1]:
            more = self.prior_draws, self.labels(laws, self.prior_draws), jnp.ones(self.prior_draws.shape[:3], bool)
            joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), (draws, label, fine), more)
            draws, label, fine = joined
        if label is not None:
            fine = fine & jnp.all(jnp.isfinite(label), axis=(-2, -1))
        draws, label, fine = jax.tree.map(lambda a: a[:, -slots:], (draws, label, fine))
        count = draws.shape[1]
        place = (replay.next[:, None] + jnp.arange(count)) % slots

        def put(old: Array, new: Array) -> Array:
            at = jnp.arange(len(place))[:, None], place
            return old.at[at].set(jnp.where(fine.reshape(fine.shape + (1,) * (new.ndim - 3)), new, old[at]))

        theta, label = jax.tree.map(put, (replay.theta, replay.label), (draws, label))
        return replay._replace(theta=theta, label=label, next=(replay.next + count) % slots)

    def residual(self, weights: PyTree, laws: PyTree, batch: Draw) -> Float[Array, "draw condition"]:
        network = eqx.combine(weights, self.setup.network)
        return jax.vmap(lambda draw: self.forward.residual(network, laws, draw))(batch)

    def loss(self, weights: PyTree, laws: PyTree, batch: Draw) -> Float[Array, ""]:
        return jnp.mean(self.residual(weights, laws, batch) ** 2)

    def batch(self, replay: Replay, keys: GroupKeys) -> Draw:
        """Draws picked at random from the replay of every group, with keys for what a loss draws itself."""
        size = max(1, self.setup.settings.batch // self.setup.settings.groups)
        slots, systems = replay.theta.shape[1:3]
        slot, system = (
            jnp.floor(n * u).astype(int) for n, u in zip((slots, systems), uniforms_by_group(keys, (size,), (size,)))
        )

        def one_group(key: Array, kept: Replay, slot: Array, system: Array) -> Draw:
            label, law = jax.tree.map(lambda a: a[slot, system], (kept.label, kept.law))
            return Draw(kept.theta[slot, system], system, label, jr.split(key, size), law)

        return _joined(jax.vmap(one_group)(keys, replay, slot, system))

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
        draws, sound, log_sigma = _joined((self.draws, self.sound, self.log_sigma))
        return -self.setup.likelihood.mean(draws, network, sound, log_sigma)

    def adjoint(self) -> tuple[Trained, Replay, PyTree, Array]:
        gradient, label = self._solvable()
        replay = self.remembered(self.laws, label)
        surrogate, loss = self.train(self.laws, replay)
        return surrogate, replay, gradient, loss

    def _exact_gradient(self, draws: Array, sound: Array) -> tuple[PyTree, PyTree, Array]:
        """The solver's gradient at draws, its solutions there if they are wanted, and where there are any."""
        seen, exact, scale = self.setup.likelihood, self.setup.exact, self.setup.network.frame.units.state_scale

        def misfit(laws: PyTree) -> tuple[Array, PyTree]:
            label = self.labels(laws, draws)
            if label is not None:
                # The solutions that label the draws are read at the observed points: no solve is made twice.
                of_chain = jax.vmap(lambda t, states: jax.vmap(self.forward.read)(t, states, seen.where, seen.system))
                predicted = jax.vmap(of_chain)(draws, label)
                fine = jnp.all(jnp.abs(label) < HUGE * scale, axis=(-2, -1))
            else:
                solver = exact.forward.for_reverse_mode()
                predicted = exact.predict(_joined(draws), exact.model(laws), solver)
                predicted = predicted.reshape(*draws.shape[:2], *predicted.shape[1:])
                fine = jnp.all(jnp.abs(predicted) < HUGE * jnp.max(scale), axis=-1)
            mean = exact.mean_of(*_joined((predicted, sound & fine, self.log_sigma)))
            return -mean, (label, fine)

        (_, (label, fine)), gradient = eqx.filter_value_and_grad(misfit, has_aux=True)(self.laws)
        return gradient, label, fine

    def _solvable(self) -> tuple[PyTree, PyTree]:
        """Gradient and labels where the solver can solve. Chains see the surrogate and may stand where it cannot, and one solve
        that overflows makes the gradient of a shared law NaN: then once more, with a draw that can be solved in place of such."""
        found = jax.eval_shape(self._exact_gradient, self.draws, self.sound)
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), found)

        def again(state: PyTree) -> PyTree:
            tries, draws, sound, (_, _, fine) = state
            solved = draws.reshape(-1, draws.shape[-1])[jnp.argmax(fine)]
            draws = jnp.where(fine[..., None] | (tries == 0), draws, solved)
            sound = sound & (fine | (tries == 0))
            return tries + 1, draws, sound, self._exact_gradient(draws, sound)

        def needed(state: PyTree) -> Array:
            tries, _, _, (_, _, fine) = state
            return (tries == 0) | ((tries == 1) & ~jnp.all(fine))

        sound = jnp.broadcast_to(self.sound, self.draws.shape[:3])
        found = lax.while_loop(needed, again, (jnp.asarray(0), self.draws, sound, empty))
        _, _, solved, (gradient, label, _) = found
        # The solution that stood in for one that cannot be had is that of other parameters: no label.
        return gradient, jax.tree.map(lambda states: jnp.where(solved[..., None, None], states, jnp.nan), label)

    def unrolled(self) -> tuple[Trained, Replay, PyTree, Array]:
        def upper(laws: PyTree) -> tuple[Array, PyTree]:
            # Only fresh labels know this law; older ones are what they are.
            replay = self.remembered(laws, self.labels(laws, self.draws))
            surrogate, loss = self.train(laws, replay)
            return self.misfit(surrogate.weights), (surrogate, replay, loss)

        (_, (surrogate, replay, loss)), gradient = eqx.filter_value_and_grad(upper, has_aux=True)(self.laws)
        return surrogate, replay, gradient, loss

    def implicit(self) -> tuple[Trained, Replay, PyTree, Array]:
        known = self.labels(self.laws, self.draws)
        replay = self.remembered(self.laws, known)
        surrogate, loss = self.train(self.laws, replay)
        theta = self.draws.reshape(-1, self.draws.shape[-1])
        system = jnp.broadcast_to(jnp.arange(self.draws.shape[2]), self.draws.shape[:3]).reshape(-1)
        keys = jax.vmap(lambda key: jr.split(key, theta.shape[0] // len(self.keys)))(self.keys).reshape(-1)

        def residual(weights: PyTree, laws: PyTree, label: Array | None) -> Array:
            flat = None if label is None else label.reshape(theta.shape[0], *label.shape[3:])
            return self.residual(weights, laws, Draw(theta, system, flat, keys))

        there = surrogate.weights
        value, push = jax.linearize(lambda w: residual(w, self.laws, known), there)
        pull = jax.linear_transpose(push, there)

        def curvature(v: PyTree) -> PyTree:
            (back,) = pull(push(v) / value.size)
            return jax.tree.map(lambda a, b: lax.pmean(a, AXIS) + DAMPING * b, back, v)

        target = lax.pmean(jax.grad(self.misfit)(there), AXIS)
        direction, _ = jax.scipy.sparse.linalg.cg(curvature, target, maxiter=SOLVE_STEPS)
        _, pull_laws = eqx.filter_vjp(lambda laws: residual(there, laws, self.labels(laws, self.draws)), self.laws)
        (gradient,) = pull_laws(-push(direction) / value.size)
        return surrogate, replay, gradient, loss


def _each_system(function: Callable[..., Array]) -> Callable[..., Array]:
    """function(theta, system) over groups, chains and systems."""
    over = jax.vmap(jax.vmap(jax.vmap(function), (0, None)), (0, None))
    return lambda draws: over(draws, jnp.arange(draws.shape[2]))


def _joined(tree: PyTree) -> PyTree:
    """(group, chain, ...) to (group x chain, ...)."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)
