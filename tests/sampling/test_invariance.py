"""Does each kernel leave its target alone? First and second moments at an effective size that sees a bias of 2 %."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from targets import ByHand

from closura.sampling import Mala, MalaTuning, SystemBlocks, cholesky, ensemble_covariance

PRECISION = jnp.array([[2.0, 0.9], [0.9, 1.0]])
MEAN = jnp.array([0.5, -1.0])
COVARIANCE = np.linalg.inv(np.asarray(PRECISION))


def likelihood(x):
    """Half of the target; the prior is the other half, so that both ways into the ratio are exercised."""
    away = x - MEAN
    return -0.25 * jnp.einsum("cbi,ij,cbj->cb", away, PRECISION, away), -0.5 * away @ PRECISION


def prior(x, phi):
    away = x - MEAN
    return -0.25 * jnp.einsum("gcbi,ij,gcbj->gcb", away, PRECISION, away), -0.5 * away @ PRECISION


def surrogate(x):
    """Near the likelihood, but shifted and too narrow."""
    away = x - MEAN - jnp.array([0.3, -0.2])
    return -0.35 * jnp.einsum("cbi,ij,cbj->cb", away, PRECISION, away), -0.7 * away @ PRECISION


def exactly(x):
    return likelihood(x)[0]


def moments(
    covariance,
    *,
    chains=6,
    groups=400,
    steps=1500,
    log_step=0.0,
    metropolis=True,
    blocks=1,
    evaluate=likelihood,
    correct=None,
):
    """Per-group means over time of x and of (x - m)(x - m)^T, started from the target. Groups are independent."""
    key_start, key_run = jr.split(jr.key(1))
    spread = jnp.linalg.cholesky(jnp.asarray(COVARIANCE))
    position = MEAN + jr.normal(key_start, (groups, chains, blocks, 2)) @ spread.T
    factor = jnp.broadcast_to(jnp.array([[0.9, 0.0], [-0.3, 0.7]]), (groups, blocks, 2, 2))
    target = ByHand(evaluate, prior, correct)
    kernel, tuning = (
        Mala(SystemBlocks(), covariance, metropolis=metropolis),
        MalaTuning(jnp.full((groups, blocks), log_step), factor),
    )

    def one(state, key):
        state, info = kernel.step(jr.split(key, groups), state, tuning, target)
        away = state.theta - MEAN
        second = jnp.einsum("gcbi,gcbj->gij", away, away) / (chains * blocks)
        return state, (jnp.mean(away, axis=(1, 2)), second, jnp.mean(info.acceptance))

    def run(position, key):
        _, (first, second, acceptance) = jax.lax.scan(one, target.start(position), jr.split(key, steps))
        return first.mean(0), second.mean(0), acceptance.mean()

    first, second, acceptance = jax.jit(run)(position, key_run)
    return np.asarray(first), np.asarray(second), float(acceptance)


def z_scores(covariance, **options):
    """How many standard errors (over independent groups) each moment is from the truth, and the effective sample size."""
    first, second, acceptance = moments(covariance, **options)
    assert 0.2 < acceptance < 0.95
    numbers = np.concatenate([first, second[:, [0, 0, 1], [0, 1, 1]]], axis=1)
    truth = np.concatenate([np.zeros(2), COVARIANCE[[0, 0, 1], [0, 1, 1]]])
    error = numbers.std(axis=0, ddof=1) / np.sqrt(len(numbers))
    # The variance of x_0^2 about its mean is 2 C_00^2: its standard error tells what the draws are worth.
    effective = 2 * COVARIANCE[0, 0] ** 2 / error[2] ** 2
    return (numbers.mean(axis=0) - truth) / error, effective


@pytest.mark.parametrize(
    ("covariance", "blocks"), [("halves", 1), pytest.param("halves", 2, marks=pytest.mark.nightly), ("frozen", 1)]
)
def test_exact_kernels_keep_first_and_second_moments(covariance, blocks):
    z, effective = z_scores(covariance, blocks=blocks)
    assert effective >= 40_000
    assert np.abs(z).max() < 4


@pytest.mark.parametrize(
    ("covariance", "blocks"), [pytest.param("frozen", 2, marks=pytest.mark.nightly), ("halves", 1)]
)
def test_a_surrogate_corrected_by_the_exact_likelihood_is_exact(covariance, blocks):
    z, effective = z_scores(covariance, blocks=blocks, evaluate=surrogate, correct=exactly)
    assert effective >= 40_000
    assert np.abs(z).max() < 4
    wrong, _ = z_scores(covariance, blocks=blocks, evaluate=surrogate, steps=300)
    assert np.abs(wrong).max() > 20


def test_a_corrected_chain_leaves_a_start_the_surrogate_cannot_see():
    position = jr.normal(jr.key(0), (2, 8, 1, 2))
    target, kernel = ByHand(surrogate, prior, exactly), Mala(SystemBlocks(), step_size=0.14)
    start = target.start(position)
    value, gradient = start.cache.stats
    blind = start._replace(cache=start.cache._replace(stats=(jnp.full_like(value, -jnp.inf), gradient)))
    moved, info = kernel.step(jr.split(jr.key(1), 2), blind, kernel.init(blind), target)
    assert float(jnp.mean(jnp.isfinite(moved.cache.stats[0]))) > 0.5
    assert float(jnp.nanmin(info.second)) > 0


@pytest.mark.nightly
def test_published_kernel_shrinks_the_posterior():
    """A chain's own position in its preconditioner: here a third of the variance is lost, at an acceptance of 0.91.

    (How much depends on the step: half at tiny steps, and at large ones the variance comes out too large.)
    """
    z, _ = z_scores("self", log_step=-0.5)
    assert z[2] < -40
    exact, _ = z_scores("halves", log_step=-0.5, steps=600)
    assert np.abs(exact).max() < 4


@pytest.mark.nightly
def test_without_metropolis_the_spread_is_wrong():
    z, _ = z_scores("frozen", metropolis=False, steps=600)
    assert np.abs(z[2:]).max() > 10


def test_tempered_target_is_flatter():
    """temperature multiplies the likelihood only: with weight 0 the prior alone is sampled, twice as wide."""
    groups, chains = 300, 8
    position = MEAN + jr.normal(jr.key(0), (groups, chains, 1, 2)) @ jnp.linalg.cholesky(2 * jnp.asarray(COVARIANCE)).T
    target, kernel = ByHand(likelihood, prior, temperature=0.0), Mala(SystemBlocks(), step_size=1.0)
    start = target.start(position)
    tuning = kernel.init(start)

    def one(state, key):
        state, _ = kernel.step(jr.split(key, groups), state, tuning, target)
        away = state.theta - MEAN
        return state, jnp.einsum("gcbi,gcbj->gij", away, away) / chains

    _, second = jax.jit(lambda state, k: jax.lax.scan(one, state, jr.split(k, 600)))(start, jr.key(2))
    per_group = np.asarray(second).mean(0)[:, 0, 0]
    z = (per_group.mean() - 2 * COVARIANCE[0, 0]) / (per_group.std(ddof=1) / np.sqrt(groups))
    assert abs(z) < 4


def test_non_finite_proposals_are_rejections():
    """A wall: the likelihood is -inf (a failed solve) for x_0 > 0; chains never cross it, and say how often they tried."""

    def walled(x):
        loglik, score = likelihood(x)
        out = x[..., 0] > 0.6
        return jnp.where(out, -jnp.inf, loglik), jnp.where(out[..., None], 0.0, score)

    position = MEAN + jnp.array([-1.0, 0.0]) + 0.1 * jr.normal(jr.key(0), (2, 8, 1, 2))
    target, kernel, tried = ByHand(walled, prior), Mala(SystemBlocks(), step_size=1.0), 0
    state = target.start(position)
    advance = jax.jit(lambda key, state: kernel.step(jr.split(key, 2), state, kernel.init(state), target))
    for key in jr.split(jr.key(3), 60):
        state, info = advance(key, state)
        tried += int(jnp.sum(~info.finite))
        assert bool(jnp.all(state.theta[..., 0] <= 0.6))
        assert bool(jnp.all(jnp.isfinite(state.cache.stats[0])))
    assert tried > 10


def test_a_start_that_is_not_finite_heals():
    def broken_at_start(x):
        loglik, score = likelihood(x)
        out = x[..., 0] > 3
        return jnp.where(out, -jnp.inf, loglik), jnp.where(out[..., None], 0.0, score)

    position = MEAN + 0.5 * jr.normal(jr.key(0), (1, 8, 1, 2))
    position = position.at[0, 0, 0, 0].set(4.0)
    target, kernel = ByHand(broken_at_start, prior), Mala(SystemBlocks(), step_size=1.0)
    state = target.start(position)
    advance = jax.jit(lambda key, state: kernel.step(jr.split(key, 1), state, kernel.init(state), target))
    for key in jr.split(jr.key(3), 200):
        state, _ = advance(key, state)
    assert bool(jnp.all(jnp.isfinite(state.cache.stats[0])))


def test_one_evaluation_a_step():
    """No gradient twice: a step evaluates the target once a chain."""
    evaluated = []

    def counting(x):
        evaluated.append(x.shape[0])
        return likelihood(x)

    state, target = ByHand(likelihood).start(MEAN + jr.normal(jr.key(0), (2, 8, 1, 2))), ByHand(counting, prior)
    for covariance, rows in (("frozen", 16), ("self", 16), ("halves", 8)):
        evaluated.clear()
        kernel = Mala(SystemBlocks(), covariance)
        kernel.step(jr.split(jr.key(1), 2), state, kernel.init(state), target)
        # The halves take turns in a scan, whose body is traced once (with one more look at its types).
        assert set(evaluated) == {rows}
        assert len(evaluated) <= 2


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 9])
def test_cholesky_against_lapack(dim):
    root = jr.normal(jr.key(dim), (4, dim, dim + 3))
    matrix = root @ jnp.swapaxes(root, -1, -2)
    np.testing.assert_allclose(
        cholesky(matrix), np.linalg.cholesky(np.asarray(matrix, np.float64)), rtol=2e-4, atol=2e-4
    )


def test_covariance_is_of_each_group_alone():
    position = jr.normal(jr.key(0), (3, 50, 2, 4)) * jnp.array([1.0, 2.0, 3.0])[:, None, None, None]
    found = np.asarray(ensemble_covariance(position, shrink=False))
    expected = np.stack([[np.cov(np.asarray(position[g, :, b]).T, bias=True) for b in range(2)] for g in range(3)])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_covariance_works_in_any_units():
    position = jr.normal(jr.key(0), (1, 20, 1, 3))
    units = jnp.asarray([1.0, 1e-12, 1e6])
    factor = cholesky(ensemble_covariance(position))
    np.testing.assert_allclose(
        cholesky(ensemble_covariance(position * units)), factor * units[:, None], rtol=1e-3, atol=0
    )
