"""Where a solution on a grid is read: nodes near each observation, and their weights."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ..data import Observations

ON_NODE = 1e-4  # of a step: what is nearer to a node lies on it
Numbers = ArrayLike | Sequence[ArrayLike]  # what a user's function returns: one a name
States = Float[Array, "point state"]  # a solution on a grid
Predictions = Float[Array, " observation"]
LawInputs = dict[str, Float[Array, "call input"]]
Near = tuple[np.ndarray, np.ndarray]  # nodes and weights, (system, observation, near) each


class ObservationIndex(NamedTuple):
    """Where one system was observed (a batch has a leading system axis).

    An observation is read as  sum over near nodes of  weight u(node) + rate_weight du/dt(node).

    - `place`: coordinates; `node`: numbers of points of the grid; `quantity`: which of the observed quantities.
    - `rate_weight`: None where values alone are read.
    - `last`: the node of the system's last observation, at least 1; None where all systems are observed equally long.
    """

    place: Float[Array, "*system observation axis"]
    node: Int[Array, "*system observation near"]
    weight: Float[Array, "*system observation near"]
    quantity: Int[Array, "*system observation"]
    rate_weight: Float[Array, "*system observation near"] | None = None
    last: Int[Array, "*system"] | None = None

    def states(self, near: Float[Array, "observation near state"]) -> Float[Array, "observation state"]:
        """States at the observed places from those at nodes near."""
        return near[:, 0] if near.shape[1] == 1 else jnp.einsum("on,ons->os", self.weight, near)

    @classmethod
    def of(cls, data: Observations, node: np.ndarray, weight: np.ndarray) -> "ObservationIndex":
        place, quantity = jnp.asarray(data.place, float), jnp.asarray(data.quantity, jnp.int32)
        return cls(place, jnp.asarray(node, jnp.int32), jnp.asarray(weight, float), quantity)


def index_of(data: Observations, near: Near) -> ObservationIndex:
    """The index of data from nodes and weights; of one node each where every observation lies on one."""
    node, weight = near
    if np.all(weight.max(axis=-1)[data.mask] == 1):
        node = np.take_along_axis(node, weight.argmax(axis=-1)[..., None], axis=-1)
        weight = np.ones(node.shape)
    return ObservationIndex.of(data, node, weight)


def near_on_line(at: np.ndarray, count: int, periodic: bool = False, every: int = 1) -> Near:
    """Nodes and weights for places `at` in units of the step of a line of `count` nodes.

    One node each where all places fall on nodes, else four and cubic interpolation; from `every` so many-th node.
    """
    nearest = np.round(at).astype(int)
    if np.all(np.abs(at - nearest) < ON_NODE) or count < 4:
        return (nearest % count if periodic else nearest)[..., None], np.ones((*at.shape, 1))
    first = np.floor(at / every).astype(int) - 1
    first = first if periodic else np.clip(first, 0, (count - 1) // every - 3)
    node = every * (first[..., None] + np.arange(4))
    return node % count if periodic else node, lagrange(at / every - first)


def near_between(at: np.ndarray, line: np.ndarray, every: int = 1) -> Near:
    """The same on a line of any increasing values."""
    near = np.clip(np.searchsorted(line, at), 1, len(line) - 1)
    step = line[near] - line[near - 1]
    nearest = np.where(at - line[near - 1] < line[near] - at, near - 1, near)
    if np.all(np.abs(at - line[nearest]) < ON_NODE * step):
        return nearest[..., None], np.ones((*at.shape, 1))
    coarse = line[::every]
    first = np.clip(np.searchsorted(coarse, at) - 2, 0, len(coarse) - 4)
    node = first[..., None] + np.arange(4)
    return every * node, lagrange(at, coarse[node])


def near_on_grid(lines: list[Near], shape: tuple[int, ...]) -> Near:
    """Nodes and weights on a tensor grid, the last axis fastest, from those along each of its axes."""
    node, weight = lines[0]
    for (at, share), count in zip(lines[1:], shape[1:]):
        node = (node[..., :, None] * count + at[..., None, :]).reshape(*node.shape[:-1], -1)
        weight = (weight[..., :, None] * share[..., None, :]).reshape(*weight.shape[:-1], -1)
    return node, weight


def interpolation_error(
    axes: dict[str, int],
    near: Callable[[np.ndarray, tuple[int, ...]], Near],
    data: Observations,
    fit: np.ndarray,
    unit: np.ndarray,
) -> dict[str, float]:
    """Root mean square over observations, in units of the noise, of reading `fit` (system, quantity, point) by cubic
    interpolation along each of `axes`, {name: nodes}, where observations lie off the grid; near(places, every) are nodes and
    weights from every so many-th node.

    The error of a cubic is of fourth order: what reading from every other node differs by is fifteen times that.
    """

    def read(every: tuple[int, ...]) -> np.ndarray:
        node, weight = near(data.place, every)
        system = np.arange(len(fit))[:, None, None]
        return np.sum(weight * fit[system, data.quantity[..., None], node], axis=-1)

    found, full = {}, read((1,) * len(axes))
    for axis, (name, count) in enumerate(axes.items()):
        if count >= 8:
            coarser = tuple(2 if other == axis else 1 for other in range(len(axes)))
            apart = ((read(coarser) - full) / 15 / unit)[data.mask]
            found[name] = float(np.sqrt(np.mean(apart**2)))
    return found


def lagrange(x: np.ndarray, nodes: np.ndarray | None = None) -> np.ndarray:
    """Weights of four nodes (0, 1, 2, 3 by default) in the cubic through them, at x."""
    at = np.broadcast_to(np.arange(4.0), (*x.shape, 4)) if nodes is None else nodes
    others = [[j for j in range(4) if j != i] for i in range(4)]
    weights = [np.prod([(x - at[..., j]) / (at[..., i] - at[..., j]) for j in others[i]], axis=0) for i in range(4)]
    return np.stack(weights, axis=-1)
