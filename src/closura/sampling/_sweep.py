"""What moves in one iteration, in turn: every system on its own, then what all of them share."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._mala import PLAIN, Correct, Ensemble, Evaluate, GroupKeys, Info, Prior, Weigh, step
from ._preconditioner import EVERYWHERE, Apart, Together

Shared = tuple[bool, ...] | None


def turns(
    keys: GroupKeys,
    ensemble: Ensemble,
    above: Any,
    log_step: Float[Array, "group block"],
    factor: Any,
    evaluate: Evaluate,
    prior: Prior,
    *,
    shared: Shared = None,
    correct: Correct | None = None,
    weigh: Weigh = PLAIN,
    **options: Any,
) -> tuple[Ensemble, Info]:
    """`step`, and where parameters are `shared` a second one for those; `factor` is what `factors` gives, or None."""
    first, second = (None, None) if factor is None else factor
    if shared is None:
        options |= {"correct": correct, "weigh": weigh}
        return step(keys, ensemble, above, log_step, first, evaluate, prior, **options)
    own, info = step(
        keys,
        ensemble,
        above,
        log_step[:, :-1],
        first,
        evaluate,
        prior,
        ways=Apart(shared),
        correct=correct,
        weigh=weigh,
        **options,
    )
    systems, parameters = own.position.shape[2:]

    def theta_of(position: Array) -> Array:
        return position.reshape(*position.shape[:-2], systems, parameters)

    def as_one(tree: Any, axis: int = 2) -> Any:
        return jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), tree)

    def as_many(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.squeeze(leaf, 2), tree)

    def summed(value: Array, slope: Array) -> tuple[Array, Array]:
        return jnp.sum(value, axis=-1, keepdims=True), slope.reshape(*slope.shape[:2], 1, -1)

    whole = Weigh(
        lambda fit, above: summed(*weigh.fit(as_many(fit), above)),
        lambda exact, above: jnp.sum(weigh.exact(as_many(exact), above), axis=-1, keepdims=True),
    )
    moved, more_info = step(
        jax.vmap(lambda key: jr.fold_in(key, 1))(keys),
        Ensemble(own.position.reshape(*own.position.shape[:2], 1, -1), *as_one((own.fit, own.exact))),
        above,
        log_step[:, -1:],
        second,
        lambda position: as_one(evaluate(theta_of(position)), 1),
        lambda position, above: summed(*prior(theta_of(position), above)),
        ways=Together(shared),
        correct=None if correct is None else lambda position: as_one(correct(theta_of(position)), 1),
        weigh=whole,
        **options,
    )
    position = theta_of(moved.position)
    position = jnp.where(np.array(shared), position[..., :1, :], position)  # also to the last digit
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=2), info, more_info)
    return Ensemble(position, *as_many((moved.fit, moved.exact))), joined


@partial(jax.jit, static_argnames=("shared", "shrink", "plain"))
def factors(
    position: Float[Array, "group chain block dim"], shared: Shared = None, shrink: bool = True, plain: bool = False
) -> tuple[Array, Array | None]:
    """The preconditioners of a step and, where parameters are shared, of the second; `plain` ones do nothing."""
    if shared is None:
        return EVERYWHERE.plain(position) if plain else EVERYWHERE.factor(position, shrink), None
    flat = position.reshape(*position.shape[:2], 1, -1)
    own, whole = Apart(shared), Together(shared)
    if plain:
        return own.plain(position), whole.plain(flat)
    return own.factor(position, shrink), whole.factor(flat, shrink)
