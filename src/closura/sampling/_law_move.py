"""Moves of sampled laws: a law, its size and everything that follows it, at once.

    b = W^-1 a,   z = M^-1 ((b - mean(s)) sqrt(precision(s)) - shift)        about standard normal under the posterior
    z' = sqrt(1 - eta^2) z + eta xi,    log s^2' = log s^2 + step xi_0
    theta_k' = theta_k + T_k (a' - a),   mu' = mu + T_mu (a' - a)            the shear: its Jacobian is one

W makes the Gauss-Newton posterior of a (theta and mu eliminated) diagonal for every size s; xi is Student's t, scaled as
given z, where data speak, and normal where they do not: there the move draws independently from the prior. One test for all
systems accepts or rejects. All constants are frozen once draws are kept, so that the posterior is invariant.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..population import NUMBERS, normal, slice_draw, uniforms
from ._accept import Randomness, decide
from ._kernel import Kernel, Tuning
from ._posterior import Posterior
from ._state import Chains, GroupKeys, Info, choose_fields

DEGREES = 8  # of freedom of the proposal
TARGET = 0.35
SHORT, SHORTEST = 0.25, 4.0  # so many proposals are short, by factors down to exp(-4): they lead out of tails


class LawTuning(NamedTuple):
    """Constants of the move, of every group; r coordinates are moved."""

    whiten: Float[Array, "group r r"]  # b from a
    color: Float[Array, "group r r"]  # a from b
    share: Float[Array, "group r"]  # q: what the prior's flexible part holds of the precision of b, at `size`
    size: Float[Array, " group"]
    pull: Float[Array, "group r"]  # the precision of b times its mean
    free: Bool[Array, "group r"]
    shift: Float[Array, "group r"]
    stretch: Float[Array, "group r r"]
    unstretch: Float[Array, "group r r"]
    theta: Float[Array, "group system parameter r"]
    mean: Float[Array, "group own r"]
    others: Float[Array, "group other r"]
    log_reach: Float[Array, " group"]

    def standard(self, log_size: Float[Array, "group chain"]) -> tuple[Array, Array]:
        """Precision and mean of b under the Gauss-Newton posterior, given log s^2."""
        ratio = jnp.exp(self.size[:, None] - log_size)[..., None]
        precision = (1 - self.share)[:, None] + self.share[:, None] * ratio
        return precision, self.pull[:, None] / precision


def _times(matrix: Float[Array, "group i j"], x: Float[Array, "group chain j"]) -> Array:
    return jnp.einsum("gij,gcj->gci", matrix, x)


class LawMove(Kernel):
    """Moves the law `law`, its size, and theta, the population's mean and other laws with it."""

    law: str = eqx.field(static=True)
    size_step: float = eqx.field(static=True, default=1.0)

    moves = ("law", "theta", "phi")

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"law {self.law}"

    def init(self, chains: Chains) -> LawTuning:
        groups, _, systems, parameters = chains.theta.shape
        r = chains.law[self.law].weights.shape[-1]
        others = sum(w.shape[-1] for n, w in _weights(chains).items() if n != self.law)
        own = chains.phi.mu.shape[-1] if hasattr(chains.phi, "mu") else 0
        eye = jnp.broadcast_to(jnp.eye(r), (groups, r, r))
        zero = jnp.zeros((groups, r))
        shears = (jnp.zeros((groups, *shape, r)) for shape in ((systems, parameters), (own,), (others,)))
        none = jnp.zeros(groups)
        return LawTuning(eye, eye, zero, none, zero, zero.astype(bool), zero, eye, eye, *shears, none)

    def step(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Posterior) -> tuple[Chains, Info]:
        law = chains.law[self.law]
        a, log_size = law.weights, law.log_size
        shape, r = a.shape[:2], a.shape[2]

        def one_group(key: PRNGKeyArray) -> list[Array]:
            count = shape[1]
            return uniforms(key, (count, r), (count, r + DEGREES), (count,), (count,), (count,), (count,))

        xi, chi, xi_size, short, *tests = jax.vmap(one_group)(keys)
        precision, mean = tuning.standard(log_size)
        away = (_times(tuning.whiten, a) - mean) * jnp.sqrt(precision) - tuning.shift[:, None]
        z = _times(tuning.unstretch, away)
        # Most steps are long; the others are short in everything, their sizes even on a log scale.
        factor = jnp.exp(-SHORTEST * jnp.maximum(short - (1 - SHORT), 0.0) / SHORT)
        new_size = log_size + factor * self.size_step * normal(xi_size)
        free, speaking = tuning.free[:, None], ~tuning.free[:, None]
        eta = factor[..., None] * jnp.where(free, 1.0, jnp.exp(tuning.log_reach)[:, None, None])
        ones = jnp.ones((*speaking.shape[:2], DEGREES), bool)
        chi_square = jnp.sum(jnp.concatenate([ones, speaking], axis=-1) * normal(chi) ** 2, axis=-1)
        spread = jnp.sqrt((DEGREES + _square(z, speaking)) / chi_square)[..., None]
        new_z = jnp.sqrt(1 - eta**2) * z + eta * jnp.where(free, 1.0, spread) * normal(xi)
        new_precision, new_mean = tuning.standard(new_size)
        away = _times(tuning.stretch, new_z) + tuning.shift[:, None]
        new_a = _times(tuning.color, new_mean + away / jnp.sqrt(new_precision))
        moved = sheared(chains, tuning, self.law, new_a - a, posterior.population.shared)
        moved.law[self.law] = eqx.tree_at(lambda l: l.log_size, moved.law[self.law], new_size)
        proposed = posterior.refresh(moved)
        before, after = (_log_density(posterior, state) for state in (chains, proposed))
        # What pCN leaves invariant in z, and the volume da / dz.
        log_ratio = after - before + _log_student(z, free) - _log_student(new_z, free)
        log_ratio -= 0.5 * jnp.sum(jnp.log(new_precision / precision), axis=-1)
        finite = jnp.all(jnp.isfinite(posterior.loglik_and_grad(proposed)[0]), axis=-1)[..., None]
        random = Randomness(xi, *(jnp.log(test)[..., None] for test in tests))
        accept, info = decide(random, posterior, chains, proposed, log_ratio[..., None], finite, _sum)
        return choose_fields(accept[..., 0], proposed, chains, ("theta", "phi", "law", "cache")), info

    def adapt(self, tuning: LawTuning, info: Info, rate: Array | float) -> LawTuning:
        reach = tuning.log_reach + rate * (jnp.mean(info.acceptance, axis=(1, 2)) - TARGET)
        return tuning._replace(log_reach=jnp.clip(reach, -6.0, 0.0))


