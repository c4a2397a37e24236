"""Ensemble-preconditioned MALA, as `init` and `step` over groups of chains.

    x' = x + gamma C grad log p(x) + sqrt(2 gamma) L eps,   C = L L^T,   accepted by Metropolis-Hastings

Positions are (group, chain, block, dim). Blocks are proposed and accepted on their own: given the population the systems
are independent, so a block is a system. Groups share nothing: no covariance, no step size, no starting point.

Where C comes from decides whether the chains sample the posterior:

- `halves`: chains of one half move with the covariance of the other half, in turn. Exact.
- `frozen`: a covariance fixed beforehand. Exact.
- `self`: a covariance that includes the chain it moves, as published. Biased: on N(0, I) with six chains in two dimensions
  the variance comes out 0.5 to 1.3 depending on the step, with healthy acceptance, R-hat and ESS.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, Shaped

from ..population import normal, uniforms
from ._preconditioner import EVERYWHERE, Ways

TARGET_ACCEPTANCE = 0.574
GroupKeys = Key[Array, " group"]
Covariance = Literal["halves", "self", "frozen"]

# position (chain, block, dim) -> its fit to the data, arrays (chain, block, ...): dear, cached
Evaluate = Callable[[Float[Array, "chain block dim"]], Any]
# the same of the exact likelihood, where `evaluate` is only close to it
Correct = Callable[[Float[Array, "chain block dim"]], Any]
# position and population -> log prior and its gradient: cheap, computed anew since the population moves
Prior = Callable[[Array, Any], tuple[Array, Array]]
# population and standard normal numbers (block, dim) -> blocks drawn from it
Member = Callable[[Any, Float[Array, "block dim"]], Float[Array, "block dim"]]


class Weigh(NamedTuple):
    """From fits (and what moves with the population) to log likelihood and score, and from corrections to the exact log
    likelihood: cheap, computed anew. Unless said, that is what fits and corrections are."""

    fit: Callable[[Any, Any], tuple[Array, Array]] = lambda fit, phi: fit
    exact: Callable[[Any, Any], Array] = lambda exact, phi: exact


PLAIN = Weigh()


class Ensemble(NamedTuple):
    """Where the chains are, with the fit found there; and the exact one, where moves are corrected by it."""

    position: Float[Array, "group chain block dim"]
    fit: Any
    exact: Any = None


class Info(NamedTuple):
    """`second` is the probability to pass the second stage, of what passed the first; NaN elsewhere."""

    acceptance: Float[Array, "group chain block"]
    finite: Bool[Array, "group chain block"]
    second: Float[Array, "group chain block"]


def init(
    position: Float[Array, "group chain block dim"], evaluate: Evaluate, correct: Correct | None = None
) -> Ensemble:
    """Evaluate the target where the chains stand (also after the target has moved)."""
    return Ensemble(position, _grouped(evaluate, position), None if correct is None else _grouped(correct, position))


def _grouped(evaluate: Evaluate, position: Float[Array, "group chain block dim"]) -> Any:
    found = evaluate(position.reshape(-1, *position.shape[2:]))
    return jax.tree.map(lambda a: a.reshape(*position.shape[:2], *a.shape[1:]), found)


def step(
    keys: GroupKeys,
    ensemble: Ensemble,
    phi: Any,
    log_step: Float[Array, "group block"],
    factor: Float[Array, "group block dim direction"] | None,
    evaluate: Evaluate,
    prior: Prior,
    *,
    ways: Ways = EVERYWHERE,
    temperature: Float[Array, ""] | float = 1.0,
    covariance: Covariance = "halves",
    metropolis: bool = True,
    correct: Correct | None = None,
    weigh: Weigh = PLAIN,
) -> tuple[Ensemble, Info]:
    """One step of every chain; one evaluation of the target a chain. `keys` is one key a group.

    `factor` (L, per group and block) is used by `frozen` only; None there means no preconditioner.
    `correct` adds a second stage (delayed acceptance): what passes under `evaluate` must pass again by how much the exact
    likelihood differs, and the chains are those of the exact posterior.
    """
    *shape, dim = ensemble.position.shape
    noise = _noise(keys, (*shape, ways.directions(dim)))

    def move(noise: Noise, part: Ensemble, phi: Any, factor: Array) -> tuple[Ensemble, Info]:
        return _move(noise, part, phi, log_step, factor, evaluate, prior, temperature, metropolis, correct, weigh)

    if covariance == "frozen":
        return move(noise, ensemble, phi, ways.plain(ensemble.position) if factor is None else factor)
    if covariance == "self":
        return move(noise, ensemble, phi, ways.factor(ensemble.position, shrink=False))
    return _by_halves(lambda noise, part, phi, still: move(noise, part, phi, ways.factor(still)), noise, ensemble, phi)


def jump(
    keys: GroupKeys,
    ensemble: Ensemble,
    phi: Any,
    evaluate: Evaluate,
    prior: Prior,
    *,
    shared: tuple[bool, ...] | None = None,
    correct: Correct | None = None,
    weigh: Weigh = PLAIN,
) -> tuple[Ensemble, Info]:
    """Every chain by the difference of two chains of the other half: from one solution of its equations to another, where
    a few data leave several. Either of the two may come first, so the proposal is as likely as its way back. Exact.

    Parameters that are `shared` by all systems stay.
    """
    groups, chains, blocks, _ = ensemble.position.shape
    half = chains // 2
    noise = _noise(keys, (groups, chains, blocks, 2), lambda u: jnp.minimum((half * u).astype(int), half - 1))

    def move(noise: Noise, part: Ensemble, phi: Any, still: Array) -> tuple[Ensemble, Info]:
        there, here = (jnp.take_along_axis(still, noise.proposal[..., i, None], axis=1) for i in (0, 1))
        away = there - here
        proposal = part.position + (away if shared is None else jnp.where(np.array(shared), 0.0, away))
        proposed = init(proposal, evaluate, correct)
        (loglik, slope), (log_prior, slope_prior) = weigh.fit(proposed.fit, phi), prior(proposal, phi)
        gain = loglik + log_prior - weigh.fit(part.fit, phi)[0] - prior(part.position, phi)[0]
        finite = _finite(loglik, log_prior, slope + slope_prior)
        return _decide(noise, part, proposed, phi, gain, finite, 1.0, True, weigh)

    return _by_halves(move, noise, ensemble, phi)


def renew(
    keys: GroupKeys,
    ensemble: Ensemble,
    phi: Any,
    evaluate: Evaluate,
    member: Member,
    value: Correct,
    *,
    tries: int = 3,
    shared: tuple[bool, ...] | None = None,
    correct: Correct | None = None,
    weigh: Weigh = PLAIN,
) -> tuple[Ensemble, Info]:
    """Every block is chosen by likelihood among where it is and a few fresh members of its population: to solutions none of
    the chains is in. Candidates come from the prior, so nothing but the likelihood weighs them. Exact.

    `value` is what `evaluate` finds, without slopes; parameters that are `shared` by all systems stay.
    """
    *shape, dim = ensemble.position.shape
    own = _noise(keys, (*shape, dim))

    def bid(loglik: Array, noise: Noise) -> Array:
        """The largest of these (Gumbel's) is one chosen in proportion to the likelihoods."""
        return jnp.where(jnp.isnan(loglik), -jnp.inf, loglik) - jnp.log(-noise.log_uniform)

    def one(best: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], None]:
        noise = _noise(jax.vmap(lambda key: jr.fold_in(key, number))(keys), (*shape, dim))
        fresh = jax.vmap(jax.vmap(member))(phi, noise.proposal)
        fresh = fresh if shared is None else jnp.where(np.array(shared), ensemble.position, fresh)
        found = bid(weigh.exact(_grouped(value, fresh), phi), noise)
        better = found > best[1]
        return (jnp.where(better[..., None], fresh, best[0]), jnp.where(better, found, best[1])), None

    loglik = weigh.fit(ensemble.fit, phi)[0]
    (position, _), _ = lax.scan(one, (ensemble.position, bid(loglik, own)), jnp.arange(tries))
    chosen = init(position, evaluate, correct)
    loglik, slope = weigh.fit(chosen.fit, phi)
    finite = _finite(loglik, jnp.zeros_like(loglik), slope)
    return _decide(own, ensemble, chosen, phi, jnp.zeros_like(loglik), finite, 1.0, True, weigh)


