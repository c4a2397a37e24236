"""Figures and the HTML report of a run, drawn from a `View` and nothing else."""

from ._figures import save_figures as save_figures
from ._report import write_report as write_report
from ._view import ClosureView as ClosureView
from ._view import View as View
