"""Equations that start somewhere and go on in time, and what their solvers have in common."""

import abc
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..data import DataError, Observations
from ..laws import SolverLaws, bind
from ..parameters import System, Theta
from ._base import Equation, ForwardModel
from ._index import LawInputs, Near, Numbers, States, near_on_grid, near_on_line
from ._integrators import RK4, Carry, Integrator, Rhs, State, Time
from ._shared import (
    ProblemError,
    Record,
    as_interval,
    as_names,
    called_inputs,
    check_called,
    either,
    identity_laws,
    named_inputs,
    scalars,
    takes,
    trace,
)

T = TypeVar("T")
Axes = tuple[State, ...]  # of each axis of space, one number a state
Local = Callable[[State, Axes, Axes, State, Time], T]  # of u, ux, uxx, x and t at one place; ux, uxx, x empty in an ODE
BACKWARD = (25 / 12, -4.0, 3.0, -4 / 3, 1 / 4)  # a derivative at the last time, from it and the four before


class InitialValueProblem(Equation):
    """d(state)/dt = rate(t, state),  state(t0) = start; states are numbers, or fields on a grid.

    A solution is kept at the start and at `snapshots` after it, equally far apart, with `stride` steps from one to the next.
    """

    signature: ClassVar[str]  # of the physics, as a user writes it
    snapshots: int

    def __init__(self, states: str, axes: tuple[str, ...], stated: Mapping[str, Any]):
        """`states` is the argument that names them."""
        super().__init__(as_names(stated[states], states), axes, stated)
        self.physics: Callable[..., Numbers] = stated["physics"]
        self.initial: Callable[..., Numbers] = stated["initial"]
        self.span = as_interval(stated["span"], "span")
        self.integrator: Integrator = stated["integrator"] or RK4()
        self.second_order = self.integrator.second_order
        self.most_devices = 1 if self.integrator.adaptive else None
        self._takes_law = takes(self.physics, self.signature.count(",") + 1)

    # The grid

    @property
    def length(self) -> float:
        """Of the span."""
        return self.span[1] - self.span[0]

    @functools.cached_property
    def stride(self) -> int:
        return 1

    @property
    def steps(self) -> int:
        return self.snapshots * self.stride

    @property
    def dt(self) -> float:
        return self.length / self.steps

    @property
    def times(self) -> np.ndarray:
        """The initial time and every snapshot's."""
        return np.linspace(*self.span, self.snapshots + 1)

    @property
    def lines(self) -> tuple[np.ndarray, ...]:
        """The nodes along each axis."""
        return (self.times,)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.lines))

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return (self.span,)

    @property
    def points(self) -> np.ndarray:
        """Every place of a solution, the last coordinate fastest."""
        return np.stack(np.meshgrid(*self.lines, indexing="ij"), axis=-1).reshape(-1, len(self.lines))

    def near(self, places: Float[np.ndarray, "system observation axis"], every: tuple[int, ...] | None = None) -> Near:
        """Points of the grid that places are read from, and their weights; from `every` so many-th along each axis."""
        found = []
        for axis, (low, high) in enumerate(self.bounds):
            at, slack = places[..., axis], 1e-6 * (high - low)
            outside = at[(at < low - slack) | (at > high + slack)]
            if outside.size:
                raise DataError(
                    f"{self.axes[axis]}={outside[0]:.6g} was observed outside {low:g} to {high:g}, where the problem is stated; "
                    f"leave such rows out, or widen the problem's {'domain' if axis else 'span'}"
                )
            count, periodic = self.shape[axis], self.periodic[axis]
            place = (at - low) / (high - low) * (count if periodic else count - 1)
            found.append(near_on_line(place, count, periodic, 1 if every is None else every[axis]))
        return near_on_grid(found, self.shape)

    def nodes_near(self, data: Observations) -> Near:
        return self.near(data.place)

    # The equation

    @abc.abstractmethod
    def start(self, theta: Theta, system: System) -> State:
        """The initial state of one system."""

    @abc.abstractmethod
    def local(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Local[State]:
        """The physics of one system at one place: one rate a state."""

    def at_sites(self, theta: Theta, laws: SolverLaws, system: System) -> Callable[[Time, State, Local[T]], T]:
        """(t, state, function) -> function(u, ux, uxx, x, t) wherever the equation is evaluated."""
        return lambda t, y, function: function(y, (), (), (), t)

    def rate(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Rhs:
        """The right-hand side (t, state) -> d(state)/dt of one system."""
        at_sites, local = self.at_sites(theta, laws, system), self.local(theta, laws, system, record)
        return lambda t, y: at_sites(t, y, local)

    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        theta, laws = jnp.asarray(self.parameters.mean, float), identity_laws(self.closures)
        count, space = len(self.state_names), self.axes[1:]
        ends = ["", *(f"_{axis}" for axis in space), *(f"_{axis}{axis}" for axis in space)]

        def call(record: Record, numbers: Array) -> State:
            u, *rest = map(tuple, numbers[: len(ends) * count].reshape(-1, count))
            *x, t = numbers[len(ends) * count :]
            first, second = tuple(rest[: len(space)]), tuple(rest[len(space) :])
            return self.local(theta, laws, 0, record)(u, first, second, tuple(x), t)

        names = [name + end for end in ends for name in self.state_names]
        return named_inputs(self.closures, [*names, *space, "time"], call)

    def rhs_scale(self, spread: float) -> float:
        """A rate that makes the state change by so much within the span."""
        return spread / self.length

    def evaluate_at(
        self, theta: Array, laws: SolverLaws, share: Float[Array, " 2"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " number"]:
        """Of the initial state, and of the rates at another."""
        start = self.start(theta, system)
        moved = tuple(y + more for y, more in zip(start, state))
        rates = self.rate(theta, laws, system)(self.span[0] + share[0] * self.length, moved)
        # Squares do not cancel, as means over a field do; the second knows the sign.
        return jnp.stack([jnp.mean((y + more) ** 2) for y in (*start, *rates) for more in (0.0, 1.0)])

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start, one after a while: an eighth of the span is its unit."""
        return -jnp.expm1(-8 * (place[0] - self.span[0]) / self.length)

    def extended(self, until: float) -> "InitialValueProblem":
        """The same equation with a span that reaches `until`, in the same steps (rounded up to a snapshot)."""
        begin, end = self.span
        if not math.isfinite(until) or until <= begin:
            raise ProblemError(f"until={until:g} is not after the problem's start, {begin:g}; name a later time")
        count = math.ceil((until - begin) / self.length * self.snapshots - 1e-6)
        if count <= self.snapshots or until <= end + 1e-9 * max(end, 0.0):
            return self
        return self._with_snapshots(count, begin + count * (self.length / self.snapshots))

    def _with_snapshots(self, count: int, end: float) -> "InitialValueProblem":
        """So many until another end, with as many steps from one to the next as here."""
        other = copy.copy(self)
        other.stride = self.stride
        other.snapshots, other.span = count, (self.span[0], end)
        changed = {"span": other.span, "snapshots": count, "dt": other.dt}
        other._stated = {key: changed.get(key, value) for key, value in self._stated.items()}
        return other

    # Checks

    @staticmethod
    def _divided(dt: float, length: float, otherwise: int, what: str, more: str = "") -> int:
        """How many steps of dt there are in a length, or a message; `otherwise` are proposed where dt is no help."""
        count = max(1, round(length / dt)) if dt > 0 else otherwise
        if not (dt > 0 and abs(count * dt - length) <= 1e-6 * length):
            raise ProblemError(f"dt={dt} must be positive and divide {what}; try {length / count:.6g}{more}")
        return count

    def _called(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None) -> Callable[..., State]:
        """The physics of one system, of what comes before p in its signature: one rate a state."""
        p, f = self.parameters.constrain(theta, system), bind(laws, self.single, record)
        more = (p, f) if self._takes_law else (p,)
        return lambda *at: scalars(self.physics(*at, *more), self.signature, self.state_names)

    def _check(self, functions: str) -> None:
        """Raise if what the user's functions return is of no use, or a law is never called."""
        record: Record = {name: [] for name in self.closures}

        def probe(theta: Array, t: Array) -> tuple[State, State]:
            start = self.start(theta, 0)
            return start, self.rate(theta, identity_laws(self.closures), 0, record)(t, start)

        trace(probe, len(self.parameters), 1, functions)
        check_called(record, self.single, self._takes_law, self.signature)


@dataclasses.dataclass(frozen=True)
class InitialValueSolver(ForwardModel):
    """The problem's own integrator. Nothing in it is trained.

    `backward`: derivatives are wanted in reverse mode (closure learning) instead of forward mode (sampling).
    `count`: snapshots to solve for, all by default; nothing after the last observation need be.
    """

    problem: InitialValueProblem
    backward: bool = False
    count: int = 0
    recompute: ClassVar[bool] = False  # in reverse mode keep snapshots alone, and step again from one to the next

    def for_reverse_mode(self) -> "InitialValueSolver":
        return dataclasses.replace(self, backward=True)

    @property
    def call_times(self) -> np.ndarray:
        return self.problem.times

    def solution(self, theta: Theta, laws: SolverLaws, system: System) -> States:
        return jnp.stack([u.reshape(-1) for u in self._snapshots(theta, laws, system)], axis=-1)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Every input the laws are called with at the points of one system's solution."""
        problem, at_sites = self.problem, self.problem.at_sites(theta, laws, system)

        def calls(*at: PyTree[Array]) -> LawInputs:
            return called_inputs(problem.closures, lambda record: problem.local(theta, laws, system, record)(*at))

        states = self._snapshots(theta, laws, system)
        seen = jax.vmap(lambda t, y: at_sites(t, y, calls))(self._times, states)
        return {name: inputs.reshape(-1, inputs.shape[-1]) for name, inputs in seen.items()}

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        """The right-hand side at a solution."""
        fields = states.reshape(*self.problem.shape, -1)
        return self._rates(theta, laws, system, self._times, fields).reshape(states.shape)

    # What misses the equation, in units of the state over an eighth of the span

    def grid_residual(
        self, theta: Theta, laws: SolverLaws, states: States, system: System
    ) -> Float[Array, "condition state"]:
        """Time derivatives less the equation, on the grid; derivatives in space are the solver's own."""
        fields = states.reshape(*self.problem.shape, -1)
        change = time_derivatives(fields, self.problem.length / self.problem.snapshots)
        needed = self._rates(theta, laws, system, self._times[1:], fields[1:])
        return (change - needed).reshape(-1, states.shape[-1]) * (self.problem.length / 8)

    def point_residual(
        self,
        theta: Theta,
        laws: SolverLaws,
        function: Callable[[Float[Array, " axis"]], Float[Array, " state"]],
        places: Float[Array, "condition axis"],
        system: System,
    ) -> Float[Array, "condition state"]:
        """The same at any places, for a function that can be differentiated."""
        local = self.problem.local(theta, laws, system)
        along_t, *along = jnp.eye(places.shape[-1])

        def pushed(place: Array, way: Array) -> tuple[Array, Array]:
            return jax.jvp(function, (place,), (way,))

        def imbalance(place: Array) -> Array:
            u, change = pushed(place, along_t)
            twice = [jax.jvp(lambda at, way=way: pushed(at, way), (place,), (way,)) for way in along]
            first, second = (tuple(tuple(part[i][1]) for part in twice) for i in (0, 1))
            return change - jnp.stack(local(tuple(u), first, second, tuple(place[1:]), place[0]))

        return jax.vmap(imbalance)(places) * (self.problem.length / 8)

    @property
    def _times(self) -> Float[Array, " time"]:
        return jnp.asarray(self.problem.times, float)

    def _rates(self, theta: Theta, laws: SolverLaws, system: System, times: Array, fields: Array) -> Array:
        """Of fields (time, *node, state)."""
        rate = self.problem.rate(theta, laws, system)
        return jnp.stack(jax.vmap(rate)(times, tuple(jnp.moveaxis(fields, -1, 0))), axis=-1)

    # Stepping

    def _snapshots(
        self, theta: Theta, laws: SolverLaws, system: System, count: int = 0, last: Array | None = None
    ) -> State:
        """States at the start and at the first `count` snapshots, all by default; after the `last` they need not be right."""
        problem, count = self.problem, count or self.problem.snapshots
        start, rhs = problem.start(theta, system), problem.rate(theta, laws, system)
        if problem.integrator.adaptive:
            return self._adaptive(rhs, start, self._times[: count + 1])
        later = self._steps(rhs, start, problem.stride, count, last)
        return tuple(jnp.concatenate([first[None], rest]) for first, rest in zip(start, later))

    def _adaptive(self, rhs: Rhs, start: State, times: Float[Array, " time"]) -> State:
        problem, begin = self.problem, self.problem.span[0]
        # Not beyond the last time asked for: what happens there must not fail this solve.
        end = jnp.maximum(jnp.max(times), begin + problem.dt)
        return problem.integrator.solve(rhs, start, (begin, end), times, self.backward)

    def _steps(self, rhs: Rhs, start: State, stride: int, count: int, last: Array | None) -> State:
        """The state after every `stride` steps, so often."""
        scheme, t0, dt = self.problem.integrator, self.problem.span[0], self.problem.dt
        first = scheme.start(rhs, jnp.asarray(t0, float), start)

        def step(carry: Carry, i: Array) -> tuple[Carry, None]:
            return scheme.step(rhs, t0 + i * dt, dt, carry), None

        def advance(carry: Carry, steps: Array) -> Carry:
            return (lax.scan(step, carry, steps) if stride > 1 else step(carry, steps[0]))[0]

        if self.backward and self.recompute:
            advance = jax.checkpoint(advance)

        def keep(carry: Carry, steps: Array) -> tuple[Carry, State]:
            # Forward, what comes after the last observation is left unread. Backward, even a zero sent through an overflow is
            # NaN: there the state is held. Instead of stepping into what nobody asks for, do the first steps again, which are
            # finite where the solve is.
            if self.backward and last is not None:
                goes = steps[0] < stride * last
                moved = advance(either(goes, carry, first), jnp.where(goes, steps, steps - steps[0]))
                carry = either(goes, moved, carry)
            else:
                carry = advance(carry, steps)
            return carry, carry[0]

        return lax.scan(keep, first, jnp.arange(stride * count, dtype=float).reshape(count, stride))[1]


def time_derivatives(values: Float[Array, "time ..."], interval: float) -> Float[Array, "later ..."]:
    """At every time but the first: of fourth order, of second at the next to the first and the next to the last."""
    near = (values[2:] - values[:-2]) / (2 * interval)
    wide = (values[4:] - values[:-4]) / (4 * interval)
    last = jnp.tensordot(jnp.asarray(BACKWARD, values.dtype), values[:-6:-1], axes=1) / interval
    return jnp.concatenate([near[:1], (4 * near[1:-1] - wide) / 3, near[-1:], last[None]])
