"""The solver of elliptic problems: P1 finite elements, Newton's method, derivatives by the implicit function theorem."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ...laws import SolverLaws
from ...parameters import System, Theta
from .._base import ForwardModel
from .._index import LawInputs, ObservationIndex, Predictions, States
from .._shared import Record, called_inputs
from ._elements import Elements, Operator, elements
from ._elliptic import Elliptic
from ._krylov import bicgstab, norm

NEWTON, HALVINGS, INNER = 30, 8, 200
# Linear iterations in all steps of one solve, where twenty to fifty are usual: a batch waits for its hardest member.
BUDGET = 400


class Warm(NamedTuple):
    """What a prediction needs beside theta: the laws, and nodal values to start from (None: what is prescribed)."""

    laws: SolverLaws
    start: Float[Array, " node"] | None


class _Scaling(NamedTuple):
    """Diagonals such that left (Laplacian) right is near the derivative of the equations.

    With a = k(x) g(u) their derivative is -div(k grad(g v)), near sqrt(k) (-laplacian) sqrt(k) g v.
    """

    left: Array
    right: Array

    def solve(self, mesh: Elements, residual: Array) -> Array:
        return mesh.inverse_laplacian(residual / self.left) / self.right

    def solve_transposed(self, mesh: Elements, residual: Array) -> Array:
        return mesh.inverse_laplacian(residual / self.right) / self.left


class _Look(NamedTuple):
    """All there is to know at a trial solution: the free values, coefficient and its slope, and the scaled residual."""

    free: Array
    a: Float[Array, " node"]
    slope: Float[Array, " node"]
    scaling: _Scaling
    error: Array


class _Progress(NamedTuple):
    """Of Newton's method: steps made, linear iterations spent on them, where it is and how far off."""

    steps: Array
    spent: Array
    look: _Look
    error: Array
    stalled: Array


