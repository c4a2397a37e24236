"""Closure learning interleaved with sampling: settings, compiled loops, the run."""

from ._hypergradients import AXIS as AXIS
from ._hypergradients import begin as begin
from ._program import DRAWS as DRAWS
from ._program import SAME as SAME
from ._program import STATE as STATE
from ._program import Program as Program
from ._progress import cores as cores
from ._progress import drive as drive
from ._run import Run as Run
from ._settings import Given as Given
from ._settings import Settings as Settings
from ._settings import SettingsError as SettingsError
from ._settings import checked as checked
from ._settings import current_names as current_names
from ._settings import help_of as help_of
from ._settings import make_settings as make_settings
from ._settings import unknown as unknown
from ._setup import Draws as Draws
from ._setup import Schedule as Schedule
from ._setup import Setup as Setup
from ._setup import State as State
from .algorithm import learn as learn
from .algorithm import sample as sample
