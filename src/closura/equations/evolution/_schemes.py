"""Derivatives along a line of equidistant nodes: one-sided, central and spectral.

A scheme is a list of matrices. In a batch all derivatives of all systems are then one product; up to some hundred nodes
that is as fast as sums of shifted arrays, beyond it rows with few entries are such sums.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._index import Numbers
from .._shared import ProblemError

Given = ArrayLike | Callable[..., Numbers] | tuple[ArrayLike | Callable[..., Numbers], ...]
DENSE = 128  # nodes up to which one product is used; at 200 it takes five to ten times as long as shifted sums


@dataclasses.dataclass(frozen=True)
class Dirichlet:
    """At this end the field has a value: a number or a function (t, p); None keeps what the initial state has there.

    With several fields it is one for all, or a tuple of one each.
    """

    value: Given | None = None


@dataclasses.dataclass(frozen=True)
class Neumann:
    """At this end the field has a slope u_x: a number or a function (t, p), or a tuple of one for each of several fields."""

    slope: Given = 0.0


End = Dirichlet | Neumann
Ends = tuple[End | None, End | None]  # None on a circle
Window = tuple[int, int]

# How many nodes to the left and to the right a derivative looks, by order: the first derivatives (upwind has two, for
# waves that go right and left), then the second derivative.
WINDOWS: dict[str, dict[int, tuple[tuple[Window, ...], Window]]] = {
    "central": {2: (((1, 1),), (1, 1)), 4: (((2, 2),), (2, 2))},
    "upwind": {
        1: (((1, 0), (0, 1)), (1, 1)),
        2: (((2, 0), (0, 2)), (1, 1)),
        3: (((2, 1), (1, 2)), (2, 2)),
    },
}
DEFAULT_ORDER = {"central": 4, "upwind": 3}
SCHEMES = ("spectral", *WINDOWS)
BOUNDARIES: dict[str, Ends] = {
    "periodic": (None, None),
    "dirichlet": (Dirichlet(), Dirichlet()),
    "neumann": (Neumann(), Neumann()),
}
Boundary = str | End | tuple[End, End]


@dataclasses.dataclass(frozen=True, eq=False)
class Differences:
    """First derivatives and the second one, in this order, of a field along the line.

    `matrices` act on the field, `ends` on its slopes at the two ends, where Neumann conditions give them. `band` is how far
    from the diagonal the entries of inner rows lie; None where every entry counts. With `values` and `back` the equation is
    evaluated at more sites than there are nodes: one takes the field there, the other its rates to the nodes again.
    """

    matrices: Float[np.ndarray, "derivative site node"]
    ends: Float[np.ndarray, "derivative site 2"]
    band: int | None
    periodic: bool
    values: Float[np.ndarray, "site node"] | None = None
    back: Float[np.ndarray, "node site"] | None = None

    def __call__(
        self, u: Float[Array, "*node"], at_ends: tuple[ArrayLike, ArrayLike] | None = None, axis: int = 0
    ) -> tuple[Float[Array, "*site"], ...]:
        """The field at the sites, and its derivatives along an axis."""
        sites, nodes = self.matrices.shape[1:]
        if self.band is not None and nodes > DENSE:
            if u.ndim > 1:
                return jax.vmap(lambda line: self(line, at_ends), in_axes=1 - axis, out_axes=1 - axis)(u)
            parts = (u, *(self._shifted(u, matrix, self.band) for matrix in self.matrices))
        elif u.ndim > 1:
            # One by one: what the equation does not ask for is then left out of the program.
            parts = (self.lift(u, axis), *(_product(matrix, u, axis) for matrix in self.matrices))
        else:
            stack = self.matrices if self.values is None else np.concatenate([self.values[None], self.matrices])
            flat = u @ jnp.asarray(stack.reshape(-1, nodes).T, u.dtype)
            parts = tuple(flat[i * sites : (i + 1) * sites] for i in range(len(stack)))
            parts = parts if self.values is not None else (u, *parts)
        if at_ends is None:
            return parts
        low, high = (jnp.asarray(end, u.dtype) for end in np.moveaxis(self.ends, -1, 0))
        given = low * at_ends[0] + high * at_ends[1]
        given = given[:, :, None] if axis < u.ndim - 1 else given
        return (parts[0], *(part + more for part, more in zip(parts[1:], given)))

    def lift(self, u: Float[Array, "*node"], axis: int) -> Float[Array, "*site"]:
        """A field at the sites along an axis."""
        return u if self.values is None else _product(self.values, u, axis)

    def gather(self, rates: Float[Array, "*site"], axis: int) -> Float[Array, "*node"]:
        """Rates at the nodes from those at the sites."""
        return rates if self.back is None else _product(self.back, rates, axis)

    def _shifted(self, u: Float[Array, " node"], matrix: np.ndarray, band: int) -> Float[Array, " node"]:
        """Inner rows are the same few numbers; the rows next to the ends, where they differ, are small products."""
        n, middle, edge = len(matrix), len(matrix) // 2, 2 * band
        row = matrix[middle, middle - band : middle + band + 1]
        around = jnp.concatenate([u[n - band :], u, u[:band]]) if self.periodic else u
        terms = [float(c) * around[k : len(around) - 2 * band + k] for k, c in enumerate(row) if c]
        inner = functools.reduce(operator.add, terms)
        if self.periodic:
            return inner
        low = u[: 2 * edge] @ jnp.asarray(matrix[:band, : 2 * edge].T, u.dtype)
        high = u[n - 2 * edge :] @ jnp.asarray(matrix[n - band :, n - 2 * edge :].T, u.dtype)
        return jnp.concatenate([low, inner, high])


def _product(matrix: np.ndarray, u: Float[Array, "*given"], axis: int) -> Float[Array, "*made"]:
    """A matrix times all lines of a field along an axis."""
    factor = jnp.asarray(matrix.T, u.dtype)
    return u @ factor if axis == u.ndim - 1 else factor.T @ u


def differences(scheme: str, order: int, cells: int, length: float, ends: Ends, dealias: bool = True) -> Differences:
    """The derivatives of a scheme over `cells` cells; no end (None) is a periodic line, whose last node is its first."""
    if scheme == "spectral":
        # Dealiased, a product of fields has twice the sites to itself, and waves that the nodes cannot hold are dropped from it.
        sites = 2 * cells if dealias else cells
        matrices = np.stack([_spectral(cells, sites, length, derivative) for derivative in (1, 2)])
        both = (_spectral(cells, sites, length, 0), _spectral(sites, cells, length, 0)) if dealias else (None, None)
        return Differences(matrices, np.zeros((2, sites, 2)), None, True, *both)
    first, second = WINDOWS[scheme][order]
    wanted = [(1, window) for window in first] + [(2, second)]
    rows = [_rows(cells, derivative, window, length / cells, ends) for derivative, window in wanted]
    matrices, at_ends = (np.stack(parts) for parts in zip(*rows))
    return Differences(matrices, at_ends, max(max(window) for _, window in wanted), ends[0] is None)


def ends_of(boundary: Boundary) -> Ends:
    """What holds at the low and at the high end."""
    if isinstance(boundary, str) and boundary in BOUNDARIES:
        return BOUNDARIES[boundary]
    pair = boundary if isinstance(boundary, tuple) else (boundary, boundary)
    if len(pair) == 2 and isinstance(pair[0], End) and isinstance(pair[1], End):
        return pair[0], pair[1]
    raise ProblemError(
        f"boundary {boundary!r} is not one of {', '.join(map(repr, BOUNDARIES))}, cl.Dirichlet(value), cl.Neumann(slope) "
        "or a pair (low, high) of these two"
    )


def scheme_of(scheme: str | None, order: int | None, periodic: bool, speed: object) -> tuple[str, int]:
    """The scheme and its order, filled in and checked."""
    scheme = scheme or ("upwind" if speed is not None else "spectral" if periodic else "central")
    if scheme not in SCHEMES:
        raise ProblemError(f"scheme {scheme!r} is not one of {', '.join(SCHEMES)}")
    if scheme == "spectral":
        if not periodic:
            raise ProblemError("scheme='spectral' is for boundary='periodic'; use 'central' or 'upwind'")
        if order is not None:
            raise ProblemError("scheme='spectral' has no order: it is exact for every wave the grid can hold")
    elif order is not None and order not in WINDOWS[scheme]:
        raise ProblemError(f"scheme={scheme!r} is of order {' or '.join(map(str, WINDOWS[scheme]))}, not {order}")
    if (scheme == "upwind") != (speed is not None):
        raise ProblemError(
            "scheme='upwind' and the wave speed go together: give speed(u, p, f), or choose another scheme"
            if speed is None
            else f"speed is for scheme='upwind'; scheme={scheme!r} does not ask where waves come from"
        )
    return scheme, order or DEFAULT_ORDER.get(scheme, 0)


def _spectral(n: int, sites: int, length: float, derivative: int) -> np.ndarray:
    """A derivative of the trigonometric polynomial through n nodes, at other sites, by real transforms of unit vectors."""
    fewer = min(n, sites)
    factor = (2j * np.pi * np.arange(fewer // 2 + 1) / length) ** derivative
    if fewer % 2 == 0 and derivative % 2:
        factor[-1] = 0.0  # the highest wave is a cosine: its odd derivatives vanish at every node
    if fewer % 2 == 0 and sites != n:
        factor[-1] *= (
            0.5 if sites > n else 2.0
        )  # half of it is the wave of opposite sign, and at fewer sites the two are one
    waves = np.zeros((sites // 2 + 1, n), complex)
    waves[: len(factor)] = factor[:, None] * np.fft.rfft(np.eye(n), axis=0)[: len(factor)]
    return np.fft.irfft(waves, sites, axis=0) * (sites / n)


def _rows(cells: int, derivative: int, window: Window, spacing: float, ends: Ends) -> tuple[np.ndarray, np.ndarray]:
    """Windows that stick out are moved inside, where there are ends; a derivative given there stands for one of their nodes."""
    n = cells if ends[0] is None else cells + 1
    matrix, at_ends = np.zeros((n, n)), np.zeros((n, 2))
    for i in range(n):
        nodes, used = np.arange(i - window[0], i + window[1] + 1), []
        if ends[0] is not None:
            out = [nodes[0] < 0, nodes[-1] >= n]
            used = [side for side in (0, 1) if out[side] and isinstance(ends[side], Neumann)]
            nodes = nodes[: len(nodes) - len(used)]
            nodes = nodes - nodes[0] + min(max(nodes[0], 0), n - len(nodes))
        weights = _weights(nodes - i, [side * (n - 1) - i for side in used], derivative) / spacing**derivative
        matrix[i, nodes % n] = weights[: len(nodes)]
        at_ends[i, used] = weights[len(nodes) :] * spacing
    return matrix, at_ends


def _weights(nodes: np.ndarray, slopes: Sequence[int], derivative: int) -> np.ndarray:
    """Weights of values at `nodes` and of first derivatives at `slopes` in a derivative at zero, exact for polynomials."""
    power = np.arange(len(nodes) + len(slopes))[:, None]
    at = np.asarray(slopes, float)
    system = np.concatenate([nodes.astype(float) ** power, power * at ** np.maximum(power - 1, 0)], axis=1)
    return np.linalg.solve(system, np.where(power[:, 0] == derivative, math.factorial(derivative), 0.0))
