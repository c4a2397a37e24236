"""How well predictions meet the data, and the gradients samplers and learners ask for; the same for every forward model."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ..data import Observations
from ..equations import Equation, ForwardModel, ObservationIndex, ProblemError
from ..laws import SolverLaws
from ._blocks import block_size
from .noise import Measured, Noise, NoisePrior, ResidualStats, noise_of
from .noise._base import ChainScale, LogLik, LogLikAndGrad, LogScale
from .surrogates._frame import Network
from .surrogates._surrogate import SURROGATES, require, surrogate

Theta = Float[Array, "chain system parameter"]
Predictions = Float[Array, "chain system observation"]
Sound = Bool[Array, "chain #system"]

Evaluated = LogLikAndGrad | ResidualStats


class Likelihood(eqx.Module):
    """log p(y | theta, context, scale) of every chain and system: observations scatter about predictions by their noise.

    `context` is what the forward model needs beside theta: laws for a solver, a network for a surrogate; all share it. Laws
    that are not shared (`own`) have a chain axis in front of their arrays (`law_axes=1`), or a chain and a system axis (2).

    Where every scale of the noise is stated, `evaluate` finds (log likelihood, gradient) and `values` the former. Where one is
    inferred they find `ResidualStats`, from which `loglik_and_grad` and `loglik` make the same at any scale: `log_scale` is
    of every chain (chain, quantity), or of every chain and system (chain, system, quantity).

    Every array has the system axis first.
    """

    forward: ForwardModel = eqx.field(static=True)
    where: ObservationIndex
    measured: Measured
    noise: Noise = eqx.field(static=True)
    system: Int[Array, " system"]  # the row of each in the data, by which known inputs are found

    @property
    def scale_inferred(self) -> bool:
        """Is any scale of the noise?"""
        return self.measured.quantity_onehot is not None

    def model(self, laws: SolverLaws, network: Network | None = None) -> PyTree:
        """What the forward model needs beside theta."""
        return self.forward.prepare_context(laws, network)

    def predict(
        self,
        theta: Theta,
        context: PyTree,
        forward: ForwardModel | None = None,
        own: SolverLaws | None = None,
        law_axes: int = 0,
    ) -> Predictions:
        """In blocks, like `evaluate`; by another form of the forward model, if given."""
        solves, forward = theta.shape[0] * theta.shape[1], forward or self.forward
        if block_size(solves, self.forward.working_set_size(0) * theta.dtype.itemsize) == solves:
            return self._batched(forward, context, own, law_axes)(theta)

        def one_chain(part: tuple[Array, PyTree]) -> Array:
            theta, own = jax.tree.map(lambda a: a[None], part)
            return self._batched(forward, context, own, law_axes)(theta)[0]

        return lax.map(one_chain, (theta, own))

    def linearise(
        self, theta: Theta, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0
    ) -> tuple[Predictions, Float[Array, "parameter chain system observation"]]:
        """Predictions and their Jacobian, the tangent axis first.

        Outermost, so that each tangent is a contiguous batch over chains and systems and the primal is computed once.
        """
        batched = self._batched(self.forward, context, own, law_axes)

        def push(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(batched, (theta,), (jnp.broadcast_to(direction, theta.shape),))

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(theta.shape[-1]))

    def evaluate(self, theta: Theta, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0) -> Evaluated:
        """Log likelihood and gradient of each system, or what they are made of; a failed solve has -inf."""
        return self.evaluate_and_predict(theta, context, own, law_axes)[0]

    def evaluate_and_predict(
        self, theta: Theta, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0
    ) -> tuple[Evaluated, Predictions]:
        """The same, and the predictions it comes from.

        Worked through in blocks whose state fits the first-level cache, which halves the time of a large batch.
        """
        chains, systems, parameters = theta.shape
        size = block_size(chains * systems, self.forward.working_set_size(parameters) * theta.dtype.itemsize)
        if size == chains * systems:
            return self._evaluate(theta, context, own, law_axes)

        def block(part: tuple[Array, Array, Array]) -> PyTree:
            theta, *place = part
            # Every array of a likelihood has the system axis first: pick the rows these solves belong to.
            rows = jax.tree.map(lambda a: a[place[1]], self)
            mine = jax.tree.map(lambda a: a[tuple(place[:law_axes])][None], own)
            found = rows._evaluate(theta[None], context, mine, 2 if law_axes else 0)
            return jax.tree.map(lambda a: a[0], found)

        chain, system = jnp.repeat(jnp.arange(chains), systems), jnp.tile(jnp.arange(systems), chains)
        parts = theta.reshape(-1, size, parameters), chain.reshape(-1, size), system.reshape(-1, size)
        return jax.tree.map(lambda a: a.reshape(chains, systems, *a.shape[2:]), lax.map(block, parts))

    def values(
        self, theta: Theta, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0
    ) -> LogLik | ResidualStats:
        """What `evaluate` finds, without gradients."""
        return self.values_and_predict(theta, context, own, law_axes)[0]

    def values_and_predict(
        self, theta: Theta, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0
    ) -> tuple[LogLik | ResidualStats, Predictions]:
        """The same, and the predictions it comes from."""
        prediction = self.predict(theta, context, own=own, law_axes=law_axes)
        stats = self.noise.stats(self.measured, prediction, None)
        return stats if self.scale_inferred else self.loglik(stats, None), prediction

    def score(self, prediction: Float[Array, "chain system observation"], log_scale: LogScale | None) -> Predictions:
        """Gradient of the log likelihood in the predictions; zero where there is none."""
        found = self.measured.mask & jnp.isfinite(prediction)
        known = jnp.where(found, prediction, self.measured.value)
        _, score = self.noise.log_prob_and_score(self.measured.value, known, self.measured.scales(log_scale))
        return jnp.where(found & jnp.isfinite(score), score, 0.0)

    def loglik_and_grad(self, found: LogLikAndGrad | ResidualStats, log_scale: LogScale | None) -> LogLikAndGrad:
        """Log likelihood of each system and its gradient in theta, of what `evaluate` found, at these scales."""
        if not isinstance(found, ResidualStats):
            return found
        loglik, gradient = self.noise.loglik_and_grad(self.measured, found, log_scale)
        # A failed solve has log likelihood -inf, and no gradient.
        finite = jnp.isfinite(loglik) & jnp.all(jnp.isfinite(gradient), axis=-1)
        return jnp.where(finite, loglik, -jnp.inf), jnp.where(finite[..., None], gradient, 0.0)

    def loglik(self, found: LogLik | ResidualStats, log_scale: LogScale | None) -> LogLik:
        """Log likelihood of each system, of what `values` found, at these scales."""
        if not isinstance(found, ResidualStats):
            return found
        loglik = self.noise.loglik(self.measured, found, log_scale)
        return jnp.where(jnp.isfinite(loglik), loglik, -jnp.inf)

    def gibbs_noise(
        self,
        key: PRNGKeyArray,
        prior: NoisePrior,
        stats: ResidualStats,
        log_scale: ChainScale,
        temperature: Float[Array, ""] | float = 1.0,
    ) -> ChainScale:
        """Draw the log scales that are free given what `evaluate` or `values` found; see `Noise.gibbs_noise`."""
        drawn = self.noise.gibbs_noise(key, prior, self.measured, stats, log_scale, temperature)
        return jnp.where(np.array(prior.free), drawn, log_scale)

    def blank(self, theta: Float[Array, "*lead system parameter"], gradients: bool = True) -> PyTree:
        """What `evaluate` (or `values`, without gradients) would find where nothing can be solved; for chains of which
        nothing is evaluated yet."""
        if not self.scale_inferred:
            value = jnp.full(theta.shape[:-1], -jnp.inf, theta.dtype)
            return (value, jnp.zeros_like(theta)) if gradients else value
        one = jax.ShapeDtypeStruct((1, *self.measured.value.shape), theta.dtype)
        terms = jax.eval_shape(lambda m: self.noise.stats(self.measured, m, None).value, one).shape[-1]
        shape = (*theta.shape[:-1], terms)
        gradient = jnp.zeros((*shape, theta.shape[-1]), theta.dtype) if gradients else None
        return ResidualStats(jnp.full(shape, jnp.inf, theta.dtype), gradient)

    def mean(
        self, theta: Theta, context: PyTree, sound: Sound | None = None, log_scale: LogScale | None = None
    ) -> Float[Array, ""]:
        """Log likelihood of all systems, averaged over chains: what closure learning differentiates, in reverse.

        Solves not `sound` do not count. (Their theta must be replaced by one that can be solved: a solve that overflows
        turns even a zero sent back through it into NaN, and the law is shared.)
        """
        return self.mean_of(self._batched(self.forward.for_reverse_mode(), context)(theta), sound, log_scale)

    def mean_of(
        self, prediction: Predictions, sound: Sound | None = None, log_scale: LogScale | None = None
    ) -> Float[Array, ""]:
        """The same, of predictions already made."""
        loglik = self.noise.loglik(self.measured, self.noise.stats(self.measured, prediction, None), log_scale)
        return jnp.mean(jnp.sum(loglik if sound is None else jnp.where(sound, loglik, 0.0), axis=-1))

    def _evaluate(
        self, theta: Theta, context: PyTree, own: SolverLaws | None, law_axes: int
    ) -> tuple[Evaluated, Predictions]:
        prediction, jacobian = self.linearise(theta, context, own, law_axes)
        stats = self.noise.stats(self.measured, prediction, jacobian)
        return stats if self.scale_inferred else self.loglik_and_grad(stats, None), prediction

    def _batched(
        self, forward: ForwardModel, context: PyTree, own: SolverLaws | None = None, law_axes: int = 0
    ) -> Callable[[Theta], Predictions]:
        def one(theta: Array, where: ObservationIndex, system: Array, own: PyTree) -> Array:
            return forward.predict(theta, forward.with_own_laws(context, own or {}), where, system)

        over_systems = jax.vmap(one, in_axes=(0, 0, 0, 0 if law_axes == 2 else None))
        over_chains = jax.vmap(over_systems, in_axes=(0, None, None, 0 if law_axes else None))
        return lambda theta: self.noise.clip(over_chains(theta, self.where, self.system, own), self.measured)


def likelihood(problem: Equation, data: Observations) -> Likelihood:
    """The likelihood of aligned data (see `align`) under the problem's solver."""
    forward, where = problem.solver(data)
    noise = noise_of(problem)
    return Likelihood(forward, where, noise.observe(data), noise, jnp.arange(len(data.systems)))


def seen_through(exact: Likelihood, problem: Equation, data: Observations, name: str, **options: object) -> Likelihood:
    """The same observations as chains are to see them: under one of the forward models that the problem allows."""
    if name in SURROGATES:
        forward, where = surrogate(name, problem, exact.forward, **options), problem.observation_index(data)
        return dataclasses.replace(exact, forward=forward, where=where)
    require(name, problem)
    if options:
        raise ProblemError(
            f"network is for surrogates, and forward={name!r} has none; drop it, or name another --forward"
        )
    return exact
