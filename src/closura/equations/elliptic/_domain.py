"""Domains in the plane: a rectangle with its grid, or any triangulation."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._shared import ProblemError, as_interval

Predicate = Callable[[np.ndarray, np.ndarray], Any]


@dataclasses.dataclass(frozen=True)
class Rectangle:
    """[x low, x high] x [y low, y high] with `nodes` equidistant points along each side, corners included."""

    x: tuple[float, float] = (0.0, 1.0)
    y: tuple[float, float] = (0.0, 1.0)
    nodes: tuple[int, int] = (50, 50)

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            low, high = as_interval(getattr(self, name), f"Rectangle: {name}")
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ProblemError(f"Rectangle: {name}=({low}, {high}) must be finite")
        counts = np.asarray(self.nodes)
        if counts.shape != (2,) or counts.dtype.kind not in "iu" or counts.min() < 3:
            raise ProblemError(
                f"Rectangle: nodes={self.nodes} must be two whole numbers, at least 3 along x and along y, boundary included"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.nodes)

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return (float(self.x[0]), float(self.x[1])), (float(self.y[0]), float(self.y[1]))

    @property
    def points(self) -> np.ndarray:
        lines = (np.linspace(*self.x, self.nodes[0]), np.linspace(*self.y, self.nodes[1]))
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)

    @property
    def triangles(self) -> np.ndarray:
        """Two a cell, cut from its lower left to its upper right corner."""
        number = np.arange(math.prod(self.nodes)).reshape(self.nodes)
        a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
        return np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], axis=2).reshape(-1, 3)


class Mesh:
    """Any domain cut into triangles: `points` (N, 2) and `triangles` (M, 3), the numbers of their corners."""

    shape: tuple[int, ...] | None = None

    def __init__(self, points: Any, triangles: Any):
        self.points, corners = np.array(points, float), np.asarray(triangles)
        if self.points.ndim != 2 or self.points.shape[1] != 2 or not np.all(np.isfinite(self.points)):
            raise ProblemError(f"Mesh: points must be finite numbers of shape (N, 2), got shape {self.points.shape}")
        if corners.ndim != 2 or corners.shape[1] != 3 or not len(corners) or corners.dtype.kind not in "iu":
            raise ProblemError(f"Mesh: triangles must be whole numbers of shape (M, 3), got {_kind(corners)}")
        self.triangles = corners.astype(int)
        self._check()
        # Counterclockwise, all of them: which way round a triangle was written means nothing.
        clockwise = _areas(self.points, self.triangles) < 0
        self.triangles[clockwise] = self.triangles[clockwise][:, [0, 2, 1]]

    @classmethod
    def from_skfem(cls, mesh: Any) -> "Mesh":
        """From a triangular mesh of scikit-fem."""
        corners = np.asarray(mesh.t)
        if np.shape(mesh.p)[0] != 2 or corners.shape[0] != 3:
            raise ProblemError(
                f"Mesh: {type(mesh).__name__} is not a mesh of triangles in the plane; use skfem.MeshTri"
            )
        used, renumbered = np.unique(corners, return_inverse=True)
        return cls(np.asarray(mesh.p).T[used], renumbered.reshape(corners.shape).T)

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        (xlow, ylow), (xhigh, yhigh) = self.points.min(axis=0), self.points.max(axis=0)
        return (float(xlow), float(xhigh)), (float(ylow), float(yhigh))

    def _check(self) -> None:
        count, corners = len(self.points), self.triangles
        if corners.min() < 0 or corners.max() >= count:
            raise ProblemError(
                f"Mesh: triangles name points {corners.min()} to {corners.max()}; there are 0 to {count - 1}"
            )
        unused = np.setdiff1d(np.arange(count), corners)
        if unused.size:
            raise ProblemError(
                f"Mesh: no triangle uses point {_some(unused)}; remove such points and renumber the rest"
            )
        sides = np.stack(
            [
                np.linalg.norm(np.subtract(*self.points[corners[:, [i, i - 1]]].swapaxes(0, 1)), axis=-1)
                for i in range(3)
            ]
        )
        flat = np.flatnonzero(np.abs(_areas(self.points, corners)) <= 1e-6 * sides.max(axis=0) ** 2)
        if flat.size:
            raise ProblemError(f"Mesh: triangle {_some(flat)} has (almost) no area; remove it, or mesh again")
        from scipy.spatial import cKDTree

        twins = cKDTree(self.points).query_pairs(1e-9 * np.ptp(self.points, axis=0).max())
        if twins:
            one, other = min(twins)
            raise ProblemError(
                f"Mesh: points {one} and {other} lie in the same place, so that the triangles around them do not hang together; "
                "merge such points"
            )
        edges, times = np.unique(np.sort(_sides(corners), axis=1), axis=0, return_counts=True)
        if times.max() > 2:
            crowded = edges[times.argmax()]
            raise ProblemError(
                f"Mesh: {times.max()} triangles share the edge {tuple(crowded.tolist())}; they overlap, mesh again"
            )
        hanging = _hanging(self.points, edges[times == 1])
        if hanging is not None:
            node, edge = hanging
            raise ProblemError(
                f"Mesh: point {node} lies on the edge {edge} between two others, where the triangles on its sides do not hang "
                "together; cut the triangle that has this edge, or mesh again"
            )


Domain = Rectangle | Mesh


def boundary_edges(triangles: np.ndarray) -> np.ndarray:
    """Edges (E, 2) that belong to one triangle only."""
    edges, times = np.unique(np.sort(_sides(triangles), axis=1), axis=0, return_counts=True)
    return edges[times == 1]


def dirichlet_edges(domain: Domain, natural: Predicate | None) -> np.ndarray:
    """Boundary edges (E, 2) on which values are prescribed: all those whose midpoint is not `natural`."""
    edges = boundary_edges(domain.triangles)
    if natural is None:
        return edges
    middle = domain.points[edges].mean(axis=1)
    try:
        flags = np.asarray(natural(middle[:, 0], middle[:, 1]))
    except Exception as error:
        raise ProblemError(f"natural(x, y) failed on NumPy arrays: {type(error).__name__}: {error}") from error
    if flags.shape not in ((), (len(edges),)) or flags.dtype != bool:
        raise ProblemError(
            f"natural(x, y) must return one True or False a point, like lambda x, y: x > 0.99; it returned {_kind(flags)}"
        )
    kept = edges[~np.broadcast_to(flags, len(edges))]
    if not len(kept):
        raise ProblemError(
            "the whole boundary is natural, so the solution is known up to a constant only; prescribe values on a part of it"
        )
    return kept


def check_held(domain: Domain, held: np.ndarray) -> None:
    """Raise if a part of the domain does not hang together with a node where the value is prescribed."""
    label = np.arange(len(domain.points))
    corners = domain.triangles
    while True:
        least, before = label[corners].min(axis=1), label.copy()
        np.minimum.at(label, corners, least[:, None])
        label = label[label]
        if np.array_equal(label, before):
            break
    loose = np.setdiff1d(label, label[held])
    if loose.size:
        x, y = domain.points[loose[0]]
        raise ProblemError(
            f"the part of the domain around ({x:.4g}, {y:.4g}) touches no prescribed value; connect it, or prescribe one there"
        )


def whole_sides(domain: Domain, edges: np.ndarray) -> tuple[bool, bool, bool, bool] | None:
    """For a rectangle, whether x low, x high, y low, y high are prescribed; None where one is so in part only."""
    if not isinstance(domain, Rectangle):
        return None
    n, m = domain.nodes
    at = np.stack([edges // m, edges % m], axis=-1)
    found = []
    for axis, place, length in ((0, 0, m), (0, n - 1, m), (1, 0, n), (1, m - 1, n)):
        count = int(np.sum(np.all(at[:, :, axis] == place, axis=1)))
        if count not in (0, length - 1):
            return None
        found.append(count > 0)
    return found[0], found[1], found[2], found[3]


def segments(points: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The edges as straight segments (S, 2, 2), those in line joined."""
    near: dict[int, list[int]] = {}
    for number, edge in enumerate(edges):
        for node in edge:
            near.setdefault(int(node), []).append(number)
    ends = {number: [int(a), int(b)] for number, (a, b) in enumerate(edges)}
    for node, pair in near.items():
        if len(pair) != 2 or pair[0] == pair[1]:
            continue
        one, two = pair
        a, b = (next(end for end in ends[number] if end != node) for number in pair)
        before, after = points[node] - points[a], points[b] - points[node]
        lengths = np.linalg.norm(before) * np.linalg.norm(after)
        if a == b or before @ after < (1 - 1e-9) * lengths:
            continue
        ends[one] = [a, b]
        del ends[two]
        near[b][near[b].index(two)] = one
    return points[np.array(list(ends.values()))]


