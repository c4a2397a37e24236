"""Surrogates as forward models: the same questions a solver answers, asked of a network, and the loss that trains it."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Problem, ProblemError, Stencil
from ...laws import Closures
from ._networks import Basis, Frame, Network, Operator, Pinn, Units

COLLOCATION = 32


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """A network in place of the solver.

    `residual` is what training makes small, one number a condition; the loss is its mean square. `labelled` says that it
    compares with the solver's solution, otherwise the `equation` itself is all it needs.
    """

    trained: ClassVar[bool] = True
    problem: Problem
    equation: Any
    network: Callable[..., Network]
    condition: Callable[..., Float[Array, "condition state"]]
    labelled: bool
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, units: Units, key: PRNGKeyArray) -> Network:
        return self.network(Frame(units, self.problem), key, **dict(self.options))

    def residual(
        self, network: Network, laws: Closures, theta: Float[Array, " parameter"], label: Any, key: PRNGKeyArray
    ) -> Float[Array, " condition"]:
        """In units of the states."""
        return jnp.ravel(
            self.condition(self.equation, network, laws, theta, label, key) / network.frame.units.state_scale
        )

    def predict(
        self, theta: Float[Array, " parameter"], network: Network, where: Stencil
    ) -> Float[Array, " observation"]:
        return network.at(theta, where)

    def model(self, laws: Closures, network: Network) -> Network:
        """What `predict` needs beside theta: for a surrogate its network."""
        return network

    def read(
        self, theta: Float[Array, " parameter"], states: Float[Array, "point state"], where: Stencil
    ) -> Float[Array, " observation"]:
        """Observed quantities from a solution on the grid."""
        return self.problem.sensors.seen(theta, where.place, where.states(states[where.node]), where.quantity)

    def reverse(self) -> "Surrogate":
        return self

    def numbers(self, parameters: int) -> int:
        """Networks are products of large matrices: the whole batch at once."""
        return 0


def _supervised(
    equation: Any, network: Network, laws: Closures, theta: Array, label: Float[Array, "point state"], key: PRNGKeyArray
) -> Float[Array, "condition state"]:
    """Against the solver's solution."""
    return network.states(theta) - label


def _on_grid(
    equation: Any, network: Network, laws: Closures, theta: Array, label: None, key: PRNGKeyArray
) -> Float[Array, "condition state"]:
    """The equation as discretised on the grid."""
    return equation.grid_residual(theta, laws, network.states(theta))


def _collocated(
    equation: Any, network: Pinn, laws: Closures, theta: Array, label: None, key: PRNGKeyArray
) -> Float[Array, "condition state"]:
    """The equation at fresh random places, derivatives exact; and the conditions where they are not built in."""
    places = _spread(network.frame.problem, key)
    imbalance = equation.point_residual(theta, laws, network.function(theta), places)
    if network.hard:
        return imbalance
    # The penalty counts as much as the mean over collocation points.
    missed = network.missed(theta, key)
    return jnp.concatenate([imbalance, missed * (imbalance.shape[0] / missed.shape[0]) ** 0.5])


def _spread(problem: Problem, key: PRNGKeyArray) -> Float[Array, "place axis"]:
    """Random places, one in every stretch of each axis: evenly spread, and anywhere. On a mesh, anywhere in it."""
    if problem.triangles is not None:
        return _in_triangles(problem.points[problem.triangles], key)
    low, high = jnp.asarray(problem.bounds, float).T
    keys = jr.split(key, 1 + len(problem.axes))
    offset = jr.uniform(keys[0], (COLLOCATION, len(problem.axes)))
    stretch = [jnp.arange(COLLOCATION), *(jr.permutation(k, COLLOCATION) for k in keys[2:])]
    return low + (high - low) * (jnp.stack(stretch, axis=-1) + offset) / COLLOCATION


def _in_triangles(corners: np.ndarray, key: PRNGKeyArray) -> Float[Array, "place 2"]:
    first, second = np.moveaxis(corners[:, 1:] - corners[:, :1], 1, 0)
    area = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    key_which, key_where = jr.split(key)
    which = jr.choice(key_which, len(corners), (COLLOCATION,), p=jnp.asarray(area / area.sum(), float))
    s, t = jr.uniform(key_where, (2, COLLOCATION, 1))
    s, t = jnp.where(s + t > 1, 1 - s, s), jnp.where(s + t > 1, 1 - t, t)
    return (
        jnp.asarray(corners[:, 0], float)[which]
        + s * jnp.asarray(first, float)[which]
        + t * jnp.asarray(second, float)[which]
    )


KINDS: dict[str, tuple[Callable[..., Network], Any, bool]] = {
    "basis": (Basis, _supervised, True),
    "fno-supervised": (Operator, _supervised, True),
    "fno-physics": (Operator, _on_grid, False),
    "pinn": (Pinn, _collocated, False),
}


def surrogate(kind: str, problem: Problem, equation: Any, **options: Any) -> Surrogate:
    """The surrogate of a problem; `equation` is its solver."""
    network, condition, labelled = KINDS[kind]
    lacking = _lacking(kind, problem)
    if lacking:
        raise ProblemError(f"forward={kind!r} {lacking}; what works is {', '.join(choices(problem))}")
    if problem.shape is not None and min(problem.shape) < 5:
        raise ProblemError(
            f"a grid of {' x '.join(map(str, problem.shape))} points is too coarse for a surrogate, which needs five along each axis; "
            "choose a smaller dt (or a finer grid), or use forward='solver'"
        )
    _check_sizes(kind, network, options)
    return Surrogate(problem, equation, network, condition, labelled, tuple(sorted(options.items())))


def _check_sizes(kind: str, network: Callable[..., Network], options: dict[str, Any]) -> None:
    known = {name: p.default for name, p in inspect.signature(network).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for name, value in options.items():
        if name not in known:
            raise ProblemError(f"a network of forward={kind!r} has no {name}; it has {', '.join(known)}")
        wanted = "true or false" if isinstance(known[name], bool) else "a whole number from 1 up"
        fits = isinstance(value, bool) if isinstance(known[name], bool) else type(value) is int and value >= 1
        if not fits:
            raise ProblemError(
                f"network: {name}={value!r} of forward={kind!r} must be {wanted} (by default {known[name]})"
            )


def choices(problem: Problem) -> list[str]:
    """Forward models that a problem allows."""
    trained = [kind for kind in KINDS if not _lacking(kind, problem)]
    return ["solver", *trained] if "solver" in problem.offers else trained


def _lacking(kind: str, problem: Problem) -> str:
    """What a surrogate would need that a problem has not; nothing if it can be had."""
    network, _, labelled = KINDS[kind]
    needed = "solver" if labelled else "residual"
    if needed not in problem.offers:
        return f"is trained on the {needed} of a problem, and {problem.name!r} has none"
    if problem.parameters.given.signals:
        return f"sees numbers alone, and systems of {problem.name!r} have signals"
    if network is Pinn and problem.sloped:
        return f"knows values at the boundary but no slopes, and {problem.name!r} has natural sides or Neumann ends"
    return (
        f"needs a tensor grid, and {problem.name!r} has none" if network is Operator and problem.shape is None else ""
    )