@dataclasses.dataclass(frozen=True)
class EllipticSolver(ForwardModel):
    """Newton's method for one system; a solve that fails is NaN. Nothing in it is trained.

    Values have first derivatives of both modes (never through the iterations), and no second ones.
    """

    problem: Elliptic

    @functools.cached_property
    def mesh(self) -> Elements:
        return elements(self.problem)

    def prepare_context(self, laws: SolverLaws, network: Any = None) -> Warm:
        """The laws, and the solution in the middle of the prior to start from."""
        with jax.ensure_compile_time_eval():
            middle = jnp.asarray(self.problem.parameters.mean, float)
        lift = self._equation(middle, laws, 0).lift
        start = lax.stop_gradient(self._field(middle, laws, 0, lift))
        return Warm(laws, jnp.where(jnp.all(jnp.isfinite(start)), start, lift))

    def with_own_laws(self, context: Warm, laws: SolverLaws) -> Warm:
        """Laws of chains differ as they like where solutions do not go, and a solution with another one may lie where this one
        lets nothing through: Newton's method would not come back from there. So it starts from what is prescribed."""
        return Warm({**context.laws, **laws}, None) if laws else context

    def working_set_size(self, parameters: int) -> int:
        return 8 * len(self.problem.points) * (1 + parameters)

    def predict(self, theta: Theta, context: Warm, where: ObservationIndex, system: System) -> Predictions:
        """The field of one system at its observation points."""
        start = self._equation(theta, context.laws, system).lift if context.start is None else context.start
        u = self._field(theta, context.laws, system, start)
        states = jnp.sum(where.weight * u[where.node], axis=-1)[:, None]
        return self.problem.operator(theta, where, states, system)

    def solution(
        self, theta: Theta, laws: SolverLaws, system: System, start: Float[Array, " node"] | None = None
    ) -> States:
        """The field of one system at all nodes."""
        first = self._equation(theta, laws, system).lift if start is None else start
        return self._field(theta, laws, system, first)[:, None]

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Every input the laws are called with in one system's solution."""

        def calls(u: Array, place: Array) -> dict[str, Array]:
            def call(record: Record) -> Array:
                return self.problem.conductivity(theta, laws, system, record)(u, place)

            return called_inputs(self.problem.closures, call)

        seen = jax.vmap(calls)(self.solution(theta, laws, system)[:, 0], jnp.asarray(self.problem.points, float))
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        """The coefficient at a solution."""
        coefficient = jax.vmap(self.problem.conductivity(theta, laws, system))
        return coefficient(states[:, 0], jnp.asarray(self.problem.points, float))[:, None]

    def grid_residual(
        self, theta: Theta, laws: SolverLaws, states: States, system: System
    ) -> Float[Array, "condition 1"]:
        """How far nodal values miss the discrete equations at the free nodes, in units of u.

        Preconditioned by the inverse Laplacian, so that it is the error of u to first order, whatever its wavelength (over
        their diagonal the equations see smooth errors h^2 times weaker than rough ones). Values at the boundary are taken
        as they are.
        """
        equation, u = self._equation(theta, laws, system), states[:, 0]
        a, _ = equation.coefficient(u)
        residual = self.mesh.flux(a, u) - equation.load
        return equation.scaling(lax.stop_gradient(a)).solve(self.mesh, residual).reshape(-1, 1)

    def point_residual(
        self,
        theta: Theta,
        laws: SolverLaws,
        function: Callable[[Float[Array, " 2"]], Float[Array, " 1"]],
        places: Float[Array, "n 2"],
        system: System,
    ) -> Float[Array, "n 1"]:
        """-div(a grad u) - s of any function, at any places, derivatives exact; over a (pi/width)^2, so in units of u."""
        conductivity = self.problem.conductivity(theta, laws, system)
        weight = sum((np.pi / (high - low)) ** 2 for low, high in self.problem.bounds)

        def flow(place: Array, axis: Array) -> tuple[Array, Array]:
            u, rise = jax.jvp(lambda at: function(at)[0], (place,), (axis,))
            a = conductivity(u, place)
            return a * rise, a

        def residual(place: Array) -> Array:
            total = -self.problem.load(theta, place, system)
            for axis in jnp.eye(2, dtype=place.dtype):
                (_, a), (bend, _) = jax.jvp(lambda at: flow(at, axis), (place,), (axis,))  # noqa: B023
                total = total - bend
            return total / (weight * lax.stop_gradient(a))

        return jax.vmap(residual)(places)[:, None]

    def _equation(self, theta: Array, laws: SolverLaws, system: System) -> "_Equation":
        return _equation(self.problem, self.mesh, theta, laws, system)

    def _field(self, theta: Array, laws: SolverLaws, system: System, start: Array) -> Float[Array, " node"]:
        """Nodal values; what is differentiated is not the solve but the residual it leaves."""
        fixed = self._equation(lax.stop_gradient(theta), _frozen(laws), system)
        look = _newton(fixed, lax.stop_gradient(start))
        equation = self._equation(theta, laws, system)
        u = equation.whole(look.free)  # which has slopes at the boundary
        residual = self.mesh.flux(equation.coefficient(u)[0], u) - equation.load
        return equation.whole(_implicit(self.mesh, look.free, residual, fixed.derivative(look), look.scaling))


class _Equation(NamedTuple):
    """The discrete equations of one system."""

    mesh: Elements
    coefficient: Callable[[Array], tuple[Array, Array]]
    lift: Float[Array, " node"]
    held: Bool[np.ndarray, " node"]
    load: Array
    left: Array

    def whole(self, free: Array) -> Float[Array, " node"]:
        return jnp.where(self.held, self.lift, self.mesh.embed(free))

    def scaling(self, a: Float[Array, " node"]) -> _Scaling:
        return _Scaling(self.left, self.mesh.restrict(a) / self.left)

    def look(self, free: Array) -> _Look:
        u = self.whole(free)
        a, slope = self.coefficient(u)
        scaling = self.scaling(a)
        error = scaling.solve(self.mesh, self.mesh.flux(a, u) - self.load)
        return _Look(free, a, slope, scaling, jnp.where(jnp.all(a > 0), error, jnp.nan))

    def derivative(self, look: _Look) -> Operator:
        return self.mesh.derivative(look.a, look.slope, self.whole(look.free))


def _equation(problem: Elliptic, mesh: Elements, theta: Array, laws: SolverLaws, system: System) -> _Equation:
    points = jnp.asarray(problem.points, float)
    conductivity = problem.conductivity(theta, laws, system)
    lift = jax.vmap(lambda place: problem.lift(theta, place, system)[0])(points)
    load = jnp.asarray(mesh.area, float) * jax.vmap(lambda place: problem.load(theta, place, system))(points)

    def coefficient(u: Float[Array, " node"]) -> tuple[Float[Array, " node"], Float[Array, " node"]]:
        def both(u: Array, place: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda v: conductivity(v, place), (u,), (jnp.ones_like(u),))

        return jax.vmap(both)(u, points)

    still = mesh.restrict(lax.stop_gradient(coefficient(lift)[0]))
    left = jnp.sqrt(jnp.where((still > 0) & jnp.isfinite(still), still, 1.0))
    return _Equation(mesh, coefficient, lift, problem.dirichlet, mesh.restrict(load), left)


