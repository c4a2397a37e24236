"""Evolution equations: fields on an interval or a rectangle that change in time, with a hole in their equation."""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import LawSpec, SolverLaws, bind
from ...parameters import Parameters, Stated, System, Theta
from .._base import Draws, Equation, ForwardModel, Systems
from .._index import Near, ObservationIndex, interpolation_error
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
from ._conditions import InitialBoundaryConditions
from ._grid import LEAST, SPACE, Derivatives, boundaries_of, cells_of, domains_of, grid_of, speeds_of
from ._schemes import Boundary, Neumann, scheme_of
from ._stability import check_circle, initial_laws, prior_corners, stable_step


class Evolution(InitialValueProblem):
    """u_t = physics(u, u_x, u_xx, x, t, p, f) on an interval or a rectangle,  u(x, t0) = initial(x, p).

    - `physics(u, ux, uxx, x, t, p, f)`: plain JAX at one point. `p` holds physical parameter values by name, `f` is the
      unknown law (or, with several closures, `f.name`). With several fields, `u`, `ux` and `uxx` unpack in order and have
      fields by name, and one rate a field is returned; `initial(x, p)` likewise.
    - `span`: first and last time; `domain`: (low, high) of the interval, or ((x low, x high), (y low, y high)).
    - On a rectangle `x` is a place with x.x and x.y, `ux` the gradient with ux.x and ux.y, and `uxx` the second derivatives
      uxx.x and uxx.y along each axis (with several fields, ux.name.x). There is no mixed derivative u_xy.
    - `parameters` and `closure`: as of an `ODE`.
    - `boundary`: "periodic", "dirichlet" (ends keep their initial values), "neumann" (no slope), or `Dirichlet(value)` and
      `Neumann(slope)`, one for both ends or a pair (low, high). On a rectangle, one of these for all sides or {"x": ...,
      "y": ...} with pairs in it; a value or slope holds along its whole side, the slope along its axis.
    - `cells` of equal size, 50 by default; on a rectangle so many along each axis or a pair, 24 by default.
      Nodes are their left ends on a periodic domain, else both ends of the domain count too.
    - `snapshots` after the initial state are kept. Steps of `dt` lie between them; left out, half the largest that is stable
      over two standard deviations of what is believed of the parameters.
    - `scheme`: "spectral" (periodic domains; `dealias=False` saves time, but steep solutions then blow up), "central"
      (`order` 2 or 4) or "upwind" (`order` 1, 2 or 3), where u_x is taken from where waves come from: `speed(u, p, f)` is the
      wave speed, one number (or one a field); on a rectangle a pair (along x, along y).
    - `field`: the name(s) of u; `observed`: the field(s) the data see, all by default, or functions of them as of an `ODE`.
    - `integrator`: `RK4()` by default, or `Adaptive(...)`.
    - `sigma`, `noise`, `covariates` and `name`: as of an `ODE`.
    """

    profile = "evolutions"

    def __init__(
        self,
        physics: Callable[..., Any],
        *,
        field: Sequence[str] | str = "u",
        parameters: Stated,
        initial: Callable[..., Any],
        span: tuple[float, float],
        domain: Sequence[Any],
        boundary: Boundary | Mapping[str, Boundary] = "periodic",
        cells: int | Sequence[int] | None = None,
        snapshots: int = 40,
        dt: float | None = None,
        scheme: str | None = None,
        order: int | None = None,
        dealias: bool | None = None,
        speed: Callable[..., Any] | None = None,
        closure: LawSpec | Mapping[str, LawSpec] | None = None,
        observed: Observed = None,
        integrator: Integrator | None = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        stated, domains = locals(), domains_of(domain)
        super().__init__(as_names(field, "field"), ("time", *SPACE[: len(domains)]), stated)
        self.physics, self.initial, self.speed = physics, initial, speed
        self.span = as_interval(span, "span")
        counts, ends = cells_of(cells, len(domains)), boundaries_of(boundary, len(domains))
        self.snapshots = snapshots
        if min(counts) < LEAST or snapshots < 3:
            raise ProblemError(f"at least {LEAST} cells and 3 snapshots are needed, got {min(counts)} and {snapshots}")
        periodic = all(low is None for low, _ in ends)
        self.scheme, self.order = scheme_of(scheme, order, periodic, speed)
        if dealias is not None and self.scheme != "spectral":
            raise ProblemError(f"dealias is for scheme='spectral'; scheme={self.scheme!r} has no waves to confuse")
        self.grid = grid_of(domains, counts, ends, self.scheme, self.order, dealias is not False)
        self._stride = None if dt is None else self._divided(dt)
        self.use(RK4() if integrator is None else integrator)
        # In the plane and in time a solver takes hours where a surrogate takes minutes.
        self.default_forward = "basis" if self.grid.plane else "solver"
        self.sloped = any(isinstance(end, Neumann) for pair in ends for end in pair)
        if self.integrator.second_order:
            raise ProblemError(f"an Evolution is integrated by RK4() or Adaptive(...), not {self.integrator!r}")
        self._record = bundle("u", self.state_names)
        self._takes_law = takes(physics, 7)
        self._check()

    # The grid

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.span, *(line.domain for line in self.grid.lines)

    @property
    def periodic(self) -> tuple[bool, ...]:
        return False, *(line.periodic for line in self.grid.lines)

    @property
    def domain(self) -> Any:
        """(low, high); of a rectangle, along x and along y."""
        return self._of_lines(line.domain for line in self.grid.lines)

    @property
    def ends(self) -> Any:
        """What holds at the (low, high) end; of a rectangle, along x and along y."""
        return self._of_lines(line.ends for line in self.grid.lines)

    @property
    def cells(self) -> Any:
        return self._of_lines(line.cells for line in self.grid.lines)

    @property
    def nodes(self) -> Any:
        """The places of the grid; of a rectangle, along x and along y."""
        return self._of_lines(line.nodes for line in self.grid.lines)

    @property
    def times(self) -> np.ndarray:
        """The initial time and every snapshot's."""
        return np.linspace(*self.span, self.snapshots + 1)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.snapshots + 1, *self.grid.shape

    @property
    def points(self) -> np.ndarray:
        """Every (time, x) or (time, x, y) of a solution, the last coordinate fastest."""
        lines = self.times, *(line.nodes for line in self.grid.lines)
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(lines))

    def nodes_near(self, data: Observations) -> Near:
        from ._reading import nodes_near

        return nodes_near(self, data.place)

    @functools.cached_property
    def stride(self) -> int:
        """Steps between snapshots; where they are not given, found when first asked for, because it takes numbers."""
        if self._stride is not None or self.integrator.adaptive:
            return self._stride or 1
        with jax.ensure_compile_time_eval():
            candidates = [initial_laws(self), identity_laws(self.closures)] if self.closures else [{}]
            limit = min(self.stable_step(laws, *prior_corners(self)) for laws in candidates)
        return max(1, math.ceil((self.span[1] - self.span[0]) / self.snapshots / (0.5 * limit) - 1e-9))

    @property
    def steps(self) -> int:
        return self.snapshots * self.stride

    @property
    def dt(self) -> float:
        return (self.span[1] - self.span[0]) / self.steps

    def with_parameters(self, parameters: Parameters) -> Equation:
        bound = super().with_parameters(parameters)
        bound.__dict__.pop("stride", None)  # how long a step may be depends on what is known
        return bound

    # The equation

    def start(self, theta: Theta, system: System) -> State:
        """The initial fields on the grid; a given value at an end comes before what the initial state says there."""
        return self.conditions.start(self.parameters.constrain(theta, system))

    def rate(self, theta: Theta, laws: SolverLaws, system: System) -> Rhs:
        """The right-hand side (t, fields) -> d(fields)/dt of one system on the grid."""
        p, at_sites = self.parameters.constrain(theta, system), self.at_sites(theta, laws, system)

        def rhs(t: Any, y: State) -> State:
            rates = tuple(map(self.grid.gather, at_sites(t, y, self.local(theta, laws, system))))
            # The ends move as their values do: a scheme that set the values would lose its order in time.
            return self.conditions.moving(rates, t, p)

        return rhs

    def local(
        self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None
    ) -> Callable[..., State]:
        """The physics at one point: (u, ux, uxx, x, t) -> one rate a field, all as tuples."""
        p, f = self.parameters.constrain(theta, system), bind(laws, self.single, record)

        def local(u: State, ux: Derivatives, uxx: Derivatives, x: Any, t: Any) -> State:
            arguments = (self._fields(u), self._fields(ux), self._fields(uxx), x, t, p)
            rates = self.physics(*arguments, *((f,) if self._takes_law else ()))
            return scalars(rates, "physics(u, ux, uxx, x, t, p, f)", self.state_names)

        return local

    def at_sites(self, theta: Theta, laws: SolverLaws, system: System) -> Callable[..., Any]:
        """(t, fields, function) -> function(u, ux, uxx, x, t) wherever the equation is evaluated."""
        p, speeds = self.parameters.constrain(theta, system), self.speeds(theta, laws, system)

        def at_sites(t: Any, y: State, function: Callable[..., Any]) -> Any:
            parts = [self.grid.derivatives(u, slopes) for u, slopes in zip(y, self.conditions.slopes(t, p))]
            along = [[part[1][axis] for part in parts] for axis in range(len(self.grid.lines))]
            first = [tuple(part[0] for part in each) for each in along]
            if self.speed is not None:
                first = [
                    tuple(jnp.where(c > 0, part[0], part[1]) for c, part in zip(axis, each))
                    for axis, each in zip(speeds(y), along)
                ]
            second = [tuple(part[-1] for part in each) for each in along]
            fields = (tuple(part[0] for part in parts), self.grid.paired(first), self.grid.paired(second))
            return self.grid.each(function, 4, 1)(*fields, self.grid.sites, t)

        return at_sites

    def speeds(
        self, theta: Theta, laws: SolverLaws, system: System
    ) -> Callable[[State], tuple[tuple[Float[Array, "*node"], ...], ...]]:
        """fields -> wave speeds (axis, field) at every node."""
        p, f = self.parameters.constrain(theta, system), bind(laws, self.single)

        def speeds(u: State) -> tuple[State, ...]:
            return speeds_of(self.speed(self._fields(u), p, f), self.state_names, self.grid.plane)  # type: ignore[misc]

        return self.grid.each(speeds)

    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        theta, laws = jnp.asarray(self.parameters.mean, float), identity_laws(self.closures)
        count, space = len(self.state_names), self.axes[1:]
        ends = ["", *(f"_{axis}" for axis in space), *(f"_{axis}{axis}" for axis in space)]

        def call(record: Record, x: Array) -> Any:
            parts = [tuple(x[i * count : (i + 1) * count]) for i in range(len(ends))]
            first, second = (self.grid.paired(part) for part in (parts[1 : 1 + len(space)], parts[1 + len(space) :]))
            place = self.grid.place(tuple(x[-1 - len(space) : -1]))
            return self.local(theta, laws, 0, record)(parts[0], first, second, place, x[-1])

        names = [name + end for end in ends for name in self.state_names]
        return named_inputs(self.closures, [*names, *space, "time"], call)

    # What is known before anything is solved

    @property
    def conditions(self) -> InitialBoundaryConditions:
        return InitialBoundaryConditions(self.grid, self.span, self.initial, self.state_names)

    @property
    def known(self) -> np.ndarray:
        """The initial state is, and ends that have a value."""
        return self.conditions.known(self.snapshots)

    def lift(self, theta: Theta, place: Float[Array, " axis"], system: System) -> Float[Array, " field"]:
        """The initial state, moved so that it has the values which are given at the ends."""
        return self.conditions.lift(place, self.parameters.constrain(theta, system))

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start and at ends with given values, about one elsewhere: what is added there changes nothing known."""
        return self.conditions.cutoff(place)

    # The solver and its checks

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        from ._solver import EvolutionSolver

        where = self.observation_index(data)
        last = int(np.max(np.asarray(where.node)[data.mask])) // self.grid.size
        return EvolutionSolver(self, count=max(1, last)), where

    def interpolation_error(self, data: Observations, fit: np.ndarray, unit: np.ndarray) -> dict[str, float]:
        from ._reading import nodes_near

        # On a circle of an odd number of nodes every other one is none.
        sizes = {name: 0 if wraps and n % 2 else n for name, n, wraps in zip(self.axes, self.shape, self.periodic)}
        return interpolation_error(sizes, lambda *at: nodes_near(self, *at), data, fit, unit)

    def stable_step(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> float:
        """The largest step of RK4 that is stable about the initial state, for these laws and all of these parameters.

        Left out, laws are as faint as a fit starts with, parameters are the prior guesses, and of known inputs those of the
        first system count.
        """
        laws = initial_laws(self) if laws is None else laws
        at = jnp.asarray(self.parameters.mean if theta is None else theta, float)
        which = jnp.broadcast_to(jnp.asarray(0 if system is None else system), at.shape[:-1])
        return stable_step(self, laws, at, which)

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:
        """Raise if steps are too large to be stable, or too small for the precision in use."""
        check_times(self.span, self.dt)
        check_circle(self)
        limit = math.inf if self.integrator.adaptive else self.stable_step(laws, theta, system)
        if self.dt > limit:
            interval = (self.span[1] - self.span[0]) / self.snapshots
            # Implicit steps solve for all nodes at once: of a rectangle they are too many.
            implicit = "" if self.grid.plane else ", or an implicit integrator: Adaptive('kvaerno5')"
            raise ProblemError(
                f"dt={self.dt:.4g} is unstable: on this grid RK4 needs dt <= {limit:.3g}"
                f"{' at the prior guess' if theta is None else ''}; try dt={interval / math.ceil(1.5 * interval / limit):.6g}, "
                f"fewer cells than {self.cells} (half as many allow steps two to four times as large){implicit}"
            )

    # Time and costs

    def extended(self, until: float) -> "Evolution":
        """The same equation with a span that reaches `until`, in the same steps (rounded up to a snapshot)."""
        count = self.intervals_until(until, self.snapshots)
        if count == self.snapshots:
            return self
        longer, interval, stride = copy.copy(self), (self.span[1] - self.span[0]) / self.snapshots, self.stride
        longer.span, longer.snapshots = (self.span[0], self.span[0] + count * interval), count
        # The stride was found for the span as stated: the step stays.
        longer.stride = longer._stride = stride
        longer._stated = {**self._stated, "span": longer.span, "snapshots": count, "dt": self.dt}
        return longer

    # Parts

    def _fields(self, parts: Derivatives) -> Any:
        return parts[0] if len(self.state_names) == 1 else self._record(*parts)

    def _of_lines(self, parts: Iterable[Any]) -> Any:
        found = tuple(parts)
        return found if self.grid.plane else found[0]

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
            laws = identity_laws(self.closures)
            x = self.grid.place((t,) * len(self.grid.lines))
            u = self.conditions.begin(x, self.parameters.constrain(theta, 0))
            slopes = self.grid.paired([u] * len(self.grid.lines))
            called = self.local(theta, laws, 0, record)(u, slopes, slopes, x, t)
            return called, self.rate(theta, laws, 0)(t, self.start(theta, 0))

        trace(probe, len(self.parameters), 1, "physics, initial, speed or boundary")
        check_called(record, self.single, self._takes_law, "physics(u, ux, uxx, x, t, p, f)")
