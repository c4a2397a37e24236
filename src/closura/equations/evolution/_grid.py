"""The grid of an evolution equation: nodes along x, or along x and y, with derivatives along each axis."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._integrators import State
from .._shared import Place, ProblemError, as_interval, bundle, scalars
from ._schemes import Differences, End, differences, ends_of

SPACE = ("x", "y")
LEAST = 8  # cells along an axis
USUAL = 50, 24  # of a line, and along each axis of a rectangle
Ends = tuple[End | None, End | None]
Gradient = bundle("ux", SPACE)  # one derivative along each axis
Derivatives = tuple[Any, ...]  # of each field a number, or a Gradient
Slopes = tuple[tuple[Any, Any], ...] | None  # of one field, at the low and the high end of every axis


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """One axis of space: cells of equal size, what holds at its ends, and derivatives along it."""

    name: str
    domain: tuple[float, float]
    cells: int
    ends: Ends
    differences: Differences

    @property
    def periodic(self) -> bool:
        return self.ends[0] is None

    @property
    def nodes(self) -> Float[np.ndarray, " node"]:
        count = self.cells if self.periodic else self.cells + 1
        return np.linspace(*self.domain, self.cells + 1)[:count]

    @property
    def sites(self) -> Float[np.ndarray, " site"]:
        """Where the equation is evaluated: at the nodes, or with dealiasing at twice as many places."""
        count = self.differences.matrices.shape[1]
        return self.nodes if count == len(self.nodes) else np.linspace(*self.domain, count + 1)[:-1]


@dataclasses.dataclass(frozen=True, eq=False)
class Grid:
    """A line, or two that span a rectangle; a field is an array with an axis for each."""

    lines: tuple[Line, ...]

    @property
    def plane(self) -> bool:
        return len(self.lines) > 1

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(line.nodes) for line in self.lines)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nodes(self) -> Any:
        """Places as functions of x get them, those of all nodes."""
        return self._everywhere([line.nodes for line in self.lines])

    @property
    def sites(self) -> Any:
        """Places as functions of x get them, those at which the equation is evaluated."""
        return self._everywhere([line.sites for line in self.lines])

    def along(self, axis: int, end: float) -> Any:
        """Places as functions of x get them, those of the nodes at an end of an axis."""
        if not self.plane:
            return jnp.asarray(end, float)
        other = jnp.asarray(self.lines[1 - axis].nodes, float)
        parts = jnp.full_like(other, end), other
        return Place(*(parts if axis == 0 else parts[::-1]))

    def place(self, x: Any) -> Any:
        """A place as functions of x get it, from its coordinates."""
        return Place(*x) if self.plane else x[0]

    def paired(self, parts: Any) -> Derivatives:
        """Of each field one derivative along every axis, from those (axis, field)."""
        return tuple(Gradient(*each) if self.plane else each[0] for each in zip(*parts))

    def each(self, function: Callable[..., Any], axes: int = 1, fixed: int = 0) -> Callable[..., Any]:
        """A function of `axes` things at one place and `fixed` others, at all places at once."""
        for _ in self.lines:
            function = jax.vmap(function, in_axes=(0,) * axes + (None,) * fixed)
        return function

    def derivatives(
        self, u: Float[Array, "*node"], slopes: Slopes = None
    ) -> tuple[Float[Array, "*site"], tuple[tuple[Float[Array, "*site"], ...], ...]]:
        """A field at the sites, and along each axis its first derivatives (of upwind, two) and the second."""
        at_ends = [None] * len(self.lines) if slopes is None else slopes
        if not self.plane:
            values, *along = self.lines[0].differences(u, at_ends[0])
            return values, (tuple(along),)
        x, y = (line.differences for line in self.lines)
        lifted, *along_x = x(u, at_ends[0], axis=0)
        values, *along_y = y(lifted, at_ends[1])
        return values, (tuple(y.lift(part) for part in along_x), tuple(along_y))

    def gather(self, rates: Float[Array, "*site"]) -> Float[Array, "*node"]:
        """Rates at the nodes from those at the sites."""
        if not self.plane:
            return self.lines[0].differences.gather(rates)
        x, y = (line.differences for line in self.lines)
        return x.gather(y.gather(rates), axis=0)

    def put(self, u: Float[Array, "*node"], axis: int, side: int, value: Any) -> Float[Array, "*node"]:
        """A field with other values at an end of an axis: one number, or one a node there."""
        count = self.shape[axis]
        here = jnp.arange(count) == (count - 1 if side else 0)
        if self.plane and axis == 0:
            return jnp.where(here[:, None], value, u)
        return jnp.where(here, value[:, None] if self.plane and jnp.ndim(value) else value, u)

    def _everywhere(self, lines: list[np.ndarray]) -> Any:
        if not self.plane:
            return jnp.asarray(lines[0], float)
        return Place(*(jnp.asarray(part, float) for part in np.meshgrid(*lines, indexing="ij")))


def domains_of(domain: Any) -> tuple[tuple[float, float], ...]:
    """The interval of every axis."""
    try:
        parts = tuple(domain)
    except TypeError:
        parts = ()
    if not any(np.ndim(part) for part in parts):
        return (as_interval(domain, "domain"),)
    if len(parts) != len(SPACE):
        raise ProblemError(
            f"domain has {len(parts)} interval{'s' * (len(parts) != 1)}; give (low, high) for a line, or "
            "((x low, x high), (y low, y high)) for a rectangle"
        )
    return tuple(as_interval(part, f"domain along {name}") for name, part in zip(SPACE, parts))


def cells_of(cells: Any, axes: int) -> tuple[int, ...]:
    """The number of cells along every axis."""
    if cells is None:
        return (USUAL[axes - 1],) * axes
    counts = (cells,) * axes if np.ndim(cells) == 0 else tuple(cells)
    if len(counts) != axes or not all(isinstance(count, int | np.integer) for count in counts):
        wanted = "one whole number" + (" for both axes, or a pair (along x, along y)" if axes > 1 else "")
        raise ProblemError(f"cells={cells!r} must be {wanted}")
    return counts


def boundaries_of(boundary: Any, axes: int) -> tuple[Ends, ...]:
    """What holds at the ends of every axis."""
    names = SPACE[:axes]
    if isinstance(boundary, Mapping):
        if set(boundary) != set(names):
            keys = f"the keys {', '.join(map(repr, boundary))}" if boundary else "no keys"
            raise ProblemError(f"boundary has {keys}; it needs one for each axis: {', '.join(map(repr, names))}")
        return tuple(ends_of(boundary[name]) for name in names)
    if axes > 1 and isinstance(boundary, tuple):
        raise ProblemError(
            "a pair of ends does not say of which axis; write boundary={'x': (low, high), 'y': (low, high)}"
        )
    return (ends_of(boundary),) * axes


def grid_of(
    domains: tuple[tuple[float, float], ...],
    counts: tuple[int, ...],
    ends: tuple[Ends, ...],
    scheme: str,
    order: int,
    dealias: bool,
) -> Grid:
    lines = []
    for name, (low, high), cells, pair in zip(SPACE, domains, counts, ends):
        rule = differences(scheme, order, cells, high - low, pair, dealias)
        lines.append(Line(name, (low, high), cells, pair, rule))
    return Grid(tuple(lines))


def speeds_of(speeds: Any, names: tuple[str, ...], plane: bool) -> tuple[State, ...]:
    """(axis, field), from one speed for all fields or one each; in the plane, from pairs."""
    count, what = len(names), "speed(u, p, f)"
    if not plane:
        same = count > 1 and not isinstance(speeds, tuple | list) and jnp.ndim(speeds) == 0
        return (scalars((speeds,) * count if same else speeds, what, names),)
    pairs = speeds if isinstance(speeds, tuple | list) and any(map(_is_pair, speeds)) else (speeds,) * count
    if len(pairs) != count:
        raise ProblemError(f"{what} must return a pair (along x, along y), or one for each of {count} fields")
    return tuple(zip(*(scalars(pair, what, ("along x", "along y")) for pair in pairs)))


def _is_pair(part: Any) -> bool:
    return isinstance(part, tuple | list) or jnp.ndim(part) > 0
