"""The solver of ODE problems: theta and laws in, predictions at the observed points out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import SolverLaws
from ...parameters import System, Theta
from .._base import ForwardModel
from .._index import ON_NODE, LawInputs, ObservationIndex, Predictions, States
from .._integrators import Rhs, State
from .._shared import Record, called_inputs, either
from .._time_derivatives import time_slopes
from ._ode import ODE


@dataclasses.dataclass(frozen=True)
class ODESolver(ForwardModel):
    """The problem's own integrator. Nothing in it is trained.

    Only every `stride`-th step is kept. `count` are kept: nothing after the last observation is solved.
    `backward`: derivatives are wanted in reverse mode (closure learning) instead of forward mode (sampling).
    """

    problem: ODE
    backward: bool = False
    stride: int = 1
    count: int = 0

    def for_reverse_mode(self) -> "ODESolver":
        return dataclasses.replace(self, backward=True)

    def working_set_size(self, parameters: int) -> int:
        return 2 * len(self.problem.state_names) * (1 + parameters)

    @property
    def call_times(self) -> np.ndarray:
        return self.problem.times

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        """Observed quantities of one system at its observation points."""
        problem = self.problem
        if problem.integrator.adaptive:
            states = jnp.stack(self._adaptive(theta, context, where.place[:, 0], system), axis=-1)
            return problem.operator(theta, where, states, system)
        count = self.count or problem.steps
        # Forward, what comes after the last observation is left unread. Backward, even a zero sent through an overflow is
        # NaN: there the state is held.
        hold = where.last if self.backward else None
        start, rhs, steps = self._steps(theta, context, system, (self.stride, count), hold)
        # A solution that overflows before the last observation of its own system is a failed one.
        end = -1 if where.last is None else where.last - 1
        finite = jnp.all(jnp.stack([jnp.isfinite(y[end]) for y in steps]))
        rates: tuple[State, State] | None = None
        if where.rate_weight is not None:
            node = jnp.arange(1, count + 1)
            times = problem.span[0] + problem.dt * (node if hold is None else jnp.minimum(node, hold))
            rates = rhs(problem.span[0], start), jax.vmap(rhs)(times, steps)

        def read(state: int | Array) -> Predictions:
            """A state (or of each observation its own) where it was observed."""
            if rates is None or where.rate_weight is None:
                return jnp.where(finite, _pick(start, steps, where.node[:, 0], state), jnp.nan)
            total = jnp.zeros(len(where.node))
            for node, weight, rate_weight in zip(where.node.T, where.weight.T, where.rate_weight.T):
                total += weight * _pick(start, steps, node, state) + rate_weight * _pick(*rates, node, state)
            return jnp.where(finite, total, jnp.nan)

        columns = problem.operator.columns
        if columns is None:
            states = jnp.stack([read(i) for i in range(len(steps))], axis=-1)
            return problem.operator(theta, where, states, system)
        return read(int(columns[0]) if len(columns) == 1 else jnp.asarray(columns)[where.quantity])

    def solution(self, theta: Theta, laws: SolverLaws, system: System) -> States:
        """The whole state of one system on the problem's time grid."""
        if self.problem.integrator.adaptive:
            return jnp.stack(self._adaptive(theta, laws, jnp.asarray(self.problem.times, float), system), axis=-1)
        start, _, steps = self._steps(theta, laws, system, (1, self.problem.steps))
        return jnp.stack([jnp.concatenate([y0[None], y]) for y0, y in zip(start, steps)], axis=-1)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Every input the laws are called with at the times of one system's solution."""

        def calls(t: Array, y: Array) -> dict[str, Array]:
            def call(record: Record) -> State:
                return self.problem.rate(theta, laws, system, record)(t, tuple(y))

            return called_inputs(self.problem.closures, call)

        seen = jax.vmap(calls)(jnp.asarray(self.problem.times, float), self.solution(theta, laws, system))
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        """The right-hand side along a solution."""
        return self._rates(theta, laws, jnp.asarray(self.problem.times, float), states, system)

    def grid_residual(
        self, theta: Theta, laws: SolverLaws, states: States, system: System
    ) -> Float[Array, "condition state"]:
        """How far states on the grid miss the equation, in units of the state over an eighth of the span."""
        times = jnp.asarray(self.problem.times[1:], float)
        slope = time_slopes(states, self.problem.dt)
        return self._eighth * (slope - self._rates(theta, laws, times, states[1:], system))

    def point_residual(
        self,
        theta: Theta,
        laws: SolverLaws,
        function: Callable[[Float[Array, " axis"]], Float[Array, " state"]],
        places: Float[Array, "condition 1"],
        system: System,
    ) -> Float[Array, "condition state"]:
        """The same of a function of (time,), at any times, with its exact derivative."""

        def motion(time: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda t: function(t[None]), (time,), (jnp.ones_like(time),))

        states, slope = jax.vmap(motion)(places[:, 0])
        return self._eighth * (slope - self._rates(theta, laws, places[:, 0], states, system))

    @property
    def _eighth(self) -> float:
        return (self.problem.span[1] - self.problem.span[0]) / 8

    def _rates(self, theta: Array, laws: SolverLaws, times: Array, states: Array, system: System) -> Array:
        rate = self.problem.rate(theta, laws, system)
        return jax.vmap(lambda t, y: jnp.stack(rate(t, tuple(y))))(times, states)

    def _steps(
        self, theta: Array, laws: SolverLaws, system: System, grid: tuple[int, int], hold: Array | None = None
    ) -> tuple[State, Rhs, State]:
        """Start, right-hand side, and on a grid (stride, count) the state after every `stride` steps; constant from `hold` on."""
        problem, scheme, (stride, count) = self.problem, self.problem.integrator, grid
        start, rhs = problem.start(theta, system), problem.rate(theta, laws, system)
        t0, dt = problem.span[0], problem.dt

        def step(carry: Any, i: Array) -> tuple[Any, None]:
            return scheme.step(rhs, t0 + i * dt, dt, carry), None

        def leap(carry: Any, steps: Array) -> tuple[Any, State]:
            carry, _ = lax.scan(step, carry, steps) if stride > 1 else step(carry, steps[0])
            return carry, scheme.state(carry)

        def leap_or_hold(carry: Any, steps: Array) -> tuple[Any, State]:
            # Instead of leaping into what nobody asks for, do the first leap again, which is finite where the solve is.
            goes = steps[0] < stride * hold  # type: ignore[operator]
            moved, _ = leap(either(goes, carry, first), jnp.where(goes, steps, steps - steps[0]))
            carry = either(goes, moved, carry)
            return carry, scheme.state(carry)

        first = scheme.start(rhs, jnp.asarray(t0, float), start)
        each = leap if hold is None else leap_or_hold
        _, steps = lax.scan(each, first, jnp.arange(stride * count, dtype=float).reshape(count, stride))
        return start, rhs, steps

    def _adaptive(self, theta: Array, laws: SolverLaws, times: Array, system: System) -> State:
        problem = self.problem
        # Not beyond the last time asked for: what happens there must not fail this solve.
        end = jnp.maximum(jnp.max(times), problem.span[0] + problem.dt)
        rhs, start = problem.rate(theta, laws, system), problem.start(theta, system)
        return problem.integrator.solve(rhs, start, (problem.span[0], end), times, self.backward)


