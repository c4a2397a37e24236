"""ODE problems: one system's equation with a hole in it, written as a plain function."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data import Observations
from ...laws import LawSpec, SolverLaws
from ...parameters import Stated, System, Theta
from .._base import Draws, ForwardModel, Refinement, Systems
from .._index import ON_NODE, Numbers, ObservationIndex, Observed, Predictions
from .._initial_value import InitialValueProblem, InitialValueSolver, Local
from .._integrators import Integrator, State
from .._shared import NoiseModel, ProblemError, Record, Sigma, check_times, identity_laws, scalars


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
    - `integrator`: `RK4()` by default, `Leapfrog()` or `Adaptive(...)`.
    - `sigma`: size of the noise where the data do not state their own (one number, or a mapping by quantity). Left out, or
      given as a prior `LogNormal(...)`, it is inferred.
    - `noise`: the family of the noise, "normal" by default, "lognormal" (in proportion to what is observed), "student" (with
      outliers) or another name (docs/problem.md), or an instance of a class of your own derived from `Noise`.
    - `covariates`: parameter -> column(s) of the table, one number a system, that shift its population mean.
    - `name`: of the problem, in reports and folders.
    """

    expensive = False
    samples_laws_on = ("solver",)
    profile = "curves"
    signature = "physics(t, state, p, f)"

    def __init__(
        self,
        physics: Callable[..., Numbers],
        *,
        state: Sequence[str] | str,
        parameters: Stated,
        initial: Callable[..., Numbers],
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
        super().__init__("state", ("time",), locals())
        what = f"the span of length {self.length}"
        self.snapshots = 200 if dt is None else self._divided(dt, self.length, 200, what)
        if self.second_order and len(self.state_names) % 2:
            raise ValueError(
                f"Leapfrog needs positions and then as many velocities, got states {', '.join(self.state_names)}; "
                "use RK4() for other equations"
            )
        self._check("the physics or the initial state")

    # The equation

    def start(self, theta: Theta, system: System) -> State:
        values = self.initial(self.parameters.constrain(theta, system))
        return scalars(values, "initial(p)", self.state_names)

    def local(self, theta: Theta, laws: SolverLaws, system: System, record: Record | None = None) -> Local[State]:
        physics = self._called(theta, laws, system, record)
        return lambda u, ux, uxx, x, t: physics(t, self.operator.record(*u))

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

    # The solver and its checks

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        place = (data.time - self.span[0]) / self.dt
        nearest = np.round(place).astype(int)
        if np.all(np.abs(place - nearest) < ON_NODE):
            stride = max(1, int(np.gcd.reduce(nearest, axis=None)))
            node, weight, rate_weight = nearest[..., None] // stride, np.ones((*place.shape, 1)), None
        else:
            # An observation lies between a node and the next; one on a node does not need what comes after it.
            stride, first = 1, np.clip(np.ceil(place - ON_NODE) - 1, 0, self.steps - 1).astype(int)
            node = np.stack([first, first + 1], axis=-1)
            weight, rate_weight = _hermite(place - first, self.dt)
        last = np.maximum(1, node.max(axis=(1, 2)))
        where = ObservationIndex.of(data, node, weight)._replace(
            rate_weight=None if rate_weight is None else jnp.asarray(rate_weight, float),
            last=None if np.all(last == last[0]) else jnp.asarray(last, jnp.int32),
        )
        return ODESolver(self, stride=stride, count=int(last.max())), where

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:
        """Raise if the integrator would solve another equation, or cannot tell one step's time from the next.

        Needs numbers and the precision in use, so that it waits until a fit starts.
        """
        check_times(self.span, self.dt)
        if not self.second_order:
            return
        # The rates of positions are not read: each must be the velocity in the same place of the second half.
        random, names, half = np.random.default_rng(0), self.state_names, len(self.state_names) // 2
        at = jnp.asarray(self.parameters.mean + random.normal(size=len(self.parameters)), float)
        y = tuple(jnp.asarray(random.normal(size=len(names)), float))
        t = jnp.asarray(random.uniform(*self.span), float)
        rates = jax.jit(self.rate(at, identity_laws(self.closures), 0))(t, y)
        ignored = [i for i in range(half) if not np.isclose(rates[i], y[half + i], rtol=1e-4)]
        if ignored:
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
        halved = self._with_snapshots(2 * self.snapshots, self.span[1])
        return Refinement(halved, f"Steps of dt={self.dt:.4g} are too long", remedy)

    def signal_times(self) -> np.ndarray:
        """Where a fixed-step integrator asks, which makes sampling exact; elsewhere fine."""
        return super().signal_times() if self.integrator.adaptive else np.linspace(*self.span, 1 + 2 * self.steps)


@dataclasses.dataclass(frozen=True)
class ODESolver(InitialValueSolver):
    """The problem's own integrator; for predictions only every `stride`-th step is kept. Nothing is trained."""

    problem: ODE
    stride: int = 1

    def working_set_size(self, parameters: int) -> int:
        return 2 * len(self.problem.state_names) * (1 + parameters)

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        problem = self.problem
        start, rhs = problem.start(theta, system), problem.rate(theta, context, system)
        if problem.integrator.adaptive:
            states = jnp.stack(self._adaptive(rhs, start, where.place[:, 0]), axis=-1)
            return problem.operator(theta, where, states, system)
        count = self.count or problem.steps
        steps = self._steps(rhs, start, self.stride, count, where.last)
        # A solution that overflows before the last observation of its own system is a failed one.
        end = -1 if where.last is None else where.last - 1
        finite = jnp.all(jnp.stack([jnp.isfinite(y[end]) for y in steps]))
        rates: tuple[State, State] | None = None
        if where.rate_weight is not None:
            node = jnp.arange(1, count + 1)
            node = jnp.minimum(node, where.last) if self.backward and where.last is not None else node
            times = problem.span[0] + problem.dt * node
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


def _pick(start: State, steps: State, node: Array, state: int | Array) -> Array:
    """A state (or at each node its own) at grid nodes; node 0 is the initial state."""
    at = jnp.maximum(node - 1, 0)
    if isinstance(state, int):
        return jnp.where(node == 0, start[state], steps[state][at])
    return jnp.where(node == 0, jnp.stack(start)[state], jnp.stack(steps)[state, at])


def _hermite(u: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of values and rates at both ends of a step, at a share u of it: fourth order, like the best fixed-step schemes."""
    rise = u**2 * (3 - 2 * u)
    return np.stack([1 - rise, rise], axis=-1), dt * np.stack([u * (1 - u) ** 2, u**2 * (u - 1)], axis=-1)
