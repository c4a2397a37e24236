"""Compile sooner: on a CPU most of a short fit is the compiler's."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import equinox as eqx
import jax

F = TypeVar("F", bound=Callable)
# Fewer passes of LLVM, and XLA's older emitters: half the time to compile, a tenth more to run, for programs of many small
# operations. Programs whose solves are expensive are compiled as usual.
SOON: dict[str, str | bool] = {"xla_backend_optimization_level": "1", "xla_cpu_use_fusion_emitters": False}


def compiled(lowered: jax.stages.Lowered, soon: bool = True) -> jax.stages.Compiled:
    """The compiled program."""
    return lowered.compile(compiler_options=SOON if soon and _knows() else None)


@cache
def jit_soon(function: F) -> F:
    """The function, compiled when it is called; not within another that is compiled."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return jitted(function)(*args, **kwargs)

    return call  # type: ignore[return-value]


@cache
def jitted(function: Callable) -> Callable:
    """What `jit_soon` calls."""
    return eqx.filter_jit(function, compiler_options=SOON if _knows() else None)  # type: ignore[call-overload]


@cache
def _knows() -> bool:
    """Is this a CPU, and does its compiler know these options?"""
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=SOON)
    except (ValueError, RuntimeError):
        return False
    return True
