"""How much of what predictions leave open is the law's.

    law share  =  var E[q | law] / var q

is by how much the variance of a quantity q would fall, on average, if the law were known. It is between 0 and 1 whatever law and
parameters have to do with each other: parameters that follow the law count with it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..laws import SolverLaw, SolverLaws

PLACES = 16  # inputs at which a law is looked at, of all laws together
DRAWS_EACH = 8  # draws that an explanatory number takes at least
STILL = 1e-6  # a quantity that varies by less of its size does so by rounding


def law_share(
    paths: Float[np.ndarray, "draw system point quantity"],
    laws: SolverLaws,
    axes: int,
    calls: dict[str, Float[np.ndarray, "... input"]],
) -> Float[np.ndarray, "system point quantity"]:
    """The share of the variance over draws that is the laws' of which every draw has its own; NaN where there are none, or
    where nothing varies.

    E[q | law] is the linear regression of q on values of the laws at some inputs, evenly from those they are called with
    (`calls`); the explained variance is the adjusted one, which does not grow with the number of values. What q owes the law by
    a curved relation is not counted, so that shares are rather too small.
    """
    sampled = [name for name, law in laws.items() if law.spec.per_chain]
    each = min(PLACES, len(paths) // DRAWS_EACH) // max(1, len(sampled))
    if not sampled or not each:
        return np.full(paths.shape[1:], np.nan)
    seen = [values_at(laws[name], axes, _places(calls[name], each)) for name in sampled]
    values = np.concatenate([part.reshape(len(paths), -1, part.shape[-1]) for part in seen], axis=-1)
    return np.stack([_explained(paths[:, k], values[:, min(k, values.shape[1] - 1)]) for k in range(paths.shape[1])])


def _places(calls: np.ndarray, count: int) -> np.ndarray:
    """So many of the inputs (place, input), evenly from the central 98 % along the first."""
    flat = calls.reshape(-1, calls.shape[-1])
    flat = flat[np.isfinite(flat).all(axis=1)]
    ordered = flat[np.argsort(flat[:, 0], kind="stable")]
    return ordered[np.round(np.linspace(0.01, 0.99, count) * (len(ordered) - 1)).astype(int)]


def values_at(law: SolverLaw, axes: int, places: Float[np.ndarray, "place input"]) -> Float[np.ndarray, "*draw place"]:
    """What a law with so many axes in front is at some inputs."""
    return np.asarray(_values(law, axes, jnp.asarray(places, float)), float)


@eqx.filter_jit
def _values(law: SolverLaw, axes: int, places: Float[Array, "place input"]) -> Float[Array, "*draw place"]:
    def at_places(law: SolverLaw) -> Array:
        return jax.vmap(lambda x: law(*x))(places)

    function = at_places
    for _ in range(axes):
        function = eqx.filter_vmap(function)
    return function(law)


def _explained(q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of a system's quantities (draw, ...), the adjusted share of variance that values (draw, place) explain linearly."""
    usable = np.isfinite(q).all(axis=tuple(range(1, q.ndim))) & np.isfinite(values).all(axis=1)
    if np.count_nonzero(usable) < 2 * DRAWS_EACH:
        return np.full(q.shape[1:], np.nan)
    flat, values = q[usable].reshape(np.count_nonzero(usable), -1), values[usable]
    largest, along = np.abs(flat).max(axis=0, initial=0.0), directions(values)
    flat = flat - flat.mean(axis=0)
    total, open_ = np.sum(flat**2, axis=0), len(flat) - 1
    left = 1.0 - np.sum((along.T @ flat) ** 2, axis=0) / np.where(total > 0, total, 1.0)
    share = np.clip(1.0 - left * open_ / (open_ - along.shape[1]), 0.0, 1.0)
    varies = total > len(flat) * (STILL * largest) ** 2
    return np.where(varies, share, np.nan).reshape(q.shape[1:])


def directions(values: Float[np.ndarray, "draw number"]) -> Float[np.ndarray, "draw direction"]:
    """Orthonormal, all that numbers of draws can explain linearly: the leading ones, as many as there are draws for."""
    values = values - values.mean(axis=0)
    sd = values.std(axis=0)
    along, size, _ = np.linalg.svd(values / np.where(sd > 0, sd, 1.0), full_matrices=False)
    return along[:, size > 1e-5 * size.max(initial=1e-300)][:, : len(values) // DRAWS_EACH]
