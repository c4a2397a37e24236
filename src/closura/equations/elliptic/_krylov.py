"""Linear systems without a matrix, in a batch whose members converge each in its own time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


class _State(NamedTuple):
    done: Array
    x: Array
    residual: Array
    direction: Array
    image: Array
    rho: Array
    alpha: Array
    omega: Array


def norm(v: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(v * v))


def bicgstab(
    apply: Callable[[Array], Array], rhs: Float[Array, "..."], tolerance: Any, limit: Any
) -> tuple[Float[Array, "..."], Float[Array, ""], Int[Array, ""]]:
    """x with |apply(x) - rhs| <= tolerance, that norm, and how many iterations of two products each it took, at most `limit`.

    van der Vorst 1992. `apply` need not be symmetric but should be near the identity: it contains the preconditioner.
    What is not finite ends the iteration.
    """

    def unfinished(state: _State) -> Array:
        return (norm(state.residual) > tolerance) & (state.done < limit)

    def step(state: _State) -> _State:
        done, x, r, p, v, rho_old, alpha, omega = state
        rho = jnp.sum(rhs * r)
        p = r + _ratio(rho * alpha, rho_old * omega) * (p - omega * v)
        v = apply(p)
        alpha = _ratio(rho, jnp.sum(rhs * v))
        s = r - alpha * v
        t = apply(s)
        omega = _ratio(jnp.sum(t * s), jnp.sum(t * t))
        return _State(done + 1, x + alpha * p + omega * s, s - omega * t, p, v, rho, alpha, omega)

    zero, one = jnp.zeros_like(rhs), jnp.ones((), rhs.dtype)
    state = lax.while_loop(unfinished, step, _State(jnp.zeros((), jnp.int32), zero, rhs, zero, zero, one, one, one))
    return state.x, norm(state.residual), state.done


def _ratio(a: Array, b: Array) -> Array:
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))
