"""Evolution equations as forward models: grids of nodes stepped from snapshot to snapshot, and what misses the equation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ...laws import SolverLaws
from ...parameters import System, Theta
from .._base import ForwardModel
from .._index import LawInputs, ObservationIndex, Predictions, States
from .._integrators import Rhs, State
from .._shared import Record, called_inputs, either
from .._time_derivatives import time_slopes
from ._evolution import Evolution
from ._grid import Derivatives


@dataclasses.dataclass(frozen=True)
class EvolutionSolver(ForwardModel):
    """Method of lines: derivatives in space on the problem's grid, the problem's integrator in time. Nothing is trained.

    `backward`: derivatives are wanted in reverse mode (closure learning) instead of forward mode (sampling).
    `count`: snapshots to solve for, all by default; nothing after the last observation need be.
    """

    problem: Evolution
    backward: bool = False
    count: int = 0

    def for_reverse_mode(self) -> "EvolutionSolver":
        return dataclasses.replace(self, backward=True)

    def working_set_size(self, parameters: int) -> int:
        """Fields, two derivatives, stages, for each tangent."""
        return 6 * len(self.problem.state_names) * self.problem.grid.size * (1 + parameters)

    @property
    def call_times(self) -> np.ndarray:
        return self.problem.times

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        """Observed quantities of one system at its observation points."""
        problem = self.problem
        fields = self._snapshots(theta, context, system, jnp.max(where.node) // problem.grid.size)
        near = jnp.stack([field.reshape(-1)[where.node] for field in fields], axis=-1)
        return problem.operator(theta, where, where.states(near), system)

    def solution(self, theta: Theta, laws: SolverLaws, system: System) -> States:
        """Every field of one system at every point of the problem's grid."""
        everything = dataclasses.replace(self, count=0)
        return jnp.stack([u.reshape(-1) for u in everything._snapshots(theta, laws, system)], axis=-1)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Every input the laws are called with at the points of one system's solution."""
        problem = self.problem
        at_sites = problem.at_sites(theta, laws, system)

        def calls(u: State, ux: Derivatives, uxx: Derivatives, x: Any, t: Array) -> dict[str, Array]:
            def call(record: Record) -> State:
                return problem.local(theta, laws, system, record)(u, ux, uxx, x, t)

            return called_inputs(problem.closures, call)

        fields = dataclasses.replace(self, count=0)._snapshots(theta, laws, system)
        seen = jax.vmap(lambda t, y: at_sites(t, y, calls))(jnp.asarray(problem.times, float), fields)
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        """The right-hand side at a solution."""
        fields = jnp.moveaxis(states.reshape(*self.problem.shape, -1), -1, 0)
        rates = jax.vmap(self.problem.rate(theta, laws, system))(jnp.asarray(self.problem.times, float), tuple(fields))
        return jnp.stack([rate.reshape(-1) for rate in rates], axis=-1)

    # What misses the equation

    def grid_residual(
        self, theta: Theta, laws: SolverLaws, states: States, system: System
    ) -> Float[Array, "condition field"]:
        """Time derivatives less the equation, on the grid.

        In units of the field over an eighth of the span; derivatives in space are the solver's own.
        """
        problem, rhs = self.problem, self.problem.rate(theta, laws, system)
        fields = states.reshape(*problem.shape, -1)
        interval = (problem.span[1] - problem.span[0]) / problem.snapshots
        times, later = jnp.asarray(problem.times[1:], float), jnp.moveaxis(fields[1:], -1, 0)
        needed = jnp.stack(jax.vmap(rhs)(times, tuple(later)), axis=-1)
        return (time_slopes(fields, interval) - needed).reshape(-1, states.shape[-1]) * self._unit()

    def point_residual(
        self,
        theta: Theta,
        laws: SolverLaws,
        function: Callable[[Float[Array, " axis"]], Float[Array, " field"]],
        places: Float[Array, "place axis"],
        system: System,
    ) -> Float[Array, "condition field"]:
        """The equation at any (t, x) or (t, x, y), for a function that can be differentiated; in the same units."""
        local, grid = self.problem.local(theta, laws, system), self.problem.grid
        along_t, *along = jnp.eye(places.shape[-1])

        def pushed(place: Array, way: Array) -> tuple[Array, Array]:
            return jax.jvp(function, (place,), (way,))

        def imbalance(place: Array) -> Array:
            _, slope = pushed(place, along_t)
            twice = [jax.jvp(lambda at, way=way: pushed(at, way), (place,), (way,)) for way in along]
            first, second = ([part[i][1] for part in twice] for i in (0, 1))
            u, x = tuple(twice[0][0][0]), grid.place(tuple(place[1:]))
            return slope - jnp.stack(local(u, grid.paired(first), grid.paired(second), x, place[0]))

        return jax.vmap(imbalance)(places) * self._unit()

    def _unit(self) -> float:
        return (self.problem.span[1] - self.problem.span[0]) / 8

    # Stepping

    def _snapshots(
        self, theta: Array, laws: SolverLaws, system: System, last: Array | None = None
    ) -> tuple[Float[Array, "time *node"], ...]:
        """The fields at the start and at every snapshot; what comes after the snapshot `last` need not be right."""
        problem = self.problem
        start, rhs = problem.start(theta, system), problem.rate(theta, laws, system)
        if problem.integrator.adaptive:
            return self._adaptive(rhs, start)
        # Forward, what comes after the last observation is left unread. Backward, even a zero sent through an overflow is
        # NaN: there the fields are held.
        later = self._steps(rhs, start, last if self.backward else None)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, later)

    def _steps(self, rhs: Rhs, start: State, last: Array | None) -> tuple[Float[Array, "time *node"], ...]:
        problem, scheme = self.problem, self.problem.integrator
        stride, t0, dt = problem.stride, problem.span[0], problem.dt

        def step(carry: State, i: Array) -> tuple[State, None]:
            return scheme.step(rhs, t0 + i * dt, dt, carry), None

        def leap(carry: State, first: Array) -> State:
            return lax.scan(step, carry, first + jnp.arange(stride, dtype=float))[0]

        if self.backward:
            leap = jax.checkpoint(leap)  # keep snapshots alone, step again from one to the next on the way back

        def keep(carry: State, i: Array) -> tuple[State, State]:
            if last is None:
                carry = leap(carry, i * stride)
            else:
                # Instead of leaping into what nobody asks for, do the first leap again, which is finite where the solve is.
                goes = i < last
                moved = leap(either(goes, carry, start), jnp.where(goes, i * stride, 0.0))
                carry = either(goes, moved, carry)
            return carry, carry

        return lax.scan(keep, start, jnp.arange(self.count or problem.snapshots, dtype=float))[1]

    def _adaptive(self, rhs: Rhs, start: State) -> tuple[Float[Array, "time *node"], ...]:
        times = self.problem.times[: (self.count or self.problem.snapshots) + 1]
        span = float(times[0]), float(times[-1])
        return self.problem.integrator.solve(rhs, start, span, jnp.asarray(times, float), self.backward)
