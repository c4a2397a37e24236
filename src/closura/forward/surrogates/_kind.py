"""What a kind of surrogate is: a network, and what training makes small."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Equation, ForwardModel
from ...laws import Closures
from ...parameters import System
from ._frame import Network


def _nothing(problem: Equation) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of surrogate, to be listed in `SURROGATES`.

    - `network(frame, key, **sizes)`: see `Network`.
    - `condition(solver, network, laws, theta, system, label, key)`: (condition, state), zero for a perfect network.
    - `needs`: what of an equation that takes: "solution", which then is the label, or "residual".
    - `refuses(problem)`: why it cannot be had for a problem, in words that follow its name; "" where it can.
    """

    network: Callable[..., Network]
    condition: Callable[..., Float[Array, "condition state"]]
    needs: str
    refuses: Callable[[Equation], str] = _nothing


def supervised(
    solver: ForwardModel,
    network: Network,
    laws: Closures,
    theta: Float[Array, " parameter"],
    system: System,
    label: Float[Array, "point state"],
    key: PRNGKeyArray,
) -> Float[Array, "condition state"]:
    """Against the solver's solution."""
    return network.states(theta, system) - label


def on_grid(
    solver: ForwardModel,
    network: Network,
    laws: Closures,
    theta: Float[Array, " parameter"],
    system: System,
    label: Any,
    key: PRNGKeyArray,
) -> Float[Array, "condition state"]:
    """The equation as discretised on the grid."""
    return solver.grid_residual(theta, laws, network.states(theta, system), system)
