"""Chunks of a history, as a run makes them."""

import numpy as np
import pytest


@pytest.fixture
def chunk():
    """`chunk(first, phase)`: three iterations, with figures that are exact in single precision."""

    def make(first, phase="learn", **changed):
        at = np.arange(first, first + 3)
        entries = {
            "iteration": at,
            "phase": np.full(3, phase),
            "seconds": np.full(3, first / 8),
            "loglik": np.array(-at, np.float32) - np.float32(0.1),
            "surrogate_loss": np.full(3, np.nan, np.float32),
        }
        return entries | changed

    return make
