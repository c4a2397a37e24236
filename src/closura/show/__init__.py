"""Figures and the HTML report of a run, drawn from a `View` and nothing else.

matplotlib takes a while to load; a fit does not wait for it.
"""

from pathlib import Path

from ._view import (
    BandView as BandView,
    ClosureView as ClosureView,
    Forecast as Forecast,
    ResidualView as ResidualView,
    TraceView as TraceView,
    View as View,
    evenly as evenly,
)

FIGURE_NAMES = ("population", "fit", "checks", "closure", "traces", "hyper_traces", "posteriors")


def save_figures(view: View, folder: Path) -> dict[str, Path]:
    """All figures that apply, as PNG files."""
    from ._figures import save_figures as save

    return save(view, folder)


def write_report(view: View, figures: dict[str, Path], path: Path) -> None:
    """One self-contained page: the verdict first, then figures and tables."""
    from ._report import write_report as write

    write(view, figures, path)
