"""Learning of sampled laws by the solver alone, before any surrogate: Gauss-Newton steps of parameters and laws together.

    (theta, mu, a) <- (theta, mu, a) + t (H + P)^-1 g,      t the best of a few lengths by the tempered density itself

H is Fisher's information of the data at one chain of every group, P the precision of the prior, g the gradient. A round takes
one solve with sensitivities a system and group, where chains would take hundreds to find the same place. It finds the mode
near which posteriors of fields lie; chains then begin from the Gauss-Newton posterior about it, and correct it.

The first chain of a group is where the group is; the others have its law, and draws of theta about it, from which the
population and the size of the noise are drawn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ..population import normal
from ..sampling import Cache, Chains, GroupKeys, Kernel, Posterior, per_group, sweep, uniforms_by_group
from ..sampling._gauss_newton import above, coordinates, information, precisions
from ..sampling._law_move import moved_along

LENGTHS = 1.0, 0.5, 0.2, 0.05, 0.0
GIBBS = 3  # draws of the population in a round
# The Newton decrement at which a mode is found, less than a posterior standard deviation away, and at which it is near enough to
# tell where solutions go.
ARRIVED, NEARLY_ARRIVED = 1.0, 5.0


class Quadratic(NamedTuple):
    """The density about the first chain of a group, to second order: the step to its mode, the decrement, and precisions of
    theta given all else, and of means, shared parameters and laws when theta is eliminated."""

    theta: Float[np.ndarray, "system parameter"]
    top: Float[np.ndarray, " above"]
    decrement: float
    inner: Float[np.ndarray, "system own own"]
    follows: Float[np.ndarray, "system own above"]
    left: Float[np.ndarray, "above above"]
    means: int  # of `above`, how many are population means
    shared: int  # and how many shared parameters
    own: np.ndarray
    held: np.ndarray

    def moved(self, top: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Changes of (system, parameter), population means and laws, where what stands above the systems changes by `top`."""
        theta = np.zeros((*top.shape[:-1], *self.theta.shape))
        theta[..., self.own] = -np.einsum("sor,...r->...so", self.follows, top)
        rest = self.means + self.shared
        theta[..., self.held] = top[..., None, self.means : rest]
        return theta, top[..., : self.means], top[..., rest:]


def quadratics(posterior: Posterior, chains: Chains, temperature: float) -> list[Quadratic]:
    """Of every group, by the solver's sensitivities at its first chain; the population is averaged over chains."""
    told = information(posterior, _first(chains))
    slope = np.asarray(jit_soon(_prior_slope)(posterior, chains), float)
    found = []
    for group, prior in enumerate(precisions(posterior.population, chains)):
        part = told.of(group, temperature)
        theta = np.asarray(chains.theta[group, 0], float)
        a, precision = _law_prior(posterior, chains, group)
        gradient = part.pull - np.einsum("sij,sj->si", part.theta, theta) - part.cross @ a
        left, follows, inner = above(part, prior)
        own, held = prior.own, prior.held
        means, shared = (len(own) if prior.mean is not None else 0), len(held)
        rest = means + shared
        left[np.arange(rest, len(left)), np.arange(rest, len(left))] += precision
        by_own = gradient[:, own] + slope[group][:, own]
        # The population's mean is drawn given theta: there it has no gradient of its own.
        by_held = gradient[:, held].sum(axis=0) + slope[group][0, held]
        by_law = part.score - precision * a
        pull = np.concatenate([np.zeros(means), by_held, by_law]) - np.einsum("sor,so->r", follows, by_own)
        top = np.linalg.solve(left, pull)
        alone = np.linalg.solve(inner, by_own[..., None])[..., 0]
        decrement = float(pull @ top + np.sum(by_own * alone))
        whole = Quadratic(theta, top, decrement, inner, follows, left, means, shared, own, held)
        step = whole.moved(top)[0]
        step[:, own] += alone
        found.append(whole._replace(theta=step))
    return found


