"""Compiled programs over all devices: groups of chains are spread over them, laws and surrogate are the same everywhere."""

import time
from collections.abc import Callable

import equinox as eqx
import jax
from jax.sharding import Mesh, PartitionSpec as Spec
from jaxtyping import PyTree

from .._compile import compiled
from ._setup import AXIS, Setup, State

GROUPS, SAME, DRAWS = Spec(AXIS), Spec(), Spec(None, AXIS)
# Which leaves of the state are split over devices by their group axis.
STATE = State(keys=GROUPS, chains=GROUPS, tuning=GROUPS, law=SAME, surrogate=SAME, replay=GROUPS, ranges=SAME)  # type: ignore[arg-type]


class Program:
    """`function(setup, ...)` over all devices, compiled once, ahead of its first call.

    The setup's arrays are arguments, so other data of the same shape find it in the compilation cache.
    """

    def __init__(self, function: Callable[..., PyTree], setup: Setup, mesh: Mesh, in_specs: PyTree, out_specs: PyTree):
        self.arrays, static = eqx.partition(setup, eqx.is_array)

        def whole(arrays: Setup, *rest: PyTree) -> PyTree:
            return function(eqx.combine(arrays, static), *rest)

        specs = {"in_specs": (SAME, *in_specs), "out_specs": out_specs}
        if mesh.size > 1:
            spread = jax.shard_map(whole, mesh=mesh, check_vma=False, **specs)
        else:
            spread = jax.vmap(whole, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1)
        self._jitted = jax.jit(spread)
        self._soon = not setup.exact.forward.problem.expensive
        self._compiled: jax.stages.Compiled | None = None
        self.seconds_compile = 0.0

    def __call__(self, *rest: PyTree) -> PyTree:
        if self._compiled is None:
            start = time.perf_counter()
            self._compiled = compiled(self._jitted.lower(self.arrays, *rest), self._soon)
            self.seconds_compile = time.perf_counter() - start
        return self._compiled(self.arrays, *rest)
