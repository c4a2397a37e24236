"""Closure learning interleaved with sampling: settings, compiled loops, the run."""

from ._newcomers import CURVES as CURVES
from ._newcomers import FIELDS as FIELDS
from ._newcomers import Draws as NewcomerDraws
from ._newcomers import Stored as Stored
from ._newcomers import infer as infer_newcomers
from ._programs import Chains as Chains
from ._programs import Learned as Learned
from ._programs import Program as Program
from ._programs import Schedule as Schedule
from ._programs import Setup as Setup
from ._programs import learn as learn
from ._programs import sample as sample
from ._progress import cores as cores
from ._progress import drive as drive
from ._run import Run as Run
from ._settings import Settings as Settings
from ._settings import SettingsError as SettingsError
from ._settings import make_settings as make_settings
