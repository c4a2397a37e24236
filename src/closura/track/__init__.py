"""What follows a run while it works, from plain numbers: a file of lines, and trackers."""

from ._follow import HISTORY as HISTORY, IDS as IDS, JsonLines as JsonLines, Trackers as Trackers
from ._trackers import EVENTS as EVENTS, Tracker as Tracker, TrackerError as TrackerError
