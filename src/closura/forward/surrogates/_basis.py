"""A learned basis on the grid, its coefficients a small network of the parameters, and of the laws that chains sample."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Equation, ObservationIndex, Predictions, States
from ...laws import SolverLaws
from ...parameters import System, Theta
from ._frame import Frame, Kind, supervised
from ._law_values import LawValues

LEAST = 1e-5  # of the largest standard deviation, that of the least of a basis
LawVector = Float[Array, " value"]  # of all laws, as `LawValues` has them


class Basis(eqx.Module):
    """u(theta) = B g(theta) + c: a small network g times a learned basis B on the grid, read at observed points alone.

    Where chains sample laws,  u(theta, f) = B (g(theta, z) + A (theta, z)) + c  with z the values of f at some inputs: one
    network serves every law that chains believe, and its derivative in the law is its own.
    """

    frame: Frame
    network: eqx.nn.MLP
    basis: Float[Array, "point state rank"]
    center: States
    laws: LawValues | None
    linear: Float[Array, "rank input"] | None

    def __init__(
        self,
        frame: Frame,
        key: PRNGKeyArray,
        laws: LawValues | None = None,
        *,
        width: int = 64,
        depth: int = 3,
        rank: int = 48,
    ):
        key_network, key_basis = jr.split(key)
        states = len(frame.problem.state_names)
        count = frame.units.theta_center.shape[0] + (0 if laws is None else len(laws.center))
        self.frame, self.laws = frame, laws
        self.network = eqx.nn.MLP(count, rank, width, depth, jax.nn.silu, key=key_network)
        self.basis = _smooth_basis(frame.problem, states, rank, key_basis)
        self.center = jnp.zeros(self.basis.shape[:2])
        # Where laws differ by as little as data allow, most of what they change is linear.
        self.linear = None if laws is None else jnp.zeros((rank, count))

    def given(self, values: Float[Array, " value"]) -> "Asked":
        """The network, asked about laws with these values at its inputs."""
        return Asked(self, values)

    def seeing(self, laws: SolverLaws) -> "Basis | Asked":
        """The network, asked about these laws."""
        return self if self.laws is None else self.given(self.laws.of(laws))

    def inputs(self, theta: Theta, system: System, law: LawVector | None = None) -> Float[Array, " input"]:
        """What the network sees of parameters, known inputs and laws."""
        inputs = self.frame.inputs(theta, system)
        if self.laws is None:
            return inputs
        # Of a network that is asked about no law in particular, the one that draws are about.
        seen = jnp.zeros_like(self.laws.center) if law is None else self.laws.standard(law)
        return jnp.concatenate([inputs, seen])

    def coefficients(self, inputs: Float[Array, " input"]) -> Float[Array, " rank"]:
        """Of the basis."""
        return self.network(inputs) if self.linear is None else self.network(inputs) + self.linear @ inputs

    def renewed(self, key: PRNGKeyArray, laws: LawValues, parts: Float[Array, "draw point state"]) -> "Basis":
        """A new network of the same size, which sees laws in other units, on the principal components of solutions: `parts` is
        what they have beside what is known of them (`Frame.part`). Coefficients of these draws have variance one."""
        sizes = {"width": self.network.width_size, "depth": self.network.depth, "rank": self.basis.shape[-1]}
        new = Basis(self.frame, key, laws, **sizes)
        draws, shape = parts.reshape(len(parts), -1), self.center.shape
        center = jnp.mean(draws, axis=0)
        size, direction = _principal(draws - center, sizes["rank"])
        factor = jnp.broadcast_to(self.frame.cutoff[:, None], shape).ravel()
        over = jnp.where(factor > 0, 1 / jnp.where(factor > 0, factor, 1.0), 0.0)
        basis = (over * size[:, None] * direction).T.reshape(*shape, len(size))
        return eqx.tree_at(lambda b: (b.basis, b.center), new, (basis, (over * center).reshape(shape)))

    def targets(self, parts: Float[Array, "draw point state"]) -> Float[Array, "draw rank"]:
        """The coefficients that come nearest to solutions, on a basis that spans them."""
        factor = self.frame.cutoff[:, None]
        modes = (factor[..., None] * self.basis).reshape(-1, self.basis.shape[-1])
        away = parts.reshape(len(parts), -1) - (factor * self.center).ravel()
        return away @ modes / jnp.sum(modes**2, axis=0)

    def states(self, theta: Theta, system: System, law: LawVector | None = None) -> States:
        weights = self.coefficients(self.inputs(theta, system, law))
        return self.frame.whole(theta, system, self.basis @ weights + self.center)

    def at(self, theta: Theta, where: ObservationIndex, system: System, law: LawVector | None = None) -> Predictions:
        frame, weights = self.frame, self.coefficients(self.inputs(theta, system, law))
        # Rows of the basis at the observed points: the same for every chain, so they are put together once.
        factor = lax.stop_gradient(frame.cutoff)[:, None] * frame.scale()
        basis, center, operator = (factor[..., None] * self.basis), factor * self.center, frame.problem.operator
        lift = where.states(frame.lift(theta, system, where.node.reshape(-1)).reshape(*where.node.shape, -1))
        columns = operator.columns
        if columns is None:
            rows = jnp.einsum("on,onsr->osr", where.weight, basis[where.node])
            return operator(theta, where, lift + rows @ weights + where.states(center[where.node]), system)
        state, each = jnp.asarray(columns)[where.quantity], jnp.arange(len(where.quantity))
        rows = jnp.einsum("on,onr->or", where.weight, basis[where.node, state[:, None]])
        return lift[each, state] + rows @ weights + where.states(center[where.node])[each, state]


class Asked(eqx.Module):
    """A network, asked about laws with given values."""

    network: Basis
    law: LawVector

    @property
    def frame(self) -> Frame:
        return self.network.frame

    def states(self, theta: Theta, system: System) -> States:
        return self.network.states(theta, system, self.law)

    def at(self, theta: Theta, where: ObservationIndex, system: System) -> Predictions:
        return self.network.at(theta, where, system, self.law)


def _smooth_basis(problem: Equation, states: int, rank: int, key: PRNGKeyArray) -> Float[Array, "point state rank"]:
    """Cosines of the lowest frequencies, mixed over states: a start from which any smooth function is near."""
    low, high = np.array(problem.bounds).T
    phase = np.pi * (problem.points - low) / (high - low)
    most = int(np.ceil(rank ** (1 / len(low)))) * 2
    found = sorted(itertools.product(range(most if len(low) > 1 else rank), repeat=len(low)), key=np.linalg.norm)[:rank]
    waves = np.stack([np.prod(np.cos(np.array(j) * phase), axis=1) for j in found], axis=-1) / np.sqrt(rank)
    signs = jr.normal(key, (states, rank))
    return jnp.asarray(waves, float)[:, None, :] * signs


def _principal(
    draws: Float[Array, "draw number"], rank: int
) -> tuple[Float[Array, " rank"], Float[Array, "rank number"]]:
    """Standard deviations and directions (orthonormal) of the principal components, by a few steps of subspace iteration."""
    start = jr.normal(jr.key(0), (draws.shape[1], rank))

    def once(_: Array, space: Array) -> Array:
        return jnp.linalg.qr(draws.T @ (draws @ space))[0]

    space = lax.fori_loop(0, 4, once, jnp.linalg.qr(start)[0])
    square, turn = jnp.linalg.eigh((draws @ space).T @ (draws @ space) / len(draws))
    # Where there are fewer directions than asked for, the rest stays finite.
    size = jnp.sqrt(jnp.maximum(square, LEAST**2 * square[-1]) + 1e-30)
    return size, (space @ turn).T


BASIS = Kind(Basis, supervised, "solution", sees_laws=True)