class LawSize(Kernel):
    """Draws the size of every law given its coordinates: log s^2 | a, by slice sampling."""

    name = "law size"
    moves = ("law",)

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Posterior) -> tuple[Chains, None]:
        count, laws = chains.theta.shape[1], dict(chains.law)
        for number, name in enumerate(_weights(chains)):
            frame = posterior.ranges[name]

            def draw(uniform: Array, law, frame=frame) -> Array:
                def log_density(log_size: Array) -> Array:
                    return eqx.tree_at(lambda l: l.log_size, law, log_size).log_prior(frame, None)

                return slice_draw(uniform, law.log_size, log_density, 8.0)

            mine = jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(keys)
            (uniform,) = jax.vmap(lambda key: uniforms(key, (count, NUMBERS)))(mine)
            drawn = jax.vmap(jax.vmap(draw))(uniform, laws[name])
            laws[name] = eqx.tree_at(lambda l: l.log_size, laws[name], drawn)
        return chains._replace(law=laws), None


def sheared(chains: Chains, tuning: LawTuning, law: str, change: Array, shared: tuple[bool, ...] | None) -> Chains:
    """The chains with a law changed, and theta, population mean and other laws following; sizes stay."""
    theta = chains.theta + jnp.einsum("gspr,gcr->gcsp", tuning.theta, change)
    if shared is not None:  # the same in all systems to the last digit
        theta = jnp.where(np.array(shared), theta[..., :1, :], theta)
    phi = chains.phi
    if tuning.mean.shape[1]:
        phi = phi._replace(mu=phi.mu + _times(tuning.mean, change))
    laws, place, follow = dict(chains.law), 0, _times(tuning.others, change)
    for name, weights in _weights(chains).items():
        count = weights.shape[-1]
        by = change if name == law else follow[..., place : place + count]
        place += 0 if name == law else count
        laws[name] = laws[name].with_weights(weights + by)
    return chains._replace(theta=theta, phi=phi, law=laws)


def _weights(chains: Chains) -> dict[str, Array]:
    return {name: law.weights for name, law in chains.law.items() if law.weights is not None}


def _log_density(posterior: Posterior, chains: Chains) -> Float[Array, "group chain"]:
    loglik = posterior.temperature * posterior.loglik_and_grad(chains)[0]
    return posterior.log_joint(chains, loglik)


def _square(z: Array, which: Array) -> Array:
    return jnp.sum(jnp.where(which, z**2, 0.0), axis=-1)


def _log_student(z: Array, free: Array) -> Array:
    speaking = jnp.sum(~free, axis=-1)
    tails = -0.5 * (DEGREES + speaking) * jnp.log1p(_square(z, ~free) / DEGREES)
    return tails - 0.5 * _square(z, free)


def _sum(value: Array) -> Array:
    return jnp.sum(value, axis=-1, keepdims=True)
