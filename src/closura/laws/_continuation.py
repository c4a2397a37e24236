"""Longer tables of smooth laws: beyond the end of a table the prior goes on, given what the law is inside.

Outside a table a law is a straight line, far surer of itself than anybody is. A longer table has the same nodes, and more at
either end. There the coordinates inside tell what to expect; what they leave open has coordinates of its own, as many a node
as a table has, independent given the sizes, so that a longer table has a frame of the same prior.
"""

import jax.numpy as jnp
import numpy as np

from ._basis import FINE, TREND, Frame, Kernel, Smooth, between, ends, largest, node_places, whitening
from ._table import Axis


def longer(frame: Frame, prior: Smooth, steps: int) -> tuple[Frame, int]:
    """The frame of a table with so many more steps at either end, and how many coordinates it has more.

    An end beyond which the law is given at some point stays where it is: the straight line leads there.
    """
    old, _, middle = node_places(frame.axis, frame.scaling)
    step, given = float(old[1] - old[0]), [*prior.through, 0.0]
    right = old[-1] + step * np.arange(1, 1 + (steps if max(given) <= old[-1] else 0))
    left = -right[::-1] if prior.parity else old[0] - step * np.arange(steps if min(given) >= old[0] else 0, 0, -1)
    z = np.concatenate([left, old, right])
    inside = slice(len(left), len(left) + len(old))
    features, kinds_inside = prior.features(z, np.where(z < 0, -1, 1), step, old)
    edges = ends(features[inside], len(old), middle)
    basis, start = prior.conditioned(lambda points: between(points, old, *edges), kinds_inside)
    parts, kinds = [np.zeros((len(z), 2, 0))], []
    counts = prior.counts(len(old)), prior._replace(parity=0).counts(steps)
    for new in (right,) if prior.parity else (left, right):
        for kind, kernel, told, count in zip((TREND, FINE), (prior.trend, prior.fine), *counts) if len(new) else ():
            parts.append(_left_open(kernel, z, new, prior.free(old, kind), step, told, count))
            kinds += [kind] * count
    more = np.concatenate(parts, axis=-1)
    more[inside] = 0.0  # there all is told
    nodes, offset = features @ basis, features @ start
    nodes[inside], offset[inside] = frame.nodes, frame.offset
    own = np.array([np.array(kinds, int) == size for size in (TREND, FINE)], float)
    made = frame._replace(
        axis=Axis(frame.axis.step, frame.axis.offset + len(left), len(z)),
        nodes=jnp.asarray(np.concatenate([nodes, more], axis=-1), float),
        offset=jnp.asarray(offset, float),
        rigid=jnp.concatenate([frame.rigid, jnp.zeros(len(kinds))]),
        flexible=jnp.concatenate([frame.flexible, jnp.asarray(own)], axis=1),
    )
    return made, len(kinds)


def _left_open(
    kernel: Kernel, z: np.ndarray, new: np.ndarray, free: np.ndarray, step: float, told: int, count: int
) -> np.ndarray:
    """Value and gradient at places z of what is left open at `new` places, in so many coordinates, when `told` coordinates
    are known of what is at `free` ones."""
    known, here = (largest(kernel, places, free, step, told) for places in (z, new))
    at_new = kernel(new, new, step)[:, 0] - here[:, 0] @ here[:, 0].T
    return (kernel(z, new, step) - known @ here[:, 0].T) @ whitening(at_new, count)
