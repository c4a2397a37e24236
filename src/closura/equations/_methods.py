"""Which solver an equation has, and how its solution is read where it was observed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..data import Observations
from ._problem import Problem
from ._stencil import Stencil, on_times
from .elliptic._elliptic import Elliptic
from .elliptic._locate import stencil as in_plane
from .elliptic._solver import EllipticSolver
from .evolution._evolution import Evolution
from .evolution._solver import EvolutionSolver
from .evolution._solver import stencil as in_strip
from .ode._ode import ODE
from .ode._solver import ode_solver


class Method(NamedTuple):
    """`solve(problem, data)` is a forward model and where it is read; `near(problem, data)` nodes of the grid with weights."""

    solve: Callable[..., tuple[Any, Any]]
    near: Callable[..., tuple[np.ndarray, np.ndarray]]


def stencil(problem: Problem, data: Observations) -> Stencil:
    """Where the data are on the problem's grid."""
    node, weight = _method(problem).near(problem, data)
    if np.all(weight.max(axis=-1)[data.mask] == 1):  # every observation is of a node
        node, weight = (
            np.take_along_axis(node, weight.argmax(axis=-1)[..., None], axis=-1),
            np.ones((*node.shape[:2], 1)),
        )
    return Stencil(
        jnp.asarray(data.place, float),
        jnp.asarray(node, jnp.int32),
        jnp.asarray(weight, float),
        jnp.asarray(data.quantity, jnp.int32),
    )


def solver(problem: Problem, data: Observations) -> tuple[Any, Any]:
    """The solver of a problem, and where it is read off for these data."""
    return _method(problem).solve(problem, data)


def _elliptic(problem: Elliptic, data: Observations) -> tuple[EllipticSolver, Stencil]:
    return EllipticSolver(problem), stencil(problem, data)


def _evolution(problem: Evolution, data: Observations) -> tuple[EvolutionSolver, Stencil]:
    where = stencil(problem, data)
    last = int(np.max(np.asarray(where.node)[data.mask])) // problem.grid.size
    return EvolutionSolver(problem, count=max(1, last)), where


METHODS: dict[type, Method] = {
    ODE: Method(ode_solver, on_times),
    Elliptic: Method(_elliptic, lambda problem, data: in_plane(problem, data.place, data.mask)),
    Evolution: Method(_evolution, lambda problem, data: in_strip(problem, data.place)),
}


def _method(problem: Problem) -> Method:
    return next(method for kind, method in METHODS.items() if isinstance(problem, kind))
