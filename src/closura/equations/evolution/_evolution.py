"""Evolution equations: fields on an interval or a rectangle that change in time, with a hole in their equation."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import LawSpec, SolverLaws, bind
from ...parameters import Parameters, Stated, System, Theta
from .._base import Draws, Equation, ForwardModel, Systems
from .._index import Numbers, ObservationIndex, Observed, Predictions, interpolation_error
from .._initial_value import Axes, InitialValueProblem, InitialValueSolver, Local, T
from .._integrators import Integrator, Rhs, State, Time
from .._shared import NoiseModel, ProblemError, Record, Sigma, bundle, check_times, constant_laws, identity_laws
from ._conditions import InitialBoundaryConditions
from ._grid import LEAST, SPACE, Grid, Line, boundaries_of, cells_of, domains_of, speeds_of
from ._schemes import Boundary, Dirichlet, Neumann, scheme_of


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
    signature = "physics(u, ux, uxx, x, t, p, f)"

    def __init__(
        self,
        physics: Callable[..., Numbers],
        *,
        field: Sequence[str] | str = "u",
        parameters: Stated,
        initial: Callable[..., Numbers],
        span: tuple[float, float],
        domain: Sequence[float | Sequence[float]],
        boundary: Boundary | Mapping[str, Boundary] = "periodic",
        cells: int | Sequence[int] | None = None,
        snapshots: int = 40,
        dt: float | None = None,
        scheme: str | None = None,
        order: int | None = None,
        dealias: bool | None = None,
        speed: Callable[..., Numbers | Sequence[Numbers]] | None = None,
        closure: LawSpec | Mapping[str, LawSpec] | None = None,
        observed: Observed = None,
        integrator: Integrator | None = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Mapping[str, Sequence[str] | str] | None = None,
        name: str = "problem",
    ):
        stated, domains = locals(), domains_of(domain)
        super().__init__("field", ("time", *SPACE[: len(domains)]), stated)
        self.speed, self.snapshots = speed, snapshots
        counts, ends = cells_of(cells, len(domains)), boundaries_of(boundary, len(domains))
        if min(counts) < LEAST or snapshots < 3:
            raise ProblemError(f"at least {LEAST} cells and 3 snapshots are needed, got {min(counts)} and {snapshots}")
        self.scheme, self.order = scheme_of(scheme, order, all(low is None for low, _ in ends), speed)
        if dealias is not None and self.scheme != "spectral":
            raise ProblemError(f"dealias is for scheme='spectral'; scheme={self.scheme!r} has no waves to confuse")
        each = zip(SPACE, domains, counts, ends)
        lines = tuple(Line(*one, self.scheme, self.order, dealias is not False) for one in each)
        self.grid = Grid(lines)
        # Of a rectangle, along x and along y.
        self.domain, self.cells, self.ends = _one_or_all(domains), _one_or_all(counts), _one_or_all(ends)
        self.nodes = _one_or_all(tuple(line.nodes for line in lines))
        if dt is not None:
            interval = self.length / snapshots
            what = f"the time between snapshots, {interval:.6g}"
            self.stride = self._divided(dt, interval, 1, what, ", or leave it out")
        # In the plane and in time a solver takes hours where a surrogate takes minutes.
        self.default_forward = "basis" if self.grid.plane else "solver"
        self.sloped = any(isinstance(end, Neumann) for pair in ends for end in pair)
        if self.integrator.second_order:
            raise ProblemError(f"an Evolution is integrated by RK4() or Adaptive(...), not {self.integrator!r}")
        self._record = bundle("u", self.state_names)
        self._check("physics, initial, speed or boundary")

    # The grid

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.span, *(line.domain for line in self.grid.lines)

    @property
    def periodic(self) -> tuple[bool, ...]:
        return False, *(line.periodic for line in self.grid.lines)

    @property
    def lines(self) -> tuple[np.ndarray, ...]:
        return self.times, *(line.nodes for line in self.grid.lines)

    @functools.cached_property
    def stride(self) -> int:
        """Steps between snapshots; where they are not given, found when first asked for, because it takes numbers."""
        from ._stability import prior_corners

        if self.integrator.adaptive:
            return 1
        with jax.ensure_compile_time_eval():
            candidates = [None, identity_laws(self.closures)] if self.closures else [None]
            limit = min(self.stable_step(laws, *prior_corners(self.parameters)) for laws in candidates)
        return max(1, math.ceil(self.length / self.snapshots / (0.5 * limit) - 1e-9))

    def with_parameters(self, parameters: Parameters) -> Equation:
        bound = super().with_parameters(parameters)
        if self._stated["dt"] is None:
            bound.__dict__.pop("stride", None)  # how long a step may be depends on what is known
        return bound

    # The equation

    def conditions(self, theta: Theta, system: System) -> InitialBoundaryConditions:
        p = self.parameters.constrain(theta, system)
        return InitialBoundaryConditions(self.grid, self.span, self.initial, self.state_names, p)

    def start(self, theta: Theta, system: System) -> State:
        """The initial fields on the grid; a given value at an end comes before what the initial state says there."""
        return self.conditions(theta, system).start()

    def rate(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Rhs:
        at_sites = super().rate(theta, laws, system, record)
        moving = self.conditions(theta, system).moving
        # The ends move as their values do: a scheme that set the values would lose its order in time.
        return lambda t, y: moving(tuple(map(self.grid.gather, at_sites(t, y))), t)

    def local(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Local[State]:
        physics, grid = self._called(theta, laws, system, record), self.grid

        def local(u: State, ux: Axes, uxx: Axes, x: State, t: Time) -> State:
            fields = (self._fields(part) for part in (u, grid.gradients(ux), grid.gradients(uxx)))
            return physics(*fields, grid.place(x), t)

        return local

    def at_sites(self, theta: Theta, laws: SolverLaws, system: System) -> Callable[[Time, State, Local[T]], T]:
        conditions, speeds = self.conditions(theta, system), self.speeds(theta, laws, system)

        def at_sites(t: Time, y: State, function: Local[T]) -> T:
            u, along = zip(*(self.grid.derivatives(*each) for each in zip(y, conditions.at_ends(t))))
            axes = [
                tuple(zip(*fields)) for fields in zip(*along)
            ]  # of each, derivatives of all fields: first ones, second
            first, second = tuple(axis[0] for axis in axes), tuple(axis[-1] for axis in axes)
            if self.speed is not None:
                other = tuple(axis[1] for axis in axes)
                first = jax.tree.map(lambda c, right, left: jnp.where(c > 0, right, left), speeds(y), first, other)
            at = self.grid.each(lambda u, ux, uxx, x: function(u, ux, uxx, x, t))
            return at(u, first, second, self.grid.sites)

        return at_sites

    def speeds(self, theta: Theta, laws: SolverLaws, system: System) -> Callable[[State], Axes]:
        """fields -> wave speeds (axis, field) at every node."""
        p, f = self.parameters.constrain(theta, system), bind(laws, self.single)

        def speeds(u: State) -> Axes:
            return speeds_of(self.speed(self._fields(u), p, f), self.state_names, self.grid.plane)  # type: ignore[misc]

        return self.grid.each(speeds)

    def _fields(self, parts: tuple[Array | State, ...]) -> Array | tuple[Array | State, ...]:
        """As the user's functions get them."""
        return parts[0] if len(parts) == 1 else self._record(*parts)

    # What is known before anything is solved

    @property
    def known(self) -> np.ndarray:
        """The initial state is, and ends that have a value."""
        mask = np.zeros(self.shape, bool)
        mask[0] = True
        for axis, line in enumerate(self.grid.lines, start=1):
            for end, place in zip(line.ends, (0, -1)):
                np.moveaxis(mask, axis, 0)[place] |= isinstance(end, Dirichlet)
        return mask.ravel()

    def lift(self, theta: Theta, place: Float[Array, " axis"], system: System) -> Float[Array, " field"]:
        """The initial state, moved so that it has the values which are given at the ends."""
        return self.conditions(theta, system).lift(place[0], tuple(place[1:]))

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """Zero at the start and at ends with given values, about one elsewhere: what is added there changes nothing known."""
        factor = super().cutoff(place)
        for at, line in zip(place[1:], self.grid.lines):
            share = line.share(at)
            at_low, at_high = (isinstance(end, Dirichlet) for end in line.ends)
            if at_low and at_high:
                factor = factor * 4 * share * (1 - share)
            elif at_low:
                factor = factor * (share * (2 - share))
            elif at_high:
                factor = factor * ((1 - share) * (1 + share))
        return factor

    # The solver and its checks

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        where = self.observation_index(data)
        last = int(np.max(np.asarray(where.node)[data.mask])) // self.grid.size
        return EvolutionSolver(self, count=max(1, last)), where

    def interpolation_error(self, data: Observations, fit: np.ndarray, unit: np.ndarray) -> dict[str, float]:
        # On a circle of an odd number of nodes every other one is none.
        sizes = {name: 0 if wraps and n % 2 else n for name, n, wraps in zip(self.axes, self.shape, self.periodic)}
        return interpolation_error(sizes, self.near, data, fit, unit)

    def stable_step(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> float:
        """The largest step of RK4 that is stable about the initial state, for these laws and all of these parameters.

        Left out, laws are as faint as a fit starts with, parameters are the prior guesses, and of known inputs those of the
        first system count.
        """
        from ._stability import frozen_rates, largest_stable_step, line_rates

        laws = constant_laws(self.closures, {}) if laws is None else laws
        at = jnp.asarray(self.parameters.mean if theta is None else theta, float)
        which = jnp.broadcast_to(jnp.asarray(0 if system is None else system), at.shape[:-1])
        rates = frozen_rates if self.grid.plane else line_rates
        with jax.ensure_compile_time_eval():
            found = rates(self, laws, at.reshape(-1, at.shape[-1]), which.reshape(-1))
            return min(map(largest_stable_step, found))

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:
        """Raise if steps are too large to be stable, or too small for the precision in use."""
        from ._stability import check_circle

        check_times(self.span, self.dt)
        check_circle(self)
        limit = math.inf if self.integrator.adaptive else self.stable_step(laws, theta, system)
        if self.dt > limit:
            interval = self.length / self.snapshots
            # Implicit steps solve for all nodes at once: of a rectangle they are too many.
            implicit = "" if self.grid.plane else ", or an implicit integrator: Adaptive('kvaerno5')"
            raise ProblemError(
                f"dt={self.dt:.4g} is unstable: on this grid RK4 needs dt <= {limit:.3g}"
                f"{' at the prior guess' if theta is None else ''}; try dt={interval / math.ceil(1.5 * interval / limit):.6g}, "
                f"fewer cells than {self.cells} (half as many allow steps two to four times as large){implicit}"
            )


@dataclasses.dataclass(frozen=True)
class EvolutionSolver(InitialValueSolver):
    """Method of lines: derivatives in space on the problem's grid, the problem's integrator in time. Nothing is trained."""

    problem: Evolution
    recompute: ClassVar[bool] = True

    def working_set_size(self, parameters: int) -> int:
        """Fields, two derivatives, stages, for each tangent."""
        return 6 * len(self.problem.state_names) * self.problem.grid.size * (1 + parameters)

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        last = jnp.max(where.node) // self.problem.grid.size
        fields = self._snapshots(theta, context, system, self.count, last)
        near = jnp.stack([field.reshape(-1)[where.node] for field in fields], axis=-1)
        return self.problem.operator(theta, where, where.states(near), system)


def _one_or_all(parts: tuple[T, ...]) -> T | tuple[T, ...]:
    return parts[0] if len(parts) == 1 else parts
