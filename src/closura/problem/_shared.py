"""What kinds of problems have in common: the laws they take, the names they use, the times they can tell apart."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._closure import ClosureSpec, Known, KnownClosure
from ._ode import ProblemError
from ._parameters import check_name


def as_closures(closure: ClosureSpec | Mapping[str, ClosureSpec] | None) -> dict[str, ClosureSpec]:
    """Closures by name; a single one is called f."""
    if closure is None:
        return {}
    closures = dict(closure) if isinstance(closure, Mapping) else {"f": closure}
    for name, spec in closures.items():
        check_name(name, "closure")
        if not isinstance(spec, ClosureSpec):
            raise ProblemError(f"closure {name!r} is {spec!r}; use cl.MLP(...) or cl.Known(function)")
    return closures


def as_names(names: Sequence[str] | str, what: str) -> tuple[str, ...]:
    """One name or several, each fit to be written after a dot."""
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        check_name(name, what)
    return found


def as_interval(interval: Any, what: str) -> tuple[float, float]:
    low, high = (float(end) for end in interval)
    if not low < high:
        raise ProblemError(f"{what} {tuple(interval)} must run forward: (start, end) with start < end")
    return low, high


def stand_ins(closures: Mapping[str, ClosureSpec]) -> dict[str, KnownClosure]:
    """Laws that return their first input."""
    return {name: KnownClosure(Known(_first, spec.inputs)) for name, spec in closures.items()}


def _first(*x: Any) -> Any:
    return x[0]


def check_times(span: tuple[float, float], dt: float) -> None:
    """Raise if the precision in use cannot tell one step's time from the next."""
    kind = np.finfo(jnp.result_type(float))
    length, far = span[1] - span[0], max(abs(span[0]), abs(span[1]))
    # Rounding by a thousandth of a step is harmless. A long record that starts near zero may round more: nothing helps.
    apart, least = float(kind.eps) * far, 1000 if far > 2 * length else 10
    if dt < least * apart:
        raise ProblemError(
            f"times near {far:.4g} are {apart:.2g} apart in {kind.dtype}, too coarse for steps of {dt:.4g}; measure "
            f"time from the start of the record, in the data too (span=(0.0, {length:.6g})), take fewer steps, or compute "
            "in double precision (--float64, or jax.config.update('jax_enable_x64', True))"
        )
