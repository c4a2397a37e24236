"""ODE problems: one system's equation with a hole in it, written as a plain function."""

import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._closure import Closures, ClosureSpec, Known, KnownClosure, Scaling, bind
from ._integrators import RK4, Integrator, Rhs, State
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
        self._takes_law = len(inspect.signature(physics).parameters) >= 4
        self._check()

    @property
    def dt(self) -> float:
        return (self.span[1] - self.span[0]) / self.steps

    @property
    def times(self) -> np.ndarray:
        return np.linspace(*self.span, self.steps + 1)

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

    def _check(self) -> None:
        """Trace start and physics once, with stand-in laws, so that bad shapes fail here and not inside a solver."""
        stand_ins = {name: KnownClosure(Known(_first, spec.inputs)) for name, spec in self.closures.items()}

        def probe(t: Array, theta: Array) -> tuple[State, State]:
            return self.start(theta), self.rate(theta, stand_ins)(t, self.start(theta))

        # Shapes only: making a problem must not start JAX, the number of devices may still be chosen after it.
        number = jax.ShapeDtypeStruct((), jnp.result_type(float))
        try:
            jax.eval_shape(probe, number, jax.ShapeDtypeStruct((len(self.parameters),), number.dtype))
        except ProblemError:
            raise
        except Exception as error:
            raise ProblemError(f"the physics or the initial state failed: {type(error).__name__}: {error}") from error


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
