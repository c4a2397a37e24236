"""What data will not decide, told before a run: the posterior to second order, at plausible laws and parameters.

    posterior covariance of (population, shared parameters, laws)  ~  (J^T R^-1 J + prior precision)^-1,  theta eliminated

at draws of the priors that come closest to the data. Where law and parameters trade off, they do so along a curve whose
direction differs from draw to draw: each draw is judged by itself, and what most of them say is told.
"""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..laws import AbstractLaw, SolverLaws, over_draws, prepare
from ..learning import Run
from ..sampling import Above, Chains, Precisions, above, information, precisions
from ._contraction import block_diagonal, typical_inputs
from ._trajectories import predicted
from ._undecided import Number, OnGrid, Undecided, Unknowns, advice, lonely_means, undecided

# Laws that are tried, parameters that every system is tried with under each, and how many of these laws are judged.
TRIED, TRIED_EXPENSIVE, JUDGED = (16, 12), (8, 4), 4
# In the prior's standard deviations: laws and population means as they may well be. The unit of a law is a guess before any
# data are seen: laws are tried over decades of it.
MODERATE_LAW, MODERATE_MEAN, DECADES = 0.3, 0.5, (-1.0, 2.5)


class Slope(NamedTuple):
    """A law where it was called, its derivative in its coordinates, and their precision before data."""

    on_grid: OnGrid
    slope: Float[np.ndarray, "point coordinate"]
    precision: Float[np.ndarray, " coordinate"]

    def in_unit(self, unit: float) -> "Slope":
        """The same where the law is so much larger than was thought: so is what may be of it before data."""
        return self._replace(precision=self.precision / unit**2)


def foreseen(run: Run) -> list[str]:
    """In words, what these data will not decide, of a problem whose laws chains sample."""
    chains, unit = _plausible(run)
    if not len(unit):
        return []
    # By the solver: a surrogate is not trained yet.
    told, priors = information(run.posterior.by_solver(), chains), precisions(run.setup.population, chains)
    inputs, found = _inputs(run, chains), []
    for draw, prior in enumerate(priors):
        here = jax.tree.map(itemgetter((draw, 0)), chains.law)
        own = {name: here[name] for name in sorted(run.sampled)}
        laws = [_slope(run, name, law, inputs[name][draw]).in_unit(unit[draw]) for name, law in own.items()]
        found.append(_at_draw(run, above(told.of(draw), prior), prior, laws))
    return [advice(one).replace("Data do not decide", "Data will not decide", 1) for one in _agreed(found)]


def _plausible(run: Run) -> tuple[Chains, Float[np.ndarray, " draw"]]:
    """A few draws as groups of one chain each, and how much larger than thought their laws are; none where nothing has a
    solution.

    Of many laws those that miss the data least, every system with the parameters that do of those it was tried with.
    """
    population, noise = run.setup.population, run.setup.noise
    systems, parameters = run.state.chains.theta.shape[2:]
    first = jax.tree.map(itemgetter((0, 0)), run.state.chains.law)
    frames = run.state.ranges
    laws_tried, tried = TRIED_EXPENSIVE if run.problem.expensive else TRIED

    @eqx.filter_jit
    @eqx.filter_vmap
    def draw(key: PRNGKeyArray, unit: Array) -> tuple[Array, PyTree, PyTree, PyTree]:
        keys = jr.split(key, 2 + len(first))
        mean = MODERATE_MEAN * jr.normal(keys[0], (parameters,))
        phi = population.phi_from_normal(jnp.stack([mean, jnp.zeros(parameters)]))
        laws = {n: law.redrawn(k, frames[n], unit * MODERATE_LAW) for k, (n, law) in zip(keys[2:], first.items())}
        normal = jr.normal(keys[1], (tried, systems, parameters))
        theta = jax.vmap(lambda normal: population.theta_from_normal(phi, normal))(normal)
        return theta, phi, laws, prepare(laws, frames)

    units = np.logspace(*DECADES, laws_tried)
    theta, phi, laws, views = draw(jr.split(jr.key(run.settings.seed), laws_tried), jnp.asarray(units, float))
    shared = {name: law for name, law in run.views.items() if name in run.setup.closures}
    miss = _miss(run, theta, *over_draws(shared, views))
    # What systems share is the same in all of them: the first try has it.
    best = miss.argmin(axis=1) if population.shared is None else np.zeros((laws_tried, systems), int)
    reached = np.take_along_axis(miss, best[:, None], axis=1)[:, 0].sum(axis=1)
    chosen = np.argsort(reached)[: min(JUDGED, int(np.isfinite(reached).sum()))]
    theta = jnp.take_along_axis(theta, jnp.asarray(best)[:, None, :, None], axis=1)[:, 0]
    log_sigma = None if noise is None else jnp.broadcast_to(noise.mean, (laws_tried, len(noise.free)))
    chains = jax.tree.map(lambda a: jnp.asarray(a)[chosen][:, None], Chains(theta, phi, log_sigma, laws))
    return chains, np.maximum(units[chosen], 1.0)


