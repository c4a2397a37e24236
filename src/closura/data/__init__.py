"""Observations: ragged tables of many systems, read from any file."""

from ._observations import DataError as DataError
from ._observations import Observations as Observations
from ._observations import by_quantity as by_quantity
from ._observations import read_table as read_table
