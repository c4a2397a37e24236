"""What is observed of a solution on a grid, and where: nodes near each observation and their weights, and what sensors see."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ..data import Observations
from ..parameters import Parameters, System, Theta, check_name
from ._shared import ProblemError, bundle, scalars, takes, trace

ON_NODE = 1e-4  # of a step: what is nearer to a node lies on it
Numbers = ArrayLike | Sequence[ArrayLike]  # what a user's function returns: one a name
States = Float[Array, "point state"]  # a solution on a grid
Predictions = Float[Array, " observation"]
LawInputs = dict[str, Float[Array, "call input"]]
Observed = Sequence[str] | str | Mapping[str, Callable[..., Numbers]] | None
Near = tuple[np.ndarray, np.ndarray]  # nodes and weights, (system, observation, near) each


class ObservationIndex(NamedTuple):
    """Where one system was observed (a batch has a leading system axis).

    An observation is read as  sum over near nodes of  weight u(node) + rate_weight du/dt(node).

    - `place`: coordinates; `node`: numbers of points of the grid; `quantity`: which of the observed quantities.
    - `rate_weight`: None where values alone are read.
    - `last`: the node of the system's last observation, at least 1; None where all systems are observed equally long.
    """

    place: Float[Array, "*system observation axis"]
    node: Int[Array, "*system observation near"]
    weight: Float[Array, "*system observation near"]
    quantity: Int[Array, "*system observation"]
    rate_weight: Float[Array, "*system observation near"] | None = None
    last: Int[Array, "*system"] | None = None

    def states(self, near: Float[Array, "observation near state"]) -> Float[Array, "observation state"]:
        """States at the observed places from those at nodes near."""
        return near[:, 0] if near.shape[1] == 1 else jnp.einsum("on,ons->os", self.weight, near)

    @classmethod
    def of(cls, data: Observations, node: np.ndarray, weight: np.ndarray) -> "ObservationIndex":
        place, quantity = jnp.asarray(data.place, float), jnp.asarray(data.quantity, jnp.int32)
        return cls(place, jnp.asarray(node, jnp.int32), jnp.asarray(weight, float), quantity)


def index_of(data: Observations, near: Near) -> ObservationIndex:
    """The index of data from nodes and weights; of one node each where every observation lies on one."""
    node, weight = near
    if np.all(weight.max(axis=-1)[data.mask] == 1):
        node = np.take_along_axis(node, weight.argmax(axis=-1)[..., None], axis=-1)
        weight = np.ones(node.shape)
    return ObservationIndex.of(data, node, weight)


def near_on_line(at: np.ndarray, count: int, periodic: bool = False, every: int = 1) -> Near:
    """Nodes and weights for places `at` in units of the step of a line of `count` nodes."""
    around = 2 * every if periodic else 0
    node, weight = near_between(at, np.arange(-around, count + around + periodic), every)
    return (node - around) % count, weight


def near_between(at: np.ndarray, line: np.ndarray, every: int = 1) -> Near:
    """The same on a line of any increasing values.

    One node each where all places fall on nodes, else four and cubic interpolation; from `every` so many-th node.
    """
    near = np.clip(np.searchsorted(line, at), 1, len(line) - 1)
    step = line[near] - line[near - 1]
    nearest = np.where(at - line[near - 1] < line[near] - at, near - 1, near)
    if np.all(np.abs(at - line[nearest]) < ON_NODE * step) or len(line) < 4:
        return nearest[..., None], np.ones((*at.shape, 1))
    coarse = line[::every]
    first = np.clip(np.searchsorted(coarse, at) - 2, 0, len(coarse) - 4)
    node = first[..., None] + np.arange(4)
    return every * node, lagrange(at, coarse[node])


def near_on_grid(lines: list[Near], shape: tuple[int, ...]) -> Near:
    """Nodes and weights on a tensor grid, the last axis fastest, from those along each of its axes."""
    node, weight = lines[0]
    for (at, share), count in zip(lines[1:], shape[1:]):
        node = (node[..., :, None] * count + at[..., None, :]).reshape(*node.shape[:-1], -1)
        weight = (weight[..., :, None] * share[..., None, :]).reshape(*weight.shape[:-1], -1)
    return node, weight


def interpolation_error(
    axes: dict[str, int],
    near: Callable[[np.ndarray, tuple[int, ...]], Near],
    data: Observations,
    fit: np.ndarray,
    unit: np.ndarray,
) -> dict[str, float]:
    """Root mean square over observations, in units of the noise, of reading `fit` (system, quantity, point) by cubic
    interpolation along each of `axes`, {name: nodes}, where observations lie off the grid; near(places, every) are nodes and
    weights from every so many-th node.

    The error of a cubic is of fourth order: what reading from every other node differs by is fifteen times that.
    """

    def read(every: tuple[int, ...]) -> np.ndarray:
        node, weight = near(data.place, every)
        system = np.arange(len(fit))[:, None, None]
        return np.sum(weight * fit[system, data.quantity[..., None], node], axis=-1)

    found, full = {}, read((1,) * len(axes))
    for axis, (name, count) in enumerate(axes.items()):
        if count >= 8:
            coarser = tuple(2 if other == axis else 1 for other in range(len(axes)))
            apart = ((read(coarser) - full) / 15 / unit)[data.mask]
            found[name] = float(np.sqrt(np.mean(apart**2)))
    return found


def lagrange(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Weights of four nodes in the cubic through them, at x."""
    others = [[j for j in range(4) if j != i] for i in range(4)]
    weights = [np.prod([(x - at[..., j]) / (at[..., i] - at[..., j]) for j in others[i]], axis=0) for i in range(4)]
    return np.stack(weights, axis=-1)


