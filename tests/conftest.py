"""Fixtures every test may ask for."""

import jax
import pytest


@pytest.fixture
def float64():
    """Double precision for one test; the default is restored after it."""
    with jax.enable_x64(True):
        yield
