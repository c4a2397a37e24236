"""Learning of sampled laws: Newton's method on the posterior of the law's coordinates, theta and population eliminated.

    a <- a + rate (H + P)^-1 (E[score] - P a),      theta_k, mu follow by the shear

Fisher's identity makes the score, averaged over chains, the gradient of the marginal likelihood; H is its Gauss-Newton
matrix. Chains of a group share one law while it is learned.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compile import jit_soon
from ..laws import AbstractLaw, Frame, Law, Range, Scaling
from ..population import normal
from ..sampling import Chains, GroupKeys, Posterior, per_group, uniforms_by_group
from ..sampling._gauss_newton import PICKED, coordinates, eliminate, information, precisions
from ..sampling._law_move import moved_along

LONGEST = 0.3  # by how much a step may change a law, in its units
SHORTER = (
    0.25,
    0.06,
    0.0,
    0.0,
)  # the parts of a step that are tried where all of it makes chains less likely, by more than
SLACK = 10.0
TAMED, ASTRAY = 6, 10.0  # how often first laws are made smaller at most; how much worse than none they may fit
SURVEY = 1 / 3  # of learning tells where solutions go, and with that the units of the laws' inputs; then it begins anew
RATES = 0.5, 0.6  # of a step; the part of learning after which steps grow shorter
FIRST_SIZE = 0.03  # of a draw from the prior, at which laws of a group begin
WITHIN, ROUNDS = 3.0, 3  # of its Monte Carlo error, and how often in a row: then laws are learned
STILL = 1e-3  # a decrement, in squared posterior standard deviations, that counts for nothing: also where no data see the law
RISES = 3.8  # three times the sd of a difference of two levels, where numbers are as many as chains: medians of groups, averaged
POINTS = 11  # of a law's input
NARROWER = 0.8  # of a table's width: where so little of it is needed, another one is made
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


def retabled(
    chains: Chains, frames: Mapping[str, PyTree], ranges: Mapping[str, Range], settled: bool
) -> tuple[Chains, dict[str, PyTree]]:
    """The chains and frames with tables that cover `ranges`, and where chains have `settled` not much more: nodes that nobody
    visits are missed elsewhere. Laws are the same, as nearly as their new nodes allow; their coordinates are others."""
    laws, after = dict(chains.law), dict(frames)
    for name, range_ in ranges.items():
        old, law = frames[name], laws[name]
        if law.weights is None:
            continue
        after[name] = _suited(law.spec, old, range_, settled)
        if after[name] is old:
            continue
        laws[name] = reframed_to(law, old, after[name])
    return chains._replace(law=laws), after


def reframed_to(law: AbstractLaw, old: PyTree, new: PyTree) -> AbstractLaw:
    """Laws in another frame, where chains of a group share one."""
    firsts = [jax.tree.map(partial(_first_chain, group), law) for group in range(law.weights.shape[0])]
    moved = jnp.stack([first.reframed(old, new).weights for first in firsts])
    return law.with_weights(jnp.broadcast_to(moved[:, None], law.weights.shape))


def _suited(spec: Law, old: PyTree, range_: Range, settled: bool) -> PyTree:
    """A frame that covers the range, thrice as wide as the old one at most: chains that are lost for a moment go very far. The
    old one, where no other is needed."""
    if np.any(range_.low < old.low) or np.any(range_.high > old.high):
        width = old.high - old.low
        low, high = jnp.maximum(range_.low, old.low - width), jnp.minimum(range_.high, old.high + width)
        return spec.frame(Range(jnp.minimum(low, old.low), jnp.maximum(high, old.high)), old.scaling)
    narrow = spec.frame(range_, old.scaling) if settled else old
    return narrow if np.any(narrow.high - narrow.low < NARROWER * (old.high - old.low)) else old


def _first_chain(group: int, leaf: Array) -> Array:
    return leaf[group, 0]


class Progress(NamedTuple):
    """What a Newton step tells, of every group: the Newton decrement g' (H + P)^-1 g, what it would be at the optimum by the
    Monte Carlo error of the gradient g alone, and the log density of the chain in the middle, before it."""

    decrement: Float[np.ndarray, " group"]
    noise: Float[np.ndarray, " group"]
    level: Float[np.ndarray, " group"]

    @property
    def arrived(self) -> bool:
        return bool(np.mean(self.decrement) <= max(STILL, WITHIN * np.mean(self.noise)))


def newton_step(posterior: Posterior, chains: Chains, temperature: float, rate: float) -> tuple[Chains, Progress]:
    """The chains after one step of the laws of every group, and how far that was. Where most chains of a group would be far less
    likely after it, predictions are not linear that far, and the group takes a part of it, or none."""
    weights = coordinates(chains.law)
    told = information(posterior, chains)
    ends = np.cumsum([w.shape[-1] for w in weights.values()])
    every, steps, shears, means, found = np.ones(ends[-1], bool), [], [], [], []
    count = min(PICKED, chains.theta.shape[1])
    for group, prior in enumerate(precisions(posterior.population, chains)):
        part = told.of(group, temperature)
        left = eliminate(part, prior, every, np.zeros(ends[-1]))
        precision, a = (np.concatenate(parts) for parts in zip(*_priors(posterior, chains, group)))
        gradient = part.score - precision * a
        curvature = left.law + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        found.append((gradient @ step, np.trace(np.linalg.solve(curvature, part.apart)) / count))
        step = rate * step
        step *= min(1.0, LONGEST / max(_largest_change(posterior, weights, step, ends), 1e-30))
        steps.append(step)
        shears.append(left.theta @ step)
        means.append(left.mean @ step)
    by_law, by_theta, by_mean = (jnp.asarray(np.stack(x), chains.theta.dtype)[:, None] for x in (steps, shears, means))
    changes = dict(zip(weights, jnp.split(by_law, ends[:-1], axis=-1)))
    moved, before = _as_far_as_likely(
        posterior, chains, Step(changes, by_theta, by_mean if by_mean.size else None), temperature
    )
    decrement, noise = np.array(found).T
    return moved, Progress(decrement, noise, before)


def _as_far_as_likely(
    posterior: Posterior, chains: Chains, step: "Step", temperature: float
) -> tuple[Chains, Float[np.ndarray, " group"]]:
    """The chains after so much of a step as leaves every group about as likely as it was, and how likely that is."""
    dtype = chains.theta.dtype
    heat, share = jnp.asarray(temperature, dtype), np.ones(len(chains.theta))
    before = np.asarray(jit_soon(_log_density)(posterior, chains, heat))
    for shorter in SHORTER:
        moved, after = jit_soon(_taken)(posterior, chains, step, jnp.asarray(share, dtype), heat)
        worse = ~(np.asarray(after) >= before - SLACK)
        if not worse.any():
            break
        share = np.where(worse, shorter, share)
    return moved, before


def rising(levels: list[float], numbers: int, chains: int) -> bool:
    """Do chains become more likely from round to round by more than chance has it, or is it too early to say? `levels` are those of
    rounds, averaged over groups; a chain's log density of so many `numbers` has a variance of half of them."""
    if len(levels) <= ROUNDS:
        return True
    return levels[-1] - levels[-1 - ROUNDS] > RISES * math.sqrt(numbers / chains)


