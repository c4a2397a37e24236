"""Ensemble-preconditioned MALA over groups of chains.

    x' = x + gamma C grad log p(x) + sqrt(2 gamma) L eps,   C = L L^T,   accepted by Metropolis-Hastings

Blocks are proposed and accepted on their own: given the population the systems are independent, so a block is a system.
Groups share nothing: no covariance, no step size, no starting point.

Where C comes from decides whether the chains sample the posterior:

- `halves`: chains of one half move with the covariance of the other half, in turn. Exact.
- `frozen`: a covariance fixed beforehand. Exact.
- `self`: a covariance that includes the chain it moves, as published. Biased: on N(0, I) with six chains in two dimensions
  the variance comes out 0.5 to 1.3 depending on the step, with healthy acceptance, R-hat and ESS.
"""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compile import jit_soon
from ._accept import Randomness, by_halves, decide, is_finite, randomness
from ._blocks import Blocks, log_density
from ._kernel import Kernel
from ._posterior import Target
from ._some_systems import SomeSystems
from ._state import Cache, Chains, GroupKeys, Info

TARGET_ACCEPTANCE = 0.574
# In units of the preconditioner a good step is of order one: beyond these bounds acceptance tells nothing of the posterior.
STEP_BOUNDS = (1e-8, 10.0)
Covariance = Literal["halves", "self", "frozen"]


class MalaTuning(NamedTuple):
    log_step: Float[Array, "group block"]
    factor: Float[Array, "group block dim direction"]


class Mala(Kernel):
    """Moves every block of `blocks` by one step of MALA; one evaluation of the target a chain.

    - `covariance`: where the preconditioner comes from, see above; None for none at all.
    - `step_size`: its first value, adapted towards an acceptance of 0.574 in units of the preconditioner.
    - `metropolis`: accept or reject; without it the discretisation error stays in.
    """

    blocks: Blocks
    covariance: Covariance | None = eqx.field(static=True, default="halves")
    step_size: float = eqx.field(static=True, default=0.3)
    metropolis: bool = eqx.field(static=True, default=True)
    shrink: bool = eqx.field(static=True, default=True)

    gradients = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.blocks.name

    @property
    def moves(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.blocks.moves

    def init(self, chains: Chains) -> MalaTuning:
        position = self.blocks.split(chains)
        log_step = jnp.full((position.shape[0], position.shape[2]), np.log(self.step_size), position.dtype)
        return MalaTuning(log_step, self.blocks.identity(position))

    def step(self, keys: GroupKeys, chains: Chains, tuning: MalaTuning, posterior: Target) -> tuple[Chains, Info]:
        position = self.blocks.split(chains)
        random = randomness(keys, (*position.shape[:3], tuning.factor.shape[-1]))

        def move(random: Randomness, moving: Chains, factor: Array) -> tuple[Chains, Info]:
            return self._move(random, moving, MalaTuning(tuning.log_step, factor), posterior)

        if self.covariance in ("frozen", None):
            return move(random, chains, tuning.factor)
        if self.covariance == "self":
            return move(random, chains, self.blocks.factor(position, shrink=False))
        return by_halves(
            lambda random, moving, still: move(random, moving, self.blocks.factor(self.blocks.split(still))),
            random,
            chains,
        )

    def _move(self, random: Randomness, chains: Chains, tuning: MalaTuning, posterior: Target) -> tuple[Chains, Info]:
        gamma, factor = jnp.exp(tuning.log_step)[:, None, :, None], tuning.factor
        value, gradient = log_density(self.blocks, chains, posterior)
        drift = jnp.sqrt(0.5 * gamma) * _apply_transposed(factor, gradient)
        step = jnp.sqrt(2 * gamma) * _apply(factor, drift + random.proposal)
        proposed = posterior.refresh(self.blocks.join(chains, self.blocks.split(chains) + step))
        value_new, gradient_new = log_density(self.blocks, proposed, posterior)
        # The randomness that would lead back, in the same units: no triangular solve.
        back = random.proposal + drift + jnp.sqrt(0.5 * gamma) * _apply_transposed(factor, gradient_new)
        log_ratio = value_new - value + 0.5 * jnp.sum(random.proposal**2 - back**2, axis=-1)
        finite = is_finite(value_new, gradient_new)
        accept, info = decide(random, posterior, chains, proposed, log_ratio, finite, self.blocks.reduce)
        return self.blocks.choose(accept if self.metropolis else finite, proposed, chains), info

    def adapt(self, tuning: MalaTuning, info: Info, rate: Array | float) -> MalaTuning:
        """Follow Robbins and Monro towards the acceptance at which MALA is most efficient."""
        log_step = tuning.log_step + rate * (jnp.mean(info.acceptance, axis=1) - TARGET_ACCEPTANCE)
        if self.covariance is not None:
            log_step = jnp.clip(log_step, *np.log(STEP_BOUNDS))
        return tuning._replace(log_step=log_step)

    def tune(self, tuning: MalaTuning, draws: Chains, posterior: Target) -> MalaTuning:
        if self.covariance is None:
            return tuning
        return tuning._replace(factor=jit_soon(_factor_of)(self, draws._replace(cache=Cache(()))))

    def of_systems(self, systems: tuple[int, ...]) -> Kernel:
        return SomeSystems(self, systems) if self.blocks.by_system else self

    def frozen(self) -> "Mala":
        return self if self.covariance is None else dataclasses.replace(self, covariance="frozen")


def _factor_of(kernel: "Mala", draws: Chains) -> Array:
    return kernel.blocks.factor(kernel.blocks.split(draws), kernel.shrink)


def _apply(factor: Array, x: Array) -> Array:
    """L x over group and block, for every chain; small ones as plain sums, which fuse with what surrounds them."""
    if max(factor.shape[-2:]) > 8:
        return jnp.einsum("gbij,gcbj->gcbi", factor, x)
    return jnp.sum(factor[:, None] * x[..., None, :], axis=-1)


def _apply_transposed(factor: Array, x: Array) -> Array:
    return _apply(jnp.swapaxes(factor, -1, -2), x)
