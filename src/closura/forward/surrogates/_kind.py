"""What a kind of surrogate is: a network, and what training makes small."""

import dataclasses
from collections.abc import Callable

from jaxtyping import Array, Float

from ...equations import Equation, ForwardModel
from ...laws import SolverLaws
from ._frame import Draw, Network

Conditions = Float[Array, "condition state"]


def _nothing(problem: Equation) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of surrogate, to be listed in `SURROGATES`.

    - `network(frame, key, **sizes)`: see `Network`.
    - `condition(solver, network, laws, draw)`: (condition, state), zero for a perfect network.
    - `needs`: what of an equation that takes: "solution", which then is the label of a draw, or "residual".
    - `refuses(problem)`: why it cannot be had for a problem, in words that follow its name; "" where it can.
    """

    network: Callable[..., Network]
    condition: Callable[..., Conditions]
    needs: str
    refuses: Callable[[Equation], str] = _nothing


def supervised(solver: ForwardModel, network: Network, laws: SolverLaws, draw: Draw) -> Conditions:
    """Against the solver's solution."""
    return network.states(draw.theta, draw.system) - draw.label


def on_grid(solver: ForwardModel, network: Network, laws: SolverLaws, draw: Draw) -> Conditions:
    """The equation as discretised on the grid."""
    return solver.grid_residual(draw.theta, laws, network.states(draw.theta, draw.system), draw.system)
