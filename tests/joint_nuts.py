"""An independent sampler (BlackJAX NUTS) on the joint density of everything that chains of a run with sampled laws hold."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from arviz_stats.base import array_stats
from jax.flatten_util import ravel_pytree

from closura.sampling import Chains


class Units(NamedTuple):
    """Coordinates of a law in units of about their posterior given the size, so that z hardly depends on it:

        a = color (mean(s) + z / sqrt(p(s))),     p(s) = 1 + sum_j share_j (exp(size_j - log s_j^2) - 1)

    with `color` such that information of data, and precision of the prior at `size`, are diagonal at once.
    """

    color: jax.Array
    share: jax.Array
    size: jax.Array
    pull: jax.Array

    @classmethod
    def of(cls, a, log_size, frame):
        """From draws: the precision of those near the median sizes, less that of the prior, is what data tell. The prior's is
        `frame.rigid + sum_j frame.flexible_j / s_j^2`."""
        a, log_size = np.asarray(a, np.float64), np.asarray(log_size, np.float64)
        size = np.median(log_size, axis=0)
        near = np.argsort(np.abs(log_size - size).sum(axis=1))[: len(a) // 5]
        rigid, flexible = (np.asarray(x, np.float64) for x in (frame.rigid, frame.flexible))
        flexible = flexible * np.exp(-size)[:, None]
        prior = np.diag(rigid + flexible.sum(axis=0))
        value, vector = np.linalg.eigh(np.linalg.inv(np.cov(a[near].T)) - prior)
        lower = np.linalg.cholesky((vector * np.maximum(value, 0.0)) @ vector.T + prior)
        turn = np.linalg.eigh(np.linalg.solve(lower, np.linalg.solve(lower, np.diag(flexible[-1])).T))[1]
        color = np.linalg.solve(lower.T, turn)
        share = np.clip(flexible @ color**2, 0.0, 1.0)
        precision = 1 + np.expm1(size - log_size) @ share
        pull = np.mean(np.linalg.solve(color, a.T).T * precision, axis=0)
        return cls(*(jnp.asarray(x, float) for x in (color, share, size, pull)))

    def _precision(self, log_size):
        return 1 + jnp.expm1(self.size - log_size) @ self.share

    def standard(self, a, log_size):
        precision = self._precision(log_size)
        return (jnp.linalg.solve(self.color, a) - self.pull / precision) * jnp.sqrt(precision)

    def coordinates(self, z, log_size):
        """And the log volume of the map, up to a constant."""
        precision = self._precision(log_size)
        return self.color @ (self.pull / precision + z / jnp.sqrt(precision)), -0.5 * jnp.sum(jnp.log(precision))


class InUnits:
    """A density of everything a chain holds (a tree, its laws by name as {"a": coordinates, "log_size"}) as one of a vector x.

    Coordinates of laws are in units of about their posterior given the size (`Units`), and all of x in units of some draws.
    Both change how long NUTS takes, and nothing else.
    """

    def __init__(self, log_density, draws, frames):
        self.of_tree = log_density
        self.units = {name: Units.of(law["a"], law["log_size"], frames[name]) for name, law in draws["laws"].items()}
        _, self.unravel = ravel_pytree(jax.tree.map(lambda a: a[0], draws))
        self.draws = np.asarray(jax.jit(jax.vmap(self._packed))(draws), np.float64)
        self.center = jnp.asarray(self.draws.mean(axis=0), float)
        self.factor = jnp.asarray(np.linalg.cholesky(np.cov(self.draws.T)), float)

    def starts(self, count):
        """Some of the draws, far apart."""
        chosen = self.draws[np.linspace(0, len(self.draws) - 1, count).astype(int)]
        away = np.linalg.solve(np.asarray(self.factor, float), (chosen - np.asarray(self.center, float)).T).T
        return jnp.asarray(away, float)

    def log_density(self, x):
        tree, log_volume = self._unpacked(x)
        return self.of_tree(tree) + log_volume

    def tree(self, x):
        return self._unpacked(x)[0]

    def _packed(self, tree):
        laws = {
            name: law | {"a": self.units[name].standard(law["a"], law["log_size"])}
            for name, law in tree["laws"].items()
        }
        return ravel_pytree(tree | {"laws": laws})[0]

    def _unpacked(self, x):
        tree, total = self.unravel(self.center + self.factor @ x), 0.0
        laws = {}
        for name, law in tree["laws"].items():
            a, log_volume = self.units[name].coordinates(law["a"], law["log_size"])
            laws[name], total = law | {"a": a}, total + log_volume
        return tree | {"laws": laws}, total


class Joint:
    """The density of a finished run, built from its likelihood and its `log_joint`; shared parameters are there once."""

    def __init__(self, run):
        self.posterior, self.laws = run.posterior, jax.tree.map(lambda a: jnp.asarray(a[0, 0]), run.kept.law)
        systems, parameters = run.theta().shape[2:]
        shared = np.array(self.posterior.population.shared or (False,) * parameters)
        self.own, self.held = np.flatnonzero(~shared), np.flatnonzero(shared)
        self.shape = systems, parameters

    def draws(self, kept):
        """Those of the run, as trees with one draw axis in front."""
        flat = jax.tree.map(lambda a: jnp.asarray(a.reshape(-1, *a.shape[2:]), float), kept)
        laws = {name: {"a": law.weights, "log_size": law.log_size} for name, law in flat.law.items()}
        tree = {"own": flat.theta[..., self.own], "held": flat.theta[:, 0, self.held], "phi": flat.phi, "laws": laws}
        return tree if flat.log_sigma is None else tree | {"log_sigma": flat.log_sigma}

    def chains(self, tree):
        """One chain, that holds this."""
        theta = jnp.zeros(self.shape).at[:, self.own].set(tree["own"]).at[:, self.held].set(tree["held"])
        laws = {
            name: self.laws[name].with_weights(law["a"]).with_size(law["log_size"])
            for name, law in tree["laws"].items()
        }
        return Chains(theta, tree["phi"], tree.get("log_sigma"), laws)

    def log_density(self, tree):
        chains = jax.tree.map(lambda a: a[None, None], self.chains(tree))
        return self.posterior.log_joint(chains, self._loglik(chains))[0, 0]

    def _loglik(self, chains):
        likelihood = self.posterior.likelihood
        laws = jax.tree.map(lambda a: a[0, 0], chains.law)
        law = {name: one.prepare(self.posterior.ranges[name]) for name, one in laws.items()}
        # In reverse mode: there are more directions than one goes through forwards.
        forward = likelihood.forward.for_reverse_mode()
        prediction = likelihood.predict(chains.theta[0], {**self.posterior.context, **law}, forward)
        stats = likelihood.noise.stats(likelihood.measured, prediction, None)
        log_sigma = None if chains.log_sigma is None else chains.log_sigma[0]
        return likelihood.noise.loglik(likelihood.measured, stats, log_sigma)[None]


def nuts(target, numbers, chains, draws, warmup=600, seed=0):
    """(chain, draw, number): `numbers(tree)` at draws of NUTS, step and mass matrix from a window adaptation of the first chain;
    and leapfrog steps a draw, and how many diverged. The target is one in units of draws, from which chains start."""
    starts = target.starts(chains)
    adaptation = blackjax.window_adaptation(blackjax.nuts, target.log_density, target_acceptance_rate=0.9)
    key_warm, key_run = jr.split(jr.key(seed))
    (_, tuned), _ = jax.jit(lambda key, x: adaptation.run(key, x, num_steps=warmup))(key_warm, starts[0])
    kernel = blackjax.nuts(target.log_density, **tuned)

    def one_chain(key, start):
        def one(state, key):
            state, info = kernel.step(key, state)
            return state, (numbers(target.tree(state.position)), info.num_integration_steps, info.is_divergent)

        return jax.lax.scan(one, kernel.init(start), jr.split(key, draws))[1]

    found, steps, diverged = jax.jit(jax.vmap(one_chain))(jr.split(key_run, chains), starts)
    return np.asarray(found, np.float64), float(np.mean(steps)), int(np.sum(diverged))


class Comparison(NamedTuple):
    """Of each number: means and sds of both samplers, what their draws are worth, and how far means are apart in standard errors."""

    names: list
    means: np.ndarray
    sds: np.ndarray
    effective: np.ndarray
    z: np.ndarray
    z_sd: np.ndarray

    @property
    def ratio(self):
        return self.sds[0] / self.sds[1]

    def __str__(self):
        lines = [
            f"{'':12s} {'mean':>9s} {'NUTS':>9s} {'z':>6s} {'sd':>9s} {'NUTS':>9s} {'ratio':>6s} {'ESS':>8s} {'NUTS':>8s}"
        ]
        for i, name in enumerate(self.names):
            m, s, n = self.means[:, i], self.sds[:, i], self.effective[:, i]
            lines.append(
                f"{name:12s} {m[0]:9.4f} {m[1]:9.4f} {self.z[i]:6.2f} {s[0]:9.4f} {s[1]:9.4f} {self.ratio[i]:6.3f} {n[0]:8.0f} {n[1]:8.0f}"
            )
        return "\n".join(
            [*lines, f"rms z {np.sqrt(np.mean(self.z**2)):.2f}, of log sds {np.sqrt(np.mean(self.z_sd**2)):.2f}"]
        )


def compare(names, ours, theirs):
    """Of draws (chain, draw, number)."""
    both = [np.asarray(x, np.float64) for x in (ours, theirs)]
    means, sds = (np.stack([getattr(x, what)(axis=(0, 1)) for x in both]) for what in ("mean", "std"))
    effective = np.stack([_effective(x) for x in both])
    z = (means[0] - means[1]) / np.sqrt(np.sum(sds**2 / effective, axis=0))
    errors = []
    for x, mean, sd in zip(both, means, sds):
        square = (x - mean) ** 2
        errors.append(square.std(axis=(0, 1)) / np.sqrt(_effective(square)) / (2 * sd**2))
    z_sd = np.log(sds[0] / sds[1]) / np.sqrt(errors[0] ** 2 + errors[1] ** 2)
    return Comparison(names, means, sds, effective, z, z_sd)


def _effective(draws):
    count = range(draws.shape[-1])
    return np.array([array_stats.ess(draws[..., i], chain_axis=0, draw_axis=1, method="mean") for i in count])
