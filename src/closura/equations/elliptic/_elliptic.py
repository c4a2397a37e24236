"""Elliptic problems: a stationary field in the plane, its coefficient with a hole in it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import LawSpec, SolverLaws, bind
from ...parameters import Stated, System, Theta, check_name
from .._base import Equation, ForwardModel
from .._index import Near, ObservationIndex, Observed
from .._shared import (
    NoiseModel,
    Place,
    ProblemError,
    Record,
    Sigma,
    check_called,
    identity_laws,
    named_inputs,
    scalars,
    takes,
    trace,
)
from ._domain import Domain, Mesh, Predicate, boundary_edges, check_held, dirichlet_edges, segments, whole_sides


class Elliptic(Equation):
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
    - `field`: the name of u; `observed`: what the data see of it, the field itself by default, or functions
      of it by name: `{"head": lambda state, p: state.u / p.weight}`.
    - `sigma`, `noise`, `covariates` and `name`: as of an `ODE`.
    """

    samples_laws_on = ("basis",)

    def __init__(
        self,
        coefficient: Callable[..., Any],
        source: Callable[..., Any],
        *,
        domain: Domain,
        parameters: Stated,
        closure: LawSpec | Mapping[str, LawSpec] | None = None,
        boundary: float | Callable[..., Any] | None = None,
        natural: Predicate | None = None,
        field: str = "u",
        observed: Observed = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        check_name(field, "field")
        super().__init__((field,), ("x", "y"), locals())
        self.coefficient, self.source, self.domain, self.boundary = coefficient, source, domain, boundary
        for signal in self.parameters.known_inputs.signals:
            raise ProblemError(f"{signal!r} is a Signal, a function of time, which nothing here knows; use cl.Column()")
        edges = dirichlet_edges(domain, natural)
        self.sides, self.sloped = whole_sides(domain, edges), len(edges) < len(boundary_edges(domain.triangles))
        self.triangles = (
            None if domain.shape is not None else domain.triangles
        )  # a rectangle's points form a tensor grid
        self.dirichlet = np.zeros(len(self.points), bool)
        self.dirichlet[edges] = True
        if isinstance(domain, Mesh):
            check_held(domain, self.dirichlet)
        if self.dirichlet.all():
            raise ProblemError("every point of the mesh lies on the boundary; refine it")
        self._segments = segments(self.points, edges) if self.sides is None else np.zeros((0, 2, 2))
        self._takes_law = takes(coefficient, 4)
        self._check()

    # The grid

    @property
    def points(self) -> np.ndarray:
        return self.domain.points

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.domain.shape

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.domain.bounds

    def nodes_near(self, data: Observations) -> Near:
        from ._locate import nodes_near

        return nodes_near(self, data.place, data.mask)

    # What is known before anything is solved

    @property
    def known(self) -> np.ndarray:
        """Where u is prescribed."""
        return self.dirichlet

    @functools.cached_property
    def _factor(self) -> float:
        """The largest value of `cutoff` before it is divided by it."""
        parts = np.array_split(self.points, max(1, len(self.points) * len(self._segments) // 1_000_000))
        return float(max(self._unscaled(part, np).max() for part in parts))

    def lift(self, theta: Theta, place: Float[Array, " 2"], system: System) -> Float[Array, " 1"]:
        """What u is where it is prescribed, continued to any place."""
        if not callable(self.boundary):
            return jnp.full((1,), 0.0 if self.boundary is None else self.boundary, float)
        value = self.boundary(Place(*place), self.parameters.constrain(theta, system))
        return jnp.stack(scalars(value, "boundary(x, p)", self.state_names))

    def cutoff(self, place: Float[Array, " 2"]) -> Float[Array, ""]:
        """Zero where u is prescribed, about one inside, smooth."""
        return self._unscaled(place, jnp) / self._factor

    # The equation

    def load(self, theta: Theta, place: Float[Array, " 2"], system: System) -> Float[Array, ""]:
        """The source of one system at a place."""
        value = self.source(Place(*place), self.parameters.constrain(theta, system))
        return scalars(value, "source(x, p)", ("s",))[0]

    def conductivity(
        self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None
    ) -> Callable[[Array, Array], Float[Array, ""]]:
        """The coefficient (u, place) -> a of one system."""
        p, f = self.parameters.constrain(theta, system), bind(laws, self.single, record)

        def a(u: Float[Array, ""], place: Float[Array, " 2"]) -> Float[Array, ""]:
            arguments = (u, Place(*place), p) + ((f,) if self._takes_law else ())
            return scalars(self.coefficient(*arguments), "coefficient(u, x, p, f)", ("a",))[0]

        return a

    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        theta, laws = jnp.asarray(self.parameters.mean, float), identity_laws(self.closures)

        def call(record: Record, x: Array) -> Array:
            return self.conductivity(theta, laws, 0, record)(x[0], x[1:])

        return named_inputs(self.closures, (*self.state_names, *self.axes), call)

    # The solver and its checks; Newton's method says itself whether it converged

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        from ._solver import EllipticSolver

        return EllipticSolver(self), self.observation_index(data)

    def rhs_scale(self, spread: float) -> float:
        """A coefficient that makes the source raise u by so much."""
        theta = jnp.asarray(self.parameters.mean, float)
        source = np.abs(jax.vmap(lambda place: self.load(theta, place, 0))(jnp.asarray(self.points, float)))
        return float(np.median(source)) / (spread * sum((np.pi / (high - low)) ** 2 for low, high in self.bounds))

    def evaluate_at(
        self, theta: Array, laws: SolverLaws, share: Float[Array, " 2"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " number"]:
        """Coefficient, source and boundary value at a place."""
        place = jnp.stack([low + s * (high - low) for s, (low, high) in zip(share, self.bounds)])
        a = self.conductivity(theta, laws, system)(state[0], place)
        return jnp.stack([a, self.load(theta, place, system), *self.lift(theta, place, system)])

    def explain_failure(self, value: float, state: str, place: str, guesses: str) -> str:
        return (
            f"there is no solution with parameters at their guesses ({guesses}) and the closure at its start (about zero): the "
            "coefficient must be positive everywhere; use MLP(positive=True), or write it like p.k * jnp.exp(f(u))"
        )

    def _unscaled(self, place: Any, xp: Any) -> Any:
        """`cutoff` for places (..., 2) up to a factor, in NumPy or JAX."""
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
            a = self.conductivity(theta, identity_laws(self.closures), 0, record)(u, place)
            return a, self.load(theta, place, 0), self.lift(theta, place, 0)

        trace(probe, len(self.parameters), 3, "the coefficient, the source or the boundary")
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
