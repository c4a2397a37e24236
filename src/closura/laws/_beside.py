"""What a law has beside its table, in closed form: what no table of equidistant nodes can hold.

    Step   tanh(z / w) (h + d z + c z^2 / 2) / 2,      z = (x - x0) / scale      a rounded jump, each side smooth on its own
    Form   form(x, p) / output                                                    a formula with parameters of its own

Both are added to what the table says, in units of the law.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._form import KnownForm
from ._structure import Source, T

Number = Any  # an array, and where the term is written a plain float


class Beside(eqx.Module):
    """A term of one input beside a law's table."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        """The term there, in units of the law."""

    @abc.abstractmethod
    def written(self, x: Source) -> Source | None:
        """The same as a program; None where only Python knows it."""


class Step(Beside):
    """A jump of `height` at `at`, rounded over `width`; beyond it gradient and curvature are others by so much.

    - `width`, `gradient`, `curvature` and the table's ends `low`, `high` are in units of the input, `scale`, from `at` on.
    - Outside the table all but the rounding goes on as a straight line, as the table does.
    - `anchor`: where the term vanishes, beside `at`; the law has a given value there.
    """

    height: Number
    width: Number
    gradient: Number
    curvature: Number
    scale: Number
    low: Number
    high: Number
    at: float = eqx.field(static=True)
    anchor: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        value = self._from(x)
        return value if self.anchor == self.at else value - self._from(jnp.asarray(self.anchor, float))

    def written(self, x: Source) -> Source:
        there = float(self._from(jnp.asarray(self.anchor, float)))
        return jax.tree.map(float, self)._from(x) - there

    def _from(self, x: T) -> T:
        z = (x - self.at) / self.scale
        inside = _clip(z, self.low, self.high)
        curved = inside * self.curvature
        line = inside * (0.5 * curved + self.gradient) + (z - inside) * (curved + self.gradient) + self.height
        return 0.5 * (_tanh(z / self.width) * line)


class Form(Beside):
    """A formula of the input, its parameters `theta` on their unconstrained scale."""

    theta: Float[Array, " parameter"]
    output: Float[Array, ""]
    form: KnownForm = eqx.field(static=True)

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return self.form.at(self.theta, x) / self.output

    def written(self, x: Source) -> None:
        return None


def _tanh(x: T) -> T:
    return x.call("tanh") if isinstance(x, Source) else jnp.tanh(x)


def _clip(x: T, low: Number, high: Number) -> T:
    if isinstance(x, Source):
        return x.call("clip", Source(repr(low), x.calls), Source(repr(high), x.calls))
    return jnp.clip(x, low, high)
