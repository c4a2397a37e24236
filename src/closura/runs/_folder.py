"""The run folder: looked at before work starts, claimed when it does, written whole or not at all."""

import contextlib
import datetime
import json
import platform
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import pandas as pd
import yaml

from .._files import PARTIAL, FolderError, folder_for, remove_empty, write_whole
from ..data import Observations
from ..diagnose import Truth
from ..equations import Equation
from ..forward import trainable
from ..posterior import table_of
from ..show import FIGURE_NAMES
from ..track import EVENTS, IDS
from ._checkpoint import ASIDE, find, forget
from ._collect import finite
from ._load import FACTS, WEIGHTS, write_laws
from ._result import Result

LEAST_FREE = 50e6
VERSIONS = ("closura", "jax", "jaxlib", "equinox", "optax", "diffrax", "numpy", "xarray")
# config.yaml is moved into place first and taken away last: by it a folder is known to be a run.
FILES: tuple[str, ...] = ("config.yaml", "problem.py", "data.csv", "inputs.csv", "truth.csv", "posterior.nc")
FILES += ("closure.csv", WEIGHTS, FACTS, "surrogate.eqx", "history.parquet", "summary.csv", "checks.csv")
FILES += (*(f"figures/{name}.png" for name in FIGURE_NAMES), "report.html", "metrics.json", IDS)
HIDDEN = (PARTIAL, ASIDE)


def holds_run(path: Path) -> bool:
    """Did closura write this? A config.yaml of another program does not count."""
    try:
        _, stamp, about = (path / "config.yaml").read_text("utf-8", errors="replace").rpartition("about:\n")
    except OSError:
        return False
    return bool(stamp) and "closura:" in about


def check(path: Path, *, overwrite: bool = False, room: float = LEAST_FREE) -> None:
    """Could results be kept here? Says so before hours of work, and writes nothing."""
    there = folder_for(path)
    filled = there == path and any(item.name not in HIDDEN for item in path.iterdir())
    if filled and not holds_run(path):
        raise FolderError(f"{path} is not empty and holds no closura run; choose another folder with --out")
    if filled and not overwrite:
        raise FolderError(
            f"{path} holds another run; choose another folder with --out, replace it with --overwrite"
            + (f", or continue it with `closura resume {path}`" if find(path) else "")
        )
    free = shutil.disk_usage(there).free
    if free < room:
        raise FolderError(
            f"only {free / 1e6:.0f} MB are free under {path}, this run needs about {room / 1e6:.0f} MB; make room, or "
            "choose another folder with --out"
        )


def claim(path: Path, problem: Equation, data: Observations, truth: Truth | None, settings: dict[str, object]) -> None:
    """Take the folder, in place of the run that may be in it, and leave there what is needed to continue."""

    def write(aside: Path) -> None:
        _write_config(settings, aside)
        _write_data(problem, data, truth, aside)
        source = str(settings.get("problem", ""))
        if source.endswith(".py"):
            shutil.copyfile(source, aside / "problem.py")

    write_whole(path, write, clear=lambda: _clear(path), first=FILES[0])


def save(result: Result, path: Path, *, replace: bool = False) -> None:
    """Everything a run leaves behind, beside or in place of (`replace`) what closura left there before."""
    try:
        clear = (lambda: _clear(path)) if replace else None
        write_whole(path, lambda aside: _write(result, aside), clear=clear, first=FILES[0])
    except FolderError as error:
        error.result = result
        raise


def release(path: Path) -> None:
    """Give a claimed folder back: nothing of the run stays, and an empty folder goes."""
    with contextlib.suppress(OSError):
        _clear(path)
        shutil.rmtree(path / PARTIAL, ignore_errors=True)
        remove_empty([path])


def _clear(path: Path) -> None:
    """Take away what a run leaves behind; a user's own files stay."""
    for name in reversed(FILES):
        (path / name).unlink(missing_ok=True)
    for events in (path / EVENTS).glob("events.out.tfevents.*"):
        events.unlink()
    forget(path)
    remove_empty([path / "figures", path / EVENTS])


def _write(result: Result, path: Path) -> None:
    _write_config(result.settings, path)
    metrics = json.dumps(finite(result.metrics), indent=2, allow_nan=False)
    (path / "metrics.json").write_text(metrics + "\n", "utf-8")
    encoding = {}
    packed = ("posterior", "unconstrained_posterior", "posterior_predictive", "law")
    for group in (part for part in result.tree.subtree if part.path.split("/")[1] in packed):
        floats = [name for name, part in group.to_dataset(inherit=False).items() if part.dtype.kind == "f"]
        encoding[group.path] = {name: {"zlib": True, "complevel": 1} for name in floats}
    # Through memory: on a full disk the HDF5 library does not fail, it crashes.
    (path / "posterior.nc").write_bytes(result.tree.to_netcdf(engine="h5netcdf", encoding=encoding))
    closure_table(result).to_csv(path / "closure.csv", index=False)
    write_laws(result, path)
    if result.network is not None:
        eqx.tree_serialise_leaves(path / "surrogate.eqx", eqx.filter(result.network, trainable(result.network)))
    result.history.to_parquet(path / "history.parquet")
    result.summary().to_csv(path / "summary.csv", index=False)
    result.checks().to_csv(path / "checks.csv", index=False)
    _write_data(result.problem, result.data, result.truth, path)
    _draw(result, path)


def _draw(result: Result, path: Path) -> None:
    from ..show import save_figures, write_report

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # names may be in any script
            write_report(result.view, save_figures(result.view, path / "figures"), path / "report.html")
    except OSError:
        raise
    except Exception as error:  # the numbers are worth more than their pictures
        warnings.warn(
            f"the report could not be drawn ({type(error).__name__}: {error}); everything else is saved", stacklevel=2
        )


def _write_config(settings: dict[str, object], path: Path) -> None:
    """Everything needed to repeat a run; `closura fit --config` reads it back."""
    stamp = {
        "versions": {name: version(name) for name in VERSIONS},
        "python": platform.python_version(),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    (path / "config.yaml").write_text(yaml.safe_dump({**settings, "about": stamp}, sort_keys=False), "utf-8")


def _write_data(problem: Equation, data: Observations, truth: Truth | None, path: Path) -> None:
    data.to_frame().to_csv(path / "data.csv", index=False)
    inputs = data.inputs_frame()
    if inputs is not None:
        inputs.to_csv(path / "inputs.csv", index=False)
    if truth is not None:
        parameters = problem.parameters
        table = pd.DataFrame(parameters.to_physical(truth.theta), columns=list(parameters.names))
        table.insert(0, "system", list(data.systems))
        table.to_csv(path / "truth.csv", index=False)


def closure_table(result: Result) -> pd.DataFrame:
    """Every law as a table, one below the other."""
    tables = [table_of(view) for view in result.view.closures]
    for table, view in zip(tables, result.view.closures):
        table.insert(0, "closure", view.name)
    return pd.concat(tables) if tables else pd.DataFrame(columns=["closure", "input", "f", "density", "supported"])
