"""What a network sees of laws that chains sample: their values at some inputs, in units in which draws hardly correlate."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ...laws import SolverLaws

POINTS = {1: 16, 2: 6}  # along each input of a law, by how many inputs it has
TINY = 1e-12
FLOOR = 1e-2  # of the largest standard deviation of draws: what varies less is not stretched further


class LawValues(eqx.Module):
    """z = whiten (f(inputs) - center), of all sampled laws, one after the other.

    Inputs and units change while a run finds out where solutions go and how laws vary. They are stored with the weights for
    that, and no gradient reaches them.
    """

    inputs: dict[str, Float[Array, "point input"]]
    center: Float[Array, " value"]
    whiten: Float[Array, "value value"]

    def of(self, laws: SolverLaws) -> Float[Array, " value"]:
        """Values of the laws, as prepared for one chain; differentiable in the laws."""
        places = lax.stop_gradient(self.inputs)
        # One call for all of a law's points would not do: laws are called at one place.
        return jnp.concatenate([jax.vmap(lambda x, law=laws[name]: law(*x))(places[name]) for name in sorted(places)])

    def standard(self, values: Float[Array, " value"]) -> Float[Array, " value"]:
        return lax.stop_gradient(self.whiten) @ (values - lax.stop_gradient(self.center))

    def over(self, draws: Float[Array, "draw value"]) -> "LawValues":
        """The same inputs in units of these draws: centered, uncorrelated, and of variance one where they vary most."""
        size, direction = jnp.linalg.eigh(jnp.atleast_2d(jnp.cov(draws, rowvar=False)))
        whiten = (direction / jnp.sqrt(jnp.maximum(size, 0.0) + FLOOR**2 * size[-1])).T
        # Draws that are all the same tell nothing of units.
        vary = size[-1] > TINY * jnp.mean(draws**2)
        center, whiten = (
            jnp.where(vary, new, old) for new, old in ((jnp.mean(draws, axis=0), self.center), (whiten, self.whiten))
        )
        return LawValues(self.inputs, center, whiten)


def law_values(ranges: Mapping[str, tuple[np.ndarray, np.ndarray]], units: Mapping[str, float]) -> LawValues | None:
    """Values at places evenly over the range (low, high) of each law, in its unit; None where there is no law."""
    if not ranges:
        return None
    inputs, scales = {}, []
    for name in sorted(ranges):
        low, high = (np.asarray(end, float) for end in ranges[name])
        axes = [np.linspace(a, b, POINTS[len(low)]) for a, b in zip(low, high)]
        inputs[name] = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low)), float)
        scales += [1 / units[name]] * len(inputs[name])
    return LawValues(inputs, jnp.zeros(len(scales)), jnp.diag(jnp.asarray(scales, float)))
