"""What the tests of tables share."""

import numpy as np
import pandas as pd
import pytest

from closura.data._observations import DataError, Observations, read_table

ARRAYS = ("time", "quantity", "value", "sigma", "mask")


def frame_of(text: str) -> pd.DataFrame:
    """'A 0 1; A 1 2' as a table of system, time, u."""
    rows = [row.split() for row in text.split(";")]
    return pd.DataFrame([(s, float(t), float(u)) for s, t, u in rows], columns=["system", "time", "u"])


def assert_same(left: Observations, right: Observations) -> None:
    assert left.systems == right.systems
    assert left.quantities == right.quantities
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


def message(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path, **options)
    return str(caught.value)


def assert_says(text: str, *parts: str) -> None:
    for part in parts:
        assert part in text, f"{part!r} is not in: {text}"
