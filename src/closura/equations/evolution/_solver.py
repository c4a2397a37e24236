"""Evolution equations as forward models: grids of nodes stepped from snapshot to snapshot, and what misses the equation."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ...data import DataError
from ...laws import Closures
from .._adaptive import solve_adaptive
from .._integrators import Adaptive, Rhs, State
from .._stencil import Stencil, lagrange
from .._time_derivatives import time_slopes
from ..ode._solver import either
from ._evolution import Evolution
from ._grid import Derivatives


@dataclasses.dataclass(frozen=True)
class EvolutionSolver:
    """Method of lines: derivatives in space on the problem's grid, the problem's integrator in time. Nothing is trained.

    `backward`: derivatives are wanted in reverse mode (closure learning) instead of forward mode (sampling).
    `count`: snapshots to solve for, all unless said; nothing after the last observation need be.
    """

    trained: ClassVar[bool] = False
    problem: Evolution
    backward: bool = False
    count: int = 0

    def model(self, laws: Closures, network: Any) -> Closures:
        """What `predict` needs beside theta: for a solver the laws."""
        return laws

    def reverse(self) -> "EvolutionSolver":
        return dataclasses.replace(self, backward=True)

    def numbers(self, parameters: int) -> int:
        """How many numbers one solve with sensitivities keeps in hand: fields, two derivatives, stages, for each tangent."""
        return 6 * len(self.problem.state_names) * self.problem.grid.size * (1 + parameters)

    def predict(
        self, theta: Float[Array, " parameter"], laws: Closures, where: Stencil
    ) -> Float[Array, " observation"]:
        """Observed quantities of one system at its observation points."""
        problem = self.problem
        fields = self._snapshots(theta, laws, jnp.max(where.node) // problem.grid.size)
        near = jnp.stack([field.reshape(-1)[where.node] for field in fields], axis=-1)
        return problem.sensors.seen(theta, where.place, where.states(near), where.quantity)

    def solution(self, theta: Float[Array, " parameter"], laws: Closures) -> Float[Array, "point field"]:
        """Every field of one system at every point of the problem's grid."""
        everything = dataclasses.replace(self, count=0)
        return jnp.stack([u.reshape(-1) for u in everything._snapshots(theta, laws)], axis=-1)

    def visited(self, theta: Float[Array, " parameter"], laws: Closures) -> dict[str, Float[Array, "call input"]]:
        """Every input the closures were called with at the points of one system's solution."""
        problem = self.problem
        at_sites = problem.at_sites(theta, laws)

        def calls(u: State, ux: Derivatives, uxx: Derivatives, x: Any, t: Array) -> dict[str, Array]:
            record: dict[str, list[Array]] = {name: [] for name in laws}
            problem.local(theta, laws, record)(u, ux, uxx, x, t)
            return {
                name: jnp.concatenate(seen) if seen else jnp.zeros((0, problem.closures[name].inputs))
                for name, seen in record.items()
            }

        fields = dataclasses.replace(self, count=0)._snapshots(theta, laws)
        seen = jax.vmap(lambda t, y: at_sites(t, y, calls))(jnp.asarray(problem.times, float), fields)
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def terms(
        self, theta: Float[Array, " parameter"], laws: Closures, states: Float[Array, "point field"]
    ) -> Float[Array, "point field"]:
        """What the laws are part of, at a solution: the right-hand side."""
        fields = jnp.moveaxis(states.reshape(*self.problem.shape, -1), -1, 0)
        rates = jax.vmap(self.problem.rate(theta, laws))(jnp.asarray(self.problem.times, float), tuple(fields))
        return jnp.stack([rate.reshape(-1) for rate in rates], axis=-1)

    # What misses the equation

    def grid_residual(
        self, theta: Float[Array, " parameter"], laws: Closures, states: Float[Array, "point field"]
    ) -> Float[Array, "condition field"]:
        """Time derivatives less the equation, on the grid.

        In units of the field over an eighth of the span; derivatives in space are the solver's own.
        """
        problem, rhs = self.problem, self.problem.rate(theta, laws)
        fields = states.reshape(*problem.shape, -1)
        interval = (problem.span[1] - problem.span[0]) / problem.snapshots
        times, later = jnp.asarray(problem.times[1:], float), jnp.moveaxis(fields[1:], -1, 0)
        needed = jnp.stack(jax.vmap(rhs)(times, tuple(later)), axis=-1)
        return (time_slopes(fields, interval) - needed).reshape(-1, states.shape[-1]) * self._unit()

    def point_residual(
        self,
        theta: Float[Array, " parameter"],
        laws: Closures,
        function: Callable[[Float[Array, " axis"]], Float[Array, " field"]],
        places: Float[Array, "place axis"],
    ) -> Float[Array, "condition field"]:
        """The equation at any (t, x) or (t, x, y), for a function that can be differentiated; in the same units."""
        local, grid = self.problem.local(theta, laws), self.problem.grid
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
        self, theta: Array, laws: Closures, last: Array | None = None
    ) -> tuple[Float[Array, "time *node"], ...]:
        """The fields at the start and at every snapshot; what comes after the snapshot `last` need not be right."""
        problem = self.problem
        start, rhs = problem.start(theta), problem.rate(theta, laws)
        if isinstance(problem.integrator, Adaptive):
            return self._adaptive(rhs, start)
        # Forward, what comes after the last observation is left unread. Backward, even a zero sent through an overflow is
        # NaN: there the fields are held.
        later = self._steps(rhs, start, last if self.backward else None)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, later)

    def _steps(self, rhs: Rhs, start: State, last: Array | None) -> tuple[Float[Array, "time *node"], ...]:
        problem, scheme = self.problem, self.problem.integrator
        stride, t0, dt = problem.stride, problem.span[0], problem.dt

        def step(carry: State, i: Array) -> tuple[State, None]:
            return scheme.step(rhs, t0 + i * dt, dt, carry), None  # type: ignore[attr-defined]

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
        scheme, times = self.problem.integrator, self.problem.times[: (self.count or self.problem.snapshots) + 1]
        kept = jnp.asarray(times, float)
        return solve_adaptive(scheme, rhs, start, float(times[0]), kept, float(times[-1]), self.backward)  # type: ignore[arg-type]


