"""What a run says of how it learns its laws, in sentences."""

from typing import TYPE_CHECKING

import numpy as np

from ._newton import ROUNDS
from ._settings import Settings

if TYPE_CHECKING:
    from ._run import Run


def network_note(laws: str, settings: Settings) -> str:
    """That unknown laws are networks in this run, and how they could be sampled."""
    cure = "its solutions are expensive: forward='basis' with law_kind='sampled' (--law sampled) samples it"
    if settings.networks:
        cure = f"forward={settings.forward!r} knows no other, forward='basis' and forward='solver' do"
    return f"law {laws} is a network here, without error bars of its own; {cure}"


def learning_notes(run: "Run") -> list[str]:
    """What is to be said of how the learning of sampled laws ended, and of what keeps their chains from moving."""
    notes = [note for name in run.sampled for note in _far_points(run, name)]
    if run.cut_short:
        return [f"Learning was cut short by the clock: raise minutes (now {run.settings.minutes:g}).", *notes]
    over = bool(run.sampled) and run.learned is None and run.phase != "learn"
    if over and (run.arrived < ROUNDS or run.still_rising):
        moving = f"Laws were still moving when learning ended: raise --iterations (now {run.settings.iterations})."
        return [moving, *notes]
    return notes


def _far_points(run: "Run", name: str) -> list[str]:
    """Points through which a law is to go where no system goes: they fix no scale."""
    spec, grid = run.problem.closures[name], run.law_inputs.get(name, [])
    low, high = np.min(grid, initial=np.inf), np.max(grid, initial=-np.inf)
    far = [x for x, value in spec.points if value != 0 and not low <= x <= high]
    return [
        f"Law {name} is given at {x:g}, but systems go from {low:.3g} to {high:.3g}: what is fixed there is not fixed where data are, and chains "
        f"move slowly between laws of other sizes. Give it at a point between these, as in at={{{(low + high) / 2:.2g}: ...}}."
        for x in (far if len(grid) else [])
    ]
