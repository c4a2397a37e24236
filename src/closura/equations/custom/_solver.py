"""A user's solver as a forward model."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...laws import LawSpec, SolverLaw, SolverLaws
from ...parameters import Physical, System, Theta
from .._base import ForwardModel
from .._index import LawInputs, ObservationIndex, Predictions, States
from ._calls import CALLS, Recorder, call_on_host, fetched, noted
from ._custom import Custom


class Between(SolverLaw):
    """(1 - share) one law + share another."""

    spec: LawSpec = eqx.field(static=True)
    one: SolverLaw
    other: SolverLaw
    share: Float[Array, ""]

    def __call__(self, *x: ArrayLike) -> Array:
        here = self.one(*x)
        return here + self.share * (self.other(*x) - here)


@dataclasses.dataclass(frozen=True)
class CustomSolver(ForwardModel):
    """Asks the user's solver wherever it was observed, or on its grid alone. What stands for the right-hand side is the solution."""

    problem: Custom

    def working_set_size(self, parameters: int) -> int:
        return 2 * len(self.problem.points) * len(self.problem.state_names) * (1 + parameters)

    def predict(self, theta: Theta, context: SolverLaws, where: ObservationIndex, system: System) -> Predictions:
        problem = self.problem
        if problem.anywhere:
            states = problem.states_at(theta, context, where.place, system)
        else:
            states = where.states(self.solution(theta, context, system)[where.node])
        return problem.operator(theta, where, states, system)

    def solution(self, theta: Theta, laws: SolverLaws, system: System) -> States:
        return self.problem.states_at(theta, laws, self.problem.places, system)

    def law_inputs(self, theta: Theta, laws: SolverLaws, system: System) -> LawInputs:
        """Some of the inputs the laws were called with, also in steps that were rejected."""
        if not self.problem.differentiable:
            return self._inputs_on_host(self.problem.parameters.constrain(theta, system), laws)
        watched = noted(laws, theta[0] + 0 * system)
        return fetched(watched, self.solution(theta, watched, system))

    def _inputs_on_host(self, p: Physical, laws: SolverLaws) -> LawInputs:
        kind = jnp.result_type(float)
        shapes = {name: jax.ShapeDtypeStruct((CALLS, law.spec.inputs), kind) for name, law in laws.items()}

        def called(p: Physical) -> dict[str, np.ndarray]:
            recorders = {name: Recorder(law) for name, law in laws.items()}
            self.problem.run_on_host(p, laws, self.problem.points, recorders)
            return {name: recorder.fetch(0.0, 0.0) for name, recorder in recorders.items()}

        return call_on_host(called, shapes, p)

    def rhs_values(self, theta: Theta, laws: SolverLaws, states: States, system: System) -> States:
        return states

    def law_effect(self, theta: Theta, laws: SolverLaws, others: SolverLaws, states: States, system: System) -> States:
        """How the solution begins to change from these laws to the others."""

        def solved(share: Array) -> States:
            between = {name: Between(law.spec, law, others[name], share) for name, law in laws.items()}
            return self.solution(theta, between, system)

        return jax.jvp(solved, (jnp.zeros(()),), (jnp.ones(()),))[1]
