"""Closure learning interleaved with sampling: settings, compiled loops, the run."""

from ._program import DRAWS as DRAWS, SAME as SAME, STATE as STATE, Program as Program
from ._progress import cores as cores, drive as drive
from ._run import Run as Run
from ._settings import (
    Given as Given,
    Settings as Settings,
    SettingsError as SettingsError,
    checked as checked,
    current_names as current_names,
    help_of as help_of,
    make_settings as make_settings,
    unknown as unknown,
)
from ._setup import (
    AXIS as AXIS,
    Draws as Draws,
    Schedule as Schedule,
    Setup as Setup,
    State as State,
    begin as begin,
)
from .algorithm import learn as learn, sample as sample
