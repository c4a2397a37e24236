"""Observations: ragged tables of many systems, read from any file."""

from ._observations import (
    DataError as DataError,
    Observations as Observations,
    by_quantity as by_quantity,
    read_table as read_table,
)
