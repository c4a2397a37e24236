"""ODE problems: one system's equation with a hole in it, written as a plain function."""

import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._closure import Closures, ClosureSpec, Known, KnownClosure, Scaling, bind
from ._integrators import RK4, Integrator, Leapfrog, Rhs, State
from ._parameters import Parameter, Parameters, check_name


class ProblemError(ValueError):
    """The problem as written cannot be solved; the message says what to change."""


class ODE:
    """d(state)/dt = physics(t, state, p, f),  state(t0) = initial(p).

    - `physics(t, state, p, f)`: plain JAX for one system. `state` unpacks in order and has fields by name, `p` holds
      physical parameter values by name, `f` is the unknown law (or, with several closures, `f.name`). Returns one
      derivative a state.
    - `state`: names of the state's components; `initial(p)` returns one value each.
    - `parameters`: name -> `Real`, `Positive` or `Interval`.
    - `closure`: one specification, a dict of several by name, or None when all the physics is known.
    - `observed`: the component(s) the data see.
    - `dt`: step of the fixed-step integrators (default: 200 steps over the span).
    - `sigma`: known noise standard deviation where the data do not state their own (one number, or a dict by quantity).
    """

    # What there is to train a surrogate on.
    offers: ClassVar[tuple[str, ...]] = ("solver", "residual")
    axes: ClassVar[tuple[str, ...]] = ("time",)
    periodic: ClassVar[tuple[bool, ...]] = (False,)

    def __init__(
        self,
        physics: Callable[..., Any],
        *,
        state: Sequence[str] | str,
        parameters: Mapping[str, Parameter],
        initial: Callable[[Any], Any],
        span: tuple[float, float],
        closure: ClosureSpec | Mapping[str, ClosureSpec] | None = None,
        observed: Sequence[str] | str,
        dt: float | None = None,
        integrator: Integrator | None = None,
        sigma: float | Mapping[str, float] | None = None,
        name: str = "problem",
    ):
        self.physics, self.initial, self.name, self.sigma = physics, initial, name, sigma
        self.state_names = (state,) if isinstance(state, str) else tuple(state)
        self.observed = (observed,) if isinstance(observed, str) else tuple(observed)
        for component in self.state_names:
            check_name(component, "state")
        for quantity in self.observed:
            if quantity not in self.state_names:
                raise ProblemError(f"observed {quantity!r} is not a state; states are {', '.join(self.state_names)}")
        self.parameters = Parameters(parameters)
        self.span = (float(span[0]), float(span[1]))
        if not self.span[0] < self.span[1]:
            raise ProblemError(f"span {span} must run forward: (start, end) with start < end")
        length = self.span[1] - self.span[0]
        self.steps = max(1, round(length / dt)) if dt is not None and dt > 0 else 200
        if dt is not None and not (dt > 0 and abs(self.steps * dt - length) <= 1e-6 * length):
            raise ProblemError(
                f"dt={dt} must be positive and divide the span of length {length}; try {length / self.steps:.6g}"
            )
        self.single = not isinstance(closure, Mapping)
        self.closures: dict[str, ClosureSpec] = (
            {} if closure is None else dict(closure) if isinstance(closure, Mapping) else {"f": closure}
        )
        for closure_name, spec in self.closures.items():
            check_name(closure_name, "closure")
            if not isinstance(spec, ClosureSpec):
                raise ProblemError(f"closure {closure_name!r} is {spec!r}; use cl.MLP(...) or cl.Known(function)")
        self.integrator = RK4() if integrator is None else integrator
        self.integrator.check(self.state_names)
        self._record = namedtuple("state", self.state_names)  # type: ignore[misc]
        arguments = inspect.signature(physics).parameters.values()
        self._takes_law = len(arguments) >= 4 or any(a.kind is a.VAR_POSITIONAL for a in arguments)
        self._check()

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

    def base(self, theta: Float[Array, " parameter"], place: Float[Array, " axis"]) -> Float[Array, " state"]:
        """The initial state, at all times."""
        return jnp.stack(self.start(theta))

    def free(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start, one from an eighth of the span on."""
        begin, end = self.span
        return -jnp.expm1(-8 * (place[0] - begin) / (end - begin))

    def with_closure(self, closure: ClosureSpec | Mapping[str, ClosureSpec]) -> "ODE":
        """The same problem with another law, e.g. the true one for an oracle run."""
        return ODE(
            self.physics,
            state=self.state_names,
            parameters=self.parameters.kinds,
            initial=self.initial,
            span=self.span,
            closure=closure,
            observed=self.observed,
            dt=self.dt,
            integrator=self.integrator,
            sigma=self.sigma,
            name=self.name,
        )

    def start(self, theta: Float[Array, " parameter"]) -> State:
        values = self.initial(self.parameters.constrain(theta))
        return _scalars(values, len(self.state_names), "initial(p)", self.state_names)

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
            return _scalars(
                self.physics(*arguments), len(self.state_names), "physics(t, state, p, f)", self.state_names
            )

        return rhs

    def check_scheme(self) -> None:
        """Raise if the integrator would solve another equation, or cannot tell one step's time from the next.

        Needs numbers and the precision in use, so that it waits until a fit starts.
        """
        self._check_times()
        if isinstance(self.integrator, Leapfrog):
            self._check_halves(self.integrator)

    def _check_times(self) -> None:
        kind = np.finfo(jnp.result_type(float))
        (begin, end), length = self.span, self.span[1] - self.span[0]
        far = max(abs(begin), abs(end))
        # Rounding by a thousandth of a step is harmless. A long record that starts near zero may round more: nothing helps.
        apart, least = float(kind.eps) * far, 1000 if far > 2 * length else 10
        if self.dt < least * apart:
            raise ProblemError(
                f"times near {far:.4g} are {apart:.2g} apart in {kind.dtype}, too coarse for steps of {self.dt:.4g}; measure "
                f"time from the start of the record, in the data too (span=(0.0, {length:.6g})), take fewer steps, or compute "
                "in double precision (--float64, or jax.config.update('jax_enable_x64', True))"
            )

    def _check_halves(self, scheme: Leapfrog) -> None:
        random, names = np.random.default_rng(0), self.state_names
        theta = jnp.asarray(self.parameters.mean + random.normal(size=len(self.parameters)), float)
        y = tuple(jnp.asarray(random.normal(size=len(names)), float))
        t = jnp.asarray(random.uniform(*self.span), float)
        ignored = scheme.ignored(y, jax.jit(lambda *at: self.rate(theta, self._stand_ins())(*at))(t, y))
        if ignored:
            half = len(names) // 2
            wrong = ", ".join(f"{names[i]}' = {names[half + i]}" for i in ignored)
            raise ProblemError(
                f"Leapfrog takes {', '.join(names[:half])} for positions and {', '.join(names[half:])} for their velocities, "
                f"in this order, but the physics does not return {wrong}; order the states positions first, then "
                "velocities (in state, initial and physics alike), or choose integrator=RK4()"
            )

    def _stand_ins(self) -> dict[str, KnownClosure]:
        """Laws that return their first input."""
        return {name: KnownClosure(Known(_first, spec.inputs)) for name, spec in self.closures.items()}

    def _check(self) -> None:
        """Trace start and physics once, with stand-in laws, so that bad shapes fail here and not inside a solver."""
        record: dict[str, list[Array]] = {name: [] for name in self.closures}

        def probe(t: Array, theta: Array) -> tuple[State, State]:
            return self.start(theta), self.rate(theta, self._stand_ins(), record)(t, self.start(theta))

        # Shapes only: making a problem must not start JAX, the number of devices may still be chosen after it.
        number = jax.ShapeDtypeStruct((), jnp.result_type(float))
        try:
            jax.eval_shape(probe, number, jax.ShapeDtypeStruct((len(self.parameters),), number.dtype))
        except ProblemError:
            raise
        except Exception as error:
            raise ProblemError(f"the physics or the initial state failed: {type(error).__name__}: {error}") from error
        idle = [name for name, calls in record.items() if not calls]
        if idle:
            call = "f(...)" if self.single else f"f.{idle[0]}(...)"
            takes = "" if self._takes_law else " (it takes three arguments; the law is the fourth)"
            raise ProblemError(
                f"the physics never calls the closure {', '.join(map(repr, idle))}{takes}; write physics(t, state, p, f) with "
                f"{call} in it, or leave the closure out"
            )


def unit_scaling(inputs: int) -> Scaling:
    return Scaling(jnp.zeros(inputs), jnp.ones(inputs), jnp.ones(()))


def _first(*x: Any) -> Any:
    return x[0]


def _scalars(values: Any, count: int, what: str, names: tuple[str, ...]) -> State:
    """One scalar a state, or a message that says what came instead."""
    wanted = f"{count} number{'s' * (count > 1)} ({', '.join(names)})"
    parts = (
        list(values)
        if isinstance(values, tuple | list)
        else [values]
        if jnp.ndim(values) == 0
        else list(jnp.asarray(values))
    )
    if len(parts) != count:
        raise ProblemError(f"{what} must return {wanted}, it returned {len(parts)}")
    for name, part in zip(names, parts):
        if jnp.shape(part) != ():
            raise ProblemError(f"{what} must return {wanted}; its {name!r} has shape {jnp.shape(part)}")
    return tuple(jnp.asarray(part, float) for part in parts)
