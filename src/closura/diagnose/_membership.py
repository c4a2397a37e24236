"""Does a new system belong to the fleet? Two questions, each answered beside members that are simulated.

1. Are its parameters those of a member? What its data say of theta without the population (estimate and information, by
   linearising the solver at the best fit) against what the population says without its data (node splitting: Marshall and
   Spiegelhalter 2007). In population standard deviations, along the directions the data know something about,

       T = sum over directions i of  h_i^2 / (lambda_i + lambda_i^2),

   lambda_i the information of the data and h_i = lambda_i (estimate - population mean)_i: d' Cov^-1 d, and chi-square in
   linear problems with normal noise. Directions that data leave open have no say.
2. Does any theta fit? Squared standardised residuals that remain when theta is free: score^2 / information of every
   observation, which is Pearson's chi-square, less what theta would take away.

Both figures are computed in the same way for members drawn from the stored populations and observed at the new system's own
places with its own noise. The p-value is the share of members that look at least as odd, so that it needs no normality of
anything, and takes into account how well the population is known. Where every stored draw has laws of its own, a member is
simulated and fitted under those of its draw, and a new system is fitted under those of a draw from its posterior: if it is a
member, law and data are jointly distributed as they are for the simulated ones.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from ..forward import Likelihood
from ..laws import SolverLaws, prepare
from ..population import PopulationDraws

LEVEL = 0.01  # false alarms in all; each question has half of it
FEWEST, MOST = 400, 1000  # simulated members of each new system
EXPENSIVE = 256  # the same where solutions are expensive
TOTAL = 20_000  # of all new systems
STEPS = 12  # of Levenberg and Marquardt
FLOOR = 1e-3  # information, in population units, below which a direction counts as open
BATCH = 512


class Membership(NamedTuple):
    """Of each new system: figures and p-values of both questions; `conflict_p` and `misfit_p` are NaN where nothing can be said.

    - `conflict`: T above; `chi_square`: residual squares that remain, per degree of freedom.
    - `shift`, `score`: (system, parameter), how far off the best fit is, as in `_Found`.
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


