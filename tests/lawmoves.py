"""A linear model of all that a chain holds, whose data are drawn anew before every sweep: kernels must leave its prior as it is
(Geweke 2004). Chains are independent, so errors are those of plain averages."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from closura.laws import Law, Range, Scaling
from closura.population import Diagonal, Population
from closura.sampling import Cache, Chains, init_all, sweep
from closura.sampling._law_constants import whitened
from closura.sampling._law_move import LawTuning

CHAINS, SYSTEMS, SWEEPS, SIGMA = 4000, 3, 12, 3.0
SIZE = 0.0, 1.5  # of both log s^2: laws about as large as the noise
SPEC = Law(nodes=9)
SCALING = Scaling(jnp.zeros(1), jnp.ones(1), jnp.ones(()))
FRAME = SPEC.frame(Range(jnp.array([-1.0]), jnp.array([1.0])), SCALING)
PLACES = jnp.linspace(-0.9, 0.8, 4)
POPULATION = Diagonal(jnp.array([0.5, -0.2]), jnp.array([0.3, 0.5]), jnp.array([-1.0, 0.0]), jnp.array([0.2, 0.3]))


class Linear(eqx.Module):
    """y = theta_0 + x theta_1 + f(x) + noise, of every chain its own."""

    y: jax.Array
    ranges: dict
    population: Population
    temperature: float = 1.0
    delayed_acceptance: bool = eqx.field(static=True, default=False)

    def loglik(self, chains):
        return chains.cache.stats[0]

    def loglik_and_grad(self, chains):
        return chains.cache.stats

    def refresh(self, chains):
        residual = (self.y - predicted(chains)) / SIGMA
        gradient = jnp.stack([jnp.sum(residual, -1), jnp.sum(residual * PLACES, -1)], axis=-1) / SIGMA
        return chains._replace(cache=Cache((-0.5 * jnp.sum(residual**2, axis=-1), gradient), None, predicted(chains)))

    def score(self, chains):
        return (self.y - chains.cache.prediction) / SIGMA**2

    def loglik_at(self, chains):
        return self.refresh(chains).cache.stats[0]

    def exact_loglik(self, chains):
        return chains.cache.exact

    def log_prior(self, chains):
        return jax.vmap(jax.vmap(self.population.log_prior))(chains.theta, chains.phi)

    def log_joint(self, chains, loglik):
        total = jnp.sum(loglik + self.log_prior(chains)[0], axis=-1)
        total += jax.vmap(jax.vmap(self.population.log_hyperprior))(chains.phi)
        return total + jax.vmap(jax.vmap(lambda law: law.log_prior(FRAME, None)))(chains.law["f"])


def predicted(chains):
    law = jax.vmap(jax.vmap(lambda law: jax.vmap(law.prepare(FRAME))(PLACES)))(chains.law["f"])
    return chains.theta[..., :1] + chains.theta[..., 1:] * PLACES + law[:, :, None]


def from_prior(key):
    keys = jr.split(key, 5)
    shape = (1, CHAINS)
    phi = jax.vmap(jax.vmap(POPULATION.phi_from_normal))(jr.normal(keys[0], (*shape, 2, 2)))
    theta = jax.vmap(jax.vmap(POPULATION.theta_from_normal))(phi, jr.normal(keys[1], (*shape, SYSTEMS, 2)))
    size = SIZE[0] + SIZE[1] * jr.normal(keys[2], (*shape, 2))
    precision = FRAME.precision(size)
    law = SPEC.build(keys[3], SCALING)
    a = jr.normal(keys[4], precision.shape) / jnp.sqrt(precision)
    return Chains(theta, phi, law={"f": law.with_weights(a).with_size(size)})


def tunings(kernels, chains, shear, power=0.0, walks=0):
    """Constants as a fit might have found them, or not: the moves are exact with any."""
    random = np.random.default_rng(0)
    tuning = init_all(kernels, chains)
    count = FRAME.rigid.shape[0]
    half = random.normal(size=(count, count)) * 0.2
    frame = jax.tree.map(lambda x: np.asarray(x, float), FRAME)
    law, known = chains.law["f"], half @ half.T
    a, sizes = (np.asarray(x[0, :500], float) for x in (0.3 + law.weights, law.log_size))
    places = np.stack([np.ones(len(PLACES)), np.asarray(PLACES)], axis=-1)
    sensitivities = (0.3 * random.normal(size=(SYSTEMS, len(PLACES), count)), np.stack([places] * SYSTEMS))
    parts = (*whitened(known, 2 * known, a, sizes, frame), *sensitivities)
    follows = (shear * random.normal(size=(SYSTEMS, 2, count)), np.zeros((0, count)), np.array([power, 0.0]))
    at, ridges = np.broadcast_to(POPULATION.mean, (SYSTEMS, 2)), 0.5 * random.normal(size=(4, count))
    whole = (*parts, *follows, at, ridges, np.arange(4) < walks)
    whole = jax.tree.map(lambda x: jnp.asarray(x)[None], whole)
    law = LawTuning(*whole, jnp.log(jnp.array([0.4])), jnp.zeros(1), jnp.zeros(1))._replace(others=None)
    if "independence" not in tuning:
        return tuning | {"law f": law}
    of_theta = tuning["independence"]
    inner = np.array([[4 / SIGMA**2, 0.1], [0.1, 0.3]])
    of_theta = of_theta._replace(
        information=jnp.asarray(np.broadcast_to(inner, of_theta.information.shape), float),
        pull=jnp.asarray(0.2 * random.normal(size=of_theta.pull.shape), float),
        bound=jnp.asarray(0.03 * random.normal(size=of_theta.bound.shape), float),
        power=jnp.array([[power, 0.0]]),
    )
    return tuning | {"law f": law, "independence": of_theta}


def z_scores(kernels, seed=0, sweeps=SWEEPS, **constants):
    """Of first and second moments of all that chains hold after some sweeps, and how often laws moved."""
    start = from_prior(jr.key(seed))
    tuning = tunings(kernels, start, **({"shear": 0.05} | constants))

    def one(chains, key):
        key_data, key_sweep = jr.split(key)
        y = predicted(chains) + SIGMA * jr.normal(key_data, (1, CHAINS, SYSTEMS, len(PLACES)))
        posterior = Linear(y, {"f": FRAME}, POPULATION)
        chains, _, info = sweep(kernels, key_sweep[None], posterior.refresh(chains), tuning, posterior)
        return chains._replace(cache=Cache(())), jnp.nanmean(info.acceptance, (0, 1))

    end, accepted = jax.jit(lambda c: jax.lax.scan(one, c, jr.split(jr.key(seed + 1), sweeps)))(start)

    def moments(chains):
        law, phi = chains.law["f"], chains.phi
        shape = jax.vmap(jax.vmap(lambda law: jax.vmap(law.prepare(FRAME))(PLACES)))(law)
        numbers = [chains.theta.reshape(1, CHAINS, -1), phi.mu, phi.log_tau, law.weights, law.log_size]
        # Of the law itself only where it has moments that plain averages find: its size is log-normal.
        flat = np.concatenate([np.asarray(part[0], float) for part in [*numbers, jnp.arcsinh(shape)]], axis=-1)
        flat = np.arcsinh(flat)
        return np.concatenate([flat, flat**2, flat[:, :6] * flat[:, -6:]], axis=-1)

    before, after = moments(start), moments(end)
    other = moments(from_prior(jr.key(seed + 2)))
    both = np.concatenate([before, other])
    error = np.sqrt(after.var(axis=0) / len(after) + both.var(axis=0) / len(both))
    return (after.mean(axis=0) - both.mean(axis=0)) / error, np.nanmean(accepted, axis=0)
