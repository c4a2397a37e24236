"""Derivatives along a line of equidistant nodes: one-sided, central and spectral.

A scheme is a list of matrices. In a batch all derivatives of all systems are then one product; up to some hundred nodes
that is as fast as sums of shifted arrays, beyond it rows with few entries are such sums.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._shared import ProblemError

DENSE = 128  # nodes up to which one product is used; at 200 it takes five to ten times as long as shifted sums


@dataclasses.dataclass(frozen=True)
class Dirichlet:
    """At this end the field has a value: a number or a function (t, p); None keeps what the initial state has there.

    With several fields it is one for all, or a tuple of one each.
    """

    value: Any = None


@dataclasses.dataclass(frozen=True)
class Neumann:
    """At this end the field has a slope u_x: a number or a function (t, p), or a tuple of one for each of several fields."""

    slope: Any = 0.0


End = Dirichlet | Neumann
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
BOUNDARIES: dict[str, tuple[End | None, End | None]] = {
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
        self, u: Float[Array, "*node"], slopes: tuple[Any, Any] | None = None, axis: int = -1
    ) -> tuple[Float[Array, "*site"], ...]:
        """The field at the sites, and its derivatives along an axis: the last one, or 0."""
        sites, nodes = self.matrices.shape[1:]
        if self.band is not None and nodes > DENSE:
            if u.ndim > 1:
                return jax.vmap(lambda line: self(line, slopes), in_axes=1 + axis, out_axes=1 + axis)(u)
            parts = (u, *(self._shifted(u, matrix, self.band) for matrix in self.matrices))
        elif u.ndim > 1:
            # One by one: what the equation does not ask for is then left out of the program.
            parts = (self.lift(u, axis), *(_product(matrix, u, axis) for matrix in self.matrices))
        else:
            stack = self.matrices if self.values is None else np.concatenate([self.values[None], self.matrices])
            flat = u @ jnp.asarray(stack.reshape(-1, nodes).T, u.dtype)
            parts = tuple(flat[i * sites : (i + 1) * sites] for i in range(len(stack)))
            parts = parts if self.values is not None else (u, *parts)
        if slopes is None:
            return parts
        low, high = (jnp.asarray(end, u.dtype) for end in np.moveaxis(self.ends, -1, 0))
        given = [low[i] * slopes[0] + high[i] * slopes[1] for i in range(len(low))]
        given = [more[:, None] for more in given] if u.ndim > 1 and axis == 0 else given
        return (parts[0], *(part + more for part, more in zip(parts[1:], given)))

    def lift(self, u: Float[Array, "*node"], axis: int = -1) -> Float[Array, "*site"]:
        """A field at the sites along an axis."""
        return u if self.values is None else _product(self.values, u, axis)

    def gather(self, rates: Float[Array, "*site"], axis: int = -1) -> Float[Array, "*node"]:
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
    """A matrix times all lines of a field along its last axis, or along axis 0."""
    factor = jnp.asarray(matrix.T, u.dtype)
    return u @ factor if axis == -1 else factor.T @ u


def differences(
    scheme: str, order: int, cells: int, length: float, ends: tuple[End | None, End | None], dealias: bool = True
) -> Differences:
    """The derivatives of a scheme over `cells` cells; no end (None) is a periodic line, whose last node is its first."""
    if scheme == "spectral":
        return _spectral_differences(cells, length, dealias)
    periodic, spacing = ends[0] is None, length / cells
    first, second = WINDOWS[scheme][order]
    wanted = [(1, window) for window in first] + [(2, second)]
    rows = [
        _periodic(cells, derivative, window, spacing)
        if periodic
        else _bounded(cells + 1, derivative, window, spacing, tuple(isinstance(end, Neumann) for end in ends))
        for derivative, window in wanted
    ]
    matrices, at_ends = (np.stack(parts) for parts in zip(*rows))
    return Differences(matrices, at_ends, max(max(window) for _, window in wanted), periodic)


def ends_of(boundary: Any) -> tuple[End | None, End | None]:
    """What holds at the low and at the high end."""
    known = BOUNDARIES.get(boundary) if isinstance(boundary, str) else None
    pair = known or (boundary if isinstance(boundary, tuple) else (boundary, boundary))
    if known is None and not (len(pair) == 2 and all(isinstance(end, End) for end in pair)):
        raise ProblemError(
            f"boundary {boundary!r} is not one of {', '.join(map(repr, BOUNDARIES))}, cl.Dirichlet(value), cl.Neumann(slope) "
            "or a pair (low, high) of these two"
        )
    return pair


def scheme_of(scheme: str | None, order: int | None, periodic: bool, speed: Any) -> tuple[str, int]:
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


def _spectral_differences(n: int, length: float, dealias: bool) -> Differences:
    """Dealiased, a product of fields has twice the sites to itself, and waves that the nodes cannot hold are dropped from it."""
    sites = 2 * n if dealias else n
    values, *matrices = (_spectral(n, sites, length, derivative) for derivative in (0, 1, 2))
    waves = np.fft.rfft(np.eye(sites), axis=0)[: n // 2 + 1]
    if n % 2 == 0 and dealias:
        waves[-1] *= 2  # it is both waves of this length, which are one at the nodes
    back = np.fft.irfft(waves, n, axis=0) * (n / sites)
    more = {"values": values, "back": back} if dealias else {}
    return Differences(np.stack(matrices), np.zeros((2, sites, 2)), None, True, **more)


def _spectral(n: int, sites: int, length: float, derivative: int) -> np.ndarray:
    """A derivative of the trigonometric polynomial through n nodes, at more sites, by real transforms of unit vectors."""
    factor = (2j * np.pi * np.arange(n // 2 + 1) / length) ** derivative
    if n % 2 == 0 and derivative % 2:
        factor[-1] = 0.0  # the highest wave is a cosine: its odd derivatives vanish at every node
    if n % 2 == 0 and sites > n:
        factor[-1] *= 0.5  # and half of it is the wave of opposite sign
    waves = np.zeros((sites // 2 + 1, n), complex)
    waves[: n // 2 + 1] = factor[:, None] * np.fft.rfft(np.eye(n), axis=0)
    return np.fft.irfft(waves, sites, axis=0) * (sites / n)


def _periodic(n: int, derivative: int, window: Window, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.arange(-window[0], window[1] + 1)
    matrix = np.zeros((n, n))
    for offset, weight in zip(offsets, _weights(offsets, [], derivative)):
        matrix[np.arange(n), (np.arange(n) + offset) % n] = weight / spacing**derivative
    return matrix, np.zeros((n, 2))


def _bounded(
    n: int, derivative: int, window: Window, spacing: float, slopes: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Windows that stick out are moved inside; a given slope at the end stands for one of their nodes."""
    matrix, ends = np.zeros((n, n)), np.zeros((n, 2))
    for i in range(n):
        first, last = i - window[0], i + window[1]
        used = [0] if first < 0 and slopes[0] else [1] if last >= n and slopes[1] else []
        width = last - first + 1 - len(used)
        first = min(max(first, 0), n - width)
        nodes = np.arange(first, first + width)
        weights = _weights(nodes - i, [side * (n - 1) - i for side in used], derivative) / spacing**derivative
        matrix[i, nodes] = weights[:width]
        ends[i, used] = weights[width:] * spacing
    return matrix, ends


def _weights(nodes: np.ndarray, slopes: Sequence[int], derivative: int) -> np.ndarray:
    """Weights of values at `nodes` and of first derivatives at `slopes` in a derivative at zero, exact for polynomials."""
    power = np.arange(len(nodes) + len(slopes))[:, None]
    at = np.asarray(slopes, float)
    system = np.concatenate([nodes.astype(float) ** power, power * at ** np.maximum(power - 1, 0)], axis=1)
    return np.linalg.solve(system, np.where(power[:, 0] == derivative, math.factorial(derivative), 0.0))
