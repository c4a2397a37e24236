"""Elliptic problems: a stationary field in the plane, its coefficient with a hole in it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...laws import Closures, ClosureSpec, bind
from ...parameters import Parameters, Stated, check_name
from .._observe import Observed, Sensors
from .._shared import (
    NoiseModel,
    Place,
    ProblemError,
    Record,
    Sigma,
    as_covariates,
    as_noise,
    check_called,
    named_closures,
    named_inputs,
    scalars,
    stand_ins,
    takes,
    trace,
)
from ._domain import Domain, Mesh, Predicate, boundary_edges, check_held, dirichlet_edges, segments, whole_sides


class Elliptic:
    """-div(a(u, x, p, f) grad u) = s(x, p)  on a domain of the plane.

    - `coefficient(u, x, p, f)`: a > 0 at one place, plain JAX. `x` has fields x and y, `p` holds physical parameter values
      by name, `f` is the unknown law (or, with several closures, `f.name`).
    - `source(x, p)`: s at one place.
    - `domain`: `Rectangle(...)` or `Mesh(points, triangles)`.
    - `parameters`: name -> `Real`, `Positive` or `Interval`, or a prior like `LogNormal(0.0, 1.0)`; a plain number is known,
      `Column()` known of each system.
    - `closure`: one specification, a dict of several by name, or None when all the physics is known.
    - `boundary`: what u is on the boundary, a number or a function of (x, p); zero by default.
    - `natural(x, y)`: on which part of the boundary nothing flows out instead; arrays of NumPy in, True and False out. A
      boundary edge belongs to the part its midpoint lies in.
    - `field`: the name of u; `observed`: what the data see of it, the field itself unless said, or functions
      of it by name: `{"head": lambda state, p: state.u / p.weight}`.
    - `sigma`, `noise`, `covariates` and `name`: as of an `ODE`.
    """

    # What there is to train a surrogate on.
    offers: ClassVar[tuple[str, ...]] = ("solver", "residual")
    axes: ClassVar[tuple[str, ...]] = ("x", "y")
    periodic: ClassVar[tuple[bool, ...]] = (False, False)

    def __init__(
        self,
        coefficient: Callable[..., Any],
        source: Callable[..., Any],
        *,
        domain: Domain,
        parameters: Stated,
        closure: ClosureSpec | Mapping[str, ClosureSpec] | None = None,
        boundary: float | Callable[..., Any] | None = None,
        natural: Predicate | None = None,
        field: str = "u",
        observed: Observed = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        self.coefficient, self.source, self.domain = coefficient, source, domain
        self.boundary, self.natural, self.name = boundary, natural, name
        self.noise, self.sigma = as_noise(noise, sigma)
        check_name(field, "field")
        self.state_names: tuple[str, ...] = (field,)
        self.parameters = Parameters(parameters)
        for signal in self.parameters.given.signals:
            raise ProblemError(f"{signal!r} is a Signal, a function of time, which nothing here knows; use cl.Column()")
        self.sensors = Sensors(observed, self.state_names, self.parameters, len(self.axes))
        self.covariates = as_covariates(covariates, self.parameters)
        self.single, self.closures = not isinstance(closure, Mapping), named_closures(closure)
        self.points, self.shape, self.bounds = domain.points, domain.shape, domain.bounds
        edges = dirichlet_edges(domain, natural)
        self.sides, self.sloped = whole_sides(domain, edges), len(edges) < len(boundary_edges(domain.triangles))
        self.dirichlet = np.zeros(len(self.points), bool)
        self.dirichlet[edges] = True
        if isinstance(domain, Mesh):
            check_held(domain, self.dirichlet)
        if self.dirichlet.all():
            raise ProblemError("every point of the mesh lies on the boundary; refine it")
        self._segments = segments(self.points, edges) if self.sides is None else np.zeros((0, 2, 2))
        self._takes_law = takes(coefficient, 4)
        self._check()

    @property
    def observed(self) -> tuple[str, ...]:
        return self.sensors.names

    @property
    def triangles(self) -> np.ndarray | None:
        """Of a mesh; a rectangle's points form a tensor grid."""
        return None if self.shape is not None else self.domain.triangles

    def check_scheme(self) -> None:
        """Nothing to check: Newton's method says whether it converged."""

    @property
    def known(self) -> np.ndarray:
        """Where u is prescribed."""
        return self.dirichlet

    @functools.cached_property
    def _factor(self) -> float:
        """The largest value of `free` before it is divided by it."""
        parts = np.array_split(self.points, max(1, len(self.points) * len(self._segments) // 1_000_000))
        return float(max(self._unscaled(part, np).max() for part in parts))

    def with_closure(self, closure: ClosureSpec | Mapping[str, ClosureSpec]) -> "Elliptic":
        """The same problem with another law, e.g. the true one for an oracle run."""
        return Elliptic(
            self.coefficient,
            self.source,
            domain=self.domain,
            parameters=self.parameters.stated,
            closure=closure,
            boundary=self.boundary,
            natural=self.natural,
            field=self.state_names[0],
            observed=self.sensors.functions or self.observed,
            sigma=self.sigma,
            noise=self.noise,
            covariates=self.covariates,
            name=self.name,
        )

    def base(self, theta: Float[Array, " parameter"], place: Float[Array, " 2"]) -> Float[Array, " 1"]:
        """What u is where it is prescribed, continued to any place."""
        if not callable(self.boundary):
            return jnp.full((1,), 0.0 if self.boundary is None else self.boundary, float)
        value = self.boundary(Place(*place), self.parameters.constrain(theta))
        return jnp.stack(scalars(value, "boundary(x, p)", self.state_names))

    def free(self, place: Float[Array, " 2"]) -> Float[Array, ""]:
        """Zero where u is prescribed, about one inside, smooth: what may be added to `base` is multiplied by it."""
        return self._unscaled(place, jnp) / self._factor

    def load(self, theta: Float[Array, " parameter"], place: Float[Array, " 2"]) -> Float[Array, ""]:
        """The source of one system at a place."""
        value = self.source(Place(*place), self.parameters.constrain(theta))
        return scalars(value, "source(x, p)", ("s",))[0]

    def conductivity(
        self, theta: Float[Array, " parameter"], closures: Closures, record: Record | None = None
    ) -> Callable[[Array, Array], Float[Array, ""]]:
        """The coefficient (u, place) -> a of one system."""
        p, f = self.parameters.constrain(theta), bind(closures, self.single, record)

        def a(u: Float[Array, ""], place: Float[Array, " 2"]) -> Float[Array, ""]:
            arguments = (u, Place(*place), p) + ((f,) if self._takes_law else ())
            return scalars(self.coefficient(*arguments), "coefficient(u, x, p, f)", ("a",))[0]

        return a

    def pace(self, spread: float) -> float:
        """A coefficient that makes the source raise u by so much."""
        theta = jnp.asarray(self.parameters.middle, float)
        source = np.abs(jax.vmap(lambda place: self.load(theta, place))(jnp.asarray(self.points, float)))
        return float(np.median(source)) / (spread * sum((np.pi / (high - low)) ** 2 for low, high in self.bounds))

    def law_inputs(self) -> dict[str, tuple[str, ...]]:
        """What each law is a function of, by name."""
        theta, laws = jnp.asarray(self.parameters.middle, float), stand_ins(self.closures)
        names = (*self.state_names, *self.axes)
        return named_inputs(self.closures, names, lambda record, x: self.conductivity(theta, laws, record)(x[0], x[1:]))

    def _unscaled(self, place: Any, xp: Any) -> Any:
        """`free` for places (..., 2) up to a factor, in NumPy or JAX."""
        if self.sides is None:
            return _distance(place, self._segments, xp)
        result = xp.ones(place.shape[:-1])
        for axis, (low, high) in enumerate(self.bounds):
            s = (place[..., axis] - low) / (high - low)
            low_held, high_held = self.sides[2 * axis : 2 * axis + 2]
            # Flat at a natural side.
            result = result * (s if low_held else 1.0) * (1 - s if high_held else 1.0)
            result = result * (4.0 if low_held and high_held else 2 - s if low_held else 1 + s if high_held else 1.0)
        return result

    def _check(self) -> None:
        record: Record = {name: [] for name in self.closures}

        def probe(theta: Array, u: Array, x: Array, y: Array) -> tuple[Array, ...]:
            place = jnp.stack([x, y])
            a = self.conductivity(theta, stand_ins(self.closures), record)(u, place)
            return a, self.load(theta, place), self.base(theta, place)

        trace(probe, self.parameters.width, 3, "the coefficient, the source or the boundary")
        check_called(record, self.single, self._takes_law, "coefficient(u, x, p, f)")


def _distance(place: Any, segments: np.ndarray, xp: Any) -> Any:
    """A smooth distance from straight segments (S, 2, 2): exact to first order at each, joined by a harmonic sum.

    Biswas and Shapiro 2004, Approximate distance fields with non-vanishing gradients.
    """
    start, end = segments[:, 0], segments[:, 1]
    length = np.linalg.norm(end - start, axis=-1)
    along = (end - start) / length[:, None]
    x, y = place[..., None, 0] - start[:, 0], place[..., None, 1] - start[:, 1]
    off = x * along[:, 1] - y * along[:, 0]
    middle = x * along[:, 0] + y * along[:, 1] - length / 2
    inside = length / 4 - middle**2 / length
    beyond = 0.5 * (xp.sqrt(inside**2 + off**4 / length**2 + (1e-6 * length) ** 2) - inside)
    each = xp.sqrt(off**2 + beyond**2 + (1e-6 * length) ** 2)
    return 1 / xp.sum(1 / each, axis=-1)
