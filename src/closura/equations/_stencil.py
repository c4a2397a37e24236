"""Reading a solution on a grid where it was observed: nodes near each observation, and their weights."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data import Observations
from .ode._ode import ODE


class Stencil(NamedTuple):
    """Where one system was observed: the place, grid points with interpolation weights, and which quantity."""

    place: Float[Array, "*system observation axis"]
    node: Int[Array, "*system observation near"]
    weight: Float[Array, "*system observation near"]
    quantity: Int[Array, "*system observation"]

    def states(self, near: Float[Array, "observation near state"]) -> Float[Array, "observation state"]:
        """States at the observed places from those at nodes near."""
        return near[:, 0] if near.shape[1] == 1 else jnp.einsum("on,ons->os", self.weight, near)


def on_times(problem: ODE, data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights: one each where all times fall on the grid, else four and cubic interpolation."""
    at = (data.time - problem.span[0]) / problem.dt
    nearest = np.round(at)
    if np.all(np.abs(at - nearest) < 1e-4) or problem.steps < 3:
        return nearest[..., None], np.ones((*at.shape, 1))
    first = np.clip(np.floor(at) - 1, 0, problem.steps - 3)
    return first[..., None] + np.arange(4), lagrange(at - first)


def lagrange(x: np.ndarray) -> np.ndarray:
    """Weights of the nodes 0, 1, 2, 3 in the cubic through them, at x."""
    nodes = np.arange(4)
    weights = [np.prod([(x - j) / (i - j) for j in nodes if j != i], axis=0) for i in nodes]
    return np.stack(weights, axis=-1)
