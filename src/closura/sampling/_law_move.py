"""Moves of sampled laws: a law, its size and everything that follows it, at once.

    b = W^-1 a,   z = M^-1 ((b - mean(s)) sqrt(precision(s)) - shift)        about standard normal under the posterior
    z' = sqrt(1 - eta^2) z + eta xi,    log s^2' = log s^2 + step xi_0
    theta_k' = theta_k + T_k (a' - a)                                        the shear: its Jacobian is one
    e^(n theta_k') = e^(n theta_k) + n e^(n c_k) T_k (a' - a),   n = 1, -1   of some logarithms: e^(n (theta_k - theta_k'))
    mu' - mean theta' = mu - mean theta,    tau' / sd theta' = tau / sd theta

W makes the Gauss-Newton posterior of a (theta and mu eliminated) diagonal for every size s; xi is Student's t, scaled as
given z, where data speak, and normal where they do not: there the move draws independently from the prior. Where data know
the sum of a law and a positive parameter (n = 1), or their product (n = -1), a logarithm follows the law along a curve, on
which a straight shear would not get far. One test for all systems accepts or rejects.

Beside it a random walk along ridges: the few directions, if any, in which data know the law only because nothing else is
let follow it. There a posterior is long and bent, and steps that fit all the other directions are short.

All constants are frozen once draws are kept, so that the posterior is invariant.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._compile import jit_soon
from ..laws import Frame, SmoothLaw
from ..population import NUMBERS, Population, normal, slice_draw, uniforms
from ._accept import Randomness, decide
from ._gauss_newton import coordinates, eliminate, information, picked, precisions
from ._kernel import Kernel, Tuning
from ._posterior import JointTarget, Posterior, Target
from ._state import Chains, GroupKeys, Info, choose_fields, split_keys

DEGREES = 8  # of freedom of the proposal
TARGET = 0.35
LARGE = 0.95  # judged at this quantile of the law's size
FREE = 0.98  # a direction of which the prior holds so much is drawn from it
ALONE = 0.1  # unless so much of it, in units of its precision, were known if nothing followed
DRAWS_FOR_ONE, SHRINK = 4.0, 30.0  # dependent draws that count as one; how many of those the identity counts for
NARROWED = 0.7
FARTHEST = 1e6  # variance of draws against that of the Gauss-Newton posterior; chains that are lost have any
POWERS, TINY = (0.0, 1.0, -1.0), 1e-9
RIDGES, MUCH = 4, 5.0  # how many are walked along; what is lost there, in units of the precision that is left
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
    others: Float[Array, "group other r"] | None  # where there are other laws
    power: Float[Array, "group parameter"]  # n: of which exponential of theta the shear is straight; 0 for theta itself
    at: Float[Array, "group system parameter"]  # c: where shears of exp(n theta) are as those of theta
    ridges: Float[Array, "group ridge r"]  # directions in which much follows, as long as draws are wide
    ridge: Bool[Array, "group ridge"]  # which of them do
    log_reach: Float[Array, " group"]
    log_stride: Float[Array, " group"]  # along ridges
    acceptance: Float[Array, " group"]  # lately

    def standard(self, log_size: Float[Array, "group chain"]) -> tuple[Array, Array]:
        """Precision and mean of b under the Gauss-Newton posterior, given log s^2."""
        ratio = jnp.exp(self.size[:, None] - log_size)[..., None]
        precision = (1 - self.share)[:, None] + self.share[:, None] * ratio
        return precision, self.pull[:, None] / precision


def _times(matrix: Float[Array, "group i j"], x: Float[Array, "group chain j"]) -> Array:
    return jnp.einsum("gij,gcj->gci", matrix, x)


class LawMove(Kernel):
    """Moves the law `law`, its size, and theta, the population and other laws with it; `logs` says which parameters are
    logarithms."""

    law: str = eqx.field(static=True)
    size_step: float = eqx.field(static=True, default=1.0)
    logs: tuple[bool, ...] = eqx.field(static=True, default=())

    moves = ("law", "theta", "phi")
    learning = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"law {self.law}"

    def init(self, chains: Chains) -> LawTuning:
        groups, _, systems, parameters = chains.theta.shape
        weights = coordinates(chains.law)
        r = weights[self.law].shape[-1]
        rest = sum(w.shape[-1] for name, w in weights.items() if name != self.law)
        eye = jnp.broadcast_to(jnp.eye(r), (groups, r, r))
        zero, none = jnp.zeros((groups, r)), jnp.zeros(groups)
        theta = jnp.zeros((groups, systems, parameters, r))
        others = jnp.zeros((groups, rest, r)) if rest else None
        power, at = jnp.zeros((groups, parameters)), jnp.zeros((groups, systems, parameters))
        free, ridges = jnp.zeros((groups, r), bool), jnp.zeros((groups, min(RIDGES, r), r))
        follows = (theta, others, power, at, ridges, jnp.zeros(ridges.shape[:2], bool))
        return LawTuning(eye, eye, zero, none, zero, free, zero, eye, eye, *follows, none, none, none)

    def step(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> tuple[Chains, Info]:
        assert isinstance(posterior, JointTarget), "a law moves under a joint density"
        everywhere, along = split_keys(keys, 2)
        chains, info = self._everywhere(everywhere, chains, tuning, posterior)

        def walk(chains: Chains) -> tuple[Chains, Info]:
            return self._along_ridges(along, chains, tuning, posterior)

        # Where no group has a ridge there is nothing to compute.
        chains, other = lax.cond(jnp.any(tuning.ridge), walk, lambda chains: (chains, info), chains)
        return chains, jax.tree.map(lambda *both: jnp.concatenate(both, axis=2), info, other)

    def _along_ridges(
        self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: JointTarget
    ) -> tuple[Chains, Info]:
        """A random walk along one of the directions in which much follows."""
        law = chains.law[self.law]
        count = law.weights.shape[1]
        xi, which, short, *tests = jax.vmap(lambda key: uniforms(key, *[(count,)] * 5))(keys)
        there = jnp.sum(tuning.ridge, axis=1)
        chosen = jnp.minimum((which * there[:, None]).astype(int), jnp.maximum(there - 1, 0)[:, None])
        step = _factor(short) * jnp.exp(tuning.log_stride)[:, None] * normal(xi)
        change = step[..., None] * jnp.take_along_axis(tuning.ridges, chosen[..., None], axis=1)
        moved, log_volume = sheared(chains, tuning, self.law, change, posterior.population)
        proposed = posterior.refresh(moved)
        log_ratio = _log_density(posterior, proposed) - _log_density(posterior, chains) + log_volume
        return self._decided(tests, xi, chains, proposed, log_ratio, posterior)

    def _decided(
        self,
        tests: list[Array],
        proposal: Array,
        chains: Chains,
        proposed: Chains,
        log_ratio: Float[Array, "group chain"],
        posterior: JointTarget,
    ) -> tuple[Chains, Info]:
        """One test for all systems."""
        finite = jnp.all(jnp.isfinite(posterior.loglik(proposed)), axis=-1)[..., None]
        random = Randomness(proposal, *(jnp.log(test)[..., None] for test in tests))
        accept, info = decide(random, posterior, chains, proposed, log_ratio[..., None], finite, _sum)
        return choose_fields(accept[..., 0], proposed, chains, ("theta", "phi", "law", "cache")), info

    def _everywhere(
        self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: JointTarget
    ) -> tuple[Chains, Info]:
        """All coordinates and the size at once."""
        law = chains.law[self.law]
        a, log_size = law.weights, law.log_size
        shape, r = a.shape[:2], a.shape[2]

        def one_group(key: PRNGKeyArray) -> list[Array]:
            count = shape[1]
            one = (count,)
            return uniforms(key, (count, r), (count, r + DEGREES), one, one, one, one)

        xi, chi, xi_size, short, *tests = jax.vmap(one_group)(keys)
        precision, mean = tuning.standard(log_size)
        away = (_times(tuning.whiten, a) - mean) * jnp.sqrt(precision) - tuning.shift[:, None]
        z = _times(tuning.unstretch, away)
        # Most steps are long; the others are short in everything, their sizes even on a log scale.
        factor = _factor(short)
        new_size = log_size + factor * self.size_step * normal(xi_size)
        free, speaking = tuning.free[:, None], ~tuning.free[:, None]
        # Where steps must be short, what data hardly know is not redrawn whole either.
        eta = factor[..., None] * jnp.exp(jnp.where(free, 0.5, 1.0) * tuning.log_reach[:, None, None])
        ones = jnp.ones((*speaking.shape[:2], DEGREES), bool)
        chi_square = jnp.sum(jnp.concatenate([ones, speaking], axis=-1) * normal(chi) ** 2, axis=-1)
        spread = jnp.sqrt((DEGREES + _square(z, speaking)) / chi_square)[..., None]
        new_z = jnp.sqrt(1 - eta**2) * z + eta * jnp.where(free, 1.0, spread) * normal(xi)
        new_precision, new_mean = tuning.standard(new_size)
        away = _times(tuning.stretch, new_z) + tuning.shift[:, None]
        new_a = _times(tuning.color, new_mean + away / jnp.sqrt(new_precision))
        moved, curved = sheared(chains, tuning, self.law, new_a - a, posterior.population)
        moved = moved._replace(law=moved.law | {self.law: moved.law[self.law].with_size(new_size)})
        proposed = posterior.refresh(moved)
        before, after = (_log_density(posterior, state) for state in (chains, proposed))
        # What pCN leaves invariant in z, and the volume da / dz.
        log_ratio = after - before + _log_student(z, free) - _log_student(new_z, free)
        log_ratio += _log_volume(new_precision) - _log_volume(precision) + curved
        return self._decided(tests, xi, chains, proposed, log_ratio, posterior)

    def adapt(self, tuning: LawTuning, info: Info, rate: Array | float) -> LawTuning:
        accepted, along = jnp.moveaxis(jnp.mean(info.acceptance, axis=1), -1, 0)
        reach = jnp.clip(tuning.log_reach + rate * (accepted - TARGET), -6.0, 0.0)
        # Where nobody walked, there is nothing to learn from.
        walked = jnp.any(tuning.ridge, axis=1)
        step = jnp.clip(tuning.log_stride + jnp.where(walked, rate * (along - TARGET), 0.0), -6.0, 3.0)
        lately = tuning.acceptance + MEMORY * (accepted - tuning.acceptance)
        return tuning._replace(log_reach=reach, log_stride=step, acceptance=lately)

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
            straight = np.einsum("spr,dr->dsp", left.theta, a - a[picked(len(a))].mean(axis=0))
            curve = _curved(np.asarray(draws.theta[group], float), straight, self.logs)
            alone = np.asarray(told.law[group], float)[np.ix_(moved, moved)]
            white = _whitened(left.law, alone, score, a, sizes[self.law], frame)
            ridges = _ridges(white[1], alone - left.law, a)
            parts.append((*white, left.theta, left.others, *curve, *ridges))
        made = [jnp.asarray(np.stack(x), bool if x[0].dtype == bool else float) for x in zip(*parts)]
        return LawTuning._make([*(x if x.size else None for x in made), *tuning[-3:]])

    def dispersed(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> Chains:
        """Every chain with a law of its own from the Gauss-Newton posterior, somewhat narrowed; all else follows. The cache is
        that of where chains were."""
        return jit_soon(_dispersed)(self.law, keys, chains, tuning, posterior.population)


def _dispersed(name: str, keys: GroupKeys, chains: Chains, tuning: LawTuning, population: Population) -> Chains:
    law = chains.law[name]
    (uniform,) = jax.vmap(lambda key: uniforms(key, law.weights.shape[1:]))(keys)
    away = NARROWED * normal(uniform) / jnp.sqrt(tuning.standard(law.log_size)[0])
    return sheared(chains, tuning, name, _times(tuning.color, away), population)[0]


def _curved(theta: np.ndarray, straight: np.ndarray, logs: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The power of every parameter of one group, and the places that go with it: the one with which draws `theta` (draw,
    system, parameter) are nearest to where the law has them, which would be `straight` away on a straight line."""
    some, count = theta[picked(len(theta))], theta.shape[-1]
    # Where information that is averaged over some draws has the gradient of exp(n theta), if that is the same at all.
    places = [some.mean(axis=0)]
    missed = [np.log(np.var(theta - straight, axis=0) + TINY).sum(axis=0)]
    for power in POWERS[1:]:
        weight = np.exp(some * (1 + power) / 2)
        places.append(np.log(np.sum(weight * np.exp(some), axis=0) / np.sum(weight, axis=0)))
        curve = np.log(np.maximum(1 + power * straight, TINY)) / power
        missed.append(np.log(np.var(theta - curve, axis=0) + TINY).sum(axis=0))
    allowed = np.array(logs, bool) & np.all(np.isfinite(places[1]) & np.isfinite(places[2]), axis=0)
    best = np.where(allowed, np.argmin(np.nan_to_num(missed, nan=np.inf), axis=0), 0)
    return np.array(POWERS)[best], np.stack(places)[best, :, np.arange(count)].T


