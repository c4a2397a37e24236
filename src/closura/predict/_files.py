"""The files of a prediction."""

import os
from pathlib import Path

import pandas as pd

from .._files import FolderError, reason, write_whole
from ..show import Forecast

FILES = ("predictions.csv", "parameters.csv", "forecast.png")


def save(
    folder: str | Path, predictions: pd.DataFrame, parameters: pd.DataFrame, view: Forecast, *, overwrite: bool = False
) -> list[Path]:
    """The files of a prediction, all of them or none."""
    from ..show._forecast import forecast

    folder = Path(folder).expanduser()
    check_out(folder, overwrite)

    def write(aside: Path) -> None:
        predictions.to_csv(aside / FILES[0], index=False)
        parameters.to_csv(aside / FILES[1], index=False)
        forecast(view).savefig(aside / FILES[2], dpi=130)

    write_whole(folder, write)
    return [folder / name for name in FILES]


def check_out(folder: Path, overwrite: bool) -> None:
    """Could predictions be kept there? Asked before the work."""
    try:
        taken = [name for name in FILES if (folder / name).exists()]
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as error:
        raise FolderError(f"cannot write to {folder}: {reason(error)}; choose another folder with --out") from None
    if not there.is_dir():
        raise FolderError(f"{there} is a file; choose another folder with --out")
    if not os.access(there, os.W_OK):
        raise FolderError(f"cannot write to {folder}: no permission; choose another folder with --out")
    if taken and not overwrite:
        raise FolderError(f"{folder / taken[0]} exists; choose another --out, or replace it with --overwrite")
