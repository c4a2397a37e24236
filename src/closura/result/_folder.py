"""The run folder: claimed before work starts, written whole or not at all."""

import datetime
import json
import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import pandas as pd
import yaml

from ._result import Result

PARTIAL = ".partial"
LEAST_FREE = 50e6
VERSIONS = ("closura", "jax", "jaxlib", "equinox", "optax", "diffrax", "numpy", "xarray")


class FolderError(OSError):
    """The run cannot be stored there; the message says why and what to do."""


def holds_run(path: Path) -> bool:
    return (path / "config.yaml").exists() or (path / "metrics.json").exists()


def claim(path: Path, *, overwrite: bool = False) -> Path:
    """Make sure, before hours of work, that results can be kept here."""
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file; choose another folder with --out")
    if path.is_dir() and any(path.iterdir()) and not (overwrite and holds_run(path)):
        if holds_run(path):
            raise FolderError(
                f"{path} holds another run; choose another folder with --out, or replace it with --overwrite"
            )
        raise FolderError(f"{path} is not empty and holds no closura run; choose another folder with --out")
    try:
        if path.is_dir():
            for name in _ours(path):
                _remove(path / name)
        path.mkdir(parents=True, exist_ok=True)
        probe = path / PARTIAL
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise FolderError(
            f"cannot write to {path}: {error.strerror or error}; choose another folder with --out"
        ) from None
    free = shutil.disk_usage(path).free
    if free < LEAST_FREE:
        raise FolderError(
            f"only {free / 1e6:.0f} MB are free under {path}, a run needs 50 MB or more; make room or use --out"
        )
    return path


def _ours(path: Path) -> list[str]:
    """What a run leaves behind; nothing else in the folder is touched."""
    names = ["config.yaml", "metrics.json", "posterior.nc", "closure.csv", "closure.eqx", "history.parquet"]
    names += ["summary.csv", "data.csv", "truth.csv", "report.html", "figures", "checkpoint", PARTIAL]
    return [name for name in names if (path / name).exists()]


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def save(result: Result, path: Path) -> None:
    """Write everything aside, then move it into place: a full disk leaves no half-written run."""
    aside = path / PARTIAL
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write(result, aside)
        for item in sorted(aside.iterdir()):
            target = path / item.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(item, target)
        aside.rmdir()
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise FolderError(
            f"the results could not be written to {path}: {error.strerror or error}. Nothing was left half-written; make room "
            "or choose another folder (a checkpoint there can be continued with `closura resume`)"
        ) from None


def _write(result: Result, path: Path) -> None:
    from ..show import save_figures, write_report

    write_config(result.settings, path)
    (path / "metrics.json").write_text(json.dumps(result.metrics, indent=2) + "\n")
    encoding = {"zlib": True, "complevel": 1}
    numbers = {
        f"/{group}": {
            name: encoding for name in result.tree[group].data_vars if result.tree[group][str(name)].dtype.kind == "f"
        }
        for group in ("posterior", "unconstrained_posterior")
    }
    result.tree.to_netcdf(path / "posterior.nc", engine="h5netcdf", encoding=numbers)
    closure_table(result).to_csv(path / "closure.csv", index=False)
    laws = {name: eqx.filter(call.law, eqx.is_inexact_array) for name, call in result.closures.items()}  # type: ignore[attr-defined]
    eqx.tree_serialise_leaves(path / "closure.eqx", laws)
    result.history.to_parquet(path / "history.parquet")
    result.summary().to_csv(path / "summary.csv", index=False)
    result.data.to_frame().to_csv(path / "data.csv", index=False)
    if result.truth is not None:
        truth_table(result).to_csv(path / "truth.csv", index=False)
    (path / "figures").mkdir()
    figures = save_figures(result.view, path / "figures")
    write_report(result.view, figures, path / "report.html")


def write_config(settings: dict[str, Any], path: Path) -> None:
    """Everything needed to repeat a run; `closura fit --config` reads it back."""
    stamp = {
        "versions": {name: version(name) for name in VERSIONS},
        "python": platform.python_version(),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    (path / "config.yaml").write_text(yaml.safe_dump({**settings, "about": stamp}, sort_keys=False))


def closure_table(result: Result) -> pd.DataFrame:
    """Inputs, f, density of visited inputs, and the truth where known; one block a closure."""
    tables = []
    for view in result.view.closures:
        table = pd.DataFrame(
            view.grid,
            columns=["input"] if view.grid.shape[1] == 1 else [f"input_{i + 1}" for i in range(view.grid.shape[1])],
        )
        table.insert(0, "closure", view.name)
        table["f"], table["density"] = view.value, view.density
        if view.truth is not None:
            table["truth"] = view.truth
        tables.append(table)
    return pd.concat(tables) if tables else pd.DataFrame(columns=["closure", "input", "f", "density"])


def truth_table(result: Result) -> pd.DataFrame:
    """True parameters, physical scale."""
    assert result.truth is not None
    physical = result.problem.parameters.to_physical(result.truth.theta)
    table = pd.DataFrame(physical, columns=list(result.problem.parameters.names))
    table.insert(0, "system", list(result.data.systems))
    return table
