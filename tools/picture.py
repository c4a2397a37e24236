"""The picture of the README: twenty oscillators, what was measured of them, and the law they share.

python tools/picture.py
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import closura as cl
from closura.problems import mass_damper
from closura.show._figures import BLACK, BLUE, GREY, ORANGE, STYLE

PLACE = Path(__file__).parent.parent / "docs" / "images" / "fleet.png"
ROWS, COLUMNS = 4, 5


@matplotlib.rc_context(STYLE | {"font.size": 9})
def main() -> None:
    cl.use_cores()
    data, truth = mass_damper.simulate(ROWS * COLUMNS, seed=0)
    view = cl.fit(mass_damper.problem, data, truth=truth).view
    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    fits, law = figure.subfigures(1, 2, width_ratios=[1.35, 1], wspace=0.04)
    fits.suptitle(f"{len(data.place[data.mask])} measurements of {len(view.systems)} oscillators, fitted together")
    for index, axes in enumerate(fits.subplots(ROWS, COLUMNS, sharex=True, sharey=True).flat):
        mine = view.observations[view.observations["system"] == view.systems[index]]
        axes.fill_between(
            view.grid[:, 0], view.fit_low[index, 0], view.fit_high[index, 0], color=BLUE, alpha=0.25, linewidth=0
        )
        axes.plot(view.grid[:, 0], view.fit_mean[index, 0], color=BLUE, linewidth=1.3)
        axes.plot(mine["time"], mine["value"], "o", color=ORANGE, markersize=3)
        axes.tick_params(length=2, labelsize=7)
    law.suptitle("the damping law they share, found without a formula")
    one = view.closures[0]
    x, low, high = one.grid[:, 0], *one.support
    inside = (x >= low) & (x <= high)
    above, below = law.subplots(2, 1, sharex=True, height_ratios=[5, 1])
    for axes in (above, below):
        axes.axvspan(x[0], low, color=GREY, linewidth=0)
        axes.axvspan(high, x[-1], color=GREY, linewidth=0)
    above.plot(x, one.truth, color=BLACK, linestyle="--", linewidth=1.3, label="truth")
    above.plot(x, np.where(inside, one.value, np.nan), color=BLUE, linewidth=2.4, label="learned")
    above.set(ylabel="damping force", ylim=one.limits())
    above.legend(loc="upper left")
    below.fill_between(x, 0, one.density, color=ORANGE, alpha=0.75, linewidth=0)
    below.set(yticks=[], ylim=(0, None), xlim=(x[0], x[-1]), xlabel="velocity (grey: no data)", ylabel="data")
    figure.savefig(PLACE, dpi=110)


if __name__ == "__main__":
    main()
