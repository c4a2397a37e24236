"""Networks that stand in for a solver: parameters of one system in, its state out. Initial conditions hold exactly.

Each is an equinox module with two methods: `states(theta)` on the problem's time grid, and `at(theta, where)` at the
observed points only, which is all a sampler asks for.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..problem import ODE, Leapfrog
from ._fno import FNO, Waves


class Stencil(NamedTuple):
    """Where one system was observed: grid nodes with interpolation weights, the time, and which quantity."""

    time: Float[Array, "*system observation"]
    node: Int[Array, "*system observation near"]
    weight: Float[Array, "*system observation near"]
    quantity: Int[Array, "*system observation"]

    def read(self, near: Float[Array, "observation near state"], columns: np.ndarray) -> Float[Array, " observation"]:
        """Observed quantities from the states at these nodes; `columns` are the states that quantities are."""
        values = jnp.einsum("on,ons->os", self.weight, near)
        return values[jnp.arange(values.shape[0]), jnp.asarray(columns)[self.quantity]]


class Units(NamedTuple):
    """What a network's inputs and outputs are measured in."""

    theta_center: Float[Array, " parameter"]
    theta_scale: Float[Array, " parameter"]
    state_scale: Float[Array, " state"]


def observed_columns(problem: ODE) -> np.ndarray:
    """Which state each observed quantity is."""
    return np.array([problem.state_names.index(name) for name in problem.observed])


class Frame(eqx.Module):
    """What every network knows of its problem: units, time grid, and the initial state it grows out of."""

    units: Units
    time: Float[Array, " time"]
    problem: ODE = eqx.field(static=True)

    def inputs(self, theta: Float[Array, " parameter"]) -> Float[Array, " parameter"]:
        center, scale, _ = lax.stop_gradient(self.units)
        return (theta - center) / scale

    def start(self, theta: Float[Array, " parameter"]) -> Float[Array, " state"]:
        return jnp.stack(self.problem.start(theta))

    def ramp(self, time: Float[Array, "..."]) -> Float[Array, "..."]:
        """Zero at the start, one from an eighth of the span on: what a network adds to the initial state passes through it."""
        begin, end = self.problem.span
        return -jnp.expm1(-8 * (time - begin) / (end - begin))

    def whole(
        self, theta: Float[Array, " parameter"], part: Float[Array, "*place state"], time: Float[Array, "*place"]
    ) -> Float[Array, "*place state"]:
        """The state from what a network says, in its units."""
        grown = self.ramp(lax.stop_gradient(time))[..., None] * lax.stop_gradient(self.units.state_scale)
        return self.start(theta) + grown * part

    def observed(self) -> np.ndarray:
        return observed_columns(self.problem)


class Basis(eqx.Module):
    """u(theta) = B g(theta) + c: a small network g times a learned basis B on the grid, read at observed points alone."""

    frame: Frame
    network: eqx.nn.MLP
    basis: Float[Array, "time state rank"]
    center: Float[Array, "time state"]

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 64, depth: int = 3, rank: int = 48):
        key_network, key_basis = jr.split(key)
        shape = (frame.time.shape[0], len(frame.problem.state_names))
        self.frame = frame
        self.network = eqx.nn.MLP(frame.units.theta_center.shape[0], rank, width, depth, jax.nn.silu, key=key_network)
        self.basis = _smooth_basis(shape[0], shape[1], rank, key_basis)
        self.center = jnp.zeros(shape)

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "time state"]:
        weights = self.network(self.frame.inputs(theta))
        return self.frame.whole(theta, self.basis @ weights + self.center, self.frame.time)

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        frame, weights = self.frame, self.network(self.frame.inputs(theta))
        column = jnp.asarray(frame.observed())[where.quantity]
        # Rows of the basis at the observed points: the same for every chain, so they are put together once.
        factor = frame.ramp(frame.time)[:, None] * lax.stop_gradient(frame.units.state_scale)
        rows = (factor[..., None] * self.basis)[where.node, column[:, None]]
        middle = (factor * self.center)[where.node, column[:, None]]
        grown = jnp.einsum("on,onr->or", where.weight, rows) @ weights + jnp.sum(where.weight * middle, axis=-1)
        return frame.start(theta)[column] + grown


