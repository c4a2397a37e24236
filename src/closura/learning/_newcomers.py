"""Newcomers: parameters of systems that were not in the fit, from their own few data and the population that was.

    p(theta | y, fleet)  ~  sum over stored draws s of  L(y | theta, sigma_s) p(theta | phi_s)

Theta moves by ensemble MALA given a stored draw of population and noise; which draw, is chosen anew given theta, among the
current one and some picked at random (conditional importance resampling: exact for any number of them). Now and then theta
and draw are chosen anew together, among where the chain stands and some fresh members of the population, by likelihood:
where data are few that goes anywhere at once. Newcomers are blocks of one ensemble: each has draws of its own, and nothing of
one enters another.

On the way there the likelihood is tempered in under the problem's own wide prior, then the population takes that prior's
place, while chains that fall behind are replaced by others: a newcomer that is nothing like the fleet is found as well.
Draws are kept after that, when nothing is adapted any more.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..forward import Likelihood
from ..population import Independent, normal, uniforms
from ..sampling import Ensemble, GroupKeys, Weigh, adapt, cholesky, ensemble_covariance, init, jump, step

MANY = 50  # newcomers from which on a little less will do
CANDIDATES = 16  # stored draws a chain chooses from
CHUNK = 25
FIRST_TEMPERATURE = 1e-4
EXTEND, RHAT = 2, 1.02


class Effort(NamedTuple):
    """Groups of chains, the least of each, members a chain chooses from, and chunks of each phase."""

    groups: int = 4
    each: int = 16
    fresh: int = 15
    temper: int = 6
    blend: int = 4
    settle: int = 4
    tune: int = 4
    keep: int = 12


CURVES, FIELDS = Effort(), Effort(2, 12, 3, 3, 2, 2, 2, 6)  # solutions of fields are dear


class Stored(eqx.Module):
    """Draws of population and noise that a fit left behind.

    - `center`: the population's mean for each newcomer (covariates may shift it); `white` times the distance from it is
      standard normal. Both None where the fit had no population.
    - `log_sigma`: size of the noise, zero where it is known; None where all of it is.
    """

    center: Float[Array, "draw system parameter"] | None
    white: Float[Array, "draw parameter parameter"] | None
    log_sigma: Float[Array, "draw quantity"] | None

    @property
    def count(self) -> int:
        """Draws; one where there is nothing to choose."""
        return next((len(a) for a in (self.center, self.log_sigma) if a is not None), 1)

    def log_prior(
        self, theta: Float[Array, "system parameter"], index: Int[Array, " system"]
    ) -> tuple[Float[Array, " system"], Float[Array, "system parameter"]]:
        """log p(theta | phi) of each newcomer under its own draw, up to a constant, and the gradient."""
        assert self.center is not None
        assert self.white is not None
        white = self.white[index]
        away = jnp.einsum("spq,sq->sp", white, theta - self.center[index, jnp.arange(theta.shape[0])])
        size = jnp.sum(jnp.log(jnp.diagonal(white, axis1=-2, axis2=-1)), axis=-1)
        return size - 0.5 * jnp.sum(away**2, axis=-1), -jnp.einsum("spq,sp->sq", white, away)

    def member(
        self, index: Int[Array, "*chain system"], noise: Float[Array, "*chain system parameter"]
    ) -> Float[Array, "*chain system parameter"]:
        """Of the population that each newcomer of each chain goes with, the one that standard normal numbers stand for."""
        assert self.center is not None
        assert self.white is not None
        away = jax.scipy.linalg.solve_triangular(self.white[index], noise[..., None], lower=True)[..., 0]
        return self.center[index, jnp.arange(index.shape[-1])] + away

    def scatter(
        self, index: Int[Array, " draw"], noise: Float[Array, "draw system parameter"]
    ) -> Float[Array, "draw system parameter"]:
        """Members of the populations `index`, that standard normal numbers stand for."""
        assert self.center is not None
        assert self.white is not None
        lower = jnp.linalg.inv(self.white[index])
        return self.center[index] + jnp.einsum("dpq,dsq->dsp", lower, noise)


class Stage(NamedTuple):
    """What an iteration does: `*_next` is what the next one asks for, by which chains are weighed and replaced."""

    temperature: Float[Array, "*iteration"]
    temperature_next: Float[Array, "*iteration"]
    blend: Float[Array, "*iteration"]  # 0: the wide prior, 1: the population
    blend_next: Float[Array, "*iteration"]
    adaptation: Float[Array, "*iteration"]
    warming: Bool[Array, "*iteration"]
    jumping: Bool[Array, "*iteration"]


class State(NamedTuple):
    keys: GroupKeys
    ensemble: Ensemble
    which: Int[Array, "group chain system"]
    log_step: Float[Array, "group system"]


class Draws(NamedTuple):
    """Of theta, and which of the stored draws goes with it: (draw, system, ...), all chains one after the other."""

    theta: Float[np.ndarray, "draw system parameter"]
    which: Int[np.ndarray, "draw system"]
    rhat: Float[np.ndarray, " system"]


def infer(
    target: Likelihood, model: Any, stored: Stored, wide: Independent, seed: int = 0, effort: Effort = CURVES
) -> Draws:
    """The posterior of every newcomer; `model` is what the target's forward model needs beside theta."""
    stages = _stages(effort)
    if target.measured.value.shape[0] >= MANY:
        effort = effort._replace(groups=2)
    state, factor = _begin(target, model, stored, wide, jr.key(seed), effort)
    for stage in stages[: -effort.keep]:
        state, theta, _ = _chunk(target, model, stored, wide, state, factor, stage, effort.fresh)
        factor = _pooled(theta) if bool(stage.warming[-1]) else factor
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        for stage in stages[-effort.keep :]:
            state, theta, index = _chunk(target, model, stored, wide, state, factor, stage, effort.fresh)
            kept.append((np.asarray(theta[1::2]), np.asarray(index[1::2])))
        draws, which = (np.concatenate(parts) for parts in zip(*kept))
        rhat = _rhat(draws.reshape(len(draws), -1, *draws.shape[3:])).max(axis=-1)
        enough = rhat.max() < RHAT or len(rhat) >= MANY  # of very many, one is always the worst
        if enough or len(kept) > EXTEND * effort.keep:
            return Draws(draws.reshape(-1, *draws.shape[3:]), which.reshape(-1, which.shape[-1]), rhat)


