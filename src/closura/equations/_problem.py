"""What every problem has, whatever its equation: all that the layers above ask for."""

import copy
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float

from ..data import DataError, Observations
from ..laws import ClosureSpec
from ..parameters import Parameters
from ._defaults import with_defaults
from ._integrators import Adaptive
from ._observe import Sensors
from ._shared import NoiseModel, Sigma


@runtime_checkable
class Problem(Protocol):
    """An equation with a hole, for one system: `ODE`, `Elliptic` or `Evolution`.

    Its solution is (point, state): states by name at the points of a grid, which are (point, axis). Where the points form a
    tensor grid, `shape` is that grid's, the last axis fastest; otherwise it is None.
    """

    name: str
    parameters: Parameters
    closures: dict[str, ClosureSpec]
    single: bool
    state_names: tuple[str, ...]
    sensors: Sensors
    sigma: Sigma
    noise: NoiseModel
    covariates: dict[str, tuple[str, ...]]

    @property
    def observed(self) -> tuple[str, ...]: ...

    @property
    def axes(self) -> tuple[str, ...]: ...

    @property
    def offers(self) -> tuple[str, ...]:
        """What there is to train a surrogate on: "solver", "residual"."""
        ...

    @property
    def points(self) -> np.ndarray: ...

    @property
    def shape(self) -> tuple[int, ...] | None: ...

    @property
    def triangles(self) -> np.ndarray | None:
        """Of a mesh; None where points form a tensor grid."""
        ...

    @property
    def periodic(self) -> tuple[bool, ...]: ...

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]: ...

    @property
    def known(self) -> np.ndarray:
        """(point,): where initial and boundary conditions say what the solution is."""
        ...

    @property
    def sloped(self) -> bool:
        """Does a part of the boundary have a slope instead of a value?"""
        ...

    def with_closure(self, closure: Any) -> "Problem":
        """The same problem with another law, e.g. the true one for an oracle run."""
        ...

    def base(self, theta: Float[Array, " parameter"], place: Float[Array, " axis"]) -> Float[Array, " state"]:
        """What is known of the solution at a place: right where initial and boundary conditions say so."""
        ...

    def free(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """A smooth factor that is zero where conditions hold, about one elsewhere: what is unknown passes through it."""
        ...

    def pace(self, spread: float) -> float:
        """How large what the laws are part of (a rate, a coefficient) must be for a solution that varies by so much."""
        ...

    def law_inputs(self) -> dict[str, tuple[str, ...]]:
        """What each law is a function of, by name."""
        ...

    def check_scheme(self) -> None:
        """Raise if the discretisation does not suit the equation, in the precision in use."""


FINE = 4000  # intervals of a sampled signal, where the solver's own steps do not say better


def as_seen(problem: Problem, data: Observations) -> tuple[Problem, Observations]:
    """Data as a problem sees them, and the problem with what they tell of each system; or a message why that cannot be."""
    matched = match(problem, data)
    total = int(matched.counts.sum())
    if total <= len(problem.parameters):
        raise DataError(
            f"the table holds {total} observation{'s' * (total != 1)} in all, not more than the {len(problem.parameters)} "
            f"parameters of one system ({', '.join(problem.parameters.names)}); add data, or fix some parameters"
        )
    return bound_to(problem, matched), matched


def match(problem: Problem, data: Observations) -> Observations:
    """Data as a problem sees them."""
    given = problem.parameters.given
    covariates = [column for columns in problem.covariates.values() for column in columns]
    constants = list(dict.fromkeys([*covariates, *given.columns.values()]))
    bounds, signals = dict(zip(problem.axes, problem.bounds)), list(given.signal_columns.values())
    return data.matched(problem.observed, bounds, problem.sigma, constants, signals)


def bound_to(problem: Problem, matched: Observations) -> Problem:
    """The problem with what (matched) data tell of each system."""
    parameters, given = with_defaults(problem, matched), problem.parameters.given
    if given:
        parameters = copy.copy(parameters)
        times = _times_of_signals(problem) if given.signals else np.zeros(2)
        parameters.given = given.bound(matched.constants, matched.signals, times)
    if parameters is problem.parameters:
        return problem
    bound = copy.copy(problem)
    bound.parameters, bound.sensors = parameters, copy.copy(problem.sensors)
    bound.sensors.parameters = parameters
    if given:
        bound.__dict__.pop("stride", None)  # how long a step may be depends on what is known
    return bound


def _times_of_signals(problem: Problem) -> np.ndarray:
    """Where a fixed-step integrator asks, which makes sampling exact; elsewhere fine."""
    begin, end = problem.bounds[problem.axes.index("time")]
    plain = problem.axes == ("time",) and not isinstance(getattr(problem, "integrator", None), Adaptive)
    return np.linspace(begin, end, 1 + (2 * (len(problem.points) - 1) if plain else FINE))


def place_names(problem: Problem, place: Any) -> str:
    """A place in words, `t = 1.5` or `x = 0.2, y = 0.4`."""
    short = ("t" if axis == "time" else axis for axis in problem.axes)
    return ", ".join(f"{axis} = {float(at):.4g}" for axis, at in zip(short, np.atleast_1d(place)))
