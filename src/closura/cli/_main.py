"""The command line: parse, call, print."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Many related systems, one hidden law: parameters with error bars, their population, and the law they share.",
)

# Keys of a configuration file that are not settings of the run itself, each with its line of help.
CONTEXT = {
    "problem": "name of a built-in problem, or a Python file that defines `problem`",
    "data": "table of observations (CSV), or a folder made by `closura simulate`",
    "systems": "number of synthetic systems",
    "data_seed": "seed of the synthetic data",
    "oracle": "use the true law of a built-in problem instead of learning one",
    "float64": "compute in double precision",
    "about": "versions and date, written by closura and ignored when read",
}


class UsageError(ValueError):
    """What was asked cannot be done; the message names the choices that work."""


def main() -> None:
    """Entry point: expected errors become one line on stderr, unexpected ones keep their traceback."""
    try:
        app(standalone_mode=True)
    except _expected() as error:
        print(f"closura: {error}", file=sys.stderr)
        sys.exit(2)


def _expected() -> tuple[type[Exception], ...]:
    from ..learning import Diverged, SettingsError
    from ..problem import DataError, ProblemError
    from ..result import FolderError

    return (UsageError, DataError, ProblemError, SettingsError, FolderError, Diverged)


@app.command("list")
def list_() -> None:
    """Built-in problems, with what they show."""
    from ..problems import BUILT_IN

    for name, built_in in BUILT_IN.items():
        typer.echo(f"{name:<16} {built_in.shows}")


@app.command()
def simulate(
    problem: Annotated[str, typer.Argument(help="a built-in problem (see `closura list`)")],
    out: Annotated[Path, typer.Option(help="folder for data.csv and truth.csv")],
    systems: Annotated[int | None, typer.Option(help="number of systems")] = None,
    data_seed: Annotated[int, typer.Option(help="seed of population and noise")] = 0,
    overwrite: Annotated[bool, typer.Option(help="replace data already there")] = False,
) -> None:
    """Write synthetic data with its truth."""
    from ._data import write_simulation

    built_in = _built_in(problem)
    for path in write_simulation(built_in, systems, data_seed, out, overwrite):
        typer.echo(path)


@app.command()
def fit(
    problem: Annotated[
        str | None, typer.Argument(help="a built-in problem or a Python file that defines `problem`")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="CSV with columns system, time, one a quantity [, sigma]")] = None,
    out: Annotated[Path | None, typer.Option(help="run folder (default: runs/NAME, numbered)")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the run in the folder")] = False,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options here win over it")] = None,
    oracle: Annotated[bool | None, typer.Option("--oracle", help="use the true law instead of learning one")] = None,
    hierarchy: Annotated[
        bool | None, typer.Option("--hierarchy/--no-hierarchy", help="infer the population, or fix the prior")
    ] = None,
    forward: Annotated[str | None, typer.Option(help="forward model: solver")] = None,
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
    cache: Annotated[bool, typer.Option(help="keep compiled programs for the next run")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Fit a fleet: parameters, population and shared law, into a run folder with a report."""
    given: dict[str, Any] = {
        "problem": problem,
        "data": None if data is None else str(data),
        "oracle": oracle,
        "hierarchy": hierarchy,
    }
    given |= {"forward": forward, "seed": seed, "data_seed": data_seed, "systems": systems, "chains": chains}
    given |= {"iterations": iterations, "draws": draws, "devices": devices, "float64": float64}
    chosen = _read_config(config) | _read_pairs(set_ or []) | {key: v for key, v in given.items() if v is not None}
    _run(chosen, out, overwrite=overwrite, cache=cache, progress=not quiet)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="folder of a run that was stopped")],
    cache: Annotated[bool, typer.Option(help="keep compiled programs for the next run")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Continue a run that was stopped."""
    if not (folder / "checkpoint").is_dir():
        done = " (it is finished)" if (folder / "metrics.json").exists() else ""
        raise UsageError(f"{folder} holds no checkpoint to continue from{done}")
    _run(_read_config(folder / "config.yaml"), folder, resume=True, cache=cache, progress=not quiet)


def _run(
    chosen: dict[str, Any],
    out: Path | None,
    *,
    cache: bool,
    progress: bool,
    overwrite: bool = False,
    resume: bool = False,
) -> None:
    from ..learning import make_settings

    context = {key: chosen.get(key) for key in CONTEXT if key != "about"}
    settings = {key: value for key, value in chosen.items() if key not in CONTEXT}
    make_settings(settings)  # say what is wrong before anything is loaded or compiled
    _start_jax(settings.get("devices"), bool(context["float64"]), cache)

    from .._fit import fit as fit_
    from ._data import load_task

    if not context["problem"]:
        raise UsageError("name a problem: `closura fit mass-damper`, or a Python file that defines `problem`")
    stored = out / "data.csv" if resume and out is not None and context["data"] else None
    task = load_task(context, _built_in, stored)
    folder = out or _numbered(Path("runs") / task.problem.name)
    for note in task.data.notes:
        typer.echo(f"note: {note}", err=True)
    result = fit_(
        task.problem,
        task.data,
        truth=task.truth,
        out=folder,
        overwrite=overwrite,
        resume=resume,
        progress=progress,
        context=task.context,
        **settings,
    )
    typer.echo(str(result))
    typer.echo(f"report: {folder / 'report.html'}")
    if result.metrics["warnings"] and not result.converged:
        raise typer.Exit(1)


def _start_jax(devices: int | None, float64: bool, cache: bool) -> None:
    """Everything JAX must be told before it starts."""
    import jax

    from .._fit import use_cores

    if float64:
        jax.config.update("jax_enable_x64", True)
    if cache and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "closura" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    use_cores(devices)


def _built_in(name: str) -> Any:
    import difflib

    from ..problems import BUILT_IN

    if name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"unknown problem {name!r}; {hint}built-in problems: {', '.join(BUILT_IN)}; or give a file ending in .py"
        )
    return BUILT_IN[name]


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold `key: value` lines, e.g. `chains: 64`")
    return {str(key): value for key, value in content.items()}


def _read_pairs(pairs: list[str]) -> dict[str, Any]:
    chosen = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UsageError(f"--set {pair!r}: write KEY=VALUE, e.g. --set blocks=joint")
        chosen[key.strip().replace("-", "_")] = yaml.safe_load(value)
    return chosen


def _numbered(path: Path) -> Path:
    """The first of NAME, NAME-2, NAME-3, ... that is free."""
    candidates = (path if i == 1 else path.with_name(f"{path.name}-{i}") for i in range(1, 10_000))
    return next(candidate for candidate in candidates if not candidate.exists())


def load_module(path: Path) -> Any:
    """Run a user's problem file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
