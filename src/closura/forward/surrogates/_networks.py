"""Networks that stand in for a solver: parameters of one system in, its solution out. Conditions are built in.

Each is an equinox module with two methods: `states(theta)` at the points of the problem's grid, and `at(theta, where)` at
the observed points only, which is all a sampler asks for.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Leapfrog, Problem, Stencil
from ._fno import FNO, Waves

HELD = 32


class Units(NamedTuple):
    """What a network's inputs and outputs are measured in."""

    theta_center: Float[Array, " parameter"]
    theta_scale: Float[Array, " parameter"]
    state_scale: Float[Array, " state"]


class Frame(eqx.Module):
    """What every network knows of its problem: units, grid, and the conditions that its solution grows out of."""

    units: Units
    points: Float[Array, "point axis"]
    free: Float[Array, " point"]
    held: Float[Array, "condition axis"]
    problem: Problem = eqx.field(static=True)

    def __init__(self, units: Units, problem: Problem):
        self.units, self.problem = units, problem
        self.points = jnp.asarray(problem.points, float)
        self.free = jnp.where(problem.known, 0.0, jax.vmap(problem.free)(self.points))  # conditions hold exactly
        self.held = self.points[problem.known]

    def inputs(self, theta: Float[Array, " parameter"]) -> Float[Array, " parameter"]:
        center, scale, _ = lax.stop_gradient(self.units)
        return (self.problem.parameters.features(theta) - center) / scale

    def scale(self) -> Float[Array, " state"]:
        return lax.stop_gradient(self.units.state_scale)

    def base(self, theta: Float[Array, " parameter"], rows: Any = slice(None)) -> Float[Array, "row state"]:
        """What is known of the solution, at all points or at some."""
        return jax.vmap(lambda place: self.problem.base(theta, place))(lax.stop_gradient(self.points)[rows])

    def whole(
        self, theta: Float[Array, " parameter"], part: Float[Array, "row state"], rows: Any = slice(None)
    ) -> Float[Array, "row state"]:
        """The solution from what a network says, in its units, at all points or at some."""
        return self.base(theta, rows) + lax.stop_gradient(self.free)[rows, None] * self.scale() * part

    def seen(
        self, theta: Float[Array, " parameter"], where: Stencil, states: Float[Array, "observation state"]
    ) -> Float[Array, " observation"]:
        return self.problem.sensors.seen(theta, where.place, states, where.quantity)


class Basis(eqx.Module):
    """u(theta) = B g(theta) + c: a small network g times a learned basis B on the grid, read at observed points alone."""

    frame: Frame
    network: eqx.nn.MLP
    basis: Float[Array, "point state rank"]
    center: Float[Array, "point state"]

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 64, depth: int = 3, rank: int = 48):
        key_network, key_basis = jr.split(key)
        states = len(frame.problem.state_names)
        self.frame = frame
        self.network = eqx.nn.MLP(frame.units.theta_center.shape[0], rank, width, depth, jax.nn.silu, key=key_network)
        self.basis = _smooth_basis(frame.problem, states, rank, key_basis)
        self.center = jnp.zeros(self.basis.shape[:2])

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "point state"]:
        weights = self.network(self.frame.inputs(theta))
        return self.frame.whole(theta, self.basis @ weights + self.center)

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        frame, weights = self.frame, self.network(self.frame.inputs(theta))
        # Rows of the basis at the observed points: the same for every chain, so they are put together once.
        factor = lax.stop_gradient(frame.free)[:, None] * frame.scale()
        basis, center, columns = (factor[..., None] * self.basis), factor * self.center, frame.problem.sensors.columns
        base = where.states(frame.base(theta, where.node.reshape(-1)).reshape(*where.node.shape, -1))
        if columns is None:
            rows = jnp.einsum("on,onsr->osr", where.weight, basis[where.node])
            return frame.seen(theta, where, base + rows @ weights + where.states(center[where.node]))
        state, each = jnp.asarray(columns)[where.quantity], jnp.arange(len(where.quantity))
        rows = jnp.einsum("on,onr->or", where.weight, basis[where.node, state[:, None]])
        return base[each, state] + rows @ weights + where.states(center[where.node])[each, state]


def _smooth_basis(problem: Problem, states: int, rank: int, key: PRNGKeyArray) -> Float[Array, "point state rank"]:
    """Cosines of the lowest frequencies, mixed over states: a start from which any smooth function is near."""
    low, high = np.array(problem.bounds).T
    phase = np.pi * (problem.points - low) / (high - low)
    most = int(np.ceil(rank ** (1 / len(low)))) * 2
    found = sorted(itertools.product(range(most if len(low) > 1 else rank), repeat=len(low)), key=np.linalg.norm)[:rank]
    waves = np.stack([np.prod(np.cos(np.array(j) * phase), axis=1) for j in found], axis=-1) / np.sqrt(rank)
    signs = jr.normal(key, (states, rank))
    return jnp.asarray(waves, float)[:, None, :] * signs


