"""A user's solver as a forward model."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...laws import LawSpec, SolverLaw, SolverLaws
from ...parameters import System, Theta
from .._base import ForwardModel
from .._index import LawInputs, ObservationIndex, Predictions, States
from ._custom import Custom
from ._host import inputs_on_host
from ._record import fetched, noted


class Between(SolverLaw):
    """(1 - share) one law + share another."""

    spec: LawSpec = eqx.field(static=True)
    one: SolverLaw
    other: SolverLaw
    share: Float[Array, ""]

    def outside(self, x: Float[Array, "*calls input"]) -> None:
        return None

    def __call__(self, *x: Any) -> Any:
        here = self.one(*x)
        return here + self.share * (self.other(*x) - here)


@dataclasses.dataclass(frozen=True)
class CustomSolver(ForwardModel):
    """Asks the user's solver wherever it was observed, or on its grid alone. What stands for the right-hand side is the solution."""

    problem: Custom

    def working_set_size(self, parameters: int) -> int:
        return 2 * len(self.problem.points) * len(self.problem.state_names) * (1 + parameters)

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        """Observed quantities of one system at its observation points."""
        problem = self.problem
        if problem.anywhere:
            states = problem.states_at(theta, context, where.place, system)
        else:
            states = where.states(self.solution(theta, context, system)[where.node])
        return problem.operator(theta, where, states, system)

    def solution(self, theta: Theta, laws: SolverLaws, system: System) -> States:
        return self.problem.states_at(theta, laws, jnp.asarray(self.problem.points, float), system)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Some of the inputs the laws were called with, also in steps that were rejected."""
        if not self.problem.differentiable:
            return inputs_on_host(self.problem, self.problem.parameters.constrain(theta, system), laws)
        watched = noted(laws, theta[0] + 0 * system)
        return fetched(watched, self.solution(theta, watched, system))

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        return states

    def law_effect(self, theta: Theta, laws: SolverLaws, others: SolverLaws, states: States, system: System) -> States:
        """How the solution begins to change from these laws to the others."""

        def solved(share: Array) -> States:
            between = {name: Between(law.spec, law, others[name], share) for name, law in laws.items()}
            return self.solution(theta, between, system)

        return jax.jvp(solved, (jnp.zeros(()),), (jnp.ones(()),))[1]
