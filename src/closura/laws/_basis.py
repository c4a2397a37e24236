"""A prior over smooth functions of one input, in coordinates of its own.

    g(z) = polynomial of degree order - 1  +  s W(z),       W^(order) = white noise,  W = W' = ... = 0 at z = 0

W has independent sides. Values and gradients of g at the nodes of a table are linear in coordinates a; between nodes g is
the cubic that both ends agree on. What is promised by linear conditions (symmetry, given values) holds by the choice of
coordinates, so that all that is left is free, and independent given the size s:

    g = offset + basis a,      a_i | s ~ N(m_i, 1 / p_i),    p_i = rigid_i + flexible_i / s^2,    m_i = -pull_i / p_i

All of this is done once a table, on the host and in double precision.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._base import Scaling
from ._table import Axis

ORDER = 3  # the derivative of a law that is white noise before data
SMOOTH_INTERPOLANT = 1e-6  # what a polynomial costs against curvature, where an offset goes through given points
LEGENDRE = np.polynomial.legendre.leggauss(3)  # exact for the polynomials below, of degree four at most


class Frame(NamedTuple):
    """The nodes of a law's table, and what the law's coordinates mean there.

    `nodes` is (value and gradient of g a node, coordinate), the gradient in steps of the table; `offset` is added to it.
    """

    axis: Axis
    scaling: Scaling
    nodes: Float[Array, "node 2 coordinate"]
    offset: Float[Array, "node 2"]
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

    def prior(self, log_size: Float[Array, "*batch"]) -> tuple[Float[Array, "*batch coordinate"], ...]:
        """Precision and mean of the coordinates, given log s^2."""
        inverse = jnp.exp(-log_size)[..., None]
        precision = self.rigid + self.flexible * inverse
        return precision, -(self.pull_rigid + self.pull_flexible * inverse) / precision

    @property
    def inner(self) -> Float[np.ndarray, "node coordinate"]:
        """Values of g at the nodes where most calls are."""
        away = np.asarray(self.axis.points(), float) - float(self.scaling.center[0])
        return np.asarray(self.nodes[:, 0], float)[np.abs(away) <= float(self.scaling.scale[0])]

    def matched(self, old: "Frame", a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values at the nodes: of coordinates here, of g with coordinates `a` there, and what of these is left to
        coordinates here."""
        x, before = (np.asarray(frame.axis.points(), float) for frame in (self, old))
        value = rows(x, before, np.asarray(old.nodes, float)) @ a
        value = value + rows(x, before, np.asarray(old.offset, float)[..., None])[:, 0]
        return np.asarray(self.nodes[:, 0], float), value, value - np.asarray(self.offset[:, 0], float)

    def with_levels(self, count: int) -> "Frame":
        """The same with so many wide coordinates in front, which are not g's."""
        one, none = jnp.ones(count), jnp.zeros(count)
        return self._replace(
            rigid=jnp.concatenate([one, self.rigid]),
            flexible=jnp.concatenate([none, self.flexible]),
            pull_rigid=jnp.concatenate([none, self.pull_rigid]),
            pull_flexible=jnp.concatenate([none, self.pull_flexible]),
        )


class Smooth(NamedTuple):
    """What is known of g before any data: its order, sds of its value and first derivatives where z = 0, its symmetry
    (+1 even, -1 odd, 0 none) and values it must take, z -> g."""

    order: int
    sds: tuple[float, ...]
    parity: int
    through: Mapping[float, float]


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


def features(prior: Smooth, z: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Value and gradient (in steps) at nodes z, one of them zero, of functions whose coordinates are standard normal when
    s = 1; and which of these are of W."""
    wanted = [i for i in range(prior.order) if not prior.parity or (-1) ** i == prior.parity]
    columns = [np.stack([z**i, i * z ** max(i - 1, 0) * step], axis=1) / math.factorial(i) for i in wanted]
    polynomials = np.stack([sd * column for sd, column in zip((prior.sds[i] for i in wanted), columns)], axis=-1)
    # With a symmetry the right side says it all; the value at zero is a polynomial's.
    free = z[z > 0] if prior.parity else z[z != 0]
    size, direction = np.linalg.eigh(covariance(free, free, prior.order))
    count = len(free) + 1 - prior.order if not prior.parity else len(free) - 1
    size, direction = size[::-1][:count], direction[:, ::-1][:, :count]
    weights = direction / np.sqrt(np.maximum(size, 1e-14 * size[0]))
    where, sign = (np.abs(z), np.where(z < 0, prior.parity, 1)) if prior.parity else (z, np.ones(len(z)))
    value = sign[:, None] * covariance(where, free, prior.order) @ weights
    gradient = covariance(where, free, prior.order, derivative=1) @ weights * step
    gradient = (sign * np.where(z < 0, -1, 1))[:, None] * gradient if prior.parity else gradient
    curved = np.stack([value, gradient], axis=1)
    return np.concatenate([polynomials, curved], axis=-1), np.repeat([False, True], [len(wanted), count])


def make_frame(prior: Smooth, axis: Axis, scaling: Scaling) -> Frame:
    """Coordinates of g on the nodes of an axis, one of which is the center; z = (x - center) / scale."""
    x = np.asarray(axis.step, float) * (np.arange(axis.nodes) - float(axis.offset))
    z = (x - float(scaling.center[0])) / float(scaling.scale[0])
    z[np.argmin(np.abs(z))] = 0.0
    nodes, curved = features(prior, z, float(z[1] - z[0]))
    points = np.array(list(prior.through), float)
    basis, flexible, start = _conditioned(rows(points, z, nodes), np.array(list(prior.through.values())), curved)
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
    start = spread * (rows.T @ np.linalg.solve((rows * spread) @ rows.T, values))
    free = np.linalg.svd(rows)[2][len(rows) :].T
    # The two parts of the prior's precision add up to one: what makes one diagonal makes both.
    flexible, turn = np.linalg.eigh(free.T @ (curved[:, None] * free))
    return free @ turn, np.clip(flexible, 0.0, 1.0), start


def rows(points: np.ndarray, z: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Values of the table between its nodes, (point, coordinate): the cubic, and straight lines outside."""
    place = (points - z[0]) / (z[1] - z[0])
    cell = np.clip(np.floor(place), 0, len(z) - 2).astype(int)
    inside = np.clip(place - cell, 0.0, 1.0)
    weights = hermite(inside)
    row = sum(weights[i][:, None] * nodes[cell + i // 2, i % 2] for i in range(4))
    beyond = place - cell - inside
    edge = np.where(beyond < 0, 0, len(z) - 1)
    return row + beyond[:, None] * nodes[edge, 1]


def hermite(w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weights of value and gradient at the left, value and gradient at the right, at w (0 to 1) of a cell of length one."""
    return (1 + 2 * w) * (1 - w) ** 2, w * (1 - w) ** 2, w**2 * (3 - 2 * w), w**2 * (w - 1)
