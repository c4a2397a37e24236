"""A prior over smooth functions of two inputs, in coordinates of its own.

    g(z1, z2) = polynomial of total degree 2  +  s W(z1, z2)
    cov W = (p(z1, z1') + k(z1, z1')) (p(z2, z2') + k(z2, z2')) - what the polynomial has of p p,     p = sum_i z^i z'^i / i!^2

k is the covariance of white noise integrated three times from zero, on either side of it (see `_basis`): along each input W is
as smooth as a law of one, main effects and all that two inputs do together have the same size s, and W has neither value,
gradient nor curvature at the reference z = 0. Of W the directions of largest variance are kept, in units of its variance at
each node (Karhunen and Loeve): coordinates are independent, standard normal times s, and some ninety leave out less than a
ten-thousandth of W's variance anywhere.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._base import LawSpec, Range, Scaling
from ._basis import ORDER, covariance, hermite
from ._table import Axis, Surface, axis_about, hermite_surface

COORDINATES = 100
AT_REST = 1e-3  # variance, of s^2: where W has less it need not be met


# What can be said of a law of two inputs.
OF_TWO = {"network", "inputs", "odd", "even", "zero_at_origin", "positive", "dissipative"}
OF_TWO |= {"unit", "scale", "reference", "nodes", "network"}


def check_two(spec: LawSpec) -> None:
    """Refuse what a law of one input alone can promise."""
    for field in dataclasses.fields(spec):
        if field.name not in OF_TWO and getattr(spec, field.name) != field.default:
            network = ", or use cl.MLP(inputs=2, increasing=True)" if field.name == "increasing" else ""
            raise ValueError(
                f"Law: {field.name} is for laws of one input; with inputs=2 there are odd, even, zero_at_origin, positive and "
                f"dissipative: drop it{network}"
            )


def stated_unit(name: str, value: float | Sequence[float] | None, inputs: int) -> float | tuple[float, ...] | None:
    """A unit of a law, or its reference: a number, or one an input."""
    if value is None:
        return None
    numbers = np.atleast_1d(np.asarray(value, float)).tolist()
    if len(numbers) > 1 and (name == "unit" or len(numbers) != inputs):
        count = "one number" if name == "unit" or inputs == 1 else "one number, or one an input"
        raise ValueError(f"Law: {name}={value} must be {count}")
    if not all(math.isfinite(x) and (x > 0 or name == "reference") for x in numbers):
        raise ValueError(f"Law: {name}={value} must be a {'' if name == 'reference' else 'positive '}number")
    return tuple(numbers) if len(numbers) > 1 else numbers[0]


class PlaneFrame(NamedTuple):
    """The nodes of a law's table, and what the law's coordinates mean there.

    `nodes` is (first input, second input, part, coordinate); parts are value, gradient in the second, gradient in the first
    and mixed derivative of g, in steps of the table.
    """

    axes: tuple[Axis, Axis]
    scaling: Scaling
    nodes: Float[Array, "first second 4 coordinate"]
    rigid: Float[Array, " coordinate"]
    flexible: Float[Array, "1 coordinate"]

    @property
    def low(self) -> Float[Array, " 2"]:
        return jnp.stack([-axis.offset * axis.step for axis in self.axes])

    @property
    def high(self) -> Float[Array, " 2"]:
        return jnp.stack([(axis.nodes - 1.0 - axis.offset) * axis.step for axis in self.axes])

    def precision(self, log_size: Float[Array, "*batch 1"]) -> Float[Array, "*batch coordinate"]:
        """Of the coordinates before data, given log s^2."""
        return self.rigid + jnp.exp(-log_size) @ self.flexible

    def table(self, coordinates: Float[Array, " coordinate"]) -> Surface:
        """g, as a solver looks it up."""
        return hermite_surface(self.axes, self.nodes @ coordinates)

    @property
    def inner(self) -> Float[np.ndarray, "node coordinate"]:
        """Values of g at the nodes where most calls are: within an ellipse, solutions hardly go into corners."""
        parts = zip(self.points(), np.asarray(self.scaling.center, float), np.asarray(self.scaling.scale, float))
        away = [((x - center) / scale) ** 2 for x, center, scale in parts]
        return np.asarray(self.nodes[:, :, 0], float)[np.add.outer(*away) <= 1.0]

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs at the nodes, along either axis."""
        first, second = (np.asarray(axis.points(), float) for axis in self.axes)
        return first, second

    def rows(self, first: np.ndarray, second: np.ndarray) -> Float[np.ndarray, "node coordinate"]:
        """Values of the table on the grid of these inputs, linear in coordinates."""
        nodes = np.asarray(self.nodes, float)
        parts = nodes.reshape(*nodes.shape[:2], 2, 2, -1)
        along = [_weights(axis, x) for axis, x in zip(self.axes, (first, second))]
        return np.einsum("xip,yjq,ijpqr->xyr", *along, parts, optimize=True).reshape(-1, nodes.shape[-1])

    def matched(self, old: "PlaneFrame", a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values at the nodes: of coordinates here, of g with coordinates `a` there, and what of these is left to
        coordinates here."""
        here, value = np.asarray(self.nodes[:, :, 0], float), old.rows(*self.points()) @ a
        return here.reshape(-1, here.shape[-1]), value, value


def _weights(axis: Axis, x: np.ndarray) -> Float[np.ndarray, "point node 2"]:
    """Of value and gradient at each node, for values between nodes and on straight lines outside."""
    place = x / float(axis.step) + float(axis.offset)
    inside = np.clip(place, 0.0, axis.nodes - 1.0)
    cell = np.clip(np.floor(inside), 0, axis.nodes - 2).astype(int)
    found, row = np.zeros((len(x), axis.nodes, 2)), np.arange(len(x))
    for part, weight in enumerate(hermite(inside - cell)):
        found[row, cell + part // 2, part % 2] += weight
    found[row, np.where(place < 0, 0, axis.nodes - 1), 1] += place - inside
    return found


@dataclasses.dataclass(frozen=True)
class Plane:
    """What is known of g before any data: sds of its value, gradients and curvatures where z = 0, whether it has a value
    there at all, and its symmetry under z -> -z (+1 even, -1 odd, 0 none). `nodes` are those of its table along an input."""

    sds: tuple[float, ...]
    constant: bool
    parity: int
    nodes: int
    most: int = COORDINATES

    @property
    def polynomials(self) -> list[tuple[int, int]]:
        """Powers of z1 and z2 that the symmetry leaves."""
        powers = itertools.product(range(ORDER), repeat=2)
        return [(i, j) for i, j in powers if not self.parity or (-1) ** (i + j) == self.parity]

    @property
    def wide(self) -> list[tuple[int, int]]:
        """Powers of the polynomial of total degree 2; those above are W's."""
        return [(i, j) for i, j in self.polynomials if i + j < ORDER and (self.constant or i + j)]

    @property
    def curved(self) -> int:
        """How many coordinates W has."""
        free = self.nodes**2
        if self.parity:
            free = (free + self.parity) // 2
        return min(free - sum(i + j < ORDER for i, j in self.polynomials), self.most - len(self.wide))

    @property
    def coordinates(self) -> int:
        return len(self.wide) + self.curved

    def frame(self, range_: Range, scaling: Scaling) -> PlaneFrame:
        """Coordinates on a table that covers a range, and the reference."""
        axes, z = [], []
        for part in zip(scaling.center, range_.low, range_.high, scaling.scale):
            center, low, high, unit = map(float, part)
            axes.append(axis_about(center, low, high, self.nodes, bool(self.parity)))
            x = float(axes[-1].step) * (np.arange(self.nodes) - float(axes[-1].offset))
            z.append((x - center) / unit)
            z[-1][np.argmin(np.abs(z[-1]))] = 0.0
        nodes = self.features(*z)
        flexible = np.repeat([0.0, 1.0], [len(self.wide), self.curved])
        made = (jnp.asarray(part, float) for part in (nodes, 1.0 - flexible, flexible[None]))
        return PlaneFrame((axes[0], axes[1]), scaling, *made)

    def features(self, first: np.ndarray, second: np.ndarray) -> Float[np.ndarray, "first second 4 coordinate"]:
        """Parts at the nodes (one of them zero along each input) of functions whose coordinates are standard normal when
        s = 1: polynomials, then those of W."""
        axes = [first, second]
        whole = self.kernel(axes, (0, 0))
        size = np.sqrt(np.diag(whole) + AT_REST)
        value, vector = np.linalg.eigh(whole / np.outer(size, size))
        value, vector = value[::-1][: self.curved], vector[:, ::-1][:, : self.curved]
        weights = vector / size[:, None] / np.sqrt(np.maximum(value, 1e-14 * value[0]))
        parts = []
        for derivative in ((0, 0), (0, 1), (1, 0), (1, 1)):
            steps = [(z[1] - z[0]) ** d for z, d in zip(axes, derivative)]
            powers = [self.sds[sum(power)] * np.kron(*_powers(axes, power, derivative)) for power in self.wide]
            curved = self.kernel(axes, derivative) @ weights
            parts.append(np.prod(steps) * np.concatenate([np.stack(powers, axis=-1), curved], axis=-1))
        return np.stack(parts, axis=1).reshape(len(first), len(second), len(parts), -1)

    def kernel(self, axes: list[np.ndarray], derivative: tuple[int, int]) -> Float[np.ndarray, "node node"]:
        """Covariance of W (or of a derivative) at the nodes with W at the nodes."""
        total = _bent(axes, axes, derivative)
        if self.parity:  # what two halves of the plane say alike, with the variance of either
            total = total + self.parity * _bent(axes, [-z for z in axes], derivative)
        for powers in self.polynomials:
            if sum(powers) >= ORDER:
                here, there = (np.kron(*_powers(axes, powers, d)) for d in (derivative, (0, 0)))
                total = total + np.outer(here, there)
        return total


def _bent(axes: list[np.ndarray], at: list[np.ndarray], derivative: tuple[int, int]) -> np.ndarray:
    """The part of W's covariance that is integrated noise in one input at least."""
    straight, every = [], []
    for z, to, d in zip(axes, at, derivative):
        straight.append(sum(np.outer(_power(z, i, d), _power(to, i, 0)) for i in range(ORDER)))
        every.append(straight[-1] + covariance(z, to, ORDER, d))
    return np.kron(*every) - np.kron(*straight)


def _powers(axes: list[np.ndarray], powers: tuple[int, int], derivative: tuple[int, int]) -> list[np.ndarray]:
    return [_power(*part) for part in zip(axes, powers, derivative)]


def _power(z: np.ndarray, power: int, derivative: int) -> np.ndarray:
    """z^power / power!, or its derivative."""
    power -= derivative
    return z**power / math.factorial(power) if power >= 0 else np.zeros(len(z))
