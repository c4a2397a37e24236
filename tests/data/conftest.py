"""A table written to a file."""

from pathlib import Path

import pytest


@pytest.fixture
def save(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "fleet.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
