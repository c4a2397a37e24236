"""P1 finite elements for -div(a grad u): on the grid of a rectangle, and on any triangles.

Both know the same things: `flux(a, u)`, the stiffness of nodal coefficients applied to nodal values, bilinear; its derivative
where a depends on u, as an operator with a transpose; and an (approximate) inverse of the Laplacian. Unknowns are the free
nodes; `restrict` takes them out of all nodes, `embed` puts them back between zeros.
"""

import functools
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._elliptic import Elliptic


@runtime_checkable
class Operator(Protocol):
    """A sparse matrix over the free nodes."""

    def __call__(self, v: Array) -> Array: ...

    def transposed(self) -> "Operator": ...


@runtime_checkable
class Elements(Protocol):
    """A discretisation; arrays over all nodes are flat, those over the free nodes have a shape of their own."""

    area: np.ndarray

    def restrict(self, nodal: Array) -> Array: ...

    def embed(self, free: Array) -> Array: ...

    def flux(self, a: Array, u: Array) -> Array: ...

    def derivative(self, a: Array, slope: Array, u: Array) -> Operator: ...

    def inverse_laplacian(self, free: Array) -> Array: ...


def elements(problem: Elliptic) -> Elements:
    return Triangles(problem) if problem.sides is None else Grid(problem)


class FivePoint(NamedTuple):
    """Each node and its four neighbours: weights of the node itself and of those one up and one down along x and y."""

    here: Float[Array, "row column"]
    x_up: Float[Array, "row column"]
    x_down: Float[Array, "row column"]
    y_up: Float[Array, "row column"]
    y_down: Float[Array, "row column"]

    def __call__(self, v: Float[Array, "row column"]) -> Float[Array, "row column"]:
        wide = jnp.pad(v, 1)
        along_x = self.x_up * wide[2:, 1:-1] + self.x_down * wide[:-2, 1:-1]
        return self.here * v + along_x + self.y_up * wide[1:-1, 2:] + self.y_down * wide[1:-1, :-2]

    def transposed(self) -> "FivePoint":
        after, before = ((0, 1), (0, 0)), ((1, 0), (0, 0))
        return FivePoint(
            self.here,
            jnp.pad(self.x_down[1:], after),
            jnp.pad(self.x_up[:-1], before),
            jnp.pad(self.y_down[:, 1:], after[::-1]),
            jnp.pad(self.y_up[:, :-1], before[::-1]),
        )


class Grid:
    """Right triangles on a grid: the five-point scheme, the coefficient on an edge being the mean of its ends.

    Whole sides are prescribed or natural, so that the free nodes are a grid too, and sines and cosines invert its Laplacian.
    """

    def __init__(self, problem: Elliptic):
        assert problem.sides is not None
        assert problem.shape is not None
        self.shape: tuple[int, ...] = problem.shape
        low, high = problem.sides[0::2], problem.sides[1::2]
        self.inner = tuple(slice(int(a), n - int(b)) for a, b, n in zip(low, high, self.shape))
        self.margin = tuple((int(a), int(b)) for a, b in zip(low, high))
        spacing = [(end - begin) / (n - 1) for (begin, end), n in zip(problem.bounds, self.shape)]
        # The share of each node in the length of its line: half a cell at the ends.
        width = [h * np.r_[0.5, np.ones(n - 2), 0.5] for h, n in zip(spacing, self.shape)]
        self.area = np.outer(*width).ravel()
        self.across = (width[1][None, self.inner[1]] / spacing[0], width[0][self.inner[0], None] / spacing[1])
        waves = [_waves(w, h, part) for w, h, part in zip(width, spacing, self.inner)]
        (self.x_waves, x_values), (self.y_waves, y_values) = waves
        self.eigenvalues = x_values[:, None] + y_values[None, :]

    def restrict(self, nodal: Float[Array, " node"]) -> Float[Array, "row column"]:
        return nodal.reshape(self.shape)[self.inner]

    def embed(self, free: Float[Array, "row column"]) -> Float[Array, " node"]:
        return jnp.pad(free, self.margin).reshape(-1)

    def flux(self, a: Float[Array, " node"], u: Float[Array, " node"]) -> Float[Array, "row column"]:
        a, u = a.reshape(self.shape), u.reshape(self.shape)
        total: Any = 0.0
        for axis in (0, 1):
            a_ends, u_ends = self._ends(a, axis), self._ends(u, axis)
            flow = self._across(axis) * 0.5 * (a_ends[0] + a_ends[1]) * (u_ends[0] - u_ends[1])
            total = total + jnp.diff(jnp.pad(flow, _both(axis)), axis=axis)[self._rows(axis)]
        return total

    def derivative(self, a: Float[Array, " node"], slope: Float[Array, " node"], u: Float[Array, " node"]) -> FivePoint:
        a, slope, u = a.reshape(self.shape), slope.reshape(self.shape), u.reshape(self.shape)
        weights: list[Array] = []
        for axis in (0, 1):
            (a0, a1), (c0, c1), (u0, u1) = self._ends(a, axis), self._ends(slope, axis), self._ends(u, axis)
            half = 0.5 * self._across(axis)
            # What flows along an edge is leave v0 - arrive v1.
            leave, arrive = half * (a0 + a1 + (u0 - u1) * c0), half * (a0 + a1 - (u0 - u1) * c1)
            leave, arrive = jnp.pad(leave, _both(axis)), jnp.pad(arrive, _both(axis))
            n, rows = self.shape[axis], self._rows(axis)
            up, down = (lax.slice_in_dim(w, 1, n + 1, axis=axis)[rows] for w in (leave, arrive))
            up_before, down_before = (lax.slice_in_dim(w, 0, n, axis=axis)[rows] for w in (leave, arrive))
            weights += [up + down_before, -down, -up_before]
        return FivePoint(weights[0] + weights[3], weights[1], weights[2], weights[4], weights[5])

    def inverse_laplacian(self, free: Float[Array, "row column"]) -> Float[Array, "row column"]:
        x, y = jnp.asarray(self.x_waves, float), jnp.asarray(self.y_waves, float)
        return x @ ((x.T @ free @ y) / jnp.asarray(self.eigenvalues, float)) @ y.T

    def _ends(self, nodal: Array, axis: int) -> tuple[Array, Array]:
        """Values at both ends of every edge along an axis that ends in a free node."""
        lines = nodal[:, self.inner[1]] if axis == 0 else nodal[self.inner[0]]
        n = self.shape[axis]
        return lax.slice_in_dim(lines, 0, n - 1, axis=axis), lax.slice_in_dim(lines, 1, n, axis=axis)

    def _across(self, axis: int) -> Array:
        return jnp.asarray(self.across[axis], float)

    def _rows(self, axis: int) -> tuple[slice, slice]:
        return (self.inner[0], slice(None)) if axis == 0 else (slice(None), self.inner[1])


