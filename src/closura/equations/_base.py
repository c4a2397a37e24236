"""The two interfaces of this folder: what every equation answers, and what every forward model does.

Nothing above this folder asks which equation it holds. A new kind is a subclass of `Equation` that returns its own solver,
a subclass of `ForwardModel`; both in a folder of its own, with what must be abstract here and as many of the other answers as
differ from those here.
"""

import abc
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..data import Observations
from ..laws import Known, LawSpec, SolverLaws
from ..parameters import Parameters, System, Theta
from ..population import Population
from ._index import LawInputs, Near, ObservationIndex, ObservationOperator, Predictions, States, index_of
from ._shared import ProblemError, as_covariates, as_noise, named_closures, unit_laws

Draws = Float[Array, "*draw parameter"] | None
Systems = Int[Array, "*draw"] | int | None
FINE = 4000  # intervals of a sampled signal, where a solver's own steps do not say better
PLACES, APART = 5, 1e-3  # of a fingerprint: how many, and how far apart equal ones may be; precisions are nearer


class Refinement(NamedTuple):
    """An equation on a grid twice as fine; `fault` and `remedy` are for messages, where that changes predictions."""

    equation: "Equation"
    fault: str
    remedy: str


class Equation(abc.ABC):
    """An equation with a hole, for one system: its statement, its discretisation, its solver and its checks.

    Its solution is (point, state): states by name at the points of a grid, which are (point, axis). A system is told from the
    others by its row in the data, `system`, which tells what is known of it alone.

    What there is to train a surrogate on, and to sample with, is in `offers`: "solution", "derivatives", "residual".
    """

    offers: tuple[str, ...] = ("solution", "derivatives", "residual")
    triangles: np.ndarray | None = None  # (triangle, 3), numbers of points, of a mesh
    sloped: bool = False  # a part of the boundary has a given derivative instead of a value
    second_order: bool = False  # the second half of the states are the time derivatives of the first
    # A solution takes milliseconds, so that a sampler must do with few; which default settings suit ("curves", "fields" or
    # "evolutions"); what chains see by default; through which forward models they sample unknown laws by default, the first of
    # which is what they see then; over how many devices they may be spread.
    expensive: bool = True
    profile: str = "fields"
    default_forward: str = "solver"
    samples_laws_on: tuple[str, ...] = ()
    most_devices: int | None = None

    def __init__(self, states: tuple[str, ...], axes: tuple[str, ...], stated: Mapping[str, Any]):
        """`stated` are the arguments of the subclass, by name; of them closure, observed, sigma, noise, covariates, name and
        parameters mean the same in every equation."""
        self._stated = {key: value for key, value in stated.items() if key not in ("self", "__class__")}
        self.name: str = stated["name"]
        self.state_names, self.axes = states, axes
        self.noise, self.sigma = as_noise(stated["noise"], stated["sigma"])
        self.parameters = Parameters(stated["parameters"])
        self.operator = ObservationOperator(stated["observed"], states, self.parameters, len(axes))
        self.covariates = as_covariates(stated["covariates"], self.parameters)
        self.single = not isinstance(stated["closure"], Mapping)
        self.closures = named_closures(stated["closure"])

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of what the data see."""
        return self.operator.names

    def with_closure(self, closure: LawSpec | Mapping[str, LawSpec] | None) -> "Equation":
        """The same equation with another law, e.g. the true one for an oracle run."""
        return type(self)(**{**self._stated, "closure": closure, "name": self.name})

    def with_parameters(self, parameters: Parameters) -> "Equation":
        """The same equation with other priors, or with what data tell of each system."""
        bound = copy.copy(self)
        bound.parameters, bound.operator = parameters, copy.copy(self.operator)
        bound.operator.parameters = parameters
        return bound

    @abc.abstractmethod
    def law_input_names(self) -> dict[str, tuple[str, ...]]:
        """What each law is a function of, by name."""

    # The grid ---------------------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def points(self) -> np.ndarray:
        """(point, axis)."""

    @property
    @abc.abstractmethod
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Lowest and highest value along each axis."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of the tensor grid that the points form, its last axis fastest; None where they form none."""
        return None

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Along which axes the solution repeats itself."""
        return (False,) * len(self.axes)

    @abc.abstractmethod
    def nodes_near(self, data: Observations) -> Near:
        """Points of the grid from which observations are read, and their weights."""

    def observation_index(self, data: Observations) -> ObservationIndex:
        """Where (matched) data are on the grid."""
        return index_of(data, self.nodes_near(data))

    # What is known of a solution before it is solved ------------------------------------------------------------------

    @property
    def known(self) -> np.ndarray:
        """(point,): where initial and boundary conditions say what the solution is."""
        return np.zeros(len(self.points), bool)

    def lift(self, theta: Theta, place: Float[Array, " axis"], system: System) -> Float[Array, " state"]:
        """A function that fulfils the initial and boundary conditions."""
        return jnp.zeros(len(self.state_names))

    def cutoff(self, place: Float[Array, " axis"]) -> Float[Array, ""]:
        """A smooth factor, zero where conditions hold and about one elsewhere: lift + cutoff x anything fulfils them."""
        return jnp.ones(())

    def initial_state(self, theta: Theta, system: System) -> Float[Array, " state"] | None:
        """What curves start from; None where there is no such thing."""
        return None

    # The solver and its checks ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def solver(self, data: Observations) -> "tuple[ForwardModel, ObservationIndex]":
        """The solver, and where it is read for these (matched) data."""

    @abc.abstractmethod
    def rhs_scale(self, spread: float) -> float:
        """How large `rhs_values` must be for a solution that varies by so much."""

    def check_scheme(self, laws: SolverLaws | None = None, theta: Draws = None, system: Systems = None) -> None:  # noqa: B027
        """Raise a `ProblemError` if the discretisation does not suit the equation, in the precision in use.

        Without laws and parameters it is judged at the prior guess with hardly any law; ask again once they are known.
        """

    def refined(self) -> Refinement | None:
        """On a grid twice as fine, to tell the error of this one; None where a solver controls its error itself."""
        return None

    def interpolation_error(self, data: Observations, fit: np.ndarray, unit: np.ndarray) -> dict[str, float]:
        """Along each axis, how far off `fit` (system, quantity, point) is read between points: root mean square over
        observations, in units of the noise. Nothing where reading is as good as solving."""
        return {}

    def explain_failure(self, value: float, state: str, place: str, guesses: str) -> str:
        """What to say and do where the solution is not finite with parameters at their guesses."""
        return (
            f"the physics gives {value} for {state!r} at {place} with parameters at their guesses ({guesses}) and the closure at "
            "its start (about zero); check the physics function for divisions by zero and roots or logarithms of negative "
            "numbers, lower dt, or choose Adaptive('kvaerno5') if it is stiff"
        )

    def explain_flat(self, parameter: str) -> str:
        """What to say and do where the solution changes with a parameter and its derivative is zero."""
        return (
            f"the derivative of the solution in {parameter} is zero, though the solution changes with it: something has no derivative, "
            "like rounding, whole numbers (astype(int)), comparisons, argmin or lax.stop_gradient; interpolate instead"
        )

    def fingerprint(self) -> list[float | None]:
        """What the equation gives at places, states and parameters that are the same in every run; None where not finite.

        Learned laws return a number of their own, so that only what is known of the equation counts.
        """
        stand_in = {n: Known(_any_law, spec.inputs) for n, spec in self.closures.items() if spec.trainable}
        laws, random = unit_laws({**self.closures, **stand_in}), np.random.default_rng(0)
        width = len(self.parameters) + bool(self.parameters.known_inputs)  # as version 0.1 drew them
        theta, share = random.normal(size=(PLACES, width)), random.uniform(0.2, 0.8, (PLACES, 2))
        state = random.normal(size=(PLACES, len(self.state_names)))

        def at(theta: Array, share: Array, state: Array) -> Array:
            return self.evaluate_at(theta[: len(self.parameters)], laws, share, state, 0)

        found = jax.jit(jax.vmap(at))(*(jnp.asarray(draw, float) for draw in (theta, share, state)))
        return [float(number) if np.isfinite(number) else None for number in np.asarray(found, float).ravel()]

    @abc.abstractmethod
    def evaluate_at(
        self, theta: Theta, laws: SolverLaws, share: Float[Array, " 2"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " number"]:
        """Numbers that tell this equation from another: its terms at a state, and at a place that is `share` of each axis."""

    # Time -------------------------------------------------------------------------------------------------------------

    def solve_seconds(self) -> float | None:
        """How long one solve takes, measured; None where solves are so quick that a fit finds out by itself."""
        return None

    def extended(self, until: float) -> "Equation":
        """The same equation with a span that reaches `until`, in the same steps."""
        raise ProblemError(f"{self.name} does not change in time: there is nothing to forecast; leave out until")

    def signal_times(self) -> np.ndarray:
        """Equidistant times at which known signals are sampled."""
        return np.linspace(*self.bounds[self.axes.index("time")], 1 + FINE)


class ForwardModel(abc.ABC):
    """From parameters of one system and the laws to what was observed of it; a failed solve is NaN.

    Everything is for one system, in plain JAX: the caller batches with `vmap`. `theta` is unconstrained, `system` is the row
    of the system in the data. What a model needs beside theta is its `context`: the laws of a solver, the network of a
    surrogate. A model is static in a program, so it can be hashed.
    """

    problem: Equation
    approximate: ClassVar[bool] = False  # to be judged by a solver
    cost_note: ClassVar[str] = ""

    @property
    def labelled(self) -> bool:
        """Whether it is trained on solutions of a solver."""
        return False

    @abc.abstractmethod
    def predict(self, theta: Theta, context: PyTree, where: ObservationIndex, system: System) -> Predictions:
        """Observed quantities of one system at its observation points."""

    @abc.abstractmethod
    def solution(self, theta: Theta, laws: PyTree, system: System) -> States:
        """The whole solution of one system on the grid."""

    @abc.abstractmethod
    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Inputs the laws are called with in one system's solution."""

    @abc.abstractmethod
    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        """What the laws are part of, at a solution: a rate, a coefficient."""

    def law_effect(self, theta: Theta, laws: SolverLaws, others: SolverLaws, states: States, system: System) -> States:
        """How `rhs_values` change when other laws take the place of these."""
        return self.rhs_values(theta, others, states, system) - self.rhs_values(theta, laws, states, system)

    def grid_residual(
        self, theta: Theta, laws: SolverLaws, states: States, system: System
    ) -> Float[Array, "condition state"]:
        """How far states on the grid miss the discrete equation, in units of the state. Only of equations that offer it."""
        raise NotImplementedError

    def point_residual(
        self,
        theta: Theta,
        laws: SolverLaws,
        function: Callable[[Float[Array, " axis"]], Float[Array, " state"]],
        places: Float[Array, "condition axis"],
        system: System,
    ) -> Float[Array, "condition state"]:
        """The same of a function of the place, at any places, its derivatives exact."""
        raise NotImplementedError

    def prepare_context(self, laws: SolverLaws, network: PyTree = None) -> PyTree:
        """What `predict` needs beside theta, from the laws and the network of a surrogate."""
        return laws

    def with_own_laws(self, context: PyTree, laws: SolverLaws) -> PyTree:
        """The context of a chain that has laws of its own, which take the place of those of the same names."""
        return {**context, **laws} if laws else context

    def for_reverse_mode(self) -> "ForwardModel":
        """The same model, where derivatives are wanted in reverse mode (of laws) instead of forward mode (of theta)."""
        return self

    @abc.abstractmethod
    def working_set_size(self, parameters: int) -> int:
        """How many numbers one solve keeps in hand, with derivatives in so many parameters; 0 where a whole batch is best."""

    @property
    def call_times(self) -> np.ndarray:
        """The times that calls in `law_inputs` belong to, equally many each; one, infinite, where that cannot be told."""
        return np.full(1, np.inf)

    def initialise(
        self,
        prior: Population,
        laws: SolverLaws,
        theta: Float[Array, "group slot system parameter"],
        key: Array,
        values: PyTree = None,
    ) -> tuple[PyTree, tuple[PyTree, ...]]:
        """The network to be trained with its first weights, and the draws with their labels that it is first trained on;
        nothing for a solver. `values` are what a network sees of laws that chains sample."""
        return None, ()


