"""Surrogates as forward models: the same questions a solver answers, asked of a network, and the loss that trains it."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..problem import ODE, Observations, ProblemError
from ..problem._closure import Closures
from ._networks import Basis, Frame, Network, Operator, Pinn, Stencil, Units, observed_columns

COLLOCATION = 32


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """A network in place of the solver.

    `residual` is what training makes small, one number a condition; the loss is its mean square. `labelled` says that it
    compares with the solver's solution, otherwise the equation itself is all it needs.
    """

    trained: ClassVar[bool] = True
    problem: ODE
    network: Callable[..., Network]
    residual: Callable[..., Float[Array, " condition"]]
    labelled: bool
    options: tuple[tuple[str, Any], ...] = ()

    def build(self, units: Units, key: PRNGKeyArray) -> Network:
        frame = Frame(units, jnp.asarray(self.problem.times, float), self.problem)
        return self.network(frame, key, **dict(self.options))

    def predict(
        self, theta: Float[Array, " parameter"], network: Network, where: Stencil
    ) -> Float[Array, " observation"]:
        return network.at(theta, where)

    def model(self, laws: Closures, network: Network) -> Network:
        """What `predict` needs beside theta: for a surrogate its network."""
        return network

    def read(self, states: Float[Array, "time state"], where: Stencil) -> Float[Array, " observation"]:
        """Observed quantities from a solution on the grid."""
        return where.read(states[where.node], observed_columns(self.problem))

    def reverse(self) -> "Surrogate":
        return self

    def numbers(self, parameters: int) -> int:
        """Networks are products of large matrices: the whole batch at once."""
        return 0


def _supervised(
    network: Network, laws: Closures, theta: Array, label: Float[Array, "time state"], key: PRNGKeyArray
) -> Float[Array, " condition"]:
    """Against the solver's solution."""
    return jnp.ravel((network.states(theta) - label) / network.frame.units.state_scale)


def _differences(
    network: Network, laws: Closures, theta: Array, label: None, key: PRNGKeyArray
) -> Float[Array, " condition"]:
    """The equation on the grid, time derivatives by central differences of fourth order (of second next to the ends)."""
    frame = network.frame
    states, dt = network.states(theta), frame.problem.dt
    near = (states[2:] - states[:-2]) / (2 * dt)
    wide = (states[4:] - states[:-4]) / (4 * dt)
    slope = jnp.concatenate([near[:1], (4 * near[1:-1] - wide) / 3, near[-1:]])
    return _imbalance(frame, laws, theta, frame.time[1:-1], states[1:-1], slope)


def _collocated(
    network: Pinn, laws: Closures, theta: Array, label: None, key: PRNGKeyArray
) -> Float[Array, " condition"]:
    """The equation at fresh random times, time derivatives exact; and the initial condition where it is not built in."""
    frame = network.frame
    begin, end = frame.problem.span
    # One in every stretch of the span: evenly spread, and anywhere.
    times = begin + (end - begin) * (jnp.arange(COLLOCATION) + jr.uniform(key, (COLLOCATION,))) / COLLOCATION
    states, slope = jax.vmap(lambda t: network.motion(theta, t))(times)
    imbalance = _imbalance(frame, laws, theta, times, states, slope)
    if network.hard:
        return imbalance
    # The penalty counts as much as the mean over collocation points.
    missed = network.start_error(theta) / frame.units.state_scale * imbalance.size**0.5
    return jnp.concatenate([imbalance, missed])


def _imbalance(frame: Frame, laws: Closures, theta: Array, times: Array, states: Array, slope: Array) -> Array:
    """Rate of change less right-hand side, in units of the states over an eighth of the span."""
    rate = frame.problem.rate(theta, laws)
    needed = jax.vmap(lambda t, y: jnp.stack(rate(t, tuple(y))))(times, states)
    begin, end = frame.problem.span
    return jnp.ravel((slope - needed) / frame.units.state_scale) * ((end - begin) / 8)


KINDS: dict[str, tuple[Callable[..., Network], Any, bool]] = {
    "basis": (Basis, _supervised, True),
    "fno-supervised": (Operator, _supervised, True),
    "fno-physics": (Operator, _differences, False),
    "pinn": (Pinn, _collocated, False),
}


def surrogate(kind: str, problem: ODE, data: Observations, **options: Any) -> tuple[Surrogate, Stencil]:
    """The surrogate of a problem, and where it is read off for these data."""
    network, residual, labelled = KINDS[kind]
    needed = "solver" if labelled else "residual"
    if needed not in problem.offers:
        raise ProblemError(
            f"forward={kind!r} is trained on the {needed} of a problem, and {problem.name!r} has none; "
            f"what works is {', '.join(choices(problem))}"
        )
    known = [name for name, p in inspect.signature(network).parameters.items() if p.kind is p.KEYWORD_ONLY]
    wrong = [name for name in options if name not in known]
    if wrong:
        raise ProblemError(f"a network of forward={kind!r} has no {', '.join(wrong)}; it has {', '.join(known)}")
    return Surrogate(problem, network, residual, labelled, tuple(sorted(options.items()))), stencil(problem, data)


def choices(problem: ODE) -> list[str]:
    """Forward models that a problem allows."""
    trained = [
        kind for kind, (*_, labelled) in KINDS.items() if ("solver" if labelled else "residual") in problem.offers
    ]
    return ["solver", *trained] if "solver" in problem.offers else trained


def stencil(problem: ODE, data: Observations) -> Stencil:
    """Observation times on the grid: one node each where they fall on it, else four and cubic interpolation."""
    place = (data.time - problem.span[0]) / problem.dt
    nearest = np.round(place)
    if np.all(np.abs(place - nearest) < 1e-4) or problem.steps < 3:
        node, weight = nearest[..., None], np.ones((*place.shape, 1))
    else:
        first = np.clip(np.floor(place) - 1, 0, problem.steps - 3)
        node = first[..., None] + np.arange(4)
        weight = _lagrange(place - first)
    return Stencil(
        jnp.asarray(data.time, float),
        jnp.asarray(node, jnp.int32),
        jnp.asarray(weight, float),
        jnp.asarray(data.quantity, jnp.int32),
    )


def _lagrange(x: np.ndarray) -> np.ndarray:
    """Weights of the nodes 0, 1, 2, 3 in the cubic through them, at x."""
    nodes = np.arange(4)
    weights = [np.prod([(x - j) / (i - j) for j in nodes if j != i], axis=0) for i in nodes]
    return np.stack(weights, axis=-1)
