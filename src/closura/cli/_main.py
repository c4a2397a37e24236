"""The command line: parse, call, print."""

import contextlib
import io
import json
import os
import re
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

from .._check import check as check_fleet
from .._fit import fit as fit_fleet, use_cores
from ..data import DataError
from ..equations import ProblemError
from ..laws import LawError
from ..learning import SettingsError, checked, make_settings
from ..problems import BUILT_IN
from ..runs import FolderError, LoadError, export_from, find_checkpoint, holds_run
from ..track import TrackerError
from ._data import load_task, write_simulation
from ._options import Context, UsageError, built_in, choose
from ._predict import predict_from
from ._problem_file import write_start

EXPECTED = (UsageError, DataError, ProblemError, SettingsError, FolderError, LawError, LoadError, TrackerError)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
def fit(
    problem: Annotated[
        str | None, typer.Argument(help="a built-in problem or a Python file that defines `problem`")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="table (text, Excel, Parquet, NetCDF, MATLAB): system, time (for fields x, y or time, x), one column a quantity [, sigma]"
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="second table, of known signals: system, time, one column each")
    ] = None,
    time_unit: Annotated[str | None, typer.Option(help="times are dates: count them in s, min, h or d")] = None,
    sheet: Annotated[str | None, typer.Option(help="sheet of an Excel workbook (default: the first with data)")] = None,
    allow_duplicates: Annotated[
        bool | None, typer.Option("--allow-duplicates", help="the same observation may stand twice in the table")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="run folder (default: runs/NAME, numbered)")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the run in the folder")] = False,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options here win over it")] = None,
    oracle: Annotated[bool | None, typer.Option("--oracle", help="use the true law instead of learning one")] = None,
    hierarchy: Annotated[
        bool | None, typer.Option("--hierarchy/--no-hierarchy", help="infer the population, or fix the prior")
    ] = None,
    forward: Annotated[str | None, typer.Option(help="solver, basis, fno-supervised, fno-physics or pinn")] = None,
    preset: Annotated[str | None, typer.Option(help="default, or paper: sizes and rates as published")] = None,
    delayed_acceptance: Annotated[
        bool | None,
        typer.Option("--delayed-acceptance", "--exact", help="correct a surrogate by the solver while sampling"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of the run")] = None,
    data_seed: Annotated[int | None, typer.Option(help="seed of synthetic data")] = None,
    systems: Annotated[int | None, typer.Option(help="number of synthetic systems")] = None,
    chains: Annotated[int | None, typer.Option(help="chains in all")] = None,
    iterations: Annotated[int | None, typer.Option(help="learning iterations")] = None,
    draws: Annotated[int | None, typer.Option(help="draws kept from each chain")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="any other setting; repeat")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="CPU devices; 1 switches spreading over cores off")] = None,
    float64: Annotated[bool | None, typer.Option("--float64", help="double precision")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="scalars for TensorBoard, in the run folder")
    ] = False,
    track: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="who follows the run: tensorboard, wandb, mlflow; repeat")
    ] = None,
    cache: Annotated[bool, typer.Option(help="keep compiled programs for the next run")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Fit a fleet: parameters, population and shared law, into a run folder with a report.

    Ctrl-C stops after the current chunk and keeps what was done; `closura resume` goes on.

    Exit code: 0 converged; 1 not converged, or stopped by Ctrl-C; 2 input or folder cannot be used; 130 second Ctrl-C.
    """
    options: dict[str, Any] = {"problem": problem, "data": None if data is None else str(data), "oracle": oracle}
    options |= {"hierarchy": hierarchy, "forward": forward, "seed": seed, "data_seed": data_seed, "systems": systems}
    options |= {"chains": chains, "iterations": iterations, "draws": draws, "devices": devices, "float64": float64}
    options |= {"allow_duplicates": allow_duplicates, "time_unit": time_unit, "sheet": sheet}
    options |= {
        "delayed_acceptance": delayed_acceptance,
        "preset": preset,
        "inputs": None if inputs is None else str(inputs),
    }
    options["track"] = _trackers(tensorboard, track)
    _run(*choose(config, set_ or [], options), out, overwrite=overwrite, cache=cache, progress=not quiet)


@app.command()
def check(
    problem: Annotated[str, typer.Argument(help="a built-in problem or a Python file that defines `problem`")],
    data: Annotated[Path | None, typer.Option(help="the table, as for `closura fit`")] = None,
    out: Annotated[Path | None, typer.Option(help="picture of data and priors (default: NAME-check.png)")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options here win over it")] = None,
    forward: Annotated[str | None, typer.Option(help="solver, basis, fno-supervised, fno-physics or pinn")] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="second table, of known signals: system, time, one column each")
    ] = None,
    time_unit: Annotated[str | None, typer.Option(help="times are dates: count them in s, min, h or d")] = None,
    sheet: Annotated[str | None, typer.Option(help="sheet of a workbook")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="any other setting; repeat")
    ] = None,
) -> None:
    """Seconds before a long run: do problem and data fit together, what will it cost, can the answer be found at all?

    Exit code: 0 nothing in the way; 1 something to look at; 2 input cannot be used.
    """
    options: dict[str, Any] = {"problem": problem, "data": None if data is None else str(data), "forward": forward}
    options |= {"inputs": None if inputs is None else str(inputs), "time_unit": time_unit, "sheet": sheet}
    context, settings = choose(config, set_ or [], options)
    _start_jax(make_settings({"devices": settings.get("devices")}).devices, context.float64, cache=True)
    task = load_task(context)
    found = check_fleet(task.problem, task.data, **settings)  # has the notes
    typer.echo(str(found))
    typer.echo(f"picture: {found.save(out or Path(f'{task.problem.name}-check.png'))}")
    if found.warnings:
        raise typer.Exit(1)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="folder of a run that was stopped")],
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="scalars for TensorBoard, in the run folder")
    ] = False,
    track: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="who follows it (default: who did before); none for nobody")
    ] = None,
    cache: Annotated[bool, typer.Option(help="keep compiled programs for the next run")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Continue a run that was stopped."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; `closura resume` continues a run that was stopped")
    if find_checkpoint(folder) is None:
        raise UsageError(f"{folder} holds no checkpoint to continue from: {_why_none(folder)}")
    options = {"track": _trackers(tensorboard, track)}
    _run(*choose(folder / "config.yaml", [], options), folder, resume=True, cache=cache, progress=not quiet)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
    out: Annotated[Path, typer.Option(help="file to write: law.py (NumPy), law.c (C99) or law.csv (table)")],
    closure: Annotated[str | None, typer.Option(help="which law, where there are several")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file")] = False,
) -> None:
    """Write a learned law as a file of its own, with the range in which data supported it."""
    typer.echo(export_from(folder, out, closure, overwrite=overwrite))


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="folder of a run")],
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
    time_unit: Annotated[str | None, typer.Option(help="times are dates: count them in s, min, h or d")] = None,
    sheet: Annotated[str | None, typer.Option(help="sheet of a workbook")] = None,
) -> None:
    """Forecast the fitted systems, or infer newcomers from their few data, forecast them, and say whether they belong.

    Exit code: 0 done; 1 a newcomer does not belong; 2 input or folder cannot be used.
    """
    if not holds_run(folder):
        there = "is not the folder of a run" if folder.is_dir() else "does not exist"
        raise UsageError(f"{folder} {there}; name a folder that `closura fit` wrote")
    context, settings = choose(folder / "config.yaml", [], {})
    _start_jax(make_settings({"devices": settings.get("devices")}).devices, context.float64, True)
    place = out or _numbered(Path("predictions"), folder.absolute().name)
    reading = {"time_unit": time_unit or context.time_unit, "sheet": sheet, "inputs": inputs}
    if not predict_from(folder, context, data, until, place, overwrite, **reading):
        raise typer.Exit(1)


def _run(
    context: Context,
    settings: dict[str, Any],
    out: Path | None,
    *,
    cache: bool,
    progress: bool,
    overwrite: bool = False,
    resume: bool = False,
) -> None:
    _start_jax(make_settings({"devices": settings.get("devices")}).devices, context.float64, cache)
    task = load_task(context, out if resume else None)
    folder = out or _numbered(Path("runs"), task.problem.name)
    for note in task.notes:
        typer.echo(f"note: {note}", err=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the verdict speaks of figures that do not exist
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        try:
            result = fit_fleet(
                task.problem,
                task.data,
                truth=task.truth,
                out=folder,
                overwrite=overwrite,
                resume=resume,
                progress=progress,
                track=context.track or (),
                context=task.context,
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


def _trackers(tensorboard: bool, names: list[str] | None) -> list[str] | None:
    asked = ["tensorboard"] * tensorboard + (names or [])
    return list(dict.fromkeys(asked)) or None


def _why_none(folder: Path) -> str:
    if not holds_run(folder):
        return "it is not the folder of a run"
    try:
        metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    except (OSError, ValueError):
        metrics = {}
    if metrics.get("finished"):
        return f"that run is finished, see {folder / 'report.html'}"
    if metrics.get("diverged"):
        return f"that run would diverge again. {metrics['diverged']}"
    again = f"closura fit --config {folder / 'config.yaml'} --out {folder} --overwrite"
    return f"that run was stopped before its first one; start again with `{again}`"


def _start_jax(devices: int | None, float64: bool, cache: bool) -> None:
    """Everything JAX must be told before it starts."""
    if float64:
        jax.config.update("jax_enable_x64", True)
    if cache and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        with contextlib.suppress(OSError):  # a home that cannot be written only costs time
            (base / "closura" / "compiled").mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(base / "closura" / "compiled"))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    use_cores(devices)


def _numbered(parent: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3, ... that is free."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    candidates = (parent / (plain if i == 1 else f"{plain}-{i}") for i in range(1, 10_000))
    return next(candidate for candidate in candidates if not candidate.exists())
