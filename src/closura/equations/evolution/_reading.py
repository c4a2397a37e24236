"""Reading an evolution between points of its grid: nodes and weights, and how far off that is."""

import numpy as np
from jaxtyping import Float

from ...data import DataError, Observations
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


def interpolation_error(problem: Evolution, data: Observations, fit: np.ndarray, unit: np.ndarray) -> dict[str, float]:
    """Root mean square over observations, in units of the noise, of reading `fit` (system, quantity, point) by cubic
    interpolation along each axis where observations lie off the grid. `unit` is that of each (system, observation).

    The error of a cubic is of fourth order: what reading from every other point differs by is fifteen times that.
    """

    def read(every: tuple[int, ...]) -> np.ndarray:
        node, weight = nodes_near(problem, data.place, every)
        system = np.arange(len(fit))[:, None, None]
        return np.sum(weight * fit[system, data.quantity[..., None], node], axis=-1)

    found, full = {}, read((1,) * len(problem.axes))
    for axis, name in enumerate(problem.axes):
        if problem.shape[axis] < 8 or (problem.periodic[axis] and problem.shape[axis] % 2):
            continue
        coarser = tuple(2 if other == axis else 1 for other in range(len(problem.axes)))
        apart = ((read(coarser) - full) / 15 / unit)[data.mask]
        found[name] = float(np.sqrt(np.mean(apart**2)))
    return found
