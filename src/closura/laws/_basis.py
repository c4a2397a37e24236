"""A prior over smooth functions of one input, in coordinates of its own.

    g(z) = polynomial of degree order - 1  +  s W(z)  +  r M(z)
    W^(order) = white noise,  W = W' = ... = 0 at z = 0;      Cov(M(z), M(z')) = matern((z - z') / DETAIL)

W is the trend, which goes on where no data are, and has independent sides; M is detail, of which there is as much everywhere. A
trend as rough as laws may be in detail would know nothing of what comes next, a trend alone is surer of detail than anybody is.
Where g may break at z = 0, each side has a polynomial of its own from some derivative on. Values and gradients of g at the
nodes of a table are linear in coordinates a; between nodes g is the cubic that both ends agree on. What is promised (symmetry,
given values) holds by the choice of coordinates, so that all that is left is free, and independent given the sizes s and r:

    g = offset + basis a,      a_i | s, r ~ N(0, 1 / p_i),      p_i = rigid_i + trend_i / s^2 + detail_i / r^2

All of this is done once a table, on the host and in double precision.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._base import Scaling
from ._table import Axis

ORDER = 3  # the derivative of a law that is white noise before data
DETAIL = 0.25  # over which details change, in units of the input: an eighth of the range
RIGID, TREND, FINE = 0, 1, 2  # whose a coordinate is: the polynomial's, W's, M's
TYPICAL = (1.0, 1.0, 0.01)  # variances of these
A = TypeVar("A", Array, np.ndarray)
Values = Callable[[np.ndarray], np.ndarray]  # of g at places z, (place, coordinate)
NEAR = 1e-3  # of a cell
LEGENDRE = np.polynomial.legendre.leggauss(3)  # exact for the polynomials below, of degree four at most


class Frame(NamedTuple):
    """The nodes of a law's table, and what the law's coordinates mean there.

    `nodes` is (value and gradient of g a node, coordinate), the gradient in steps of the table; `offset` is added to it. A law
    that may break at its reference has two rows there, what its left side says and what its right side says.
    """

    axis: Axis
    scaling: Scaling
    nodes: Float[Array, "row 2 coordinate"]
    offset: Float[Array, "row 2"]
    rigid: Float[Array, " coordinate"]
    flexible: Float[Array, "size coordinate"]

    @property
    def low(self) -> Float[Array, " 1"]:
        return jnp.asarray(-self.axis.offset * self.axis.step)[None]

    @property
    def high(self) -> Float[Array, " 1"]:
        return jnp.asarray((self.axis.nodes - 1.0 - self.axis.offset) * self.axis.step)[None]

    @property
    def places(self) -> Float[Array, " row"]:
        """The input that each row of `nodes` is at."""
        points = self.axis.points()
        twice = jnp.zeros(len(points), int).at[self.middle].set(len(self.nodes) - len(points))
        return jnp.repeat(points, 1 + twice, total_repeat_length=len(self.nodes))

    @property
    def middle(self) -> Int[Array, ""]:
        """The number of the node that is the reference."""
        return jnp.round(self.axis.offset + self.scaling.center[0] / self.axis.step).astype(int)

    def ends(self, row: Float[Array, "row *rest"]) -> tuple[Float[Array, "cell *rest"], Float[Array, "cell *rest"]]:
        """What rows say at the left and at the right end of every cell."""
        return ends(row, self.axis.nodes, self.middle)

    def precision(self, log_size: Float[Array, "*batch size"]) -> Float[Array, "*batch coordinate"]:
        """Of the coordinates before data, given the log squares of the sizes; all are about zero."""
        return self.rigid + jnp.exp(-log_size) @ self.flexible

    @property
    def inner(self) -> Float[np.ndarray, "node coordinate"]:
        """Values of g at the nodes where most calls are."""
        step, offset, center = (float(np.ravel(x)[0]) for x in (self.axis.step, self.axis.offset, self.scaling.center))
        points = step * (np.arange(self.axis.nodes) - offset)
        twice = [round(offset + center / step)] * (len(self.nodes) - len(points))
        away = np.insert(points, twice, points[twice]) - center
        return np.asarray(self.nodes[:, 0], float)[np.abs(away) <= float(self.scaling.scale[0])]

    def matched(self, old: "Frame", a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values in every cell: of coordinates here, of g with coordinates `a` there, and what of these is left to coordinates
        here."""
        x = np.asarray(self.axis.points(), float)
        # Next to both ends, so that each side of a sharp place is met, and in the middle.
        points = np.sort(np.concatenate([x[:-1] + w * np.diff(x) for w in (NEAR, 0.5, 1 - NEAR)]))
        value = old._told(old.nodes, points) @ a + old._told(old.offset[..., None], points)[:, 0]
        return self._told(self.nodes, points), value, value - self._told(self.offset[..., None], points)[:, 0]

    def _told(self, nodes: Array, points: np.ndarray) -> np.ndarray:
        """(point, coordinate): values between nodes, from rows like `nodes`."""
        x = np.asarray(self.axis.points(), float)
        return between(points, x, *ends(np.asarray(nodes, float), len(x), int(self.middle)))

    def with_levels(self, count: int) -> "Frame":
        """The same with so many wide coordinates in front, which are not g's."""
        one = jnp.ones(count)
        return self._replace(
            rigid=jnp.concatenate([one, self.rigid]),
            flexible=jnp.concatenate([jnp.zeros((len(self.flexible), count)), self.flexible], axis=1),
        )


