"""Chains in a hopeless corner: while a run still learns, they go on from where another chain of their group stands."""

from typing import Any

import jax
import numpy as np

from .algorithm import Chains, Setup

ENOUGH = 10.0  # nats, beyond what chains of one mode differ by


def allowed(dimension: int) -> float:
    """How far below the best of its group a log density may be: chi-square / 2 of the dimension, five sds above its mean, and more."""
    return float(ENOUGH + 0.5 * dimension + 5 * np.sqrt(0.5 * dimension))


def rescued(setup: Setup, chains: Chains, seed: int) -> tuple[Chains, int]:
    """The chains with theta of some systems replaced, and of how many.

    A tempered start finds most ways out of local modes, not all; a chain that is left behind by more than `allowed` in log posterior
    density would never leave. Groups stay apart: whether they agree is what tells convergence.
    """
    if setup.settings.blocks == "joint":
        return chains, 0

    def density(chains: Chains) -> Any:
        above = setup.above(chains)
        return setup.weigh.fit(chains.ensemble.fit, above)[0] + setup.prior(chains.ensemble.position, above)[0]

    log_density = np.asarray(jax.jit(density)(chains), float)
    dimension = chains.ensemble.position.shape[-1]
    if setup.shared is not None:  # then whole chains are left behind
        dimension *= log_density.shape[2]
        log_density = np.broadcast_to(np.sum(log_density, axis=2, keepdims=True), log_density.shape)
    log_density = np.where(np.isfinite(log_density), log_density, -np.inf)
    behind = log_density < np.max(log_density, axis=1, keepdims=True) - allowed(dimension)
    donors = ~behind & np.isfinite(log_density)
    behind &= donors.any(axis=1, keepdims=True)
    if not behind.any():
        return chains, 0
    # A random chain that is not behind itself, of the same group.
    order, choice = (np.random.default_rng(seed + i).random(behind.shape) for i in (0, 1))
    if setup.shared is not None:
        order, choice = (np.broadcast_to(numbers[..., :1], behind.shape) for numbers in (order, choice))
    rank = np.argsort(np.where(donors, order, np.inf), axis=1)
    count = donors.sum(axis=1, keepdims=True)
    pick = np.take_along_axis(rank, np.floor(choice * count).astype(int), 1)
    source = np.where(behind, pick, np.arange(behind.shape[1])[None, :, None])

    def moved(leaf: Any) -> Any:
        index = source.reshape(*source.shape, *[1] * (leaf.ndim - 3))
        return np.take_along_axis(np.asarray(leaf), index, axis=1)

    return chains._replace(ensemble=jax.tree.map(moved, chains.ensemble)), int(behind.sum())
