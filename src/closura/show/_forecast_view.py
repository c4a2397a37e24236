"""What the picture of a forecast needs to know, as plain tables."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, eq=False)
class Forecast:
    """- `after`, `before`: columns system, one per coordinate, quantity, 2.5%, 97.5%, mean, and those of a measurement;
      `before` is what the population said without data, None where it is not shown.
    - `observed`: columns system, one per coordinate, quantity, value.
    - `titles`: a sentence for each system.
    """

    axes: tuple[str, ...]
    systems: tuple[str, ...]
    quantities: tuple[str, ...]
    after: pd.DataFrame
    before: pd.DataFrame | None
    observed: pd.DataFrame
    titles: list[str]

    @property
    def drawable(self) -> bool:
        """Curves over time, if need be at a few places: a field in the plane has none."""
        return self.axes[0] == "time"
