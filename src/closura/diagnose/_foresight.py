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
from ._contraction import block_diagonal, typical_inputs
from ._trajectories import predicted
from ._undecided import Number, OnGrid, Undecided, Unknowns, advice, lonely_means, undecided

LAWS, TRIED, JUDGED = 12, 12, 4
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
    """A few draws as groups of one chain each; None where none has a solution.

    Of many laws those that miss the data least, every system with the parameters that do of those it was tried with.
    """
    population, noise, key = run.setup.population, run.setup.noise, jr.key(run.settings.seed)
    systems, parameters = run.state.chains.theta.shape[2:]
    first = jax.tree.map(itemgetter((0, 0)), run.state.chains.law)
    frames = run.state.ranges

    @eqx.filter_jit
    @eqx.filter_vmap
    def draw(key: PRNGKeyArray) -> tuple[Array, PyTree, PyTree, PyTree]:
        keys = jr.split(key, 2 + len(first))
        mean = MODERATE_MEAN * jr.normal(keys[0], (parameters,))
        phi = population.phi_from_normal(jnp.stack([mean, jnp.zeros(parameters)]))
        laws = {n: law.redrawn(k, frames[n], MODERATE_LAW) for k, (n, law) in zip(keys[2:], first.items())}
        normal = jr.normal(keys[1], (TRIED, systems, parameters))
        theta = jax.vmap(lambda normal: population.theta_from_normal(phi, normal))(normal)
        return theta, phi, laws, prepare(laws, frames)

    theta, phi, laws, views = draw(jr.split(key, LAWS))
    shared = {name: law for name, law in run.views.items() if name in run.setup.closures}
    views, axes = over_draws(shared, views)
    many = theta.reshape(-1, systems, parameters), jax.tree.map(lambda a: jnp.repeat(a, TRIED, axis=0), views)
    said = np.asarray(predicted(run.setup.exact, *many, axes), float).reshape(LAWS, TRIED, *run.data.value.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        miss = np.sum(np.where(run.data.mask, said - run.data.value, 0.0) ** 2, axis=-1)  # (law, tried, system)
    miss = np.where(np.isfinite(miss), miss, np.inf)
    # What systems share is the same in all of them: the first try has it.
    best = np.zeros(miss.shape[:1] + miss.shape[2:], int) if population.shared is not None else miss.argmin(axis=1)
    reached = np.take_along_axis(miss, best[:, None], axis=1)[:, 0]
    theta = jnp.take_along_axis(theta, jnp.asarray(best)[:, None, :, None], axis=1)[:, 0]
    chosen = np.argsort(reached.sum(axis=1))[: min(JUDGED, int(np.isfinite(reached).all(axis=1).sum()))]
    if not len(chosen):
        return None
    log_sigma = None if noise is None else jnp.broadcast_to(noise.mean, (LAWS, len(noise.free)))
    return jax.tree.map(lambda a: jnp.asarray(a)[chosen][:, None], Chains(theta, phi, log_sigma, laws))


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
