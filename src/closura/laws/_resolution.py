"""Whether the nodes of a law's table are close enough to show it.

    |E(r_{i+1} - r_i)| > SHARE max |E r|,      r_i = f_{i+1} - f_i the rise over a cell

says that the law bends too fast at a node. A dozen nodes a wave resolve it; a step between two nodes is not resolved. What may
be noise is not counted.
"""

import numpy as np
from jaxtyping import Float

from ._fitted import ENOUGH, FittedLaw

SHARE = 0.5  # of the largest rise, by which that of the next cell may differ
SDS = 3.0  # posterior standard deviations that a bend must differ from none


def steepest_bend(x: Float[np.ndarray, " node"], draws: Float[np.ndarray, "draw node"]) -> float | None:
    """The node where draws of a law bend most, if nodes this far apart do not resolve it; else None."""
    if len(x) < 3:
        return None
    rise = np.diff(draws, axis=1)
    bend = np.diff(rise, axis=1)
    sharp = np.abs(bend.mean(axis=0)) / max(np.abs(rise.mean(axis=0)).max(), np.finfo(float).tiny)
    sharp = np.where(np.abs(bend.mean(axis=0)) > SDS * bend.std(axis=0), sharp, 0.0)
    place = int(np.argmax(sharp))
    return float(x[place + 1]) if sharp[place] > SHARE else None


def unresolved(found: FittedLaw) -> str | None:
    """A remark where data say that a law is steeper than its nodes resolve; None where they are close enough."""
    nodes = found.law.node_places(found.table)
    if nodes is None or found.support is None:
        return None
    inside = nodes[(nodes >= found.support.low[0]) & (nodes <= found.support.high[0])]
    draws = found.draws(inside, most=ENOUGH)
    place, step, sharp = None, float(nodes[1] - nodes[0]), found.law.spec.sharp
    # On each side of a sharp place that is stated by itself.
    for low, high in zip((-np.inf, *sharp), (*sharp, np.inf)):
        side = (inside > low + 1e-3 * step) & (inside < high - 1e-3 * step)
        place = steepest_bend(inside[side], draws[:, side]) if place is None else place
    if place is None:
        return None
    name = f"near {found.inputs[0]} = {place:.3g} than its nodes, {step:.2g} apart, resolve"
    remedy = "" if sharp else "if it breaks there, say where with jump= or kink=, else "
    return f"Law {found.name} bends faster {name}: {remedy}give it more of them, as in nodes={2 * len(nodes) - 1}."
