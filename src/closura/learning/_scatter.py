"""Laws about those that chains hold: what a surrogate is trained on while chains of a group still share one law.

    a' = a + L xi,     theta_k' = theta_k + T_k (a' - a),      L L' = (H + P + V' V / w^2)^-1

H is the tempered information of the data with all else eliminated, P the precision of the prior, T_k how theta_k follows. V
are the gradients of the values that a surrogate sees: where neither data nor prior hold a law, these scatter by w units.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ..forward import LawValues
from ..laws import prepare
from ..population import normal
from ..sampling import Chains, GroupKeys, Posterior, uniforms_by_group
from ..sampling._gauss_newton import Elimination, coordinates

WIDER = 1.2  # than the posterior: its tails are visited too
FARTHEST = 1.0  # units of a law, its standard deviation where nothing else holds it


class Scatter(NamedTuple):
    """L and T_k of every group; coordinates are those of all sampled laws, one after the other."""

    law: Float[Array, "group coordinate coordinate"]
    theta: Float[Array, "group system parameter coordinate"]


def no_scatter(chains: Chains) -> Scatter:
    """Every law where it is."""
    groups, _, systems, parameters = chains.theta.shape
    count = sum(w.shape[-1] for w in coordinates(chains.law).values())
    return Scatter(jnp.zeros((groups, count, count)), jnp.zeros((groups, systems, parameters, count)))


def scatter_about(
    posterior: Posterior, chains: Chains, values: LawValues, left: list[Elimination], precision: list[np.ndarray]
) -> Scatter:
    """About the first chain of every group, from what is left of its (tempered) information when all else follows."""
    units = {name: chains.law[name].unit(posterior.ranges[name]) for name in coordinates(chains.law)}
    unit = np.concatenate([np.full(len(values.inputs[name]), units[name]) for name in sorted(values.inputs)])
    gradients = np.asarray(jit_soon(_value_gradients)(values, chains.law, posterior.ranges), float)
    roots = []
    for gradient, part, prior in zip(gradients, left, precision):
        seen = gradient / (FARTHEST * unit)[:, None]
        size, direction = np.linalg.eigh(part.law + np.diag(prior) + seen.T @ seen)
        # Rounding may make what data do not see slightly negative; the prior's precision is no smaller than this.
        roots.append(direction / np.sqrt(np.maximum(size, 1e-9 * size[-1])))
    shears = np.stack([part.theta for part in left])
    return Scatter(*(jnp.asarray(part, chains.theta.dtype) for part in (np.stack(roots), shears)))


def _value_gradients(values: LawValues, laws: PyTree, frames: PyTree) -> Float[Array, "group value coordinate"]:
    def of_group(laws: PyTree) -> Array:
        held = coordinates(laws)

        def at(weights: dict[str, Array]) -> Array:
            own = {name: law.with_weights(weights.get(name)) for name, law in laws.items()}
            return values.of(prepare(own, frames))

        return jnp.concatenate(list(jax.jacfwd(at)(held).values()), axis=-1)

    return jax.vmap(of_group)(jax.tree.map(lambda a: a[:, 0], laws))


def scattered(
    keys: GroupKeys, theta: Float[Array, "group chain system parameter"], laws: PyTree, scatter: Scatter
) -> tuple[Array, PyTree]:
    """Parameters and laws of some chains, each law moved by a draw of its own, and theta with it."""
    held = coordinates(laws)
    (uniform,) = uniforms_by_group(keys, (theta.shape[1], scatter.law.shape[-1]))
    change = WIDER * jnp.einsum("gij,gcj->gci", scatter.law, normal(uniform))
    ends = np.cumsum([w.shape[-1] for w in held.values()])
    moved = {name: w + part for (name, w), part in zip(held.items(), jnp.split(change, ends[:-1], axis=-1))}
    laws = {name: law.with_weights(moved.get(name)) for name, law in laws.items()}
    return theta + jnp.einsum("gspi,gci->gcsp", scatter.theta, change), laws
