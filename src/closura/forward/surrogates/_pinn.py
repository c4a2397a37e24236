"""A network of place and parameters, trained on the equation itself at random places."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Equation, ForwardModel, ObservationIndex, Predictions, States
from ...laws import SolverLaws
from ...parameters import System, Theta
from ._frame import Conditions, Draw, Frame, Kind

HELD, COLLOCATION = 32, 32


class Pinn(eqx.Module):
    """A network of place and parameters. Where the problem says that velocities are rates of positions (it is solved by
    `Leapfrog`), only positions are predicted and velocities are their derivatives.

    `hard` builds initial and boundary conditions in; otherwise `missed` says how far they are missed, for a penalty.
    """

    frame: Frame
    network: eqx.nn.MLP
    hard: bool = eqx.field(static=True)

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 64, depth: int = 5, hard: bool = True):
        self.frame, self.hard = frame, hard
        problem = frame.problem
        outputs = len(problem.state_names) // (2 if problem.second_order else 1)
        inputs = sum(2 if wraps else 1 for wraps in problem.periodic) + frame.units.theta_center.shape[0]
        network = eqx.nn.MLP(inputs, outputs, width, depth, jnp.tanh, key=key)
        self.network = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, replace_fn=jnp.zeros_like
        )

    def function(self, theta: Theta, system: System) -> Callable[[Float[Array, " axis"]], Float[Array, " state"]]:
        """The solution of one system as a function of place."""
        if not self.frame.problem.second_order:
            return lambda place: self._primary(theta, system, place)

        def state(place: Array) -> Array:
            ahead = (jnp.ones_like(place),)
            return jnp.concatenate(jax.jvp(lambda t: self._primary(theta, system, t), (place,), ahead))

        return state

    def _primary(self, theta: Theta, system: System, place: Float[Array, " axis"]) -> Float[Array, " out"]:
        """What the network predicts: positions, or all states."""
        frame, problem = self.frame, self.frame.problem
        said = self.network(jnp.concatenate([*self._features(place), frame.inputs(theta, system)]))
        said = frame.scale()[: said.shape[0]] * said
        if not self.hard:
            return said
        if not problem.second_order:
            return problem.lift(theta, place, system) + problem.cutoff(place) * said
        # Position and velocity are both known at the start: what the network adds begins with the square of time.
        (begin, end), half = problem.bounds[0], said.shape[0]
        unit = (end - begin) / 8
        s, start = (place[0] - begin) / unit, problem.lift(theta, place, system)
        fade = jnp.exp(-s)
        return start[:half] * (1 + s) * fade + start[half:] * unit * s * fade + (1 - fade) ** 2 * said

    def _features(self, place: Float[Array, " axis"]) -> list[Float[Array, " feature"]]:
        """Each coordinate from -1 to 1; on a circle where it is periodic."""
        found: list[Array] = []
        for at, (low, high), wraps in zip(place, self.frame.problem.bounds, self.frame.problem.periodic):
            s = (at - low) / (high - low)
            found.append(jnp.stack([jnp.sin(2 * jnp.pi * s), jnp.cos(2 * jnp.pi * s)]) if wraps else (2 * s - 1)[None])
        return found

    def states(self, theta: Theta, system: System) -> States:
        return jax.vmap(self.function(theta, system))(lax.stop_gradient(self.frame.points))

    def at(self, theta: Theta, where: ObservationIndex, system: System) -> Predictions:
        operator = self.frame.problem.operator
        columns = operator.columns
        if columns is None or np.max(columns) >= self.network.out_size:
            return operator(theta, where, jax.vmap(self.function(theta, system))(where.place), system)
        # Positions alone are observed: no derivatives needed.
        values = jax.vmap(lambda place: self._primary(theta, system, place))(where.place)
        return values[jnp.arange(values.shape[0]), jnp.asarray(columns)[where.quantity]]

    def missed(self, theta: Theta, system: System, key: PRNGKeyArray) -> Float[Array, "condition state"]:
        """How far initial and boundary conditions are missed, at random points of the grid that have them."""
        problem, function, held = self.frame.problem, self.function(theta, system), lax.stop_gradient(self.frame.held)
        picked = held if len(held) <= HELD else held[jr.randint(key, (HELD,), 0, len(held))]
        return jax.vmap(lambda place: function(place) - problem.lift(theta, place, system))(picked)


def collocated(solver: ForwardModel, network: Pinn, laws: SolverLaws, draw: Draw) -> Conditions:
    """The equation at fresh random places, derivatives exact; and the conditions where they are not built in."""
    theta, system, key = draw.theta, draw.system, draw.key
    places = _spread(network.frame.problem, key)
    imbalance = solver.point_residual(theta, laws, network.function(theta, system), places, system)
    if network.hard:
        return imbalance
    # The penalty counts as much as the mean over collocation points.
    missed = network.missed(theta, system, key)
    return jnp.concatenate([imbalance, missed * (imbalance.shape[0] / missed.shape[0]) ** 0.5])


def _spread(problem: Equation, key: PRNGKeyArray) -> Float[Array, "place axis"]:
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
    origin, first, second = (jnp.asarray(a, float)[which] for a in (corners[:, 0], first, second))
    return origin + s * first + t * second


def _sloped(problem: Equation) -> str:
    lacking = f"knows values at the boundary but no slopes, and {problem.name!r} has natural sides or Neumann ends"
    return lacking if problem.sloped else ""


PINN = Kind(Pinn, collocated, "residual", _sloped)
