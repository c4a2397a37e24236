"""Compiled programs over all devices: groups of chains are spread over them, laws and surrogate are the same everywhere."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import equinox as eqx
import jax
from jax.sharding import Mesh, PartitionSpec as Spec
from jaxtyping import PyTree

from .._compile import compiled
from ._setup import AXIS, Setup, State

GROUPS, SAME, DRAWS = Spec(AXIS), Spec(), Spec(None, AXIS)
# Which leaves of the state are split over devices by their group axis.
STATE = State(keys=GROUPS, chains=GROUPS, tuning=GROUPS, law=SAME, surrogate=SAME, replay=GROUPS, ranges=SAME)  # type: ignore[arg-type]


class _Beside(NamedTuple):
    """A thread that compiles for such arguments."""

    like: PyTree
    thread: threading.Thread


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
        self._beside: _Beside | None = None
        self.seconds_compile = 0.0

    @property
    def begun(self) -> bool:
        """Is it compiled, or being compiled?"""
        return self._compiled is not None or self._beside is not None

    def prepare(self, *rest: PyTree) -> None:
        """Compile for arguments like these beside other work, so that the first call need not."""
        like = jax.tree.map(_like, rest)
        self._beside = _Beside(like, threading.Thread(target=self._try_to_compile, args=like))
        self._beside.thread.start()

    def __call__(self, *rest: PyTree) -> PyTree:
        start = time.perf_counter()
        if self._beside is not None:
            self._beside.thread.join()
            self._compiled = self._compiled if self._beside.like == jax.tree.map(_like, rest) else None
            self._beside = None
        if self._compiled is None:
            self._compiled = self._compile(*rest)
        if not self.seconds_compile:
            self.seconds_compile = time.perf_counter() - start
        return self._compiled(self.arrays, *rest)

    def _compile(self, *rest: PyTree) -> jax.stages.Compiled:
        return compiled(self._jitted.lower(self.arrays, *rest), self._soon)

    def _try_to_compile(self, *rest: PyTree) -> None:
        with suppress(Exception):  # the call itself will say what is wrong
            self._compiled = self._compile(*rest)


def _like(array: jax.Array) -> jax.ShapeDtypeStruct:
    where = array.sharding if array.committed else None
    weak = getattr(array, "weak_type", False)  # keys have none
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where, weak_type=weak)
