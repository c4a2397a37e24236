"""Unknown laws that are sampled: smooth functions, as unsure as data leave them.

    f(x) = finish(raw(x)),      raw = g,  or g made positive and integrated,      g = polynomial + s W     (see `_basis`)

A chain holds coordinates of g and log s^2, as it holds theta. Nothing of the prior depends on the table: where solutions go
further, a longer table has other coordinates of the same prior.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._base import AbstractLaw, LawError, LawSpec, Range, Scaling, SolverLaw
from ._basis import ORDER, Frame, Smooth, make_frame
from ._mlp import MLP
from ._plane import Plane, PlaneFrame, check_two, stated_unit
from ._structure import FLAGS, Structure
from ._table import Curve, TabulatedLaw, axis_about, cubics

NODES = 33
# Standard deviations of value, gradient and curvature at the reference, in units of the law and of its input; where a
# softplus stands between g and the law, less is wide. Mean and standard deviation of log s^2.
WIDE, LINKED = (3.0, 3.0, 3.0), (2.0, 2.0, 2.0)
LOG_SIZE = (0.0, 2.0)
NEARLY = 1e-3  # of its largest value: how well a law must be met when its table changes
# Beside those of every law (see `_structure`): which exclude each other, and why.
CONTRADICTIONS = (
    ("increasing", "decreasing", "no law grows and falls"),
    ("convex", "concave", "only straight lines are both"),
    ("increasing", "convex", "both at once are not there yet; choose the one you are surer of"),
    ("increasing", "concave", "both at once are not there yet; choose the one you are surer of"),
    ("decreasing", "convex", "both at once are not there yet; choose the one you are surer of"),
    ("decreasing", "concave", "both at once are not there yet; choose the one you are surer of"),
    ("decreasing", "dissipative", "a dissipative law grows through the origin"),
    ("dissipative", "convex", "both at once are not there yet; choose the one you are surer of"),
    ("dissipative", "concave", "both at once are not there yet; choose the one you are surer of"),
    ("even", "decreasing", "an even law grows where its mirror image falls"),
    ("odd", "convex", "an odd law bends both ways"),
    ("odd", "concave", "an odd law bends both ways"),
    ("positive", "concave", "a concave law falls below zero somewhere"),
)


@dataclasses.dataclass(frozen=True)
class Law(LawSpec):
    """An unknown smooth law f(x) or f(x, y), sampled with everything else: a posterior over functions.

    Structure, each exact in every draw:

    - `odd`: f(-x) = -f(x);  `even`: f(-x) = f(x);  `zero_at_origin`: f(0) = 0;  `at={x: value}`: f(x) = value
    - `positive`: f > 0;  `increasing`, `decreasing`, `convex`, `concave`
    - `dissipative`: x f(x) >= 0 (a damper never drives)

    The prior is wide: a parabola, and on it a random function whose third derivative is white noise, of a size that is
    inferred. Its units are taken from the equation; `unit` (how large the law is, roughly), `scale` (over which distance
    of its input it changes) and `reference` (where the parabola is stated) say better. `network` is what takes its place where
    a law must be a network (surrogates, the published method); by default one of the same structure.

    With `inputs=2` it is f(x, y): odd, even, zero at the origin and positive in both together, dissipative in x; `scale`
    and `reference` are then two numbers each, or one for both.
    """

    inputs: int = 1
    odd: bool = False
    even: bool = False
    zero_at_origin: bool = False
    positive: bool = False
    increasing: bool = False
    decreasing: bool = False
    convex: bool = False
    concave: bool = False
    dissipative: bool = False
    at: Mapping[float, float] | tuple[tuple[float, float], ...] = ()
    unit: float | None = None
    scale: float | Sequence[float] | None = None
    reference: float | Sequence[float] | None = None
    nodes: int = NODES
    network: MLP | None = None

    trainable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple((float(x), float(value)) for x, value in dict(self.at).items()))
        if self.inputs not in (1, 2):
            raise ValueError(
                f"Law: inputs={self.inputs}, and a sampled law has one or two; use cl.MLP(inputs={self.inputs})"
            )
        if self.nodes < 9 or self.nodes % 2 == 0:
            raise ValueError(f"Law: nodes={self.nodes} must be odd and at least 9; 33 are good")
        for name in ("unit", "scale", "reference"):
            object.__setattr__(self, name, stated_unit(name, getattr(self, name), self.inputs))
        if self.inputs == 2:
            check_two(self)
        self.structure.check()
        for one, other, why in CONTRADICTIONS:
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} contradict each other; choose one: {why}")
        self._check_points()

    def _check_points(self) -> None:
        for x, value in self.points:
            if not (math.isfinite(x) and math.isfinite(value)):
                raise ValueError(f"Law: at={{{x}: {value}}} must be numbers")
            if self.positive and value <= 0:
                raise ValueError(f"Law: a positive law cannot be {value} at {x}")
            if self.dissipative and (value * x < 0 or (x == 0) != (value == 0)):
                raise ValueError(f"Law: a dissipative law cannot be {value} at {x}: it has the sign of its input")
            if self.zero_at_origin and x == 0:
                raise ValueError("Law: zero_at_origin says what the law is at 0 already; drop it, or 0 from at=")
            if self.structure.symmetric and x <= 0:
                raise ValueError(f"Law: the symmetry says what the law is at {x}; give points with a positive input")
        if self.integrations and len(self.at) + self.structure.shifted + self.odd > 1:
            raise ValueError("Law: with increasing, decreasing, convex or concave one point can be given at most")

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Where the law is given, and what it is there."""
        return tuple(dict(self.at).items())

    @property
    def structure(self) -> Structure:
        return Structure(self.inputs, **{flag: getattr(self, flag) for flag in FLAGS})

    @property
    def per_chain(self) -> bool:
        return True

    def as_network(self) -> MLP:
        if self.network is not None:
            return self.network
        more = [flag for flag in ("decreasing", "convex", "concave", "at") if getattr(self, flag)]
        if more:
            raise LawError(
                f"a network cannot promise {', '.join(more)}; sample the law (--forward solver --law sampled)"
            )
        return MLP(self.inputs, **{flag: getattr(self, flag) for flag in FLAGS})

    @property
    def promised(self) -> tuple[str, ...]:
        more = [name for name in ("decreasing", "convex", "concave") if getattr(self, name)]
        return (*self.structure.promised, *more, *(f"{value:g} at {x:g}" for x, value in self.points))

    @property
    def integrations(self) -> int:
        """How often a positive function is integrated to give the law."""
        return 2 * (self.convex or self.concave) or int(self.increasing or self.decreasing)

    @property
    def levels(self) -> tuple[int, ...]:
        """Which constants of integration are free: 0, the value at the reference; 1, the gradient there."""
        pinned = self.odd or self.structure.shifted or bool(self.at)
        free = (not pinned, not self.even)
        return tuple(i for i in range(self.integrations) if free[i])

    def prior(self, scaling: Scaling) -> Smooth:
        """Of g, in units of the law and its input."""
        factored, wide = self.structure.factored, LINKED if self.linked else WIDE
        parity = int(self.even or (self.odd and (factored or self.integrations == 1))) or -int(self.odd)
        given = dict(self.at) | ({0.0: 0.0} if self.structure.shifted and not self.odd else {})
        through = {}
        for x, value in given.items() if not self.integrations else ():
            z, raw = (x - float(scaling.center[0])) / float(scaling.scale[0]), value / float(scaling.output)
            raw = raw / (x / float(scaling.scale[0])) if factored and x else raw
            through[z] = raw + math.log(-math.expm1(-raw)) if self.positive or factored else raw
        return Smooth(ORDER - self.integrations, wide[self.integrations :], parity, through)

    @property
    def plane(self) -> Plane:
        """The prior of g, where there are two inputs; its table has half as many nodes along each as that of a curve."""
        parity = int(self.even or (self.odd and self.structure.factored)) or -int(self.odd)
        return Plane(LINKED if self.linked else WIDE, not self.structure.shifted, parity, 2 * (self.nodes // 4) + 1)

    @property
    def coordinates(self) -> int:
        """How many there are, constants of integration included."""
        if self.inputs == 2:
            return self.plane.coordinates
        even = self.even or (self.odd and (self.structure.factored or self.integrations == 1))
        orders = range(ORDER - self.integrations)
        wanted = len(orders)
        curved = self.nodes - len(orders)
        if self.structure.symmetric:
            wanted, curved = sum(i % 2 == (not even) for i in orders), (self.nodes - 1) // 2 - 1
        through = 0 if self.integrations else len(self.at) + (self.structure.shifted and not self.odd)
        return len(self.levels) + wanted + curved - through

    @property
    def linked(self) -> bool:
        """Does a softplus stand between g and the law?"""
        return self.positive or self.structure.factored or bool(self.integrations)

    def units(self, scaling: Scaling) -> Scaling:
        """The reference, and the units of input and law: as stated, else as found from the equation."""
        origin = self.structure.symmetric or self.zero_at_origin or (self.dissipative and self.inputs == 1)
        center = 0.0 if origin else self.points[0][0] if self.integrations and self.at else self.reference
        stated = (center, self.scale, self.unit)
        return Scaling(
            *(old if new is None else jnp.full_like(old, np.asarray(new)) for old, new in zip(scaling, stated))
        )

    def frame(self, range_: Range, scaling: Scaling) -> Frame | PlaneFrame:
        """Coordinates on a table that covers a range, and the reference."""
        scaling = self.units(scaling)
        if self.inputs == 2:
            return self.plane.frame(range_, scaling)
        center, low, high = (float(part[0]) for part in (scaling.center, range_.low, range_.high))
        axis = axis_about(center, low, high, self.nodes, self.structure.symmetric)
        frame = make_frame(self.prior(scaling), axis, scaling)
        return frame.with_levels(len(self.levels))

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "SmoothLaw":
        """A law with all coordinates at zero: none at all, where structure allows it."""
        return SmoothLaw(self, jnp.zeros(self.coordinates), jnp.asarray(LOG_SIZE[0], float))


class SmoothLaw(AbstractLaw):
    """A law as a chain holds it: coordinates of g (and constants of integration before them), and log s^2."""

    spec: Law = eqx.field(static=True)
    coordinates: Float[Array, "*chain coordinate"]
    log_size: Float[Array, "*chain"]

    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        raise TypeError("a sampled law is called as prepared for a table: law.prepare(frame)(x)")

    def prepare(self, range_: PyTree) -> TabulatedLaw:
        spec, frame = self.spec, range_
        if spec.inputs == 2:
            return TabulatedLaw(spec, frame.table(self.coordinates), frame.scaling)
        constants, a = jnp.split(self.coordinates, [len(spec.levels)])
        node = frame.nodes @ a + frame.offset
        if not spec.integrations:
            return TabulatedLaw(spec, Curve((frame.axis,), cubics(*node.T)), frame.scaling)
        step = frame.axis.step / frame.scaling.scale[0]
        start = jnp.round(frame.axis.offset + frame.scaling.center[0] / frame.axis.step).astype(int)
        cells = _integrated(jax.nn.softplus(node[:, 0]), step, start, spec.integrations)
        sign = -1.0 if spec.decreasing or spec.concave else 1.0
        level, gradient = (
            constants[spec.levels.index(i)] * WIDE[i] if i in spec.levels else jnp.zeros(()) for i in (0, 1)
        )
        if spec.at:
            level = spec.points[0][1] / frame.scaling.output
        z = step * (jnp.arange(len(cells)) - start)
        line = jnp.stack([level + gradient * z, jnp.full(len(cells), gradient * step)], axis=-1)
        return TabulatedLaw(spec, Curve((frame.axis,), (sign * cells).at[:, :2].add(line)), frame.scaling)

    def before_data(self, range_: PyTree, key: PRNGKeyArray) -> "SmoothLaw":
        precision, mean = range_.prior(self.log_size)
        return self.with_weights(mean + jr.normal(key, mean.shape) / jnp.sqrt(precision))

    def prior_variance(self, range_: PyTree, x: Float[Array, "point input"]) -> Float[Array, " point"] | None:
        if self.spec.linked:
            return None
        origin = self.spec.build(jr.key(0), range_.scaling).weights

        def at(a: Array) -> Array:
            view = self.with_weights(a).prepare(range_)
            return jax.vmap(lambda x: view(*x))(x)

        # f = basis a + offset: of a mixture over sizes, the mean variance and the variance of means.
        basis = jax.jacfwd(at)(origin)
        precision, mean = range_.prior(self.log_size)
        return basis**2 @ jnp.mean(1 / precision, axis=0) + jnp.var(mean @ basis.T, axis=0)

    def unit(self, range_: PyTree) -> float:
        return float(range_.scaling.output)

    @property
    def unknowns(self) -> dict[str, np.ndarray]:
        return {"coordinates": np.asarray(self.coordinates), "log_size": np.asarray(self.log_size)}

    def as_function(self, range_: PyTree) -> TabulatedLaw:
        return self.prepare(range_)

    def log_prior(self, range_: PyTree, view: SolverLaw | None) -> Float[Array, ""]:
        precision, mean = range_.prior(self.log_size)
        square = jnp.sum(precision * (self.coordinates - mean) ** 2 - jnp.log(precision))
        return -0.5 * (square + ((self.log_size - LOG_SIZE[0]) / LOG_SIZE[1]) ** 2)

    @property
    def weights(self) -> PyTree:
        return self.coordinates

    def with_weights(self, weights: PyTree) -> "SmoothLaw":
        return eqx.tree_at(lambda law: law.coordinates, self, weights)

    def reframed(self, old: PyTree, new: PyTree) -> "SmoothLaw":
        """The same law on another table, as nearly as its prior allows; on the host, for one chain."""
        levels = len(self.spec.levels)
        a = np.asarray(self.coordinates, float)
        design, value, wanted = new.matched(old, a[levels:])
        precision, mean = (np.asarray(part, float)[levels:] for part in new.prior(self.log_size))
        weight = 1 / (NEARLY * (np.abs(value).max() + NEARLY)) ** 2
        matrix = weight * design.T @ design + np.diag(precision)
        found = np.linalg.solve(matrix, weight * design.T @ wanted + precision * mean)
        return self.with_weights(jnp.asarray(np.concatenate([a[:levels], found]), self.coordinates.dtype))

    def with_size(self, log_size: Float[Array, "*chain"]) -> "SmoothLaw":
        """The same law, of another size before data."""
        return eqx.tree_at(lambda law: law.log_size, self, log_size)


def _integrated(value: Float[Array, " node"], step: Array, start: Array, times: int) -> Float[Array, "cell 4"]:
    """A function that is linear between nodes, integrated once or twice from node `start`, exactly: where it is positive
    the result grows, or bends upwards, to the last bit of every cell."""

    def integral(rise: Array) -> Array:
        total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(rise)])
        return total - total[start]

    left, right = step * value[:-1], step * value[1:]
    first = integral(0.5 * (left + right))
    if times == 1:
        return jnp.stack([first[:-1], left, 0.5 * (right - left), jnp.zeros_like(left)], axis=-1)
    second = integral(step * (first[:-1] + (2 * left + right) / 6))
    cells = [second[:-1], step * first[:-1], 0.5 * step * left, step * (right - left) / 6]
    return jnp.stack(cells, axis=-1)
