"""Inputs of laws, noted while a solver runs: in loops of any kind, in a batch, compiled.

Every call of a law passes its inputs through a callback that keeps a copy, and when the solution is there another callback asks
for what was kept. Both are pure as far as JAX knows; what they need to be in order is data: the law is evaluated at what the
first returns, and the second takes the solution.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...laws import LawSpec, SolverLaw, SolverLaws
from .._index import LawInputs

CALLS = 256  # kept of each solution
AT_ONCE = 64  # places of one call, where a law is called for many


class Recorder:
    """Calls of one law; when there are very many, every second, fourth, ... of them."""

    def __init__(self, law: Any):
        self.law, self.spec = law, law.spec
        self._forget()

    def _forget(self) -> None:
        self.kept: list[np.ndarray] = []
        self.count, self.every = 0, 1

    def note(self, anchor: Any, x: Any) -> np.ndarray:
        """`x` is (batch, ..., input); the anchor has the axes before the last."""
        values = np.asarray(x)
        if self.count % self.every == 0:
            self.kept.append(values)
        self.count += 1
        if len(self.kept) > 2 * CALLS:
            self.kept, self.every = self.kept[::2], 2 * self.every
        return values

    def fetch(self, anchor: Any, done: Any) -> np.ndarray:
        """(batch, call, input), the same number of calls always; NaN where there were none."""
        batch, inputs = np.shape(anchor), self.spec.inputs
        rows = [thinned(x.reshape(*batch, -1, inputs), AT_ONCE) for x in self.kept]
        self._forget()
        if not rows:
            return np.full((*batch, CALLS, inputs), np.nan, np.asarray(done).dtype)
        return thinned(np.concatenate(rows, axis=-2), CALLS, exactly=True)


def thinned(x: np.ndarray, most: int, exactly: bool = False) -> np.ndarray:
    count = x.shape[-2]
    return x[..., np.linspace(0, count - 1, most).astype(int), :] if exactly or count > most else x


class Noted(SolverLaw):
    """A law that keeps its inputs; `anchor` is a number of the solution in hand, by which a batch is known."""

    spec: LawSpec = eqx.field(static=True)
    recorder: Recorder = eqx.field(static=True)
    anchor: Float[Array, ""]

    def outside(self, x: Float[Array, "*calls input"]) -> None:
        return None

    def __call__(self, *x: Any) -> Any:
        return self.recorder.law(*_noted(self.recorder, self.anchor, jnp.stack(x)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _noted(recorder: Recorder, anchor: Array, x: Array) -> Array:
    return jax.pure_callback(
        recorder.note, jax.ShapeDtypeStruct(x.shape, x.dtype), anchor, x, vmap_method="broadcast_all"
    )


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
