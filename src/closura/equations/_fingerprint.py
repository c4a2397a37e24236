"""Is an equation the one a run was fitted with? What it gives at a few places tells."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..laws import Known, LawSpec, SolverLaws
from ._shared import unit_scaling

PLACES = 5
APART = 1e-3  # single and double precision are nearer


def fingerprint_laws(closures: Mapping[str, LawSpec]) -> SolverLaws:
    """Known laws as they are, and one and the same law in place of all that are learned."""
    laws = {}
    for name, spec in closures.items():
        known = spec if not spec.trainable else Known(_any_law, spec.inputs)
        laws[name] = known.build(jr.key(0), unit_scaling(spec.inputs))
    return laws


def numbers_at(at: Callable[[Array, Array, Array], Array], width: int, states: int) -> list[float | None]:
    """at(theta, share, state) at random arguments that are the same in every run; None where not finite."""
    random = np.random.default_rng(0)
    sizes = (
        random.normal(size=(PLACES, width)),
        random.uniform(0.2, 0.8, (PLACES, 2)),
        random.normal(size=(PLACES, states)),
    )
    numbers = np.asarray(jax.jit(jax.vmap(at))(*(jnp.asarray(draw, float) for draw in sizes)), float).ravel()
    return [float(number) if np.isfinite(number) else None for number in numbers]


def same_equation(one: list[float | None], other: list[float | None]) -> bool:
    """Whether two fingerprints are alike, as far as both are finite."""
    if len(one) != len(other):
        return False
    a, b = (np.array([np.nan if x is None else x for x in numbers], float) for numbers in (one, other))
    return bool(np.all((np.abs(a - b) <= APART * (1e-3 + np.abs(a) + np.abs(b)))[np.isfinite(a + b)]))


def _any_law(*x: Any) -> Any:
    return sum(jnp.cos(1.0 + i + part) for i, part in enumerate(x))
