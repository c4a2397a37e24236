"""Where observations lie in a mesh: the corners of the triangle around each, and their weights."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ...data import DataError
from ._domain import Rectangle
from ._elliptic import Elliptic

# Of the extent of a domain or triangle: how far off a point may be written.
SLACK = 1e-6


def nodes_near(
    problem: Elliptic,
    places: Float[np.ndarray, "system observation 2"],
    mask: Bool[np.ndarray, "system observation"] | None = None,
) -> tuple[Int[np.ndarray, "system observation 3"], Float[np.ndarray, "system observation 3"]]:
    """Nodes and weights of P1 interpolation at observed places; a place that is a node has all its weight there.

    Entries not in the mask are padding and get weight zero.
    """
    flat = places.reshape(-1, 2)
    wanted = np.ones(len(flat), bool) if mask is None else mask.ravel()
    node, weight = np.zeros((len(flat), 3), int), np.zeros((len(flat), 3))
    locate = _in_rectangle if isinstance(problem.domain, Rectangle) else _in_mesh
    node[wanted], weight[wanted], outside = locate(problem, flat[wanted])
    if outside.any():
        bad = np.flatnonzero(wanted)[outside]
        listed = ", ".join(
            f"({x:.6g}, {y:.6g}) of system number {i // places.shape[1] + 1}" for i, (x, y) in zip(bad[:3], flat[bad])
        )
        more = f" and {bad.size - 3} more" if bad.size > 3 else ""
        (xlow, xhigh), (ylow, yhigh) = problem.bounds
        raise DataError(
            f"observed outside the domain, which lies in x {xlow:.6g} to {xhigh:.6g}, y {ylow:.6g} to {yhigh:.6g}: {listed}{more}. "
            "Check the unit of length, remove these lines, or change the domain"
        )
    return node.reshape(*places.shape[:2], 3), weight.reshape(*places.shape[:2], 3)


Located = tuple[np.ndarray, np.ndarray, np.ndarray]


def _in_rectangle(problem: Elliptic, places: np.ndarray) -> Located:
    low, high = np.array(problem.bounds).T
    cells = np.array(problem.shape) - 1
    relative = (places - low) / (high - low)
    outside = ~np.all((relative >= -SLACK) & (relative <= 1 + SLACK), axis=1)
    at = np.where(outside[:, None], 0.0, np.clip(relative, 0, 1)) * cells
    cell = np.minimum(at.astype(int), cells - 1)
    s, t = (at - cell).T
    first = cell @ np.array([cells[1] + 1, 1])
    lower = s >= t
    second = first + np.where(lower, cells[1] + 1, 1)
    node = np.stack([first, second, first + cells[1] + 2], axis=-1)
    weight = np.stack([1 - np.maximum(s, t), np.abs(s - t), np.minimum(s, t)], axis=-1)
    return node, _snapped(weight), outside


def _in_mesh(problem: Elliptic, places: np.ndarray) -> Located:
    corners = problem.points[problem.domain.triangles]
    found, weights = np.zeros(len(places), int), np.zeros((len(places), 3))
    # A few thousand distances at a time: no search tree is worth its code here.
    for part in np.array_split(np.arange(len(places)), 1 + len(places) * len(corners) // 4_000_000):
        inside = _barycentric(corners[None], places[part, None])
        found[part] = np.argmax(inside.min(axis=-1), axis=1)
        weights[part] = inside[np.arange(len(part)), found[part]]
    outside = ~(weights.min(axis=1) >= -SLACK)
    weights = np.clip(weights, 0, None)
    return problem.domain.triangles[found], _snapped(weights / weights.sum(axis=1, keepdims=True)), outside


def _barycentric(corners: np.ndarray, places: np.ndarray) -> np.ndarray:
    a, b, c = np.moveaxis(corners, -2, 0)
    twice = _cross(b - a, c - a)
    second, third = _cross(places - a, c - a) / twice, _cross(b - a, places - a) / twice
    return np.stack([1 - second - third, second, third], axis=-1)


def _cross(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    return v[..., 0] * w[..., 1] - v[..., 1] * w[..., 0]


def _snapped(weight: np.ndarray) -> np.ndarray:
    """All of the weight on a node that has all but a millionth of it."""
    return np.where(weight.max(axis=-1, keepdims=True) > 1 - SLACK, np.round(weight), weight)
