"""New systems by the driver of a fit: their parameters from their own few data and the population that a fit left behind.

    p(theta | y, fleet)  ~  sum over stored draws s of  L(y | theta, sigma_s, law_s) p(theta | phi_s)

New systems are blocks of one ensemble: each goes with stored draws of its own, and nothing of one enters another. The
likelihood is tempered in under the problem's own wide prior, then the population takes that prior's place, while chains that
fall behind are resampled: a system that is nothing like the fleet is found as well. Draws are kept after that, when nothing is
adapted any more.
"""

from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from ..forward import Likelihood
from ..laws import SolverLaws
from ..learning import AXIS, DRAWS, SAME, STATE, Program, Schedule, Setup, State, begin, learn, make_settings, sample
from ..population import Empirical, Independent, PopulationDraws, normal, uniforms
from ..sampling import Chains, DifferentialEvolution, Mala, MultiTry, Resample, StoredDraw, SystemBlocks, init_all

MANY = 50  # new systems from which on a little less will do
CHUNK, THIN = 24, 2
FIRST_TEMPERATURE = 1e-4
EXTEND, RHAT = 2, 1.02


class Effort(NamedTuple):
    """Groups of chains, the least of each, fresh members a chain chooses from, and chunks of each phase."""

    groups: int = 4
    each: int = 16
    fresh: int = 3
    temper: int = 6
    blend: int = 4
    settle: int = 4
    tune: int = 4
    keep: int = 12


CURVES, FIELDS = Effort(), Effort(2, 12, 2, 3, 2, 2, 2, 6)  # solutions of fields are expensive


class Inferred(NamedTuple):
    """Draws of theta, and which of the stored draws goes with each: (draw, system, ...), all chains one after the other."""

    theta: Float[np.ndarray, "draw system parameter"]
    which: Int[np.ndarray, "draw system"]
    rhat: Float[np.ndarray, " system"]


def infer(
    target: Likelihood,
    laws: SolverLaws,
    stored: PopulationDraws,
    prior: Independent,
    seed: int = 0,
    tables: SolverLaws = MappingProxyType({}),
) -> Inferred:
    """The posterior of every new system; `laws` are those that all draws share, `tables` those that each stored draw has its
    own of, all as the solver calls them."""
    many = target.measured.value.shape[0] >= MANY
    effort = FIELDS if target.forward.problem.expensive else CURVES
    if many:
        effort = effort._replace(groups=2)
    setup, state = _begin(target, laws, stored, prior, jr.key(seed), effort, tables)
    mesh = Mesh(np.array(jax.devices()[:1]), (AXIS,))
    warm_up = Program(learn, setup, mesh, (STATE, SAME), (STATE, SAME))
    keep = Program(sample, setup, mesh, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME))
    for chunk in range(effort.temper + effort.blend):  # first the likelihood comes in, then the population
        now = chunk + np.arange(1, 1 + CHUNK) / CHUNK
        temperature = FIRST_TEMPERATURE ** (1 - np.minimum(1.0, now / effort.temper))
        weight = np.clip((now - effort.temper) / effort.blend, 0.0, 1.0)
        schedule = Schedule.over(CHUNK, temperature=temperature, adaptation=0.15, prior_weight=weight)
        state, _ = warm_up(state, schedule)
    fresh, leaps = jnp.asarray(False), jnp.arange(CHUNK // THIN) % len(setup.leaps)
    state = setup.tuned(state, state.chains)
    for chunk in range(effort.settle + effort.tune):
        state, draws, _ = keep(state, fresh, _at_rest(1.0 / (1 + max(0, chunk - effort.settle))), leaps)
        if chunk < effort.settle:
            state = setup.tuned(state, draws.pooled(state.chains))
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        for _ in range(effort.keep):
            state, draws, _ = keep(state, fresh, _at_rest(0.0), leaps)
            kept.append((np.asarray(draws.theta), np.asarray(draws.phi)))
        theta, which = (np.concatenate(parts) for parts in zip(*kept))
        rhat = _rhat(theta.reshape(len(theta), -1, *theta.shape[3:])).max(axis=-1)
        enough = rhat.max() < RHAT or many  # of very many, one is always the worst
        if enough or len(kept) > EXTEND * effort.keep:
            return Inferred(theta.reshape(-1, *theta.shape[3:]), which.reshape(-1, which.shape[-1]), rhat)


def _begin(
    target: Likelihood,
    laws: SolverLaws,
    stored: PopulationDraws,
    prior: Independent,
    key: Array,
    effort: Effort,
    tables: SolverLaws,
) -> tuple[Setup, State]:
    """Chains from the wide prior, each system with a stored draw of its own."""
    population = Empirical(stored, prior)
    systems, count = target.measured.value.shape[0], prior.mean.shape[0]
    each = max(effort.each, 2 * (count + 2))
    shape = (effort.groups, each + each % 2, systems)
    key_start, key_chains = jr.split(key)
    place, which = uniforms(key_start, (*shape, count), shape)
    theta = prior.theta_from_normal((), normal(place).reshape(-1, count)).reshape(*shape, count)
    given = jax.vmap(jax.vmap(population.given))(population.index(which))
    chains = Chains(theta, **given)
    # Where there is no population, fresh members are those of the prior only if it is normal.
    fresh = () if stored.center is None and any(prior.log_densities) else (MultiTry(tries=effort.fresh),)
    mala, stored_draw = Mala(SystemBlocks(), step_size=1.0), StoredDraw(3, 0.5) if stored.law else StoredDraw(15)
    sweep = (Resample(FIRST_TEMPERATURE), mala, stored_draw, DifferentialEvolution(), *fresh)
    settings = make_settings({"chains": shape[0] * shape[1], "groups": shape[0]})
    setup = Setup(target, target, population, {}, None, None, sweep, settings, dict(laws), law_axes=2)
    state = State(jr.split(key_chains, shape[0]), chains, {}, begin({}), begin(None), (), dict(tables))
    chains = jax.jit(lambda state: setup.posterior(laws, state).refresh(state.chains))(state)
    return setup, state._replace(chains=chains, tuning=init_all(sweep, chains))


def _at_rest(rate: float) -> Schedule:
    """A chunk under the posterior itself, step sizes adapted at a part of their usual rate."""
    return Schedule.over(CHUNK, adaptation=0.15 * rate)


def _rhat(draws: np.ndarray) -> np.ndarray:
    """Split R-hat of draws (draw, chain, ...)."""
    half = len(draws) // 2
    parts = np.concatenate([draws[:half], draws[half : 2 * half]], axis=1).astype(float)
    within, between = parts.var(axis=0, ddof=1).mean(axis=0), parts.mean(axis=0).var(axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))