def stencil(
    problem: Evolution, places: Float[np.ndarray, "system observation axis"], every: tuple[int, ...] | None = None
) -> tuple[Int[np.ndarray, "system observation near"], Float[np.ndarray, "system observation near"]]:
    """Points of the grid that a place (t, x) or (t, x, y) is read from, and their weights.

    Along each axis the point itself where every place falls on one, else cubic interpolation; from `every` so many-th
    snapshot and node.
    """
    node, weight = np.zeros((*places.shape[:-1], 1), int), np.ones((*places.shape[:-1], 1))
    for axis, count in enumerate(problem.shape):
        at, share = _along(places[..., axis], problem, axis, 1 if every is None else every[axis])
        node = (node[..., :, None] * count + at[..., None, :]).reshape(*places.shape[:-1], -1)
        weight = (weight[..., :, None] * share[..., None, :]).reshape(*places.shape[:-1], -1)
    return node, weight


def _along(at: np.ndarray, problem: Evolution, axis: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights along one axis."""
    low, high = problem.bounds[axis]
    outside = at[(at < low - 1e-6 * (high - low)) | (at > high + 1e-6 * (high - low))]
    if outside.size:
        raise DataError(
            f"{problem.axes[axis]}={outside[0]:.6g} was observed outside {low:g} to {high:g}, where the problem is stated; "
            f"leave such rows out, or widen the problem's {'domain' if axis else 'span'}"
        )
    count, periodic = problem.shape[axis], problem.periodic[axis]
    place = (at - low) / (high - low) * (count if periodic else count - 1)
    nearest = np.round(place).astype(int)
    if np.all(np.abs(place - nearest) < 1e-4):
        return (nearest % count if periodic else nearest)[..., None], np.ones((*place.shape, 1))
    first = np.floor(place / every).astype(int) - 1
    first = first if periodic else np.clip(first, 0, (count - 1) // every - 3)
    node = every * (first[..., None] + np.arange(4))
    return node % count if periodic else node, lagrange(place / every - first)
