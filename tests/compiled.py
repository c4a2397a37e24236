"""Where compiled programs are kept between tests, workers and runs, and how much of them."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

MOST = 1_000_000_000  # bytes; all tests leave some 200 MB behind


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """JAX_COMPILATION_CACHE_DIR where it is set; else a folder outside the checkout, which outlives it."""
    chosen = environment.get("JAX_COMPILATION_CACHE_DIR")
    home = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(home) / "closura" / "compiled"


def prune(folder: Path, most: int = MOST) -> None:
    """Remove the oldest programs of a folder until what is left takes at most `most` bytes."""
    files = []
    for file in folder.glob("*"):
        with contextlib.suppress(OSError):  # another run may prune at the same time
            files.append((file.stat().st_mtime, file.stat().st_size, file))
    excess = sum(size for _, size, _ in files) - most
    for _, size, file in sorted(files):
        if excess <= 0:
            return
        with contextlib.suppress(OSError):
            file.unlink()
        excess -= size
