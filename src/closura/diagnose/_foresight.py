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

from ..laws import AbstractLaw, over_draws, prepare
from ..learning import Run
from ..sampling import Above, Chains, Precisions, above, information, precisions
from ._contraction import FOLLOWS, block_diagonal, called, typical_inputs
from ._trajectories import predicted
from ._undecided import Number, OnGrid, Undecided, Unknowns, advice, undecided

CANDIDATES, JUDGED = 24, 4
# In the prior's standard deviations: laws and population means as they may well be.
MODERATE_LAW, MODERATE_MEAN = 0.3, 0.5


class Slope(NamedTuple):
    """A law where it was called, its derivative in its coordinates, and their precision before data."""

    on_grid: OnGrid
    slope: Float[np.ndarray, "point coordinate"]
    precision: Float[np.ndarray, " coordinate"]


def foreseen(run: Run) -> list[str]:
    """In words, what these data will not decide, of a problem whose laws chains sample."""
    chains = _plausible(run)
    if chains is None:
        return []
    told, priors = information(run.posterior, chains), precisions(run.setup.population, chains)
    inputs, found = _inputs(run, chains), []
    for draw, prior in enumerate(priors):
        here = jax.tree.map(itemgetter((draw, 0)), chains.law)
        own = {name: here[name] for name in sorted(run.sampled)}
        laws = [_slope(run, name, law, inputs[name][draw]) for name, law in own.items()]
        found.append(_at_draw(run, above(told.of(draw), prior), prior, laws))
    return [advice(one).replace("Data do not decide", "Data will not decide", 1) for one in _agreed(found)]


def _plausible(run: Run) -> Chains | None:
    """A few draws as groups of one chain each, those that miss the data least; None where none has a solution."""
    population, noise, settings = run.setup.population, run.setup.noise, run.settings
    systems, parameters = run.state.chains.theta.shape[2:]
    first = jax.tree.map(lambda a: a[0, 0], run.state.chains.law)
    frames = run.state.ranges

    @eqx.filter_jit
    @eqx.filter_vmap
    def draw(key: PRNGKeyArray) -> tuple[Array, PyTree, PyTree, PyTree]:
        keys = jr.split(key, 2 + len(first))
        mean = MODERATE_MEAN * jr.normal(keys[0], (parameters,))
        phi = population.phi_from_normal(jnp.stack([mean, jnp.zeros(parameters)]))
        laws = {n: law.redrawn(k, frames[n], MODERATE_LAW) for k, (n, law) in zip(keys[2:], first.items())}
        theta = population.theta_from_normal(phi, jr.normal(keys[1], (systems, parameters)))
        return theta, phi, laws, prepare(laws, frames)

    theta, phi, laws, views = draw(jr.split(jr.key(settings.seed), CANDIDATES))
    log_sigma = None if noise is None else jnp.broadcast_to(noise.mean, (CANDIDATES, len(noise.free)))
    shared = {name: law for name, law in run.views.items() if name in run.setup.closures}
    said = np.asarray(predicted(run.setup.exact, theta, *over_draws(shared, views)), float)
    with np.errstate(over="ignore", invalid="ignore"):
        miss = np.sum(np.where(run.data.mask, said - run.data.value, 0.0) ** 2, axis=(1, 2))
    best = np.argsort(np.where(np.isfinite(miss), miss, np.inf))[: min(JUDGED, int(np.isfinite(miss).sum()))]
    if not len(best):
        return None
    return jax.tree.map(lambda a: jnp.asarray(a)[best][:, None], Chains(theta, phi, log_sigma, laws))


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
    own, held, count = len(precision.own), len(precision.held), len(reduced.left)
    means = own if precision.mean is not None else 0
    stated = np.concatenate([np.zeros(means + held), *(law.precision for law in laws)])
    covariance = np.linalg.inv(reduced.left + np.diag(stated))
    # The mean over systems of what is their own follows what stands above them, and scatters about it.
    follows = -reduced.follows.mean(axis=0)
    scatter = np.linalg.inv(reduced.inner).mean(axis=0) / len(reduced.inner)
    mine, apart = np.eye(count)[:means], np.zeros((means, means))
    variance, lonely = 1 / np.asarray(precision.mean if means else np.diag(precision.theta) * len(reduced.inner)), None
    if means:
        together, along = follows @ covariance @ follows.T + scatter, covariance[:means] @ follows.T
        lonely = np.diag(along) ** 2 / (np.diag(covariance)[:means] * np.diag(together)) < FOLLOWS
    else:
        mine, apart = follows, scatter
    into = block_diagonal([np.eye(held), *(law.slope for law in laws)])
    rows = np.concatenate([mine, np.concatenate([np.zeros((len(into), means)), into], axis=1)])
    posterior = rows @ covariance @ rows.T + block_diagonal([apart, np.zeros((len(into),) * 2)])
    before = [law.slope / law.precision @ law.slope.T for law in laws]
    prior = block_diagonal([np.diag(variance), np.diag(1 / precision.shared), *before])
    numbers = [*_called(run, precision.own, lonely), *_called(run, precision.held)]
    return undecided(Unknowns(numbers, [law.on_grid for law in laws]), prior, posterior)


def _called(run: Run, chosen: np.ndarray, lonely: np.ndarray | None = None) -> list[Number]:
    parameters = run.problem.parameters
    names, labels = (np.array(every)[chosen].tolist() for every in (parameters.names, parameters.labels))
    return called(names, labels, lonely)


def _agreed(found: Sequence[Sequence[Undecided]]) -> list[Undecided]:
    """What at least half of the draws find between the same parties, in the words that most of them have for it."""
    every = [one for draw in found for one in draw]
    often = Counter(one.owners for one in every)
    agreed = []
    for owners, times in often.items():
        if 2 * times >= len(found):
            words = Counter(one for one in every if one.owners == owners)
            agreed.append(words.most_common(1)[0][0])
    return agreed
