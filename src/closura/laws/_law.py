"""How an unknown law that is sampled is stated: its structure, its units, its prior. `_smooth` is what a chain holds of it."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ..parameters import Parameter, Prior
from ._base import AbstractLaw, LawError, LawSpec, Range, Scaling
from ._basis import DETAIL, ORDER, Frame, Functions, Smooth, make_frame
from ._combinations import STATED, check_contradictions, check_place
from ._form import KnownForm, Stated
from ._mlp import MLP
from ._plane import Plane, PlaneFrame, check_two, stated_unit
from ._stationary import AMPLITUDE, PLACES, Stationary
from ._structure import FLAGS, Structure
from ._table import axis_about

NODES = 33
# Standard deviations of value, gradient and curvature at the reference, in units of the law and of its input; where a
# softplus stands between g and the law, less is wide.
WIDE, LINKED = (3.0, 3.0, 3.0), (2.0, 2.0, 2.0)
# Means and standard deviations of log s^2 of the trend, and log r^2 of the detail; of two inputs W is all there is: of s = 1
# its standard deviation is 1 / sqrt(20) at the ends of most inputs, and the mean makes that as wide as a value.
TREND_SIZE, PLANE_SIZE, SIZE_SD = 2.0, math.log(20 * WIDE[0] ** 2), 1.5
# Detail of a law, in its units, and of g where a softplus stands between.
DETAILS, LINKED_DETAILS = 0.08, 0.3
FIRST_SIZES = (0.0, 2 * math.log(0.03))  # laws are learned smooth
# Of the softplus in a dissipative law, in units of the law over its input: next to zero, where the law may be a thirtieth of its
# unit, a blunt one would make the prior one of its logarithm.
SHARPNESS = 8.0
# Of a jump: median of its width in units of the input, sd of its log.
WIDTH = (0.05, 1.0)


@dataclasses.dataclass(frozen=True)
class Law(LawSpec):
    """An unknown smooth law f(x) or f(x, y), sampled with everything else: a posterior over functions.

    Structure, each exact in every draw:

    - `odd`: f(-x) = -f(x);  `even`: f(-x) = f(x);  `zero_at_origin`: f(0) = 0;  `at={x: value}`: f(x) = value
    - `positive`: f > 0;  `increasing`, `decreasing`, `convex`, `concave`
    - `dissipative`: x f(x) >= 0 (a damper never drives)

    Sharp places, each side with a trend of its own: `kink=x0`, where the gradient may jump; `jump=x0`, where the value may, rounded
    over a width that is inferred.

    The prior is wide: a parabola, on it a trend whose third derivative is white noise, and detail that changes over an eighth of
    the input's range; the sizes of both are inferred. Its units are taken from the equation; `unit` (how large the law is, roughly), `scale` (over which distance
    of its input it changes) and `reference` (where the parabola is stated) say better. `network` is what takes its place where
    a law must be a network (surrogates, the published method); by default one of the same structure.

    Where its form is known, f(x) = form(x, p) + correction:

        cl.Law(around=lambda v, p: p.c * v**p.m, parameters={"c": cl.Positive(0.5), "m": cl.Real(1.0)})

    `parameters` are stated as those of an equation and inferred by name. The correction is a random function about zero, of
    a size that is inferred and most likely nothing, orthogonal over the range of the input to what the parameters can do.
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
    kink: float | None = None
    jump: float | None = None
    around: Callable[..., ArrayLike] | None = None
    parameters: Mapping[str, Parameter | Prior | float] | Stated = ()

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
        self._check_sharp()
        self._check_points()

    def _check_sharp(self) -> None:
        object.__setattr__(self, "parameters", tuple(dict(self.parameters).items()))
        values = {name: getattr(self, name) for name in STATED}
        stated = [name for name, value in values.items() if not (value is None or value is False or value == ())]
        check_contradictions(stated)
        for name, place in (("kink", self.kink), ("jump", self.jump)):
            if place is not None:
                object.__setattr__(self, name, float(place))
                check_place(
                    name, float(place), stated, None if self.reference is None else float(np.ravel(self.reference)[0])
                )
        if self.parameters and self.around is None:
            raise ValueError("Law: parameters are those of a form; give it, as in around=lambda v, p: p.c * v**3")
        if self.form is not None:
            self.form.check()

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
        if self.jump is not None and len(self.at) + (self.structure.shifted or self.odd) > 1:
            raise ValueError("Law: with a jump one point can be given at most, the origin of an odd law included")
        if self.split is not None and self.integrations and self.at and self.points[0][0] != self.split:
            raise ValueError(
                f"Law: where it grows or falls everywhere, a law with a sharp place can be given there only: {self.split}"
            )

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Where the law is given, and what it is there."""
        return tuple(dict(self.at).items())

    @property
    def structure(self) -> Structure:
        return Structure(self.inputs, **{flag: getattr(self, flag) for flag in FLAGS}, sharpness=SHARPNESS)

    @property
    def per_chain(self) -> bool:
        return True

    def as_network(self) -> MLP:
        if self.network is not None:
            return self.network
        more = [flag for flag in ("decreasing", "convex", "concave", "at", "around") if getattr(self, flag)]
        more += [flag for flag in ("kink", "jump") if getattr(self, flag) is not None]
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

    @functools.cached_property
    def form(self) -> KnownForm | None:
        """What the law is known to be nearly."""
        return None if self.around is None else KnownForm(self.around, tuple(dict(self.parameters).items()))

    @property
    def in_words(self) -> bool:
        return self.around is None

    @property
    def sharp(self) -> tuple[float, ...]:
        return tuple(place for place in (self.kink, self.jump) if place is not None)

    @property
    def split(self) -> float | None:
        """Where the table has two sides: at a kink; at a jump of a law that is integrated, whose gradient jumps too."""
        return self.jump if self.kink is None and self.integrations else self.kink

    @property
    def step(self) -> tuple[str, ...]:
        """What is free of a jump."""
        if self.jump is None:
            return ()
        sides = () if self.integrations else ("curvature",) if self.odd else ("gradient", "curvature")
        return ("height", "width", *sides)

    @property
    def ahead(self) -> tuple[int, int, int]:
        """How many coordinates come before those of g: constants of integration, a jump, parameters of a form."""
        return len(self.levels), len(self.step), 0 if self.form is None else len(self.form.parameters)

    @property
    def parity(self) -> int:
        """Of g: +1 even, -1 odd, 0 neither."""
        return int(self.even or (self.odd and (self.structure.factored or self.integrations == 1))) or -int(self.odd)

    def smooth(self, through: Mapping[float, float]) -> Smooth:
        """The prior of g, of a law without a known form."""
        wide = LINKED if self.linked else WIDE
        joined = ORDER if self.split is None else int(not self.integrations and not self.structure.factored)
        return Smooth(ORDER - self.integrations, wide[self.integrations :], self.parity, through, joined)

    def prior(self, scaling: Scaling) -> Functions:
        """Of g, in units of the law and its input."""
        factored, through = self.structure.factored, {}
        given = dict(self.at) | ({0.0: 0.0} if self.structure.shifted and not self.odd else {})
        center, scale, output = (float(part.ravel()[0]) for part in scaling)
        for x, value in given.items() if not self.integrations else ():
            z, raw = (x - center) / scale, value / output
            raw = raw / (x / scale) if factored and x else raw
            sharp = self.structure.sharpness if factored else 1.0
            through[z] = raw + math.log(-math.expm1(-sharp * raw)) / sharp if self.positive or factored else raw
        if self.form is None:
            return self.smooth(through)
        if self.zero_at_origin and np.any(self.form.value_and_shapes(np.zeros(1))[0]):
            raise ValueError("Law: zero_at_origin, and the form is not zero there; change it, or drop zero_at_origin")
        return Stationary(self.parity, through, self.form.value_and_shapes(center + scale * PLACES[0])[1])

    @property
    def plane(self) -> Plane:
        """The prior of g, where there are two inputs; its table has half as many nodes along each as that of a curve."""
        parity = int(self.even or (self.odd and self.structure.factored)) or -int(self.odd)
        return Plane(LINKED if self.linked else WIDE, not self.structure.shifted, parity, 2 * (self.nodes // 4) + 1)

    @property
    def coordinates(self) -> int:
        """How many there are, those before g's included."""
        if self.inputs == 2:
            return self.plane.coordinates
        if self.form is None:
            smooth = self.smooth({})
            return sum(self.ahead) + len(smooth.powers) + sum(smooth.counts(self.nodes))
        half = (self.nodes - 1) // 2
        of_g = {0: self.nodes, 1: half + 1, -1: half}[self.parity] - len(self.form.parameters)
        return sum(self.ahead) + of_g - len(self.at) - (self.structure.shifted and not self.odd)

    @property
    def linked(self) -> bool:
        """Does a softplus stand between g and the law?"""
        return self.positive or self.structure.factored or bool(self.integrations)

    def units(self, scaling: Scaling) -> Scaling:
        """The reference, and the units of input and law: as stated, else as found from the equation."""
        origin = self.structure.symmetric or self.zero_at_origin or (self.dissipative and self.inputs == 1)
        center = 0.0 if origin else self.points[0][0] if self.integrations and self.at else self.reference
        center = center if self.split is None else self.split
        stated = (center, self.scale, self.unit)
        found = Scaling(
            *(old if new is None else jnp.full_like(old, np.asarray(new)) for old, new in zip(scaling, stated))
        )
        if self.form is None or self.unit is not None:
            return found
        # A form tells how large its law is.
        x = float(found.center[0]) + float(found.scale[0]) * PLACES[0]
        size = float(np.sqrt(np.mean(self.form.value_and_shapes(x)[0] ** 2)))
        return found._replace(output=jnp.full_like(found.output, size)) if size > 0 else found

    def frame(self, range_: Range, scaling: Scaling) -> Frame | PlaneFrame:
        """Coordinates on a table that covers a range, and the reference."""
        scaling = self.units(scaling)
        if self.inputs == 2:
            return self.plane.frame(range_, scaling)
        center, low, high = (float(part[0]) for part in (scaling.center, range_.low, range_.high))
        axis = axis_about(center, low, high, self.nodes, self.structure.symmetric)
        frame = make_frame(self.prior(scaling), axis, scaling)
        return frame.with_levels(sum(self.ahead))

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> AbstractLaw:
        """A law with all coordinates at zero: none at all, where structure allows it; its form, where that is known."""
        from ._smooth import SmoothLaw  # which knows how it was stated

        sizes = FIRST_SIZES[: len(self.size_priors)] if self.form is None else (2 * math.log(0.5 * AMPLITUDE),)
        return SmoothLaw(self, jnp.zeros(self.coordinates), jnp.asarray(sizes, float))

    @property
    def size_priors(self) -> tuple[tuple[float, float], ...]:
        """Mean and standard deviation of the log of every squared size."""
        if self.inputs == 2:
            return ((PLANE_SIZE, SIZE_SD),)
        # A detail so large has a gradient so large.
        details = DETAILS / DETAIL**self.integrations if self.integrations or not self.linked else LINKED_DETAILS
        return (TREND_SIZE, SIZE_SD), (2 * math.log(details), SIZE_SD)

    def log_size_prior(self, log_size: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density of logs of squared sizes, up to a constant: normal; of a correction that of a half-normal size, most
        likely zero."""
        if self.form is None:
            mean, sd = np.array(self.size_priors).T
            return -0.5 * jnp.sum(((log_size - mean) / sd) ** 2)
        return jnp.sum(0.5 * log_size - 0.5 * jnp.exp(log_size) / AMPLITUDE**2)

    def jumped(self, coordinates: Float[Array, "*batch free"]) -> dict[str, Array]:
        """What is free of a jump, in units of the law and of its input, from coordinates that are standard normal."""
        sd = LINKED[0] if self.linked else WIDE[0]
        values = {name: sd * coordinates[..., i] for i, name in enumerate(self.step)}
        if self.integrations:
            values["height"] = (-1.0 if self.decreasing else 1.0) * jax.nn.softplus(values["height"])
        return values | {"width": WIDTH[0] * jnp.exp(WIDTH[1] * coordinates[..., self.step.index("width")])}
