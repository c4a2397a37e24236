"""Fourier neural operator on a regular grid of any dimension.

Weights are real (a complex weight is a pair), every retained mode has both its signs, coordinates enter as channels, and
axes that are not periodic are padded. Few modes of many points are kept, so transforms are products with small matrices:
faster here than fast Fourier transforms, and the last layer can be asked for a few points only.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..problem import ProblemError

PADDING = 0.25
Points = tuple[Int[Array, " row"], ...]  # an index along every axis


class Waves(eqx.Module):
    """A grid: its coordinates, and cosines and sines of the retained modes along each axis. Nothing here is trained."""

    coordinates: Float[Array, "*point axis"]
    cosine: tuple[Float[Array, "point mode"], ...]
    sine: tuple[Float[Array, "point mode"], ...]

    def __init__(self, coordinates: Float[Array, "*point axis"], modes: Sequence[int]):
        points = coordinates.shape[:-1]
        if any(2 * m > n for m, n in zip(modes, points)):
            raise ProblemError(
                f"a grid of {' x '.join(map(str, points))} points (padding included) is too coarse for "
                f"{' x '.join(map(str, modes))} modes; use at most {' x '.join(str(n // 2) for n in points)}, or a finer grid"
            )
        cosines, sines = [], []
        for axis, (n, m) in enumerate(zip(points, modes)):
            # The field is real: along the last axis negative modes are the conjugates of positive ones.
            numbers = np.arange(m) if axis == len(points) - 1 else np.arange(1 - m, m)
            angle = 2 * np.pi * np.outer(np.arange(n), numbers) / n
            cosines.append(jnp.asarray(np.cos(angle), float))
            sines.append(jnp.asarray(np.sin(angle), float))
        self.coordinates, self.cosine, self.sine = coordinates, tuple(cosines), tuple(sines)

    @property
    def counts(self) -> tuple[int, ...]:
        """Coefficients along each axis."""
        return tuple(c.shape[1] for c in self.cosine)

    def analyse(self, field: Float[Array, "*point channel"]) -> tuple[Array, Array]:
        """Real and imaginary parts of the retained coefficients, (*mode, channel)."""
        real, imaginary = field, None
        for axis in reversed(range(len(self.cosine))):
            scale = 1 / field.shape[axis]
            cosine, sine = self.cosine[axis] * scale, self.sine[axis] * scale
            if imaginary is None:
                real, imaginary = _along(real, cosine, axis), -_along(real, sine, axis)
            else:
                real, imaginary = (
                    _along(real, cosine, axis) + _along(imaginary, sine, axis),
                    _along(imaginary, cosine, axis) - _along(real, sine, axis),
                )
        assert imaginary is not None
        return real, imaginary

    def synthesise(self, real: Array, imaginary: Array, at: Points | None = None) -> Float[Array, "*point channel"]:
        """The real field with these coefficients, (*point, channel); with `at` at some points only, (row, channel)."""
        last = len(self.cosine) - 1
        twice = jnp.where(jnp.arange(self.counts[last]) == 0, 1.0, 2.0)
        for axis in range(last + 1):
            weight = twice if axis == last else 1.0
            cosine, sine = (waves[axis] * weight for waves in (self.cosine, self.sine))
            if at is None:
                product: Callable[[Array, Array], Array] = functools.partial(_along, axis=axis)
                cosine, sine = cosine.T, sine.T
            else:
                product = _at_first if axis == 0 else _at
                cosine, sine = cosine[at[axis]], sine[at[axis]]
            if axis == last:
                return product(real, cosine) - product(imaginary, sine)
            real, imaginary = (
                product(real, cosine) - product(imaginary, sine),
                product(imaginary, cosine) + product(real, sine),
            )
        raise AssertionError("a grid has axes")


def _along(field: Array, matrix: Float[Array, "old new"], axis: int) -> Array:
    """Replace an axis by its product with a matrix."""
    return jnp.moveaxis(jnp.tensordot(field, matrix, axes=(axis, 0)), -1, axis)


def _at_first(field: Float[Array, "mode ..."], matrix: Float[Array, "row mode"]) -> Float[Array, "row ..."]:
    return jnp.tensordot(matrix, field, axes=(1, 0))


def _at(field: Float[Array, "row mode ..."], matrix: Float[Array, "row mode"]) -> Float[Array, "row ..."]:
    return jnp.einsum("rm,rm...->r...", matrix, field)


class Layer(eqx.Module):
    """x -> activation(K x + W x + b), with K a convolution given by its retained modes."""

    real: Float[Array, "*mode into out"]
    imaginary: Float[Array, "*mode into out"]
    weight: Float[Array, "into out"]
    bias: Float[Array, " out"]

    def __init__(self, counts: Sequence[int], width: int, key: PRNGKeyArray):
        keys = jr.split(key, 3)
        size = (1 / width) ** 0.5
        self.real = size * jr.normal(keys[0], (*counts, width, width))
        self.imaginary = size * jr.normal(keys[1], (*counts, width, width))
        self.weight = size * jr.normal(keys[2], (width, width))
        self.bias = jnp.zeros(width)

    def __call__(self, waves: Waves, field: Array, at: Points | None = None) -> Array:
        real, imaginary = waves.analyse(field)
        mixed = (
            _mix(real, self.real) - _mix(imaginary, self.imaginary),
            _mix(imaginary, self.real) + _mix(real, self.imaginary),
        )
        there = field if at is None else field[at]
        return waves.synthesise(*mixed, at) + there @ self.weight + self.bias


def _mix(coefficients: Float[Array, "*mode into"], weight: Float[Array, "*mode into out"]) -> Array:
    return jnp.einsum("...i,...io->...o", coefficients, weight)


class FNO(eqx.Module):
    """(channels constant over the grid) -> fields on the grid. Coordinates are further channels."""

    lift: eqx.nn.Linear
    layers: list[Layer]
    narrow: eqx.nn.Linear
    out: eqx.nn.Linear
    waves: Waves
    points: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        outputs: int,
        points: Sequence[int],
        periodic: Sequence[bool],
        key: PRNGKeyArray,
        *,
        width: int = 32,
        modes: int | None = None,
        depth: int = 4,
    ):
        keys = jr.split(key, depth + 3)
        padded = [n if wraps else n + int(np.ceil(PADDING * n)) for n, wraps in zip(points, periodic)]
        self.points = tuple(points)
        axes = [2 * np.arange(m) / max(1, n - 1) - 1 for n, m in zip(points, padded)]
        coordinates = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), float)
        self.waves = Waves(coordinates, [modes or min(12, *(n // 2 for n in padded))] * len(padded))
        self.lift = eqx.nn.Linear(channels + len(padded), width, key=keys[0])
        self.layers = [Layer(self.waves.counts, width, k) for k in keys[1 : depth + 1]]
        self.narrow = eqx.nn.Linear(width, width, key=keys[-2])
        out = eqx.nn.Linear(width, outputs, key=keys[-1])
        self.out = eqx.tree_at(lambda o: (o.weight, o.bias), out, replace_fn=jnp.zeros_like)  # start from nothing added

    def __call__(
        self, channels: Float[Array, " channel"], rows: Int[Array, " row"] | None = None
    ) -> Float[Array, "*point out"]:
        """Fields on the grid; with `rows`, numbers of points in the order of the grid, only there."""
        waves = jax.lax.stop_gradient(self.waves)
        at = None if rows is None else jnp.unravel_index(rows, self.points)
        count = channels.shape[0]
        # Constant channels are lifted once, not at every point.
        constant = _linear(self.lift.weight[:, :count], self.lift.bias, channels)
        field = constant + waves.coordinates @ self.lift.weight[:, count:].T
        for place, layer in enumerate(self.layers):
            last = place == len(self.layers) - 1
            field = layer(waves, field, at if last else None)
            field = field if last else jax.nn.silu(field)
        field = jax.nn.silu(_linear(self.narrow.weight, self.narrow.bias, field))
        field = _linear(self.out.weight, self.out.bias, field)
        return field if rows is not None else field[tuple(slice(n) for n in self.points)]


def _linear(weight: Float[Array, "out into"], bias: Any, x: Float[Array, "*point into"]) -> Float[Array, "*point out"]:
    return x @ weight.T + bias
