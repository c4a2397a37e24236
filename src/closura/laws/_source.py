"""Expressions as text: what is computed of numbers can be written down of these."""

from collections.abc import Callable, Mapping


def _operator(sign: str) -> "Callable[[Source, Source | float], Source]":
    def joined(left: "Source", other: "Source | float") -> "Source":
        right = other if isinstance(other, Source) else Source(repr(other), left.calls)
        return Source(f"{left.part} {sign} {right.part}", left.calls, f"({left.part} {sign} {right.part})")

    return joined


class Source:
    """The text of an expression, by itself and as a part of another; `calls` says how its language writes functions."""

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
