"""What equations that start somewhere and go on in time have in common."""

import abc
import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..laws import SolverLaws
from ..parameters import System, Theta
from ._base import Equation
from ._integrators import Integrator, Rhs, State
from ._shared import ProblemError


class InitialValueProblem(Equation):
    """d(state)/dt = rate(t, state),  state(t0) = start; states are numbers, or fields on a grid."""

    span: tuple[float, float]
    integrator: Integrator

    @abc.abstractmethod
    def start(self, theta: Theta, system: System) -> State:
        """The initial state of one system."""

    @abc.abstractmethod
    def rate(self, theta: Theta, laws: SolverLaws, system: System) -> Rhs:
        """The right-hand side (t, state) -> d(state)/dt of one system."""

    def rhs_scale(self, spread: float) -> float:
        """A rate that makes the state change by so much within the span."""
        return spread / (self.span[1] - self.span[0])

    def evaluate_at(
        self, theta: Array, laws: SolverLaws, share: Float[Array, " 2"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " number"]:
        """Of the initial state, and of the rates at another."""
        (begin, end), start = self.span, self.start(theta, system)
        moved = tuple(y + more for y, more in zip(start, state))
        rates = self.rate(theta, laws, system)(begin + share[0] * (end - begin), moved)
        # Squares do not cancel, as means over a field do; the second knows the sign.
        return jnp.stack([jnp.mean((y + more) ** 2) for y in (*start, *rates) for more in (0.0, 1.0)])

    def use(self, integrator: Integrator) -> None:
        """Be integrated by this one."""
        self.integrator, self.second_order = integrator, integrator.second_order
        self.most_devices = 1 if integrator.adaptive else None

    def intervals_until(self, until: float, count: int) -> int:
        """Intervals, of the length that `count` have in the span, which reach `until`; `count` where the span does already."""
        begin, end = self.span
        if not math.isfinite(until) or until <= begin:
            raise ProblemError(f"until={until:g} is not after the problem's start, {begin:g}; name a later time")
        if until <= end * (1 + 1e-9) if end > 0 else until <= end:
            return count
        return math.ceil((until - begin) / (end - begin) * count - 1e-6)