def _whitened(
    information: np.ndarray, alone: np.ndarray, score: np.ndarray, a: np.ndarray, sizes: np.ndarray, frame: Frame
) -> tuple[np.ndarray, ...]:
    """Constants of one group, up to the shears, from draws `a` (draw, coordinate) and their log sizes; `alone` is the
    information where nothing follows."""
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
    free = held > FREE * (held + 1 - share)
    # Of these, data know some if nothing follows: they are no longer free where all else follows less well than it should.
    known, turn = np.linalg.eigh(color[:, free].T @ alone @ color[:, free])
    color[:, free], share[free] = color[:, free] @ turn, np.sum(turn**2 * share[free][:, None], axis=0)
    free[free] = known < ALONE
    whiten = np.linalg.inv(color)
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


def _ridges(color: np.ndarray, eliminated: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Directions of one group in which data would know the law much better if nothing followed, the first ones first, and
    whether that is so: `eliminated` is the information that is lost as all else follows."""
    lost, turn = np.linalg.eigh(color.T @ eliminated @ color)
    most = np.argsort(-lost)[:RIDGES]
    wide = np.std(np.linalg.solve(color @ turn, a.T)[most], axis=1)
    return (color @ turn[:, most]).T * np.maximum(wide, 1.0)[:, None], lost[most] > MUCH


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
) -> tuple[Chains, Float[Array, "group chain"]]:
    """The chains with a law changed, theta, the population and other laws following, and the log of the Jacobian: NaN where there
    is nowhere to go. Sizes stay, and the cache is that of where chains were."""
    changes, place = {law: change}, 0
    for name, weights in coordinates(chains.law).items():
        if name != law and tuning.others is not None:
            changes[name] = _times(tuning.others[:, place : place + weights.shape[-1]], change)
            place += weights.shape[-1]
    power = tuning.power[:, None, None]
    shift = _along(_shear(tuning.theta, change), chains.theta - tuning.at[:, None], power)
    # What systems share moves once.
    shared = np.array(population.shared or (False,) * shift.shape[-1])
    each = jnp.where(shared, shift[:, :, 0], jnp.sum(shift, axis=2))
    log_volume = -jnp.sum(tuning.power[:, None] * each, axis=-1)
    moved = moved_along(chains, changes, shift, None, population)
    return moved._replace(phi=population.followed(chains.phi, chains.theta, moved.theta)), log_volume


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


def _factor(uniform: Array) -> Array:
    """Of the length of a step: most are long, some short, their sizes even on a log scale."""
    return jnp.exp(-SHORTEST * jnp.maximum(uniform - (1 - SHORT), 0.0) / SHORT)


def _log_volume(precision: Float[Array, "group chain r"]) -> Float[Array, "group chain"]:
    """Of da / dz, up to a constant."""
    return -0.5 * jnp.sum(jnp.log(precision), axis=-1)


def _log_student(z: Array, free: Array) -> Array:
    speaking = jnp.sum(~free, axis=-1)
    tails = -0.5 * (DEGREES + speaking) * jnp.log1p(_square(z, ~free) / DEGREES)
    return tails - 0.5 * _square(z, free)


def _sum(value: Array) -> Array:
    return jnp.sum(value, axis=-1, keepdims=True)
