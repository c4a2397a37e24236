"""Evolution equations: fields on an interval that change in time, with a hole in their equation."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._closure import Closures, ClosureSpec, bind
from ._integrators import RK4, Adaptive, Integrator, Rhs, State
from ._observe import Observed, Sensors
from ._parameters import Parameters, Stated
from ._schemes import Boundary, Dirichlet, Neumann, differences, ends_of, scheme_of
from ._shared import (
    ProblemError,
    Record,
    Sigma,
    as_covariates,
    as_interval,
    as_names,
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
from ._stability import believed, check_circle, faint_laws, stable_step


class Evolution:
    """u_t = physics(u, u_x, u_xx, x, t, p, f) on an interval,  u(x, t0) = initial(x, p).

    - `physics(u, ux, uxx, x, t, p, f)`: plain JAX at one point. `p` holds physical parameter values by name, `f` is the
      unknown law (or, with several closures, `f.name`). With several fields, `u`, `ux` and `uxx` unpack in order and have
      fields by name, and one rate a field is returned; `initial(x, p)` likewise.
    - `span`: first and last time; `domain`: low and high end of the interval.
    - `parameters` and `closure`: as of an `ODE`.
    - `boundary`: "periodic", "dirichlet" (ends keep their initial values), "neumann" (no slope), or `Dirichlet(value)` and
      `Neumann(slope)`, one for both ends or a pair (low, high).
    - `cells` of equal size; nodes are their left ends on a periodic domain, else both ends of the domain count too.
    - `snapshots` after the initial state are kept. Steps of `dt` lie between them; left out, half the largest that is stable
      over two standard deviations of what is believed of the parameters.
    - `scheme`: "spectral" (periodic domains; `dealias=False` saves time, but steep solutions then blow up), "central"
      (`order` 2 or 4) or "upwind" (`order` 1, 2 or 3), where u_x is taken from where waves come from: `speed(u, p, f)` is the
      wave speed, one number (or one a field).
    - `field`: the name(s) of u; `observed`: the field(s) the data see, all unless said, or functions of them as of an `ODE`.
    - `integrator`: `RK4()` unless said, or `Adaptive(...)`.
    - `sigma`, `noise`, `covariates` and `name`: as of an `ODE`.
    """

    offers: ClassVar[tuple[str, ...]] = ("solver", "residual")
    axes: ClassVar[tuple[str, ...]] = ("time", "x")
    triangles: ClassVar[None] = None

    def __init__(
        self,
        physics: Callable[..., Any],
        *,
        field: Sequence[str] | str = "u",
        parameters: Stated,
        initial: Callable[..., Any],
        span: tuple[float, float],
        domain: tuple[float, float],
        boundary: Boundary = "periodic",
        cells: int = 50,
        snapshots: int = 40,
        dt: float | None = None,
        scheme: str | None = None,
        order: int | None = None,
        dealias: bool | None = None,
        speed: Callable[..., Any] | None = None,
        closure: ClosureSpec | Mapping[str, ClosureSpec] | None = None,
        observed: Observed = None,
        integrator: Integrator | None = None,
        sigma: Sigma = None,
        noise: str = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        self._given = {key: value for key, value in locals().items() if key not in ("self", "closure", "physics")}
        self.physics, self.initial, self.speed, self.name = physics, initial, speed, name
        self.noise, self.sigma = as_noise(noise, sigma)
        self.parameters = Parameters(parameters)
        self.covariates = as_covariates(covariates, self.parameters)
        self.state_names = as_names(field, "field")
        self.sensors = Sensors(observed, self.state_names, self.parameters, len(self.axes))
        self.span, self.domain = as_interval(span, "span"), as_interval(domain, "domain")
        self.cells, self.snapshots = cells, snapshots
        if cells < 8 or snapshots < 3:
            raise ProblemError(f"at least 8 cells and 3 snapshots are needed, got {cells} and {snapshots}")
        self.ends = ends_of(boundary)
        self.scheme, self.order = scheme_of(scheme, order, self.ends[0] is None, speed)
        if dealias is not None and self.scheme != "spectral":
            raise ProblemError(f"dealias is for scheme='spectral'; scheme={self.scheme!r} has no waves to confuse")
        length = self.domain[1] - self.domain[0]
        self.differences = differences(self.scheme, self.order, cells, length, self.ends, dealias is not False)
        self._stride = None if dt is None else self._divided(dt)
        self.integrator = RK4() if integrator is None else integrator
        if not isinstance(self.integrator, RK4 | Adaptive):
            raise ProblemError(f"an Evolution is integrated by RK4() or Adaptive(...), not {self.integrator!r}")
        self.single, self.closures = not isinstance(closure, Mapping), named_closures(closure)
        self._record = bundle("u", self.state_names)
        self._takes_law = takes(physics, 7)
        self._check()

    # The grid

    @property
    def observed(self) -> tuple[str, ...]:
        return self.sensors.names

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return self.span, self.domain

    @property
    def periodic(self) -> tuple[bool, bool]:
        return False, self.ends[0] is None

    @property
    def times(self) -> np.ndarray:
        """The initial time and every snapshot's."""
        return np.linspace(*self.span, self.snapshots + 1)

    @property
    def nodes(self) -> np.ndarray:
        """The places of the grid."""
        count = self.cells if self.periodic[1] else self.cells + 1
        return np.linspace(*self.domain, self.cells + 1)[:count]

    @property
    def sites(self) -> np.ndarray:
        """The places at which the equation is evaluated: the nodes, or with dealiasing twice as many."""
        count = self.differences.matrices.shape[1]
        return self.nodes if count == len(self.nodes) else np.linspace(*self.domain, count + 1)[:-1]

    @property
    def shape(self) -> tuple[int, int]:
        return self.snapshots + 1, len(self.nodes)

    @property
    def points(self) -> np.ndarray:
        """Every (time, x) of a solution, row by row."""
        return np.stack(np.meshgrid(self.times, self.nodes, indexing="ij"), axis=-1).reshape(-1, 2)

    @property
    def known(self) -> np.ndarray:
        """The initial state is, and ends that have a value."""
        mask = np.zeros(self.shape, bool)
        mask[0] = True
        for end, column in zip(self.ends, (0, -1)):
            mask[:, column] |= isinstance(end, Dirichlet)
        return mask.ravel()

    @property
    def sloped(self) -> bool:
        return any(isinstance(end, Neumann) for end in self.ends)

    @functools.cached_property
    def stride(self) -> int:
        """Steps between snapshots; where they are not given, found when first asked for, because it takes numbers."""
        if self._stride is not None or isinstance(self.integrator, Adaptive):
            return self._stride or 1
        with jax.ensure_compile_time_eval():
            candidates = [faint_laws(self), stand_ins(self.closures)] if self.closures else [{}]
            limit = min(self.stable_step(laws, believed(self)) for laws in candidates)
        return max(1, math.ceil((self.span[1] - self.span[0]) / self.snapshots / (0.5 * limit) - 1e-9))

    @property
    def steps(self) -> int:
        return self.snapshots * self.stride

    @property
    def dt(self) -> float:
        return (self.span[1] - self.span[0]) / self.steps

    def with_closure(self, closure: ClosureSpec | Mapping[str, ClosureSpec]) -> "Evolution":
        """The same problem with another law, e.g. the true one for an oracle run."""
        return Evolution(self.physics, closure=closure, **self._given)

    # The equation

    def start(self, theta: Float[Array, " parameter"]) -> State:
        """The initial fields on the grid; a given value at an end comes before what the initial state says there."""
        p, begin = self.parameters.constrain(theta), jnp.asarray(self.span[0], float)
        fields = jax.vmap(lambda x: self._begin(x, p))(jnp.asarray(self.nodes, float))
        values = [self._held(side, begin, p) for side in (0, 1)]
        return self._at_ends(fields, values)

    def rate(self, theta: Float[Array, " parameter"], closures: Closures) -> Rhs:
        """The right-hand side (t, fields) -> d(fields)/dt of one system on the grid."""
        p, at_sites = self.parameters.constrain(theta), self.at_sites(theta, closures)

        def rhs(t: Any, y: State) -> State:
            rates = tuple(map(self.differences.gather, at_sites(t, y, self.local(theta, closures))))
            # The ends move as their values do: a scheme that set the values would lose its order in time.
            moves = [_time_slope(functools.partial(self._held, side, p=p), t) for side in (0, 1)]
            return self._at_ends(rates, moves)

        return rhs

    def local(
        self, theta: Float[Array, " parameter"], closures: Closures, record: Record | None = None
    ) -> Callable[..., State]:
        """The physics at one point: (u, ux, uxx, x, t) -> one rate a field, all as tuples."""
        p, f = self.parameters.constrain(theta), bind(closures, self.single, record)

        def local(u: State, ux: State, uxx: State, x: Any, t: Any) -> State:
            arguments = (self._fields(u), self._fields(ux), self._fields(uxx), x, t, p)
            rates = self.physics(*arguments, *((f,) if self._takes_law else ()))
            return scalars(rates, "physics(u, ux, uxx, x, t, p, f)", self.state_names)

        return local

    def at_sites(self, theta: Float[Array, " parameter"], closures: Closures) -> Callable[..., Any]:
        """(t, fields, function) -> function(u, ux, uxx, x, t) wherever the equation is evaluated."""
        p, f = self.parameters.constrain(theta), bind(closures, self.single)
        given = any(isinstance(end, Neumann) and end != Neumann() for end in self.ends)

        def speeds(u: State) -> State:
            return self._speeds(self.speed(self._fields(u), p, f))  # type: ignore[misc]

        def at_sites(t: Any, y: State, function: Callable[..., Any]) -> Any:
            slopes = list(zip(*(self._sloped(side, t, p) for side in (0, 1)))) if given else [None] * len(y)
            parts = [self.differences(u, slope) for u, slope in zip(y, slopes)]
            first = tuple(part[1] for part in parts)
            if self.speed is not None:
                first = tuple(jnp.where(c > 0, part[1], part[2]) for c, part in zip(jax.vmap(speeds)(y), parts))
            fields = (tuple(part[0] for part in parts), first, tuple(part[-1] for part in parts))
            return jax.vmap(function, in_axes=(0, 0, 0, 0, None))(*fields, jnp.asarray(self.sites, float), t)

        return at_sites

    def pace(self, spread: float) -> float:
        """A rate that makes the state change by so much within the span."""
        return spread / (self.span[1] - self.span[0])

    def law_inputs(self) -> dict[str, tuple[str, ...]]:
        """What each law is a function of, by name."""
        theta, laws, count = jnp.asarray(self.parameters.middle, float), stand_ins(self.closures), len(self.state_names)
        names = [name + end for end in ("", "_x", "_xx") for name in self.state_names]

        def call(record: Record, x: Array) -> Any:
            fields = (tuple(x[i * count : (i + 1) * count]) for i in range(3))
            return self.local(theta, laws, record)(*fields, x[-2], x[-1])

        return named_inputs(self.closures, [*names, "x", "time"], call)

    # What is known before anything is solved

    def base(self, theta: Float[Array, " parameter"], place: Float[Array, " 2"]) -> Float[Array, " field"]:
        """The initial state at x, moved so that it has the values which are given at the ends.

        A value that is there from the start but not in the initial state spreads from its end as heat does.
        """
        p, (t, x) = self.parameters.constrain(theta), place
        known, first = jnp.stack(self._begin(x, p)), jnp.asarray(self.span[0], float)
        share = (x - self.domain[0]) / (self.domain[1] - self.domain[0])
        depth = jnp.sqrt((t - self.span[0]) / (self.span[1] - self.span[0]) + 1e-12)
        for side, near in ((0, 1 - share), (1, share)):
            held, begun = self._held(side, t, p), self._held(side, first, p)
            if held is not None and begun is not None:
                sudden = jnp.stack(begun) - jnp.stack(self._begin(jnp.asarray(self.domain[side], float), p))
                known = known + near * (jnp.stack(held) - jnp.stack(begun) + sudden * jnp.exp((near - 1) / depth))
        return known

    def free(self, place: Float[Array, " 2"]) -> Float[Array, ""]:
        """Zero at the start and at ends with given values, about one elsewhere: what is added there changes nothing known."""
        (t, x), (begin, end), (low, high) = place, self.span, self.domain
        ramp, share = -jnp.expm1(-8 * (t - begin) / (end - begin)), (x - low) / (high - low)
        at_low, at_high = (isinstance(end, Dirichlet) for end in self.ends)
        if at_low and at_high:
            return ramp * 4 * share * (1 - share)
        return ramp * (share * (2 - share) if at_low else (1 - share) * (1 + share) if at_high else 1.0)

    # Whether the step is small enough

    def stable_step(
        self, closures: Closures | None = None, theta: Float[Array, "*draw parameter"] | None = None
    ) -> float:
        """The largest step of RK4 that is stable about the initial state, for these laws and all of these parameters.

        Left out, laws are as faint as a fit starts with and parameters are the prior guesses.
        """
        laws = faint_laws(self) if closures is None else closures
        return stable_step(self, laws, jnp.asarray(self.parameters.middle if theta is None else theta, float))

    def check_scheme(
        self, closures: Closures | None = None, theta: Float[Array, "*draw parameter"] | None = None
    ) -> None:
        """Raise if steps are too large to be stable, or too small for the precision in use.

        Without laws and parameters it is judged at the prior guess with hardly any law; ask again once they are known.
        """
        check_times(self.span, self.dt)
        check_circle(self)
        limit = math.inf if isinstance(self.integrator, Adaptive) else self.stable_step(closures, theta)
        if self.dt > limit:
            interval = (self.span[1] - self.span[0]) / self.snapshots
            raise ProblemError(
                f"dt={self.dt:.4g} is unstable: on this grid RK4 needs dt <= {limit:.3g}"
                f"{' at the prior guess' if theta is None else ''}; try dt={interval / math.ceil(1.5 * interval / limit):.6g}, "
                f"fewer cells than {self.cells} (half as many allow steps two to four times as large), or an implicit "
                "integrator: Adaptive('kvaerno5')"
            )

    # Parts

    def _fields(self, parts: State) -> Any:
        return parts[0] if len(self.state_names) == 1 else self._record(*parts)

    def _begin(self, x: Any, p: Any) -> State:
        return scalars(self.initial(x, p), "initial(x, p)", self.state_names)

    def _held(self, side: int, t: Any, p: Any) -> State | None:
        """The values an end is held at; None where it is not."""
        end = self.ends[side]
        if not isinstance(end, Dirichlet):
            return None
        if end.value is None:
            return self._begin(jnp.asarray(self.domain[side], float), p)
        return self._each(end.value, t, p, "a Dirichlet value")

    def _sloped(self, side: int, t: Any, p: Any) -> State:
        """The slopes at an end; zero where they are not given, which no row of the scheme then asks for."""
        end = self.ends[side]
        return self._each(end.slope if isinstance(end, Neumann) else 0.0, t, p, "a Neumann slope")

    def _each(self, given: Any, t: Any, p: Any, what: str) -> State:
        """One number a field, from what is given for all or for each, as numbers or functions of (t, p)."""
        count = len(self.state_names)
        parts = given if isinstance(given, tuple) else (given(t, p) if callable(given) else given,)
        parts = tuple(part(t, p) if callable(part) else part for part in parts)
        parts = parts[0] if len(parts) == 1 and isinstance(parts[0], tuple) else parts
        return scalars(parts * count if len(parts) == 1 else parts, what, self.state_names)

    def _speeds(self, speeds: Any) -> State:
        count = len(self.state_names)
        same = count > 1 and not isinstance(speeds, tuple | list) and jnp.ndim(speeds) == 0
        return scalars((speeds,) * count if same else speeds, "speed(u, p, f)", self.state_names)

    def _at_ends(self, fields: State, values: Sequence[State | None]) -> State:
        """The fields with other values at their ends, where there are any."""
        for node, value in zip((0, len(self.nodes) - 1), values):
            if value is not None:
                here = jnp.arange(len(self.nodes)) == node
                fields = tuple(jnp.where(here, v, u) for u, v in zip(fields, value))
        return fields

    def _divided(self, dt: float) -> int:
        interval = (self.span[1] - self.span[0]) / self.snapshots
        stride = max(1, round(interval / dt)) if dt > 0 else 1
        if not (dt > 0 and abs(stride * dt - interval) <= 1e-6 * interval):
            raise ProblemError(
                f"dt={dt} must be positive and divide the time between snapshots, {interval:.6g}; try "
                f"{interval / stride:.6g}, or leave it out"
            )
        return stride

    def _check(self) -> None:
        record: Record = {name: [] for name in self.closures}

        def probe(theta: Array, t: Array) -> Any:
            laws = stand_ins(self.closures)
            u = self._begin(t, self.parameters.constrain(theta))
            called = self.local(theta, laws, record)(u, u, u, t, t)
            return called, self.rate(theta, laws)(t, self.start(theta))

        trace(probe, self.parameters.width, 1, "physics, initial, speed or boundary")
        check_called(record, self.single, self._takes_law, "physics(u, ux, uxx, x, t, p, f)")


def _time_slope(values: Callable[[Any], State | None], t: Any) -> State | None:
    """How fast the values at an end change."""
    time = jnp.asarray(t, float)
    return None if values(time) is None else jax.jvp(values, (time,), (jnp.ones_like(time),))[1]
