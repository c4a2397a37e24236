"""What the systems do at posterior draws, and did in truth; scores against the truth, and of a surrogate against the solver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ..equations import ForwardModel
from ..forward import Likelihood, solve_systems
from ..laws import FittedLaw, Known, KnownLaw, SolverLaws
from ..learning import Run

BAND_NUMBERS = 2_000_000
DRAWS = (32, 100)  # at least and at most
SELDOM = 0.1  # of draws: in one of them a single system may fail
SCORED = 5_000  # inputs of a law
INTERVAL, BULK = (0.025, 0.975), (0.01, 0.99)
SCORES: tuple[str, ...] = ("theta_mse", "coverage_2sd", "coverage_95", "population_coverage_95")
SCORES += ("closure_mse", "closure_mse_visited", "law_coverage", "law_coverage_outside")
SURROGATE_FIGURES = ("surrogate_mse", "solver_mse", "surrogate_fit_mse", "surrogate_error", "surrogate_error_worst")


@dataclass(frozen=True, eq=False)
class Truth:
    """What synthetic data were made from. `theta` is unconstrained, (system, parameter); `tau` are variances.

    `laws` are the true closures by name, `ranges` the intervals on which learned ones are judged.
    """

    theta: np.ndarray
    mu: np.ndarray | None = None
    tau: np.ndarray | None = None
    laws: Mapping[str, Callable[..., ArrayLike]] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None


class Trajectories(NamedTuple):
    """Some draws (draw, system, parameter) and the observed quantities at them, (draw, system, quantity, point).

    Where the truth is known, `truth` is (system, quantity, point), and `visited_truth` what the laws were called with there,
    name -> (call, input).
    """

    draws: np.ndarray
    fit: np.ndarray
    truth: np.ndarray | None
    visited_truth: dict[str, np.ndarray]
    chosen: np.ndarray  # their numbers among all that were kept


class SurrogateError(NamedTuple):
    """How far a surrogate is from the solver at posterior draws, in units of the noise; and for which system most. `joint` is the
    standard deviation, about, of its error of the log likelihood of all systems, where chains sample laws; else None."""

    overall: float
    worst: float
    system: str
    joint: float | None = None
    unsolved: float = 0.0  # share of draws at which the solver has no solution; they are left out of the others


class SpotCheck(NamedTuple):
    """Figures by name, the error in units of the noise, and the mean of the surrogate's solutions (system, quantity, point)."""

    figures: dict[str, float | None]
    error: SurrogateError | None = None
    fit: np.ndarray | None = None


@jit_soon
def predicted(target: Likelihood, theta: Array, laws: SolverLaws, law_axes: int = 0, network: PyTree = None) -> Array:
    """What the forward model predicts of the data, (draw, system, observation); laws may have so many axes in front."""
    first = jax.tree.map(lambda a: a[(0,) * law_axes], laws)
    own = laws if law_axes else None
    return target.predict(theta, target.model(first, network), own=own, law_axes=law_axes)


@jit_soon
def on_grid(
    forward: ForwardModel, theta: Float[Array, "draw system parameter"], context: PyTree, law_axes: int = 0
) -> Float[Array, "draw system quantity point"]:
    """Observed quantities of solutions on the grid."""
    problem, states = forward.problem, solve_systems(forward, theta, context, law_axes)
    points = jnp.asarray(problem.points, float)
    of_systems = jax.vmap(lambda t, s, k: problem.operator.on_grid(t, points, s, k).T)
    return jax.vmap(of_systems, (0, 0, None))(theta, states, jnp.arange(theta.shape[1]))


def solved_draws(found: np.ndarray) -> np.ndarray:
    """Predictions (draw, ...) with a draw that has none replaced by one before it that has. Chains on a surrogate may come to
    where the solver fails; where that is more than seldom nothing is replaced, so that it is noticed."""
    fine = np.isfinite(found).reshape(len(found), -1).all(axis=1)
    if fine.all() or np.mean(~fine) > SELDOM:
        return found
    number = np.where(fine, np.arange(len(found)), -1)
    before = np.maximum.accumulate(number)
    return found[np.where(before < 0, int(np.argmax(fine)), before)]


