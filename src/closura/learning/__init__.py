"""Closure learning interleaved with sampling: settings, compiled loops, the run."""

from ._newcomers import CURVES as CURVES
from ._newcomers import FIELDS as FIELDS
from ._newcomers import Draws as NewcomerDraws
from ._newcomers import Stored as Stored
from ._newcomers import infer as infer_newcomers
from ._progress import cores as cores
from ._progress import drive as drive
from ._run import Run as Run
from ._settings import Given as Given
from ._settings import Settings as Settings
from ._settings import SettingsError as SettingsError
from ._settings import checked as checked
from ._settings import help_of as help_of
from ._settings import make_settings as make_settings
from ._settings import unknown as unknown
from .algorithm import Chains as Chains
from .algorithm import Learned as Learned
from .algorithm import Program as Program
from .algorithm import Schedule as Schedule
from .algorithm import Setup as Setup
from .algorithm import learn as learn
from .algorithm import sample as sample
