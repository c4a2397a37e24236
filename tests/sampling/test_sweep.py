"""Systems that share a parameter: moves of their own and moves together leave the joint posterior alone."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from targets import ByHand

from closura.population import Independent, Sharing
from closura.sampling import Chains, DifferentialEvolution, Mala, MultiTry, SharedBlock, SystemBlocks, sweep

SYSTEMS, SHARED = 3, (False, True, False)
POPULATION = Sharing(
    Independent(jnp.array([0.2, -0.3]), jnp.array([1.0, 0.5])),
    Independent(jnp.array([0.4]), jnp.array([0.8])),
    SHARED,
)
# Every system measures two combinations of its three numbers.
DESIGN = np.array(
    [[[1.0, 1.5, 0.2], [0.3, -0.5, 1.0]], [[0.8, 1.0, 0.0], [0.0, 0.7, 1.0]], [[1.0, 0.3, 0.5], [0.2, 1.0, 0.9]]]
)
DATA, NOISE = np.array([[1.0, 0.2], [0.3, -0.4], [0.9, 1.1]]), 0.6


def likelihood(theta):
    away = jnp.asarray(DATA) - jnp.einsum("kop,ckp->cko", jnp.asarray(DESIGN), theta)
    return -0.5 * jnp.sum(away**2, -1) / NOISE**2, jnp.einsum("kop,cko->ckp", jnp.asarray(DESIGN), away) / NOISE**2


def surrogate(theta):
    """Close to it, but wrong."""
    value, slope = likelihood(theta + jnp.array([0.1, -0.15, 0.05]))
    return 0.8 * value, 0.8 * slope


def prior(theta, phi):
    return jax.vmap(jax.vmap(lambda theta: POPULATION.log_prior(theta, ())))(theta)


def posterior():
    """Of (two of each system, and what is shared), by linear algebra."""
    count = 2 * SYSTEMS + 1
    place = np.array([[2 * k, count - 1, 2 * k + 1] for k in range(SYSTEMS)])
    mean = np.array([0.2, -0.3] * SYSTEMS + [0.4])
    precision = np.diag(1 / np.array([1.0, 0.5] * SYSTEMS + [0.8]))
    pull = precision @ mean
    for k in range(SYSTEMS):
        design = np.zeros((2, count))
        design[:, place[k]] = DESIGN[k]
        precision += design.T @ design / NOISE**2
        pull += design.T @ DATA[k] / NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ pull, covariance, place


def members(phi, normal, uniform):
    return {"theta": POPULATION.theta_from_normal((), normal)}


JUMPING, RENEWING = DifferentialEvolution(SHARED), MultiTry(SHARED)


def z_scores(covariance, groups=200, chains=8, steps=500, evaluate=likelihood, correct=None, leap=None):
    mean, truth, place = posterior()
    start = mean + jr.normal(jr.key(0), (groups, chains, len(mean))) @ np.linalg.cholesky(truth).T
    position = start[..., place]
    beside = 0.4 * jr.normal(jr.key(2), (groups, 40, SYSTEMS, 3))
    target = ByHand(evaluate, prior, correct, members=members)
    kernels = [Mala(blocks(SHARED), covariance, step_size=0.6) for blocks in (SystemBlocks, SharedBlock)]
    kernels += [] if leap is None else [leap]
    apart = Chains(jnp.where(np.array(SHARED), beside[..., :1, :], beside))
    tuning = {kernel.name: kernel.tune(kernel.init(apart), apart, target) for kernel in kernels}

    def one(state, key):
        state, _, info = sweep(kernels, jr.split(key, groups), state, tuning, target)
        flat = state.theta.reshape(groups, chains, -1)[..., [0, 2, 3, 5, 6, 8, 1]] - mean
        numbers = jnp.mean(flat, axis=1), jnp.einsum("gci,gcj->gij", flat, flat) / chains
        return state, (*numbers, jnp.mean(info.acceptance, axis=(0, 1)), jnp.ptp(state.theta[..., 1], axis=2).max())

    def run(position, key):
        _, said = jax.lax.scan(one, target.start(position, jnp.zeros(position.shape[:2])), jr.split(key, steps))
        return said[0].mean(0), said[1].mean(0), said[2].mean(0), said[3].max()

    first, second, acceptance, apart = jax.jit(run)(position, jr.key(1))
    assert np.all((np.asarray(acceptance) > 0.2) & (np.asarray(acceptance) <= 1))
    assert float(apart) == 0, "what is shared stays the same in all systems"
    upper = np.triu_indices(len(mean))
    numbers = np.concatenate([np.asarray(first), np.asarray(second)[:, upper[0], upper[1]]], axis=1)
    expected = np.concatenate([np.zeros(len(mean)), truth[upper]])
    error = numbers.std(axis=0, ddof=1) / np.sqrt(groups)
    return (numbers.mean(axis=0) - expected) / error, error[: len(mean)] / np.sqrt(np.diag(truth))


@pytest.mark.parametrize(
    ("covariance", "leap"),
    [
        ("halves", None),
        pytest.param("frozen", None, marks=pytest.mark.nightly),
        ("frozen", JUMPING),
        ("frozen", RENEWING),
    ],
)
def test_the_posterior_is_kept(covariance, leap):
    z, error = z_scores(covariance, leap=leap)
    assert np.abs(z).max() < 4.5  # of 35 numbers, one in several thousand runs
    assert error.max() < 0.02, "a bias of a tenth of a standard deviation would be seen"


@pytest.mark.parametrize("leap", [None, JUMPING, RENEWING])
@pytest.mark.nightly
def test_corrected_moves_keep_it_too(leap):
    z, _ = z_scores("halves", evaluate=surrogate, correct=lambda theta: likelihood(theta)[0], leap=leap)
    assert np.abs(z).max() < 4.5


@pytest.mark.nightly
def test_it_would_notice():
    z, _ = z_scores("halves", evaluate=surrogate, steps=200)
    assert np.abs(z).max() > 20


def test_own_parameters_move_by_what_shared_ones_leave_open():
    mean, truth, place = posterior()
    draws = mean + np.random.default_rng(0).normal(size=(1, 20_000, len(mean))) @ np.linalg.cholesky(truth).T
    chains = Chains(jnp.asarray(draws[..., place], float))
    own, together = (blocks.factor(blocks.split(chains)) for blocks in (SystemBlocks(SHARED), SharedBlock(SHARED)))
    given = truth[:-1, :-1] - np.outer(truth[:-1, -1], truth[-1, :-1]) / truth[-1, -1]
    spread = np.asarray(own[0, 1] @ own[0, 1].T)
    np.testing.assert_allclose(spread[np.ix_([0, 2], [0, 2])], given[2:4, 2:4], rtol=0.05, atol=0.01)
    np.testing.assert_array_equal(spread[1], 0.0)
    # Together, the direction is that of the joint posterior along what is shared.
    along = truth[place.ravel(), -1] / np.sqrt(truth[-1, -1])
    np.testing.assert_allclose(np.asarray(together)[0, 0, :, 0], along, atol=0.02)
