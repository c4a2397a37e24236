"""What data tell of theta and of the laws at once, to second order: the constants of the moves that change both.

    -log p(theta, phi, a)  ~  1/2 (theta, top, a)^T H (theta, top, a),     top = population means and shared parameters

H is Fisher's information of the data (Gauss-Newton), averaged over chains, and the precision of the prior. Eliminating theta
and top tells what data say of the law when all else may follow it, and how all else follows.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from .._compile import jit_soon
from ..laws import prepare
from ..population import Population
from ._posterior import Posterior
from ._state import Cache, Chains


class Information(NamedTuple):
    """Of the data of all systems, averaged over chains of a group; `score` is the gradient of the log likelihood in a, and
    `pull` that in theta, plus information times position: where the quadratic approximation has its linear term."""

    theta: Float[Array, "group system parameter parameter"]
    cross: Float[Array, "group system parameter coordinate"]
    law: Float[Array, "group coordinate coordinate"]
    score: Float[Array, "group coordinate"]
    apart: Float[Array, "group coordinate coordinate"]  # covariance over chains of the score
    pull: Float[Array, "group system parameter"]
    by_theta: Float[Array, "group system observation parameter"]  # sensitivities of predictions
    by_law: Float[Array, "group system observation coordinate"]

    def of(self, group: int, temperature: float = 1.0) -> "Information":
        """That of one group, in double precision, the likelihood to the power of `temperature`."""
        powers = Information(1, 1, 1, 1, 2, 1, 0, 0)  # type: ignore[arg-type]
        parts: PyTree = [temperature**power * np.asarray(part[group], float) for part, power in zip(self, powers)]
        return Information(*parts)


class Elimination(NamedTuple):
    """What is left of a group's information when theta, population means and shared parameters follow the laws."""

    law: Float[np.ndarray, "coordinate coordinate"]
    theta: Float[np.ndarray, "system parameter coordinate"]  # d theta_k / d a
    mean: Float[np.ndarray, "own coordinate"]  # d mu / d a; without rows where there is no population
    others: Float[np.ndarray, "other coordinate"]  # d (other laws) / d a


def coordinates(laws: PyTree) -> dict[str, Array]:
    """Of the laws that have any, by name."""
    return {name: law.weights for name, law in laws.items() if law.weights is not None}


Curves = tuple[Float[np.ndarray, "group parameter"], Float[np.ndarray, "group system parameter"]]  # power, at
STRETCHED = 0.1  # precision of the log of a spread
PICKED = 4  # chains of a group at which sensitivities are taken
AT_ONCE = 10_000_000  # products of sensitivities: of many systems, some are worked through after the others
LIMIT = 1e15  # squares of what is larger overflow


def picked(count: int) -> np.ndarray:
    """Numbers of the chains, of so many, at which sensitivities are taken."""
    return np.linspace(0, count - 1, min(PICKED, count)).astype(int)


def information(posterior: Posterior, chains: Chains, curves: Curves | None = None) -> Information:
    """Averaged over some chains of every group; a solve that fails counts for nothing.

    Along `curves` (power, at) it is that of eta instead of theta (see `on_curve`): where data know the sum of a law and a parameter, but
    neither, their sensitivities are then in proportion, the same one at all draws, and an average knows no more than they do.
    """
    chosen = picked(chains.theta.shape[1])
    # From the host: arrays that came to lie on other devices would have it compiled again, as would a density without gradients.
    plain = dataclasses.replace(posterior, gradients=True, scores=False)
    told, every = jax.device_get((plain, chains._replace(cache=Cache(()))))
    some = jax.tree.map(lambda a: a[:, chosen], every)
    theta = np.asarray(some.theta)
    power, at = (np.zeros(1), np.zeros(1)) if curves is None else (curves[0][:, None, None], curves[1][:, None])
    place, unit = (part.astype(theta.dtype) for part in on_curve(theta, power, at))
    return jax.device_get(jit_soon(_information)(told, some, place, unit))


