"""Sizes of sampled laws: drawn given the law, and together with all of it that depends on them.

What data know of coordinates a are a few directions t = U^T a. Given sizes s they are nearly normal after data,

    t ~ N(m(s), A(s) A(s)^T),      (A A^T)^-1 = S^-1 + H,   m = A A^T h,   S = U^T P^-1 U,

with P(s) the prior's precision and H, h those of the data, constants. Given t the other directions are normal as before data.
With other sizes t follows, as likely as it was, and the rest is drawn anew:

    t' = m(s') + A(s') A(s)^-1 (t - m(s)),      a' = a0 + P'^-1 U S'^-1 (t' - U^T a0),      a0 ~ N(0, P'^-1)

Were predictions linear, sizes would move as if there were nothing else; what H and h miss, acceptance corrects.
"""

from collections.abc import Callable
from typing import NamedTuple

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


class Known(NamedTuple):
    """What data know of a law's coordinates, of every group: directions U, and of t = U^T a precision and score at zero."""

    directions: Float[Array, "group r q"]
    precision: Float[Array, "group q q"]
    score: Float[Array, "group q"]


def redrawn(
    known: Known,
    law: SmoothLaw,
    frame: Frame,
    xi: Float[Array, "group chain r"],
    new_size: Float[Array, "group chain size"],
) -> tuple[Float[Array, "group chain r"], Float[Array, "group chain"]]:
    """Coordinates with other sizes: those that data know follow, the others are drawn from their prior; and the log ratio of
    the density of such draws: before over after."""
    a, u = law.weights, known.directions[:, None]
    nothing = jnp.all(u == 0, axis=-2)[..., None]  # directions that are not counted

    def told(a: Array) -> Array:
        return jnp.sum(u * a[..., None], axis=-2)

    # Before and after side by side, one factorisation after the other: two at a time may wait for each other for ever on
    # threads of a CPU.
    precision = frame.precision(jnp.stack([law.log_size, new_size]))
    informed = _informed(known, precision, nothing)
    t = told(a)
    new_t = informed.at(1).follow(informed.at(0).white(t))
    new_a = xi / jnp.sqrt(precision[1])
    for _ in range(2):  # the second time for what rounding left
        missing = cho_solve((informed.lower[1], True), (new_t - told(new_a))[..., None])
        new_a = new_a + jnp.sum(u * missing[..., 0][..., None, :], axis=-1) / precision[1]
    before, after = informed.log_density(jnp.stack([a, new_a]), jnp.stack([t, told(new_a)]), precision)
    return new_a, before - after


class _Informed(NamedTuple):
    """Of t = U^T a at some sizes: G with G G^T its covariance before data, N with N N^T = I + G^T H G, and its mean after data;
    A = G N^-T has the covariance A A^T after them."""

    lower: Float[Array, "*batch q q"]
    gain: Float[Array, "*batch q q"]
    mean: Float[Array, "*batch q"]

    def at(self, number: int) -> "_Informed":
        return _Informed(*(part[number] for part in self))

    def white(self, t: Float[Array, "*batch q"]) -> Float[Array, "*batch q"]:
        """A^-1 (t - mean): standard normal, were predictions linear, whatever the sizes are."""
        white = solve_triangular(self.lower, (t - self.mean)[..., None], lower=True)
        return jnp.einsum("...ji,...j->...i", self.gain, white[..., 0])

    def follow(self, white: Float[Array, "*batch q"]) -> Float[Array, "*batch q"]:
        """The t that is as likely at these sizes."""
        scaled = solve_triangular(self.gain, white[..., None], lower=True, trans=1)[..., 0]
        return self.mean + jnp.einsum("...ij,...j->...i", self.lower, scaled)

    def log_density(self, a: Array, t: Array, precision: Array) -> Float[Array, "*batch"]:
        """Of a given t before data, over the determinant of A, up to a constant."""
        whole = 0.5 * jnp.sum(jnp.log(precision) - precision * a**2, axis=-1)
        white = solve_triangular(self.lower, t[..., None], lower=True)[..., 0]
        # Of G the determinant is in both.
        return whole + jnp.sum(jnp.log(_diagonal(self.gain)) + 0.5 * white**2, axis=-1)


def _informed(known: Known, precision: Float[Array, "when group chain r"], nothing: Array) -> _Informed:
    u = known.directions
    covariance = jnp.einsum("gri,wgcr,grj->wgcij", u, 1 / precision, u, optimize="optimal")
    lower = jnp.linalg.cholesky(covariance + jnp.eye(u.shape[-1]) * nothing)
    inner = jnp.einsum("wgcji,gjk,wgckl->wgcil", lower, known.precision, lower, optimize="optimal")
    gain = jnp.linalg.cholesky(inner + jnp.eye(u.shape[-1]))
    pull = jnp.einsum("wgcji,gj->wgci", lower, known.score)[..., None]
    mean = jnp.einsum("wgcij,wgcj->wgci", lower, cho_solve((gain, True), pull)[..., 0])
    return _Informed(lower, gain, mean)


def _diagonal(matrix: Array) -> Array:
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)
