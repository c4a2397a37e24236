"""What a law promises, stated once: network, table, Python, C and small changes of a law all derive from it.

A law is  f(x) = finish(x, raw(x)).  `raw` is what a network says, made symmetric and moved to the origin where that is
promised; `finish` gives sign and units. Both are stated over a handful of operations: of arrays they compute, of text
(`Source`) they write a program.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

FLAGS = ("odd", "even", "zero_at_origin", "positive", "increasing", "dissipative")
# Which two exclude each other, from how many inputs on, and why; whatever is not here can be had together.
CONTRADICTIONS = (
    ("odd", "even", 1, "only zero is both"),
    ("odd", "positive", 1, "an odd law changes its sign"),
    ("even", "increasing", 1, "an even law falls where its mirror image grows"),
    ("even", "dissipative", 1, "a dissipative law changes its sign"),
    ("positive", "dissipative", 1, "a dissipative law changes its sign"),
    ("positive", "zero_at_origin", 1, "zero is not positive"),
    ("increasing", "dissipative", 2, "where its first input is zero a dissipative law is, and cannot grow with others"),
)


def _operator(sign: str) -> "Callable[[Source, Source | float], Source]":
    def joined(left: "Source", other: "Source | float") -> "Source":
        right = other if isinstance(other, Source) else Source(repr(other), left.calls)
        return Source(f"{left.part} {sign} {right.part}", left.calls, f"({left.part} {sign} {right.part})")

    return joined


class Source:
    """The text of an expression, by itself and as a part of another; `calls` says how its language writes functions.

    What is computed of numbers can be written down of these.
    """

    def __init__(self, text: str, calls: Mapping[str, str], part: str | None = None):
        self.text, self.calls, self.part = text, calls, part or text

    def call(self, name: str, *more: "Source") -> "Source":
        """`name` of this and `more`."""
        texts = [x.text for x in (self, *more)]
        return Source(self.calls[name].format(*texts, all=", ".join(texts)), self.calls)

    def __neg__(self) -> "Source":
        return Source(f"-{self.part}", self.calls)

    def __rmul__(self, other: float) -> "Source":
        return Source(repr(other), self.calls) * self

    # Written alike in Python and C.
    __add__, __sub__, __mul__, __truediv__ = map(_operator, ("+", "-", "*", "/"))
    __lt__, __gt__, __le__, __ge__ = map(_operator, ("<", ">", "<=", ">="))
    __and__, __or__, __eq__ = map(_operator, ("&", "|", "=="))  # type: ignore[assignment]


T = TypeVar("T", Array, Source)


@dataclasses.dataclass(frozen=True)
class Structure:
    """What a law of so many `inputs` promises; see `MLP` for the meaning of each.

    `sharpness`: of the softplus in a factor, log(1 + e^(sharpness raw)) / sharpness.
    """

    inputs: int = 1
    odd: bool = False
    even: bool = False
    zero_at_origin: bool = False
    positive: bool = False
    increasing: bool = False
    dissipative: bool = False
    sharpness: float = 1.0

    def check(self) -> None:
        """Raise if two of the promises contradict each other."""
        for one, other, least, why in CONTRADICTIONS:
            if getattr(self, one) and getattr(self, other) and self.inputs >= least:
                raise ValueError(f"{one} and {other} contradict each other; choose one: {why}")

    @property
    def promised(self) -> tuple[str, ...]:
        return tuple(flag for flag in FLAGS if getattr(self, flag))

    @property
    def symmetric(self) -> bool:
        """About the origin, one way or the other."""
        return self.odd or self.even

    @property
    def factored(self) -> bool:
        """Dissipative without growing: x times a positive factor. (Increasing through the origin is dissipative anyway.)"""
        return self.dissipative and not self.increasing

    @property
    def shifted(self) -> bool:
        """Zero at the origin by subtraction, where no symmetry or factor makes it so."""
        wanted = self.zero_at_origin or (self.dissipative and self.increasing)
        return wanted and not self.factored and not self.odd

    def raw(self, plain: Callable[..., T], x: tuple[T, ...]) -> T:
        """What comes before `finish`, from a function `plain` that promises nothing but to grow where the law does."""
        # A dissipative odd law is x times an even factor.
        value = self._reflected(plain, x, even=self.even or self.factored)
        return value - plain(*map(_zero, x)) if self.shifted else value

    def finish(self, x: tuple[T, ...], raw: T, scale: T, output: T) -> T:
        """The law, from `raw`; `scale` is that of the first input."""
        if self.positive:
            return _above_zero(output * softplus(raw))  # softplus underflows far below zero
        if self.factored:
            return output * (x[0] / scale) * softplus(self.sharpness * raw) / self.sharpness
        # Zero at the origin, and the sign of x, to the last bit: the values whose difference raw is round differently.
        if self.dissipative:
            raw = _zero_where(((x[0] >= 0) & (raw < 0)) | ((x[0] <= 0) & (raw > 0)), raw)
        elif self.shifted:
            raw = _zero_where(_all_zero(x), raw)
        return output * raw

    @property
    def linear(self) -> bool:
        """The law is proportional to `raw`: the mean of laws comes from the mean of what is before `finish`."""
        return not self.positive and not self.factored

    def side(self, x: tuple[T, ...]) -> T:
        """1 where the first input that is not zero is positive, else -1."""
        side = _either(x[-1] >= 0, 1.0, -1.0)
        for xi in x[-2::-1]:
            side = _either(xi == 0, side, _either(xi > 0, 1.0, -1.0))
        return side

    def folded(self, law: Callable[..., Array], x: tuple[Array, ...]) -> Array:
        """A law that promises all but its symmetry, made symmetric to the last bit by one call: on the side where the first
        input that is not zero is positive, and reflected."""
        if not self.symmetric:
            return law(*x)
        side = self.side(x)
        value = law(*(side * xi for xi in x))
        return side * value if self.odd else value

    def perturbation(self, shape: Callable[..., Array], x: tuple[Array, ...]) -> Array:
        """What of a small change `shape` a law of this structure can follow.

        Symmetry and zeros restrict it. Signs and growth do not: a law that keeps them strictly still does after a change
        that is small enough.
        """

        def restricted(*x: Array) -> Array:
            change = self._reflected(shape, x, self.even)
            if not self.dissipative and not self.zero_at_origin:
                return change
            held = x[:1] if self.dissipative else x  # a dissipative law is zero wherever its first input is
            there = (*map(jnp.zeros_like, held), *x[len(held) :])
            change = change - self._reflected(shape, there, self.even)
            return _zero_where(_all_zero(held), change)

        return self.folded(restricted, x)

    def _reflected(self, function: Callable[..., T], x: tuple[T, ...], even: bool) -> T:
        value = function(*x)
        if not self.symmetric:
            return value
        mirrored = function(*(-xi for xi in x))
        return 0.5 * (value + mirrored if even else value - mirrored)


# Beside arithmetic and comparison, all that structure needs of a number.


def softplus(x: T) -> T:
    return x.call("softplus") if isinstance(x, Source) else jax.nn.softplus(x)


def _above_zero(x: T) -> T:
    """The least positive number where x, which is not negative, is smaller than that."""
    return x.call("above_zero") if isinstance(x, Source) else jnp.maximum(x, jnp.finfo(x.dtype).tiny)


def _zero(like: T) -> T:
    return Source("0.0", like.calls) if isinstance(like, Source) else jnp.zeros_like(like)


def _all_zero(x: tuple[T, ...]) -> T:
    return functools.reduce(operator.and_, [xi == 0 for xi in x])


def _either(condition: T, one: T | float, other: T | float) -> T:
    if isinstance(condition, Source):
        texts = (x if isinstance(x, Source) else Source(repr(x), condition.calls) for x in (one, other))
        return condition.call("either", *texts)
    return jnp.where(condition, one, other)


def _zero_where(condition: T, value: T) -> T:
    """Zero there, with the derivative of `value` all the same."""
    if isinstance(value, Source):
        return condition.call("zero_where", value)
    return value + lax.stop_gradient(jnp.where(condition, 0.0, value) - value)
