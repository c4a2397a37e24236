"""Moves of a law on a target that is known exactly, and what they would do to it if they were wrong.

    y_k = theta_k0 + theta_k1 x + f(x) + noise,      theta_k ~ N(mu, tau),  mu ~ N(m, s_mu),  f the smooth law of sizes s

With tau given, all but s is normal given s: H(s) is its precision, m(s) its mean, and the density of both log s^2 is a number at
each point of a grid. So u = L(s)^T (w - m(s)), H = L L^T, is standard normal whatever s is, and the distribution functions of
the first log s^2, and of the second given the first, are uniform. Chains start from the target, and after some moves they must
still be distributed so.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from closura.laws import Law, Range, Scaling
from closura.population import Diagonal, Phi, Population
from closura.sampling import Cache, Chains, LawMove, LawSize, _law_move, init_all, sweep
from closura.sampling._law_constants import whitened

CHAINS, SYSTEMS, MOVES, SIGMA = 6000, 3, 15, 0.6
SPEC = Law(nodes=9)
SCALING = Scaling(jnp.zeros(1), jnp.ones(1), jnp.ones(()))
FRAME = SPEC.frame(Range(jnp.array([-1.0]), jnp.array([1.0])), SCALING)
PLACES = np.linspace(-0.9, 0.8, 5)


class Known(Diagonal):
    """A population of known spread."""

    def followed(self, phi, before, after):
        return super().followed(phi, before, after)._replace(log_tau=phi.log_tau)


POPULATION = Known(jnp.array([0.5, -0.2]), jnp.array([0.3, 0.5]), jnp.array([-1.0, 0.0]), jnp.array([0.2, 0.3]))
LOG_TAU = np.array([-0.7, 0.2])
Y = np.array([[0.2, 0.9, 0.4, 0.1, 1.5], [-0.8, 0.3, 0.2, 0.4, 0.2], [0.9, 1.1, 0.8, 1.9, 2.1]])
OWN = SYSTEMS * 2 + 2  # numbers of theta and mu, before those of the law
TREND, DETAIL = np.linspace(-7.0, 11.0, 121), np.linspace(-14.0, 4.0, 121)  # grids of both log s^2


class Target(eqx.Module):
    """The joint density, given tau, as kernels ask for it."""

    ranges: dict
    population: Population
    temperature: float = 1.0
    delayed_acceptance: bool = eqx.field(static=True, default=False)

    def refresh(self, chains):
        return chains._replace(
            cache=Cache((self.loglik_at(chains), jnp.zeros_like(chains.theta)), None, residuals(chains))
        )

    def loglik_and_grad(self, chains):
        return chains.cache.stats

    def loglik(self, chains):
        return chains.cache.stats[0]

    def exact_loglik(self, chains):
        return chains.cache.exact

    def loglik_at(self, chains):
        return -0.5 * jnp.sum((residuals(chains) / SIGMA) ** 2, axis=-1)

    def score(self, chains):
        return chains.cache.prediction / SIGMA**2

    def log_prior(self, chains):
        return jax.vmap(jax.vmap(self.population.log_prior))(chains.theta, chains.phi)

    def log_joint(self, chains, loglik):
        total = jnp.sum(loglik + self.log_prior(chains)[0], axis=-1)
        total += jax.vmap(jax.vmap(self.population.log_hyperprior))(chains.phi)
        return total + jax.vmap(jax.vmap(lambda law: law.log_prior(FRAME, None)))(chains.law["f"])


def residuals(chains):
    law = jax.vmap(jax.vmap(at_places))(chains.law["f"])
    return Y - chains.theta[..., :1] - chains.theta[..., 1:] * PLACES - law[:, :, None]


def at_places(law):
    return jax.vmap(law.prepare(FRAME))(jnp.asarray(PLACES, float))


def normal_given_size():
    """H = rest + sum_j diag(flexible_j) / s_j^2 of w = (theta, mu, a), and H m, which no size changes; and the law at places."""
    law = SPEC.build(jr.key(0), SCALING)
    shape = np.asarray(jax.jacfwd(lambda a: at_places(law.with_weights(a)))(law.weights), float)
    flexible = np.concatenate([np.zeros((2, OWN)), np.asarray(FRAME.flexible, float)], axis=1)
    rest = np.diag(np.concatenate([np.zeros(OWN), np.asarray(FRAME.rigid, float)]))
    pull = np.zeros(len(rest))
    for k, y in enumerate(Y):
        design = np.zeros((len(PLACES), len(rest)))
        design[:, 2 * k], design[:, 2 * k + 1], design[:, OWN:] = 1.0, PLACES, shape
        away = np.zeros((2, len(rest)))
        away[:, 2 * k : 2 * k + 2], away[:, OWN - 2 : OWN] = np.eye(2), -np.eye(2)
        rest += design.T @ design / SIGMA**2 + away.T @ np.diag(np.exp(-LOG_TAU)) @ away
        pull += design.T @ y / SIGMA**2
    mean, variance = (np.asarray(x, float) for x in (POPULATION.mean, POPULATION.mean_variance))
    rest[OWN - 2 : OWN, OWN - 2 : OWN] += np.diag(1 / variance)
    pull[OWN - 2 : OWN] += mean / variance
    return rest, flexible, pull, shape


REST, FLEXIBLE, PULL, SHAPE = normal_given_size()


def precision(log_size):
    """H, a matrix for each pair of log s^2."""
    return REST + (np.exp(-log_size) @ FLEXIBLE)[:, :, None] * np.eye(len(REST))


def distribution():
    """Of the first log s^2, and of the second given each of these, on the grids: the evidence of sizes times their prior."""
    pairs = np.stack(np.meshgrid(TREND, DETAIL, indexing="ij"), axis=-1).reshape(-1, 2)
    h, prior = precision(pairs), np.asarray(FRAME.rigid, float) + np.exp(-pairs) @ np.asarray(FRAME.flexible, float)
    evidence = 0.5 * np.log(prior).sum(axis=1) - 0.5 * np.linalg.slogdet(h)[1]
    evidence += 0.5 * np.linalg.solve(h, np.broadcast_to(PULL[:, None], (len(h), len(PULL), 1)))[..., 0] @ PULL
    mean, sd = np.array(SPEC.size_priors).T
    density = evidence - 0.5 * np.sum(((pairs - mean) / sd) ** 2, axis=1)
    density = np.exp(density - density.max()).reshape(len(TREND), len(DETAIL))
    return cumulated(density.sum(axis=1)), np.stack([cumulated(row) for row in density])


def cumulated(density):
    total = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return total / total[-1]


FIRST, SECOND = distribution()


def given(trend):
    """The distribution of the second log s^2, between those of its neighbours on the grid."""
    place = np.clip((trend - TREND[0]) / (TREND[1] - TREND[0]), 0, len(TREND) - 1.001)
    left = place.astype(int)
    share = (place - left)[:, None]
    return (1 - share) * SECOND[left] + share * SECOND[left + 1]


def start(seed):
    random = np.random.default_rng(seed)
    trend = np.interp(random.uniform(size=CHAINS), FIRST, TREND)
    detail = [np.interp(u, row, DETAIL) for u, row in zip(random.uniform(size=CHAINS), given(trend))]
    log_size = np.stack([trend, detail], axis=1)
    h = precision(log_size)
    lower = np.linalg.cholesky(h)
    mean = np.linalg.solve(h, np.broadcast_to(PULL[:, None], (CHAINS, len(PULL), 1)))
    w = (mean + np.linalg.solve(np.swapaxes(lower, 1, 2), random.normal(size=mean.shape)))[..., 0]
    theta, mu, a = (jnp.asarray(x, float)[None] for x in np.split(w, [OWN - 2, OWN], axis=1))
    law = SPEC.build(jr.key(0), SCALING).with_weights(a).with_size(jnp.asarray(log_size, float)[None])
    phi = Phi(mu, jnp.broadcast_to(jnp.asarray(LOG_TAU, float), mu.shape))
    return Chains(theta.reshape(1, CHAINS, SYSTEMS, 2), phi, law={"f": law})


def tuned(kernel, chains):
    """About what a fit would find, a little off: the moves are exact with any constants."""
    random = np.random.default_rng(0)
    law = chains.law["f"]
    along = -np.linalg.solve(REST[:OWN, :OWN], REST[:OWN, OWN:])
    left = REST[OWN:, OWN:] + REST[OWN:, :OWN] @ along - np.diag(np.asarray(FRAME.rigid, float))
    frame = jax.tree.map(lambda x: np.asarray(x, float), FRAME)
    names, draws = (
        ("color", "share", "size", "size_lower", "known"),
        (np.asarray(x[0], float) for x in (law.weights, law.log_size)),
    )
    fields = dict(zip(names, whitened(left, left, *draws, frame)))
    along = along * (1 + 0.2 * random.normal(size=along.shape))
    fields |= {"theta": along[:-2].reshape(SYSTEMS, 2, -1), "log_reach": np.log(0.9)}
    fields |= {"by_law": np.stack([SHAPE * (1 + 0.2 * random.normal(size=SHAPE.shape))] * SYSTEMS)}
    fields |= {"by_theta": np.stack([np.stack([np.ones(len(PLACES)), PLACES], axis=-1)] * SYSTEMS)}
    made = jax.tree.map(lambda x: jnp.asarray(x, float)[None], fields)
    return kernel.init(chains)._replace(**made)


def z_scores(kernels, seed=0):
    """Of moments of what must be standard normal, and uniform, after some moves; and how often moves were accepted."""
    target, chains = Target({"f": FRAME}, POPULATION), start(seed)
    tuning = init_all(kernels, chains) | {kernels[0].name: tuned(kernels[0], chains)}

    def one(chains, key):
        chains, _, info = sweep(kernels, key[None], chains, tuning, target)
        return chains, jnp.nanmean(info.acceptance)

    run = jax.jit(lambda chains: jax.lax.scan(one, target.refresh(chains), jr.split(jr.key(seed + 1), MOVES)))
    end, accepted = jax.device_get(run(chains))
    law = end.law["f"]
    log_size = np.asarray(law.log_size[0], float)
    w = np.concatenate([end.theta[0].reshape(CHAINS, -1), end.phi.mu[0], law.weights[0]], axis=1).astype(float)
    h = precision(log_size)
    mean = np.linalg.solve(h, np.broadcast_to(PULL[:, None], (CHAINS, len(PULL), 1)))[..., 0]
    u = np.einsum("cij,ci->cj", np.linalg.cholesky(h), w - mean)
    trend, detail = log_size.T
    uniform = [np.interp(trend, TREND, FIRST), [np.interp(x, DETAIL, row) for x, row in zip(detail, given(trend))]]
    v = np.sqrt(12) * (np.stack(uniform, axis=1) - 0.5)  # of mean zero and variance one
    numbers = np.concatenate([u, v, u**2 - 1, v**2 - 1, u * v[:, :1], u * v[:, 1:], u[:, :OWN] * u[:, -OWN:]], axis=1)
    error = numbers.std(axis=0) / np.sqrt(CHAINS)
    return numbers.mean(axis=0) / error, float(np.nanmean(accepted))


@pytest.mark.parametrize(
    "kernels",
    [[LawMove("f", observations=len(PLACES))], [LawMove("f", observations=len(PLACES)), LawSize()]],
    ids=["move", "with the size"],
)
def test_the_target_stays(kernels):
    z, accepted = z_scores(kernels)
    assert accepted > 0.2
    assert np.abs(z).max() < 4.5


class Stale(LawMove):
    """Forgets to hand on the likelihood of where it went."""

    def step(self, keys, chains, tuning, posterior):
        moved, info = super().step(keys, chains, tuning, posterior)
        return moved._replace(cache=chains.cache), info


def without_the_way_back(monkeypatch):
    """As if steps were as likely forth and back."""
    monkeypatch.setattr(LawMove, "_step_density", lambda self, chains, tuning, posterior, change, eta: 0.0 * eta)
    return LawMove("f", observations=len(PLACES))


def without_the_density_of_draws(monkeypatch):
    right = _law_move.redrawn
    monkeypatch.setattr(_law_move, "redrawn", lambda *args: (right(*args)[0], 0.0))
    return LawMove("f", observations=len(PLACES))


def with_another_shear_back(monkeypatch):
    """Theta follows the law one way, and stays when it comes back."""
    right = _law_move.sheared

    def sheared(chains, tuning, law, change, population):
        moved, volume = right(chains, tuning, law, change, population)
        there = (change[..., 0] > 0)[..., None, None]
        return moved._replace(theta=jnp.where(there, moved.theta, chains.theta)), volume

    monkeypatch.setattr(_law_move, "sheared", sheared)
    return LawMove("f", observations=len(PLACES))


def stale(monkeypatch):
    return Stale("f", observations=len(PLACES))


@pytest.mark.parametrize("broken", [without_the_way_back, without_the_density_of_draws, with_another_shear_back, stale])
def test_it_would_notice(broken, monkeypatch):
    z, _ = z_scores([broken(monkeypatch)])
    assert np.abs(z).max() > 8