def _by_halves(
    move: Callable[..., tuple[Ensemble, Info]], noise: "Noise", ensemble: Ensemble, phi: Any
) -> tuple[Ensemble, Info]:
    """`move(noise, part, phi, still)` of one half of the chains given where the others stand still, then of the others."""
    half = ensemble.position.shape[1] // 2

    def turn(state: tuple[Noise, Ensemble, Any], _: None) -> tuple[tuple[Noise, Ensemble, Any], Info]:
        moving: Any = jax.tree.map(lambda a: a[:, :half], state)
        still: Any = jax.tree.map(lambda a: a[:, half:], state)
        moved, info = move(*moving, still[1].position)
        # Change places: the second turn moves the other half, and leaves everyone where they were.
        after = (moving[0], moved, moving[2])
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), still, after), info

    (_, ensemble, _), info = lax.scan(turn, (noise, ensemble, phi), length=2)
    return ensemble, jax.tree.map(lambda a: jnp.concatenate([a[0], a[1]], axis=1), info)


class Noise(NamedTuple):
    """All the randomness of a step."""

    proposal: Shaped[Array, "group chain block direction"]
    log_uniform: Float[Array, "group chain block"]
    log_uniform_second: Float[Array, "group chain block"]


def _noise(keys: GroupKeys, shape: tuple[int, ...], made: Callable[[Array], Array] = normal) -> Noise:
    def one_group(key: PRNGKeyArray) -> Noise:
        step, first, second = uniforms(key, shape[1:], shape[1:3], shape[1:3])
        return Noise(made(step), jnp.log(first), jnp.log(second))

    return jax.vmap(one_group)(keys)


