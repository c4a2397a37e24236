"""What a kind of surrogate is, and what all their networks have: units, a grid, and conditions that are built in.

A network is an equinox module with two methods: `states(theta, system)` at the points of the problem's grid, and
`at(theta, where, system)` at the observed points only, which is all a sampler asks for.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...equations import Equation, ForwardModel, ObservationIndex, States
from ...laws import SolverLaws
from ...parameters import System, Theta

Conditions = Float[Array, "condition state"]
Rows = Int[Array, " row"] | slice  # of points


class Units(NamedTuple):
    """What a network's inputs and outputs are measured in."""

    theta_center: Theta
    theta_scale: Theta
    state_scale: Float[Array, " state"]
    state_center: States | None = None  # what solutions scatter about, where no condition says it


class Fixed(eqx.Module):
    """A part of a network that is not trained."""


class Frame(Fixed):
    """What every network knows of its problem: units, grid, and the conditions that its solution grows out of."""

    units: Units
    points: Float[Array, "point axis"]
    cutoff: Float[Array, " point"]
    held: Float[Array, "condition axis"]
    problem: Equation = eqx.field(static=True)

    def __init__(self, units: Units, problem: Equation):
        self.units, self.problem = units, problem
        self.points = jnp.asarray(problem.points, float)
        self.cutoff = jnp.where(problem.known, 0.0, jax.vmap(problem.cutoff)(self.points))  # conditions hold exactly
        self.held = self.points[problem.known]

    def inputs(self, theta: Theta, system: System) -> Float[Array, " feature"]:
        center, scale, *_ = lax.stop_gradient(self.units)
        return (self.problem.parameters.features(theta, system) - center) / scale

    def scale(self) -> Float[Array, " state"]:
        return lax.stop_gradient(self.units.state_scale)

    def lift(self, theta: Theta, system: System, rows: Rows = slice(None)) -> Float[Array, "row state"]:
        """What is known of the solution, at all points or at some."""
        known = jax.vmap(lambda place: self.problem.lift(theta, place, system))(lax.stop_gradient(self.points)[rows])
        center = lax.stop_gradient(self.units).state_center
        return known if center is None else known + center[rows]

    def part(self, theta: Theta, system: System, states: States) -> States:
        """What a solution has beside what is known of it, in units of the states: cutoff x what a network says."""
        return (states - self.lift(theta, system)) / self.scale()

    def whole(
        self, theta: Theta, system: System, part: Float[Array, "row state"], rows: Rows = slice(None)
    ) -> Float[Array, "row state"]:
        """The solution from what a network says, in its units, at all points or at some."""
        return self.lift(theta, system, rows) + lax.stop_gradient(self.cutoff)[rows, None] * self.scale() * part


class Draw(NamedTuple):
    """What a network is trained on: parameters of one system, and their solution where that is the label; where chains sample
    laws, values of these."""

    theta: Theta
    system: System
    label: States | None
    key: PRNGKeyArray  # for what a loss draws itself
    law: Float[Array, " value"] | None = None


@runtime_checkable
class Network(Protocol):
    """What a surrogate needs: a module with a frame that can be asked for a solution, whole or at observed points.

    It is made as network(frame, key, **sizes), the sizes being keywords with defaults.
    """

    frame: Frame

    def states(self, theta: Array, system: System) -> Array: ...

    def at(self, theta: Array, where: ObservationIndex, system: System) -> Array: ...


@runtime_checkable
class SeesLaws(Protocol):
    """What a network has beside that, which answers for every law that chains sample."""

    def given(self, values: Float[Array, " value"]) -> Network:
        """The network, asked about laws with these values at the inputs where it looks."""
        ...

    def seeing(self, laws: SolverLaws) -> Network:
        """The network, asked about these laws."""
        ...


def trainable(network: Network | None) -> PyTree[bool]:
    """Which leaves are trained: all that are not in `Fixed` parts."""
    return jax.tree.map(
        lambda part: not isinstance(part, Fixed) and eqx.is_inexact_array(part),
        network,
        is_leaf=lambda part: isinstance(part, Fixed),
    )


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of surrogate, to be listed in `SURROGATES`.

    - `network(frame, key, **sizes)`: see `Network`.
    - `condition(solver, network, laws, draw)`: (condition, state), zero for a perfect network.
    - `needs`: what of an equation that takes: "solution", which then is the label of a draw, or "residual".
    - `refuses(problem)`: why it cannot be had for a problem, in words that follow its name; "" where it can.
    - `sees_laws`: a network is made as network(frame, key, values, **sizes) and answers for every law (see `SeesLaws`, `Basis`); by
      default it knows the one it is trained with.
    """

    network: Callable[..., Network]
    condition: Callable[..., Conditions]
    needs: str
    refuses: Callable[[Equation], str] = lambda problem: ""
    sees_laws: bool = False


def supervised(solver: ForwardModel, network: Network, laws: SolverLaws, draw: Draw) -> Conditions:
    """The difference to the solver's solution."""
    assert draw.label is not None
    return network.states(draw.theta, draw.system) - draw.label


def on_grid(solver: ForwardModel, network: Network, laws: SolverLaws, draw: Draw) -> Conditions:
    """What the equation as discretised on the grid is missed by."""
    return solver.grid_residual(draw.theta, laws, network.states(draw.theta, draw.system), draw.system)