def place_names(problem: Equation, place: Sequence[float] | np.ndarray) -> str:
    """A place in words, `t = 1.5` or `x = 0.2, y = 0.4`."""
    short = ("t" if axis == "time" else axis for axis in problem.axes)
    return ", ".join(f"{axis} = {float(at):.4g}" for axis, at in zip(short, np.atleast_1d(place)))


def same_equation(one: list[float | None], other: list[float | None]) -> bool:
    """Whether two fingerprints are alike, as far as both are finite."""
    if len(one) != len(other):
        return False
    a, b = (np.array(numbers, float) for numbers in (one, other))  # None is not a number
    return bool(np.all((np.abs(a - b) <= APART * (1e-3 + np.abs(a) + np.abs(b)))[np.isfinite(a + b)]))


def _any_law(*x: Array) -> Array:
    return sum((jnp.cos(1.0 + i + part) for i, part in enumerate(x)), jnp.zeros(()))


def kinds_in_words() -> str:
    """The equations there are, as a user writes them."""
    found, named = [*Equation.__subclasses__()], []
    for kind in found:
        found += kind.__subclasses__()
        named += [] if inspect.isabstract(kind) or not kind.__module__.startswith("closura.") else [kind.__name__]
    *others, last = [f"cl.{name}(...)" for name in sorted(named, key=len)]
    return f"{', '.join(others)} or {last}"
