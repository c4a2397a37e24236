"""Does a newcomer belong to the fleet? Two questions, each answered beside members that are simulated.

1. Are its parameters those of a member? What its data say of theta without the population (estimate and information, by
   linearising the solver at the best fit) against what the population says without its data (node splitting: Marshall and
   Spiegelhalter 2007). In population standard deviations, along the directions the data know something about,

       T = sum over directions i of  h_i^2 / (lambda_i + lambda_i^2),

   lambda_i the information of the data and h_i = lambda_i (estimate - population mean)_i: d' Cov^-1 d, and chi-square in
   linear problems with normal noise. Directions that data leave open have no say.
2. Does any theta fit? Squared standardised residuals that remain when theta is free.

Both figures are computed in the same way for members drawn from the stored populations and observed at the newcomer's own
places with its own noise. The p-value is the share of members that look at least as odd, so that it needs no normality of
anything, and takes into account how well the population is known.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..forward import Likelihood
from ..learning import Stored

LEVEL = 0.01  # false alarms in all; each question has half of it
FEWEST, MOST, EXPENSIVE, TOTAL = (
    400,
    1000,
    256,
    20_000,
)  # simulated members of each newcomer; where solutions are expensive
STEPS = 12  # of Levenberg and Marquardt
FLOOR = 1e-3  # information, in population units, below which a direction counts as open
BATCH = 512


class Population(NamedTuple):
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


class Belongs(NamedTuple):
    """Of each newcomer; `conflict_p` and `misfit_p` are NaN where nothing can be said."""

    conflict: np.ndarray
    conflict_p: np.ndarray
    misfit: np.ndarray  # per degree of freedom
    misfit_p: np.ndarray
    shift: np.ndarray
    score: np.ndarray
    members: int

    @property
    def belongs(self) -> np.ndarray:
        return ~(self.unlike | self.unfit)

    @property
    def unlike(self) -> np.ndarray:
        """Its parameters are not those of a member."""
        return np.nan_to_num(self.conflict_p, nan=1.0) < LEVEL / 2

    @property
    def unfit(self) -> np.ndarray:
        """No parameters fit."""
        return np.nan_to_num(self.misfit_p, nan=1.0) < LEVEL / 2


def moments(stored: Stored) -> Population:
    assert stored.center is not None
    assert stored.white is not None
    lower = jnp.linalg.inv(stored.white)
    within = jnp.mean(lower @ jnp.swapaxes(lower, -1, -2), axis=0)
    mean = jnp.mean(stored.center, axis=0)
    away = stored.center - mean
    between = jnp.einsum("dsp,dsq->spq", away, away) / len(away)
    sizes = None if stored.log_sigma is None else jnp.median(stored.log_sigma, axis=0)
    return Population(mean, jnp.linalg.cholesky(within + between), sizes)


def belongs(
    target: Likelihood,
    model: Any,
    stored: Stored,
    start: Float[Array, "system parameter"],
    seed: int = 0,
    most: int = MOST,
) -> Belongs:
    """`start` is where the best fit of each newcomer is looked for, a draw of its posterior; `most` members are simulated."""
    systems, count = start.shape
    batch = max(1, min(most, BATCH) // systems)
    rows = batch * -(-min(most, max(FEWEST, TOTAL // systems)) // batch)
    found = jax.tree.map(
        lambda a: np.asarray(a, float).reshape(-1, *a.shape[2:]),
        _compared(target, model, stored, start, jr.key(seed), (rows // batch, batch)),
    )
    free = np.asarray(jnp.sum(target.weight > 0, axis=1)) - count
    return Belongs(
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
    target: Likelihood, model: Any, stored: Stored, start: Array, key: PRNGKeyArray, shape: tuple[int, int]
) -> Found:
    """Figures (block, row, system): of the newcomers themselves in the first row, beside members in all others."""
    rows, (key_draw, key_noise) = shape[0] * shape[1], jr.split(key)
    index = jr.randint(key_draw, (rows,), 0, stored.count)
    theta = stored.scatter(index, jr.normal(jr.fold_in(key_draw, 1), (rows, *start.shape))).at[0].set(start)
    noise = _noise(target, None if stored.log_sigma is None else stored.log_sigma[index], key_noise, rows)
    value = jnp.full(noise.shape, jnp.nan).at[0].set(target.value)
    return _best(target, model, moments(stored), *(a.reshape(*shape, *a.shape[1:]) for a in (theta, value, noise)))


def _share(figure: np.ndarray) -> np.ndarray:
    """Of rows at least as odd as the first; one that cannot be computed is as odd as can be, members that cannot do not count."""
    own, others = figure[0], figure[1:]
    sound = np.isfinite(others)
    return (1 + (sound & ~(others < own)).sum(axis=0)) / (1 + sound.sum(axis=0))


def _noise(target: Likelihood, log_sigma: Any, key: PRNGKeyArray, rows: int) -> Float[Array, "row system observation"]:
    """Of members, on the scale of the noise."""
    shape, weight = (rows, *target.value.shape), target.weight
    drawn = jr.normal(key, shape) if target.family.linear else jr.t(key, target.family.freedom, shape)
    size = jnp.where(weight > 0, 1 / jnp.sqrt(jnp.where(weight > 0, weight, 1.0)), 0.0)
    return drawn * size * jnp.exp(_of_observations(target, log_sigma))


def _of_observations(target: Likelihood, log_sigma: Any) -> Any:
    """(..., quantity) to (..., system, observation)."""
    if log_sigma is None or target.member is None:
        return 0.0
    return jnp.einsum("soq,...q->...so", target.member, log_sigma)


class _Trial(NamedTuple):
    """Rows of systems in front of each."""

    place: Float[Array, "row system parameter"]  # from the population's mean, in its standard deviations
    cost: Float[Array, "row system"]
    information: Float[Array, "row system parameter parameter"]
    pull: Float[Array, "row system parameter"]
    squares: Float[Array, "row system"]
    value: Float[Array, "row system observation"]


def _best(target: Likelihood, model: Any, population: Population, theta: Array, value: Array, noise: Array) -> Found:
    """Best fits by Levenberg and Marquardt from theta (block, row, system, parameter), and the figures there.

    Where there are no values (NaN) they are made: what is predicted at theta, and the noise.
    """
    mean, lower, log_sigma = population
    weight = target.weight * jnp.exp(-2 * _of_observations(target, log_sigma))

    def attempt(place: Array, value: Array, noise: Array) -> _Trial:
        predicted, jacobian = target.linearise(mean + jnp.einsum("spq,rsq->rsp", lower, place), model)
        value = jnp.where(jnp.isnan(value), predicted + noise, value)
        apart = jnp.where(weight > 0, value - predicted, 0.0)
        slope = jnp.where(weight > 0, jnp.einsum("prso,spq->qrso", jacobian, lower), 0.0)
        square = weight * apart**2
        own = weight * target.family.pull(square)
        information = jnp.einsum("prso,rso,qrso->rspq", slope, own, slope)
        pull = jnp.einsum("prso,rso->rsp", slope, own * apart)
        cost = jnp.sum(target.family.rho(square), axis=-1) + 0.5 * jnp.sum(place**2, axis=-1)
        fine = jnp.isfinite(cost) & jnp.all(jnp.isfinite(information), axis=(-2, -1))
        squares = jnp.sum(own * apart**2, axis=-1)
        return _Trial(place, jnp.where(fine, cost, jnp.inf), information, pull, squares, value)

    def block(part: tuple[Array, Array, Array]) -> Found:
        theta, value, noise = part

        def improve(state: tuple[_Trial, Array], _: None) -> tuple[tuple[_Trial, Array], None]:
            best, damping = state
            eye, more = jnp.eye(theta.shape[-1]), damping[..., None, None]
            curved = best.information * (1 + more * eye) + (1 + more) * eye
            move = jnp.linalg.solve(curved, (best.pull - best.place)[..., None])[..., 0]
            trial = attempt(best.place + move, best.value, noise)
            better = trial.cost < best.cost

            def either(new: Array, old: Array) -> Array:
                return jnp.where(better.reshape(*better.shape, *(1,) * (new.ndim - 2)), new, old)

            return (jax.tree.map(either, trial, best), jnp.where(better, 0.2 * damping, 10 * damping + 0.01)), None

        place = jnp.linalg.solve(lower, (theta - mean)[..., None])[..., 0]
        none, size = jnp.full(place.shape[:2], jnp.inf), theta.shape[-1]
        # A first trial that goes nowhere: it is made within the loop, so that the solver is compiled once.
        first = _Trial(place, none, jnp.zeros((*place.shape, size)), place, none, value)
        (best, _), _ = lax.scan(improve, (first, jnp.zeros(place.shape[:2])), length=1 + STEPS)
        return _figures(best, lower)

    return lax.map(block, (theta, value, noise))


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