def on_curve(
    theta: Float[np.ndarray, "*draw parameter"], power: np.ndarray, at: np.ndarray
) -> tuple[Float[np.ndarray, "*draw parameter"], Float[np.ndarray, "*draw parameter"]]:
    """eta = at + (e^(power (theta - at)) - 1) / power, theta itself where that is zero; and d theta / d eta."""
    away, some = power * (theta - at), np.where(power == 0, 1.0, power)
    return np.where(power == 0, theta, at + np.expm1(away) / some), np.exp(-away)


def _information(posterior: Posterior, chains: Chains, place: Array, unit: Array) -> Information:
    """`place` is where theta stands in its units, `unit` is d theta over them: (group, chain, system, parameter)."""
    groups, count, systems, parameters = chains.theta.shape
    directions = parameters + sum(w.shape[-1] for w in coordinates(chains.law or {}).values())
    size = _some(systems, AT_ONCE // (groups * count * directions**2))
    rows, whole = jnp.arange(systems), systems - systems % size

    def some(rows: Array) -> tuple[BySystem, Added]:
        return _of_systems(posterior, chains, (place, unit), rows)

    by_system, added = lax.map(some, rows[:whole].reshape(-1, size))
    by_system = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(groups, whole, *a.shape[3:]), by_system)
    added = jax.tree.map(lambda a: jnp.sum(a, axis=0), added)
    if whole < systems:
        rest, more = some(rows[whole:])
        by_system = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), by_system, rest)
        added = jax.tree.map(jnp.add, added, more)
    theta, cross, pull, sensitivity = by_system
    score = jnp.sum(added.score, axis=1)
    away = count * added.score - score[:, None]
    apart = jnp.einsum("gci,gcj->gij", away, away) / max(1, count - 1)
    by_theta, by_law = jnp.split(sensitivity, [parameters], axis=-1)
    return Information(theta, cross, added.law, score, apart, pull, by_theta, by_law)


