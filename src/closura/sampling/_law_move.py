"""Moves of sampled laws: a law, its sizes and everything that follows it, at once.

    z = W(s)^-1 a                                                            its Gauss-Newton posterior has unit precision
    z' = z + (1 - rho) g(z) + sqrt(1 - rho^2) xi                             a step along the gradient, the sizes s held
    log s^2' ~ Student's t about its draws,    t = U^T a follows,    a' | t', s'   or other sizes, and all that depends on them
    theta_k' = theta_k + T_k (a' - a)                                        the shear: its Jacobian is one
    e^(n theta_k') = e^(n theta_k) + n e^(n c_k) T_k (a' - a),   n = 1, -1   of some logarithms: e^(n (theta_k - theta_k'))
    mu' - mean theta' = mu - mean theta,    tau' / sd theta' = tau / sd theta

g is nearly the gradient of the log posterior along the move: the scores of the observations at hand, times sensitivities that
are constants, so that it costs no solve; were predictions linear, g(z) = -z about the mean and any rho would do. U are the
directions in which data speak: given t, a is normal before data and after, and drawn with other sizes (see `_law_size`). Where data know the sum of a law and a positive parameter (n = 1), or their product
(n = -1), a logarithm follows the law along a curve, on which a straight shear would not get far. One test for all systems
accepts or rejects.

Or a random walk along ridges: the few directions, if any, in which data know the law only because nothing else is
let follow it. There a posterior is long and bent, and steps that fit all the other directions are short.

All constants are frozen once draws are kept, so that the posterior is invariant.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._compile import jit_soon
from ..population import Population, normal, uniforms
from ._accept import Randomness, decide
from ._gauss_newton import (
    Curves,
    Elimination,
    Information,
    Precisions,
    coordinates,
    eliminate,
    information,
    picked,
    precisions,
)
from ._kernel import Kernel
from ._law_constants import RIDGES, TINY, curved, ridges, whitened
from ._law_size import Known, informed_count, redrawn
from ._posterior import JointTarget, Posterior, Target
from ._preconditioner import solve_lower
from ._state import Chains, GroupKeys, Info, choose_fields
from ._student import mostly_long, student_numbers, student_step

TARGET = 0.5  # acceptance of steps, short ones among them
ALONG = 0.35  # of a walk along ridges
FARTHEST_PULL = 3.0  # of a gradient, in units of its size under the posterior
NARROWED = 0.7
CONFINED = 0.5  # a reach: where steps are longer, ridges need no walk
MEMORY = 0.02  # of the acceptance
REDRAWN = 0.4  # so many proposals change sizes
WALKED = 0.2  # so many walk along ridges, where there are any


class LawTuning(NamedTuple):
    """Constants of the move, of every group; r coordinates are moved."""

    color: Float[Array, "group r r"]  # W at `size`
    share: Float[Array, "group size r"]  # what the prior's flexible parts hold of the precision there
    size: Float[Array, "group size"]
    size_lower: Float[Array, "group size size"]  # L L^T is about the covariance of sizes
    known: Known
    by_law: Float[Array, "group system observation r"]  # sensitivities, other laws following
    by_theta: Float[Array, "group system observation parameter"]
    theta: Float[Array, "group system parameter r"]
    others: Float[Array, "group other r"] | None  # where there are other laws
    power: Float[Array, "group parameter"]  # n: of which exponential of theta the shear is straight; 0 for theta itself
    at: Float[Array, "group system parameter"]  # c: where shears of exp(n theta) are as those of theta
    ridges: Float[Array, "group ridge r"]  # directions in which much follows, as long as draws are wide
    ridge: Bool[Array, "group ridge"]  # which of them do
    log_reach: Float[Array, " group"]
    log_stride: Float[Array, " group"]  # along ridges
    acceptance: Float[Array, " group"]  # lately

    def spread(self, log_size: Float[Array, "group chain size"]) -> Float[Array, "group chain r"]:
        """By how much columns of W are longer than at `size`: exactly so of the last size, nearly of others."""
        change = jnp.expm1(self.size[:, None] - log_size)
        return 1 / jnp.sqrt(1 + jnp.einsum("gcs,gsr->gcr", change, self.share))


def _times(matrix: Float[Array, "group i j"], x: Float[Array, "group chain j"]) -> Array:
    return jnp.einsum("gij,gcj->gci", matrix, x)


class LawMove(Kernel):
    """Moves the law `law`, its size, and theta, the population and other laws with it; `logs` says which parameters are
    logarithms."""

    law: str = eqx.field(static=True)
    logs: tuple[bool, ...] = eqx.field(static=True, default=())
    observations: int = eqx.field(static=True, default=0)

    scores = True
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
        none, sizes = jnp.zeros(groups), chains.law[self.law].log_size.shape[-1]
        walks, q = jnp.zeros((groups, min(RIDGES, r), r)), informed_count(r)
        return LawTuning(
            color=eye,
            share=jnp.zeros((groups, sizes, r)),
            size=jnp.zeros((groups, sizes)),
            size_lower=jnp.broadcast_to(jnp.eye(sizes), (groups, sizes, sizes)),
            known=Known(eye[..., :q], jnp.broadcast_to(jnp.eye(q), (groups, q, q)), jnp.zeros((groups, q))),
            by_law=jnp.zeros((groups, systems, self.observations, r)),
            by_theta=jnp.zeros((groups, systems, self.observations, parameters)),
            theta=jnp.zeros((groups, systems, parameters, r)),
            others=jnp.zeros((groups, rest, r)) if rest else None,
            power=jnp.zeros((groups, parameters)),
            at=jnp.zeros((groups, systems, parameters)),
            ridges=walks,
            ridge=jnp.zeros(walks.shape[:2], bool),
            log_reach=none,
            log_stride=none,
            acceptance=none,
        )

    def step(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> tuple[Chains, Info]:
        assert isinstance(posterior, JointTarget), "a law moves under a joint density"
        law = chains.law[self.law]
        a, log_size = law.weights, law.log_size
        (_, count, r), sizes = a.shape, log_size.shape[-1]

        def one_group(key: PRNGKeyArray) -> list[Array]:
            one = (count,)
            return uniforms(key, (1,), (count, r), (count, sizes), (student_numbers(sizes), count), one, one, one)

        which, xi, xi_size, spread, short, *tests = jax.vmap(one_group)(keys)
        # One coin for all chains: what is not proposed need not be computed.
        draws, walks = which[0, 0] < REDRAWN, (which[0, 0] > 1 - WALKED) & jnp.any(tuning.ridge, axis=1)[:, None]
        factor = mostly_long(short)
        eta = factor * jnp.exp(tuning.log_reach)[:, None]

        def redraw() -> tuple[Array, ...]:
            away = solve_lower(tuning.size_lower[:, None], log_size - tuning.size[:, None])
            away, by_size = student_step(away, normal(xi_size), spread, factor)
            new_size = tuning.size[:, None] + _times(tuning.size_lower, away)
            drawn, by_draw = redrawn(tuning.known, law, posterior.ranges[self.law], normal(xi), new_size)
            return drawn, new_size, jnp.zeros_like(a), by_draw + by_size

        def move() -> tuple[Array, ...]:
            stepped, change = self._stepped(chains, tuning, posterior, normal(xi), eta)
            walked = a + _walk(tuning, factor * normal(xi_size[..., 0]), xi[..., 0])
            return jnp.where(walks[..., None], walked, stepped), log_size, change, jnp.zeros_like(eta)

        new_a, new_size, change, by_proposal = lax.cond(draws, redraw, move)
        moved, log_volume = sheared(chains, tuning, self.law, new_a - a, posterior.population)
        moved = moved._replace(law=moved.law | {self.law: moved.law[self.law].with_size(new_size)})
        proposed = posterior.refresh(moved)

        def way_back() -> Array:
            by_step = self._step_density(proposed, tuning, posterior, -change, eta)
            return jnp.where(walks, 0.0, by_step + 0.5 * jnp.sum(normal(xi) ** 2, axis=-1))

        log_ratio = _log_density(posterior, proposed) - _log_density(posterior, chains) + log_volume
        log_ratio += lax.cond(draws, lambda: by_proposal, way_back)
        finite = jnp.all(jnp.isfinite(posterior.loglik(proposed)), axis=-1)[..., None]
        random = Randomness(xi, *(jnp.log(test)[..., None] for test in tests))
        accept, info = decide(random, posterior, chains, proposed, log_ratio[..., None], finite, _sum)
        chains = choose_fields(accept[..., 0], proposed, chains, ("theta", "phi", "law", "cache"))
        # A block each, those that were not proposed telling nothing.
        kind = jnp.stack(jnp.broadcast_arrays(~draws & ~walks, draws, walks & jnp.ones_like(eta, bool)), axis=-1)
        acceptance, second = (jnp.where(kind, part, jnp.nan) for part in (info.acceptance, info.second))
        return chains, Info(acceptance, info.finite | ~kind, second)

    def _stepped(
        self,
        chains: Chains,
        tuning: LawTuning,
        posterior: JointTarget,
        xi: Float[Array, "group chain r"],
        eta: Float[Array, "group chain"],
    ) -> tuple[Float[Array, "group chain r"], Float[Array, "group chain r"]]:
        """Coordinates after a step, sizes held, and by how much z changed."""
        change = _drift(eta) * self._pull(chains, tuning, posterior) + eta[..., None] * xi
        law = chains.law[self.law]
        return law.weights + _times(tuning.color, tuning.spread(law.log_size) * change), change

    def _step_density(
        self,
        chains: Chains,
        tuning: LawTuning,
        posterior: JointTarget,
        change: Float[Array, "group chain r"],
        eta: Float[Array, "group chain"],
    ) -> Float[Array, "group chain"]:
        """Log density of a step that changes z by so much, up to a constant."""
        away = change - _drift(eta) * self._pull(chains, tuning, posterior)
        return -0.5 * jnp.sum(away**2, axis=-1) / eta**2

    def _pull(self, chains: Chains, tuning: LawTuning, posterior: JointTarget) -> Float[Array, "group chain r"]:
        """g(z): of the log posterior, predictions taken for linear, along the move."""
        law, score = chains.law[self.law], posterior.temperature * posterior.score(chains)
        by_law = jnp.einsum("gcso,gsor->gcr", score, tuning.by_law)
        by_theta = jnp.einsum("gcso,gsop->gcsp", score, tuning.by_theta)

        def log_density(change: Array) -> Array:
            moved, log_volume = sheared(chains, tuning, self.law, change, posterior.population)
            prior = posterior.log_joint(moved, jnp.zeros(chains.theta.shape[:3])) + log_volume
            return jnp.sum(prior) + jnp.sum(by_law * change) + jnp.sum(by_theta * _shear(tuning.theta, change))

        gradient = jax.grad(log_density)(jnp.zeros_like(law.weights))
        pull = tuning.spread(law.log_size) * jnp.einsum("gri,gcr->gci", tuning.color, gradient)
        # From far out it would throw chains beyond where predictions are anything like linear.
        size = jnp.sqrt(jnp.mean(pull**2, axis=-1, keepdims=True))
        pull = pull * jnp.minimum(1.0, FARTHEST_PULL / jnp.maximum(size, TINY))
        return jnp.where(jnp.isfinite(pull), pull, 0.0)

    def adapt(self, tuning: LawTuning, info: Info, rate: Array | float) -> LawTuning:
        mean = jnp.nanmean(info.acceptance, axis=1)
        # Where nobody went, there is nothing to learn from.
        accepted, _, along = jnp.moveaxis(jnp.where(jnp.isnan(mean), jnp.array([TARGET, 0.0, ALONG]), mean), -1, 0)
        reach = jnp.clip(tuning.log_reach + rate * (accepted - TARGET), -6.0, 0.0)
        step = jnp.clip(tuning.log_stride + rate * (along - ALONG), -6.0, 3.0)
        lately = tuning.acceptance + MEMORY * (accepted - tuning.acceptance)
        return tuning._replace(log_reach=reach, log_stride=step, acceptance=lately)

    def tune(self, tuning: LawTuning, draws: Chains, posterior: Target) -> LawTuning:
        """Take the constants from the Gauss-Newton information at some draws; sizes, and which curves are followed, from all."""
        assert isinstance(posterior, Posterior), "information is asked of a likelihood"
        prior = precisions(posterior.population, draws)
        told, curves = self._along_curves(draws, posterior, prior)
        _, moved = self._coordinates(draws)
        parts = []
        for group in range(len(prior)):
            left = self._left(told.of(group), prior[group], draws, posterior, group)
            law = draws.law[self.law]
            a, sizes = (np.asarray(part[group], float) for part in (law.weights, law.log_size))
            frame = jax.tree.map(lambda x: np.asarray(x, float), posterior.ranges[self.law])
            alone = np.asarray(told.law[group], float)[np.ix_(moved, moved)]
            white = whitened(left.law, alone, a, sizes, frame)
            walks = ridges(white[0], alone - left.law, a, float(tuning.log_reach[group]) < math.log(CONFINED))
            by_law = told.by_law[group][..., moved] + told.by_law[group][..., ~moved] @ left.others
            curve = (part[group] for part in curves)
            parts.append((*white, by_law, told.by_theta[group], left.theta, left.others, *curve, *walks))
        made = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), bool if x[0].dtype == bool else float), *parts)
        found = LawTuning._make([*made, *tuning[-3:]])
        return found._replace(others=tuning.others if tuning.others is None else found.others)

    def _coordinates(self, draws: Chains) -> tuple[dict[str, Array], Bool[np.ndarray, " coordinate"]]:
        """Of all laws, and which of them are this one's."""
        weights = coordinates(draws.law)
        return weights, np.concatenate([np.full(w.shape[-1], name == self.law) for name, w in weights.items()])

    def _left(
        self, told: Information, prior: Precisions, draws: Chains, posterior: Posterior, group: int
    ) -> Elimination:
        """What a group's information says of this law as all else follows."""
        weights, moved = self._coordinates(draws)
        sizes = {name: np.asarray(draws.law[name].log_size[group], float).mean(axis=0) for name in weights}
        rest = [posterior.ranges[name].precision(jnp.asarray(size, float)) for name, size in sizes.items()]
        return eliminate(told, prior, moved, np.asarray(np.concatenate(rest), float), stretched=True)

    def _along_curves(self, draws: Chains, posterior: Posterior, prior: list[Precisions]) -> tuple[Information, Curves]:
        """Information along the curves that draws of theta lie nearest to, and these."""
        told, found = information(posterior, draws), []
        for group, precision in enumerate(prior):
            a = np.asarray(draws.law[self.law].weights[group], float)
            left = self._left(told.of(group), precision, draws, posterior, group)
            straight = np.einsum("spr,dr->dsp", left.theta, a - a[picked(len(a))].mean(axis=0))
            found.append(curved(np.asarray(draws.theta[group], float), straight, self.logs))
        power, at = (np.stack(part) for part in zip(*found))
        return information(posterior, draws, (power, at)) if power.any() else told, (power, at)

    def dispersed(self, keys: GroupKeys, chains: Chains, tuning: LawTuning, posterior: Target) -> Chains:
        """Every chain with a law of its own from the Gauss-Newton posterior, somewhat narrowed; all else follows. The cache is
        that of where chains were."""
        return jit_soon(_dispersed)(self.law, keys, chains, tuning, posterior.population)