def _newton(equation: _Equation, start: Float[Array, " node"]) -> _Look:
    """The solution, or NaN. Steps are solved for as exactly as they deserve, and halved until the error falls."""
    goal = _tolerance(start.dtype)
    kind = jnp.finfo(start.dtype)
    begin = norm(start - equation.lift)

    def size(look: _Look) -> Array:
        """The error relative to how far the solution is from what is prescribed (or, if that is more, to rounding)."""
        u = equation.whole(look.free)
        rounding = norm(u) * float(kind.eps) / goal
        return norm(look.error) / jnp.maximum(
            jnp.maximum(norm(u - equation.lift), begin), jnp.maximum(rounding, kind.tiny)
        )

    def unfinished(state: _Progress) -> Array:
        tired = (state.steps >= NEWTON) | (state.spent >= BUDGET)
        return (state.error > goal) & ~tired & ~state.stalled

    def step(state: _Progress) -> _Progress:
        steps, spent, look, error, _ = state
        loose = jnp.clip(error, 0.3 * goal / error, 0.1)
        derivative = equation.derivative(look)
        limit = jnp.minimum(INNER, BUDGET - spent)
        change, _, took = bicgstab(
            lambda v: look.scaling.solve(equation.mesh, derivative(v)), look.error, loose * norm(look.error), limit
        )

        def try_step(trial: tuple[Array, _Look, Array]) -> tuple[Array, _Look, Array]:
            halvings = trial[0] + 1
            there = equation.look(look.free - 0.5**halvings * change)
            return halvings, there, size(there)

        def refused(trial: tuple[Array, _Look, Array]) -> Array:
            halvings, _, found = trial
            better = (found < error * (1 - 1e-4 * 0.5**halvings)) | (found < 30 * goal)
            return (halvings < 0) | (~better & (halvings < HALVINGS))

        _, there, found = lax.while_loop(refused, try_step, (-jnp.ones_like(error), look, error))
        stalled = (found > 0.5 * error) & (found < 30 * goal)
        return _Progress(steps + 1, spent + took, there, found, stalled)

    look = equation.look(equation.mesh.restrict(start))
    error = size(look)
    none = jnp.zeros((), jnp.int32)
    found = lax.while_loop(unfinished, step, _Progress(none, none, look, error, error < 0))
    return found.look._replace(free=jnp.where(found.error < 30 * goal, found.look.free, jnp.nan))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _implicit(mesh: Elements, free: Array, residual: Array, derivative: Any, scaling: _Scaling) -> Array:
    """The solution as it is, moving with the residual so that this stays zero."""
    return free


def _implicit_jvp(mesh: Elements, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    free, _, derivative, scaling = primals
    return free, -_linear_solve(mesh, derivative, scaling, tangents[1])


_implicit.defjvp(_implicit_jvp)


def _linear_solve(mesh: Elements, derivative: Operator, scaling: _Scaling, rhs: Array) -> Array:
    """The derivative's inverse applied to `rhs`, linear in it and with a transpose."""

    def solved(apply: Callable[[Array], Array], scaled: Array) -> Array:
        allowed = _tolerance(scaled.dtype) * norm(scaled)
        x, error, _ = bicgstab(apply, scaled, allowed, INNER)
        return jnp.where(error <= 100 * allowed, x, jnp.nan)

    def solve(_: Any, b: Array) -> Array:
        return solved(lambda v: scaling.solve(mesh, derivative(v)), scaling.solve(mesh, b))

    def solve_transposed(_: Any, b: Array) -> Array:
        turned = derivative.transposed()
        return solved(lambda v: scaling.solve_transposed(mesh, turned(v)), scaling.solve_transposed(mesh, b))

    return lax.custom_linear_solve(derivative, rhs, solve, solve_transposed)


def _tolerance(kind: Any) -> float:
    return 1e-5 if jnp.finfo(kind).bits < 64 else 1e-11


def _frozen(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)