@runtime_checkable
class Functions(Protocol):
    """What is known of g before any data."""

    @property
    def sizes(self) -> int:
        """How many sizes there are."""

    @property
    def breaks(self) -> bool:
        """Whether sides differ at z = 0."""

    def features(
        self, z: np.ndarray, side: np.ndarray, step: float, nodes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Value and gradient (in steps) at places z on a side (-1 or 1) of zero, of functions whose coordinates, on a table
        with these nodes, are standard normal when sizes are one; and whose each is, RIGID, TREND or FINE."""

    def conditioned(self, values: "Values", kind: np.ndarray) -> "Conditioned":
        """What coordinates of these kinds are left when g is what it must be, from what tells its values at places z: (place,
        coordinate)."""


class Conditioned(NamedTuple):
    """Coordinates a' with  a = basis a' + start;  a' are independent, and of the same kinds as the first of a."""

    basis: Float[np.ndarray, "coordinate left"]
    start: Float[np.ndarray, " coordinate"]


class Smooth(NamedTuple):
    """A polynomial, integrated noise and detail: the order, sds of value and first derivatives where z = 0, the symmetry (+1
    even, -1 odd, 0 none), values to be taken, z -> g, and how many of value and derivatives both sides share at z = 0."""

    order: int
    sds: tuple[float, ...]
    parity: int
    through: Mapping[float, float]
    joined: int = 3

    @property
    def sizes(self) -> int:
        return 2

    @property
    def breaks(self) -> bool:
        return self.joined < self.order

    @property
    def powers(self) -> tuple[tuple[int, int], ...]:
        """Of the polynomial: (power of z, on which side), 0 being both."""
        both = [(i, 0) for i in range(self.order) if i < self.joined and (not self.parity or (-1) ** i == self.parity)]
        # With a symmetry one side follows from the other.
        sides = (0,) if self.parity else (-1, 1)
        return (*both, *((i, side) for i in range(self.joined, self.order) for side in sides))

    def features(
        self, z: np.ndarray, side: np.ndarray, step: float, nodes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        sign = np.where(side < 0, self.parity, 1) if self.parity else np.ones(len(z))
        columns = []
        for i, where in self.powers:
            column = np.stack([z**i, i * z ** max(i - 1, 0) * step], axis=1) / math.factorial(i)
            # Of a power that goes against the symmetry, the left side is reflected.
            reflected = (sign * (-1.0) ** (i * (side < 0)))[:, None] if self.parity else 1.0
            columns.append(self.sds[i] * np.where((where * side >= 0)[:, None], reflected * column, 0.0))
        trend, fine = self.counts(len(nodes))
        parts = [
            np.stack(columns, axis=-1),
            largest(self.trend, z, self.free(nodes, TREND), step, trend),
            largest(self.fine, z, self.free(nodes, FINE), step, fine),
        ]
        return np.concatenate(parts, axis=-1), np.repeat([RIGID, TREND, FINE], [part.shape[-1] for part in parts])

    def counts(self, nodes: int) -> tuple[int, int]:
        """How many coordinates W and M have on so many nodes: what M has in finer detail is less than a hundredth of it."""
        half = 2 if self.parity else 1
        return nodes // 4 // half, 2 * nodes // 3 // half

    def free(self, nodes: np.ndarray, kind: int) -> np.ndarray:
        """Nodes at which W or M may have any value: W has none at zero, nor has an odd M; with a symmetry the right side says it
        all."""
        if kind == FINE and self.parity >= 0:
            return nodes[nodes >= 0] if self.parity else nodes
        return nodes[nodes > 0] if self.parity else nodes[nodes != 0]

    def trend(self, z: np.ndarray, at: np.ndarray, step: float) -> np.ndarray:
        """Covariance of W and of its gradient at z with W(at), (place, 2, other place)."""
        where = np.abs(z) if self.parity else z
        value, gradient = (covariance(where, at, self.order, derivative) for derivative in (0, 1))
        # With a symmetry the left side is the right one, mirrored.
        mirrored = np.where(z < 0, self.parity, 1)[:, None] if self.parity else 1.0
        turned = np.where(z < 0, -1, 1)[:, None] if self.parity else 1.0
        return np.stack([mirrored * value, mirrored * turned * step * gradient], axis=1)

    def fine(self, z: np.ndarray, at: np.ndarray, step: float) -> np.ndarray:
        """The same of M."""
        return stationary(z, at, step, self.parity, DETAIL)

    def conditioned(self, values: "Values", kind: np.ndarray) -> Conditioned:
        """Whatever coordinates say of the given values, the smoothest function takes the difference away: conditional on these
        values at typical sizes (Matheron's rule). As many coordinates as there are values change nothing then."""
        rows, wanted = values(np.array(list(self.through), float)), np.array(list(self.through.values()))
        variance = np.array(TYPICAL)[kind]
        gain = np.linalg.solve((rows * variance) @ rows.T, rows * variance).T
        return Conditioned(np.eye(rows.shape[1]) - gain @ rows, gain @ wanted)


Kernel = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


def largest(kernel: Kernel, z: np.ndarray, free: np.ndarray, step: float, count: int) -> np.ndarray:
    """Value and gradient (in steps) at places z of a random function with this covariance, in so many coordinates: those of
    largest variance at the places `free`."""
    return kernel(z, free, step) @ whitening(kernel(free, free, step)[:, 0], count)


def stationary(z: np.ndarray, at: np.ndarray, step: float, parity: int, length: float) -> np.ndarray:
    """Covariance of a stationary random function, and of its gradient, at z with its values, (place, 2, other place)."""
    parts = []
    for derivative in (0, 1):
        mirrored = matern(z[:, None] + at, length, derivative)
        parts.append(step**derivative * (matern(z[:, None] - at, length, derivative) + parity * mirrored))
    return np.stack(parts, axis=1)


def matern(z: np.ndarray, length: float, derivative: int = 0) -> np.ndarray:
    """Covariance of places z apart, or its derivative: Matern 5/2, twice differentiable."""
    u = np.sqrt(5) * np.abs(z) / length
    if derivative:
        return -np.sign(z) * np.sqrt(5) / length * u * (1 + u) / 3 * np.exp(-u)
    return (1 + u + u**2 / 3) * np.exp(-u)


def whitening(covariance: np.ndarray, count: int) -> np.ndarray:
    """Columns w_i with  w_i' covariance w_j = 1 if i = j, else 0: as many as asked for, of the largest directions."""
    size, direction = np.linalg.eigh(covariance)
    size, direction = size[::-1][:count], direction[:, ::-1][:, :count]
    return direction / np.sqrt(np.maximum(size, 1e-14 * size[0]))


def covariance(
    z: Float[np.ndarray, " one"], at: Float[np.ndarray, " other"], order: int, derivative: int = 0
) -> np.ndarray:
    """Of W (or of its derivative in z) with W(at): independent sides, each integrated `order - 1` times from zero."""
    far, to = np.abs(z)[:, None], np.abs(at)[None]
    shorter, power = np.minimum(far, to), order - 1
    total = np.zeros(shorter.shape)
    for node, weight in zip(*LEGENDRE):
        u = 0.5 * shorter * (1 + node)
        left = power * (far - u) ** (power - 1) if derivative and power else (far - u) ** power
        total += weight * left * (to - u) ** power
    if derivative and not power:  # the Wiener process itself: its covariance is a minimum
        total = np.where(far < to, 2.0 / np.maximum(shorter, 1e-300), 0.0)
    sign = np.sign(z)[:, None] if derivative else 1.0
    return sign * total * 0.5 * shorter / math.factorial(power) ** 2 * (np.sign(z)[:, None] == np.sign(at)[None])


def make_frame(prior: Functions, axis: Axis, scaling: Scaling) -> Frame:
    """Coordinates of g on the nodes of an axis, one of which is the center."""
    z, side, middle = node_places(axis, scaling)
    step = float(z[1] - z[0])
    doubled = [middle] if prior.breaks else []
    nodes, kind = prior.features(np.insert(z, doubled, 0.0), np.insert(side, doubled, -1), step, z)
    left, right = ends(nodes, len(z), middle)
    basis, start = prior.conditioned(lambda points: between(points, z, left, right), kind)
    kind = kind[: basis.shape[1]]
    made = (nodes @ basis, nodes @ start, kind == RIGID, np.arange(1, 1 + prior.sizes)[:, None] == kind)
    return Frame(axis, scaling, *(jnp.asarray(part, float) for part in made))


def node_places(axis: Axis, scaling: Scaling) -> tuple[np.ndarray, np.ndarray, int]:
    """z = (x - center) / scale of all nodes, their sides, and which of them is the center."""
    x = np.asarray(axis.step, float) * (np.arange(axis.nodes) - float(axis.offset))
    z = (x - float(scaling.center[0])) / float(scaling.scale[0])
    middle = int(np.argmin(np.abs(z)))
    z[middle] = 0.0
    return z, np.where(np.arange(len(z)) < middle, -1, 1), middle


def ends(row: A, nodes: int, middle: int | Array) -> tuple[A, A]:
    """What rows say at the left and at the right end of every cell; where there is a row more than nodes, the middle one has two."""
    cell = jnp.arange(nodes - 1) if isinstance(row, Array) else np.arange(nodes - 1)
    first = cell + (cell >= middle) if len(row) > nodes else cell
    return row[first], row[first + 1]


def between(points: np.ndarray, z: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Values of the table between its nodes, (point, coordinate), from the ends of its cells: the cubic, and straight lines
    outside."""
    place = (points - z[0]) / (z[1] - z[0])
    cell = np.clip(np.floor(place), 0, len(z) - 2).astype(int)
    inside = np.clip(place - cell, 0.0, 1.0)
    weights = hermite(inside)
    row = sum(weights[i][:, None] * (left, right)[i // 2][cell, i % 2] for i in range(4))
    beyond = place - cell - inside
    edge = np.where(beyond[:, None] < 0, left[0, 1], right[-1, 1])
    return row + beyond[:, None] * edge


def hermite(w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weights of value and gradient at the left, value and gradient at the right, at w (0 to 1) of a cell of length one."""
    return (1 + 2 * w) * (1 - w) ** 2, w * (1 - w) ** 2, w**2 * (3 - 2 * w), w**2 * (w - 1)
