"""The command line: parse, call, print."""

import contextlib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

from .._check import check as check_fleet
from .._fit import fit as fit_fleet, use_cores
from ..data import DataError, read_table
from ..equations import ProblemError
from ..laws import LawError
from ..learning import SettingsError, checked, make_settings
from ..predict import Fleet, check_out, forecast_view, save_predictions
from ..problems import BUILT_IN
from ..runs import FolderError, LoadError, export_from, find_checkpoint, holds_run, load
from ..track import TrackerError
from ._data import built_in, load_problem, load_task, read_facts, write_simulation
from ._options import OPTIONS, Context, UsageError, choose, with_options
from ._problem_file import write_start

EXPECTED = (UsageError, DataError, ProblemError, SettingsError, FolderError, LawError, LoadError, TrackerError)

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
RunFolder = Annotated[Path, typer.Argument(help="folder of a run")]


def _say_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"closura {metadata.version('closura')}")
        raise typer.Exit
    return asked


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="say which version this is", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Many related systems, one hidden law: parameters with error bars, their population, and the law they share."""


def main() -> None:
    """Entry point: expected errors become a message on stderr, unexpected ones keep their traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console may not know every letter
    try:
        app(standalone_mode=True)
    except EXPECTED as error:
        print(f"closura: {error}", file=sys.stderr)
        sys.exit(2)


@app.command("list")
def list_() -> None:
    """Built-in problems, with what they show."""
    for name, known in BUILT_IN.items():
        typer.echo(f"{name:<16} {known.shows}")


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="Python file to write")],
    kind: Annotated[str, typer.Option(help="ode, elliptic or evolution")] = "ode",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file")] = False,
) -> None:
    """Write a commented starting point for your own problem."""
    write_start(path, kind, overwrite)
    typer.echo(
        f"{path}: change what is marked, then `closura check {path} --data fleet.csv`, and `closura fit` with the same"
    )


@app.command()
def simulate(
    problem: Annotated[str, typer.Argument(help="a built-in problem (see `closura list`)")],
    out: Annotated[Path, typer.Option(help="folder for data.csv and truth.csv")],
    systems: Annotated[int | None, typer.Option(help="number of systems")] = None,
    data_seed: Annotated[int, typer.Option(help="seed of population and noise")] = 0,
    overwrite: Annotated[bool, typer.Option(help="replace data already there")] = False,
) -> None:
    """Write synthetic data with its truth."""
    known = built_in(problem, or_file=False)
    context = checked(Context, {"systems": systems, "data_seed": data_seed})
    for path in write_simulation(known, context, out, overwrite):
        typer.echo(path)


@app.command()
@with_options(*OPTIONS)
def fit(
    out: Path | None,
    overwrite: bool,
    config: Path | None,
    set_: list[str] | None,
    tensorboard: bool,
    track: list[str] | None,
    cache: bool,
    quiet: bool,
    **options: object,
) -> None:
    """Fit a fleet: parameters, population and shared law, into a run folder with a report.

    Ctrl-C stops after the current chunk and keeps what was done; `closura resume` goes on.

    Exit code: 0 converged; 1 not converged, or stopped by Ctrl-C; 2 input or folder cannot be used; 130 second Ctrl-C.
    """
    chosen = choose(config, set_, {**options, "track": _trackers(tensorboard, track)})
    _run(*chosen, out, cache, overwrite=overwrite, progress=not quiet)


@app.command()
@with_options("config", "forward", "inputs", "time_unit", "sheet", "set_")
def check(
    problem: Annotated[str, typer.Argument(help="a built-in problem or a Python file that defines `problem`")],
    config: Path | None,
    set_: list[str] | None,
    data: Annotated[Path | None, typer.Option(help="the table, as for `closura fit`")] = None,
    out: Annotated[Path | None, typer.Option(help="picture of data and priors (default: NAME-check.png)")] = None,
    **options: object,
) -> None:
    """Seconds before a long run: do problem and data fit together, what will it cost, can the answer be found at all?

    Exit code: 0 nothing in the way; 1 something to look at; 2 input cannot be used.
    """
    context, settings = choose(config, set_, {**options, "problem": problem, "data": data})
    _start_jax(context, settings)
    task = load_task(context)
    found = check_fleet(task.problem, task.data, **settings)  # has the notes
    typer.echo(str(found))
    typer.echo(f"picture: {found.save(out or Path(f'{task.problem.name}-check.png'))}")
    if found.warnings:
        raise typer.Exit(1)


