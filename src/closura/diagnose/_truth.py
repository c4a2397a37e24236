"""Scores against the truth of synthetic data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class Truth:
    """What synthetic data were made from. `theta` is unconstrained, (system, parameter); `tau` are variances.

    `laws` are the true closures by name, `ranges` the intervals on which learned ones are judged.
    """

    theta: np.ndarray
    mu: np.ndarray | None = None
    tau: np.ndarray | None = None
    laws: Mapping[str, Callable[..., Any]] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None


def theta_scores(theta: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Mean square error of posterior means, and the share of true values within two posterior standard deviations.

    `theta` is (chain, draw, system, parameter), unconstrained.
    """
    mean, spread = theta.mean(axis=(0, 1)), theta.std(axis=(0, 1))
    error = mean - truth
    return float(np.mean(error**2)), float(np.mean(np.abs(error) < 2 * spread))


def closure_mse(law: Any, true_law: Any, interval: tuple[float, float]) -> float:
    """Mean square error over 100 points of the stated interval."""
    x = jnp.linspace(*interval, 100)
    return float(np.mean((on_points(law, x[:, None]) - on_points(true_law, x[:, None])) ** 2))


def closure_mse_visited(law: Any, true_law: Any, inputs: np.ndarray, most: int = 20_000) -> float:
    """The same over the inputs true trajectories went through."""
    chosen = inputs[:: max(1, len(inputs) // most)]
    return float(np.mean((on_points(law, chosen) - on_points(true_law, chosen)) ** 2))


def on_points(law: Any, points: Any) -> np.ndarray:
    """A law at (point, input)."""
    return np.asarray(_on_points(law, jnp.asarray(points, float)))


@eqx.filter_jit
def _on_points(law: Any, points: Any) -> Any:
    return jax.vmap(lambda x: law(*x))(points)
