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

        a = color (mean(s) + z / sqrt(p(s))),     p(s) = 1 - share + share exp(size - log s^2)

    with `color` such that information of data, and precision of the prior at `size`, are diagonal at once.
    """

    color: jax.Array
    share: jax.Array
    size: float
    pull: jax.Array

    @classmethod
    def of(cls, law, frame):
        """From draws: the precision of those near the median size, less that of the prior, is what data tell."""
        a, log_size = np.asarray(law.weights, np.float64), np.asarray(law.log_size, np.float64)
        size = np.median(log_size)
        near = np.argsort(np.abs(log_size - size))[: len(a) // 5]
        rigid, flexible = (np.diag(np.asarray(x, np.float64)) for x in (frame.rigid, frame.flexible))
        flexible = flexible * np.exp(-size)
        value, vector = np.linalg.eigh(np.linalg.inv(np.cov(a[near].T)) - rigid - flexible)
        lower = np.linalg.cholesky((vector * np.maximum(value, 0.0)) @ vector.T + rigid + flexible)
        share, turn = np.linalg.eigh(np.linalg.solve(lower, np.linalg.solve(lower, flexible).T))
        color, share = np.linalg.solve(lower.T, turn), np.clip(share, 0.0, 1.0)
        precision = 1 - share + share * np.exp(size - log_size)[:, None]
        pull = np.mean(np.linalg.solve(color, a.T).T * precision, axis=0)
        return cls(*(jnp.asarray(x, float) for x in (color, share, size, pull)))

    def _precision(self, log_size):
        return 1 - self.share + self.share * jnp.exp(self.size - log_size)

    def standard(self, a, log_size):
        precision = self._precision(log_size)
        return (jnp.linalg.solve(self.color, a) - self.pull / precision) * jnp.sqrt(precision)

    def coordinates(self, z, log_size):
        """And the log volume of the map, up to a constant."""
        precision = self._precision(log_size)
        return self.color @ (self.pull / precision + z / jnp.sqrt(precision)), -0.5 * jnp.sum(jnp.log(precision))


class Joint:
    """The density of a finished run, of one vector x: built from its likelihood and its `log_joint`.

    Shared parameters are there once, and coordinates of laws in units of about their posterior given the size (`Units`). All of
    x is seen in units of the run's own draws. Both change how long NUTS takes, and nothing else.
    """

    def __init__(self, run):
        self.posterior, kept = run.posterior, run.kept
        shared = np.array(self.posterior.population.shared or (False,) * kept.theta.shape[-1])
        self.own, self.held = np.flatnonzero(~shared), np.flatnonzero(shared)
        self.systems, self.laws = kept.theta.shape[2], kept.law
        some = jax.tree.map(lambda a: jnp.asarray(a.reshape(-1, *a.shape[2:]), float), kept)
        self.units = {name: Units.of(law, self.posterior.ranges[name]) for name, law in some.law.items()}
        _, self.unravel = ravel_pytree(self._position(jax.tree.map(lambda a: a[0], some)))
        self.draws = np.asarray(jax.jit(jax.vmap(lambda one: ravel_pytree(self._position(one))[0]))(some), np.float64)
        self.center = jnp.asarray(self.draws.mean(axis=0), float)
        self.factor = jnp.asarray(np.linalg.cholesky(np.cov(self.draws.T)), float)

    def starts(self, count):
        """Some draws of the run, far apart."""
        chosen = self.draws[np.linspace(0, len(self.draws) - 1, count).astype(int)]
        away = np.linalg.solve(np.asarray(self.factor, float), (chosen - np.asarray(self.center, float)).T).T
        return jnp.asarray(away, float)

    def log_density(self, x):
        position = self._unpacked(x)
        chains, log_volume = self._chains(position)
        return self.posterior.log_joint(chains, self._loglik(chains))[0, 0] + log_volume

    def state(self, x):
        """What a chain holds there."""
        return jax.tree.map(lambda a: a[0, 0], self._chains(self._unpacked(x))[0])

    def _unpacked(self, x):
        return self.unravel(self.center + self.factor @ x)

    def _position(self, draw):
        """Of one draw of the run."""
        laws = {}
        for name, law in draw.law.items():
            laws[name] = {"z": self.units[name].standard(law.weights, law.log_size), "log_size": law.log_size}
        theta = draw.theta
        return {"own": theta[:, self.own], "held": theta[0, self.held], "phi": draw.phi, "laws": laws} | (
            {} if draw.log_sigma is None else {"log_sigma": draw.log_sigma}
        )

    def _chains(self, position):
        """The state of one chain in one group, and the log volume of the map from z to coordinates."""
        theta = jnp.zeros((self.systems, len(self.own) + len(self.held)))
        theta = theta.at[:, self.own].set(position["own"]).at[:, self.held].set(position["held"])
        laws, log_volume = {}, 0.0
        for name, part in position["laws"].items():
            like = jax.tree.map(lambda a: a[0, 0], self.laws[name])
            weights, log_factor = self.units[name].coordinates(part["z"], part["log_size"])
            laws[name] = like.with_weights(weights).with_size(part["log_size"])
            log_volume += log_factor
        one = Chains(theta, position["phi"], position.get("log_sigma"), laws)
        return jax.tree.map(lambda a: a[None, None], one), log_volume

    def _loglik(self, chains):
        likelihood = self.posterior.likelihood
        law = {name: one.prepare(self.posterior.ranges[name]) for name, one in _first(chains.law).items()}
        # In reverse mode: there are more directions than one goes through forwards.
        forward = likelihood.forward.for_reverse_mode()
        prediction = likelihood.predict(chains.theta[0], {**self.posterior.context, **law}, forward)
        stats = likelihood.noise.stats(likelihood.measured, prediction, None)
        log_sigma = None if chains.log_sigma is None else chains.log_sigma[0]
        return likelihood.noise.loglik(likelihood.measured, stats, log_sigma)[None]


def _first(tree):
    return jax.tree.map(lambda a: a[0, 0], tree)


def nuts(log_density, starts, numbers, *, draws, warmup=600, burn=0, diagonal=True, seed=0):
    """(chain, draw, number): `numbers(x)` at draws of NUTS, step and mass matrix from a window adaptation of the first chain,
    the first `burn` draws of the others left out; and leapfrog steps a draw, and how many diverged."""
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, log_density, is_mass_matrix_diagonal=diagonal, target_acceptance_rate=0.9
    )
    key_warm, key_run = jr.split(jr.key(seed))
    (_, tuned), _ = jax.jit(lambda key, x: adaptation.run(key, x, num_steps=warmup))(key_warm, starts[0])
    kernel = blackjax.nuts(log_density, **tuned)

    def one_chain(key, start):
        def one(state, key):
            state, info = kernel.step(key, state)
            return state, (numbers(state.position), info.num_integration_steps, info.is_divergent)

        return jax.lax.scan(one, kernel.init(start), jr.split(key, burn + draws))[1]

    found, steps, diverged = jax.jit(jax.vmap(one_chain))(jr.split(key_run, len(starts)), starts)
    return np.asarray(found, np.float64)[:, burn:], float(np.mean(steps)), int(np.sum(diverged))


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
