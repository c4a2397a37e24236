"""Longer tables of smooth laws: beyond the end of a table the prior goes on, given what the law is inside.

    g^(order) = s * white noise:     x(z + h) = Phi x(z) + s noise,      x = (g, h g', h^2 g'', ...), `order` of them

Outside a table a law is a straight line, far surer of itself than anybody is. A longer table has the same nodes, and more at
either end: from the state at the last node, as the values inside leave it, every step adds noise of its own. Its numbers are
coordinates like all others, b ~ N(0, s^2), so that a longer table has a frame of the same prior.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._basis import Frame, Smooth
from ._table import Axis

LOCAL = 12  # nodes that say what the state at the end is; those further inside hardly count
DIFFUSE = 1e8  # variance of a state before its first value, in units of what a step adds


class Side(NamedTuple):
    """Value and gradient (in steps) at nodes beyond an end, outwards: what is known of them, and what noise adds."""

    known: np.ndarray  # (node, 2, coordinate of the old frame, and last its offset)
    noise: np.ndarray  # (node, 2, new coordinate)

    def inwards(self, parity: int) -> "Side":
        """The same at the left end, of a function that is mirrored: as it is (1), or upside down (-1)."""
        sign = np.array([parity, -parity], float)[:, None]
        return Side(*(sign * part[::-1] for part in self))


def longer(frame: Frame, prior: Smooth, steps: int) -> tuple[Frame, int]:
    """The frame of a table with so many more steps at either end, and how many coordinates it has more.

    An end beyond which the law is given at some point stays where it is: the straight line leads there.
    """
    rows = np.concatenate([frame.nodes, np.asarray(frame.offset)[..., None]], axis=-1).astype(float)
    scale, center = float(frame.scaling.scale[0]), float(frame.scaling.center[0])
    low, high = ((float(end[0]) - center) / scale for end in (frame.low, frame.high))
    step, given = float(frame.axis.step) / scale, [*prior.through, 0.0]
    right = _beyond(rows[:, 0], prior.order, step, steps if max(given) <= high else 0)
    if prior.parity:
        left, shared = right.inwards(prior.parity), True
    else:
        left, shared = _beyond(rows[::-1, 0], prior.order, step, steps if min(given) >= low else 0).inwards(1), False
    own, more = right.noise.shape[-1], 0 if shared else left.noise.shape[-1]
    parts = [_wide(*left, 0 if shared else own, 0), _wide(rows, rows[..., :0], own + more, 0), _wide(*right, 0, more)]
    nodes = np.concatenate(parts)
    axis = Axis(frame.axis.step, frame.axis.offset + len(left.known), len(nodes))
    none = np.zeros(own + more)

    def with_more(part: Array, more: np.ndarray) -> Array:
        return jnp.concatenate([part, jnp.asarray(more, part.dtype)])

    made = frame._replace(
        axis=axis,
        nodes=jnp.asarray(nodes[..., :-1], float),
        offset=jnp.asarray(nodes[..., -1], float),
        rigid=with_more(frame.rigid, none),
        flexible=with_more(frame.flexible, none + 1.0),
        pull_rigid=with_more(frame.pull_rigid, none),
        pull_flexible=with_more(frame.pull_flexible, none),
    )
    return made, own + more


def _wide(known: np.ndarray, noise: np.ndarray, before: int, after: int) -> np.ndarray:
    """(node, 2, all coordinates and the offset), of noise with so many other coordinates before and after it."""
    none = (np.zeros((len(known), 2, count)) for count in (before, after))
    return np.concatenate([known[..., :-1], next(none), noise, next(none), known[..., -1:]], axis=-1)


def _beyond(value: np.ndarray, order: int, step: float, steps: int) -> Side:
    """Beyond the last of these values, (node, coordinate)."""
    value = value[-LOCAL:]
    gain, left_open = _state_at_the_end(order, len(value))
    known = gain @ value
    factor = step ** (order - 0.5) * np.linalg.cholesky(_added(order))
    count = order - 1 + order * steps
    noise = np.zeros((order, count))
    noise[1:, : order - 1] = step ** (order - 0.5) * np.linalg.cholesky(left_open[1:, 1:])
    states = []
    for number in range(steps):
        known, noise = _moved(order) @ known, _moved(order) @ noise
        first = order - 1 + order * number
        noise[:, first : first + order] += factor
        states.append((_value_and_gradient(known), _value_and_gradient(noise)))
    empty = np.zeros((0, 2, value.shape[1])), np.zeros((0, 2, 0))
    return Side(*(np.stack(part) for part in zip(*states))) if steps else Side(*empty)


def _value_and_gradient(state: np.ndarray) -> np.ndarray:
    return state[:2] if len(state) > 1 else np.concatenate([state, np.zeros_like(state)])


def _moved(order: int) -> np.ndarray:
    """Phi: the polynomial goes on."""
    apart = np.arange(order)[None] - np.arange(order)[:, None]
    return np.where(apart >= 0, 1.0 / np.vectorize(math.factorial)(np.maximum(apart, 0)), 0.0)


def _added(order: int) -> np.ndarray:
    """Covariance of what a step of length one adds."""
    left = order - 1 - np.arange(order)
    size = np.vectorize(math.factorial)(left)
    return 1.0 / (size[:, None] * size[None] * (left[:, None] + left[None] + 1))


def _state_at_the_end(order: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the state at the last of some nodes, linear in the values there, and its covariance, by Kalman's filter."""
    mean, covariance = np.zeros((order, nodes)), DIFFUSE * np.eye(order)
    for node in range(nodes):
        if node:
            mean, covariance = _moved(order) @ mean, _moved(order) @ covariance @ _moved(order).T + _added(order)
        seen = np.eye(nodes)[node] - mean[0]
        gain = covariance[:, 0] / covariance[0, 0]
        mean, covariance = mean + np.outer(gain, seen), covariance - np.outer(gain, covariance[0])
    return mean, covariance
