"""Laws that are given: a formula to be tested, or one of each chain's own."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray, PyTree

from ._base import AbstractLaw, LawSpec, Scaling


@dataclasses.dataclass(frozen=True)
class Known(LawSpec):
    """A law that is given, `function(x1, x2, ...)` in plain JAX, in place of one to be learned: a formula to be tested.

    Where nobody is sure of its constants, `draw(key)` gives some (a number, an array, or any PyTree of them). Every chain
    then has a law of its own, `function(constants, x1, x2, ...)`, and keeps it: the posterior is a mixture over the draws.

        cl.Known(lambda c, v: c * v**3, draw=lambda key: 0.4 + 0.05 * jax.random.normal(key))
    """

    function: Callable[..., ArrayLike]
    inputs: int = 1
    draw: Callable[[PRNGKeyArray], PyTree[Array]] | None = None

    trainable: ClassVar[bool] = False

    @property
    def per_chain(self) -> bool:
        return self.draw is not None

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "KnownLaw":
        return KnownLaw(self, None if self.draw is None else jax.tree.map(jnp.asarray, self.draw(key)))


class KnownLaw(AbstractLaw):
    """A given function and its constants; a solver calls it as it is."""

    spec: Known = eqx.field(static=True)
    constants: PyTree[Array] = None

    def __call__(self, *x: ArrayLike) -> Array:
        own = () if self.spec.draw is None else (self.constants,)
        return jnp.asarray(self.spec.function(*own, *x))
