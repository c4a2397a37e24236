"""Fourier neural operator on a regular grid of any dimension.

Weights are real (a complex weight is a pair), every retained mode has both its signs, coordinates enter as channels, and
axes that are not periodic are padded. Layers work on a grid just fine enough for their modes; what leaves the network is
carried along at the points that are asked for, be they the whole grid or a few. Few modes of many points are kept, so
transforms are products with small matrices: faster here than fast Fourier transforms.
"""

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...equations import Equation, ObservationIndex, Predictions, ProblemError, States
from ...parameters import System, Theta
from ._frame import Fixed, Frame, Kind, on_grid, supervised

PADDING = 0.25
FINENESS = 4  # points of the working grid a mode
Points = tuple[Int[Array, " row"], ...]  # an index along every axis
Pair = tuple[Array, Array]
Spectrum = tuple[Float[Array, "*mode channel"], Float[Array, "*mode channel"]]  # real and imaginary parts


class Waves(Fixed):
    """A grid: its coordinates as channels, and cosines and sines of the retained modes along each axis. Not trained."""

    coordinates: Float[Array, "*point coordinate"]
    cosine: tuple[Float[Array, "point mode"], ...]
    sine: tuple[Float[Array, "point mode"], ...]

    def __init__(self, phases: Sequence[np.ndarray], channels: Sequence[np.ndarray], modes: int):
        """Of each axis: where its points are in the period, from 0 to 1, and what channels say of them."""
        picked = np.meshgrid(*(np.arange(len(phase)) for phase in phases), indexing="ij")
        self.coordinates = jnp.asarray(np.concatenate([c[i] for c, i in zip(channels, picked)], axis=-1), float)
        last = len(phases) - 1
        # The field is real: along the last axis negative modes are the conjugates of positive ones.
        numbers = [np.arange(modes) if axis == last else np.arange(1 - modes, modes) for axis in range(last + 1)]
        angles = [2 * np.pi * np.outer(phase, number) for phase, number in zip(phases, numbers)]
        self.cosine = tuple(jnp.asarray(np.cos(angle), float) for angle in angles)
        self.sine = tuple(jnp.asarray(np.sin(angle), float) for angle in angles)

    @property
    def counts(self) -> tuple[int, ...]:
        """Coefficients along each axis."""
        return tuple(c.shape[1] for c in self.cosine)

    def analyse(self, field: Float[Array, "*point channel"]) -> Spectrum:
        """The retained coefficients of a field on a grid that divides the period evenly."""
        *others, last = [(c * (1 / len(c)), s * (-1 / len(s))) for c, s in zip(self.cosine, self.sine)]
        real, imaginary = (_along(field, part, len(others)) for part in last)
        for axis in reversed(range(len(others))):
            real, imaginary = _product(functools.partial(_along, axis=axis), (real, imaginary), others[axis])
        return real, imaginary

    def synthesise(self, spectrum: Spectrum, at: Points | None = None) -> Float[Array, "*point channel"]:
        """The real field with these coefficients, (*point, channel); with `at` at some points only, (row, channel)."""
        last = len(self.cosine) - 1
        twice = jnp.where(jnp.arange(self.counts[last]) == 0, 1.0, 2.0)
        for axis in range(last + 1):
            weight = twice if axis == last else 1.0
            cosine, sine = (waves[axis] * weight for waves in (self.cosine, self.sine))
            if at is None:
                along: Callable[[Array, Array], Array] = functools.partial(_along, axis=axis)
                cosine, sine = cosine.T, sine.T
            else:
                along = _at_first if axis == 0 else _at
                cosine, sine = cosine[at[axis]], sine[at[axis]]
            spectrum = _product(along, spectrum, (cosine, sine))
        return spectrum[0]


def _product(times: Callable[[Array, Array], Array], one: Pair, other: Pair) -> Pair:
    """A product of complex numbers, which are pairs of real ones."""
    (a, b), (c, d) = one, other
    return times(a, c) - times(b, d), times(b, c) + times(a, d)


def _along(field: Array, matrix: Float[Array, "old new"], axis: int) -> Array:
    """Replace an axis by its product with a matrix."""
    return jnp.moveaxis(jnp.tensordot(field, matrix, axes=(axis, 0)), -1, axis)


def _at_first(field: Float[Array, "mode ..."], matrix: Float[Array, "row mode"]) -> Float[Array, "row ..."]:
    return jnp.tensordot(matrix, field, axes=(1, 0))


def _at(field: Float[Array, "row mode ..."], matrix: Float[Array, "row mode"]) -> Float[Array, "row ..."]:
    return jnp.einsum("rm,rm...->r...", matrix, field)


