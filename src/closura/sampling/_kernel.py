"""Kernels, and the sweep that composes them."""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._posterior import Target
from ._state import Chains, GroupKeys, Info, Told, split_keys

K = TypeVar("K", bound="Kernel")
Tuning = PyTree  # what a kernel adapts while it warms up; every array has the group axis first


class Kernel(eqx.Module):
    """A Markov kernel on the chains' state that leaves the posterior invariant.

    A kernel is a PyTree without arrays (its options are static), so that lists of kernels can be compiled. It has

    - `name`: of its tuning in the run's state and in checkpoints; unique in a sweep.
    - `moves`: the fields of `Chains` it changes. Where the cache depends on one of them (`DEPENDS_ON`), `step` returns
      chains whose cache is that of their new positions.
    - `leap`: run in turn with other leaps, one before each kept draw, instead of in every iteration.
    - `learning`: run while laws are learned too; a kernel that moves laws is not.
    - `gradients`: needs the gradient of the likelihood in the cache; `scores`: needs predictions there.
    - `replaces`: the name of the kernel in whose place it runs once draws have settled; systems where it fails are handed back
      to that one, which then runs beside it.

    and the methods below; only `step` must be written.
    """

    name: ClassVar[str]
    moves: ClassVar[tuple[str, ...]]
    leap: ClassVar[bool] = False
    learning: ClassVar[bool] = True
    gradients: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    replaces: ClassVar[str | None] = None

    def init(self, chains: Chains) -> Tuning:
        """Step sizes, preconditioners, whatever is adapted; () for nothing."""
        return ()

    @abc.abstractmethod
    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, PyTree]:
        """Move every chain once. `keys` is one key a group: groups share nothing. Moves that may be rejected tell `Info`."""

    def adapt(self, tuning: Tuning, info: PyTree, rate: Float[Array, ""] | float) -> Tuning:
        """Follow what a step told, at a rate that is zero once draws are kept."""
        return tuning

    def tune(self, tuning: Tuning, draws: Chains, posterior: Target) -> Tuning:
        """Learn from many draws at once, with the chain axis over all of them; called between chunks of warm-up."""
        return tuning

    def dispersed(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> Chains:
        """The chains, apart from each other in what only this kernel moves; called once, when sampling begins. The cache is
        that of where chains were."""
        return chains

    def fails(self, tuning: Tuning) -> Int[np.ndarray, " failing"]:
        """Rows of the systems where it is no use, as far as warm-up could tell. Asked of kernels that run in the place of
        others."""
        return np.zeros(0, int)

    def of_systems(self: K, systems: tuple[int, ...]) -> "Kernel":
        """The same kernel for these systems alone; where it cannot be, for all of them."""
        return self

    def moved_blocks(self, count: int) -> Bool[np.ndarray, " block"]:
        """Which of so many blocks, of which there are step sizes, it moves."""
        return np.ones(count, bool)

    def frozen(self: K) -> K:
        """The same kernel for draws that are kept: nothing in it depends on where chains stand now."""
        return self


def sweep(
    kernels: Sequence[Kernel],
    keys: GroupKeys,
    chains: Chains,
    tuning: Mapping[str, Tuning],
    posterior: Target,
    rate: Float[Array, ""] | float = 0.0,
) -> tuple[Chains, dict[str, Tuning], Told]:
    """Run every kernel once, in the order of the list; returns what they told of all blocks, side by side."""
    after, none = dict(tuning), jnp.zeros((*chains.theta.shape[:2], 0))
    told = [Info(none, none.astype(bool), none)]
    laws = told.copy()
    for kernel, own in zip(kernels, split_keys(keys, len(kernels))):
        chains, info = kernel.step(own, chains, tuning[kernel.name], posterior)
        after[kernel.name] = kernel.adapt(tuning[kernel.name], info, rate)
        if isinstance(info, Info):
            told.append(info)
            laws += [info] if "law" in kernel.moves else []
    return chains, after, Told(*_beside(told), _beside(laws))


def _beside(told: Sequence[Info]) -> Info:
    return jax.tree.map(lambda *blocks: jnp.concatenate(blocks, axis=2), *told)


def init_all(kernels: Sequence[Kernel], chains: Chains) -> dict[str, Tuning]:
    """First tuning of every kernel, by its name."""
    return {kernel.name: kernel.init(chains) for kernel in kernels}
