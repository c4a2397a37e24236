"""Unknown laws that are sampled, as a chain holds them: smooth functions, as unsure as data leave them.

    f(x) = finish(raw(x)),      raw = g,  or g made positive and integrated,      g = polynomial + s W + r M     (see `_basis`)

A chain holds coordinates of g, and log s^2 and log r^2, as it holds theta. Nothing of the prior depends on the table: where solutions go
further, a longer table has other coordinates of the same prior.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._base import AbstractLaw, SolverLaw
from ._basis import Frame, Smooth
from ._beside import Beside, Form, Step
from ._cells import cubics, integrated
from ._continuation import longer
from ._law import WIDE, Law
from ._table import Curve, TabulatedLaw

NEARLY = 1e-3  # of its largest value: how well a law must be met when its table changes


class SmoothLaw(AbstractLaw):
    """A law as a chain holds it: coordinates of g (and constants of integration before them), and logs of squared sizes."""

    spec: Law = eqx.field(static=True)
    coordinates: Float[Array, "*chain coordinate"]
    log_size: Float[Array, "*chain size"]

    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        raise TypeError("a sampled law is called as prepared for a table: law.prepare(frame)(x)")

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        """Constants of integration, of a jump, of a form; and coordinates of g."""
        levels, step, form, a = jnp.split(self.coordinates, np.cumsum(self.spec.ahead), axis=-1)
        return levels, step, form, a

    def prepare(self, range_: PyTree) -> TabulatedLaw:
        spec, frame = self.spec, range_
        if spec.inputs == 2:
            return TabulatedLaw(spec, frame.table(self.coordinates), frame.scaling)
        constants, _, _, a = self._parts()
        ends = frame.ends(frame.nodes @ a + frame.offset)
        cells = self._grown(constants, frame, *ends) if spec.integrations else cubics(*ends)
        return TabulatedLaw(spec, Curve((frame.axis,), cells), frame.scaling, self.beside(frame))

    def _grown(self, constants: Array, frame: Frame, left: Array, right: Array) -> Float[Array, "cell 4"]:
        """The cubics of a law whose derivative is positive."""
        spec, step, start = self.spec, frame.axis.step / frame.scaling.scale[0], frame.middle
        cells = integrated(jax.nn.softplus(left[:, 0]), jax.nn.softplus(right[:, 0]), step, start, spec.integrations)
        sign = -1.0 if spec.decreasing or spec.concave else 1.0
        level, gradient = (
            constants[spec.levels.index(i)] * WIDE[i] if i in spec.levels else jnp.zeros(()) for i in (0, 1)
        )
        if spec.at:
            level = spec.points[0][1] / frame.scaling.output
        z = step * (jnp.arange(len(cells)) - start)
        line = jnp.stack([level + gradient * z, jnp.full(len(cells), gradient * step)], axis=-1)
        return (sign * cells).at[:, :2].add(line)

    def beside(self, frame: Frame) -> Beside | None:
        """What the law has beside its table."""
        spec, (_, step, form, _) = self.spec, self._parts()
        if spec.form is not None:
            return Form(spec.form.theta(form), frame.scaling.output, spec.form)
        if spec.jump is None:
            return None
        scale, none = frame.scaling.scale[0], jnp.zeros(())
        free = {"gradient": none, "curvature": none} | spec.jumped(step)
        low, high = ((end[0] - spec.jump) / scale for end in (frame.low, frame.high))
        given = (0.0,) if spec.structure.shifted else tuple(x for x, _ in spec.points)
        return Step(**free, scale=scale, low=low, high=high, at=spec.jump, anchor=(*given, spec.jump)[0])

    def node_places(self, range_: PyTree) -> Float[np.ndarray, " node"] | None:
        return None if self.spec.inputs == 2 else np.asarray(range_.axis.points(), float)

    def named(self, range_: PyTree) -> dict[str, Float[Array, "*chain"]]:
        _, step, form, _ = self._parts()
        if self.spec.form is not None:
            return self.spec.form.named(form)
        if self.spec.jump is None:
            return {}
        free, scaling = self.spec.jumped(step), range_.scaling
        width = {"width": free["width"] * scaling.scale[0]}
        # Of a positive law the softplus stands between.
        return width if self.spec.positive else {"height": free["height"] * scaling.output} | width

    def prior_variance(self, range_: PyTree, x: Float[Array, "point input"]) -> Float[Array, " point"] | None:
        if self.spec.linked or self.spec.form is not None or self.spec.jump is not None:
            return None
        origin = self.spec.build(jr.key(0), range_.scaling).weights

        def at(a: Array) -> Array:
            view = self.with_weights(a).prepare(range_)
            return jax.vmap(lambda x: view(*x))(x)

        # f = basis a + offset: of a mixture over sizes, the mean variance.
        return jax.jacfwd(at)(origin) ** 2 @ jnp.mean(1 / range_.precision(self.log_size), axis=0)

    def unit(self, range_: PyTree) -> float:
        return float(range_.scaling.output)

    @property
    def unknowns(self) -> dict[str, np.ndarray]:
        return {"coordinates": np.asarray(self.coordinates), "log_size": np.asarray(self.log_size)}

    def as_function(self, range_: PyTree) -> TabulatedLaw:
        return self.prepare(range_)

    def log_prior(self, range_: PyTree, view: SolverLaw | None) -> Float[Array, ""]:
        precision = range_.precision(self.log_size)
        square = jnp.sum(precision * self.coordinates**2 - jnp.log(precision))
        density = self.spec.log_size_prior(self.log_size) - 0.5 * square
        return density if self.spec.form is None else density + self.spec.form.log_prior(self._parts()[2])

    def prior_precision(self, range_: PyTree) -> Float[Array, "*chain coordinate"]:
        return range_.precision(self.log_size)

    def redrawn(self, key: PRNGKeyArray, range_: PyTree, spread: ArrayLike = 1.0) -> "SmoothLaw":
        normal = jr.normal(key, jnp.shape(self.coordinates))
        return self.with_weights(spread * normal / jnp.sqrt(range_.precision(self.log_size)))

    @property
    def weights(self) -> PyTree:
        return self.coordinates

    def with_weights(self, weights: PyTree) -> "SmoothLaw":
        return eqx.tree_at(lambda law: law.coordinates, self, weights)

    def reframed(self, old: PyTree, new: PyTree) -> "SmoothLaw":
        """The same law on another table, as nearly as its prior allows; on the host, for one chain."""
        ahead, a = sum(self.spec.ahead), np.asarray(self.coordinates, float)
        design, value, wanted = new.matched(old, a[ahead:])
        precision = np.asarray(new.precision(self.log_size), float)[ahead:]
        weight = 1 / (NEARLY * (np.abs(value).max() + NEARLY)) ** 2
        matrix = weight * design.T @ design + np.diag(precision)
        found = np.linalg.solve(matrix, weight * design.T @ wanted)
        return self.with_weights(jnp.asarray(np.concatenate([a[:ahead], found]), self.coordinates.dtype))

    def continued(self, range_: PyTree, seed: int) -> tuple["SmoothLaw", Frame]:
        if self.spec.inputs == 2 or self.spec.form is not None or self.spec.sharp:  # it ends in straight lines
            return self, range_
        prior = self.spec.prior(range_.scaling)
        assert isinstance(prior, Smooth), "a law without a form has no other"
        frame, _ = longer(range_, prior, self.spec.nodes - 1)
        own = np.asarray(self.coordinates)
        precision = np.asarray(frame.precision(jnp.asarray(self.log_size)), float)[..., own.shape[-1] :]
        drawn = np.random.default_rng(seed).normal(size=precision.shape) / np.sqrt(precision)
        return self.with_weights(jnp.asarray(np.concatenate([own, drawn], axis=-1), own.dtype)), frame

    def with_size(self, log_size: Float[Array, "*chain size"]) -> "SmoothLaw":
        """The same law, of other sizes before data."""
        return eqx.tree_at(lambda law: law.log_size, self, log_size)
