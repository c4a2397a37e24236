"""Is a problem the one a run was fitted with? What its equation gives at a few places tells."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..laws import Known
from ._problem import Problem
from ._shared import unit_scaling
from .elliptic._elliptic import Elliptic

PLACES = 5
APART = 1e-3  # single and double precision are nearer


def equation_at(problem: Problem) -> list[float | None]:
    """What the equation gives at places, states and parameters that are the same in every run; None where not finite.

    Learned laws return a number of their own, so that only what is known of the equation counts.
    """
    random, laws = np.random.default_rng(0), {}
    for name, spec in problem.closures.items():
        known = spec if isinstance(spec, Known) else Known(_any_law, spec.inputs)
        laws[name] = known.build(jr.key(0), unit_scaling(spec.inputs))
    theta = random.normal(size=(PLACES, problem.parameters.width))
    theta[:, len(problem.parameters) :] = 0.0  # of what is given, that of the first system
    draws = (theta, random.uniform(0.2, 0.8, (PLACES, 2)), random.normal(size=(PLACES, len(problem.state_names))))

    def at(theta: Any, share: Any, state: Any) -> Any:
        if isinstance(problem, Elliptic):
            place = jnp.stack([low + s * (high - low) for s, (low, high) in zip(share, problem.bounds)])
            values = (problem.conductivity(theta, laws)(state[0], place), problem.load(theta, place))
            return jnp.stack([*values, *problem.base(theta, place)])
        (begin, end), start = problem.bounds[0], problem.start(theta)  # type: ignore[attr-defined]
        moved = tuple(y + more for y, more in zip(start, state))
        rates = problem.rate(theta, laws)(begin + share[0] * (end - begin), moved)  # type: ignore[attr-defined]
        # Squares do not cancel, as means over a field do; the second knows the sign.
        return jnp.stack([jnp.mean((y + more) ** 2) for y in (*start, *rates) for more in (0.0, 1.0)])

    numbers = np.asarray(jax.jit(jax.vmap(at))(*(jnp.asarray(draw, float) for draw in draws)), float).ravel()
    return [float(number) if np.isfinite(number) else None for number in numbers]


def same_equation(one: list[float | None], other: list[float | None]) -> bool:
    """Whether two of these are alike, as far as both are finite."""
    if len(one) != len(other):
        return False
    a, b = (np.array([np.nan if x is None else x for x in numbers], float) for numbers in (one, other))
    return bool(np.all((np.abs(a - b) <= APART * (1e-3 + np.abs(a) + np.abs(b)))[np.isfinite(a + b)]))


def _any_law(*x: Any) -> Any:
    return sum(jnp.cos(1.0 + i + part) for i, part in enumerate(x))