def trajectories(run: Run, truth: Truth | None = None) -> Trajectories:
    """At 32 to 100 draws, spread evenly."""
    forward, problem, theta = run.setup.exact.forward, run.problem, run.theta()
    flat = theta.reshape(-1, *theta.shape[2:])
    each = theta.shape[2] * len(problem.points) * len(problem.observed)
    wanted = int(np.clip(BAND_NUMBERS // each, *DRAWS))
    some = np.linspace(0, len(flat) - 1, min(wanted, len(flat))).astype(int)
    fit = solved_draws(np.asarray(on_grid(forward, jnp.asarray(flat[some]), *run.views_at(some))))
    true_laws = {} if truth is None else truth.laws or {}
    if truth is None or not problem.closures.keys() <= true_laws.keys():
        return Trajectories(flat[some], fit, None, {}, some)
    known = {name: KnownLaw(Known(true_laws[name], spec.inputs)) for name, spec in problem.closures.items()}
    true_theta = jnp.asarray(truth.theta, float)
    seen = _calls(forward, true_theta, known)
    visited = {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in seen.items()}
    true_fit = np.asarray(on_grid(forward, true_theta[None], known))[0]
    return Trajectories(flat[some], fit, true_fit, visited, some)


@jit_soon
def _calls(forward: ForwardModel, theta: Float[Array, "system parameter"], laws: SolverLaws) -> dict[str, Array]:
    return jax.vmap(lambda t, k: forward.law_inputs(t, laws, k))(theta, jnp.arange(len(theta)))


def spot_check(run: Run, paths: Trajectories, truth: Truth | None) -> SpotCheck:
    """How wrong is the surrogate, beside the solver and the law that was learned?

    - `surrogate_error`: root mean square at the observed points over posterior draws, in units of the noise
    - `surrogate_error_worst`: the same for the system where it is largest
    - `surrogate_fit_mse`: mean square on the grid over posterior draws
    - `surrogate_mse`: at the true parameters, against the true solution (as published): holds the law's error too
    - `solver_mse`: the same of the exact solver with the learned law
    """
    seen, exact, mask = run.setup.likelihood, run.setup.exact, run.data.mask
    figures: dict[str, float | None] = dict.fromkeys(SURROGATE_FIGURES)
    if not seen.forward.approximate:
        return SpotCheck(figures)
    draws, (laws, axes), network = jnp.asarray(paths.draws), run.views_at(paths.chosen), run.network
    said, solution = (np.asarray(predicted(t, draws, laws, axes, network), float) for t in (seen, exact))
    solved = np.all(np.isfinite(solution), axis=2, keepdims=True)
    square = np.mean(exact.noise.apart(said, np.where(solved, solution, said), run.sigma()) ** 2, axis=0)
    each = np.sqrt(np.sum(np.where(mask, square, 0.0), axis=1) / np.maximum(1, mask.sum(axis=1)))
    worst = int(np.argmax(each))
    overall = float(np.sqrt(square[mask].mean()))
    # Where chains sample laws one test is for all systems at once, and errors add.
    joint = overall * float(np.sqrt(mask.sum())) if axes else None
    error = SurrogateError(overall, float(each[worst]), run.data.systems[worst], joint, float(np.mean(~solved)))
    said = np.asarray(on_grid(seen.forward, draws, *_asked(network, laws, axes)), float)
    figures |= {"surrogate_error": error.overall, "surrogate_error_worst": error.worst}
    figures["surrogate_fit_mse"] = float(np.nanmean((said - paths.fit) ** 2))
    laws = run.views
    if truth is not None and paths.truth is not None:
        true_theta = jnp.asarray(truth.theta, float)[None]
        asked = seen.forward.with_own_laws(network, laws if axes else {})
        for name, forward, context in (("surrogate", seen.forward, asked), ("solver", exact.forward, laws)):
            solution = np.asarray(on_grid(forward, true_theta, context), float)[0]
            figures[f"{name}_mse"] = float(np.mean((solution - paths.truth) ** 2))
    return SpotCheck(figures, error, said.mean(axis=0))


def _asked(network: PyTree, laws: SolverLaws, axes: int) -> tuple[PyTree, int]:
    """The network as it is asked about laws, with so many axes in front where these have them."""
    return (eqx.filter_vmap(network.seeing)(laws), axes) if axes else (network, 0)


Score = Callable[[FittedLaw, Callable[..., ArrayLike], np.ndarray], float]


def scores(
    run: Run, truth: Truth | None, paths: Trajectories, found: Mapping[str, FittedLaw]
) -> dict[str, float | None]:
    """Against the truth, where there is one; of learned laws over 100 points of their stated intervals, and over the inputs that
    true trajectories went through."""
    if truth is None:
        return dict.fromkeys(SCORES)
    laws, inputs = truth.laws or {}, paths.visited_truth
    grids = {name: np.linspace(*interval, 100)[:, None] for name, interval in (truth.ranges or {}).items()}
    # Beyond the bulk of what the true trajectories visited.
    outside = {n: x[_beyond(x[:, 0], inputs[n][:, 0])] for n, x in grids.items() if n in inputs and len(inputs[n])}
    learned = [n for n, law in found.items() if law.learned and n in laws]
    sampled = [n for n in learned if found[n].law.spec.sampled]

    def mean(score: Score, names: list[str], places: Mapping[str, np.ndarray]) -> float | None:
        each = [score(found[n], laws[n], places[n]) for n in names if n in places and len(places[n])]
        return float(np.mean(each)) if each else None

    theta_mse, within = theta_scores(run.theta(), truth.theta)
    return {
        "theta_mse": theta_mse,
        "coverage_2sd": within,
        "coverage_95": float(np.mean(_covered(run.theta(), truth.theta))),
        "population_coverage_95": _population_coverage(run, truth),
        "closure_mse": mean(closure_mse_visited, learned, grids),
        "closure_mse_visited": mean(closure_mse_visited, learned, inputs),
        "law_coverage": mean(law_coverage, sampled, inputs),
        "law_coverage_outside": mean(law_coverage, sampled, outside),
    }


def _beyond(x: np.ndarray, visited: np.ndarray) -> np.ndarray:
    low, high = np.quantile(visited, BULK)
    return (x < low) | (x > high)


def theta_scores(theta: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Mean square error of posterior means, and the share of true values within two posterior standard deviations.

    `theta` is (chain, draw, system, parameter), unconstrained.
    """
    error, spread = theta.mean(axis=(0, 1)) - truth, theta.std(axis=(0, 1))
    return float(np.mean(error**2)), float(np.mean(np.abs(error) < 2 * spread))


def _covered(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Of draws (chain, draw, ...): does the central 95 % interval hold the truth?"""
    low, high = np.quantile(draws, INTERVAL, axis=(0, 1))
    return (low <= truth) & (truth <= high)


def _population_coverage(run: Run, truth: Truth) -> float | None:
    """The share of the population's true means and variances in their 95 % intervals, of parameters that systems do not share;
    None where there is no population, or its truth is not known."""
    draws, own = run.draws(), ~np.array(run.problem.parameters.shared)
    known = {"mu": truth.mu, "log_tau": None if truth.tau is None else np.log(np.asarray(truth.tau, float))}
    held = [
        _covered(draws[n].values, np.asarray(true)[own]) for n, true in known.items() if n in draws and true is not None
    ]
    return float(np.mean(held)) if held else None


def law_coverage(law: FittedLaw, true_law: Callable[..., ArrayLike], inputs: np.ndarray) -> float:
    """The share of inputs (call, input), or of as many as do, where the law's pointwise 95 % band holds the truth."""
    chosen = inputs[:: max(1, len(inputs) // SCORED)]
    low, high = law.interval(*chosen.T)
    true = on_points(true_law, chosen)
    return float(np.mean((low <= true) & (true <= high)))


def closure_mse_visited(law: FittedLaw, true_law: Callable[..., ArrayLike], inputs: np.ndarray) -> float:
    """Mean square error over inputs (call, input), or as many of them as do."""
    chosen = inputs[:: max(1, len(inputs) // SCORED)]
    return float(np.mean((law(*chosen.T) - on_points(true_law, chosen)) ** 2))


def on_points(law: Callable[..., ArrayLike], points: np.ndarray) -> np.ndarray:
    """A law at (point, input)."""
    return np.asarray(_on_points(law, jnp.asarray(points, float)))


@jit_soon
def _on_points(law: Callable[..., ArrayLike], points: Array) -> Array:
    return jax.vmap(lambda x: jnp.asarray(law(*x)))(points)
