"""A prior over smooth functions of one input, in coordinates of its own.

    g(z) = polynomial of degree order - 1  +  s W(z),       W^(order) = white noise,  W = W' = ... = 0 at z = 0

W has independent sides. Where g may break at z = 0, each side has a polynomial of its own from some derivative on. Values and
gradients of g at the nodes of a table are linear in coordinates a; between nodes g is the cubic that both ends agree on. What
is promised by linear conditions (symmetry, given values) holds by the choice of coordinates, so that all that is left is free,
and independent given the size s:

    g = offset + basis a,      a_i | s ~ N(m_i, 1 / p_i),    p_i = rigid_i + flexible_i / s^2,    m_i = -pull_i / p_i

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
SMOOTH_INTERPOLANT = 1e-6  # what a polynomial costs against curvature, where an offset goes through given points
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
    flexible: Float[Array, " coordinate"]
    pull_rigid: Float[Array, " coordinate"]
    pull_flexible: Float[Array, " coordinate"]

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

    def prior(self, log_size: Float[Array, "*batch"]) -> tuple[Float[Array, "*batch coordinate"], ...]:
        """Precision and mean of the coordinates, given log s^2."""
        inverse = jnp.exp(-log_size)[..., None]
        precision = self.rigid + self.flexible * inverse
        return precision, -(self.pull_rigid + self.pull_flexible * inverse) / precision

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
        one, none = jnp.ones(count), jnp.zeros(count)
        return self._replace(
            rigid=jnp.concatenate([one, self.rigid]),
            flexible=jnp.concatenate([none, self.flexible]),
            pull_rigid=jnp.concatenate([none, self.pull_rigid]),
            pull_flexible=jnp.concatenate([none, self.pull_flexible]),
        )


@runtime_checkable
class Functions(Protocol):
    """What is known of g before any data."""

    @property
    def breaks(self) -> bool:
        """Whether sides differ at z = 0."""

    def features(self, z: np.ndarray, side: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
        """Value and gradient (in steps) at rows z on a side (-1 or 1) of zero, of functions whose coordinates are standard
        normal when s = 1; and which of these have the size s."""

    def conditions(self, values: "Values") -> tuple[np.ndarray, np.ndarray]:
        """Rows R and numbers r with  R a = r, from what tells g's values at places z: (place, coordinate)."""


class Smooth(NamedTuple):
    """A polynomial and integrated noise: its order, sds of its value and first derivatives where z = 0, its symmetry (+1 even,
    -1 odd, 0 none), values it must take, z -> g, and how many of value and derivatives both sides share at z = 0."""

    order: int
    sds: tuple[float, ...]
    parity: int
    through: Mapping[float, float]
    joined: int = 3

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

    def features(self, z: np.ndarray, side: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
        sign = np.where(side < 0, self.parity, 1) if self.parity else np.ones(len(z))
        columns = []
        for i, where in self.powers:
            column = np.stack([z**i, i * z ** max(i - 1, 0) * step], axis=1) / math.factorial(i)
            # Of a power that goes against the symmetry, the left side is reflected.
            reflected = (sign * (-1.0) ** (i * (side < 0)))[:, None] if self.parity else 1.0
            columns.append(self.sds[i] * np.where((where * side >= 0)[:, None], reflected * column, 0.0))
        curved = self._curved(z, sign, step)
        mark = np.repeat([False, True], [len(columns), curved.shape[-1]])
        return np.concatenate([np.stack(columns, axis=-1), curved], axis=-1), mark

    def _curved(self, z: np.ndarray, sign: np.ndarray, step: float) -> np.ndarray:
        # With a symmetry the right side says it all; the value at zero is a polynomial's.
        nodes = np.unique(z)
        free = nodes[nodes > 0] if self.parity else nodes[nodes != 0]
        count = len(free) + 1 - self.order if not self.parity else len(free) - 1
        weights = whitening(covariance(free, free, self.order), count)
        where = np.abs(z) if self.parity else z
        value = sign[:, None] * covariance(where, free, self.order) @ weights
        gradient = covariance(where, free, self.order, derivative=1) @ weights * step
        gradient = (sign * np.where(z < 0, -1, 1))[:, None] * gradient if self.parity else gradient
        return np.stack([value, gradient], axis=1)

    def conditions(self, values: "Values") -> tuple[np.ndarray, np.ndarray]:
        return values(np.array(list(self.through), float)), np.array(list(self.through.values()))


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
    """Coordinates of g on the nodes of an axis, one of which is the center; z = (x - center) / scale."""
    x = np.asarray(axis.step, float) * (np.arange(axis.nodes) - float(axis.offset))
    z = (x - float(scaling.center[0])) / float(scaling.scale[0])
    middle = int(np.argmin(np.abs(z)))
    z[middle] = 0.0
    side = np.where(np.arange(len(z)) < middle, -1, 1)
    step = float(z[1] - z[0])
    doubled = [middle] if prior.breaks else []
    nodes, curved = prior.features(np.insert(z, doubled, 0.0), np.insert(side, doubled, -1), step)
    left, right = ends(nodes, len(z), middle)
    basis, flexible, start = _conditioned(*prior.conditions(lambda points: between(points, z, left, right)), curved)
    # Of the prior of the unconditioned coordinates, basis a + start, what depends on a.
    pulls = [basis.T @ np.where(curved == kind, start, 0.0) for kind in (False, True)]
    made = (nodes @ basis, nodes @ start, 1.0 - flexible, flexible, *pulls)
    return Frame(axis, scaling, *(jnp.asarray(part, float) for part in made))


def _conditioned(rows: np.ndarray, values: np.ndarray, curved: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates a' with  rows (basis a' + start) = values  whatever a' is, independent given s; the share of each that is
    W's; and the start, the smoothest function through the points."""
    count = len(curved)
    if not len(rows):
        return np.eye(count), curved.astype(float), np.zeros(count)
    spread = np.where(curved, 1.0, 1.0 / SMOOTH_INTERPOLANT)
    start = spread * (rows.T @ np.linalg.lstsq((rows * spread) @ rows.T, values)[0])
    free = np.linalg.svd(rows)[2][len(rows) :].T
    # The two parts of the prior's precision add up to one: what makes one diagonal makes both.
    flexible, turn = np.linalg.eigh(free.T @ (curved[:, None] * free))
    return free @ turn, np.clip(flexible, 0.0, 1.0), start


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
