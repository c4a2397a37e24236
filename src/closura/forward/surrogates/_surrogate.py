"""Surrogates as forward models: the same questions a solver answers, asked of a network, and the loss that trains it."""

import dataclasses
import inspect
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Equation, ForwardModel, LawInputs, ObservationIndex, Predictions, ProblemError, States
from ...laws import SolverLaws
from ...parameters import System, Theta
from ...population import Population
from .._blocks import solve_systems
from ._basis import BASIS
from ._fno import PHYSICS, SUPERVISED
from ._frame import Draw, Frame, Kind, Network, SeesLaws, Units
from ._law_values import LawValues
from ._pinn import PINN


@dataclasses.dataclass(frozen=True)
class Surrogate(ForwardModel):
    """A network in place of the solver.

    `residual` is what training makes small, one number a condition; the loss is its mean square.
    """

    problem: Equation
    solver: ForwardModel
    kind: Kind
    options: tuple[tuple[str, object], ...] = ()
    approximate: ClassVar[bool] = True
    cost_note: ClassVar[str] = ", and the training of the surrogate"

    @property
    def labelled(self) -> bool:
        return self.kind.needs == "solution"

    def build(self, units: Units, key: PRNGKeyArray, values: LawValues | None = None) -> Network:
        """The network with its first weights; `values` are what it sees of sampled laws."""
        seen = () if values is None else (values,)
        return self.kind.network(Frame(units, self.problem), key, *seen, **dict(self.options))

    def initialise(
        self,
        prior: Population,
        laws: SolverLaws,
        theta: Float[Array, "group slot system parameter"],
        key: PRNGKeyArray,
        values: LawValues | None = None,
    ) -> tuple[Network, tuple[Array, Array | None]]:
        """The network in units of the solver's solutions at first draws `theta`, and these draws with their labels; draws that
        cannot be solved are replaced by the middle of the prior."""
        solve = jax.jit(lambda theta: solve_systems(self.solver, theta, laws))
        paths = solve(theta)
        fine = jnp.all(jnp.isfinite(paths), axis=(-2, -1), keepdims=True)
        middle = jnp.broadcast_to(prior.mean, theta.shape)
        theta = jnp.where(fine[..., 0], theta, middle)
        paths = jnp.where(fine, paths, solve(middle[:1, :1]))
        # Where no condition says what solutions are near, their mean does.
        center = None if self.problem.known.any() else jnp.mean(paths, axis=(0, 1, 2))
        scale = np.std(np.asarray(paths if center is None else paths - center, float), axis=(0, 1, 2, 3))
        known = [jnp.asarray(numbers, float) for numbers in self.problem.parameters.known_inputs.units]
        about, spread = (jnp.concatenate(both) for both in zip((prior.mean, jnp.sqrt(prior.variance)), known))
        units = Units(about, spread, jnp.asarray(np.where(scale > 0, scale, 1.0), float), center)
        return eqx.filter_jit(self.build)(units, key, values), (theta, paths if self.labelled else None)

    def residual(self, network: Network, laws: SolverLaws, draw: Draw) -> Float[Array, " condition"]:
        """In units of the states."""
        if draw.law is not None:
            assert isinstance(network, SeesLaws), "another one is trained without"
            network = network.given(draw.law)
        return jnp.ravel(self.kind.condition(self.solver, network, laws, draw) / network.frame.units.state_scale)

    def predict(self, theta: Theta, context: Network, where: ObservationIndex, system: System) -> Predictions:
        return context.at(theta, where, system)

    def solution(self, theta: Theta, laws: Network, system: System) -> States:
        """By the network, which takes the place of the laws."""
        return laws.states(theta, system)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """A network calls no laws: those of the solver."""
        return self.solver.law_inputs(theta, laws, system)

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        return self.solver.rhs_values(theta, laws, states, system)

    def prepare_context(self, laws: SolverLaws, network: Network | None = None) -> Network | None:
        """The network."""
        return network

    def with_own_laws(self, context: Network, laws: SolverLaws) -> Network:
        """The network, asked about the laws of a chain."""
        if not laws:
            return context
        assert isinstance(context, SeesLaws), "laws of chains are refused for others"
        return context.seeing(laws)

    def read(self, theta: Theta, states: States, where: ObservationIndex, system: System) -> Predictions:
        """Observed quantities from a solution on the grid."""
        return self.problem.operator(theta, where, where.states(states[where.node]), system)

    def working_set_size(self, parameters: int) -> int:
        """Networks are products of large matrices: the whole batch at once."""
        return 0


SURROGATES = {"basis": BASIS, "fno-supervised": SUPERVISED, "fno-physics": PHYSICS, "pinn": PINN}


def sees_laws(name: str) -> bool:
    """Whether a forward model answers for every law that chains sample: the solver does."""
    return name not in SURROGATES or SURROGATES[name].sees_laws


def forwards() -> list[str]:
    """What chains may see."""
    return ["solver", *SURROGATES]


def surrogate(name: str, problem: Equation, solver: ForwardModel, **options: object) -> Surrogate:
    """The surrogate of that name in place of a solver."""
    require(name, problem)
    if _too_coarse(problem):
        raise ProblemError(
            f"a grid of {' x '.join(map(str, problem.shape or ()))} points is too coarse for a surrogate, which needs five along each axis; "
            "choose a smaller dt (or a finer grid), or use forward='solver'"
        )
    _check_sizes(name, SURROGATES[name], options)
    return Surrogate(problem, solver, SURROGATES[name], tuple(sorted(options.items())))


def _check_sizes(name: str, kind: Kind, options: dict[str, object]) -> None:
    sizes = inspect.signature(kind.network).parameters
    known = {size: p.default for size, p in sizes.items() if p.kind is p.KEYWORD_ONLY}
    for size, value in options.items():
        if size not in known:
            raise ProblemError(f"a network of forward={name!r} has no {size}; it has {', '.join(known)}")
        wanted = "true or false" if isinstance(known[size], bool) else "a whole number from 1 up"
        fits = isinstance(value, bool) if isinstance(known[size], bool) else type(value) is int and value >= 1
        if not fits:
            raise ProblemError(
                f"network: {size}={value!r} of forward={name!r} must be {wanted} (by default {known[size]})"
            )


def choices(problem: Equation) -> list[str]:
    """Forward models that a problem allows."""
    return [name for name in forwards() if not _lacking(name, problem)]


def allowed(name: str, problem: Equation) -> bool:
    """Whether a problem allows a forward model, on its grid too."""
    return not _lacking(name, problem) and not (name in SURROGATES and _too_coarse(problem))


def _too_coarse(problem: Equation) -> bool:
    return problem.shape is not None and min(problem.shape) < 5


def require(name: str, problem: Equation) -> None:
    """Raise if a problem does not allow the forward model of that name."""
    lacking = _lacking(name, problem)
    if lacking:
        raise ProblemError(f"forward={name!r} {lacking}; what works is {', '.join(choices(problem))}")


def _lacking(name: str, problem: Equation) -> str:
    """What a forward model would need that a problem has not; nothing if it can be had."""
    kind = SURROGATES.get(name)
    if kind is None:
        has = "derivatives" in problem.offers
        return "" if has else f"is sampled with derivatives of the solution, and {problem.name!r} has none"
    if kind.needs not in problem.offers:
        return f"is trained on the {kind.needs} of an equation, and {problem.name!r} has none"
    if problem.parameters.known_inputs.signals:
        return f"sees numbers alone, and systems of {problem.name!r} have signals"
    return kind.refuses(problem)