def _both(axis: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return ((1, 1), (0, 0)) if axis == 0 else ((0, 0), (1, 1))


def _waves(width: np.ndarray, spacing: float, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues of -d2/dx2 on a line, orthonormal in the widths of its nodes."""
    n = len(width)
    second = (np.diag(np.r_[1, np.full(n - 2, 2), 1]) - np.eye(n, k=1) - np.eye(n, k=-1)) / spacing
    root = np.sqrt(width[part])
    values, vectors = np.linalg.eigh(second[part, part] / np.outer(root, root))
    return vectors / root[:, None], values


class Rows(NamedTuple):
    """A sparse matrix: in each row the diagonal, and `value`s in the columns `column`, padded with one column too many."""

    here: Float[Array, " free"]
    value: Float[Array, "free near"]
    column: Any
    back: Any

    def __call__(self, v: Float[Array, " free"]) -> Float[Array, " free"]:
        return self.here * v + jnp.sum(self.value * _padded(v)[self.column], axis=-1)

    def transposed(self) -> "Rows":
        return self._replace(value=_padded(self.value.reshape(-1))[self.back])


class Triangles:
    """Any triangles; the coefficient is linear in each, from its corners.

    Everything is gathered, nothing scattered, which compilers are slow at. The Laplacian is inverted exactly in the span
    of its `RANK` smoothest eigenvectors, by its diagonal beside.
    """

    RANK = 192

    def __init__(self, problem: Elliptic):
        points, self.corners = problem.points, problem.domain.triangles
        self.count, self.free = len(points), np.flatnonzero(~problem.dirichlet)
        self.place = np.full(self.count, len(self.free))
        self.place[self.free] = np.arange(len(self.free))
        self.stiffness, areas = _stiffness(points[self.corners])
        self.area = np.bincount(self.corners.ravel(), np.repeat(areas / 3, 3), self.count)
        self._pattern()

    def restrict(self, nodal: Float[Array, " node"]) -> Float[Array, " free"]:
        return nodal[self.free]

    def embed(self, free: Float[Array, " free"]) -> Float[Array, " node"]:
        return _padded(free)[self.place]

    def flux(self, a: Float[Array, " node"], u: Float[Array, " node"]) -> Float[Array, " free"]:
        pull = jnp.einsum("tij,tj->ti", jnp.asarray(self.stiffness, float), u[self.corners])
        pull = jnp.mean(a[self.corners], axis=1, keepdims=True) * pull
        return jnp.sum(_padded(pull.reshape(-1))[self.incident], axis=-1)

    def derivative(self, a: Float[Array, " node"], slope: Float[Array, " node"], u: Float[Array, " node"]) -> Rows:
        stiffness = jnp.asarray(self.stiffness, float)
        pull = jnp.einsum("tij,tj->ti", stiffness, u[self.corners]) / 3
        mean = jnp.mean(a[self.corners], axis=1)
        each = mean[:, None, None] * stiffness + pull[:, :, None] * slope[self.corners][:, None, :]
        flat = _padded(each.reshape(-1))
        here = jnp.sum(flat[self.diagonal], axis=-1)
        return Rows(here, jnp.sum(flat[self.pairs], axis=-1), self.column, self.back)

    def inverse_laplacian(self, free: Float[Array, " free"]) -> Float[Array, " free"]:
        root, vectors, gain = (jnp.asarray(part, float) for part in self._smooth)
        scaled = root * free
        return root * (scaled + vectors @ (gain * (scaled @ vectors)))

    @functools.cached_property
    def _smooth(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the Laplacian scaled to a unit diagonal: that scaling, its smoothest eigenvectors, and their inverse less one."""
        from scipy.sparse import coo_matrix, diags
        from scipy.sparse.linalg import eigsh

        rows, columns = np.repeat(self.corners, 3, axis=1).ravel(), np.tile(self.corners, 3).ravel()
        whole = coo_matrix((self.stiffness.ravel(), (rows, columns)), (self.count, self.count)).tocsr()
        laplacian = whole[self.free][:, self.free]
        root = 1 / np.sqrt(laplacian.diagonal())
        scaled = (diags(root) @ laplacian @ diags(root)).tocsc()
        if len(root) <= 4 * self.RANK:
            values, vectors = np.linalg.eigh(scaled.toarray())
        else:
            values, vectors = eigsh(scaled, self.RANK, sigma=0.0, v0=np.ones(len(root)))
        return root, vectors, 1 / values - 1

    def _pattern(self) -> None:
        """Where each entry of the matrix over the free nodes finds its element contributions."""
        triangles, entries = len(self.corners), 9 * len(self.corners)
        rows, columns = (
            np.repeat(self.place[self.corners], 3, axis=1).ravel(),
            np.tile(self.place[self.corners], 3).ravel(),
        )
        n = len(self.free)
        inside = (rows < n) & (columns < n)
        off = np.flatnonzero(inside & (rows != columns))
        pair, which = np.unique(rows[off] * n + columns[off], return_inverse=True)
        row, column = pair // n, pair % n
        shares, slot = _listed(off, which, len(pair), entries), _rank(row)
        self.column = np.full((n, slot.max(initial=0) + 1), n)
        self.pairs = np.full((*self.column.shape, shares.shape[1]), entries)
        self.back = np.full(self.column.shape, self.column.size)
        self.column[row, slot], self.pairs[row, slot] = column, shares
        mirrored = np.searchsorted(pair, column * n + row)
        self.back[row, slot] = column * self.column.shape[1] + slot[mirrored]
        own = self.place[self.corners].ravel()
        kept = np.flatnonzero(own < n)
        self.incident = _listed(kept, own[kept], n, 3 * triangles)
        corner = np.append(9 * (np.arange(3 * triangles) // 3) + 4 * (np.arange(3 * triangles) % 3), entries)
        self.diagonal = corner[self.incident]
        for name in ("corners", "free", "place", "column", "pairs", "back", "incident", "diagonal"):
            setattr(self, name, getattr(self, name).astype(np.int32))


def _padded(v: Float[Array, " n"]) -> Float[Array, " n+1"]:
    """With a zero at the end, which padded indices point to."""
    return jnp.concatenate([v, jnp.zeros(1, v.dtype)])


def _listed(items: np.ndarray, owner: np.ndarray, owners: int, padding: int) -> np.ndarray:
    """The items of each owner (owner, most), padded."""
    order = np.argsort(owner, kind="stable")
    place = _rank(owner[order])
    result = np.full((owners, place.max(initial=0) + 1), padding)
    result[owner[order], place] = items[order]
    return result


def _rank(sorted_numbers: np.ndarray) -> np.ndarray:
    """The how-manieth of its kind each number is, in a sorted array."""
    first = np.searchsorted(sorted_numbers, sorted_numbers, side="left")
    return np.arange(len(sorted_numbers)) - first


def _stiffness(corners: Float[np.ndarray, "triangle 3 2"]) -> tuple[np.ndarray, np.ndarray]:
    """Integrals of grad phi_i . grad phi_j over each triangle, and its area."""
    sides = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)  # opposite to each corner
    area = 0.5 * np.abs(sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0])
    return np.einsum("tid,tjd->tij", sides, sides) / (4 * area[:, None, None]), area
