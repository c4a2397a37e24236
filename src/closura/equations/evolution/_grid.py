"""The grid of an evolution equation: nodes along x, or along x and y, with derivatives along each axis."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .._index import Numbers
from .._initial_value import Axes, T
from .._integrators import State
from .._shared import Place, ProblemError, as_interval, bundle, scalars
from ._schemes import Boundary, Differences, Ends, differences, ends_of

SPACE = ("x", "y")
LEAST = 8  # cells along an axis
USUAL = 50, 24  # of a line, and along each axis of a rectangle
Gradient = bundle("ux", SPACE)  # one derivative along each axis
AtEnds = (
    tuple[tuple[ArrayLike, ArrayLike], ...] | None
)  # derivatives of one field at the low and high end of every axis


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """One axis of space: cells of equal size, what holds at its ends, and derivatives along it."""

    name: str
    domain: tuple[float, float]
    cells: int
    ends: Ends
    scheme: str
    order: int
    dealias: bool

    @functools.cached_property
    def differences(self) -> Differences:
        low, high = self.domain
        return differences(self.scheme, self.order, self.cells, high - low, self.ends, self.dealias)

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

    def share(self, at: Float[Array, ""]) -> Float[Array, ""]:
        """How much of the line lies below a place."""
        return (at - self.domain[0]) / (self.domain[1] - self.domain[0])


@dataclasses.dataclass(frozen=True, eq=False)
class Grid:
    """A line, or two that span a rectangle; a field is an array with an axis for each, a place one coordinate for each."""

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
    def nodes(self) -> State:
        return _places([line.nodes for line in self.lines])

    @property
    def sites(self) -> State:
        """The places at which the equation is evaluated."""
        return _places([line.sites for line in self.lines])

    def at_end(self, function: Callable[[State], T], axis: int, side: int) -> T:
        """A function of a place, at all nodes of an end of an axis."""
        lines = [line.nodes for line in self.lines]
        lines[axis] = np.array([self.lines[axis].domain[side]])
        for _ in lines[1:]:
            function = jax.vmap(function)
        return function(tuple(part.squeeze(axis) for part in _places(lines)))

    def place(self, x: State) -> State | Array:
        """A place as functions of x get it."""
        return Place(*x) if self.plane else x[0]

    def gradients(self, along: Axes) -> tuple[Array | State, ...]:
        """Derivatives as the physics gets them, of each field one or a pair, from those (axis, field)."""
        return tuple(Gradient(*each) if self.plane else each[0] for each in zip(*along))

    def each(self, function: Callable[..., T]) -> Callable[..., T]:
        """A function of things at one place, at all places at once."""
        for _ in self.lines:
            function = jax.vmap(function)
        return function

    def derivatives(self, u: Float[Array, "*node"], at_ends: AtEnds = None) -> tuple[Float[Array, "*site"], Axes]:
        """A field at the sites, and along each axis its first derivatives (of upwind, two) and the second."""
        found: list[State] = []
        for axis, line in enumerate(self.lines):
            found = [tuple(line.differences.lift(part, axis) for part in parts) for parts in found]
            u, *parts = line.differences(u, None if at_ends is None else at_ends[axis], axis)
            found.append(tuple(parts))
        return u, tuple(found)

    def gather(self, rates: Float[Array, "*site"]) -> Float[Array, "*node"]:
        """Rates at the nodes from those at the sites."""
        for axis in reversed(range(len(self.lines))):
            rates = self.lines[axis].differences.gather(rates, axis)
        return rates

    def put(
        self, u: Float[Array, "*node"], axis: int, side: int, value: Float[Array, "*other"]
    ) -> Float[Array, "*node"]:
        """A field with other values at an end of an axis, one a node there."""
        count = self.shape[axis]
        here = jnp.arange(count) == (count - 1 if side else 0)
        others = [other for other in range(u.ndim) if other != axis]
        return jnp.where(jnp.expand_dims(here, others), jnp.expand_dims(value, axis), u)


def _places(lines: Sequence[np.ndarray]) -> State:
    return tuple(jnp.asarray(part, float) for part in np.meshgrid(*lines, indexing="ij"))


def domains_of(domain: Sequence[float | Sequence[float]]) -> tuple[tuple[float, float], ...]:
    """The interval of every axis."""
    parts = tuple(domain) if np.iterable(domain) else ()
    if not any(np.ndim(part) for part in parts):
        return (as_interval(domain, "domain"),)
    if len(parts) != len(SPACE):
        raise ProblemError(
            f"domain has {len(parts)} interval{'s' * (len(parts) != 1)}; give (low, high) for a line, or "
            "((x low, x high), (y low, y high)) for a rectangle"
        )
    return tuple(as_interval(part, f"domain along {name}") for name, part in zip(SPACE, parts))


def cells_of(cells: int | Sequence[int] | None, axes: int) -> tuple[int, ...]:
    """The number of cells along every axis."""
    if cells is None:
        return (USUAL[axes - 1],) * axes
    counts = tuple(cells) if np.iterable(cells) else (cells,) * axes
    if len(counts) != axes or not all(isinstance(count, int | np.integer) for count in counts):
        wanted = "one whole number" + (" for both axes, or a pair (along x, along y)" if axes > 1 else "")
        raise ProblemError(f"cells={cells!r} must be {wanted}")
    return counts


def boundaries_of(boundary: Boundary | Mapping[str, Boundary], axes: int) -> tuple[Ends, ...]:
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


def speeds_of(speeds: Numbers | Sequence[Numbers], names: tuple[str, ...], plane: bool) -> Axes:
    """(axis, field), from one speed for all fields or one each; in the plane, from pairs."""
    count, what = len(names), "speed(u, p, f)"
    if not plane:
        return (scalars(speeds if _is_several(speeds) else (speeds,) * count, what, names),)
    pairs = speeds if isinstance(speeds, Sequence) and any(map(_is_several, speeds)) else (speeds,) * count
    if len(pairs) != count:
        raise ProblemError(f"{what} must return a pair (along x, along y), or one for each of {count} fields")
    return tuple(zip(*(scalars(pair, what, ("along x", "along y")) for pair in pairs)))


def _is_several(part: Numbers | Sequence[Numbers]) -> bool:
    return isinstance(part, Sequence) or jnp.ndim(part) > 0