class Step(NamedTuple):
    """By how much laws, theta and the population's mean change in every group."""

    law: dict[str, Float[Array, "group 1 coordinate"]]
    theta: Float[Array, "group 1 system parameter"]
    mean: Float[Array, "group 1 parameter"] | None


def _taken(
    posterior: Posterior, chains: Chains, step: Step, part: Float[Array, " group"], temperature: Float[Array, ""]
) -> tuple[Chains, Float[Array, " group"]]:
    """The chains after so much of a step, evaluated, and their log density."""

    def part_of(change: Array) -> Array:
        here = part.reshape(-1, *(1,) * (change.ndim - 1))
        return jnp.where(here > 0, here * change, 0.0)  # none of what is not a number either

    step = jax.tree.map(part_of, step)
    moved = posterior.refresh(moved_along(chains, step.law, step.theta, step.mean, posterior.population))
    return moved, _log_density(posterior, moved, temperature)


def _log_density(posterior: Posterior, chains: Chains, temperature: Float[Array, ""]) -> Float[Array, " group"]:
    """Tempered, of the chain in the middle of each group."""
    return jnp.median(posterior.log_joint(chains, temperature * posterior.loglik(chains)), axis=1)


def first_laws(keys: GroupKeys, chains: Chains, frames: Mapping[str, Frame]) -> Chains:
    """Chains whose laws begin apart: those of a group at one draw from the prior, moderately large; those of other groups at
    others. The cache is that of where chains were."""
    laws = dict(chains.law)
    for number, (name, weights) in enumerate(coordinates(chains.law).items()):
        precision = frames[name].precision(laws[name].log_size[:, :1])
        (uniform,) = uniforms_by_group(per_group(keys, number), weights.shape[2:])
        drawn = FIRST_SIZE * normal(uniform)[:, None] / jnp.sqrt(precision)
        laws[name] = laws[name].with_weights(jnp.broadcast_to(drawn, weights.shape).astype(weights.dtype))
    return chains._replace(law=laws)


