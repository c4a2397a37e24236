"""Numerical solvers as forward models: theta and closures in, predictions at the observed points out."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ...data import Observations
from ...laws import Closures
from .._adaptive import solve_adaptive
from .._integrators import Adaptive
from .._time_derivatives import time_slopes
from ._ode import ODE


class Where(NamedTuple):
    """Where one system was observed (a batch has a leading system axis).

    `last` is the kept step of its last observation, at least 1; None where all systems are observed equally long.
    """

    time: Float[Array, "*system observation"]
    node: Int[Array, "*system observation"]
    fraction: Float[Array, "*system observation"]
    quantity: Int[Array, "*system observation"]
    last: Int[Array, "*system"] | None = None


@dataclasses.dataclass(frozen=True)
class Solver:
    """The problem's own integrator. Nothing in it is trained.

    `on_grid`: every observation falls on a step, so that no interpolation is compiled in. Then only every `stride`-th step
    is kept. `count` are kept: nothing after the last observation is solved.
    `backward`: derivatives are wanted in reverse mode (closure learning) instead of forward mode (sampling).
    """

    trained: ClassVar[bool] = False
    problem: ODE
    on_grid: bool = True
    backward: bool = False
    stride: int = 1
    count: int = 0

    def model(self, laws: Closures, network: Any) -> Closures:
        """What `predict` needs beside theta: for a solver the laws."""
        return laws

    def reverse(self) -> "Solver":
        return dataclasses.replace(self, backward=True)

    def numbers(self, parameters: int) -> int:
        """How many numbers one solve with sensitivities keeps in hand."""
        return 2 * len(self.problem.state_names) * (1 + parameters)

    def predict(
        self, theta: Float[Array, " parameter"], closures: Closures, where: Where
    ) -> Float[Array, " observation"]:
        """Observed quantities of one system at its observation points."""
        if isinstance(self.problem.integrator, Adaptive):
            states = jnp.stack(self._adaptive(theta, closures, where.time), axis=-1)
            return self.problem.sensors.seen(theta, where.time[:, None], states, where.quantity)
        count = self.count or self.problem.steps
        # Forward, what comes after the last observation is left unread. Backward, even a zero sent through an overflow is
        # NaN: there the state is held.
        hold = where.last if self.backward else None
        start, rhs, steps = self._steps(theta, closures, self.stride, count, hold)
        # A solution that overflows before the last observation of its own system is a failed one.
        end = -1 if where.last is None else where.last - 1
        lasts = jnp.all(jnp.stack([jnp.isfinite(y[end]) for y in steps]))
        first_slope: Any = None
        slopes: Any = None
        if not self.on_grid:
            node = jnp.arange(1, count + 1)
            times = self.problem.span[0] + self.problem.dt * (node if hold is None else jnp.minimum(node, hold))
            first_slope, slopes = rhs(self.problem.span[0], start), jax.vmap(rhs)(times, steps)

        def read(state: int | Array) -> Float[Array, " observation"]:
            """A state (or of each observation its own) where it was observed."""
            values = jnp.where(lasts, _pick(start, steps, where.node, state), jnp.nan)
            if slopes is None:
                return values
            # Cubic Hermite between steps: fourth order, like the best of the fixed-step schemes.
            m0, m1 = (
                self.problem.dt * _pick(first_slope, slopes, node, state) for node in (where.node, where.node + 1)
            )
            u, rise = where.fraction, _pick(start, steps, where.node + 1, state) - values
            return values + u * (m0 + u * (3 * rise - 2 * m0 - m1 + u * (m0 + m1 - 2 * rise)))

        columns = self.problem.sensors.columns
        if columns is None:
            states = jnp.stack([read(i) for i in range(len(steps))], axis=-1)
            return self.problem.sensors.seen(theta, where.time[:, None], states, where.quantity)
        return read(int(columns[0]) if len(columns) == 1 else jnp.asarray(columns)[where.quantity])

    def solution(self, theta: Float[Array, " parameter"], closures: Closures) -> Float[Array, "time state"]:
        """The whole state of one system on the problem's time grid."""
        if isinstance(self.problem.integrator, Adaptive):
            return jnp.stack(self._adaptive(theta, closures, jnp.asarray(self.problem.times, float)), axis=-1)
        start, _, steps = self._steps(theta, closures, 1, self.problem.steps)
        return jnp.stack([jnp.concatenate([y0[None], y]) for y0, y in zip(start, steps)], axis=-1)

    def visited(self, theta: Float[Array, " parameter"], closures: Closures) -> dict[str, Float[Array, "call input"]]:
        """Every input the closures were called with along one system's trajectory."""

        def calls(t: Array, y: Array) -> dict[str, Array]:
            record: dict[str, list[Array]] = {name: [] for name in closures}
            self.problem.rate(theta, closures, record)(t, tuple(y))
            return {
                name: jnp.concatenate(seen) if seen else jnp.zeros((0, self.problem.closures[name].inputs))
                for name, seen in record.items()
            }

        seen = jax.vmap(calls)(jnp.asarray(self.problem.times, float), self.solution(theta, closures))
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def terms(
        self, theta: Float[Array, " parameter"], closures: Closures, states: Float[Array, "time state"]
    ) -> Float[Array, "time state"]:
        """What the laws are part of, along a solution: the right-hand side."""
        return self._rates(theta, closures, jnp.asarray(self.problem.times, float), states)

    def grid_residual(
        self, theta: Float[Array, " parameter"], closures: Closures, states: Float[Array, "time state"]
    ) -> Float[Array, "condition state"]:
        """How far states on the grid miss the equation, in units of the state over an eighth of the span."""
        times = jnp.asarray(self.problem.times[1:], float)
        slope = time_slopes(states, self.problem.dt)
        return self._eighth * (slope - self._rates(theta, closures, times, states[1:]))

    def point_residual(
        self, theta: Float[Array, " parameter"], closures: Closures, function: Any, places: Float[Array, "condition 1"]
    ) -> Float[Array, "condition state"]:
        """The same of a function of (time,), at any times, with its exact derivative."""

        def motion(time: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda t: function(t[None]), (time,), (jnp.ones_like(time),))

        states, slope = jax.vmap(motion)(places[:, 0])
        return self._eighth * (slope - self._rates(theta, closures, places[:, 0], states))

    @property
    def _eighth(self) -> float:
        return (self.problem.span[1] - self.problem.span[0]) / 8

    def _rates(self, theta: Array, closures: Closures, times: Array, states: Array) -> Array:
        rate = self.problem.rate(theta, closures)
        return jax.vmap(lambda t, y: jnp.stack(rate(t, tuple(y))))(times, states)

    def _steps(
        self, theta: Array, closures: Closures, stride: int, count: int, hold: Array | None = None
    ) -> tuple[Any, Any, Any]:
        """Start, right-hand side, and the state after every `stride` steps, `count` times; constant from `hold` on."""
        problem, scheme = self.problem, self.problem.integrator
        start, rhs = problem.start(theta), problem.rate(theta, closures)
        t0, dt = problem.span[0], problem.dt

        def step(carry: Any, i: Array) -> tuple[Any, None]:
            return scheme.step(rhs, t0 + i * dt, dt, carry), None  # type: ignore[attr-defined]

        def leap(carry: Any, steps: Array) -> tuple[Any, Any]:
            carry, _ = lax.scan(step, carry, steps) if stride > 1 else step(carry, steps[0])
            return carry, scheme.state(carry)  # type: ignore[attr-defined]

        def leap_or_hold(carry: Any, steps: Array) -> tuple[Any, Any]:
            # Instead of leaping into what nobody asks for, do the first leap again, which is finite where the solve is.
            goes = steps[0] < stride * hold  # type: ignore[operator]
            moved, _ = leap(either(goes, carry, first), jnp.where(goes, steps, steps - steps[0]))
            carry = either(goes, moved, carry)
            return carry, scheme.state(carry)  # type: ignore[attr-defined]

        first = scheme.start(rhs, jnp.asarray(t0, float), start)  # type: ignore[attr-defined]
        each = leap if hold is None else leap_or_hold
        _, steps = lax.scan(each, first, jnp.arange(stride * count, dtype=float).reshape(count, stride))
        return start, rhs, steps

    def _adaptive(self, theta: Array, closures: Closures, times: Array) -> Any:
        problem = self.problem
        # Not beyond the last time asked for: what happens there must not fail this solve.
        end = jnp.maximum(jnp.max(times), problem.span[0] + problem.dt)
        rhs, start, begin = problem.rate(theta, closures), problem.start(theta), problem.span[0]
        return solve_adaptive(problem.integrator, rhs, start, begin, times, end, self.backward)  # type: ignore[arg-type]


