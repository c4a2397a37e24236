"""Calls between compiled programs and Python: inputs of laws, noted while a solver runs, and solvers that are any Python.

Every call of a law passes its inputs through a callback that keeps a copy, in loops of any kind, in a batch, compiled; when the
solution is there another callback asks for what was kept. Both are pure as far as JAX knows; what they need to be in order is
data: the law is evaluated at what the first returns, and the second takes the solution.
"""

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ...laws import LawSpec, SolverLaw, SolverLaws, bind
from .._index import LawInputs

CALLS = 256  # kept of each solution
AT_ONCE = 64  # places of one call, where a law is called for many


class Recorder:
    """Calls of one law; when there are very many, every second, fourth, ... of them."""

    def __init__(self, law: SolverLaw):
        self.law = law
        self._forget()

    def _forget(self) -> None:
        self.kept: list[np.ndarray] = []
        self.count, self.every = 0, 1

    def note(self, anchor: ArrayLike, x: ArrayLike) -> np.ndarray:
        """`x` is (batch, ..., input); the anchor has the axes before the last."""
        values = np.asarray(x)
        if self.count % self.every == 0:
            self.kept.append(values)
        self.count += 1
        if len(self.kept) > 2 * CALLS:
            self.kept, self.every = self.kept[::2], 2 * self.every
        return values

    def fetch(self, anchor: ArrayLike, done: ArrayLike) -> np.ndarray:
        """(batch, call, input), the same number of calls always; NaN where there were none."""
        batch, inputs = np.shape(anchor), self.law.spec.inputs
        rows = [_thinned(x.reshape(*batch, -1, inputs), AT_ONCE) for x in self.kept]
        self._forget()
        if not rows:
            return np.full((*batch, CALLS, inputs), np.nan, np.asarray(done).dtype)
        return _thinned(np.concatenate(rows, axis=-2), CALLS, exactly=True)


def _thinned(x: np.ndarray, most: int, exactly: bool = False) -> np.ndarray:
    count = x.shape[-2]
    return x[..., np.linspace(0, count - 1, most).astype(int), :] if exactly or count > most else x


class Noted(SolverLaw):
    """A law that keeps its inputs; `anchor` is a number of the solution in hand, by which a batch is known."""

    spec: LawSpec = eqx.field(static=True)
    recorder: Recorder = eqx.field(static=True)
    anchor: Float[Array, ""]

    def __call__(self, *x: ArrayLike) -> Array:
        return self.recorder.law(*_noted(self.recorder, self.anchor, jnp.stack(x)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _noted(recorder: Recorder, anchor: Array, x: Array) -> Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(recorder.note, shape, anchor, x, vmap_method="broadcast_all")


@_noted.defjvp
def _noted_jvp(recorder: Recorder, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return _noted(recorder, *primals), tangents[1]  # implicit solvers differentiate their equation


def noted(laws: SolverLaws, anchor: Float[Array, ""]) -> dict[str, Noted]:
    """Laws that keep their inputs."""
    return {name: Noted(law.spec, Recorder(law), anchor) for name, law in laws.items()}


def fetched(laws: dict[str, Noted], done: Array) -> LawInputs:
    """What they kept on the way to a solution."""
    found = {}
    for name, law in laws.items():
        shape = jax.ShapeDtypeStruct((CALLS, law.spec.inputs), done.dtype)
        found[name] = jax.pure_callback(law.recorder.fetch, shape, law.anchor, done, vmap_method="broadcast_all")
    return found


def call_on_host(function: Callable[..., PyTree], shapes: PyTree, *arguments: PyTree) -> PyTree:
    """function(*arguments) from a compiled program, one call after the other; NaN where it fails: whether it works at all is
    tried before."""

    def host(*arguments: PyTree) -> PyTree:
        try:
            return jax.tree.map(lambda shape, found: np.asarray(found, shape.dtype), shapes, function(*arguments))
        except Exception:
            return jax.tree.map(lambda shape: np.full(shape.shape, np.nan, shape.dtype), shapes)

    return jax.pure_callback(host, shapes, *arguments, vmap_method="sequential")


def in_numpy(
    laws: SolverLaws, single: bool, recorders: Mapping[str, Recorder]
) -> Callable[..., np.ndarray | float] | SimpleNamespace | None:
    """The `f` of a solver that is any Python: laws of floats and NumPy arrays, whose inputs the recorders note."""
    each = {name: _in_numpy(law, recorders.get(name)) for name, law in laws.items()}
    return each.get("f") if single else SimpleNamespace(**each)


def _in_numpy(law: SolverLaw, recorder: Recorder | None) -> Callable[..., np.ndarray | float]:
    bound = bind({"f": law}, True)

    def called(*x: ArrayLike) -> np.ndarray | float:
        if recorder is not None:
            recorder.note(0.0, np.stack(np.broadcast_arrays(*(np.asarray(xi, float) for xi in x)), -1))
        value = np.asarray(bound(*x))  # type: ignore[misc]
        return float(value) if value.ndim == 0 else value

    return called
