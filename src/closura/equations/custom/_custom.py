"""A user's own solver as the equation: JAX with a law in it, or any Python that returns numbers."""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ...data import Observations
from ...laws import LawSpec, SolverLaws, bind
from ...parameters import Stated, System, Theta
from .._base import Draws, Equation, ForwardModel, Systems
from .._index import Near, ObservationIndex, Observed, interpolation_error, near_between, near_on_grid
from .._shared import (
    Covariates,
    NoiseModel,
    ProblemError,
    Record,
    Sigma,
    as_interval,
    as_names,
    check_called,
    constant_laws,
    identity_laws,
    plain_names,
    trace,
    unit_laws,
)
from ._calls import Recorder, call_on_host, in_numpy

Line = Sequence[float] | np.ndarray
POINTS = {1: 101, 2: 33, 3: 17}  # along each axis, where no grid is given
CALL = "solve(p, f, where)"
ANYHOW = (
    "or give differentiable=False: then any Python will do, with a law that is known and a surrogate (forward='basis')"
)


class Custom(Equation):
    """u(where) = solve(p, f, where): a solver of your own for one system.

    - `solve(p, f, where)`: `p` holds physical parameter values by name, `f` is the law (with several, `f.name`; None without),
      `where` are places (n, axis), in order along the first axis; some may be the same. Returns (n,), or (n, state) with several
      states. Plain JAX, with derivatives forward and backward (of diffrax: `adjoint=diffrax.DirectAdjoint()`).
    - `span`: (first, last) time, or {axis: (low, high)} like {"x": (0, 1), "y": (0, 2)}. The solver is asked at any places in it.
    - `grid`: times, or {axis: values}. Alone, the solver is asked there and nowhere else, and read between by cubics: at least
      five values along each axis; it may then return its values in the shape of the grid. Beside a `span` it is where
      figures and surrogates look (by default 101 times, or 33 values along each of two axes).
    - `state`: names of what is returned, those of `observed` by default; `observed`: what the data see of it, as of an `ODE`.
    - `closure`, `parameters`, `sigma`, `noise`, `covariates`, `name`: as of an `ODE`.
    - `differentiable`: False where the solver has no derivatives: any Python function, called with NumPy arrays and floats. Laws
      must then be known, and chains see a surrogate that is trained on its solutions.
    - `expensive`: True makes samplers do with fewer solutions; by default where there is more than one axis, or no derivative.

    Where the law is called is found by noting its inputs while the solver runs, whatever loops it is called in.
    """

    def __init__(
        self,
        solve: Callable[..., PyTree],
        *,
        parameters: Stated,
        observed: Observed,
        state: Sequence[str] | str | None = None,
        span: Line | Mapping[str, Line] | None = None,
        grid: Line | Mapping[str, Line] | None = None,
        closure: LawSpec | Mapping[str, LawSpec] | None = None,
        differentiable: bool = True,
        expensive: bool | None = None,
        sigma: Sigma = None,
        noise: str | NoiseModel = "normal",
        covariates: Covariates = None,
        name: str = "problem",
    ):
        stated = locals()
        if state is None and (observed is None or isinstance(observed, Mapping)):
            raise ProblemError("name what solve returns: state='u', or observed='u' where all of it is observed")
        spans, self.lines = _axes_of(span, grid)
        super().__init__(as_names(observed if state is None else state, "state"), tuple(spans), stated)  # type: ignore[arg-type]
        self.solve, self.spans, self.anywhere = solve, tuple(spans.values()), span is not None
        self.differentiable, several = differentiable, len(self.axes) > 1
        self.expensive = (several or not differentiable) if expensive is None else expensive
        self.samples_laws_on = () if self.expensive else ("solver",)
        moving = "evolutions" if "time" in self.axes else "fields"
        self.profile = moving if several else "curves" if differentiable else "fields"
        self.most_devices = 1
        self.offers = ("solution", "derivatives") if differentiable else ("solution",)
        self.default_forward = "solver" if differentiable else "basis"
        if differentiable:
            self._check_shape()
        for law, spec in self.closures.items():
            if spec.trainable and not differentiable:
                raise ProblemError(
                    f"the law {law!r} is learned by derivatives of the solution, and differentiable=False says that there are none; "
                    "give it as cl.Known(function), or write solve in JAX and leave differentiable out"
                )

    # The grid

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.spans

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(line) for line in self.lines)

    @functools.cached_property
    def points(self) -> np.ndarray:
        """(point, axis), the last axis fastest."""
        return np.stack(np.meshgrid(*self.lines, indexing="ij"), axis=-1).reshape(-1, len(self.lines))

    def nodes_near(self, data: Observations) -> Near:
        return self._near(data.place)

    def _near(self, places: np.ndarray, every: tuple[int, ...] | None = None) -> Near:
        steps = every or (1,) * len(self.lines)
        near = [near_between(places[..., i], line, n) for i, (line, n) in enumerate(zip(self.lines, steps))]
        return near_on_grid(near, self.shape)

    def interpolation_error(self, data: Observations, fit: np.ndarray, unit: np.ndarray) -> dict[str, float]:
        """Of a solver that is asked on its grid alone."""
        sizes = dict(zip(self.axes, self.shape))
        return {} if self.anywhere else interpolation_error(sizes, self._near, data, fit, unit)

    # The equation

    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        """Nobody can tell what a solver hands to its laws: they are numbered."""
        return {name: plain_names(spec.inputs) for name, spec in self.closures.items()}

    def states_at(
        self,
        theta: Theta,
        laws: SolverLaws,
        places: Float[Array, "n axis"],
        system: System,
        record: Record | None = None,
    ) -> Float[Array, "n state"]:
        """What the user's solver gives at places, in any order."""
        p = self.parameters.constrain(theta, system)
        if not self.differentiable:
            shape = jax.ShapeDtypeStruct((len(places), len(self.state_names)), places.dtype)
            return call_on_host(lambda p, places: self.run_on_host(p, laws, places), shape, p, places)
        f = bind(laws, self.single, record)
        order = jnp.argsort(places[:, 0])
        return self._as_states(self.solve(p, f, places[order]), len(places), jnp)[jnp.argsort(order)]

    def run_on_host(
        self, p: PyTree, laws: SolverLaws, places: ArrayLike, recorders: Mapping[str, Recorder] = MappingProxyType({})
    ) -> Float[np.ndarray, "n state"]:
        """The same as Python: the user's function called with floats, NumPy arrays and laws of these."""
        at = np.asarray(places, float)
        order = np.argsort(at[:, 0], kind="stable")
        numbers = self.parameters.record(*(float(part) for part in p))
        found = self.solve(numbers, in_numpy(laws, self.single, recorders), at[order])
        return self._as_states(found, len(at), np)[np.argsort(order)]

    def _as_states(self, value: PyTree, count: int, xp: ModuleType) -> Any:
        """(n, state) in NumPy or JAX, or a message what came instead."""
        if value is None:
            raise ProblemError(f"{CALL} returned nothing; is there a `return`?")
        several = isinstance(value, tuple | list)
        found = xp.stack([xp.asarray(part) for part in value], -1) if several else xp.asarray(value)
        states = len(self.state_names)
        on_grid = not self.anywhere and found.shape in (self.shape, (*self.shape, states))
        if on_grid or found.shape == (count, states) or (states == 1 and found.shape == (count,)):
            return found.reshape(count, states).astype(float)
        one = f"({count},) or " if states == 1 else ""
        raise ProblemError(
            f"asked at {count} places, {CALL} must return {one}({count}, {states}), a column for each of "
            f"{', '.join(self.state_names)}; it returned shape {found.shape}"
        )

    # The solver and its checks

    def solver(self, data: Observations) -> tuple[ForwardModel, ObservationIndex]:
        from ._solver import CustomSolver

        return CustomSolver(self), self.observation_index(data)

    def rhs_scale(self, spread: float) -> float:
        """The solution itself stands for what laws are part of."""
        return spread

    def evaluate_at(
        self, theta: Array, laws: SolverLaws, share: Float[Array, " 2"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " number"]:
        """Of solutions half a standard deviation about the guesses, with the laws and without."""
        spread = 0.5 * np.sqrt(self.parameters.mean_variance)
        at = self._guesses + jnp.asarray(spread, float) * theta
        without = constant_laws(self.closures, dict.fromkeys(laws, 0.0))
        found = [self.states_at(at, each, self.places, system) for each in (laws, without)]
        return jnp.stack([jnp.mean((u + more) ** 2) for states in found for u in states.T for more in (0.0, 1.0)])

    @property
    def places(self) -> Float[Array, "point axis"]:
        return jnp.asarray(self.points, float)

    @property
    def _guesses(self) -> Theta:
        return jnp.asarray(self.parameters.mean, float)

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:
        """Before a fit: does the solver run at the guesses, and has it the derivatives that are needed?"""
        if laws is not None:
            return
        if not self.differentiable:
            self._run_once()
            return
        at, first = self._guesses, unit_laws(self.closures)

        def total(laws: SolverLaws) -> Array:
            return jnp.sum(self.states_at(at, laws, self.places, 0))

        def pushed(theta: Array) -> Array:
            return jax.jvp(lambda t: self.states_at(t, first, self.places, 0), (theta,), (theta,))[1]

        tried = "forward mode (jax.jvp)", "its parameters"
        try:
            jax.eval_shape(pushed, at)
            tried = "reverse mode (jax.grad)", "its law"
            eqx.filter_eval_shape(eqx.filter_grad(total), first)
        except Exception as error:
            raise ProblemError(
                f"{CALL} cannot be differentiated in {tried[1]}, in {tried[0]}: {type(error).__name__}: {str(error)[:300]}. Loops of "
                "unknown length and callbacks have no derivative of their own: use lax.scan, give a solve of diffrax "
                f"adjoint=diffrax.DirectAdjoint(), or state the derivative with jax.custom_jvp; {ANYHOW}"
            ) from error

    def explain_failure(self, value: float, state: str, place: str, guesses: str) -> str:
        return (
            f"{CALL} gives {value} for {state!r} at {place} with parameters at their guesses ({guesses}) and the closure at its "
            "start (about zero); look for divisions by zero, roots or logarithms of negative numbers and steps that are too long "
            "in it, or move the guesses"
        )

    def explain_flat(self, parameter: str) -> str:
        return f"{super().explain_flat(parameter)}, {ANYHOW}"

    def _check_shape(self) -> None:
        record: Record = {name: [] for name in self.closures}
        count = 7 if self.anywhere else len(self.points)

        def probe(theta: Array, places: Array) -> Array:
            return self.states_at(theta, identity_laws(self.closures), places, 0, record)

        trace(probe, len(self.parameters), 0, CALL, (count, len(self.axes)))
        check_called(record, self.single, True, CALL)

    def solve_seconds(self) -> float | None:
        return None if self.differentiable else self._run_once()

    def _run_once(self) -> float:
        """As Python, where an exception can be told; returns how long it took."""
        start = time.perf_counter()
        try:
            self.run_on_host(self.parameters.constrain(self._guesses, 0), unit_laws(self.closures), self.points)
        except ProblemError:
            raise
        except Exception as error:
            raise ProblemError(
                f"{CALL} failed with parameters at their guesses: {type(error).__name__}: {error}"
            ) from error
        return time.perf_counter() - start

    # Time

    def extended(self, until: float) -> Equation:
        if "time" not in self.axes:
            return super().extended(until)
        axis = self.axes.index("time")
        (begin, end), line = self.spans[axis], self.lines[axis]
        if not math.isfinite(until) or until <= begin:
            raise ProblemError(f"until={until:g} is not after the problem's start, {begin:g}; name a later time")
        if until <= end + 1e-9 * abs(end):
            return self
        step = line[-1] - line[-2]
        more = line[-1] + step * np.arange(1, math.ceil((until - line[-1]) / step - 1e-6) + 1)
        grid = dict(zip(self.axes, self.lines)) | {"time": np.concatenate([line, more])}
        span = dict(zip(self.axes, self.spans)) | {"time": (begin, float(more[-1]))}
        stated = {**self._stated, "grid": grid, "span": span if self.anywhere else None, "name": self.name}
        return type(self)(**stated).with_parameters(self.parameters)


def _axes_of(
    span: Line | Mapping[str, Line] | None, grid: Line | Mapping[str, Line] | None
) -> tuple[dict[str, tuple[float, float]], tuple[np.ndarray, ...]]:
    """Bounds of every axis by name, and the values of the grid along each."""
    if span is None and grid is None:
        raise ProblemError(
            "say where there is a solution: span=(first, last) time, span={'x': (low, high), ...}, or a grid of places"
        )
    named = None if grid is None else {k: np.asarray(v, float) for k, v in _by_axis(grid).items()}
    for axis, line in (named or {}).items():
        if line.ndim != 1 or len(line) < 5 or not np.all(np.diff(line) > 0):
            raise ProblemError(f"grid along {axis} must be at least five increasing numbers")
    if span is None:
        assert named is not None
        return {k: (float(line[0]), float(line[-1])) for k, line in named.items()}, tuple(named.values())
    spans = {axis: as_interval(ends, f"span along {axis}") for axis, ends in _by_axis(span).items()}
    if named is None:
        count = POINTS.get(len(spans), 9)
        return spans, tuple(np.linspace(*ends, count) for ends in spans.values())
    if named.keys() != spans.keys():
        raise ProblemError(f"span has the axes {', '.join(spans)}, and grid {', '.join(named)}; name the same in both")
    lines = tuple(named[axis] for axis in spans)
    if any(line[0] < low or line[-1] > high for line, (low, high) in zip(lines, spans.values())):
        raise ProblemError("the grid lies outside of the span; the solver is to be asked within")
    return spans, lines


def _by_axis(given: Line | Mapping[str, Line]) -> Mapping[str, Line]:
    return given if isinstance(given, Mapping) else {"time": given}