def _rhat(draws: np.ndarray) -> np.ndarray:
    """Split R-hat of draws (draw, chain, ...)."""
    half = len(draws) // 2
    parts = np.concatenate([draws[:half], draws[half : 2 * half]], axis=1).astype(float)
    within, between = parts.var(axis=0, ddof=1).mean(axis=0), parts.mean(axis=0).var(axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))


@eqx.filter_jit
def _begin(
    target: Likelihood, model: Any, stored: Stored, wide: Independent, key: PRNGKeyArray, effort: Effort
) -> tuple[State, Array]:
    """Chains from the wide prior, and their covariance."""
    systems, count = target.measured.value.shape[0], wide.mean.shape[0]
    shape = (effort.groups, max(effort.each, 2 * (count + 2)), systems)
    key_start, key_chains = jr.split(key)
    uniform, which = uniforms(key_start, (*shape, count), shape)
    position = wide.scatter((), normal(uniform).reshape(-1, count)).reshape(*shape, count)
    index = jnp.minimum((which * stored.count).astype(int), stored.count - 1)
    keys, steps = jr.split(key_chains, shape[0]), jnp.zeros((shape[0], systems))
    state = State(keys, Ensemble(position, target.blank(position)), index, steps)
    return state, cholesky(ensemble_covariance(position))


@jax.jit
def _pooled(
    theta: Float[Array, "draw group chain system parameter"],
) -> Float[Array, "group system parameter parameter"]:
    """Draws of a whole chunk make a smoother preconditioner than one moment of the ensemble."""
    together = jnp.moveaxis(theta, 0, 1).reshape(theta.shape[1], -1, *theta.shape[3:])
    return cholesky(ensemble_covariance(together))


def _stages(effort: Effort) -> list[Stage]:
    """Chunk by chunk; the factor that a chunk of settling finds is frozen from the first chunk of tuning on."""
    tuning = effort.temper + effort.blend + effort.settle
    keeping, chunks = tuning + effort.tune, tuning + effort.tune + effort.keep
    now = np.arange(chunks * CHUNK + 1) / CHUNK
    temperature = FIRST_TEMPERATURE ** (1 - np.minimum(1.0, now / effort.temper))
    blend = np.clip((now - effort.temper) / effort.blend, 0.0, 1.0)
    rate = np.where(now < tuning, 0.15, np.where(now < keeping, 0.15 / (1 + 2 * np.maximum(0.0, now - tuning)), 0.0))
    columns = temperature[:-1], temperature[1:], blend[:-1], blend[1:], rate[:-1]
    jumping = (now[:-1] >= tuning) & (np.arange(len(now) - 1) % 2 == 0)
    parts = [np.split(column, chunks) for column in (*columns, now[:-1] < tuning, jumping)]
    stages = [Stage(*part) for part in zip(*parts)]
    return [jax.tree.map(lambda a: jnp.asarray(a, bool if a.dtype == bool else float), stage) for stage in stages]