def _smooth_basis(times: int, states: int, rank: int, key: PRNGKeyArray) -> Float[Array, "time state rank"]:
    """Cosines of every frequency, mixed over states: a start from which any smooth function is near."""
    phase = np.pi * (np.arange(times) + 0.5) / times
    waves = np.stack([np.cos(j * phase) for j in range(rank)], axis=-1) / np.sqrt(rank)
    signs = jr.normal(key, (states, rank))
    return jnp.asarray(waves, float)[:, None, :] * signs


class Operator(eqx.Module):
    """A Fourier neural operator over the time grid; parameters are channels, the whole state comes out."""

    frame: Frame
    network: FNO

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 20, modes: int | None = None, depth: int = 3):
        parameters, states = frame.units.theta_center.shape[0], len(frame.problem.state_names)
        self.frame = frame
        self.network = FNO(parameters, states, frame.time.shape, [False], key, width=width, modes=modes, depth=depth)

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "time state"]:
        return self.frame.whole(theta, self.network(self.frame.inputs(theta)), self.frame.time)

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        frame, rows = self.frame, where.node.reshape(-1)
        states = frame.whole(theta, self.network(frame.inputs(theta), rows), frame.time[rows])
        return where.read(states.reshape(*where.node.shape, -1), frame.observed())


class Pinn(eqx.Module):
    """A network of time and parameters. Where the problem says that velocities are rates of positions (it is solved by
    `Leapfrog`), only positions are predicted and velocities are their derivatives.

    `hard` builds the initial condition in; otherwise `start_error` measures how far it is missed, for a penalty.
    """

    frame: Frame
    network: eqx.nn.MLP
    hard: bool = eqx.field(static=True)

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 64, depth: int = 5, hard: bool = True):
        self.frame, self.hard = frame, hard
        outputs = len(frame.problem.state_names) // (2 if self._second_order(frame) else 1)
        inputs = 1 + frame.units.theta_center.shape[0]
        network = eqx.nn.MLP(inputs, outputs, width, depth, jnp.tanh, key=key)
        self.network = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, replace_fn=jnp.zeros_like
        )

    @staticmethod
    def _second_order(frame: Frame) -> bool:
        return isinstance(frame.problem.integrator, Leapfrog)

    def _primary(self, theta: Float[Array, " parameter"], time: Float[Array, ""]) -> Float[Array, " out"]:
        """What the network predicts: positions, or all states."""
        frame, problem = self.frame, self.frame.problem
        begin, end = problem.span
        unit = (end - begin) / 8
        s = (time - begin) / unit
        said = self.network(jnp.concatenate([(s / 4 - 1)[None], frame.inputs(theta)]))
        said = lax.stop_gradient(frame.units.state_scale)[: said.shape[0]] * said
        if not self.hard:
            return said
        start, fade = frame.start(theta), jnp.exp(-s)
        if not self._second_order(frame):
            return start + (1 - fade) * said
        half = len(problem.state_names) // 2
        return start[:half] * (1 + s) * fade + start[half:] * unit * s * fade + (1 - fade) ** 2 * said

    def motion(self, theta: Float[Array, " parameter"], time: Float[Array, ""]) -> tuple[Array, Array]:
        """The state at a time and its rate of change, by forward derivatives."""

        def primary(t: Array) -> Array:
            return self._primary(theta, t)

        def pushed(t: Array) -> tuple[Array, Array]:
            return jax.jvp(primary, (t,), (jnp.ones_like(t),))

        if not self._second_order(self.frame):
            return pushed(time)
        (position, velocity), (_, acceleration) = jax.jvp(pushed, (time,), (jnp.ones_like(time),))
        return jnp.concatenate([position, velocity]), jnp.concatenate([velocity, acceleration])

    def states(self, theta: Float[Array, " parameter"]) -> Float[Array, "time state"]:
        return jax.vmap(lambda t: self.motion(theta, t)[0])(self.frame.time)

    def at(self, theta: Float[Array, " parameter"], where: Stencil) -> Float[Array, " observation"]:
        column = jnp.asarray(self.frame.observed())[where.quantity]
        if np.max(self.frame.observed()) < self.network.out_size:
            values = jax.vmap(lambda t: self._primary(theta, t))(where.time)
        else:
            values = jax.vmap(lambda t: self.motion(theta, t)[0])(where.time)
        return values[jnp.arange(values.shape[0]), column]

    def start_error(self, theta: Float[Array, " parameter"]) -> Float[Array, " state"]:
        """How far the initial state is missed; nothing where it is built in."""
        begin = jnp.asarray(self.frame.problem.span[0], float)
        return self.motion(theta, begin)[0] - self.frame.start(theta)


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
