"""What follows a run while it works, from plain numbers: a file of lines, and trackers."""

from ._follow import IDS as IDS, Trackers as Trackers
from ._json_lines import NAME as HISTORY, JsonLines as JsonLines
from ._trackers import EVENTS as EVENTS, Tracker as Tracker, TrackerError as TrackerError
