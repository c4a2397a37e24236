"""Does a newcomer belong to the fleet? Two questions, each answered beside members that are simulated.

1. Are its parameters those of a member? What its data say of theta without the population (estimate and information, by
   linearising the solver at the best fit) against what the population says without its data (node splitting: Marshall and
   Spiegelhalter 2007). In population standard deviations, along the directions the data know something about,

       T = sum over directions i of  h_i^2 / (lambda_i + lambda_i^2),

   lambda_i the information of the data and h_i = lambda_i (estimate - population mean)_i: d' Cov^-1 d, and chi-square in
   linear problems with normal noise. Directions that data leave open have no say.
2. Does any theta fit? Squared standardised residuals that remain when theta is free: score^2 / information of every
   observation, which is Pearson's chi-square, less what theta would take away.

Both figures are computed in the same way for members drawn from the stored populations and observed at the newcomer's own
places with its own noise. The p-value is the share of members that look at least as odd, so that it needs no normality of
anything, and takes into account how well the population is known.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from ..forward import Likelihood
from ..population import PopulationDraws

LEVEL = 0.01  # false alarms in all; each question has half of it
FEWEST, MOST = 400, 1000  # simulated members of each newcomer
EXPENSIVE = 256  # the same where solutions are expensive
TOTAL = 20_000  # of all newcomers
STEPS = 12  # of Levenberg and Marquardt
FLOOR = 1e-3  # information, in population units, below which a direction counts as open
BATCH = 512


class Moments(NamedTuple):
    """Of each newcomer, before its data: moments of theta over all stored draws, and the size of the noise."""

    mean: Float[Array, "system parameter"]
    lower: Float[Array, "system parameter parameter"]  # Cholesky factor of the covariance
    log_sigma: Float[Array, " quantity"] | None


class Found(NamedTuple):
    """The best fit under the population: (..., system) each."""

    conflict: Float[Array, "*rows"]
    misfit: Float[Array, "*rows"]
    shift: Float[Array, "*rows parameter"]  # of the best fit from the population's mean, in population sds
    score: Float[Array, "*rows parameter"]  # the same in units of how far members' best fits scatter


class Membership(NamedTuple):
    """Of each newcomer: figures and p-values of both questions; `conflict_p` and `misfit_p` are NaN where nothing can be said.

    - `conflict`: T above; `chi_square`: residual squares that remain, per degree of freedom.
    - `shift`, `score`: (system, parameter), how far off the best fit is, as in `Found`.
    - `members`: how many were simulated.
    """

    conflict: np.ndarray
    conflict_p: np.ndarray
    chi_square: np.ndarray
    misfit_p: np.ndarray
    shift: np.ndarray
    score: np.ndarray
    members: int

    @property
    def belongs(self) -> np.ndarray:
        return ~(self.prior_conflict | self.misfit)

    @property
    def prior_conflict(self) -> np.ndarray:
        """Its parameters are not those of a member."""
        return np.nan_to_num(self.conflict_p, nan=1.0) < LEVEL / 2

    @property
    def misfit(self) -> np.ndarray:
        """No parameters fit its data."""
        return np.nan_to_num(self.misfit_p, nan=1.0) < LEVEL / 2


def moments(stored: PopulationDraws) -> Moments:
    assert stored.center is not None
    assert stored.white is not None
    lower = jnp.linalg.inv(stored.white)
    within = jnp.mean(lower @ jnp.swapaxes(lower, -1, -2), axis=0)
    mean = jnp.mean(stored.center, axis=0)
    away = stored.center - mean
    between = jnp.einsum("dsp,dsq->spq", away, away) / len(away)
    sizes = None if stored.log_sigma is None else jnp.median(stored.log_sigma, axis=0)
    return Moments(mean, jnp.linalg.cholesky(within + between), sizes)


def membership(
    target: Likelihood,
    context: PyTree,
    stored: PopulationDraws,
    start: Float[Array, "system parameter"],
    seed: int = 0,
    most: int = MOST,
) -> Membership:
    """Compare each newcomer with simulated members. `start` is where the best fit of each newcomer is looked for, a draw of its posterior; `most` members are simulated."""
    systems, count = start.shape
    batch = max(1, min(most, BATCH) // systems)
    rows = batch * -(-min(most, max(FEWEST, TOTAL // systems)) // batch)
    found = jax.tree.map(
        lambda a: np.asarray(a, float).reshape(-1, *a.shape[2:]),
        _compared(target, context, stored, start, jr.key(seed), (rows // batch, batch)),
    )
    free = np.asarray(jnp.sum(target.measured.mask, axis=1)) - count
    return Membership(
        found.conflict[0],
        _share(found.conflict),
        found.misfit[0] / np.maximum(1, free),
        np.where(free > 0, _share(found.misfit), np.nan),
        found.shift[0],
        found.score[0],
        rows - 1,
    )


@eqx.filter_jit
def _compared(
    target: Likelihood,
    context: PyTree,
    stored: PopulationDraws,
    start: Array,
    key: PRNGKeyArray,
    shape: tuple[int, int],
) -> Found:
    """Figures (block, row, system): of the newcomers themselves in the first row, beside members in all others."""
    rows = shape[0] * shape[1]
    key_draw, key_noise = jr.split(key)
    index = jr.randint(key_draw, (rows,), 0, stored.count)
    theta = stored.theta_from_normal(index, jr.normal(jr.fold_in(key_draw, 1), (rows, *start.shape))).at[0].set(start)
    value = jnp.full((rows, *target.measured.value.shape), jnp.nan).at[0].set(target.measured.value)
    log_scale = None if stored.log_sigma is None else stored.log_sigma[index]
    theta, value, log_scale = jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), (theta, value, log_scale))
    return _best(target, context, moments(stored), _Rows(theta, value, log_scale, jr.split(key_noise, shape[0])))


def _share(figure: np.ndarray) -> np.ndarray:
    """Of rows at least as odd as the first; one that cannot be computed is as odd as can be, members that cannot do not count."""
    own, others = figure[0], figure[1:]
    sound = np.isfinite(others)
    return (1 + (sound & ~(others < own)).sum(axis=0)) / (1 + sound.sum(axis=0))


class _Trial(NamedTuple):
    """Rows of systems in front of each."""

    place: Float[Array, "row system parameter"]  # from the population's mean, in its standard deviations
    cost: Float[Array, "row system"]
    information: Float[Array, "row system parameter parameter"]
    pull: Float[Array, "row system parameter"]
    squares: Float[Array, "row system"]
    value: Float[Array, "row system observation"]


class _Rows(NamedTuple):
    """Rows of systems to be fitted, in blocks; where there are no values (NaN) they are made: observations of what is
    predicted at theta, by noise of this scale."""

    theta: Float[Array, "block row system parameter"]
    value: Float[Array, "block row system observation"]
    log_scale: Float[Array, "block row quantity"] | None
    key: Key[Array, " block"]


def _best(target: Likelihood, context: PyTree, population: Moments, rows: _Rows) -> Found:
    """Best fits by Levenberg and Marquardt, and the figures there."""
    mean, lower, _ = population

    def block(part: _Rows) -> Found:
        theta, value, size = part.theta, part.value, part.theta.shape[-1]

        def improve(state: tuple[_Trial, Array], _: None) -> tuple[tuple[_Trial, Array], None]:
            best, damping = state
            eye, more = jnp.eye(size), damping[..., None, None]
            curved = best.information * (1 + more * eye) + (1 + more) * eye
            move = jnp.linalg.solve(curved, (best.pull - best.place)[..., None])[..., 0]
            trial = _attempt(target, context, population, best.place + move, part._replace(value=best.value))
            better = trial.cost < best.cost

            def either(new: Array, old: Array) -> Array:
                return jnp.where(better.reshape(*better.shape, *(1,) * (new.ndim - 2)), new, old)

            return (jax.tree.map(either, trial, best), jnp.where(better, 0.2 * damping, 10 * damping + 0.01)), None

        place = jnp.linalg.solve(lower, (theta - mean)[..., None])[..., 0]
        none = jnp.full(place.shape[:2], jnp.inf)
        # A first trial that goes nowhere: it is made within the loop, so that the solver is compiled once.
        first = _Trial(place, none, jnp.zeros((*place.shape, size)), place, none, value)
        (best, _), _ = lax.scan(improve, (first, jnp.zeros(place.shape[:2])), length=1 + STEPS)
        return _figures(best, lower)

    return lax.map(block, rows)


def _attempt(
    target: Likelihood,
    context: PyTree,
    population: Moments,
    place: Float[Array, "row system parameter"],
    rows: _Rows,
) -> _Trial:
    """How well theta at a place fits rows of one block."""
    mean, lower, usual = population
    noise, measured = target.noise, target.measured
    predicted, jacobian = target.linearise(mean + jnp.einsum("spq,rsq->rsp", lower, place), context)
    own = jnp.broadcast_to(measured.scales(rows.log_scale), predicted.shape)
    scale = jnp.broadcast_to(measured.scales(None if usual is None else usual[None]), predicted.shape)
    missing = jnp.isnan(rows.value)
    value = lax.cond(
        jnp.any(missing),
        lambda: jnp.where(missing, noise.sample(rows.key, predicted, own), rows.value),
        lambda: rows.value,
    )
    slope = jnp.where(measured.mask, jnp.einsum("prso,spq->qrso", jacobian, lower), 0.0)
    each = (*noise.log_prob_and_score(value, predicted, scale), noise.weight(value, predicted, scale))
    log_prob, score, weight = (jnp.where(measured.mask, x, 0.0) for x in each)
    information = jnp.einsum("prso,rso,qrso->rspq", slope, weight, slope)
    pull = jnp.einsum("prso,rso->rsp", slope, score)
    cost = 0.5 * jnp.sum(place**2, axis=-1) - jnp.sum(log_prob, axis=-1)
    fine = jnp.isfinite(cost) & jnp.all(jnp.isfinite(information), axis=(-2, -1))
    squares = jnp.sum(jnp.where(weight > 0, score**2 / jnp.where(weight > 0, weight, 1.0), 0.0), axis=-1)
    return _Trial(place, jnp.where(fine, cost, jnp.inf), information, pull, squares, value)


def _figures(best: _Trial, lower: Array) -> Found:
    known, along = jnp.linalg.eigh(best.information)
    known = jnp.maximum(known, 0.0)
    says = jnp.einsum("rspq,rsq->rsp", best.information, best.place) + best.pull
    conflict = jnp.sum(jnp.einsum("rspi,rsp->rsi", along, says) ** 2 / (known + known**2 + FLOOR), axis=-1)
    # What theta, were it free, would take away of the residuals.
    explained = jnp.sum(jnp.einsum("rspi,rsp->rsi", along, best.pull) ** 2 / (known + FLOOR), axis=-1)
    half = jnp.einsum("spq,rsqi->rspi", lower, along) * jnp.sqrt(known / (1 + known))[..., None, :]
    sd, moved = jnp.sqrt(jnp.sum(lower**2, axis=-1)), jnp.einsum("spq,rsq->rsp", lower, best.place)
    usual = jnp.sqrt(jnp.sum(half**2, axis=-1) + FLOOR * sd**2)
    failed = ~jnp.isfinite(best.cost)
    conflict, misfit = (jnp.where(failed, jnp.nan, x) for x in (conflict, jnp.maximum(0.0, best.squares - explained)))
    return Found(conflict, misfit, moved / sd, moved / usual)
