"""Two solutions far apart: chains that only step stay in the one they found, chains that jump visit each as often as it weighs."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from targets import ByHand

from closura.sampling import DifferentialEvolution, Mala, MalaTuning, MultiTry, SystemBlocks

SPREAD = jnp.array([0.3, 0.5])
WELLS, HEAVIER = jnp.array([[-2.0, 1.0], [2.0, 0.0]]), 0.7  # of the first; the second block has it the other way round


def both(x):
    """Log density and slope of two Gaussians in each of two blocks."""

    def one(x, weight):
        away = (x - WELLS) / SPREAD
        logs = jnp.log(jnp.array([weight, 1 - weight])) - 0.5 * jnp.sum(away**2, axis=-1)
        return jax.nn.logsumexp(logs)

    weights = jnp.array([HEAVIER, 1 - HEAVIER])
    value, slope = jax.vmap(jax.vmap(jax.value_and_grad(one), in_axes=(0, 0)), in_axes=(0, None))(x, weights)
    return value, slope


def tilted(x):
    """A surrogate that prefers the wrong well."""
    value, slope = both(x)
    return value + 0.4 * x[..., 0], slope + jnp.array([0.4, 0.0])


def in_first(state):
    """Per group: the share of chains in the first well, and their mean square there."""
    inside = state.theta[..., 0] < 0
    square = jnp.mean(((state.theta - WELLS[0]) / SPREAD) ** 2, axis=1, where=inside[..., None])
    return jnp.mean(inside, axis=1), square


def after(one, state, steps):
    """What `one` step says, on average once a quarter of them is over."""
    _, said = jax.jit(lambda state, key: jax.lax.scan(one, state, jr.split(key, steps)))(state, jr.key(2))
    return np.asarray(said[0][steps // 4 :].mean(0)), np.asarray(jnp.nanmean(said[1][steps // 4 :], axis=0))


def run(jumps, share, evaluate=both, correct=None, groups=100, chains=16, steps=400):
    """Per group: the share of draws in the first well, their spread there and their mean square; after some steps."""
    first = jr.uniform(jr.key(0), (groups, chains, 2)) < share
    centre = jnp.where(first[..., None], WELLS[0], WELLS[1])
    position = centre + SPREAD * jr.normal(jr.key(1), centre.shape)
    factor = jnp.broadcast_to(jnp.diag(SPREAD), (groups, 2, 2, 2))
    target, mala = ByHand(evaluate, exact=correct), Mala(SystemBlocks(), "frozen")
    tuning = MalaTuning(jnp.full((groups, 2), -0.7), factor)

    def one(state, key):
        keys = jr.split(key, groups)
        state, _ = mala.step(keys, state, tuning, target)
        if jumps:
            keys = jax.vmap(lambda k: jr.fold_in(k, 1))(keys)
            state, _ = DifferentialEvolution().step(keys, state, (), target)
        return state, in_first(state)

    return after(one, target.start(position), steps)


def z_score(numbers, truth):
    return (numbers.mean(axis=0) - truth) / (numbers.std(axis=0, ddof=1) / np.sqrt(len(numbers)))


@pytest.mark.parametrize(
    ("evaluate", "correct"), [(both, None), pytest.param(tilted, lambda x: both(x)[0], marks=pytest.mark.nightly)]
)
def test_each_solution_is_visited_as_often_as_it_weighs(evaluate, correct):
    # Half of the chains begins in either (a group that is all in one knows of no other): as wrong for both blocks.
    inside, square = run(True, 0.5, evaluate, correct)
    error = inside.std(axis=0, ddof=1) / np.sqrt(len(inside))
    assert np.all(error < 0.01)
    assert np.abs(z_score(inside, np.array([HEAVIER, 1 - HEAVIER]))).max() < 4
    # In the first well the draws are those of its Gaussian.
    assert np.abs(z_score(square, 1.0)).max() < 4


SCALE = 2.0  # of a prior around zero


def prior(x, phi):
    return -0.5 * jnp.sum(x**2, axis=-1) / SCALE**2, -x / SCALE**2


def likelihood(x):
    """What leaves, times that prior, the two wells."""
    value, slope = both(x)
    return value + 0.5 * jnp.sum(x**2, axis=-1) / SCALE**2, slope + x / SCALE**2


def crooked(x):
    """A surrogate of it that prefers the wrong well."""
    value, slope = likelihood(x)
    return value + 0.4 * x[..., 0], slope + jnp.array([0.4, 0.0])


@pytest.mark.parametrize(
    ("evaluate", "correct"),
    [(likelihood, None), pytest.param(crooked, lambda x: likelihood(x)[0], marks=pytest.mark.nightly)],
)
def test_fresh_members_find_the_solution_nobody_is_in(evaluate, correct):
    groups, chains, steps = 100, 8, 400
    position = WELLS[1] + SPREAD * jr.normal(jr.key(1), (groups, chains, 2, 2))

    target = ByHand(evaluate, prior, correct, members=lambda phi, normal, uniform: {"theta": SCALE * normal})

    def one(state, key):
        state, _ = MultiTry().step(jr.split(key, groups), state, (), target)
        return state, in_first(state)

    inside, square = after(one, target.start(position, jnp.zeros((groups, chains))), steps)
    assert np.all(inside.std(axis=0, ddof=1) / np.sqrt(groups) < 0.01)
    assert np.abs(z_score(inside, np.array([HEAVIER, 1 - HEAVIER]))).max() < 4
    assert np.abs(z_score(square, 1.0)).max() < 4


def test_without_jumps_they_stay_where_they_began():
    inside, _ = run(False, 0.25, steps=200)
    assert np.abs(inside.mean(axis=0) - 0.25).max() < 0.03


def test_a_jump_only_goes_by_differences_of_the_other_half():
    position = jr.normal(jr.key(0), (1, 6, 1, 2))
    everywhere = lambda x: (jnp.zeros(x.shape[:2]), jnp.zeros_like(x))  # noqa: E731
    target = ByHand(everywhere)
    moved, info = DifferentialEvolution().step(jr.split(jr.key(1), 1), target.start(position), (), target)
    assert float(info.acceptance.min()) == 1
    before, after = np.asarray(position)[0, :, 0], np.asarray(moved.theta)[0, :, 0]
    differences = (before[3:, None] - before[None, 3:]).reshape(-1, 2)
    for went in after[:3] - before[:3]:
        assert np.abs(differences - went).max(axis=1).min() < 1e-5
    differences = (after[:3, None] - after[None, :3]).reshape(-1, 2)
    for went in after[3:] - before[3:]:
        assert np.abs(differences - went).max(axis=1).min() < 1e-5