def _sides(triangles: np.ndarray) -> np.ndarray:
    return np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])


def _areas(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    a, b, c = points[triangles].swapaxes(0, 1)
    return 0.5 * ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0])


def _hanging(points: np.ndarray, edges: np.ndarray) -> tuple[int, tuple[int, int]] | None:
    """A point inside of a boundary edge (E, 2), and that edge."""
    from scipy.spatial import cKDTree

    nodes = np.unique(edges)
    start, along = points[edges[:, 0]], points[edges[:, 1]] - points[edges[:, 0]]
    length = np.linalg.norm(along, axis=1)
    near = cKDTree(points[nodes]).query_ball_point(start + along / 2, 0.5 * length * (1 - 1e-6))
    for (a, b), side, whole, found in zip(edges.tolist(), along, length, near):
        away = points[nodes[found]] - points[a]
        off = np.abs(away[:, 0] * side[1] - away[:, 1] * side[0]) / whole
        if np.any(on := off < 1e-6 * whole):
            return int(nodes[found][on.argmax()]), (a, b)
    return None


def _some(numbers: np.ndarray) -> str:
    return ", ".join(map(str, numbers[:3])) + (f" (and {numbers.size - 3} more)" if numbers.size > 3 else "")


def _kind(array: np.ndarray) -> str:
    return f"shape {array.shape} of {array.dtype}"
