"""The whole hierarchical kernel, by Geweke's joint test, on a linear-Gaussian population.

If (phi, theta, y) come from the prior, and then theta, phi are moved by the kernel given y and y is drawn anew given theta,
over and over, the marginal law of phi and theta stays the prior's. Every chain has data of its own; chains interact through
the preconditioner, so the effective size is taken from the series of ensemble means.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from targets import ByHand

from closura.population import Diagonal, Independent
from closura.sampling import Cache, Chains, JointBlock, Mala, PopulationGibbs, SystemBlocks, init_all, sweep

SYSTEMS, PARAMETERS, OBSERVED, SIGMA = 3, 2, 2, 0.7
DESIGN = jnp.array([[1.0, 0.4], [-0.3, 0.8]])
HIERARCHY = Diagonal(
    jnp.array([0.5, -0.2]), jnp.array([0.6, 0.3]), jnp.log(jnp.array([0.5, 0.3])), jnp.array([0.4, 0.2])
)
FIXED = Independent(HIERARCHY.mean, HIERARCHY.mean_variance + jnp.exp(HIERARCHY.log_variance))


def draw_prior(population, key, shape):
    key_phi, key_theta = jr.split(key)
    phi = jax.vmap(jax.vmap(population.phi_from_normal))(jr.normal(key_phi, (*shape, 2, PARAMETERS)))
    return jax.vmap(jax.vmap(population.theta_from_normal))(
        phi, jr.normal(key_theta, (*shape, SYSTEMS, PARAMETERS))
    ), phi


def observe(key, theta):
    return theta @ DESIGN.T + SIGMA * jr.normal(key, (*theta.shape[:-1], OBSERVED))


class Linear(ByHand):
    """y_k = DESIGN theta_k + noise, with a data set for every chain. Data are the chains' law: they ride along with halves."""

    def __init__(self, population):
        super().__init__(evaluate=None)
        self.population = population

    def refresh(self, chains):
        residual = chains.law - chains.theta @ DESIGN.T
        stats = -0.5 * jnp.sum(residual**2, -1) / SIGMA**2, residual @ DESIGN / SIGMA**2
        return chains._replace(cache=Cache(stats))

    def log_prior(self, chains):
        return jax.vmap(jax.vmap(self.population.log_prior))(chains.theta, chains.phi)


def kernels_for(kind, population, covariance):
    if kind == "system":
        return [Mala(SystemBlocks(), covariance, step_size=0.5), PopulationGibbs()]
    return [Mala(JointBlock(SYSTEMS, PARAMETERS, population.hierarchical), covariance, step_size=0.18)]


def geweke(kind, population, covariance, *, groups, chains, steps, break_gibbs=False):
    key_prior, key_y, key_run = jr.split(jr.key(7), 3)
    theta, phi = draw_prior(population, key_prior, (groups, chains))
    kernels, target = kernels_for(kind, population, covariance), Linear(population)

    def one(state, key):
        key_move, key_y = jr.split(key)
        state, _, info = sweep(kernels, jr.split(key_move, groups), target.refresh(state), tuning, target)
        theta, phi = state.theta, state.phi
        if break_gibbs:
            phi = phi._replace(log_tau=phi.log_tau + 0.02)
        tested = [theta.mean(axis=(1, 2)), (theta**2).mean(axis=(1, 2))]
        if population.hierarchical:
            mu, log_tau = phi[:2]
            tested += [
                mu.mean(1),
                (mu**2).mean(1),
                log_tau.mean(1),
                (log_tau**2).mean(1),
                jnp.mean(mu * log_tau, axis=1),
            ]
        state = state._replace(phi=phi, law=observe(key_y, theta))
        return state, (jnp.concatenate(tested, -1), jnp.mean(info.acceptance))

    start = target.refresh(Chains(theta, phi, law=observe(key_y, theta)))
    tuning = init_all(kernels, start)
    _, (series, acceptance) = jax.jit(lambda c, k: jax.lax.scan(one, c, jr.split(k, steps)))(start, key_run)
    assert 0.3 < float(acceptance.mean()) < 0.95
    return np.asarray(series, np.float64)


def expected(population):
    mean = np.asarray(population.mean)
    if not population.hierarchical:
        variance = np.asarray(population.variance)
        return np.concatenate([mean, mean**2 + variance])
    s_mu, m_tau, s_tau = (
        np.asarray(a) for a in (population.mean_variance, population.log_variance, population.log_variance_variance)
    )
    theta_second = mean**2 + s_mu + np.exp(m_tau + s_tau / 2)
    return np.concatenate([mean, theta_second, mean, mean**2 + s_mu, m_tau, m_tau**2 + s_tau, mean * m_tau])


def z_scores(series, truth):
    """Groups are independent replicates: standard errors over their time averages."""
    per_group = series.mean(axis=0)
    error = per_group.std(axis=0, ddof=1) / np.sqrt(per_group.shape[0])
    return (per_group.mean(axis=0) - truth) / error, error


@pytest.mark.parametrize("kind", ["system", "joint"])
@pytest.mark.parametrize(
    "population", [pytest.param(HIERARCHY, id="hierarchy"), pytest.param(FIXED, id="fixed", marks=pytest.mark.nightly)]
)
def test_the_prior_is_kept(kind, population):
    chains = 6 if kind == "system" else 2 * (JointBlock.dimension(SYSTEMS, PARAMETERS, population.hierarchical) + 2)
    series = geweke(kind, population, "halves", groups=200, chains=chains, steps=1500 if kind == "system" else 800)
    z, error = z_scores(series, expected(population))
    # First moments of theta are known to about 1 %: an error of 4 % would show.
    assert error[0] < 0.012
    assert np.abs(z).max() < 4


@pytest.mark.nightly
def test_it_would_notice_a_wrong_gibbs_step():
    series = geweke("system", HIERARCHY, "halves", groups=200, chains=6, steps=800, break_gibbs=True)
    z, _ = z_scores(series, expected(HIERARCHY))
    assert np.abs(z).max() > 6


@pytest.mark.nightly
def test_it_would_notice_the_published_kernel():
    series = geweke("system", HIERARCHY, "self", groups=200, chains=6, steps=800)
    z, _ = z_scores(series, expected(HIERARCHY))
    assert np.abs(z).max() > 6
