"""Learning of sampled laws: Newton's method on the posterior of the law's coordinates, theta and population eliminated.

    a <- a + rate (H + P)^-1 (E[score] - P (a - m)),      theta_k, mu follow by the shear

Fisher's identity makes the score, averaged over chains, the gradient of the marginal likelihood; H is its Gauss-Newton
matrix. Chains of a group share one law while it is learned.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..laws import AbstractLaw, Frame, Range, Scaling
from ..sampling import Chains, Posterior
from ..sampling._gauss_newton import coordinates, eliminate, information, precisions
from ..sampling._law_move import moved_along

LONGEST = 0.3  # by how much a step may change a law, in its units
SURVEY = 1 / 3  # of learning tells where solutions go, and with that the units of the laws' inputs; then it begins anew
RATES = 0.5, 0.6  # of a step; the part of learning after which steps grow shorter
MARGIN = 0.5  # of the inputs' range, that a table covers on either side of it


def part_of_pass(now: np.ndarray) -> np.ndarray:
    """Which part of its pass is over: of the survey, or of learning proper."""
    return np.where(now < SURVEY, now / SURVEY, (now - SURVEY) / (1 - SURVEY))


def newton_rate(part: float, rounds: float) -> float:
    """The length of a step, where one pass has so many rounds."""
    first, late = RATES
    return first if part < late else first / (1 + (part - late) * rounds / 4)


def restated(old: Frame, law: AbstractLaw, inputs: tuple[np.ndarray, np.ndarray], table: Range) -> Frame:
    """A law's frame with reference and unit of its input from where solutions go: low and high of most `inputs`."""
    low, high = inputs
    center, scale = ((low + high) / 2, (high - low) / 2)
    found = Scaling(jnp.asarray(center, float), jnp.asarray(scale, float), old.scaling.output)
    return law.spec.frame(table, found)


def widened(
    chains: Chains, frames: Mapping[str, PyTree], ranges: Mapping[str, Range]
) -> tuple[Chains, dict[str, PyTree]]:
    """The chains and frames with tables that cover `ranges`, where they did not: laws are the same, their coordinates others."""
    laws, after = dict(chains.law), dict(frames)
    for name, range_ in ranges.items():
        old, law = frames[name], laws[name]
        if law.weights is None or (np.all(range_.low >= old.low) and np.all(range_.high <= old.high)):
            continue
        wider = Range(jnp.minimum(range_.low, old.low), jnp.maximum(range_.high, old.high))
        after[name] = law.spec.frame(wider, old.scaling)
        firsts = [jax.tree.map(partial(_first_chain, group), law) for group in range(law.weights.shape[0])]
        moved = jnp.stack([first.reframed(old, after[name]).weights for first in firsts])
        laws[name] = law.with_weights(jnp.broadcast_to(moved[:, None], law.weights.shape))
    return chains._replace(law=laws), after


def _first_chain(group: int, leaf: Array) -> Array:
    return leaf[group, 0]


def newton_step(posterior: Posterior, chains: Chains, temperature: float, rate: float) -> tuple[Chains, np.ndarray]:
    """The chains after one step of the laws of every group, and the Newton decrement of each group. The cache is that of where
    chains were."""
    weights = coordinates(chains.law)
    told = information(posterior, chains)
    ends = np.cumsum([w.shape[-1] for w in weights.values()])
    every, steps, shears, means, decrements = np.ones(ends[-1], bool), [], [], [], []
    for group, prior in enumerate(precisions(posterior.population, chains)):
        part = told.of(group, temperature)
        left = eliminate(part, prior, every, np.zeros(ends[-1]))
        precision, mean, a = (np.concatenate(parts) for parts in zip(*_priors(posterior, chains, group)))
        gradient = part.score - precision * (a - mean)
        step = np.linalg.solve(left.law + np.diag(precision), gradient)
        decrements.append(gradient @ step)
        step = rate * step
        step *= min(1.0, LONGEST / max(_largest_change(posterior, weights, step, ends), 1e-30))
        steps.append(step)
        shears.append(left.theta @ step)
        means.append(left.mean @ step)
    by_law, by_theta, by_mean = (jnp.asarray(np.stack(x), chains.theta.dtype)[:, None] for x in (steps, shears, means))
    changes = dict(zip(weights, jnp.split(by_law, ends[:-1], axis=-1)))
    return moved_along(chains, changes, by_theta, by_mean, posterior.population), np.array(decrements)


def _priors(posterior: Posterior, chains: Chains, group: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each law: precision and mean before data, and where it is now."""
    found = []
    for name, weights in coordinates(chains.law).items():
        precision, mean = posterior.ranges[name].prior(jnp.asarray(chains.law[name].log_size[group, 0]))
        found.append((np.asarray(precision, float), np.asarray(mean, float), np.asarray(weights[group, 0], float)))
    return found


def _largest_change(posterior: Posterior, weights: Mapping[str, Array], step: np.ndarray, ends: np.ndarray) -> float:
    """At the inner nodes of the tables."""
    largest = 0.0
    for name, part in zip(weights, np.split(step, ends[:-1])):
        nodes = posterior.ranges[name].inner
        largest = max(largest, np.abs(nodes @ part[-nodes.shape[1] :]).max())
    return float(largest)