@eqx.filter_jit
def _chunk(
    target: Likelihood,
    model: Any,
    stored: Stored,
    wide: Independent,
    state: State,
    factor: Array,
    stages: Stage,
    fresh: int,
) -> tuple[State, Array, Array]:
    def iteration(state: State, now: Stage) -> tuple[State, tuple[Array, Array]]:
        keys, key_move, key_rest = jnp.moveaxis(jax.vmap(lambda key: jr.split(key, 3))(state.keys), 1, 0)
        each, systems = state.which.shape[1:]
        shapes = (each, CANDIDATES - 1, systems), (each, CANDIDATES, systems), (systems,)
        picked, tie, start = jax.vmap(lambda key: uniforms(key, *shapes))(key_rest)
        weigh = Weigh(lambda fit, index: _weighed(target, stored, fit, index))

        def evaluate(position: Array) -> Any:
            return target.evaluate(position, model)

        def prior(position: Array, index: Array) -> tuple[Array, Array]:
            return _prior(stored, wide, position, index, now.blend)

        # While warming up a chain may shape its own proposal: no draw of that is kept.
        local = cholesky(ensemble_covariance(state.ensemble.position))
        ensemble, info = step(
            key_move,
            state.ensemble,
            state.which,
            state.log_step,
            jnp.where(now.warming, local, factor),
            evaluate,
            prior,
            temperature=now.temperature,
            covariance="frozen",
            weigh=weigh,
        )
        others = jax.vmap(lambda key: jr.fold_in(key, 1))(key_move)
        ensemble = lax.cond(
            now.jumping,
            lambda chains: jump(others, chains, state.which, evaluate, prior, weigh=weigh)[0],
            lambda chains: chains,
            ensemble,
        )
        index = jax.vmap(jax.vmap(lambda *a: _other_draw(target, stored, now, *a)))(
            picked, tie, ensemble.position, ensemble.fit, state.which
        )
        ensemble, index = _replaced(target, stored, wide, start, ensemble, index, now)
        state = State(keys, ensemble, index, adapt(state.log_step, info, now.adaptation))
        return state, (ensemble.position, index)

    # Fresh members come from the population itself: not before it is in its place.
    settled = (stages.temperature[0] == 1) & (stages.blend[0] == 1)
    keys, others = jnp.moveaxis(jax.vmap(jr.split)(state.keys), 1, 0)
    ensemble, index = lax.cond(
        settled,
        lambda chains, which: _among_members(target, model, stored, wide, others, chains, which, fresh),
        lambda chains, which: (chains, which),
        state.ensemble,
        state.which,
    )
    state = State(keys, ensemble, index, state.log_step)
    state, (theta, index) = lax.scan(iteration, state, stages)
    return state, theta, index


def _among_members(
    target: Likelihood,
    model: Any,
    stored: Stored,
    wide: Independent,
    keys: GroupKeys,
    ensemble: Ensemble,
    index: Array,
    many: int,
) -> tuple[Ensemble, Array]:
    """Theta and draw of each newcomer, chosen by likelihood among its own and some of fresh members."""
    groups, each, systems, count = ensemble.position.shape
    shape = (many, each, systems)
    which, place, tie = jax.vmap(lambda key: uniforms(key, shape, (*shape, count), (1 + many, each, systems)))(keys)
    draw = jnp.minimum((which * stored.count).astype(index.dtype), stored.count - 1)
    noise = normal(place)
    if stored.center is None:
        theta = wide.scatter((), noise.reshape(-1, count))
    else:
        theta = stored.member(draw, noise)
    found = init(theta.reshape(groups, -1, systems, count), lambda position: target.evaluate(position, model))
    fresh = jax.tree.map(lambda a: a.reshape(groups, many, each, *a.shape[2:]), found)
    both, draws = jax.tree.map(
        lambda own, other: jnp.concatenate([own[:, None], other], axis=1), (ensemble, index), (fresh, draw)
    )
    flat = jax.tree.map(lambda a: a.reshape(groups, -1, *a.shape[3:]), (both, draws))
    loglik = _weighed(target, stored, flat[0].fit, flat[1])[0].reshape(draws.shape)
    if stored.center is None:  # a prior that is not normal, of candidates that are
        away = (both.position - wide.mean) ** 2 / wide.variance
        loglik += wide.log_prior(both.position.reshape(-1, count), ())[0].reshape(draws.shape) + 0.5 * away.sum(axis=-1)
    loglik = jnp.where(jnp.isnan(loglik), -jnp.inf, loglik)
    chosen = jnp.argmax(loglik - jnp.log(-jnp.log(tie)), axis=1)[:, None]

    def pick(a: Array) -> Array:
        return jnp.take_along_axis(a, chosen.reshape(*chosen.shape, *(1,) * (a.ndim - 4)), axis=1)[:, 0]

    return jax.tree.map(pick, both), pick(draws)


