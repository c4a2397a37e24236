"""Theta of every system from its own conditional, about: an independence proposal that needs values of the likelihood only.

    theta_k | phi, shared, laws  ~  N(m_k, H_k^-1),   H_k = A_k + D(phi),   H_k m_k = b_k - C_k (top - center) + D(phi) mu

A_k is the Gauss-Newton information of the system's data, C_k how it is bound to shared parameters and laws' coordinates
(`top`), D the precision of the population. Proposals are Student's t in that whitening, so that tails are reached. Where the
conditional is nearly Gaussian, most are accepted and draws are nearly independent.

Where draws of a logarithm lie along a curve instead, e^(n theta_k) being linear in `top` (a law and a positive parameter of which
data know the sum, n = 1), all this is said of eta_k = (e^(n theta_k) - 1) / n, and the proposal is made about its mean.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..population import normal
from ._accept import Randomness, decide
from ._gauss_newton import Curves, Information, coordinates, information, precisions
from ._kernel import Kernel
from ._law_constants import curved
from ._posterior import Posterior, Target, system_log_density
from ._preconditioner import cholesky, solve_lower, solve_transposed, times, times_transposed
from ._state import Chains, GroupKeys, Info, choose_fields, uniforms_by_group
from ._student import mostly_long, student_numbers, student_step

LEAST_ACCEPTANCE = 0.3  # below it a step of MALA is worth more
MEMORY = 0.05
LEAST_GROWN = (
    0.05  # e^(n theta) over what it is at its usual place: linear in what stands above, it might become nothing
)


class IndependenceTuning(NamedTuple):
    information: Float[Array, "group system own own"]
    pull: Float[Array, "group system own"]
    bound: Float[Array, "group system own top"] | None  # to what stands above the systems, if anything does
    center: Float[Array, "group top"] | None
    theta: Float[Array, "group system parameter"]  # where the prior is expanded
    power: Float[
        Array, "group own"
    ]  # n: the mean of e^(n theta) is linear in what stands above; of theta itself where it is 0
    acceptance: Float[Array, "group system"]  # lately, while tuning


class Independence(Kernel):
    """Draws theta of every system from its Gauss-Newton conditional, and accepts or rejects each on its own."""

    shared: tuple[bool, ...] | None = eqx.field(static=True, default=None)
    logs: tuple[bool, ...] = eqx.field(static=True, default=())

    name = "independence"
    moves = ("theta",)
    learning = False
    replaces = "theta"

    def init(self, chains: Chains) -> IndependenceTuning:
        groups, _, systems, parameters = chains.theta.shape
        own, top = len(self._own(parameters)), self._top(chains).shape[-1]
        shape = (groups, systems, own)
        eye = jnp.broadcast_to(jnp.eye(own), (*shape, own))
        zero = jnp.zeros((groups, systems, parameters))
        bound, center = (jnp.zeros((*shape, top)), jnp.zeros((groups, top))) if top else (None, None)
        straight = jnp.zeros((groups, own))
        return IndependenceTuning(eye, jnp.zeros(shape), bound, center, zero, straight, jnp.ones(shape[:2]))

    def step(
        self, keys: GroupKeys, chains: Chains, tuning: IndependenceTuning, posterior: Target
    ) -> tuple[Chains, Info]:
        theta = chains.theta
        own, shape = self._own(theta.shape[-1]), theta.shape[:3]
        lower, mean = self._conditional(chains, tuning, posterior)
        count, many = (*shape[1:], len(own)), (student_numbers(len(own)), *shape[1:])
        xi, spread, short, *tests = uniforms_by_group(keys, count, many, shape[1:], shape[1:], shape[1:])
        z = times_transposed(lower, theta[..., own] - mean)
        drawn, by_step = student_step(z, normal(xi), spread, mostly_long(short))
        moved = chains._replace(theta=theta.at[..., own].set(mean + solve_transposed(lower, drawn)))
        proposed = posterior.refresh(moved)
        before, after = (system_log_density(posterior, state) for state in (chains, proposed))
        log_ratio = after - before + by_step
        random = Randomness(xi, *map(jnp.log, tests))
        accept, info = decide(random, posterior, chains, proposed, log_ratio, jnp.isfinite(after))
        return choose_fields(accept, proposed, chains, ("theta", "cache")), info

    def adapt(self, tuning: IndependenceTuning, info: Info, rate: Array | float) -> IndependenceTuning:
        lately = jnp.mean(info.acceptance, axis=1) - tuning.acceptance
        return tuning._replace(acceptance=tuning.acceptance + MEMORY * jnp.where(rate > 0, lately, 0.0))

    def fails(self, tuning: IndependenceTuning) -> Int[np.ndarray, " failing"]:
        return np.flatnonzero(np.min(np.asarray(tuning.acceptance), axis=0) < LEAST_ACCEPTANCE)

    def tune(self, tuning: IndependenceTuning, draws: Chains, posterior: Target) -> IndependenceTuning:
        assert isinstance(posterior, Posterior), "information is asked of a likelihood"
        top, own = np.asarray(self._top(draws), float), self._own(draws.theta.shape[-1])
        (told, curves), parts = self._along_curves(draws, posterior), []
        for group, (power, at) in enumerate(zip(*curves)):
            part, center = told.of(group), top[group].mean(axis=0)
            bound = self._bound(part)
            inner = part.theta[:, own][:, :, own]
            parts.append((inner, part.pull[:, own] - bound @ center, bound, center, at, power[own]))
        made = [jnp.asarray(np.stack(x), float) for x in zip(*parts)]
        return IndependenceTuning._make([*(x if x.size else None for x in made), tuning.acceptance])

    def _bound(self, told: Information) -> Float[np.ndarray, "system own top"]:
        """How theta of each system is bound to shared parameters and laws' coordinates."""
        own = self._own(told.theta.shape[-1])
        held = np.setdiff1d(np.arange(told.theta.shape[-1]), own)
        return np.concatenate([told.theta[:, own][:, :, held], told.cross[:, own]], axis=2)

    def _along_curves(self, draws: Chains, posterior: Posterior) -> tuple[Information, Curves]:
        """Information along the curves that draws of theta lie nearest to, and these."""
        theta, top = np.asarray(draws.theta, float), np.asarray(self._top(draws), float)
        parameters = theta.shape[-1]
        power, at = np.zeros((len(theta), parameters)), theta.mean(axis=1)
        told, own = information(posterior, draws), self._own(parameters)
        logs = np.array(self.logs or (False,) * parameters)
        if not (top.shape[-1] and any(logs[own])):
            return told, (power, at)
        for group, prior in enumerate(precisions(posterior.population, draws)):
            part = told.of(group)
            follows = np.linalg.solve(part.theta[:, own][:, :, own] + prior.theta, self._bound(part))
            straight = -np.einsum("sot,dt->dso", follows, top[group] - top[group].mean(axis=0))
            found, places = curved(theta[group][..., own], straight, tuple(logs[own].tolist()))
            power[group, own], at[group][:, own] = found, np.where(found == 0, at[group][:, own], places)
        return information(posterior, draws, (power, at)) if power.any() else told, (power, at)

    def _conditional(self, chains: Chains, tuning: IndependenceTuning, posterior: Target) -> tuple[Array, Array]:
        """The Cholesky factor of the precision of every system, and its mean."""
        own, population = self._own(chains.theta.shape[-1]), posterior.population
        there = jnp.broadcast_to(tuning.theta[:, None], chains.theta.shape)
        if self.shared is not None:
            there = jnp.where(np.array(self.shared), chains.theta, there)
        slope = posterior.log_prior(chains._replace(theta=there))[1][..., own]
        if chains.phi:
            prior = jax.vmap(jax.vmap(population.precision))(chains.phi)
        else:
            prior = jnp.broadcast_to(population.precision(()), (*chains.theta.shape[:2], len(own), len(own)))
        precision = tuning.information[:, None] + prior[:, :, None]
        pull = jnp.broadcast_to(tuning.pull[:, None], slope.shape)
        if tuning.bound is not None and tuning.center is not None:
            away = self._top(chains) - tuning.center[:, None]
            pull = pull - jnp.einsum("gsot,gct->gcso", tuning.bound, away)
        pull = pull + slope + times(prior[:, :, None], there[..., own])
        lower = cholesky(precision)
        mean = solve_transposed(lower, solve_lower(lower, pull))
        return _off_curve(lower, mean, tuning.power[:, None, None], tuning.theta[:, None][..., own])

    def _own(self, parameters: int) -> np.ndarray:
        return np.flatnonzero(~np.array(self.shared or (False,) * parameters))

    def _top(self, chains: Chains) -> Float[Array, "group chain top"]:
        """Shared parameters and coordinates of laws."""
        held = np.flatnonzero(np.array(self.shared or (False,) * chains.theta.shape[-1]))
        return jnp.concatenate([chains.theta[:, :, 0, held], *coordinates(chains.law or {}).values()], axis=-1)


def _off_curve(lower: Array, mean: Array, power: Array, at: Array) -> tuple[Array, Array]:
    """Factor and mean of theta, from those of eta (see `on_curve`)."""
    some = jnp.where(power == 0, 1.0, power)
    grown = jnp.where(power == 0, 1.0, jnp.maximum(1 + power * (mean - at), LEAST_GROWN))
    return grown[..., None] * lower, jnp.where(power == 0, mean, at + jnp.log(grown) / some)
