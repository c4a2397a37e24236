"""How well predictions meet the data, and the gradients samplers and learners ask for; the same for every forward model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..data import DataError, Observations
from ..equations import Equation, ForwardModel, ObservationIndex
from ._blocks import block_size
from .noise._noise import FAMILIES, Family, Fit
from .surrogates._surrogate import forward_model


class Likelihood(eqx.Module):
    """Observations scatter about predictions: y = prediction + sigma epsilon, over the observations that exist.

    `model` is what the forward model needs beside theta: laws for a solver, a network for a surrogate. Where the noise is
    known, a fit is (log likelihood, score); where its size is inferred, a `Fit`, and `weigh` makes the same of it.
    """

    forward: ForwardModel = eqx.field(static=True)
    where: ObservationIndex
    value: Float[Array, "system observation"]
    weight: Float[Array, "system observation"]
    constant: Float[Array, " system"]
    system: Int[Array, " system"]  # the row of each in the data, by which known inputs are found
    member: Float[Array, "system observation quantity"] | None = None  # which observation is of which quantity
    family: Family = eqx.field(static=True, default=FAMILIES["normal"])

    def model(self, laws: Any, network: Any = None) -> Any:
        """What the forward model needs beside theta."""
        return self.forward.prepare_context(laws, network)

    def predict(
        self, theta: Float[Array, "chain system parameter"], model: Any, forward: Any = None
    ) -> Float[Array, "chain system observation"]:
        """In blocks, like `evaluate`; by another form of the forward model, if given."""
        solves, batched = theta.shape[0] * theta.shape[1], self._batched(forward or self.forward, model)
        if block_size(solves, self.forward.working_set_size(0) * theta.dtype.itemsize) == solves:
            return batched(theta)
        return lax.map(lambda one: batched(one[None])[0], theta)

    def linearise(
        self, theta: Float[Array, "chain system parameter"], model: Any
    ) -> tuple[Float[Array, "chain system observation"], Float[Array, "parameter chain system observation"]]:
        """Predictions on the scale of the noise and their Jacobian, the tangent axis first.

        Outermost, so that each tangent is a contiguous batch over chains and systems and the primal is computed once.
        """
        batched = self._batched(self.forward, model)

        def push(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(
                lambda t: self.family.link(batched(t)), (theta,), (jnp.broadcast_to(direction, theta.shape),)
            )

        return jax.vmap(push, out_axes=(None, 0))(jnp.eye(theta.shape[-1]))

    def evaluate(self, theta: Float[Array, "chain system parameter"], model: Any) -> Any:
        """The fit of each system; a failed solve has log likelihood -inf.

        Worked through in blocks whose state fits the first-level cache, which halves the time of a large batch.
        """
        chains, systems, parameters = theta.shape
        size = block_size(chains * systems, self.forward.working_set_size(parameters) * theta.dtype.itemsize)
        if size == chains * systems:
            return self._evaluate(theta, model)

        def block(part: tuple[Array, Array]) -> Any:
            theta, system = part
            # Every array of a likelihood has the system axis first: pick the rows these solves belong to.
            rows = jax.tree.map(lambda a: a[system], self)
            return jax.tree.map(lambda found: found[0], rows._evaluate(theta[None], model))

        system = jnp.tile(jnp.arange(systems), chains)
        found = lax.map(block, (theta.reshape(-1, size, parameters), system.reshape(-1, size)))
        return jax.tree.map(lambda a: a.reshape(chains, systems, *a.shape[2:]), found)

    def values(self, theta: Float[Array, "chain system parameter"], model: Any) -> Any:
        """The fit without slopes: of known noise the log likelihood of each system; a failed solve has -inf."""
        square = self.weight * (self.value - self.family.link(self.predict(theta, model))) ** 2
        return self._sound(self._loglik(square), None)[0] if self.member is None else Fit(self._summed(square), None)

    def weigh(self, fit: Any, log_sigma: Float[Array, "chain quantity"] | None) -> tuple[Array, Array]:
        """Log likelihood of each system and its gradient in theta, with noise of this size."""
        if log_sigma is None:
            return fit
        assert self.member is not None
        shrink = jnp.exp(-2 * self._of_terms(log_sigma))
        loglik = self.weigh_values(fit, log_sigma)
        score = jnp.sum((self.family.pull(fit.square * shrink) * shrink)[..., None] * fit.slope, axis=-2)
        return self._sound(loglik, score)

    def weigh_values(self, fit: Any, log_sigma: Float[Array, "chain quantity"] | None) -> Float[Array, "chain system"]:
        if log_sigma is None:
            return fit
        size = jnp.einsum("sq,cq->cs", self.counts, log_sigma)
        square = fit.square * jnp.exp(-2 * self._of_terms(log_sigma))
        return self._sound(self.constant - size - jnp.sum(self.family.rho(square), axis=-1), None)[0]

    @property
    def counts(self) -> Float[Array, "system quantity"]:
        """Observations of each quantity."""
        assert self.member is not None
        return jnp.sum(self.member, axis=1)

    def _of_terms(self, log_sigma: Float[Array, "chain quantity"]) -> Float[Array, "chain #system term"]:
        if self.family.linear:
            return log_sigma[:, None, :]
        return jnp.einsum("soq,cq->cso", self.member, log_sigma)

    def _summed(self, per_observation: Float[Array, "chain system observation"]) -> Float[Array, "chain system term"]:
        if not self.family.linear:
            return per_observation
        return jnp.einsum("cso,soq->csq", per_observation, self.member)

    def _loglik(self, square: Float[Array, "chain system observation"]) -> Float[Array, "chain system"]:
        return self.constant - jnp.sum(self.family.rho(square), axis=-1)

    def _evaluate(self, theta: Array, model: Any) -> Any:
        prediction, jacobian = self.linearise(theta, model)
        weighted = self.weight * (self.value - prediction)
        square = weighted * (self.value - prediction)
        if self.member is None:
            score = jnp.moveaxis(jnp.sum(jacobian * (self.family.pull(square) * weighted), axis=-1), 0, -1)
            return self._sound(self._loglik(square), score)
        slope = jax.vmap(self._summed, out_axes=-1)(jacobian * weighted)
        return Fit(self._summed(square), slope)

    def _sound(self, loglik: Array, score: Any) -> tuple[Array, Any]:
        """Log likelihood and score where there are any: a failed solve has -inf and none."""
        finite = jnp.isfinite(loglik)
        if score is None:
            return jnp.where(finite, loglik, -jnp.inf), None
        finite = finite & jnp.all(jnp.isfinite(score), axis=-1)
        return jnp.where(finite, loglik, -jnp.inf), jnp.where(finite[..., None], score, 0.0)

    def mean(
        self,
        theta: Float[Array, "chain system parameter"],
        model: Any,
        sound: Bool[Array, "chain #system"] | None = None,
        log_sigma: Float[Array, "chain quantity"] | None = None,
    ) -> Float[Array, ""]:
        """Log likelihood of all systems, averaged over chains: what closure learning differentiates, in reverse.

        Solves not `sound` do not count. (Their theta must be replaced by one that can be solved: a solve that overflows
        turns even a zero sent back through it into NaN, and the law is shared.)
        """
        return self.mean_of(self._batched(self.forward.for_reverse_mode(), model)(theta), sound, log_sigma)

    def mean_of(
        self,
        prediction: Float[Array, "chain system observation"],
        sound: Bool[Array, "chain #system"] | None = None,
        log_sigma: Float[Array, "chain quantity"] | None = None,
    ) -> Float[Array, ""]:
        """The same, of predictions already made."""
        square = self.weight * (self.value - self.family.link(prediction)) ** 2
        if log_sigma is None:
            loglik = self._loglik(square)
        else:
            scaled = square * jnp.exp(-2 * jnp.einsum("soq,cq->cso", self.member, log_sigma))
            loglik = self._loglik(scaled) - jnp.einsum("sq,cq->cs", self.counts, log_sigma)
        return jnp.mean(jnp.sum(loglik if sound is None else jnp.where(sound, loglik, 0.0), axis=-1))

    def _batched(self, forward: ForwardModel, model: Any) -> Callable[[Array], Array]:
        def one(theta: Array, where: ObservationIndex, system: Array) -> Array:
            return forward.predict(theta, model, where, system)

        over_chains = jax.vmap(jax.vmap(one), in_axes=(0, None, None))
        return lambda theta: over_chains(theta, self.where, self.system)


def likelihood(problem: Equation, data: Observations, kind: str | None = None, **options: Any) -> Likelihood:
    """The likelihood of aligned data (see `align`) under the problem's solver, or as chains are to see it: under one of the
    forward models `kind` that the problem allows."""
    forward, where = problem.solver(data) if kind is None else forward_model(kind, problem, data, **options)
    family, unknown = FAMILIES[problem.noise], np.isnan(data.sigma) & data.mask
    value, sigma = data.value, np.where(unknown, 1.0, data.sigma)
    each = family.constant - np.log(sigma)
    if family.log:
        value = _logs(data)
        each = each - value
    member = data.mask[..., None] & (data.quantity[..., None] == np.arange(len(data.quantities)))
    return Likelihood(
        forward,
        where,
        jnp.asarray(value, float),
        jnp.asarray(np.where(data.mask, 1 / sigma**2, 0.0), float),
        jnp.asarray(np.sum(np.where(data.mask, each, 0.0), axis=1), float),
        jnp.arange(len(data.systems)),
        jnp.asarray(member, float) if unknown.any() else None,
        family,
    )


def _logs(data: Observations) -> np.ndarray:
    """Logarithms of observed values, which noise in proportion needs."""
    bad = np.argwhere(data.mask & (data.value <= 0))
    if len(bad):
        system, place = bad[0]
        name = data.quantities[data.quantity[system, place]]
        raise DataError(
            f"log-normal noise needs positive values, but {name} of system {data.systems[system]} is {data.value[system, place]:g} "
            f"({len(bad)} such in all); leave these out, or choose noise='normal'"
        )
    return np.where(data.mask, np.log(np.where(data.mask, data.value, 1.0)), 0.0)
