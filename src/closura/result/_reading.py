"""How well can a solution kept at coarse snapshots be read between them?"""

import numpy as np

from ..forward import in_strip
from ..problem import Evolution, Observations, Problem


def reading_error(problem: Problem, data: Observations, fit: np.ndarray, sigma: np.ndarray) -> dict[str, float]:
    """Root mean square over observations, in units of the noise, of reading `fit` (system, quantity, point) by cubic
    interpolation along each axis where observations lie off the grid.

    The error of a cubic is of fourth order: what reading from every other point differs by is fifteen times that.
    """
    if not isinstance(problem, Evolution):
        return {}

    def read(every: tuple[int, int]) -> np.ndarray:
        node, weight = in_strip(problem, data.place, every)
        system = np.arange(len(fit))[:, None, None]
        return np.sum(weight * fit[system, data.quantity[..., None], node], axis=-1)

    found, full = {}, read((1, 1))
    for axis, (name, every) in enumerate(zip(problem.axes, ((2, 1), (1, 2)))):
        if problem.shape[axis] < 8 or (problem.periodic[axis] and problem.shape[axis] % 2):
            continue
        apart = ((read(every) - full) / 15 / sigma)[data.mask]
        found[name] = float(np.sqrt(np.mean(apart**2)))
    return found
