"""A solver that is any Python: called from compiled programs, one solution after the other."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from ...laws import SolverLaws, bind
from .._index import LawInputs
from ._record import CALLS, thinned

Calls = dict[str, list[np.ndarray]]


@runtime_checkable
class Asked(Protocol):
    """What of `Custom` matters here."""

    solve: Callable[..., Any]
    single: bool
    state_names: tuple[str, ...]

    @property
    def points(self) -> np.ndarray: ...

    def as_states(self, value: Any, count: int, xp: Any) -> Any: ...


def run_on_host(problem: Asked, p: Any, laws: SolverLaws, places: Any, calls: Calls | None = None) -> np.ndarray:
    """(n, state), the user's function called with floats, NumPy arrays and laws of these; `calls` notes what laws are asked."""
    at = np.asarray(places, float)
    order = np.argsort(at[:, 0], kind="stable")
    each = {
        name: _in_numpy(bind({"f": law}, True), None if calls is None else calls[name]) for name, law in laws.items()
    }
    f = each.get("f") if problem.single else SimpleNamespace(**each)
    numbers = type(p)(*(float(part) for part in p))
    return problem.as_states(problem.solve(numbers, f, at[order]), len(at), np)[np.argsort(order)]


def _in_numpy(law: Any, calls: list[np.ndarray] | None) -> Callable[..., Any]:
    def called(*x: Any) -> Any:
        if calls is not None:
            calls.append(np.stack(np.broadcast_arrays(*(np.asarray(xi, float) for xi in x)), -1).reshape(-1, len(x)))
        value = np.asarray(law(*x))
        return float(value) if value.ndim == 0 else value

    return called


def solve_on_host(problem: Asked, p: Any, laws: SolverLaws, places: Float[Array, "n axis"]) -> Float[Array, "n state"]:
    """The same out of a compiled program. What fails is NaN: whether it works at all is tried before."""
    shape = jax.ShapeDtypeStruct((len(places), len(problem.state_names)), places.dtype)

    def host(p: Any, places: Any) -> np.ndarray:
        try:
            return run_on_host(problem, p, laws, places).astype(shape.dtype)
        except Exception:
            return np.full(shape.shape, np.nan, shape.dtype)

    return jax.pure_callback(host, shape, p, places, vmap_method="sequential")


def inputs_on_host(problem: Asked, p: Any, laws: SolverLaws) -> LawInputs:
    """Some of the inputs laws are called with in one solution."""
    kind = np.dtype(jax.numpy.result_type(float))
    shapes = {name: jax.ShapeDtypeStruct((CALLS, law.spec.inputs), kind) for name, law in laws.items()}

    def host(p: Any) -> dict[str, np.ndarray]:
        calls: Calls = {name: [np.full((1, shape.shape[1]), np.nan)] for name, shape in shapes.items()}
        try:
            run_on_host(problem, p, laws, problem.points, calls)
        except Exception:
            return {name: np.full(shape.shape, np.nan, kind) for name, shape in shapes.items()}
        return {
            n: thinned(np.concatenate(rows[1:] or rows), CALLS, exactly=True).astype(kind) for n, rows in calls.items()
        }

    return jax.pure_callback(host, shapes, p, vmap_method="sequential")