def _move(
    noise: Noise,
    part: Ensemble,
    phi: Any,
    log_step: Array,
    factor: Array,
    evaluate: Evaluate,
    prior: Prior,
    temperature: Any,
    metropolis: bool,
    correct: Correct | None,
    weigh: Weigh,
) -> tuple[Ensemble, Info]:
    gamma = jnp.exp(log_step)[:, None, :, None]
    log_prior, slope = prior(part.position, phi)
    loglik, score = weigh.fit(part.fit, phi)
    drift = jnp.sqrt(0.5 * gamma) * _apply_transposed(factor, temperature * score + slope)
    proposal = part.position + jnp.sqrt(2 * gamma) * _apply(factor, drift + noise.proposal)
    proposed = init(proposal, evaluate, correct)
    log_prior_new, slope_new = prior(proposal, phi)
    loglik_new, score_new = weigh.fit(proposed.fit, phi)
    gradient_new = temperature * score_new + slope_new
    # The noise that would lead back, in the same units: no triangular solve.
    back = noise.proposal + drift + jnp.sqrt(0.5 * gamma) * _apply_transposed(factor, gradient_new)
    log_ratio = (
        temperature * (loglik_new - loglik)
        + (log_prior_new - log_prior)
        + 0.5 * jnp.sum(noise.proposal**2 - back**2, axis=-1)
    )
    finite = _finite(loglik_new, log_prior_new, gradient_new)
    return _decide(noise, part, proposed, phi, log_ratio, finite, temperature, metropolis, weigh)


def _finite(loglik: Array, log_prior: Array, gradient: Array) -> Array:
    return jnp.isfinite(loglik) & jnp.isfinite(log_prior) & jnp.all(jnp.isfinite(gradient), axis=-1)


def _decide(
    noise: Noise,
    part: Ensemble,
    proposed: Ensemble,
    phi: Any,
    log_ratio: Array,
    finite: Array,
    temperature: Any,
    metropolis: bool,
    weigh: Weigh,
) -> tuple[Ensemble, Info]:
    """Accept or reject, by the log ratio of target and proposal densities."""
    # From a start that was not finite any finite proposal is accepted; a proposal that is not never is.
    log_ratio = jnp.where(finite & ~jnp.isnan(log_ratio), log_ratio, -jnp.inf)
    accept = noise.log_uniform < log_ratio if metropolis else finite
    second = jnp.full_like(log_ratio, jnp.nan)
    if proposed.exact is None or part.exact is None:
        proposed = proposed._replace(exact=part.exact)
    else:
        # From a start where `evaluate` had nothing finite, the exact likelihood alone decides.
        exact, exact_new = (weigh.exact(state.exact, phi) for state in (part, proposed))
        loglik, loglik_new = (weigh.fit(state.fit, phi)[0] for state in (part, proposed))
        already = jnp.where(jnp.isfinite(loglik), loglik_new - loglik, 0.0)
        again = temperature * (exact_new - exact - already)
        again = jnp.where(jnp.isfinite(exact_new) & ~jnp.isnan(again), again, -jnp.inf)
        second = jnp.where(accept, jnp.exp(jnp.minimum(0.0, again)), jnp.nan)
        accept = accept & (noise.log_uniform_second < again)
    moved = jax.tree.map(
        lambda new, old: jnp.where(accept.reshape(accept.shape + (1,) * (new.ndim - 3)), new, old),
        proposed,
        part,
    )
    return moved, Info(jnp.exp(jnp.minimum(0.0, log_ratio)), finite, second)


def _apply(factor: Array, x: Array) -> Array:
    """L x over group and block, for every chain; small ones as plain sums, which fuse with what surrounds them."""
    if max(factor.shape[-2:]) > 8:
        return jnp.einsum("gbij,gcbj->gcbi", factor, x)
    return jnp.sum(factor[:, None] * x[..., None, :], axis=-1)


def _apply_transposed(factor: Array, x: Array) -> Array:
    return _apply(jnp.swapaxes(factor, -1, -2), x)


def adapt(
    log_step: Float[Array, "group block"], info: Info, rate: Float[Array, ""] | float
) -> Float[Array, "group block"]:
    """Robbins-Monro towards the acceptance at which MALA is most efficient."""
    return log_step + rate * (jnp.mean(info.acceptance, axis=1) - TARGET_ACCEPTANCE)
