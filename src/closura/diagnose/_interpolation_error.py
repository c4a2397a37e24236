"""Is the grid of an evolution fine enough, now that law and parameters are known: to read between snapshots, and to be stable?"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..data import Observations
from ..equations import Evolution, Problem, ProblemError, in_strip
from ..forward import Noise

JUDGED = 20  # systems


def reading_error(
    problem: Problem, data: Observations, fit: np.ndarray, noise: Noise, sigma: np.ndarray
) -> dict[str, float]:
    """Root mean square over observations, in units of the noise, of reading `fit` (system, quantity, point) by cubic
    interpolation along each axis where observations lie off the grid.

    The error of a cubic is of fourth order: what reading from every other point differs by is fifteen times that.
    """
    if not isinstance(problem, Evolution):
        return {}

    def read(every: tuple[int, ...]) -> np.ndarray:
        node, weight = in_strip(problem, data.place, every)
        system = np.arange(len(fit))[:, None, None]
        return np.sum(weight * fit[system, data.quantity[..., None], node], axis=-1)

    found, full = {}, read((1,) * len(problem.axes))
    for axis, name in enumerate(problem.axes):
        if problem.shape[axis] < 8 or (problem.periodic[axis] and problem.shape[axis] % 2):
            continue
        coarser = tuple(2 if other == axis else 1 for other in range(len(problem.axes)))
        apart = (noise.apart(read(coarser), full, sigma) / 15)[data.mask]
        found[name] = float(np.sqrt(np.mean(apart**2)))
    return found


def unstable(problem: Evolution, laws: Mapping[str, Any], theta: np.ndarray) -> str | None:
    """What is wrong with the step at these parameters (system, parameter), if anything."""
    some = np.linspace(0, len(theta) - 1, min(JUDGED, len(theta))).astype(int)
    try:
        problem.check_scheme(dict(laws), problem.parameters.complete(jnp.asarray(theta, float))[some])
    except ProblemError as error:
        return f"With the law and the parameters found, {error}."
    return None
