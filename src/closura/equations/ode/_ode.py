"""ODE problems: one system's equation with a hole in it, written as a plain function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...laws import Closures, ClosureSpec, bind
from ...parameters import Parameters, Stated, check_name
from .._integrators import RK4, Integrator, Leapfrog, Rhs, State
from .._observe import Observed, Sensors
from .._shared import (
    NoiseModel,
    ProblemError,
    Sigma,
    as_covariates,
    as_interval,
    as_noise,
    bundle,
    check_called,
    check_times,
    named_closures,
    named_inputs,
    scalars,
    stand_ins,
    takes,
    trace,
)


class ODE:
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

    # What there is to train a surrogate on.
    offers: ClassVar[tuple[str, ...]] = ("solver", "residual")
    sloped: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ("time",)
    periodic: ClassVar[tuple[bool, ...]] = (False,)
    triangles: ClassVar[None] = None

    def __init__(
        self,
        physics: Callable[..., Any],
        *,
        state: Sequence[str] | str,
        parameters: Stated,
        initial: Callable[[Any], Any],
        span: tuple[float, float],
        closure: ClosureSpec | Mapping[str, ClosureSpec] | None = None,
        observed: Observed,
        dt: float | None = None,
        integrator: Integrator | None = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        self.physics, self.initial, self.name = physics, initial, name
        self.noise, self.sigma = as_noise(noise, sigma)
        self.state_names = (state,) if isinstance(state, str) else tuple(state)
        for component in self.state_names:
            check_name(component, "state")
        self.parameters = Parameters(parameters)
        self.sensors = Sensors(observed, self.state_names, self.parameters, len(self.axes))
        self.covariates = as_covariates(covariates, self.parameters)
        self.span = as_interval(span, "span")
        length = self.span[1] - self.span[0]
        self.steps = max(1, round(length / dt)) if dt is not None and dt > 0 else 200
        if dt is not None and not (dt > 0 and abs(self.steps * dt - length) <= 1e-6 * length):
            raise ProblemError(
                f"dt={dt} must be positive and divide the span of length {length}; try {length / self.steps:.6g}"
            )
        self.single = not isinstance(closure, Mapping)
        self.closures = named_closures(closure)
        self.integrator = RK4() if integrator is None else integrator
        self.integrator.check(self.state_names)
        self._record = bundle("state", self.state_names)
        self._takes_law = takes(physics, 4)
        self._check()

    @property
    def observed(self) -> tuple[str, ...]:
        return self.sensors.names

    @property
    def dt(self) -> float:
        return (self.span[1] - self.span[0]) / self.steps

    @property
    def times(self) -> np.ndarray:
        return np.linspace(*self.span, self.steps + 1)

    @property
    def known(self) -> np.ndarray:
        """The initial state is."""
        return np.arange(len(self.points)) == 0

    @property
    def points(self) -> np.ndarray:
        return self.times[:, None]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.steps + 1,)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return (self.span,)

    def base(self, theta: Float[Array, " parameter"], place: Float[Array, " axis"]) -> Float[Array, " state"]:
        """The initial state, at all times."""
        return jnp.stack(self.start(theta))

    def free(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start, one after a while: an eighth of the span is its unit."""
        begin, end = self.span
        return -jnp.expm1(-8 * (place[0] - begin) / (end - begin))

    def with_closure(self, closure: ClosureSpec | Mapping[str, ClosureSpec]) -> "ODE":
        """The same problem with another law, e.g. the true one for an oracle run."""
        return ODE(
            self.physics,
            state=self.state_names,
            parameters=self.parameters.stated,
            initial=self.initial,
            span=self.span,
            closure=closure,
            observed=self.sensors.functions or self.observed,
            dt=self.dt,
            integrator=self.integrator,
            sigma=self.sigma,
            noise=self.noise,
            covariates=self.covariates,
            name=self.name,
        )

    def start(self, theta: Float[Array, " parameter"]) -> State:
        values = self.initial(self.parameters.constrain(theta))
        return scalars(values, "initial(p)", self.state_names)

    def rate(
        self,
        theta: Float[Array, " parameter"],
        closures: Closures,
        record: dict[str, list[Array]] | None = None,
    ) -> Rhs:
        """The right-hand side (t, state) -> d(state)/dt of one system."""
        p, f = self.parameters.constrain(theta), bind(closures, self.single, record)

        def rhs(t: Any, y: State) -> State:
            arguments = (t, self._record(*y), p) + ((f,) if self._takes_law else ())
            return scalars(self.physics(*arguments), "physics(t, state, p, f)", self.state_names)

        return rhs

    def pace(self, spread: float) -> float:
        """A rate that makes the state change by so much within the span."""
        return spread / (self.span[1] - self.span[0])

    def law_inputs(self) -> dict[str, tuple[str, ...]]:
        """What each law is a function of, by name."""
        theta, laws = jnp.asarray(self.parameters.middle, float), stand_ins(self.closures)
        names = (*self.state_names, "time")
        return named_inputs(
            self.closures, names, lambda record, x: self.rate(theta, laws, record)(x[-1], tuple(x[:-1]))
        )

    def check_scheme(self) -> None:
        """Raise if the integrator would solve another equation, or cannot tell one step's time from the next.

        Needs numbers and the precision in use, so that it waits until a fit starts.
        """
        check_times(self.span, self.dt)
        if isinstance(self.integrator, Leapfrog):
            self._check_halves(self.integrator)

    def _check_halves(self, scheme: Leapfrog) -> None:
        random, names = np.random.default_rng(0), self.state_names
        theta = jnp.asarray(self.parameters.middle, float)
        theta = theta.at[: len(self.parameters)].add(random.normal(size=len(self.parameters)))
        y = tuple(jnp.asarray(random.normal(size=len(names)), float))
        t = jnp.asarray(random.uniform(*self.span), float)
        ignored = scheme.ignored(y, jax.jit(lambda *at: self.rate(theta, stand_ins(self.closures))(*at))(t, y))
        if ignored:
            half = len(names) // 2
            wrong = ", ".join(f"{names[i]}' = {names[half + i]}" for i in ignored)
            raise ProblemError(
                f"Leapfrog takes {', '.join(names[:half])} for positions and {', '.join(names[half:])} for their velocities, "
                f"in this order, but the physics does not return {wrong}; order the states positions first, then "
                "velocities (in state, initial and physics alike), or choose integrator=RK4()"
            )

    def _check(self) -> None:
        record: dict[str, list[Array]] = {name: [] for name in self.closures}

        def probe(theta: Array, t: Array) -> tuple[State, State]:
            return self.start(theta), self.rate(theta, stand_ins(self.closures), record)(t, self.start(theta))

        trace(probe, self.parameters.width, 1, "the physics or the initial state")
        check_called(record, self.single, self._takes_law, "physics(t, state, p, f)")
