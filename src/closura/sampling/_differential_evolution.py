"""Differential evolution (ter Braak 2006), with the two halves of a group in turn."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._accept import Randomness, by_halves, decide, randomness
from ._blocks import SystemBlocks
from ._kernel import Kernel, Tuning
from ._posterior import Target, system_log_density
from ._state import Chains, GroupKeys, Info


class DifferentialEvolution(Kernel):
    """Moves every system of every chain by the difference of two chains of the other half of its group.

    That leads from one solution of the equations to another where a few data leave several. Either of the two chains may
    come first, so the proposal is as likely as its way back. Exact. Parameters that are `shared` by all systems stay.
    """

    shared: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    name = "differential_evolution"
    moves = ("theta",)
    leap = True

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, Info]:
        groups, count, systems, _ = chains.theta.shape
        half, blocks = count // 2, SystemBlocks()

        def made(uniform: Array) -> Array:
            return jnp.minimum((half * uniform).astype(int), half - 1)

        def move(random: Randomness, moving: Chains, still: Chains) -> tuple[Chains, Info]:
            one, other = (jnp.take_along_axis(still.theta, random.proposal[..., i, None], axis=1) for i in (0, 1))
            away = one - other
            if self.shared is not None:
                away = jnp.where(np.array(self.shared), 0.0, away)
            proposed = posterior.refresh(moving._replace(theta=moving.theta + away))
            value = system_log_density(posterior, proposed)
            log_ratio = value - system_log_density(posterior, moving)
            accept, info = decide(random, posterior, moving, proposed, log_ratio, jnp.isfinite(value))
            return blocks.choose(accept, proposed, moving), info

        return by_halves(move, randomness(keys, (groups, count, systems, 2), made), chains)
