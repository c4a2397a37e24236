"""How wrong is the surrogate? Its solutions beside the solver's, at posterior draws and the law that was learned."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..equations import Equation, ForwardModel
from ..forward import solve_systems
from ..learning import Run
from ._truth import Truth
from ._verdict import SurrogateError

FIGURES = ("surrogate_mse", "solver_mse", "surrogate_fit_mse", "surrogate_error", "surrogate_error_worst")


def quantities(
    problem: Equation, theta: Float[Array, "draw system parameter"], states: Float[Array, "draw system point state"]
) -> Float[Array, "draw system quantity point"]:
    """Observed quantities of solutions on the grid."""
    points = jnp.asarray(problem.points, float)
    of_systems = jax.vmap(lambda t, s, k: problem.operator.on_grid(t, points, s, k).T)
    return jax.vmap(of_systems, (0, 0, None))(theta, states, jnp.arange(theta.shape[1]))


def spot_check(
    run: Run, paths: dict[str, Any], truth: Truth | None
) -> tuple[dict[str, float | None], SurrogateError | None]:
    """- `surrogate_error`: root mean square at the observed points over posterior draws, in units of the noise
    - `surrogate_error_worst`: the same for the system where it is largest
    - `surrogate_fit_mse`: mean square on the grid over posterior draws
    - `surrogate_mse`: at the true parameters, against the true solution (as published): holds the law's error too
    - `solver_mse`: the same of the exact solver with the learned law
    """
    seen, exact, network = run.setup.likelihood, run.setup.exact, run.network
    if not seen.forward.approximate:
        return dict.fromkeys(FIGURES), None
    draws, laws, sigma = jnp.asarray(paths["draws"]), run.views, run.sigma()

    @eqx.filter_jit
    def on_grid(forward: ForwardModel, theta: Any, model: Any) -> Any:
        return quantities(run.problem, theta, solve_systems(forward, theta, model))

    @eqx.filter_jit
    def at_data(network: Any, laws: Any, theta: Any) -> Any:
        apart = seen.predict(theta, network) - exact.predict(theta, exact.model(laws))
        return apart**2 / jnp.asarray(sigma) ** 2

    apart = np.asarray(at_data(network, laws, draws), float)
    said = np.asarray(on_grid(seen.forward, draws, network), float)
    paths["surrogate"] = said.mean(axis=0)
    fit = said - paths["fit"]
    square, mask = apart.mean(axis=0), run.data.mask
    each = np.sqrt(np.sum(np.where(mask, square, 0.0), axis=1) / np.maximum(1, mask.sum(axis=1)))
    worst = int(np.argmax(each))
    error = SurrogateError(float(np.sqrt(square[mask].mean())), float(each[worst]), run.data.systems[worst])
    figures: dict[str, float | None] = {
        "surrogate_error": error.overall,
        "surrogate_error_worst": error.worst,
        "surrogate_fit_mse": float(np.mean(fit**2)),
    }
    if truth is not None and paths["truth"] is not None:
        true_theta = jnp.asarray(truth.theta, float)[None]
        for name, forward, model in (("surrogate", seen.forward, network), ("solver", exact.forward, laws)):
            said = np.asarray(on_grid(forward, true_theta, model), float)[0]
            figures[f"{name}_mse"] = float(np.mean((said - paths["truth"]) ** 2))
    return {**dict.fromkeys(FIGURES), **figures}, error
