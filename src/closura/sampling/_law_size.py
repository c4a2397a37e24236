"""Sizes of sampled laws: drawn given the law, and together with all of it that data do not know.

Given t = U^T a, what data know, coordinates a are normal before data and after: with other sizes s' they can be drawn anew,

    a' = a0 + P^-1 U S^-1 (t - U^T a0),      a0 ~ N(0, P^-1),   P = P(s') the prior's precision,   S = U^T P^-1 U,

and sizes then move by far more than coordinates that are held would let them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..laws import Frame, SmoothLaw
from ..population import NUMBERS, slice_draw, uniforms
from ._gauss_newton import coordinates
from ._kernel import Kernel, Tuning
from ._posterior import JointTarget, Target
from ._state import Chains, GroupKeys

WIDTH = 8.0  # of the slice of log s^2


class LawSize(Kernel):
    """Draws the sizes of every law given its coordinates, one after the other: log s_j^2 | a, by slice sampling."""

    name = "law size"
    moves = ("law",)
    learning = False

    def step(self, keys: GroupKeys, chains: Chains, tuning: Tuning, posterior: Target) -> tuple[Chains, None]:
        assert isinstance(posterior, JointTarget), "the sizes of a law have a prior there"
        count, names = chains.theta.shape[1], list(coordinates(chains.law))
        shapes = [(count, chains.law[name].log_size.shape[-1], NUMBERS) for name in names]
        uniform = jax.vmap(lambda key: uniforms(key, *shapes))(keys)
        drawn = {}
        for part, name in zip(uniform, names):
            frame = posterior.ranges[name]

            def draw(uniform: Array, law: SmoothLaw, frame: Frame = frame) -> SmoothLaw:
                for j, one in enumerate(uniform):

                    def with_size(log_size: Array, law: SmoothLaw = law, j: int = j) -> SmoothLaw:
                        return law.with_size(law.log_size.at[j].set(log_size))

                    def log_density(log_size: Array, with_size: Callable[[Array], SmoothLaw] = with_size) -> Array:
                        return with_size(log_size).log_prior(frame, None)

                    law = with_size(slice_draw(one, law.log_size[j], log_density, WIDTH))
                return law

            drawn[name] = jax.vmap(jax.vmap(draw))(part, chains.law[name])
        return chains._replace(law=chains.law | drawn), None


def informed_count(r: int) -> int:
    """How many directions, of r, data are taken to know at most."""
    return min(32, 2 * r // 3)


def redrawn(
    informed: Float[Array, "group r q"],
    law: SmoothLaw,
    frame: Frame,
    xi: Float[Array, "group chain r"],
    size_change: Float[Array, "group chain size"],
) -> tuple[Float[Array, "group chain r"], Float[Array, "group chain size"], Float[Array, "group chain"]]:
    """Coordinates drawn from their prior given other sizes, and given what data know; these sizes; and the log ratio of the
    density of such draws: before over after."""
    a, new_size, u = law.weights, law.log_size + size_change, informed[:, None]
    nothing = jnp.all(u == 0, axis=-2)[..., None]  # directions that are not counted

    def known(a: Array) -> Array:
        return jnp.sum(u * a[..., None], axis=-2)

    def parts(log_size: Array) -> tuple[Array, Array]:
        """Precision of a, and the Cholesky factor of the covariance of t."""
        precision = frame.precision(log_size)
        covariance = jnp.einsum("gri,gcr,grj->gcij", informed, 1 / precision, informed, optimize="optimal")
        return precision, jnp.linalg.cholesky(covariance + jnp.eye(u.shape[-1]) * nothing)

    def log_density(a: Array, precision: Array, lower: Array) -> Array:
        """Of a given t, up to a constant."""
        whole = 0.5 * jnp.sum(jnp.log(precision) - precision * a**2, axis=-1)
        white = solve_triangular(lower, t[..., None], lower=True)[..., 0]
        diagonal = jnp.diagonal(lower, axis1=-2, axis2=-1)
        return whole + jnp.sum(jnp.log(diagonal) + 0.5 * white**2, axis=-1)

    t = known(a)
    before, (precision, lower) = log_density(a, *parts(law.log_size)), parts(new_size)
    new_a = xi / jnp.sqrt(precision)
    for _ in range(2):  # the second time for what rounding left
        missing = cho_solve((lower, True), (t - known(new_a))[..., None])
        new_a = new_a + jnp.sum(u * missing[..., 0][..., None, :], axis=-1) / precision
    return new_a, new_size, before - log_density(new_a, precision, lower)