def gauss_newton_round(
    keys: GroupKeys, posterior: Posterior, kernels: list[Kernel], tuning: PyTree, chains: Chains, temperature: float
) -> tuple[Chains, list[Quadratic], Float[np.ndarray, " group"]]:
    """The chains after one step of every group and draws of the population by these kernels; what the step was taken from,
    and how long it was. The cache is that of where chains were."""
    told = quadratics(posterior, chains, temperature)
    parts = [quadratic.moved(quadratic.top) for quadratic in told]
    steps = [np.stack([q.theta for q in told]), *(np.stack([p[i] for p in parts]) for i in (1, 2))]
    theta, mean, law = (jnp.asarray(step, chains.theta.dtype)[:, None] for step in steps)
    density = np.asarray(jit_soon(_densities)(posterior, chains, theta, mean, law, jnp.asarray(temperature)), float)
    best = np.argmax(np.where(np.isfinite(density), density, -np.inf), axis=1)
    length = np.array(LENGTHS)[best]
    by = jnp.asarray(length, chains.theta.dtype)[:, None]
    key_theta, key_gibbs = per_group(keys, 1), per_group(keys, 2)
    chains = _stepped(posterior, chains, by[..., None, None] * theta, by[..., None] * mean, by[..., None] * law)
    chains = _about_first(key_theta, chains, told)
    chains = jit_soon(_gibbs)(posterior, kernels, tuning, key_gibbs, chains)
    return chains, told, length


def drawn(
    keys: GroupKeys, chains: Chains, told: list[Quadratic], slots: int, wider: float = 1.0
) -> tuple[Float[Array, "group slot system parameter"], PyTree]:
    """Theta of every system, each with a law of its own, from the quadratic approximation about the first chain of every group,
    so many times wider."""
    groups, _, systems, parameters = chains.theta.shape
    count, each = slots * systems, np.arange(systems)
    above_all, below = uniforms_by_group(keys, (count, len(told[0].left)), (slots, systems, parameters))
    thetas, laws = [], []
    for group, quadratic in enumerate(told):
        z, below_z = (np.asarray(normal(u[group]), float) for u in (above_all, below))
        top = wider * np.linalg.solve(np.linalg.cholesky(quadratic.left).T, z.T).T
        theta, _, law = quadratic.moved(top)
        theta = theta.reshape(slots, systems, systems, parameters)[:, each, each]
        theta[..., quadratic.own] += wider * _whitened(quadratic, below_z)
        thetas.append(np.asarray(chains.theta[group, 0], float) + theta)
        laws.append(law)
    kind = chains.theta.dtype
    first = jax.tree.map(lambda a: jnp.broadcast_to(a[:, :1], (groups, count, *a.shape[2:])), chains.law)
    made = _with_change(first, jnp.asarray(np.stack(laws), kind))
    by_system = jax.tree.map(lambda a: a.reshape(groups, slots, systems, *a.shape[2:]), made)
    return jnp.asarray(np.stack(thetas), kind), by_system


def _whitened(quadratic: Quadratic, z: np.ndarray) -> np.ndarray:
    """Draws of theta given all that stands above, about zero, from standard normal numbers (draw, system, parameter)."""
    lower = np.linalg.cholesky(quadratic.inner)
    return np.linalg.solve(np.swapaxes(lower, 1, 2)[None], z[..., quadratic.own, None])[..., 0]


def _about_first(keys: GroupKeys, chains: Chains, told: list[Quadratic]) -> Chains:
    """All chains but the first of every group, with theta drawn about its own given the law."""
    shape = chains.theta.shape
    (uniform,) = uniforms_by_group(keys, shape[1:])
    theta = np.broadcast_to(np.asarray(chains.theta[:, :1], float), shape).copy()
    for group, quadratic in enumerate(told):
        away = _whitened(quadratic, np.asarray(normal(uniform[group]), float))
        theta[group][..., quadratic.own] += np.where(np.arange(shape[1])[:, None, None] > 0, away, 0.0)
    return chains._replace(theta=jnp.asarray(theta, chains.theta.dtype))


