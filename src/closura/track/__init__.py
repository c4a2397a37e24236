"""What follows a run while it works, from plain numbers: a file of lines, and trackers."""

from ._follow import IDS as IDS
from ._follow import Trackers as Trackers
from ._json_lines import NAME as HISTORY
from ._json_lines import JsonLines as JsonLines
from ._trackers import EVENTS as EVENTS
from ._trackers import Tracker as Tracker
from ._trackers import TrackerError as TrackerError
