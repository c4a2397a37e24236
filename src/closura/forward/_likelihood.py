"""How well predictions meet the data, and the slopes samplers and learners ask for; the same for every forward model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..problem import Observations, Problem, ProblemError
from ._methods import solver, stencil
from ._surrogate import KINDS, surrogate


class Likelihood(eqx.Module):
    """Gaussian noise of known size: y = prediction + sigma epsilon, over the observations that exist.

    `model` is what the forward model needs beside theta: laws for a solver, a network for a surrogate.
    """

    forward: Any = eqx.field(static=True)
    where: Any
    value: Float[Array, "system observation"]
    weight: Float[Array, "system observation"]
    constant: Float[Array, " system"]

    def model(self, laws: Any, network: Any = None) -> Any:
        """What the forward model needs beside theta."""
        return self.forward.model(laws, network)

    def predict(
        self, theta: Float[Array, "chain system parameter"], model: Any, forward: Any = None
    ) -> Float[Array, "chain system observation"]:
        """In blocks, like `evaluate`; by another form of the forward model, if given."""
        solves, batched = theta.shape[0] * theta.shape[1], self._batched(forward or self.forward, model)
        if block_size(solves, self.forward.numbers(0) * theta.dtype.itemsize) == solves:
            return batched(theta)
        return lax.map(lambda one: batched(one[None])[0], theta)

    def linearise(
        self, theta: Float[Array, "chain system parameter"], model: Any
    ) -> tuple[Float[Array, "chain system observation"], Float[Array, "parameter chain system observation"]]:
        """Predictions and their Jacobian, the tangent axis first.

        Outermost, so that each tangent is a contiguous batch over chains and systems and the primal is computed once.
        """
        predict = self._batched(self.forward, model)

        def push(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(predict, (theta,), (jnp.broadcast_to(direction, theta.shape),))

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(theta.shape[-1]))

    def evaluate(
        self, theta: Float[Array, "chain system parameter"], model: Any
    ) -> tuple[Float[Array, "chain system"], Float[Array, "chain system parameter"]]:
        """Log likelihood of each system and its gradient in theta; a failed solve has log likelihood -inf.

        Worked through in blocks whose state fits the first-level cache, which halves the time of a large batch.
        """
        chains, systems, parameters = theta.shape
        size = block_size(chains * systems, self.forward.numbers(parameters) * theta.dtype.itemsize)
        if size == chains * systems:
            return self._evaluate(theta, model)

        def block(part: tuple[Array, Array]) -> tuple[Array, Array]:
            theta, system = part
            # Every array of a likelihood has the system axis first: pick the rows these solves belong to.
            rows = jax.tree.map(lambda a: a[system], self)
            loglik, score = rows._evaluate(theta[None], model)
            return loglik[0], score[0]

        system = jnp.tile(jnp.arange(systems), chains)
        loglik, score = lax.map(block, (theta.reshape(-1, size, parameters), system.reshape(-1, size)))
        return loglik.reshape(chains, systems), score.reshape(theta.shape)

    def values(self, theta: Float[Array, "chain system parameter"], model: Any) -> Float[Array, "chain system"]:
        """Log likelihood of each system alone; a failed solve has -inf."""
        residual = self.value - self.predict(theta, model)
        loglik = self.constant - 0.5 * jnp.sum(self.weight * residual**2, axis=-1)
        return jnp.where(jnp.isfinite(loglik), loglik, -jnp.inf)

    def _evaluate(self, theta: Array, model: Any) -> tuple[Array, Array]:
        prediction, jacobian = self.linearise(theta, model)
        weighted = self.weight * (self.value - prediction)
        loglik = self.constant - 0.5 * jnp.sum(weighted * (self.value - prediction), axis=-1)
        score = jnp.moveaxis(jnp.sum(jacobian * weighted, axis=-1), 0, -1)
        finite = jnp.isfinite(loglik) & jnp.all(jnp.isfinite(score), axis=-1)
        return jnp.where(finite, loglik, -jnp.inf), jnp.where(finite[..., None], score, 0.0)

    def mean(
        self,
        theta: Float[Array, "chain system parameter"],
        model: Any,
        sound: Bool[Array, "chain #system"] | None = None,
    ) -> Float[Array, ""]:
        """Log likelihood of all systems, averaged over chains: what closure learning differentiates, in reverse.

        Solves not `sound` do not count. (Their theta must be replaced by one that can be solved: a solve that overflows
        turns even a zero sent back through it into NaN, and the law is shared.)
        """
        return self.mean_of(self._batched(self.forward.reverse(), model)(theta), sound)

    def mean_of(
        self, prediction: Float[Array, "chain system observation"], sound: Bool[Array, "chain #system"] | None = None
    ) -> Float[Array, ""]:
        """The same, of predictions already made."""
        loglik = self.constant - 0.5 * jnp.sum(self.weight * (self.value - prediction) ** 2, axis=-1)
        return jnp.mean(jnp.sum(loglik if sound is None else jnp.where(sound, loglik, 0.0), axis=-1))

    def _batched(self, forward: Any, model: Any) -> Any:
        over_systems = jax.vmap(lambda theta, where: forward.predict(theta, model, where))
        return lambda theta: jax.vmap(over_systems, in_axes=(0, None))(theta, self.where)


def solve_many(forward: Any, theta: Float[Array, "draw parameter"], laws: Any) -> Float[Array, "draw point state"]:
    """Solutions of a solver on its grid for many draws, a block at a time."""
    size = block_size(theta.shape[0], forward.numbers(0) * theta.dtype.itemsize)
    return lax.map(lambda t: forward.solution(t, laws), theta, batch_size=size)


CACHE = 32_000


def block_size(solves: int, bytes_each: int) -> int:
    """The largest divisor of `solves` that fits the cache; all of them where no useful one does, or size does not matter."""
    # A solve larger than the cache fills the vector units by itself, and in a small block few wait for the slowest.
    most = min(max(CACHE // bytes_each, 64 if bytes_each < CACHE else 4), solves) if bytes_each else solves
    fitting = next(size for size in range(most, 0, -1) if solves % size == 0)
    return fitting if fitting >= most // 3 else solves


def likelihood(problem: Problem, data: Observations, kind: str = "solver", **options: Any) -> Likelihood:
    """The likelihood of matched data (see `Observations.matched`) under the problem's solver or one of its surrogates."""
    forward, where = solver(problem, data)
    if kind not in KINDS and options:
        raise ProblemError(
            f"network is for surrogates, and forward={kind!r} has none; drop it, or name another --forward"
        )
    if kind in KINDS:
        forward, where = surrogate(kind, problem, forward, **options), stencil(problem, data)
    weight = np.where(data.mask, 1 / data.sigma**2, 0.0)
    constant = -np.sum(np.where(data.mask, np.log(data.sigma) + 0.5 * np.log(2 * np.pi), 0.0), axis=1)
    return Likelihood(
        forward,
        where,
        jnp.asarray(data.value, float),
        jnp.asarray(weight, float),
        jnp.asarray(constant, float),
    )