def membership(
    target: Likelihood,
    context: PyTree,
    stored: PopulationDraws,
    start: Float[Array, "system parameter"],
    seed: int = 0,
    draw: Int[Array, " system"] | int = 0,
    tables: SolverLaws = MappingProxyType({}),
) -> Membership:
    """Compare each new system with simulated members.

    `start` is where the best fit of each new system is looked for, a draw of its posterior, and `draw` the stored draw that it
    goes with. `context` has the laws that all draws share; `tables` the others, of all stored draws, as solvers call them.
    """
    systems, count = start.shape
    most = EXPENSIVE if target.forward.problem.expensive else MOST
    batch = max(1, min(most, BATCH) // systems)
    rows = batch * -(-min(most, max(FEWEST, TOTAL // systems)) // batch)
    shape = (rows // batch, batch)
    every = _compared(target, context, stored, dict(tables), start, jnp.asarray(draw), jr.key(seed), shape)
    found = jax.tree.map(lambda a: np.asarray(a, float).reshape(-1, *a.shape[2:]), every)
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


def _share(figure: np.ndarray) -> np.ndarray:
    """Of rows at least as odd as the first; one that cannot be computed is as odd as can be, members that cannot do not count."""
    own, others = figure[0], figure[1:]
    sound = np.isfinite(others)
    return (1 + (sound & ~(others < own)).sum(axis=0)) / (1 + sound.sum(axis=0))


class _Found(NamedTuple):
    """Of best fits under the population."""

    conflict: Float[Array, "row system"]
    misfit: Float[Array, "row system"]
    shift: Float[Array, "row system parameter"]  # of the best fit from the population's mean, in population sds
    score: Float[Array, "row system parameter"]  # the same in units of how far members' best fits scatter


class _Rows(NamedTuple):
    """Rows of systems to be fitted, in blocks; where there are no values (NaN) they are made: observations of what is
    predicted at theta, by the noise of the stored draw."""

    theta: Float[Array, "*block row system parameter"]
    draw: Int[Array, "*block row system"]  # the stored draw that each goes with
    value: Float[Array, "*block row system observation"]
    key: Key[Array, "*block"]


class _Trial(NamedTuple):
    place: Float[Array, "row system parameter"]  # from the population's mean, in its standard deviations
    cost: Float[Array, "row system"]
    information: Float[Array, "row system parameter parameter"]
    pull: Float[Array, "row system parameter"]
    squares: Float[Array, "row system"]
    value: Float[Array, "row system observation"]


@eqx.filter_jit
def _compared(
    target: Likelihood,
    context: PyTree,
    stored: PopulationDraws,
    tables: SolverLaws,
    start: Array,
    draw: Array,
    key: PRNGKeyArray,
    shape: tuple[int, int],
) -> _Found:
    """Figures (block, row, system): of the new systems themselves in the first row, beside members in all others."""
    rows = shape[0] * shape[1]
    key_draw, key_noise = jr.split(key)
    index = jr.randint(key_draw, (rows,), 0, stored.count)
    theta = stored.theta_from_normal(index, jr.normal(jr.fold_in(key_draw, 1), (rows, *start.shape))).at[0].set(start)
    draws = jnp.repeat(index[:, None], len(start), axis=1).at[0].set(draw)
    value = jnp.full((rows, *target.measured.value.shape), jnp.nan).at[0].set(target.measured.value)
    usual = target.measured.scales(None if stored.log_sigma is None else jnp.median(stored.log_sigma, axis=0)[None])
    mean, lower = _moments(stored)

    def block(part: _Rows) -> _Found:
        log_scale, own = jax.tree.map(lambda a: a[part.draw], (stored.log_sigma, stored.law))
        laws, axes = prepare(own or {}, tables, leading=2), 2 if own else 0

        def attempt(place: Array, value: Array) -> _Trial:
            """How well theta at a place fits."""
            predicted, jacobian = target.linearise(mean + jnp.einsum("spq,rsq->rsp", lower, place), context, laws, axes)
            gradient = jnp.einsum("prso,spq->qrso", jacobian, lower)
            scale = jnp.broadcast_to(target.measured.scales(log_scale), predicted.shape)
            missing = jnp.isnan(value)
            value = lax.cond(
                jnp.any(missing),
                lambda: jnp.where(missing, target.noise.sample(part.key, predicted, scale), value),
                lambda: value,
            )
            return _trial(target, place, predicted, gradient, value, jnp.broadcast_to(usual, predicted.shape))

        place = jnp.linalg.solve(lower, (part.theta - mean)[..., None])[..., 0]
        return _figures(_best(attempt, place, part.value), lower)

    theta, draws, value = (a.reshape(*shape, *a.shape[1:]) for a in (theta, draws, value))
    return lax.map(block, _Rows(theta, draws, value, jr.split(key_noise, shape[0])))


def _moments(stored: PopulationDraws) -> tuple[Float[Array, "system parameter"], Array]:
    """Of theta of each new system before its data, over all stored draws: mean, and Cholesky factor of the covariance."""
    assert stored.center is not None
    assert stored.white is not None
    lower = jnp.linalg.inv(stored.white)
    within = jnp.mean(lower @ jnp.swapaxes(lower, -1, -2), axis=0)
    mean = jnp.mean(stored.center, axis=0)
    away = stored.center - mean
    between = jnp.einsum("dsp,dsq->spq", away, away) / len(away)
    return mean, jnp.linalg.cholesky(within + between)


def _best(attempt: Callable[[Array, Array], _Trial], place: Array, value: Array) -> _Trial:
    """The best fit by Levenberg and Marquardt, from a place (row, system, parameter) on; `attempt` tries one on values."""
    eye = jnp.eye(place.shape[-1])

    def improve(state: tuple[_Trial, Array], _: None) -> tuple[tuple[_Trial, Array], None]:
        best, damping = state
        more = damping[..., None, None]
        curved = best.information * (1 + more * eye) + (1 + more) * eye
        move = jnp.linalg.solve(curved, (best.pull - best.place)[..., None])[..., 0]
        trial = attempt(best.place + move, best.value)
        better = trial.cost < best.cost

        def either(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape(*better.shape, *(1,) * (new.ndim - 2)), new, old)

        return (jax.tree.map(either, trial, best), jnp.where(better, 0.2 * damping, 10 * damping + 0.01)), None

    none = jnp.full(place.shape[:2], jnp.inf)
    # A first trial that goes nowhere: it is made within the loop, so that the solver is compiled once.
    first = _Trial(place, none, jnp.zeros((*place.shape, len(eye))), place, none, value)
    (best, _), _ = lax.scan(improve, (first, jnp.zeros(place.shape[:2])), length=1 + STEPS)
    return best


def _trial(target: Likelihood, place: Array, predicted: Array, gradient: Array, value: Array, scale: Array) -> _Trial:
    """How well predictions at a place meet the values; `gradient` is (parameter, row, system, observation), at the place."""
    noise, mask = target.noise, target.measured.mask
    gradient = jnp.where(mask, gradient, 0.0)
    each = (*noise.log_prob_and_score(value, predicted, scale), noise.weight(value, predicted, scale))
    log_prob, score, weight = (jnp.where(mask, x, 0.0) for x in each)
    information = jnp.einsum("prso,rso,qrso->rspq", gradient, weight, gradient)
    pull = jnp.einsum("prso,rso->rsp", gradient, score)
    cost = 0.5 * jnp.sum(place**2, axis=-1) - jnp.sum(log_prob, axis=-1)
    fine = jnp.isfinite(cost) & jnp.all(jnp.isfinite(information), axis=(-2, -1))
    squares = jnp.sum(jnp.where(weight > 0, score**2 / jnp.where(weight > 0, weight, 1.0), 0.0), axis=-1)
    return _Trial(place, jnp.where(fine, cost, jnp.inf), information, pull, squares, value)


def _figures(best: _Trial, lower: Array) -> _Found:
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
    return _Found(conflict, misfit, moved / sd, moved / usual)
