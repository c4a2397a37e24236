"""Implicit integrators whose failures are values.

The derivative of an implicit step is a linear solve that raises where it meets what is not finite, also in a trial step that is
going to be rejected, and also for one member of a batch alone. Here nothing gets there that is not finite: where the equation
cannot be evaluated its rate is taken as zero, and a flag goes up that is integrated with the state,

    d(state)/dt = rate or 0,    d(flag)/dt = 0 or 1.

A step that crosses into such a place has a large error of the flag, and is rejected; a solve that ends with its flag up has
failed. In forward mode the tangent of the flag tells in the same way of derivatives that are not finite.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

State = tuple[Float[Array, "..."], ...]
Rhs = Callable[[Any, State], State]
Flagged = tuple[State, Float[Array, ""]]


def _bounded(tree: Any) -> Bool[Array, ""]:
    """Is everything finite, and small enough that products of two are?"""
    return jnp.all(jnp.stack([jnp.all(jnp.abs(x) < jnp.finfo(x.dtype).max ** 0.4) for x in jax.tree.leaves(tree)]))


def _only_if(fine: Array, tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.where(fine, x, jnp.zeros_like(x)), tree)


def flagged(rhs: Rhs, start: State, control: Any, backward: bool) -> tuple[Callable[..., Flagged], Flagged, Any]:
    """Vector field, initial value and step size controller of state and flag, from those of the state."""
    there = jax.tree.map(lambda y: lax.stop_gradient(jnp.where(jnp.isfinite(y), y, 0.0)), start)

    def field(t: Any, flagged: Flagged, args: Any) -> Flagged:
        y, flag = flagged
        fixed = lax.stop_gradient(y)
        fine = _bounded((fixed, lax.stop_gradient(rhs(t, fixed))))
        # Even a zero sent back through what is not finite is NaN: there the initial state takes its place.
        safe = jax.tree.map(lambda here, other: jnp.where(fine, here, other), y, there)
        found = _only_if(fine, rhs(t, safe)), jnp.where(fine, 0.0, jnp.ones_like(flag))
        return found if backward else _watched(found)

    def norm(error: Flagged) -> Array:
        """That of the state; a step in which the flag went up is to be rejected."""
        return control.norm(error[0]) + 1e6 * jnp.abs(error[1])

    begun = jax.tree.map(jnp.isfinite, start)
    fine = jnp.all(jnp.stack([jnp.all(x) for x in begun]))
    first = jax.tree.map(lambda y, ok: jnp.where(ok, y, 0.0), start, begun), jnp.where(fine, 0.0, 1.0)
    return field, first, dataclasses.replace(control, norm=norm)


@jax.custom_jvp
def _watched(flagged: Flagged) -> Flagged:
    """As it is; where its tangent is not finite, that is zero and the flag's is one."""
    return flagged


@_watched.defjvp
def _watched_jvp(primals: tuple[Flagged], tangents: tuple[Flagged]) -> tuple[Flagged, Flagged]:
    fine = _bounded(tangents[0][0])
    return primals[0], (_only_if(fine, tangents[0][0]), jnp.where(fine, 0.0, jnp.ones_like(tangents[0][1])))


def read_flagged(flagged: tuple[State, Float[Array, " time"]], backward: bool) -> State:
    """The states, or NaN where the flag went up on the way to the last of them."""
    states, flag = flagged
    failed = flag[-1] != 0
    states = jax.tree.map(lambda y: jnp.where(failed, jnp.nan, y), states)
    return states if backward else _told(states, flag)


@jax.custom_jvp
def _told(states: State, flag: Array) -> State:
    return states


@_told.defjvp
def _told_jvp(primals: tuple[State, Array], tangents: tuple[State, Array]) -> tuple[State, State]:
    failed = tangents[1][-1] != 0
    return primals[0], jax.tree.map(lambda t: jnp.where(failed, jnp.nan, t), tangents[0])
