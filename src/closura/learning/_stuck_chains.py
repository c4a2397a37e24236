"""Chains in a hopeless corner: while a run still learns, they go on from near where another chain of their group stands."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from .._compile import jit_soon
from ..sampling import Chains, Posterior, Tuning

Tuned = dict[str, Tuning]
LEFT_BEHIND = 10.0  # nats, beyond what chains of one mode differ by
NEAR = 0.05  # of the spread of the population: how far from its donor a chain goes on, so that no two are the same


def rescued(posterior: Posterior, chains: Chains, seed: int) -> tuple[Chains, int]:
    """The chains with theta of some systems replaced, and of how many; their cache is that of where they were.

    A tempered start finds most ways out of local modes, not all, and a chain left far behind would never leave. Groups stay
    apart: whether they agree is what tells convergence.
    """
    log_density, beside = jax.tree.map(np.asarray, jit_soon(_look)(posterior, chains, jnp.asarray(seed)))
    whole = posterior.population.shared is not None  # then whole chains are left behind
    source, count = _donors(log_density.astype(float), chains.theta.shape[-1], whole, seed)
    if not count:
        return chains, 0
    theta = np.asarray(chains.theta)
    moved = np.take_along_axis(theta, source[..., None], axis=1)
    stays = (source == np.arange(source.shape[1])[None, :, None])[..., None]
    if not whole:
        moved = moved + NEAR * beside
    return chains._replace(theta=jnp.asarray(np.where(stays, theta, moved), theta.dtype)), count


def rescued_groups(posterior: Posterior, chains: Chains, tuning: Tuned) -> tuple[Chains, Tuned, int]:
    """The chains with groups replaced by the best one, and of how many: those whose law and parameters are together so much less
    probable that they are no second solution. Step sizes go along, for those of a lost group suit no solution. What is left
    apart is for convergence to tell."""
    density = np.asarray(jit_soon(_joint)(posterior, chains), float)
    density = np.where(np.isfinite(density), density, -np.inf)
    whole = np.median(density, axis=1)
    laws = sum(law.weights.shape[-1] for law in chains.law.values() if law.weights is not None)
    behind = whole < whole.max() - allowed(int(np.prod(chains.theta.shape[2:])) + laws)
    if not behind.any():
        return chains, tuning, 0
    source = np.where(behind, int(np.argmax(whole)), np.arange(len(whole)))
    copied: PyTree = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[source]), (chains, tuning))
    return *copied, int(behind.sum())


def _joint(posterior: Posterior, chains: Chains) -> Array:
    return posterior.log_joint(chains, posterior.loglik(chains))


def allowed(dimension: int) -> float:
    """How far below the best of its group a log density may be: chi-square / 2 of the dimension, five sds above its mean, and more."""
    return float(LEFT_BEHIND + 0.5 * dimension + 5 * np.sqrt(0.5 * dimension))


def _look(posterior: Posterior, chains: Chains, seed: Int[Array, ""]) -> tuple[Array, Array]:
    """Log density of every system of every chain; and how far a random member of its population is from another."""
    density = posterior.loglik(chains) + posterior.log_prior(chains)[0]
    members = jax.vmap(jax.vmap(posterior.population.theta_from_normal))
    normal = jax.random.normal(jax.random.key(seed), chains.theta.shape)
    return density, members(chains.phi, normal) - members(chains.phi, jnp.zeros_like(normal))


def _donors(log_density: np.ndarray, dimension: int, whole: bool, seed: int) -> tuple[np.ndarray, int]:
    """(group, chain, system): the chain that each goes on from, mostly itself; and how many do not."""
    if whole:
        dimension *= log_density.shape[2]
        log_density = np.broadcast_to(np.sum(log_density, axis=2, keepdims=True), log_density.shape)
    log_density = np.where(np.isfinite(log_density), log_density, -np.inf)
    behind = log_density < np.max(log_density, axis=1, keepdims=True) - allowed(dimension)
    donors = ~behind & np.isfinite(log_density)
    behind &= donors.any(axis=1, keepdims=True)
    # A random chain that is not behind itself, of the same group.
    order, choice = (np.random.default_rng(seed + i).random(behind.shape) for i in (0, 1))
    if whole:
        order, choice = (np.broadcast_to(numbers[..., :1], behind.shape) for numbers in (order, choice))
    rank = np.argsort(np.where(donors, order, np.inf), axis=1)
    number = np.floor(choice * donors.sum(axis=1, keepdims=True)).astype(int)
    source = np.where(behind, np.take_along_axis(rank, number, 1), np.arange(behind.shape[1])[None, :, None])
    return source, int(behind.sum())
