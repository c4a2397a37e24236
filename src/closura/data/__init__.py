"""Observations: ragged tables of many systems, read from any file."""

from ._long_table import DataError as DataError
from ._observations import Observations as Observations, by_quantity as by_quantity, read_table as read_table