def _pick(start: Any, steps: Any, node: Array, state: int | Array) -> Array:
    """A state (or at each node its own) at grid nodes; node 0 is the initial state."""
    at = jnp.maximum(node - 1, 0)
    if isinstance(state, int):
        return jnp.where(node == 0, start[state], steps[state][at])
    return jnp.where(node == 0, jnp.stack(start)[state], jnp.stack(steps)[state, at])


def either(condition: Array, one: Any, other: Any) -> Any:
    """`where` for trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def ode_solver(problem: ODE, data: Observations) -> tuple[Solver, Where]:
    """The solver of a problem, and where it is read off for these data."""
    place = (data.time - problem.span[0]) / problem.dt
    nearest = np.round(place)
    on_grid = bool(np.all(np.abs(place - nearest) < 1e-4))
    # Off the grid, an observation lies between a node and the next; one on a node does not need what comes after it.
    node = nearest if on_grid else np.clip(np.ceil(place - 1e-4) - 1, 0, problem.steps - 1)
    stride = max(1, int(np.gcd.reduce(nearest.astype(int), axis=None))) if on_grid else 1
    last = np.maximum(1, (node.max(axis=1) + (0 if on_grid else 1)) // stride)
    where = Where(
        jnp.asarray(data.time, float),
        jnp.asarray(node // stride, jnp.int32),
        jnp.asarray(place - node, float),
        jnp.asarray(data.quantity, jnp.int32),
        None if np.all(last == last[0]) else jnp.asarray(last, jnp.int32),
    )
    return Solver(problem, on_grid, stride=stride, count=int(last.max())), where
