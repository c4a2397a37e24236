"""A learned basis on the grid, its coefficients a small network of the parameters."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ...equations import Equation, ObservationIndex, Predictions, States
from ...parameters import System, Theta
from ._frame import Frame, Kind, supervised


class Basis(eqx.Module):
    """u(theta) = B g(theta) + c: a small network g times a learned basis B on the grid, read at observed points alone."""

    frame: Frame
    network: eqx.nn.MLP
    basis: Float[Array, "point state rank"]
    center: States

    def __init__(self, frame: Frame, key: PRNGKeyArray, *, width: int = 64, depth: int = 3, rank: int = 48):
        key_network, key_basis = jr.split(key)
        states = len(frame.problem.state_names)
        self.frame = frame
        self.network = eqx.nn.MLP(frame.units.theta_center.shape[0], rank, width, depth, jax.nn.silu, key=key_network)
        self.basis = _smooth_basis(frame.problem, states, rank, key_basis)
        self.center = jnp.zeros(self.basis.shape[:2])

    def states(self, theta: Theta, system: System) -> States:
        weights = self.network(self.frame.inputs(theta, system))
        return self.frame.whole(theta, system, self.basis @ weights + self.center)

    def at(self, theta: Theta, where: ObservationIndex, system: System) -> Predictions:
        frame, weights = self.frame, self.network(self.frame.inputs(theta, system))
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


def _smooth_basis(problem: Equation, states: int, rank: int, key: PRNGKeyArray) -> Float[Array, "point state rank"]:
    """Cosines of the lowest frequencies, mixed over states: a start from which any smooth function is near."""
    low, high = np.array(problem.bounds).T
    phase = np.pi * (problem.points - low) / (high - low)
    most = int(np.ceil(rank ** (1 / len(low)))) * 2
    found = sorted(itertools.product(range(most if len(low) > 1 else rank), repeat=len(low)), key=np.linalg.norm)[:rank]
    waves = np.stack([np.prod(np.cos(np.array(j) * phase), axis=1) for j in found], axis=-1) / np.sqrt(rank)
    signs = jr.normal(key, (states, rank))
    return jnp.asarray(waves, float)[:, None, :] * signs


BASIS = Kind(Basis, supervised, "solution")
