"""`closura predict`: forecasts of fitted systems and of newcomers, from a run folder."""

import warnings
from pathlib import Path
from typing import Any

import typer

from ..data import DataError, read_table
from ..predict import Fleet, check_out, forecast_view, save_predictions
from ..runs import LoadError, load
from ._data import load_problem
from ._options import Context


def predict_from(
    folder: Path, context: Context, data: Path | None, until: float | None, out: Path, overwrite: bool, **reading: Any
) -> bool:
    """Print and write; do all newcomers belong?"""
    check_out(out, overwrite)
    if not context.problem:
        raise LoadError(
            f"{folder} was fitted in Python and does not say with which problem; there, use "
            f"closura.load({str(folder)!r}, problem).predict() or .newcomer(table)"
        )
    fleet = load(folder, load_problem(context, folder)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        if data is None:
            return _fitted(fleet, until, out, overwrite)
        try:
            table = read_table(data, axes=fleet.problem.axes, **reading)
        except DataError as error:
            raise DataError(f"{error} (a table of newcomers has the columns that the fit's table had)") from None
        newcomers = fleet.newcomer(table, until=until)
        typer.echo(str(newcomers))
        for path in newcomers.save(out, overwrite=overwrite):
            typer.echo(path)
    return all(newcomers.belongs.values())


def _fitted(fleet: Fleet, until: float | None, out: Path, overwrite: bool) -> bool:
    for note in fleet.notes:
        typer.echo(f"note: {note}")
    predictions = fleet.predict(until=until)
    view = forecast_view(fleet.problem, fleet.data, predictions, None, list(fleet.data.systems))
    last = predictions[fleet.problem.axes[0]].max()
    reach = f" up to {fleet.problem.axes[0]} {last:g}" if fleet.problem.axes[0] == "time" else ""
    typer.echo(f"{len(fleet.data.systems)} fitted systems predicted{reach}.")
    for path in save_predictions(out, predictions, fleet.summary(), view, overwrite=overwrite):
        typer.echo(path)
    return True