def _walk(
    tuning: LawTuning, length: Float[Array, "group chain"], which: Float[Array, "group chain"]
) -> Float[Array, "group chain r"]:
    """A change along one of the directions in which much follows, `which` (0 to 1) of them."""
    there = jnp.sum(tuning.ridge, axis=1)
    chosen = jnp.minimum((which * there[:, None]).astype(int), jnp.maximum(there - 1, 0)[:, None])
    step = length * jnp.exp(tuning.log_stride)[:, None]
    return step[..., None] * jnp.take_along_axis(tuning.ridges, chosen[..., None], axis=1)


def _dispersed(name: str, keys: GroupKeys, chains: Chains, tuning: LawTuning, population: Population) -> Chains:
    law = chains.law[name]
    (uniform,) = jax.vmap(lambda key: uniforms(key, law.weights.shape[1:]))(keys)
    away = NARROWED * normal(uniform) * tuning.spread(law.log_size)
    return sheared(chains, tuning, name, _times(tuning.color, away), population)[0]


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


def _drift(eta: Float[Array, "group chain"]) -> Float[Array, "group chain 1"]:
    """1 - rho, by how much of its gradient z moves in a step of this length."""
    return (1 - jnp.sqrt(1 - jnp.minimum(eta, 1.0) ** 2))[..., None]


def _sum(value: Array) -> Array:
    return jnp.sum(value, axis=-1, keepdims=True)
