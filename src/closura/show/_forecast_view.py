"""What the picture of a forecast needs to know, as plain tables."""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class Forecast:
    """- `after`, `before`: columns system, one per coordinate, quantity, 2.5%, 97.5%, mean, and those of a measurement;
      `before` is what the population said without data, None where it is not shown.
    - `observed`: columns system, one per coordinate, quantity, value.
    - `titles`: a sentence for each system.
    - `grid`: the places of `after` in their order (point, axis), of a structured `shape`, or else joined by `triangles`.
    """

    axes: tuple[str, ...]
    systems: tuple[str, ...]
    quantities: tuple[str, ...]
    after: pd.DataFrame
    before: pd.DataFrame | None
    observed: pd.DataFrame
    titles: list[str]
    grid: np.ndarray
    shape: tuple[int, ...] | None
    triangles: np.ndarray | None

    @property
    def timed(self) -> bool:
        """Curves over time, if need be at a few places; or fields in the plane?"""
        return self.axes[0] == "time"
