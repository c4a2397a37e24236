"""Reading an evolution between points of its grid."""

import numpy as np
from jaxtyping import Float

from ...data import DataError
from .._index import Near, near_on_grid, near_on_line
from ._evolution import Evolution


def nodes_near(
    problem: Evolution, places: Float[np.ndarray, "system observation axis"], every: tuple[int, ...] | None = None
) -> Near:
    """Points of the grid that a place (t, x) or (t, x, y) is read from, and their weights.

    Along each axis the point itself where every place falls on one, else cubic interpolation; from `every` so many-th
    snapshot and node.
    """
    lines = [
        _along(places[..., axis], problem, axis, 1 if every is None else every[axis])
        for axis in range(len(problem.axes))
    ]
    return near_on_grid(lines, problem.shape)


def _along(at: np.ndarray, problem: Evolution, axis: int, every: int) -> Near:
    low, high = problem.bounds[axis]
    outside = at[(at < low - 1e-6 * (high - low)) | (at > high + 1e-6 * (high - low))]
    if outside.size:
        raise DataError(
            f"{problem.axes[axis]}={outside[0]:.6g} was observed outside {low:g} to {high:g}, where the problem is stated; "
            f"leave such rows out, or widen the problem's {'domain' if axis else 'span'}"
        )
    count, periodic = problem.shape[axis], problem.periodic[axis]
    return near_on_line((at - low) / (high - low) * (count if periodic else count - 1), count, periodic, every)
