"""Laws of an earlier fit, told by the number of the draw they belong to."""

import equinox as eqx
import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from ._base import AbstractLaw, LawSpec, SolverLaw


class StoredLaw(AbstractLaw):
    """The law of one stored draw. What it is prepared with are the laws of all of them as solvers call them, the draw axis
    first: chains then carry a number where they would carry a table."""

    spec: LawSpec = eqx.field(static=True)
    which: Int[Array, "*chain"]

    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        raise TypeError("a stored law is called as prepared: law.prepare(laws of all draws)(x)")

    def prepare(self, range_: PyTree) -> SolverLaw:
        return jax.tree.map(lambda a: a[self.which], range_)
