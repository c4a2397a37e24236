"""Time derivatives of what is known at equidistant times."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# At the last time, from it and the four before.
BACKWARD = (25 / 12, -4.0, 3.0, -4 / 3, 1 / 4)


def time_slopes(values: Float[Array, "time ..."], interval: float) -> Float[Array, "later ..."]:
    """At every time but the first: of fourth order, of second at the next to the first and the next to the last."""
    near = (values[2:] - values[:-2]) / (2 * interval)
    wide = (values[4:] - values[:-4]) / (4 * interval)
    last = jnp.tensordot(jnp.asarray(BACKWARD, values.dtype), values[:-6:-1], axes=1) / interval
    return jnp.concatenate([near[:1], (4 * near[1:-1] - wide) / 3, near[-1:], last[None]])
