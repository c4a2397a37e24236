"""Correlation matrices from unbounded numbers, and the LKJ prior on them.

Each number is the inverse hyperbolic tangent of a partial correlation (Lewandowski, Kurowicka and Joe 2009): any numbers make a
correlation matrix, and each has one set.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def correlation_factor(unbounded: Float[Array, " pair"], count: int) -> Float[Array, "parameter parameter"]:
    """The lower triangular factor of a correlation matrix; `unbounded` goes through it row by row."""
    partial, place = jnp.tanh(unbounded), 0
    rows = [jnp.eye(count)[0]]
    for i in range(1, count):
        left, row = jnp.ones(()), []
        for _ in range(i):
            row.append(partial[place] * left)
            left = left * jnp.sqrt(1 - partial[place] ** 2)
            place += 1
        rows.append(jnp.stack([*row, left, *[jnp.zeros(())] * (count - 1 - i)]))
    return jnp.stack(rows)


def correlations(unbounded: np.ndarray, count: int) -> np.ndarray:
    """Correlation matrices (..., parameter, parameter) from such numbers (..., pair)."""
    batched = jnp.vectorize(lambda one: correlation_factor(one, count), signature="(b)->(p,p)")
    factor = np.asarray(batched(unbounded))
    return factor @ np.swapaxes(factor, -1, -2)


def inverse_factor(lower: Float[Array, "parameter parameter"]) -> Float[Array, "parameter parameter"]:
    """Written out: a batch of LAPACK calls costs more than matrices so small."""
    unit = jnp.eye(len(lower), dtype=lower.dtype)
    rows: list[Array] = []
    for i in range(len(lower)):
        rows.append((unit[i] - sum((lower[i, j] * rows[j] for j in range(i)), jnp.zeros_like(unit[i]))) / lower[i, i])
    return jnp.stack(rows)


def log_lkj(unbounded: Float[Array, " pair"], count: int, concentration: float) -> Float[Array, ""]:
    """Log density of the numbers (up to a constant) under p(correlation) ~ det^(concentration - 1)."""
    # The partial correlation in column j has density (1 - r^2)^(b - 1), b = concentration + (count - 2 - j) / 2; one power
    # more is the derivative of the tangent.
    column = np.concatenate([np.arange(i) for i in range(1, count)]) if count > 1 else np.zeros(0)
    power = concentration + 0.5 * (count - 2 - column)
    return -2 * jnp.sum(power * _log_cosh(unbounded))


def _log_cosh(x: Float[Array, " pair"]) -> Float[Array, " pair"]:
    size = jnp.abs(x)
    return size + jnp.log1p(jnp.exp(-2 * size)) - np.log(2.0)
