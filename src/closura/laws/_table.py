"""Tabulated functions of one or two inputs: cubic inside the range, straight lines outside.

A solver calls a law thousands of times an iteration; a network costs about 25 kflop a call, a table about 20.
Tables are linear in their node values, so gradients flow through them into the network that filled them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ._base import LawSpec, Scaling, SolverLaw
from ._beside import Beside


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
        cell = jnp.clip(jnp.floor(lax.stop_gradient(inside)), 0.0, self.nodes - 2.0)
        return cell.astype(jnp.int32), inside - cell, s - inside

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
    left, right = value[:-1], value[1:]
    rise = right - left
    if monotone:
        product = rise[:-1] * rise[1:]
        total = rise[:-1] + rise[1:]
        inner = jnp.where(product > 0, 2 * product / jnp.where(product > 0, total, 1.0), 0.0)
    else:
        inner = 0.5 * (rise[:-1] + rise[1:])
    gradient = jnp.concatenate([rise[:1], inner, rise[-1:]])
    m0, m1 = gradient[:-1], gradient[1:]
    return Curve((axis,), jnp.stack([left, m0, 3 * rise - 2 * m0 - m1, m0 + m1 - 2 * rise], axis=-1))


def _polynomial(
    coefficients: Float[Array, "cell 4"], axis: Axis, x: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Value and gradient in x."""
    cell, u, beyond = axis.locate(x)
    c = coefficients[cell]
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
        tangent = tangent + _polynomial(d_coefficients, axis, x)[0]
    return value, tangent


_curve.defjvp(_curve_jvp, symbolic_zeros=True)


class Surface(eqx.Module):
    """Two inputs: Catmull-Rom in both, from node values with one linear ghost node on each side."""

    axes: tuple[Axis, ...]
    padded: Float[Array, "rows columns"]

    def __call__(self, x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
        i, u, du = self.axes[0].locate(jnp.asarray(x))
        j, v, dv = self.axes[1].locate(jnp.asarray(y))
        patch = lax.dynamic_slice(self.padded, (i, j), (4, 4))
        wu = _weights(u)
        along_v = patch @ _weights(v)
        gradient_u = _gradient_weights(u) @ along_v
        gradient_v = wu @ patch @ _gradient_weights(v)
        return wu @ along_v + gradient_u * du + gradient_v * dv


def surface(axes: tuple[Axis, ...], value: Float[Array, "rows columns"]) -> Surface:
    for dimension in (0, 1):
        value = jnp.moveaxis(value, dimension, 0)
        value = jnp.concatenate([2 * value[:1] - value[1:2], value, 2 * value[-1:] - value[-2:-1]])
        value = jnp.moveaxis(value, 0, dimension)
    return Surface(axes, value)


def _weights(u: Float[Array, ""]) -> Float[Array, " 4"]:
    u2, u3 = u * u, u * u * u
    return 0.5 * jnp.stack([2 * u2 - u - u3, 2 - 5 * u2 + 3 * u3, u + 4 * u2 - 3 * u3, u3 - u2])


def _gradient_weights(u: Float[Array, ""]) -> Float[Array, " 4"]:
    u2 = u * u
    return 0.5 * jnp.stack([4 * u - 1 - 3 * u2, 9 * u2 - 10 * u, 1 + 8 * u - 9 * u2, 3 * u2 - 2 * u])


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
