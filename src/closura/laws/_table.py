"""Tabulated functions of one or two inputs: cubic inside the range, straight lines outside.

A solver calls a law thousands of times an iteration; a network costs about 25 kflop a call, a table about 20.
Tables are linear in their node values, so gradients flow through them into the network that filled them.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ._base import LawSpec, Scaling, SolverLaw
from ._beside import Beside

Read = Callable[[Array, Array], list[Array]]


class Axis(eqx.Module):
    """Equidistant nodes; zero is one of them, so what holds at the origin holds in the table."""

    step: Float[Array, ""]
    offset: Float[Array, ""]
    nodes: int = eqx.field(static=True)

    def points(self) -> Float[Array, " node"]:
        return self.step * (jnp.arange(self.nodes) - self.offset)

    def locate(self, x: Float[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Cell, place within it (0 to 1), and how far outside the range, in steps."""
        s = x / lax.stop_gradient(self.step) + lax.stop_gradient(self.offset)
        inside = jnp.clip(s, 0.0, self.nodes - 1.0)
        cell = jnp.minimum(lax.stop_gradient(inside).astype(jnp.int32), self.nodes - 2)
        # Computed once: were s rounded differently in two fusions, the cell that is read and that of the place would be two.
        cell = lax.optimization_barrier(cell)
        return cell, inside - cell, s - inside

    def outside(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """1 where x lies outside the table, else 0."""
        s = x / self.step + self.offset
        return jnp.where((s < 0.0) | (s > self.nodes - 1.0), 1.0, 0.0)


def axis(low: ArrayLike, high: ArrayLike, nodes: int, symmetric: bool) -> Axis:
    """Nodes over [low, high], widened so that they hold zero when the range does or when symmetry asks for it."""
    low, high = jnp.asarray(low, float), jnp.asarray(high, float)
    if symmetric:
        high = jnp.maximum(jnp.abs(low), jnp.abs(high))
        return Axis(2 * high / (nodes - 1), jnp.asarray((nodes - 1) / 2, float), nodes)
    step = (high - low) / (nodes - 2)
    return Axis(step, jnp.ceil(-low / step), nodes)


def axis_about(center: float, low: float, high: float, nodes: int, symmetric: bool) -> Axis:
    """Nodes over [low, high], widened so that the center is one of them."""
    low, high = min(low, center), max(high, center)
    if symmetric:
        step, left = max(-low, high) * 2 / (nodes - 1), (nodes - 1) / 2
    else:
        step = (high - low) / (nodes - 2)
        left = math.ceil((center - low) / step - 1e-9)
    return Axis(jnp.asarray(step, float), jnp.asarray(left - center / step, float), nodes)


@jax.custom_jvp
def _row(coefficients: Float[Array, "cell number"], cell: Int[Array, "*calls"]) -> list[Float[Array, "*calls"]]:
    """The coefficients of a cell, one by one. A batch of tables is read as one long table: XLA's gathers from many are slow."""
    return _row_of_one(coefficients, cell)


@_row.defjvp
def _row_jvp(primals: tuple, tangents: tuple) -> tuple:
    return _row(*primals), _linear_row(tangents[0], primals[1])


def _linear_row(coefficients: Array, cell: Array) -> list[Array]:
    """The same, for tangents: it can be transposed."""
    row = coefficients[cell]
    return [row[..., i] for i in range(row.shape[-1])]


@custom_vmap
def _row_of_one(coefficients: Array, cell: Array) -> list[Array]:
    return [column.at[cell].get(mode="promise_in_bounds") for column in coefficients.T]


@_row_of_one.def_vmap
def _row_of_many(size: int, batched: list[bool], coefficients: Array, cell: Array) -> tuple[list[Array], list[bool]]:
    of_each, by_call = batched
    if of_each:
        first = coefficients.shape[1] * jnp.arange(size, dtype=cell.dtype)
        cell = cell + first.reshape(-1, *(1,) * (cell.ndim - by_call))
        coefficients = coefficients.reshape(-1, coefficients.shape[-1])
    return _row_of_one(coefficients, cell), [True] * coefficients.shape[-1]


class Curve(eqx.Module):
    """One input: a row of four polynomial coefficients a cell."""

    axes: tuple[Axis]
    coefficients: Float[Array, "cell 4"]

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return _curve(self.coefficients, self.axes[0], jnp.asarray(x))


def curve(axis: Axis, value: Float[Array, " node"], monotone: bool) -> Curve:
    """Cubic Hermite interpolant of node values.

    Gradients are central differences; for increasing values they are harmonic means (Fritsch and Butland 1984),
    which keep every cell increasing.
    """
    rise = jnp.diff(value)
    if monotone:
        product = rise[:-1] * rise[1:]
        total = rise[:-1] + rise[1:]
        inner = jnp.where(product > 0, 2 * product / jnp.where(product > 0, total, 1.0), 0.0)
    else:
        inner = 0.5 * (rise[:-1] + rise[1:])
    gradient = jnp.concatenate([rise[:1], inner, rise[-1:]])
    return Curve((axis,), cubics(value, gradient))


def _polynomial(
    coefficients: Float[Array, "cell 4"], axis: Axis, x: Float[Array, ""], read: Read = _row
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Value and gradient in x."""
    cell, u, beyond = axis.locate(x)
    c = read(coefficients, cell)
    gradient = c[1] + u * (2 * c[2] + 3 * u * c[3])
    return c[0] + u * (c[1] + u * (c[2] + u * c[3])) + gradient * beyond, gradient / axis.step


@jax.custom_jvp
def _curve(coefficients: Float[Array, "cell 4"], axis: Axis, x: Float[Array, ""]) -> Float[Array, ""]:
    return _polynomial(coefficients, axis, x)[0]


def _curve_jvp(primals: tuple, tangents: tuple) -> tuple:
    # By hand: forward mode needs one look-up for value and gradient, and no tangent of the table where there is none.
    coefficients, axis, x = primals
    d_coefficients, _, d_x = tangents
    value, gradient = _polynomial(coefficients, axis, x)
    tangent = jnp.zeros_like(value)
    if not isinstance(d_x, SymbolicZero):
        tangent = tangent + gradient * d_x
    if not isinstance(d_coefficients, SymbolicZero):
        tangent = tangent + _polynomial(d_coefficients, axis, x, _linear_row)[0]
    return value, tangent


_curve.defjvp(_curve_jvp, symbolic_zeros=True)


class Surface(eqx.Module):
    """Two inputs: a row of sixteen coefficients a cell, of u^i v^j at 4 i + j; cells of a row of nodes follow each other."""

    axes: tuple[Axis, Axis]
    coefficients: Float[Array, "cell 16"]

    def __call__(self, x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
        return _surface(self.coefficients, self.axes, jnp.asarray(x), jnp.asarray(y))


def surface(axes: tuple[Axis, ...], value: Float[Array, "row column"]) -> Surface:
    """Cubic Hermite interpolant of node values in both inputs; gradients are central differences."""
    by_x, by_y = jnp.gradient(value)
    _, mixed = jnp.gradient(by_x)
    return hermite_surface(axes, jnp.stack([value, by_y, by_x, mixed], axis=-1))


def hermite_surface(axes: tuple[Axis, ...], nodes: Float[Array, "row column 4"]) -> Surface:
    """The same from value, gradient in y, gradient in x and mixed derivative at each node, in steps of the axes."""
    rows = cubics(nodes[..., :2], nodes[..., 2:])
    by_column = jnp.moveaxis(rows, 1, 0)  # (column, cell, value and gradient in y, power of u)
    cells = jnp.moveaxis(cubics(by_column[:, :, 0], by_column[:, :, 1]), 0, 1)
    first, second = axes
    return Surface((first, second), cells.reshape(-1, 16))


def cubics(value: Float[Array, "node *rest"], gradient: Float[Array, "node *rest"]) -> Float[Array, "cell *rest 4"]:
    """The cubic of each cell along the first axis, from values and gradients (in steps) at its ends."""
    left, rise, m0, m1 = value[:-1], value[1:] - value[:-1], gradient[:-1], gradient[1:]
    return jnp.stack([left, m0, 3 * rise - 2 * m0 - m1, m0 + m1 - 2 * rise], axis=-1)


def _bicubic(
    coefficients: Float[Array, "cell 16"],
    axes: tuple[Axis, Axis],
    x: Float[Array, ""],
    y: Float[Array, ""],
    read: Read = _row,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Value and gradients in x and y; outside, straight lines along either input."""
    i, u, beyond_u = axes[0].locate(x)
    j, v, beyond_v = axes[1].locate(y)
    c = read(coefficients, i * (axes[1].nodes - 1) + j)
    # Written out: a matrix product of four by four is several times slower here.
    by_v = [c[k + 1] + v * (2 * c[k + 2] + 3 * v * c[k + 3]) for k in (0, 4, 8, 12)]
    along = [c[k] + v * (c[k + 1] + v * (c[k + 2] + v * c[k + 3])) + by_v[k // 4] * beyond_v for k in (0, 4, 8, 12)]
    value, by_u = _cubic(along, u)
    gradient_v, mixed = _cubic(by_v, u)
    return (
        value + by_u * beyond_u,
        by_u / axes[0].step,
        (gradient_v + mixed * beyond_u) / axes[1].step,
    )


def _cubic(c: list[Array], u: Array) -> tuple[Array, Array]:
    """Value and gradient."""
    return c[0] + u * (c[1] + u * (c[2] + u * c[3])), c[1] + u * (2 * c[2] + 3 * u * c[3])


@jax.custom_jvp
def _surface(
    coefficients: Float[Array, "cell 16"], axes: tuple[Axis, Axis], x: Float[Array, ""], y: Float[Array, ""]
) -> Float[Array, ""]:
    return _bicubic(coefficients, axes, x, y)[0]


def _surface_jvp(primals: tuple, tangents: tuple) -> tuple:
    coefficients, axes, x, y = primals
    d_coefficients, _, d_x, d_y = tangents
    value, *gradients = _bicubic(coefficients, axes, x, y)
    tangent = jnp.zeros_like(value)
    for gradient, change in zip(gradients, (d_x, d_y)):
        if not isinstance(change, SymbolicZero):
            tangent = tangent + gradient * change
    if not isinstance(d_coefficients, SymbolicZero):
        tangent = tangent + _bicubic(d_coefficients, axes, x, y, _linear_row)[0]
    return value, tangent


_surface.defjvp(_surface_jvp, symbolic_zeros=True)


class TabulatedLaw(SolverLaw):
    """A law as a solver looks it up: the table, and what is beside it, hold what comes before the structure's `finish`."""

    spec: LawSpec = eqx.field(static=True)
    table: Curve | Surface
    scaling: Scaling
    beside: Beside | None = None

    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        _, scale, output = lax.stop_gradient(self.scaling)
        structure = self.spec.structure

        def look_up(*x: Array) -> Array:
            raw = self.table(*x) if self.beside is None else self.table(*x) + self.beside(*x)
            return structure.finish(x, raw, scale[0], output)

        return structure.folded(look_up, tuple(map(jnp.asarray, x)))

    def outside(self, x: Float[Array, "*calls input"]) -> Float[Array, "*calls"]:
        return jnp.max(jnp.stack([a.outside(x[..., i]) for i, a in enumerate(self.table.axes)]), axis=0)
