"""How wrong is the surrogate? Its solutions beside the solver's, at posterior draws and the law that was learned."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..equations import ForwardModel
from ..forward import solve_systems
from ..learning import Run
from ._trajectories import Trajectories, quantities
from ._truth import Truth
from ._verdict import SurrogateError

FIGURES = ("surrogate_mse", "solver_mse", "surrogate_fit_mse", "surrogate_error", "surrogate_error_worst")


class SpotCheck(NamedTuple):
    """Figures by name, the error in units of the noise, and the mean of the surrogate's solutions (system, quantity, point)."""

    figures: dict[str, float | None]
    error: SurrogateError | None = None
    fit: np.ndarray | None = None


def spot_check(run: Run, paths: Trajectories, truth: Truth | None) -> SpotCheck:
    """- `surrogate_error`: root mean square at the observed points over posterior draws, in units of the noise
    - `surrogate_error_worst`: the same for the system where it is largest
    - `surrogate_fit_mse`: mean square on the grid over posterior draws
    - `surrogate_mse`: at the true parameters, against the true solution (as published): holds the law's error too
    - `solver_mse`: the same of the exact solver with the learned law
    """
    seen, exact, network = run.setup.likelihood, run.setup.exact, run.network
    if not seen.forward.approximate:
        return SpotCheck(dict.fromkeys(FIGURES))
    draws, laws = jnp.asarray(paths.draws), run.views

    @eqx.filter_jit
    def on_grid(forward: ForwardModel, theta: Array, context: PyTree) -> Array:
        return quantities(run.problem, theta, solve_systems(forward, theta, context))

    @eqx.filter_jit
    def at_data(network: PyTree, laws: PyTree, theta: Array) -> tuple[Array, Array]:
        return seen.predict(theta, network), exact.predict(theta, exact.model(laws))

    said, solution = (np.asarray(predicted, float) for predicted in at_data(network, laws, draws))
    apart = exact.noise.apart(said, solution, run.sigma()) ** 2
    said = np.asarray(on_grid(seen.forward, draws, network), float)
    mean = said.mean(axis=0)
    square, mask = apart.mean(axis=0), run.data.mask
    each = np.sqrt(np.sum(np.where(mask, square, 0.0), axis=1) / np.maximum(1, mask.sum(axis=1)))
    worst = int(np.argmax(each))
    error = SurrogateError(float(np.sqrt(square[mask].mean())), float(each[worst]), run.data.systems[worst])
    figures: dict[str, float | None] = {
        "surrogate_error": error.overall,
        "surrogate_error_worst": error.worst,
        "surrogate_fit_mse": float(np.mean((said - paths.fit) ** 2)),
    }
    if truth is not None and paths.truth is not None:
        true_theta = jnp.asarray(truth.theta, float)[None]
        for name, forward, context in (("surrogate", seen.forward, network), ("solver", exact.forward, laws)):
            said = np.asarray(on_grid(forward, true_theta, context), float)[0]
            figures[f"{name}_mse"] = float(np.mean((said - paths.truth) ** 2))
    return SpotCheck({**dict.fromkeys(FIGURES), **figures}, error, mean)
