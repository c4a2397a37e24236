"""Moves of sampled laws: a law, its size and everything that follows it, at once.

    b = W^-1 a,   z = M^-1 ((b - mean(s)) sqrt(precision(s)) - shift)        about standard normal under the posterior
    z' = sqrt(1 - eta^2) z + eta xi,    log s^2' = log s^2 + step xi_0
    theta_k' = theta_k + T_k (a' - a),   mu' = mu + T_mu (a' - a)            the shear: its Jacobian is one
    e^(n theta_k') = e^(n theta_k) + n e^(n c_k) T_k (a' - a),   n = 1, -1   as often, of logarithms: e^(n (theta_k - theta_k'))

W makes the Gauss-Newton posterior of a (theta and mu eliminated) diagonal for every size s; xi is Student's t, scaled as
given z, where data speak, and normal where they do not: there the move draws independently from the prior. Where data know
the sum of a law and a positive parameter (n = 1), or their product (n = -1), a logarithm follows the law along a curve, on
which a straight shear would not get far. One test for all systems accepts or rejects. All constants are frozen once draws are kept, so that the posterior is invariant.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._compile import jit_soon
from ..laws import Frame, SmoothLaw
from ..population import NUMBERS, Population, normal, slice_draw, uniforms
from ._accept import Randomness, decide
from ._gauss_newton import coordinates, eliminate, information, precisions
from ._kernel import Kernel, Tuning
from ._posterior import JointTarget, Posterior, Target
from ._state import Chains, GroupKeys, Info, choose_fields

DEGREES = 8  # of freedom of the proposal
TARGET = 0.35
LARGE = 0.95  # judged at this quantile of the law's size
FREE = 0.98  # a direction of which the prior holds so much is drawn from it
DRAWS_FOR_ONE, SHRINK = 4.0, 30.0  # dependent draws that count as one; how many of those the identity counts for
NARROWED = 0.7
FARTHEST = 1e6  # variance of draws against that of the Gauss-Newton posterior; chains that are lost have any
MEMORY = 0.02  # of the acceptance
WIDTH = 8.0  # of the slice of log s^2
SHORT, SHORTEST = 0.25, 4.0  # so many proposals are short, by factors down to exp(-4): they lead out of tails


class LawTuning(NamedTuple):
    """Constants of the move, of every group; r coordinates are moved."""

    whiten: Float[Array, "group r r"]  # b from a
    color: Float[Array, "group r r"]  # a from b
    share: Float[Array, "group r"]  # q: what the prior's flexible part holds of the precision of b, at `size`
    size: Float[Array, " group"]
    pull: Float[Array, "group r"]  # the precision of b times its mean
    free: Bool[Array, "group r"]
    shift: Float[Array, "group r"]
    stretch: Float[Array, "group r r"]
    unstretch: Float[Array, "group r r"]
    theta: Float[Array, "group system parameter r"]
    mean: Float[Array, "group own r"] | None  # where there is a population
    others: Float[Array, "group other r"] | None  # where there are other laws
    log_reach: Float[Array, " group"]
    acceptance: Float[Array, " group"]  # lately
    theta_at: Float[Array, "group system parameter"] | None = (
        None  # c: where shears of exp(theta) are as those of theta
    )
    mean_at: Float[Array, "group own"] | None = None

    def standard(self, log_size: Float[Array, "group chain"]) -> tuple[Array, Array]:
        """Precision and mean of b under the Gauss-Newton posterior, given log s^2."""
        ratio = jnp.exp(self.size[:, None] - log_size)[..., None]
        precision = (1 - self.share)[:, None] + self.share[:, None] * ratio
        return precision, self.pull[:, None] / precision


def _times(matrix: Float[Array, "group i j"], x: Float[Array, "group chain j"]) -> Array:
    return jnp.einsum("gij,gcj->gci", matrix, x)


class LawMove(Kernel):
    """Moves the law `law`, its size, and theta, the population's mean (of `means` numbers) and other laws with it."""

    law: str = eqx.field(static=True)
    means: int = eqx.field(static=True, default=0)
    size_step: float = eqx.field(static=True, default=1.0)
    logs: tuple[bool, ...] | None = eqx.field(static=True, default=None)  # which parameters are logarithms

    moves = ("law", "theta", "phi")
    learning = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"law {self.law}"

    def init(self, chains: Chains) -> LawTuning:
        groups, _, systems, parameters = chains.theta.shape
        weights = coordinates(chains.law)
        r = weights[self.law].shape[-1]
        others = sum(w.shape[-1] for name, w in weights.items() if name != self.law)
        own = self.means
        eye = jnp.broadcast_to(jnp.eye(r), (groups, r, r))
        zero = jnp.zeros((groups, r))
        theta = jnp.zeros((groups, systems, parameters, r))
        mean, other = (jnp.zeros((groups, count, r)) if count else None for count in (own, others))
        none, free = jnp.zeros(groups), jnp.zeros((groups, r), bool)
        made = LawTuning(eye, eye, zero, none, zero, free, zero, eye, eye, theta, mean, other, none, none)
        return self._placed(made, chains)

    def _placed(self, tuning: LawTuning, draws: Chains) -> LawTuning:
        """With the middle of draws, of theta and of the population's mean."""
        if self.logs is None:
            return tuning
        mean = jnp.mean(draws.phi.mu, axis=1) if self.means else None
        return tuning._replace(theta_at=jnp.mean(draws.theta, axis=1), mean_at=mean)

    def step(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> tuple[Chains, Info]:
        assert isinstance(posterior, JointTarget), "a law moves under a joint density"
        law = chains.law[self.law]
        a, log_size = law.weights, law.log_size
        shape, r = a.shape[:2], a.shape[2]

        def one_group(key: PRNGKeyArray) -> list[Array]:
            count = shape[1]
            one = (count,)
            return uniforms(key, (count, r), (count, r + DEGREES), one, one, (count, chains.theta.shape[-1]), one, one)

        xi, chi, xi_size, short, which, *tests = jax.vmap(one_group)(keys)
        precision, mean = tuning.standard(log_size)
        away = (_times(tuning.whiten, a) - mean) * jnp.sqrt(precision) - tuning.shift[:, None]
        z = _times(tuning.unstretch, away)
        # Most steps are long; the others are short in everything, their sizes even on a log scale.
        factor = jnp.exp(-SHORTEST * jnp.maximum(short - (1 - SHORT), 0.0) / SHORT)
        new_size = log_size + factor * self.size_step * normal(xi_size)
        free, speaking = tuning.free[:, None], ~tuning.free[:, None]
        eta = factor[..., None] * jnp.where(free, 1.0, jnp.exp(tuning.log_reach)[:, None, None])
        ones = jnp.ones((*speaking.shape[:2], DEGREES), bool)
        chi_square = jnp.sum(jnp.concatenate([ones, speaking], axis=-1) * normal(chi) ** 2, axis=-1)
        spread = jnp.sqrt((DEGREES + _square(z, speaking)) / chi_square)[..., None]
        new_z = jnp.sqrt(1 - eta**2) * z + eta * jnp.where(free, 1.0, spread) * normal(xi)
        new_precision, new_mean = tuning.standard(new_size)
        away = _times(tuning.stretch, new_z) + tuning.shift[:, None]
        new_a = _times(tuning.color, new_mean + away / jnp.sqrt(new_precision))
        moved, curved = self._sheared(chains, tuning, new_a - a, posterior.population, which)
        moved = moved._replace(law=moved.law | {self.law: moved.law[self.law].with_size(new_size)})
        proposed = posterior.refresh(moved)
        before, after = (_log_density(posterior, state) for state in (chains, proposed))
        # What pCN leaves invariant in z, and the volume da / dz.
        log_ratio = after - before + _log_student(z, free) - _log_student(new_z, free)
        log_ratio += _log_volume(new_precision) - _log_volume(precision) + curved
        finite = jnp.all(jnp.isfinite(posterior.loglik(proposed)), axis=-1)[..., None]
        random = Randomness(xi, *(jnp.log(test)[..., None] for test in tests))
        accept, info = decide(random, posterior, chains, proposed, log_ratio[..., None], finite, _sum)
        return choose_fields(accept[..., 0], proposed, chains, ("theta", "phi", "law", "cache")), info

    def _sheared(
        self,
        chains: Chains,
        tuning: LawTuning,
        change: Array,
        population: Population,
        which: Float[Array, "group chain p"],
    ) -> tuple[Chains, Float[Array, "group chain"]]:
        """The chains with the law changed and all else following, logarithms along the curves that uniform numbers choose; and
        the log of the Jacobian, minus infinity where there is nowhere to go."""
        if self.logs is None or tuning.theta_at is None:
            return sheared(chains, tuning, self.law, change, population), jnp.zeros(which.shape[:2])
        held = np.array(population.shared or (False,) * len(self.logs))
        power = jnp.where(np.array(self.logs), jnp.floor(3 * which) - 1, 0.0)
        shift, mean, changes = _following(chains, tuning, self.law, change)
        shift = _along(shift, chains.theta - tuning.theta_at[:, None], power[:, :, None])
        # What systems share moves once.
        each = jnp.where(held, shift[:, :, 0], jnp.sum(shift, axis=2))
        if mean is not None and tuning.mean_at is not None:
            own = np.flatnonzero(~held)
            mean = _along(mean, chains.phi.mu - tuning.mean_at[:, None], power[..., own])
            each = each.at[..., own].add(mean)
        volume = -jnp.sum(jnp.where(power == 0, 0.0, power * each), axis=-1)
        return moved_along(chains, changes, shift, mean, population), jnp.where(jnp.isnan(volume), -jnp.inf, volume)

    def adapt(self, tuning: LawTuning, info: Info, rate: Array | float) -> LawTuning:
        accepted = jnp.mean(info.acceptance, axis=(1, 2))
        reach = jnp.clip(tuning.log_reach + rate * (accepted - TARGET), -6.0, 0.0)
        lately = tuning.acceptance + MEMORY * (accepted - tuning.acceptance)
        return tuning._replace(log_reach=reach, acceptance=lately)

    def tune(self, tuning: LawTuning, draws: Chains, posterior: Target) -> LawTuning:
        """Take the constants from the Gauss-Newton information at some draws; center and covariance from all of them."""
        assert isinstance(posterior, Posterior), "information is asked of a likelihood"
        told, prior = information(posterior, draws), precisions(posterior.population, draws)
        weights = coordinates(draws.law)
        moved = np.concatenate([np.full(w.shape[-1], name == self.law) for name, w in weights.items()])
        frames = {name: posterior.ranges[name] for name in weights}
        parts = []
        for group, precision in enumerate(prior):
            sizes = {name: np.asarray(draws.law[name].log_size[group], float) for name in weights}
            rest = np.concatenate([frames[n].rigid + frames[n].flexible * np.exp(-sizes[n].mean()) for n in weights])
            left = eliminate(told.of(group), precision, moved, np.asarray(rest, float))
            a = np.asarray(weights[self.law][group], float)
            frame = jax.tree.map(lambda x: np.asarray(x, float), frames[self.law])
            score = np.asarray(told.score[group], float)[moved]
            parts.append((*_whitened(left.law, score, a, sizes[self.law], frame), *left[1:]))
        made = [jnp.asarray(np.stack(x), bool if x[0].dtype == bool else float) for x in zip(*parts)]
        found = [*(x if x.size else None for x in made), tuning.log_reach, tuning.acceptance, None, None]
        return self._placed(LawTuning._make(found), draws)

    def dispersed(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> Chains:
        """Every chain with a law of its own from the Gauss-Newton posterior, somewhat narrowed; all else follows. The cache is
        that of where chains were."""
        return jit_soon(_dispersed)(self.law, keys, chains, tuning, posterior.population)


def _dispersed(name: str, keys: GroupKeys, chains: Chains, tuning: LawTuning, population: Population) -> Chains:
    law = chains.law[name]
    (uniform,) = jax.vmap(lambda key: uniforms(key, law.weights.shape[1:]))(keys)
    away = NARROWED * normal(uniform) / jnp.sqrt(tuning.standard(law.log_size)[0])
    return sheared(chains, tuning, name, _times(tuning.color, away), population)


def _whitened(
    information: np.ndarray, score: np.ndarray, a: np.ndarray, sizes: np.ndarray, frame: Frame
) -> tuple[np.ndarray, ...]:
    """Constants of one group, up to the shears, from draws `a` (draw, coordinate) and their log sizes."""
    size, count = np.asarray(sizes.mean()), a.shape[1]
    flexible = frame.flexible * np.exp(-size)
    wide = 1 / np.sqrt(frame.rigid + flexible)
    # In units of the prior, where information may be as large as it likes: of rounding, nothing is left below zero.
    value, vector = np.linalg.eigh(wide[:, None] * information * wide)
    value = np.maximum(value, 0.0)
    root = wide[:, None] * vector / np.sqrt(1 + value)  # root root' is the covariance
    information = (vector / wide[:, None] * value) @ (vector / wide[:, None]).T
    share, turn = np.linalg.eigh((root.T * flexible) @ root)
    color, share = root @ turn, np.clip(share, 0.0, 1.0)
    # Free is what the prior holds also where the law is large.
    held = share * np.exp(size - np.quantile(sizes, LARGE))
    whiten, free = np.linalg.inv(color), held > FREE * (held + 1 - share)
    shift, stretch = np.zeros(count), np.eye(count)
    pull = color.T @ (score + information @ a.mean(axis=0) - frame.pull_rigid - frame.pull_flexible * np.exp(-size))
    if a.std(axis=0).max() > 0:  # chains have laws of their own already
        precision = (1 - share) + share * np.exp(size - sizes)[:, None]
        b = a @ whiten.T
        pull = b.sum(axis=0) / np.sum(1 / precision, axis=0)  # the likeliest, b having mean pull / precision
        z = ((b - pull / precision) * np.sqrt(precision))[:, ~free]
        worth = len(z) / DRAWS_FOR_ONE
        covariance = (worth * np.cov(z.T) + SHRINK * np.eye(z.shape[1])) / (worth + SHRINK)
        shift[~free] = z.mean(axis=0)
        value, vector = np.linalg.eigh(covariance)
        stretch[np.ix_(~free, ~free)] = vector * np.sqrt(np.clip(value, 1 / FARTHEST, FARTHEST))
    return whiten, color, share, size, pull, free, shift, stretch, np.linalg.inv(stretch)


class LawSize(Kernel):
    """Draws the size of every law given its coordinates: log s^2 | a, by slice sampling."""

    name = "law size"
    moves = ("law",)
    learning = False

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        assert isinstance(posterior, JointTarget), "the size of a law has a prior there"
        count, names = chains.theta.shape[1], list(coordinates(chains.law))
        (uniform,) = jax.vmap(lambda key: uniforms(key, (len(names), count, NUMBERS)))(keys)
        drawn = {}
        for number, name in enumerate(names):
            frame = posterior.ranges[name]

            def draw(uniform: Array, law: SmoothLaw, frame: Frame = frame) -> SmoothLaw:
                def log_density(log_size: Array) -> Array:
                    return law.with_size(log_size).log_prior(frame, None)

                return law.with_size(slice_draw(uniform, law.log_size, log_density, WIDTH))

            drawn[name] = jax.vmap(jax.vmap(draw))(uniform[:, number], chains.law[name])
        return chains._replace(law=chains.law | drawn), None


def sheared(
    chains: Chains, tuning: LawTuning, law: str, change: Float[Array, "group chain r"], population: Population
) -> Chains:
    """The chains with a law changed, theta, the population's mean and other laws following; sizes stay, and the cache is that of
    where chains were."""
    theta, mean, changes = _following(chains, tuning, law, change)
    return moved_along(chains, changes, theta, mean, population)


def _following(
    chains: Chains, tuning: LawTuning, law: str, change: Float[Array, "group chain r"]
) -> tuple[Array, Array | None, dict[str, Array]]:
    """How theta, the population's mean and all laws change with one law, straight."""
    changes, place = {law: change}, 0
    for name, weights in coordinates(chains.law).items():
        if name != law and tuning.others is not None:
            changes[name] = _times(tuning.others[:, place : place + weights.shape[-1]], change)
            place += weights.shape[-1]
    mean = None if tuning.mean is None else _times(tuning.mean, change)
    return _shear(tuning.theta, change), mean, changes


def _along(straight: Array, away: Array, power: Array) -> Array:
    """The change of x when e^(power x) changes by so much as it would for a small one where x is `away` less; NaN where that is too
    much."""
    some = jnp.where(power == 0, 1.0, power)
    return jnp.where(power == 0, straight, jnp.log1p(some * jnp.exp(-some * away) * straight) / some)


def moved_along(
    chains: Chains, changes: dict[str, Array], theta: Array, mean: Array | None, population: Population
) -> Chains:
    """The chains with laws, theta and the population's mean changed by so much."""
    theta = chains.theta + theta
    if population.shared is not None:  # the same in all systems to the last digit
        theta = jnp.where(np.array(population.shared), theta[..., :1, :], theta)
    phi = chains.phi if mean is None else population.with_mean_moved(chains.phi, mean)
    laws = {name: law.with_weights(law.weights + changes[name]) for name, law in chains.law.items() if name in changes}
    return chains._replace(theta=theta, phi=phi, law=chains.law | laws)


def _shear(theta: Float[Array, "group system parameter r"], change: Float[Array, "group chain r"]) -> Array:
    return jnp.einsum("gspr,gcr->gcsp", theta, change)


def _log_density(posterior: JointTarget, chains: Chains) -> Float[Array, "group chain"]:
    loglik = posterior.temperature * posterior.loglik(chains)
    return posterior.log_joint(chains, loglik)


def _square(z: Array, which: Array) -> Array:
    return jnp.sum(jnp.where(which, z**2, 0.0), axis=-1)


def _log_volume(precision: Float[Array, "group chain r"]) -> Float[Array, "group chain"]:
    """Of da / dz, up to a constant."""
    return -0.5 * jnp.sum(jnp.log(precision), axis=-1)


def _log_student(z: Array, free: Array) -> Array:
    speaking = jnp.sum(~free, axis=-1)
    tails = -0.5 * (DEGREES + speaking) * jnp.log1p(_square(z, ~free) / DEGREES)
    return tails - 0.5 * _square(z, free)


def _sum(value: Array) -> Array:
    return jnp.sum(value, axis=-1, keepdims=True)
