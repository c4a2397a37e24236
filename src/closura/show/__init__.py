"""Figures and the HTML report of a run, drawn from a `View` and nothing else."""

from pathlib import Path

from ._report import write_report as write_report
from ._view import ClosureView as ClosureView
from ._view import View as View

FIGURE_NAMES = ("population", "trajectories", "closure", "traces", "hyper_traces", "posteriors")


def save_figures(view: View, folder: Path) -> dict[str, Path]:
    """All figures that apply, as PNG files."""
    from ._figures import save_figures as save  # matplotlib takes a while to load; a fit must not wait for it

    return save(view, folder)