def tamed(posterior: Posterior, chains: Chains) -> Chains:
    """The chains with first laws so small that most solutions of a group are not much farther from data than without any law:
    where the unit of a law is too large, its first draws send them anywhere."""

    def fit(part: np.ndarray) -> np.ndarray:
        return np.asarray(jit_soon(_fit)(posterior, _shrunk(chains, part)), float)

    part = np.ones(len(chains.theta))
    without = fit(0 * part)
    for _ in range(TAMED):
        astray = ~(fit(part) >= without - ASTRAY * (np.abs(without) + ASTRAY))
        if not astray.any():
            break
        part = np.where(astray, part / 4, part)
    return _shrunk(chains, part)


def _shrunk(chains: Chains, part: np.ndarray) -> Chains:
    laws = {
        name: chains.law[name].with_weights(w * part[:, None, None].astype(w.dtype))
        for name, w in coordinates(chains.law).items()
    }
    return chains._replace(law=chains.law | laws)


def _fit(posterior: Posterior, chains: Chains) -> Float[Array, " group"]:
    return jnp.median(jnp.sum(posterior.loglik_at(chains), axis=-1), axis=1)


def grid_of(seen: Mapping[str, np.ndarray], names: list[str]) -> dict[str, list[list[float]]]:
    """Inputs of each law at which its convergence is judged, evenly over where solutions go."""
    grids = {}
    for name in names:
        low, high = np.quantile(seen[name], [0.01, 0.99], axis=0)
        count = {1: POINTS}.get(len(low), 4)
        axes = [np.linspace(a, b, count) for a, b in zip(low, high)]
        grids[name] = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low)).tolist()
    return grids


def law_values(law: AbstractLaw, frame: PyTree, inputs: np.ndarray) -> np.ndarray:
    """A law with axes (chain, draw) in front at (point, input), as (chain, draw, point)."""

    return np.asarray(jit_soon(_values)(law, frame, jnp.asarray(inputs, float)))


def _values(law: AbstractLaw, frame: PyTree, inputs: Array) -> Array:
    def one(law: AbstractLaw) -> Array:
        called = law.as_function(frame)
        return jax.vmap(lambda x: called(*x))(inputs)

    return eqx.filter_vmap(eqx.filter_vmap(one))(law)


def _priors(posterior: Posterior, chains: Chains, group: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each law: its precision before data, and where it is now."""
    found = []
    for name, weights in coordinates(chains.law).items():
        precision = posterior.ranges[name].precision(jnp.asarray(chains.law[name].log_size[group, 0]))
        found.append((np.asarray(precision, float), np.asarray(weights[group, 0], float)))
    return found


def _largest_change(posterior: Posterior, weights: Mapping[str, Array], step: np.ndarray, ends: np.ndarray) -> float:
    """At the nodes where most calls are; beyond them laws may change as they like."""
    largest = 0.0
    for name, part in zip(weights, np.split(step, ends[:-1])):
        frame = posterior.ranges[name]
        nodes = frame.inner
        largest = max(largest, np.abs(nodes @ part[-nodes.shape[1] :]).max(initial=0.0))
        # Of coordinates before g's the law need not be linear: an sd of their prior is far enough.
        largest = max(largest, LONGEST * np.abs(part[: -nodes.shape[1]]).max(initial=0.0))
    return float(largest)