def grids(points: Sequence[int], periodic: Sequence[bool], modes: int | None) -> tuple[Waves, Waves]:
    """The grid that layers work on, and the grid of the problem within the same periods."""
    padded = [n if wraps else n + int(np.ceil(PADDING * n)) for n, wraps in zip(points, periodic)]
    most = [n // 2 for n in padded]
    modes = modes or min(12 if len(points) == 1 else 8, *most)
    if modes > min(most):
        raise ProblemError(
            f"a grid of {' x '.join(map(str, padded))} points (padding included) is too coarse for {modes} modes along each "
            f"axis; use at most {min(most)}, or a finer grid"
        )
    work = [np.arange(min(n, FINENESS * modes)) / min(n, FINENESS * modes) for n in padded]
    given = [np.arange(n) / m for n, m in zip(points, padded)]
    ends = [phase[-1] for phase in given]

    def channels(phases: Sequence[np.ndarray]) -> list[np.ndarray]:
        """From -1 to 1 over the points given; on a circle where an axis is periodic."""
        return [
            np.stack([np.cos(2 * np.pi * s), np.sin(2 * np.pi * s)], -1)
            if wraps
            else (2 * s / max(end, 1e-9) - 1)[:, None]
            for s, wraps, end in zip(phases, periodic, ends)
        ]

    return Waves(work, channels(work), modes), Waves(given, channels(given), modes)


class Layer(eqx.Module):
    """x -> K x + W x + b, with K a convolution given by its retained modes and W a matrix at every point."""

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

    def convolved(self, spectrum: Spectrum) -> Spectrum:
        return _product(_mix, spectrum, (self.real, self.imaginary))

    def local(self, field: Float[Array, "*point into"]) -> Float[Array, "*point out"]:
        return field @ self.weight + self.bias


def _mix(coefficients: Float[Array, "*mode into"], weight: Float[Array, "*mode into out"]) -> Array:
    return jnp.einsum("...i,...io->...o", coefficients, weight)


class FNO(eqx.Module):
    """(channels constant over the grid) -> fields on the grid. Coordinates are further channels."""

    lift: eqx.nn.Linear
    layers: list[Layer]
    narrow: eqx.nn.Linear
    out: eqx.nn.Linear
    work: Waves
    given: Waves
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
        self.points = tuple(points)
        self.work, self.given = grids(points, periodic, modes)
        self.lift = eqx.nn.Linear(channels + self.given.coordinates.shape[-1], width, key=keys[0])
        self.layers = [Layer(self.work.counts, width, k) for k in keys[1 : depth + 1]]
        self.narrow = eqx.nn.Linear(width, width, key=keys[-2])
        out = eqx.nn.Linear(width, outputs, key=keys[-1])
        self.out = eqx.tree_at(lambda o: (o.weight, o.bias), out, replace_fn=jnp.zeros_like)  # start from nothing added

    def __call__(
        self, channels: Float[Array, " channel"], rows: Int[Array, " row"] | None = None
    ) -> Float[Array, "*point out"]:
        """Fields on the grid; with `rows`, numbers of points in the order of the grid, only there."""
        work, given = jax.lax.stop_gradient((self.work, self.given))
        at = None if rows is None else jnp.unravel_index(rows, self.points)
        inside = self._lifted(channels, work.coordinates)
        asked = self._lifted(channels, given.coordinates if at is None else given.coordinates[at])
        for layer in self.layers[:-1]:
            spectrum = layer.convolved(work.analyse(inside))
            inside = jax.nn.silu(work.synthesise(spectrum) + layer.local(inside))
            asked = jax.nn.silu(given.synthesise(spectrum, at) + layer.local(asked))
        last = self.layers[-1]
        asked = given.synthesise(last.convolved(work.analyse(inside)), at) + last.local(asked)
        return _linear(self.out, jax.nn.silu(_linear(self.narrow, asked)))

    def _lifted(self, channels: Array, coordinates: Float[Array, "*point coordinate"]) -> Float[Array, "*point width"]:
        """Constant channels are lifted once, not at every point."""
        count = channels.shape[0]
        return _linear(self.lift, channels, slice(count)) + coordinates @ self.lift.weight[:, count:].T


def _linear(
    layer: eqx.nn.Linear, x: Float[Array, "*point into"], inputs: slice = slice(None)
) -> Float[Array, "*point out"]:
    """The layer at every point; `inputs` are those that x holds."""
    assert layer.bias is not None
    return x @ layer.weight[:, inputs].T + layer.bias


class Operator(eqx.Module):
    """A Fourier neural operator over the grid; parameters are channels, the whole state comes out."""

    frame: Frame
    network: FNO

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 20, modes: int | None = None, depth: int = 3):
        problem, sizes = frame.problem, (frame.units.theta_center.shape[0], len(frame.problem.state_names))
        assert problem.shape is not None, "only problems on a tensor grid are given an operator"
        self.frame = frame
        self.network = FNO(*sizes, problem.shape, problem.periodic, key, width=width, modes=modes, depth=depth)

    def states(self, theta: Theta, system: System) -> States:
        said = self.network(self.frame.inputs(theta, system))
        return self.frame.whole(theta, system, said.reshape(-1, said.shape[-1]))

    def at(self, theta: Theta, where: ObservationIndex, system: System) -> Predictions:
        frame, rows = self.frame, where.node.reshape(-1)
        states = frame.whole(theta, system, self.network(frame.inputs(theta, system), rows), rows)
        return frame.problem.operator(theta, where, where.states(states.reshape(*where.node.shape, -1)), system)


def _without_grid(problem: Equation) -> str:
    return "" if problem.shape is not None else f"needs a tensor grid, and {problem.name!r} has none"


SUPERVISED = Kind(Operator, supervised, "solution", _without_grid)
PHYSICS = Kind(Operator, on_grid, "residual", _without_grid)
