"""ODE problems: one system's equation with a hole in it, written as a plain function."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import LawSpec, SolverLaws, bind
from ...parameters import Stated, System, Theta
from .._base import Draws, ForwardModel, Refinement, Systems
from .._index import Near, ObservationIndex, near_on_line
from .._initial_value import InitialValueProblem
from .._integrators import RK4, Integrator, Rhs, State
from .._observe import Observed
from .._shared import (
    NoiseModel,
    ProblemError,
    Record,
    Sigma,
    as_interval,
    as_names,
    bundle,
    check_called,
    check_times,
    identity_laws,
    named_inputs,
    scalars,
    takes,
    trace,
)


class ODE(InitialValueProblem):
    """d(state)/dt = physics(t, state, p, f),  state(t0) = initial(p).

    - `physics(t, state, p, f)`: plain JAX for one system. `state` unpacks in order and has fields by name, `p` holds
      physical parameter values by name, `f` is the unknown law (or, with several closures, `f.name`). Returns one
      derivative a state.
    - `state`: names of the state's components; `initial(p)` returns one value each.
    - `parameters`: name -> `Real`, `Positive` or `Interval`, or a prior like `LogNormal(0.0, 1.0)`; a plain number is known,
      `Column()` known of each system, `Signal()` known of each at all times.
    - `closure`: one specification, a dict of several by name, or None when all the physics is known.
    - `observed`: the component(s) the data see, or functions of them by name:
      `{"strain": lambda state, p: state.u / p.length}`.
    - `span`: first and last time, in the unit of the table's times.
    - `dt`: step of the fixed-step integrators (default: 200 steps over the span).
    - `integrator`: `RK4()` unless said, `Leapfrog()` or `Adaptive(...)`.
    - `sigma`: size of the noise where the data do not state their own (one number, or a mapping by quantity). Left out, or
      given as a prior `LogNormal(...)`, it is inferred.
    - `noise`: the family of the noise, "normal" by default, "lognormal" (in proportion to what is observed), "student" (with
      outliers) or another name (docs/problem.md), or an instance of a class of your own derived from `Noise`.
    - `covariates`: parameter -> column(s) of the table, one number a system, that shift its population mean.
    - `name`: of the problem, in reports and folders.
    """

    expensive = False
    profile = "curves"

    def __init__(
        self,
        physics: Callable[..., Any],
        *,
        state: Sequence[str] | str,
        parameters: Stated,
        initial: Callable[[Any], Any],
        span: tuple[float, float],
        closure: LawSpec | Mapping[str, LawSpec] | None = None,
        observed: Observed,
        dt: float | None = None,
        integrator: Integrator | None = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        super().__init__(as_names(state, "state"), ("time",), locals())
        self.physics, self.initial = physics, initial
        self.span = as_interval(span, "span")
        length = self.span[1] - self.span[0]
        self.steps = max(1, round(length / dt)) if dt is not None and dt > 0 else 200
        if dt is not None and not (dt > 0 and abs(self.steps * dt - length) <= 1e-6 * length):
            raise ProblemError(
                f"dt={dt} must be positive and divide the span of length {length}; try {length / self.steps:.6g}"
            )
        self.use(RK4() if integrator is None else integrator)
        self.integrator.check(self.state_names)
        self._record = bundle("state", self.state_names)
        self._takes_law = takes(physics, 4)
        self._check()

    # The grid

    @property
    def dt(self) -> float:
        return (self.span[1] - self.span[0]) / self.steps

    @property
    def times(self) -> np.ndarray:
        return np.linspace(*self.span, self.steps + 1)

    @property
    def points(self) -> np.ndarray:
        return self.times[:, None]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.steps + 1,)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return (self.span,)

    def nodes_near(self, data: Observations) -> Near:
        return near_on_line((data.time - self.span[0]) / self.dt, self.steps + 1)

    # The equation

    def start(self, theta: Theta, system: System) -> State:
        """The initial state of one system."""
        values = self.initial(self.parameters.constrain(theta, system))
        return scalars(values, "initial(p)", self.state_names)

    def rate(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Rhs:
        """The right-hand side (t, state) -> d(state)/dt of one system."""
        p = self.parameters.constrain(theta, system)
        f = bind(laws, self.single, record)

        def rhs(t: Any, y: State) -> State:
            arguments = (t, self._record(*y), p) + ((f,) if self._takes_law else ())
            return scalars(self.physics(*arguments), "physics(t, state, p, f)", self.state_names)

        return rhs

    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        theta, laws = jnp.asarray(self.parameters.mean, float), identity_laws(self.closures)
        names = (*self.state_names, "time")
        return named_inputs(
            self.closures, names, lambda record, x: self.rate(theta, laws, 0, record)(x[-1], tuple(x[:-1]))
        )

    # What is known before anything is solved

    @property
    def known(self) -> np.ndarray:
        """The initial state is."""
        return np.arange(len(self.points)) == 0

    def initial_state(self, theta: Theta, system: System) -> Float[Array, " state"]:
        return jnp.stack(self.start(theta, system))

    def lift(self, theta: Theta, place: Float[Array, " axis"], system: System) -> Float[Array, " state"]:
        """The initial state, at all times."""
        return self.initial_state(theta, system)

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start, one after a while: an eighth of the span is its unit."""
        begin, end = self.span
        return -jnp.expm1(-8 * (place[0] - begin) / (end - begin))

    # The solver and its checks

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        from ._solver import solver_of

        return solver_of(self, data)

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:
        """Raise if the integrator would solve another equation, or cannot tell one step's time from the next.

        Needs numbers and the precision in use, so that it waits until a fit starts.
        """
        check_times(self.span, self.dt)
        if self.integrator.second_order:
            self._check_halves()

    def _check_halves(self) -> None:
        random, names = np.random.default_rng(0), self.state_names
        theta = jnp.asarray(self.parameters.mean + random.normal(size=len(self.parameters)), float)
        y = tuple(jnp.asarray(random.normal(size=len(names)), float))
        t = jnp.asarray(random.uniform(*self.span), float)
        laws = identity_laws(self.closures)
        ignored = self.integrator.ignored(y, jax.jit(lambda *at: self.rate(theta, laws, 0)(*at))(t, y))
        if ignored:
            half = len(names) // 2
            wrong = ", ".join(f"{names[i]}' = {names[half + i]}" for i in ignored)
            raise ProblemError(
                f"Leapfrog takes {', '.join(names[:half])} for positions and {', '.join(names[half:])} for their velocities, "
                f"in this order, but the physics does not return {wrong}; order the states positions first, then "
                "velocities (in state, initial and physics alike), or choose integrator=RK4()"
            )

    def refined(self) -> Refinement | None:
        if self.integrator.adaptive:
            return None
        remedy = f"give the problem dt={self.dt / 4:.4g}, or integrator=cl.Adaptive()"
        halved = self._with_steps(2 * self.steps, self.span[1])
        return Refinement(halved, f"Steps of dt={self.dt:.4g} are too long", remedy)

    def _check(self) -> None:
        record: Record = {name: [] for name in self.closures}

        def probe(theta: Array, t: Array) -> tuple[State, State]:
            start = self.start(theta, 0)
            return start, self.rate(theta, identity_laws(self.closures), 0, record)(t, start)

        trace(probe, len(self.parameters), 1, "the physics or the initial state")
        check_called(record, self.single, self._takes_law, "physics(t, state, p, f)")

    # Time and costs

    def extended(self, until: float) -> "ODE":
        count = self.intervals_until(until, self.steps)
        return self if count == self.steps else self._with_steps(count, self.span[0] + count * self.dt)

    def _with_steps(self, count: int, end: float) -> "ODE":
        other = copy.copy(self)
        other.steps, other.span = count, (self.span[0], end)
        other._stated = {**self._stated, "span": other.span, "dt": other.dt}
        return other

    def signal_times(self) -> np.ndarray:
        """Where a fixed-step integrator asks, which makes sampling exact; elsewhere fine."""
        return super().signal_times() if self.integrator.adaptive else np.linspace(*self.span, 1 + 2 * self.steps)