class Operator(eqx.Module):
    """A Fourier neural operator over the grid; parameters are channels, the whole state comes out."""

    frame: Frame
    network: FNO

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 20, modes: int | None = None, depth: int = 3):
        problem, parameters = frame.problem, frame.units.theta_center.shape[0]
        assert problem.shape is not None, "only problems on a tensor grid are given an operator"
        self.frame = frame
        self.network = FNO(
            parameters,
            len(problem.state_names),
            problem.shape,
            problem.periodic,
            key,
            width=width,
            modes=modes,
            depth=depth,
        )

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "point state"]:
        said = self.network(self.frame.inputs(theta))
        return self.frame.whole(theta, said.reshape(-1, said.shape[-1]))

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        frame, rows = self.frame, where.node.reshape(-1)
        states = frame.whole(theta, self.network(frame.inputs(theta), rows), rows)
        return frame.seen(theta, where, where.states(states.reshape(*where.node.shape, -1)))


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
        outputs = len(problem.state_names) // (2 if self._second_order else 1)
        inputs = sum(2 if wraps else 1 for wraps in problem.periodic) + frame.units.theta_center.shape[0]
        network = eqx.nn.MLP(inputs, outputs, width, depth, jnp.tanh, key=key)
        self.network = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, replace_fn=jnp.zeros_like
        )

    @property
    def _second_order(self) -> bool:
        return isinstance(getattr(self.frame.problem, "integrator", None), Leapfrog)

    def function(self, theta: Float[Array, " parameter"]) -> Callable[[Float[Array, " axis"]], Float[Array, " state"]]:
        """The solution of one system as a function of place."""
        if not self._second_order:
            return lambda place: self._primary(theta, place)

        def state(place: Array) -> Array:
            ahead = (jnp.ones_like(place),)
            return jnp.concatenate(jax.jvp(lambda t: self._primary(theta, t), (place,), ahead))

        return state

    def _primary(self, theta: Float[Array, " parameter"], place: Float[Array, " axis"]) -> Float[Array, " out"]:
        """What the network predicts: positions, or all states."""
        frame, problem = self.frame, self.frame.problem
        said = self.network(jnp.concatenate([*self._features(place), frame.inputs(theta)]))
        said = frame.scale()[: said.shape[0]] * said
        if not self.hard:
            return said
        if not self._second_order:
            return problem.base(theta, place) + problem.free(place) * said
        # Position and velocity are both known at the start: what the network adds begins with the square of time.
        (begin, end), half = problem.bounds[0], said.shape[0]
        unit = (end - begin) / 8
        s, start = (place[0] - begin) / unit, problem.base(theta, place)
        fade = jnp.exp(-s)
        return start[:half] * (1 + s) * fade + start[half:] * unit * s * fade + (1 - fade) ** 2 * said

    def _features(self, place: Float[Array, " axis"]) -> list[Float[Array, " feature"]]:
        """Each coordinate from -1 to 1; on a circle where it is periodic."""
        found: list[Array] = []
        for at, (low, high), wraps in zip(place, self.frame.problem.bounds, self.frame.problem.periodic):
            s = (at - low) / (high - low)
            found.append(jnp.stack([jnp.sin(2 * jnp.pi * s), jnp.cos(2 * jnp.pi * s)]) if wraps else (2 * s - 1)[None])
        return found

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "point state"]:
        return jax.vmap(self.function(theta))(lax.stop_gradient(self.frame.points))

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        columns = self.frame.problem.sensors.columns
        if columns is None or np.max(columns) >= self.network.out_size:
            return self.frame.seen(theta, where, jax.vmap(self.function(theta))(where.place))
        # Positions alone are observed: no derivatives needed.
        values = jax.vmap(lambda place: self._primary(theta, place))(where.place)
        return values[jnp.arange(values.shape[0]), jnp.asarray(columns)[where.quantity]]

    def missed(self, theta: Float[Array, " parameter"], key: PRNGKeyArray) -> Float[Array, "condition state"]:
        """How far initial and boundary conditions are missed, at random points of the grid that have them."""
        problem, function, held = self.frame.problem, self.function(theta), lax.stop_gradient(self.frame.held)
        picked = held if len(held) <= HELD else held[jr.randint(key, (HELD,), 0, len(held))]
        return jax.vmap(lambda place: function(place) - problem.base(theta, place))(picked)


@runtime_checkable
class Network(Protocol):
    """What a surrogate needs: a module with a frame that can be asked for a solution, whole or at observed points."""

    frame: Frame

    def states(self, theta: Any) -> Any: ...

    def at(self, theta: Any, where: Any) -> Any: ...


def trainable(network: Network | None) -> Any:
    """Which leaves are trained: all but the frame and the waves."""
    fixed = (Frame, Waves)
    return jax.tree.map(
        lambda part: not isinstance(part, fixed) and eqx.is_inexact_array(part),
        network,
        is_leaf=lambda part: isinstance(part, fixed),
    )