@app.command()
@with_options("tensorboard", "cache", "quiet")
def resume(
    folder: Annotated[Path, typer.Argument(help="folder of a run that was stopped")],
    tensorboard: bool,
    cache: bool,
    quiet: bool,
    track: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="who follows it (default: who did before); none for nobody")
    ] = None,
) -> None:
    """Continue a run that was stopped."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; `closura resume` continues a run that was stopped")
    if find_checkpoint(folder) is None:
        raise UsageError(f"{folder} holds no checkpoint to continue from: {_why_none(folder)}")
    chosen = choose(folder / "config.yaml", None, {"track": _trackers(tensorboard, track)})
    _run(*chosen, folder, cache, resume=True, progress=not quiet)


@app.command()
def export(
    folder: RunFolder,
    out: Annotated[Path, typer.Option(help="file to write: law.py (NumPy), law.c (C99) or law.csv (table)")],
    closure: Annotated[str | None, typer.Option(help="which law, where there are several")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file")] = False,
) -> None:
    """Write a learned law as a file of its own, with the range in which data supported it."""
    typer.echo(export_from(folder, out, closure, overwrite=overwrite))


@app.command()
@with_options("time_unit", "sheet")
def predict(
    folder: RunFolder,
    time_unit: str | None,
    sheet: str | None,
    data: Annotated[
        Path | None, typer.Option(help="table of newcomers, as for `closura fit`; without it, the fitted systems")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help="second table, of their known signals")] = None,
    until: Annotated[float | None, typer.Option(help="go on to this time, past the end of the problem's span")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="folder for predictions.csv, parameters.csv and a picture (default: predictions/NAME, numbered)"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace predictions already there")] = False,
) -> None:
    """Forecast the fitted systems, or infer newcomers from their few data, forecast them, and say whether they belong.

    Exit code: 0 done; 1 a newcomer does not belong; 2 input or folder cannot be used.
    """
    if not holds_run(folder):
        there = "is not the folder of a run" if folder.is_dir() else "does not exist"
        raise UsageError(f"{folder} {there}; name a folder that `closura fit` wrote")
    context, settings = choose(folder / "config.yaml", None, {})
    _start_jax(context, settings)
    place = out or _numbered(Path("predictions"), folder.absolute().name)
    check_out(place, overwrite)
    if not context.problem:
        raise LoadError(
            f"{folder} was fitted in Python and does not say with which problem; there, use "
            f"closura.load({str(folder)!r}, problem).predict() or .newcomer(table)"
        )
    fleet = load(folder, load_problem(context, folder)[0])
    with _warnings_told():
        if data is None:
            _predict_fitted(fleet, until, place, overwrite)
            return
        try:
            unit = time_unit or context.time_unit
            table = read_table(data, axes=fleet.problem.axes, time_unit=unit, sheet=sheet, inputs=inputs)
        except DataError as error:
            raise DataError(f"{error} (a table of newcomers has the columns that the fit's table had)") from None
        newcomers = fleet.newcomer(table, until=until)
        typer.echo(str(newcomers))
        for path in newcomers.save(place, overwrite=overwrite):
            typer.echo(path)
    if not all(newcomers.belongs.values()):
        raise typer.Exit(1)


def _predict_fitted(fleet: Fleet, until: float | None, out: Path, overwrite: bool) -> None:
    for note in fleet.notes:
        typer.echo(f"note: {note}")
    predictions = fleet.predict(until=until)
    view = forecast_view(fleet.problem, fleet.data, predictions, None, list(fleet.data.systems))
    axis = fleet.problem.axes[0]
    reach = f" up to {axis} {predictions[axis].max():g}" if axis == "time" else ""
    typer.echo(f"{len(fleet.data.systems)} fitted systems predicted{reach}.")
    for path in save_predictions(out, predictions, fleet.summary(), view, overwrite=overwrite):
        typer.echo(path)


def _run(context: Context, settings: dict[str, Any], out: Path | None, cache: bool, **how: bool) -> None:
    """Fit, as the options of `closura.fit` in `how` say."""
    _start_jax(context, settings, cache)
    task = load_task(context, out if how.get("resume") else None)
    folder = out or _numbered(Path("runs"), task.problem.name)
    for note in task.notes:
        typer.echo(f"note: {note}", err=True)
    with _warnings_told():
        try:
            track = context.track or ()
            result = fit_fleet(
                task.problem,
                task.data,
                truth=task.truth,
                out=folder,
                track=track,
                context=task.context,
                **how,
                **settings,
            )
        except KeyboardInterrupt as stopped:
            kept = "\n".join(getattr(stopped, "__notes__", ["Nothing was kept."]))
            typer.echo(f"closura: stopped at once. {kept}", err=True)
            raise typer.Exit(130) from None
    typer.echo(str(result))
    if (folder / "report.html").exists():
        typer.echo(f"report: {folder / 'report.html'}")
    if not result.converged:
        raise typer.Exit(1)


@contextlib.contextmanager
def _warnings_told() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the verdict speaks of figures that do not exist
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        yield


def _trackers(tensorboard: bool, names: list[str] | None) -> list[str] | None:
    asked = ["tensorboard"] * tensorboard + (names or [])
    return list(dict.fromkeys(asked)) or None


def _why_none(folder: Path) -> str:
    if not holds_run(folder):
        return "it is not the folder of a run"
    metrics = read_facts(folder / "metrics.json")
    if metrics.get("finished"):
        return f"that run is finished, see {folder / 'report.html'}"
    if metrics.get("diverged"):
        return f"that run would diverge again. {metrics['diverged']}"
    again = f"closura fit --config {folder / 'config.yaml'} --out {folder} --overwrite"
    return f"that run was stopped before its first one; start again with `{again}`"


def _start_jax(context: Context, settings: dict[str, Any], cache: bool = True) -> None:
    """Everything JAX must be told before it starts."""
    if context.float64:
        jax.config.update("jax_enable_x64", True)
    if cache and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        with contextlib.suppress(OSError):  # a home that cannot be written only costs time
            (base / "closura" / "compiled").mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(base / "closura" / "compiled"))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    use_cores(make_settings({"devices": settings.get("devices")}).devices)


def _numbered(parent: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3, ... that is free."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    candidates = (parent / (plain if i == 1 else f"{plain}-{i}") for i in range(1, 10_000))
    return next(candidate for candidate in candidates if not candidate.exists())