def _pick(start: State, steps: State, node: Array, state: int | Array) -> Array:
    """A state (or at each node its own) at grid nodes; node 0 is the initial state."""
    at = jnp.maximum(node - 1, 0)
    if isinstance(state, int):
        return jnp.where(node == 0, start[state], steps[state][at])
    return jnp.where(node == 0, jnp.stack(start)[state], jnp.stack(steps)[state, at])


def solver_of(problem: ODE, data: Observations) -> tuple[ODESolver, ObservationIndex]:
    """The solver of a problem, and where it is read for these data."""
    place = (data.time - problem.span[0]) / problem.dt
    nearest = np.round(place).astype(int)
    if np.all(np.abs(place - nearest) < ON_NODE):
        stride = max(1, int(np.gcd.reduce(nearest, axis=None)))
        node, weight, rate_weight = nearest[..., None] // stride, np.ones((*place.shape, 1)), None
    else:
        # An observation lies between a node and the next; one on a node does not need what comes after it.
        stride, first = 1, np.clip(np.ceil(place - ON_NODE) - 1, 0, problem.steps - 1).astype(int)
        node = np.stack([first, first + 1], axis=-1)
        weight, rate_weight = _hermite(place - first, problem.dt)
    last = np.maximum(1, node.max(axis=(1, 2)))
    where = ObservationIndex(
        jnp.asarray(data.place, float),
        jnp.asarray(node, jnp.int32),
        jnp.asarray(weight, float),
        jnp.asarray(data.quantity, jnp.int32),
        None if rate_weight is None else jnp.asarray(rate_weight, float),
        None if np.all(last == last[0]) else jnp.asarray(last, jnp.int32),
    )
    return ODESolver(problem, stride=stride, count=int(last.max())), where


def _hermite(u: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of values and rates at both ends of a step, at a share u of it: fourth order, like the best fixed-step schemes."""
    rise = u**2 * (3 - 2 * u)
    return np.stack([1 - rise, rise], axis=-1), dt * np.stack([u * (1 - u) ** 2, u**2 * (u - 1)], axis=-1)