def best_first(posterior: Posterior, chains: Chains) -> Chains:
    """The chains with the first of every group where the most probable of them is."""
    density = np.asarray(jit_soon(_values)(posterior, chains), float)
    best = np.argmax(np.where(np.isfinite(density), density, -np.inf), axis=1)
    first = jnp.take_along_axis(chains.theta, jnp.asarray(best)[:, None, None, None], axis=1)
    return chains._replace(theta=chains.theta.at[:, :1].set(first))


def _values(posterior: Posterior, chains: Chains) -> Float[Array, "group chain"]:
    return jnp.sum(posterior.loglik_at(chains), axis=-1)


def _first(chains: Chains) -> Chains:
    return jax.tree.map(lambda a: a[:, :1], chains._replace(cache=Cache(())))


def _law_prior(posterior: Posterior, chains: Chains, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all laws, one after the other: where they are, and their precision before data."""
    parts = []
    for name, weights in coordinates(chains.law).items():
        precision = posterior.ranges[name].precision(jnp.asarray(chains.law[name].log_size[group, 0]))
        parts.append([np.asarray(x, float) for x in (weights[group, 0], precision)])
    a, precision = (np.concatenate(part) for part in zip(*parts))
    return a, precision


def _prior_slope(posterior: Posterior, chains: Chains) -> Float[Array, "group system parameter"]:
    """Of log p(theta | phi) at the first chain, averaged over what chains believe of the population."""
    there = chains._replace(theta=jnp.broadcast_to(chains.theta[:, :1], chains.theta.shape))
    return jnp.mean(posterior.log_prior(there)[1], axis=1)


def _stepped(posterior: Posterior, chains: Chains, theta: Array, mean: Array, law: Array) -> Chains:
    """The chains, all where the first of their group is, changed by so much."""
    there = chains._replace(theta=jnp.broadcast_to(chains.theta[:, :1], chains.theta.shape))
    changes = _by_name(chains.law, law)
    return moved_along(there, changes, theta, mean if mean.size else None, posterior.population)


def _by_name(laws: PyTree, change: Float[Array, "group draw coordinate"]) -> dict[str, Array]:
    held = coordinates(laws)
    ends = np.cumsum([w.shape[-1] for w in held.values()])
    return dict(zip(held, jnp.split(change, ends[:-1], axis=-1)))


def _with_change(laws: PyTree, change: Float[Array, "group draw coordinate"]) -> PyTree:
    by = _by_name(laws, change)
    return {name: law.with_weights(law.weights + by[name]) if name in by else law for name, law in laws.items()}


def _densities(
    posterior: Posterior, chains: Chains, theta: Array, mean: Array, law: Array, temperature: Array
) -> Float[Array, "group length"]:
    """Tempered log density after steps of several lengths, averaged over what chains believe of the population."""
    lengths = jnp.asarray(LENGTHS, chains.theta.dtype)
    by = lengths[None, :, None]
    places = _first(chains)
    many = jax.tree.map(lambda a: jnp.broadcast_to(a, (a.shape[0], len(LENGTHS), *a.shape[2:])), places)
    many = many._replace(theta=many.theta + by[..., None] * theta, law=_with_change(many.law, by * law))
    loglik = posterior.loglik_at(many)

    def believed(number: int) -> Array:
        """Of everything else, at one length, by every chain."""
        t = lengths[number]
        moved = _stepped(posterior, chains, t * theta, t * mean, t * law)
        return jnp.mean(posterior.log_joint(moved, jnp.zeros(moved.theta.shape[:3])), axis=1)

    others = jnp.stack([believed(i) for i in range(len(LENGTHS))], axis=1)
    return temperature * jnp.sum(loglik, axis=-1) + others


def _gibbs(posterior: Posterior, kernels: list[Kernel], tuning: PyTree, keys: GroupKeys, chains: Chains) -> Chains:
    if posterior.noise is not None:
        chains = posterior.refresh(chains)
    for number in range(GIBBS):
        chains = sweep(kernels, per_group(keys, number), chains, tuning, posterior, 0.0)[0]
    return chains