def _miss(run: Run, theta: Float[Array, "law tried system parameter"], laws: SolverLaws, axes: int) -> np.ndarray:
    """(law, tried, system): how far predictions are from the data; infinite where there are none."""
    tried = theta.shape[1]
    repeated = jax.tree.map(lambda a: jnp.repeat(a, tried, axis=0), laws)
    said = np.asarray(predicted(run.setup.exact, theta.reshape(-1, *theta.shape[2:]), repeated, axes), float)
    with np.errstate(over="ignore", invalid="ignore"):
        miss = np.sum(np.where(run.data.mask, said - run.data.value, 0.0) ** 2, axis=-1)
    return np.where(np.isfinite(miss), miss, np.inf).reshape(theta.shape[:3])


def _inputs(run: Run, chains: Chains) -> dict[str, Float[np.ndarray, "draw call input"]]:
    """What each law is called with, at each draw."""
    forward = run.setup.exact.forward
    shared = {name: law for name, law in run.views.items() if name in run.setup.closures}

    def of_draw(theta: Array, laws: PyTree) -> dict[str, Array]:
        views = shared | prepare(laws, run.state.ranges)
        return jax.vmap(lambda t, k: forward.law_inputs(t, views, k))(theta, jnp.arange(len(theta)))

    seen = eqx.filter_jit(eqx.filter_vmap(of_draw))(chains.theta[:, 0], jax.tree.map(lambda a: a[:, 0], chains.law))
    return {name: np.asarray(x, float).reshape(len(x), -1, x.shape[-1]) for name, x in seen.items()}


def _slope(run: Run, name: str, law: AbstractLaw, inputs: Float[np.ndarray, "call input"]) -> Slope:
    grid, frame = typical_inputs(inputs), run.state.ranges[name]

    value, slope = _value_and_slope(law, frame, jnp.asarray(grid, float))
    on_grid = OnGrid(name, run.problem.law_input_names()[name], grid, np.asarray(value, float))
    return Slope(on_grid, np.asarray(slope, float), np.asarray(law.prior_precision(frame), float))


@eqx.filter_jit
def _value_and_slope(law: AbstractLaw, frame: PyTree, grid: Float[Array, "point input"]) -> tuple[Array, Array]:
    def values(weights: Array) -> tuple[Array, Array]:
        called = law.with_weights(weights).prepare(frame)
        value = jax.vmap(lambda x: called(*x))(grid)
        return value, value

    slope, value = jax.jacfwd(values, has_aux=True)(law.weights)
    return value, slope


def _at_draw(run: Run, reduced: Above, precision: Precisions, laws: Sequence[Slope]) -> list[Undecided]:
    """From the information that is left above theta."""
    own, held, systems = len(precision.own), len(precision.held), len(reduced.inner)
    means = own if precision.mean is not None else 0
    stated = np.concatenate([np.zeros(means + held), *(law.precision for law in laws)])
    covariance = np.linalg.inv(reduced.left + np.diag(stated))
    # The mean over systems of what is their own follows what stands above them, and scatters about it.
    into = block_diagonal([np.eye(means + held), *(law.slope for law in laws)])[means:]
    rows = np.concatenate([-reduced.follows.mean(axis=0), into])
    posterior = rows @ covariance @ rows.T
    posterior[:own, :own] += np.linalg.inv(reduced.inner).mean(axis=0) / systems
    mean = 0.0 if precision.mean is None else 1 / precision.mean
    before = np.diag(mean + np.diag(np.linalg.inv(precision.theta)) / systems)
    prior = [before, np.diag(1 / precision.shared), *(law.slope / law.precision @ law.slope.T for law in laws)]
    parameters = run.problem.parameters
    names = list(zip(parameters.names, parameters.labels))
    numbers = [
        Number(name, label == f"log {name}") for name, label in (names[i] for i in (*precision.own, *precision.held))
    ]
    found = undecided(Unknowns(numbers, [law.on_grid for law in laws]), block_diagonal(prior), posterior)
    contraction = 1 - np.diag(covariance)[:means] * (precision.mean if means else 1.0)
    return found + lonely_means(numbers[:means], contraction, found)


def _agreed(found: Sequence[Sequence[Undecided]]) -> list[Undecided]:
    """What at least half of the draws find of the same number (or laws), with who takes part in at least half of these."""
    every = [one for draw in found for one in draw]
    often = Counter(one.lead for one in every)
    agreed = []
    for lead, times in often.items():
        if 2 * times >= len(found):
            parties = [party for one in every if one.lead == lead for party in one.parties]
            present = Counter(party.owner for party in parties)
            words = Counter(parties).most_common()
            most = [next(p for p, _ in words if p.owner == owner) for owner, n in present.items() if 2 * n >= times]
            agreed.append(Undecided(tuple(most)))
    return agreed
