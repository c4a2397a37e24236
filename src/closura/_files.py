"""Files written whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

PARTIAL = ".partial"


class FolderError(OSError):
    """The run cannot be stored there; the message says why and what to do. `result` is what could not be stored."""

    result: object = None


def write_whole(
    path: Path, write: Callable[[Path], None], *, clear: Callable[[], None] | None = None, first: str = ""
) -> None:
    """`write` into a folder aside, then move its files into place, `first` before the others.

    A full disk leaves nothing half-written. `clear` takes away what was there before.
    """
    aside, made = path / PARTIAL, [place for place in (path, *path.parents) if not place.exists()]
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        write(aside)
        if clear is not None:
            clear()
        files = [item.relative_to(aside) for item in aside.rglob("*") if item.is_file()]
        for name in sorted(files, key=lambda name: name.as_posix() != first):
            (path / name).parent.mkdir(exist_ok=True)
            os.replace(aside / name, path / name)
    except OSError as error:
        why = f"{reason(error)}; make room or choose another folder with --out. Nothing was left half-written"
        raise FolderError(f"cannot write to {path}: {why}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        remove_empty(made)


def remove_empty(folders: list[Path]) -> None:
    """Remove those that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def reason(error: OSError) -> str:
    """Why, in words; wherever in the system it was noticed."""
    return os.strerror(error.errno) if error.errno else str(error)


def folder_for(path: Path) -> Path:
    """The folder that exists where `path` is or would be made; refuses one that cannot be written to."""
    try:
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
    except OSError as error:
        raise FolderError(f"cannot write to {path}: {reason(error)}; choose another folder with --out") from None
    if not there.is_dir():
        raise FolderError(f"{there} is a file; choose another folder with --out")
    if not all(os.access(there, mode) for mode in (os.R_OK, os.W_OK)):
        raise FolderError(f"cannot write to {path}: no permission; choose another folder with --out")
    return there
