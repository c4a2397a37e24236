"""Which ways to state a sampled law go together; what is not in these tables is refused with a sentence."""

import math
from collections.abc import Collection

FLAGS = ("odd", "even", "zero_at_origin", "positive", "increasing", "decreasing", "convex", "concave", "dissipative")
STATED = (*FLAGS, "at", "kink", "jump", "around")
NOT_YET = "both at once are not there yet; choose the one you are surer of"
# Beside those of every law (see `_structure`): which exclude each other, and why.
CONTRADICTIONS = (
    ("increasing", "decreasing", "no law grows and falls"),
    ("convex", "concave", "only straight lines are both"),
    ("increasing", "convex", NOT_YET),
    ("increasing", "concave", NOT_YET),
    ("decreasing", "convex", NOT_YET),
    ("decreasing", "concave", NOT_YET),
    ("decreasing", "dissipative", "a dissipative law grows through the origin"),
    ("dissipative", "convex", NOT_YET),
    ("dissipative", "concave", NOT_YET),
    ("even", "decreasing", "an even law grows where its mirror image falls"),
    ("odd", "convex", "an odd law bends both ways"),
    ("odd", "concave", "an odd law bends both ways"),
    ("positive", "concave", "a concave law falls below zero somewhere"),
)
# What a kink, a jump and a known form go together with.
TOGETHER = {
    "kink": ("odd", "even", "zero_at_origin", "positive", "increasing", "decreasing", "dissipative", "at"),
    "jump": ("odd", "zero_at_origin", "positive", "increasing", "decreasing", "dissipative", "at"),
    "around": ("odd", "even", "zero_at_origin"),
}
WHY = {
    ("kink", "jump"): "where a law jumps its gradient may differ on both sides anyway; leave kink out",
    ("jump", "even"): "an even law is the same on both sides of zero; use kink=0.0",
    ("jump", "convex"): "a convex law has no jumps; use kink or leave convex out",
    ("jump", "concave"): "a concave law has no jumps; use kink or leave concave out",
    ("around", "kink"): "write the kink into the form, as in p.c * jnp.abs(v)",
    ("around", "jump"): "write the jump into the form, as in p.c * jnp.tanh(v / p.w)",
    (
        "around",
        "at",
    ): "a form with parameters goes through a point for some of them only; write the point into the form",
}


def check_contradictions(stated: Collection[str]) -> None:
    """Raise where two of what is stated exclude each other."""
    for one, other, why in CONTRADICTIONS:
        if one in stated and other in stated:
            raise ValueError(f"{one} and {other} contradict each other; choose one: {why}")
    for kind in ("kink", "jump", "around"):
        for other in stated if kind in stated else ():
            if other != kind and other not in TOGETHER[kind]:
                why = WHY.get((kind, other)) or WHY.get((other, kind), NOT_YET)
                raise ValueError(f"Law: {kind} and {other} do not go together: {why}")
    if {"jump", "dissipative"} <= set(stated) and "increasing" not in stated:
        raise ValueError("Law: jump and dissipative go together with increasing only; add it, or leave dissipative out")


def check_place(name: str, place: float, stated: Collection[str], reference: float | None) -> None:
    """Raise where a law cannot have its kink or jump there."""
    word = f"Law: {name}={place}"
    if not math.isfinite(place):
        raise ValueError(f"{word} must be a finite number, the input at which it is")
    held = [flag for flag in ("odd", "even", "dissipative") if flag in stated]
    integrated = [flag for flag in ("increasing", "decreasing") if flag in stated]
    held += ["zero_at_origin"] if integrated and "zero_at_origin" in stated else []
    if held and place != 0.0:
        raise ValueError(f"{word}: a law that is {held[0]} can have its {name} at 0.0 only; move it, or drop {held[0]}")
    if (name == "kink" or integrated) and reference is not None and reference != place:
        raise ValueError(f"{word} is where the prior is stated; drop reference={reference}")