def _some(systems: int, most: int) -> int:
    """How many systems are worked through at once: a divisor, where there is one that is not small, so that none are left."""
    most = min(systems, max(1, most))
    return next((size for size in range(most, most // 3, -1) if systems % size == 0), most)


class BySystem(NamedTuple):
    """What `Information` says of each system; of `sensitivity` the directions of theta come first."""

    theta: Float[Array, "group system parameter parameter"]
    cross: Float[Array, "group system parameter coordinate"]
    pull: Float[Array, "group system parameter"]
    sensitivity: Float[Array, "group system observation direction"]


class Added(NamedTuple):
    """What is added up over systems; the score of each chain as its part of the average."""

    law: Float[Array, "group coordinate coordinate"]
    score: Float[Array, "group chain coordinate"]


def _of_systems(
    posterior: Posterior, chains: Chains, units: tuple[Array, Array], rows: Int[Array, " row"]
) -> tuple[BySystem, Added]:
    """Of some of the systems, averaged over those chains whose solve is finite."""
    # Every array of a likelihood has the system axis first.
    here = dataclasses.replace(posterior, likelihood=jax.tree.map(lambda a: a[rows], posterior.likelihood))
    lead = chains.theta.shape[:2]

    def one_chain(part: tuple[PyTree, ...]) -> tuple[Array, ...]:
        return _of_chain(here, *part)

    place, unit = (a[:, :, rows] for a in units)
    told: PyTree = (chains.theta[:, :, rows], chains.law, chains.log_sigma, place, unit)
    every = lax.map(one_chain, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), told))
    theta, cross, law, score, pull, sensitivity, sound = (a.reshape(*lead, *a.shape[1:]) for a in every)
    weight = 1 / jnp.maximum(jnp.sum(sound, axis=1), 1.0)  # (group, system)
    by_system = (jnp.einsum("gcs...,gs->gs...", part, weight) for part in (theta, cross, pull, sensitivity))
    return BySystem(*by_system), Added(
        jnp.einsum("gcsij,gs->gij", law, weight), jnp.einsum("gcsr,gs->gcr", score, weight)
    )


def _of_chain(
    posterior: Posterior, theta: Array, laws: PyTree, log_sigma: Array | None, place: Array, unit: Array
) -> tuple[Array, ...]:
    """Of each system, in these units of theta, and whether its solve was finite."""
    likelihood, measured = posterior.likelihood, posterior.likelihood.measured
    flat, unravel = ravel_pytree(coordinates(laws or {}))
    flat = flat.astype(theta.dtype)

    def predictions(theta: Array, flat: Array) -> Array:
        if not laws:
            return likelihood.predict(theta[None], posterior.context)[0]
        own = {name: law.with_weights(unravel(flat).get(name)) for name, law in laws.items()}
        context = likelihood.forward.with_own_laws(posterior.context, prepare(own, posterior.ranges))
        return likelihood.predict(theta[None], context)[0]

    def along_theta(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda t: predictions(t, flat), (theta,), (direction * unit,))

    def along_law(direction: Array) -> Array:
        return jax.jvp(lambda a: predictions(theta, a), (flat,), (direction,))[1]

    prediction, by_theta = jax.vmap(along_theta, out_axes=(None, 0))(jnp.eye(theta.shape[-1]))
    by_law = jax.vmap(along_law)(jnp.eye(len(flat))) if len(flat) else by_theta[:0]
    jacobian = jnp.concatenate([by_theta, by_law])  # (direction, system, observation)
    sound = jnp.all(jnp.abs(jacobian) < LIMIT, axis=(0, 2)) & jnp.all(jnp.isfinite(prediction), axis=-1)
    counted = sound[:, None] & measured.mask
    scale = measured.scales(None if log_sigma is None else log_sigma[None])
    scale = scale[0] if scale.ndim == 3 else scale
    known = jnp.where(counted, prediction, measured.value)
    _, score = likelihood.noise.log_prob_and_score(measured.value, known, scale)
    weight = jnp.where(counted, likelihood.noise.weight(measured.value, known, scale), 0.0)
    score, jacobian = jnp.where(counted, score, 0.0), jnp.where(counted, jacobian, 0.0)
    square = jnp.einsum("iso,jso,so->sij", jacobian, jacobian, weight)
    count = theta.shape[-1]
    pushed = jnp.einsum("rso,so->sr", jacobian, score)
    place = jnp.concatenate([place, jnp.broadcast_to(flat, (len(theta), len(flat)))], axis=1)
    pull = pushed[:, :count] + jnp.einsum("sij,sj->si", square[:, :count], place)
    blocks = square[:, :count, :count], square[:, :count, count:], square[:, count:, count:]
    return *blocks, pushed[:, count:], pull, jnp.moveaxis(jacobian, 0, -1), 1.0 * sound


class Precisions(NamedTuple):
    """Of the prior: of a system's own parameters given the population, of the population's mean (None where there is none),
    and of shared parameters; which parameters are whose; and how far systems are from their mean."""

    theta: Float[np.ndarray, "own own"]
    mean: Float[np.ndarray, " own"] | None
    shared: Float[np.ndarray, " held"]
    own: np.ndarray
    held: np.ndarray
    away: Float[np.ndarray, "system own"]


def precisions(population: Population, chains: Chains) -> list[Precisions]:
    """Of every group, averaged over its chains."""
    groups, _, _, parameters = chains.theta.shape
    shared = np.array(population.shared or (False,) * parameters)
    mean = None if population.mean_precision is None else np.asarray(population.mean_precision, float)
    held, which = np.asarray(population.shared_precision, float), (np.flatnonzero(~shared), np.flatnonzero(shared))
    if chains.phi:
        every = np.asarray(jit_soon(_precision_of)(population, chains.phi), float).mean(axis=1)
    else:
        every = np.asarray([population.precision(())] * groups, float)
    middle = np.asarray(chains.theta[..., which[0]], float).mean(axis=1)
    away = middle - middle.mean(axis=1, keepdims=True)
    return [Precisions(one, mean, held, *which, apart) for one, apart in zip(every, away)]


def _precision_of(population: Population, phi: PyTree) -> Array:
    return jax.vmap(jax.vmap(population.precision))(phi)


class Above(NamedTuple):
    """What is left when theta is eliminated, of (population means, shared parameters, laws); and how each theta_k follows
    these, given which its precision is `inner`."""

    left: Float[np.ndarray, "above above"]
    follows: Float[np.ndarray, "system own above"]  # - d theta_k / d above
    inner: Float[np.ndarray, "system own own"]


def above(information: Information, population: Precisions, stretched: bool = False) -> Above:
    """Of one group, in double precision; priors of means and shared parameters are in it, those of laws are not. Where the
    population is `stretched` when its systems move apart, by how much comes between shared parameters and laws."""
    theta, cross, law = information[:3]
    own, held = population.own, population.held
    means, stretches = _counts(population, stretched)
    systems, rest = len(theta), means + len(held) + stretches
    inner = np.asarray(theta[:, own][:, :, own] + population.theta)
    # How theta of a system is bound to what stands above it: its mean, shared parameters, laws.
    to_mean = np.broadcast_to(-population.theta, (systems, len(own), len(own)))[:, :, :means]
    to_stretch = (-population.theta * population.away[:, None])[:, :, :stretches]
    bound = np.concatenate([to_mean, theta[:, own][:, :, held], to_stretch, cross[:, own]], axis=2)
    follows = np.linalg.solve(inner, bound)
    top = np.zeros((rest + law.shape[0],) * 2)
    if population.mean is not None:
        top[:means, :means] = systems * population.theta + np.diag(population.mean)
    of_shared = slice(means, means + len(held))
    top[of_shared, of_shared] = theta[:, held][:, :, held].sum(axis=0) + np.diag(population.shared)
    top[of_shared, rest:] = cross[:, held].sum(axis=0)
    top[rest:, of_shared] = top[of_shared, rest:].T
    if stretches:
        apart = population.away.T @ population.away * population.theta
        top[rest - stretches : rest, rest - stretches : rest] = apart + STRETCHED * np.eye(stretches)
    top[rest:, rest:] = law
    return Above(top - np.einsum("spr,spq->rq", bound, follows), follows, inner)


def _counts(population: Precisions, stretched: bool) -> tuple[int, int]:
    """How many means there are, and how many spreads that follow systems: of three and more, as `Population.followed` has it."""
    means = len(population.own) if population.mean is not None else 0
    return means, means if stretched and len(population.away) > 2 else 0


def eliminate(
    information: Information,
    population: Precisions,
    moved: np.ndarray,
    law_precision: np.ndarray,
    stretched: bool = False,
) -> Elimination:
    """Of one group, in double precision: all but the coordinates `moved` eliminated. `law_precision` is the prior's, of every
    coordinate; it counts where these are eliminated, and is left out of the result. `stretched`: the population's spread
    follows its systems too."""
    top, follows, _ = above(information, population, stretched)
    own, held = population.own, population.held
    means, stretches = _counts(population, stretched)
    systems, rest = len(follows), means + len(held) + stretches
    stay = np.flatnonzero(~moved)
    top[rest + stay, rest + stay] += law_precision[stay]
    out, kept = np.concatenate([np.arange(rest), rest + stay]), rest + np.flatnonzero(moved)
    along = -np.linalg.solve(top[np.ix_(out, out)], top[np.ix_(out, kept)])
    left = top[np.ix_(kept, kept)] + top[np.ix_(kept, out)] @ along
    shear = np.zeros((systems, len(own) + len(held), len(kept)))
    shear[:, own] = -(follows[:, :, kept] + follows[:, :, out] @ along)
    shear[:, held] = along[means : means + len(held)]
    return Elimination(0.5 * (left + left.T), shear, along[:means], along[rest:])