class ObservationOperator:
    """Observed quantities by name: states themselves, or functions (state, p) or (state, p, place) of them.

    `place` is the time of an ODE; in fields it is (t, x), (x, y) or (t, x, y).
    """

    def __init__(self, observed: Observed, states: tuple[str, ...], parameters: Parameters, axes: int):
        self.states, self.parameters = states, parameters
        self.functions = dict(observed) if isinstance(observed, Mapping) else None
        self.record = bundle("state", states)
        names = states if observed is None else (observed,) if isinstance(observed, str) else tuple(observed)
        self.names: tuple[str, ...] = names
        if not self.names:
            raise ProblemError("nothing is observed; name a state, or give functions of it")
        for name in self.names:
            if self.functions is not None:
                check_name(name, "observed")
                if not callable(self.functions[name]):
                    raise ProblemError(
                        f"observed {name!r} is {self.functions[name]!r}; write a function like lambda state, p: ..."
                    )
            elif name not in states:
                raise ProblemError(
                    f"observed {name!r} is not part of the solution, which is {', '.join(states)}. A function of it is written as "
                    f"observed={{{name!r}: lambda state, p: ...}}"
                )

        if self.functions is not None:
            count = len(states)

            def probe(theta: Array, *numbers: Array) -> Array:
                return self.quantities(theta, jnp.stack(numbers[count:]), jnp.stack(numbers[:count]), 0)

            trace(probe, len(parameters), count + axes, "what is observed")

    @property
    def columns(self) -> np.ndarray | None:
        """Which state each quantity is; None where some are functions."""
        return None if self.functions is not None else np.array([self.states.index(name) for name in self.names])

    def quantities(
        self, theta: Theta, place: Float[Array, " axis"], state: Float[Array, " state"], system: System
    ) -> Float[Array, " quantity"]:
        """All quantities of one state."""
        if self.functions is None:
            return state[self.columns]
        p = self.parameters.constrain(theta, system)
        here = place[0] if place.shape[0] == 1 else place
        found: list[Array] = []
        for name, function in self.functions.items():
            more = (here,) if takes(function, 3) else ()
            found += scalars(function(self.record(*state), p, *more), f"observed {name!r}", (name,))
        return jnp.stack(found)

    def on_grid(
        self, theta: Theta, places: Float[Array, "point axis"], states: States, system: System
    ) -> Float[Array, "point quantity"]:
        """All quantities at all points."""
        if self.functions is None:
            return states[:, self.columns]
        return jax.vmap(lambda place, state: self.quantities(theta, place, state, system))(places, states)

    def __call__(
        self, theta: Theta, where: ObservationIndex, states: Float[Array, "observation state"], system: System
    ) -> Predictions:
        """Of the state at each observed place the quantity that was observed there."""
        return self.on_grid(theta, where.place, states, system)[jnp.arange(states.shape[0]), where.quantity]
