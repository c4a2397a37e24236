"""Expressions as text: what is computed of numbers can be written down of these."""

from collections.abc import Callable

ATOM, UNARY, PRODUCT, SUM, COMPARISON, LOGIC = range(6)  # from what binds most tightly


class Source:
    """The text of an expression, and how tightly its outermost operator binds."""

    def __init__(self, text: str, binds: int = ATOM):
        self.text, self.binds = text, binds

    def __str__(self) -> str:
        return self.text

    def within(self, most: int) -> str:
        """As a part of something that leaves together what binds as tightly as `most`."""
        return self.text if self.binds <= most else f"({self.text})"

    def join(self, sign: str, other: "Source | float", binds: int) -> "Source":
        right = other if isinstance(other, Source) else Source(repr(other))
        parts = ATOM if binds == LOGIC else binds  # Python's & binds more tightly than its comparisons, that of C less
        return Source(f"{self.within(parts)} {sign} {right.within(min(parts, binds - 1))}", binds)

    def __neg__(self) -> "Source":
        return Source(f"-{self.within(ATOM)}", UNARY)

    def __rmul__(self, other: float) -> "Source":
        return Source(repr(other)) * self

    @staticmethod
    def _operator(sign: str, binds: int) -> "Callable[[Source, Source | float], Source]":
        return lambda one, other: one.join(sign, other, binds)

    # Written alike in Python and C.
    __add__, __sub__ = _operator("+", SUM), _operator("-", SUM)
    __mul__, __truediv__ = _operator("*", PRODUCT), _operator("/", PRODUCT)
    __lt__, __le__ = _operator("<", COMPARISON), _operator("<=", COMPARISON)
    __gt__, __ge__ = _operator(">", COMPARISON), _operator(">=", COMPARISON)
    __and__, __or__ = _operator("&", LOGIC), _operator("|", LOGIC)
