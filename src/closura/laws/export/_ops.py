"""Structure and activations in other languages: what they do with numbers, written down."""

from collections.abc import Callable

from .._source import COMPARISON, Source
from .._structure import Ops


class SourceOps(Ops[Source]):
    """The operations of a structure in a language: `calls` says how its functions are written, where not as elsewhere."""

    def __init__(self, calls: dict[str, str], tiny: float):
        self.calls, self.tiny = calls, tiny

    def call(self, name: str, *x: Source) -> Source:
        return Source(self.calls.get(name, name + "({})").format(", ".join(map(str, x))))

    def zero(self, like: Source) -> Source:
        return Source("0.0")

    def is_zero(self, x: Source) -> Source:
        return x.join("==", 0.0, COMPARISON)

    def where(self, condition: Source, this: float, that: Source) -> Source:
        return Source(self.calls["where"].format(condition, this, that))

    def softplus(self, x: Source) -> Source:
        return self.call("softplus", x)

    def above_zero(self, x: Source) -> Source:
        return self.call("maximum", x, Source(repr(self.tiny)))

    def exactly(self, value: Source, rounded: Source) -> Source:
        return value


def _silu(ops: SourceOps, h: Source) -> Source:
    return h * ops.call("exp", -ops.softplus(-h))


def _tanh(ops: SourceOps, h: Source) -> Source:
    return ops.call("tanh", h)


def _gelu(ops: SourceOps, h: Source) -> Source:
    return 0.5 * h * (Source("1.0") + ops.call("tanh", 0.7978845608028654 * (h + 0.044715 * h * h * h)))


ACTIVATIONS: dict[str, Callable[[SourceOps, Source], Source]] = {"silu": _silu, "tanh": _tanh, "gelu": _gelu}