def _prior(stored: Stored, wide: Independent, position: Array, index: Array, blend: Array) -> tuple[Array, Array]:
    def one(theta: Array, index: Array) -> tuple[Array, Array]:
        before = wide.log_prior(theta, ())
        if stored.center is None:
            return before
        there = stored.log_prior(theta, index)
        return (1 - blend) * before[0] + blend * there[0], (1 - blend) * before[1] + blend * there[1]

    return jax.vmap(jax.vmap(one))(position, index)


def _weighed(target: Likelihood, stored: Stored, fit: Any, index: Array) -> tuple[Array, Array]:
    """Log likelihood and score with each newcomer's own size of noise."""
    if stored.log_sigma is None:
        return fit
    return jax.vmap(target.loglik_and_grad)(fit, stored.log_sigma[index])  # over groups


def _other_draw(
    target: Likelihood, stored: Stored, now: Stage, picked: Array, tie: Array, theta: Array, fit: Any, index: Array
) -> Int[Array, " system"]:
    """Which stored draw each newcomer of one chain goes on with."""
    if stored.count == 1:
        return index
    fresh = jnp.minimum((picked * stored.count).astype(index.dtype), stored.count - 1)
    candidates = jnp.concatenate([index[None], fresh])
    weight = jnp.zeros(candidates.shape)
    if stored.center is not None:
        weight += now.blend * jax.vmap(lambda i: stored.log_prior(theta, i)[0])(candidates)
    if stored.log_sigma is not None and target.scale_inferred:
        many = jax.tree.map(lambda a: jnp.broadcast_to(a, (CANDIDATES, *a.shape)), fit._replace(gradient=None))
        weight += now.temperature * target.loglik(many, stored.log_sigma[candidates])
    chosen = jnp.argmax(
        weight - jnp.log(-jnp.log(tie)), axis=0
    )  # the first, which is the current one, if none can be told
    return jnp.take_along_axis(candidates, chosen[None], axis=0)[0]


def _replaced(
    target: Likelihood, stored: Stored, wide: Independent, start: Array, ensemble: Ensemble, index: Array, now: Stage
) -> tuple[Ensemble, Array]:
    """Chains of each newcomer, resampled by how much better they suit the next stage than this one."""
    loglik = _weighed(target, stored, ensemble.fit, index)[0]
    gain = (now.temperature_next - now.temperature) * loglik
    if stored.center is not None:
        (later, _), (before, _) = (
            _prior(stored, wide, ensemble.position, index, b) for b in (now.blend_next, now.blend)
        )
        gain = gain + later - before
    gain = jnp.where(jnp.isfinite(loglik), gain, -jnp.inf)
    best = jnp.max(gain, axis=1, keepdims=True)
    weight = jnp.exp(gain - jnp.where(jnp.isfinite(best), best, 0.0))
    weight = jnp.where(jnp.isfinite(best), weight, 1.0)
    above = jnp.cumsum(weight, axis=1) / jnp.sum(weight, axis=1, keepdims=True)
    chains = index.shape[1]
    places = (jnp.arange(chains)[:, None] + start[:, None]) / chains
    chosen = jnp.minimum(jnp.sum(above[:, None] < places[:, :, None], axis=2), chains - 1)
    same = jnp.arange(chains)[:, None] + jnp.zeros_like(chosen)
    done = (now.temperature_next == now.temperature) & (now.blend_next == now.blend)
    chosen = jnp.where(done, same, chosen)

    def pick(a: Array) -> Array:
        return jnp.take_along_axis(a, chosen.reshape(*chosen.shape, *(1,) * (a.ndim - 3)), axis=1)

    return jax.tree.map(pick, ensemble), pick(index)
