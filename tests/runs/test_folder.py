"""Run folders: taken, written whole or not at all, given back."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

from closura import DataError, Truth, _fit
from closura.equations import ProblemError
from closura.learning import Run
from closura.runs import FolderError, check, claim, find_checkpoint, release, store
from closura.runs._folder import FILES, holds_run

pytestmark = pytest.mark.xdist_group("folder")


@pytest.fixture
def full(monkeypatch):
    """`full("posterior.nc")`: from now on there is no room for such a file."""

    def fill(name, code=errno.ENOSPC):
        write = Path.write_bytes

        def refuse(self, data, *rest):
            if self.name == name:
                write(self, bytes(data)[: len(data) // 2])
                raise OSError(code, os.strerror(code))
            return write(self, data, *rest)

        monkeypatch.setattr(Path, "write_bytes", refuse)

    return fill


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# Taking a folder


def test_claim_leaves_what_is_needed_to_continue(tmp_path, fleet):
    check(tmp_path / "a" / "b")
    assert names(tmp_path) == set()
    claim(tmp_path / "a" / "b", *fleet, {"problem": "mass-damper", "chains": 32})
    folder = tmp_path / "a" / "b"
    assert names(folder) == {"config.yaml", "data.csv", "truth.csv"}
    assert holds_run(folder)
    assert yaml.safe_load((folder / "config.yaml").read_text())["chains"] == 32
    assert pd.read_csv(folder / "truth.csv")["k"].to_numpy() == pytest.approx(np.exp(fleet[2].theta[:, 0]), rel=1e-4)
    release(folder)
    assert names(tmp_path) == {"a"}


def test_claim_replaces_closuras_files_and_no_others(tmp_path, fleet):
    problem, data, _ = fleet
    claim(tmp_path, problem, data, None, {})
    for name in FILES[1:]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    (tmp_path / "figures" / "mine.png").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint.npz").write_text("old")
    with pytest.raises(FolderError, match="holds another run"):
        check(tmp_path)
    check(tmp_path, overwrite=True)
    claim(tmp_path, problem, data, None, {})
    assert names(tmp_path) == {"config.yaml", "data.csv", "figures", "figures/mine.png", "notes.txt"}
    release(tmp_path)
    assert names(tmp_path) == {"figures", "figures/mine.png", "notes.txt"}


def test_remains_of_a_killed_process_do_not_count(tmp_path):
    (tmp_path / ".partial").mkdir()
    (tmp_path / ".checkpoint-new.npz").touch()
    check(tmp_path)


@pytest.mark.parametrize("content", ["", "about: me\n", "title: closura\n", "about:\n  name: x\n"])
def test_configuration_of_another_program_is_no_run(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(FolderError, match="is not empty and holds no closura run"):
        check(tmp_path, overwrite=True)


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_claim_that_fails_leaves_nothing(tmp_path, fleet, monkeypatch, code):
    def refuse(self, *_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(FolderError, match=f"{os.strerror(code)}; make room or choose another folder with --out"):
        claim(tmp_path / "a" / "b", *fleet, {})
    assert names(tmp_path) == set()


def test_claim_that_fails_spares_the_old_run(tmp_path, fleet, monkeypatch):
    claim(tmp_path, *fleet, {"chains": 1})
    (tmp_path / "metrics.json").write_text("old")
    before = {name: (tmp_path / name).read_text() for name in names(tmp_path)}

    def refuse(self, *_, **__):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(FolderError):
        claim(tmp_path, *fleet, {"chains": 2})
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == before


def test_a_place_where_nothing_can_be_made():
    with pytest.raises(FolderError, match="/proc/closura"):
        check(Path("/proc/closura/run"))


# Keeping a result


@pytest.mark.usefixtures("illustrated")
def test_save_and_replace(tmp_path, result):
    folder = result.save(tmp_path / "run")
    kept = names(folder)
    assert {"figures/closure.png", "figures/traces.png"} <= kept
    assert {"metrics.json", "posterior.nc", "closure.csv", "history.parquet", "report.html", "config.yaml"} <= kept
    assert ".partial" not in kept
    with pytest.raises(FolderError, match="holds another run"):
        result.save(folder)
    (folder / "notes.txt").write_text("mine")
    result.save(str(folder), overwrite=True)
    assert names(folder) == kept | {"notes.txt"}


def test_save_expands_the_home_folder(tmp_path, result, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert result.save("~/run") == tmp_path / "run"


@pytest.mark.parametrize("old", [False, True])
def test_full_disk_leaves_nothing_half_written(tmp_path, result, full, old):
    if old:
        result.save(tmp_path / "run")
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in names(tmp_path) if name != "run"}
    full("posterior.nc")
    with pytest.raises(FolderError, match="No space left on device; make room") as raised:
        result.save(tmp_path / "run", overwrite=True)
    assert raised.value.result is result
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in names(tmp_path) if name != "run"} == before


def test_posterior_does_not_go_through_hdf5_files(tmp_path, result, monkeypatch):
    """On a full disk the HDF5 library crashes the process: it must not see the disk."""
    targets = []
    to_netcdf = xr.DataTree.to_netcdf

    def spy(self, *target, **options):
        targets.append(target)
        return to_netcdf(self, *target, **options)

    monkeypatch.setattr(xr.DataTree, "to_netcdf", spy)
    result.save(tmp_path / "run")
    assert targets == [()]
    assert xr.open_datatree(tmp_path / "run" / "posterior.nc").posterior["k"].shape == (32, 1, 3)


def test_report_that_cannot_be_drawn_does_not_cost_the_numbers(tmp_path, result, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr("closura.show.write_report", fail)
    with pytest.warns(UserWarning, match=r"report could not be drawn \(ZeroDivisionError: no picture\)"):
        result.save(tmp_path / "run")
    assert (tmp_path / "run" / "posterior.nc").exists()


def test_metrics_are_strict_json(tmp_path, result, monkeypatch):
    monkeypatch.setitem(result.metrics, "mu", {"log k": float("nan"), "u0": 1.0})
    result.save(tmp_path / "run")
    content = (tmp_path / "run" / "metrics.json").read_text()
    assert json.loads(content, parse_constant=pytest.fail)["mu"] == {"log k": None, "u0": 1.0}


# A fit and its folder


@pytest.fixture
def fit(fresh, fleet, small, monkeypatch):
    """`fit(folder)` with a run already made and, in place of its iterations, whatever `drive` is told to do."""
    problem, data, truth = fleet
    monkeypatch.setattr(Run, "__init__", lambda run, *_: vars(run).update(vars(fresh)))
    monkeypatch.setattr(fresh, "iteration", 10)

    def call(folder, drive, **options):
        def act(run, *_):
            return drive(run) if callable(drive) else drive

        monkeypatch.setattr(_fit, "drive", act)
        return _fit.fit(problem, data, out=folder, truth=truth, **small, **options)

    return call


def raising(error):
    def act(run):
        raise error

    return act


def test_stopped_fit_keeps_results_and_checkpoint(tmp_path, fit):
    result = fit(tmp_path / "run", False)
    assert "Stopped at iteration 10" in result.verdict.lines[1]
    assert find_checkpoint(tmp_path / "run") is not None
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["finished"] is False


def test_finished_fit_needs_no_checkpoint(tmp_path, fit, fresh, monkeypatch):
    monkeypatch.setattr(fresh, "iteration", fresh.total)

    def drive(run):
        store(run, tmp_path / "run")
        return True

    fit(tmp_path / "run", drive)
    assert find_checkpoint(tmp_path / "run") is None
    assert (tmp_path / "run" / "report.html").exists()


def test_diverged_fit_is_kept_and_says_so(tmp_path, fit, fresh, monkeypatch):
    monkeypatch.setattr(fresh, "diverged", "Learning diverged: lower the rate.")
    result = fit(tmp_path / "run", False)
    assert not result.converged
    assert result.verdict.problems[0].startswith("Learning diverged: lower the rate.")
    assert (tmp_path / "run" / "report.html").exists()
    assert find_checkpoint(tmp_path / "run") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_fit_that_breaks_off_keeps_a_checkpoint(tmp_path, fit, error):
    with pytest.raises(type(error)) as raised:
        fit(tmp_path / "run", raising(error))
    assert find_checkpoint(tmp_path / "run") is not None
    assert f"`closura resume {tmp_path / 'run'}` continues from there" in raised.value.__notes__[-1]


def test_fit_that_breaks_off_at_once_leaves_nothing(tmp_path, fit, fresh, monkeypatch):
    monkeypatch.setattr(fresh, "iteration", 0)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", raising(KeyboardInterrupt()))
    assert names(tmp_path) == set()


def test_results_that_cannot_be_written_stay_in_the_checkpoint(tmp_path, fit, full):
    full("posterior.nc")
    with pytest.raises(FolderError, match=r"No space left on device.*`closura resume .*` continues") as raised:
        fit(tmp_path / "run", True)
    assert "posterior.nc" not in names(tmp_path / "run")
    assert find_checkpoint(tmp_path / "run") is not None
    assert raised.value.result.metrics["systems"] == 3


def test_checkpoint_that_cannot_be_written_does_not_end_the_run(tmp_path, fit, fresh, monkeypatch):
    monkeypatch.setattr(_fit, "CHECKPOINT_EVERY", 0.0)

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def drive(run):
        monkeypatch.setattr(np, "savez", refuse)
        _fit._checkpointer(tmp_path / "run")(run)
        return True

    with pytest.warns(UserWarning, match="no checkpoint could be written to .*: No space left on device"):
        fit(tmp_path / "run", drive)
    assert not [name for name in names(tmp_path / "run") if "checkpoint" in name]
    assert (tmp_path / "run" / "report.html").exists()


def test_huge_runs_need_more_room(tmp_path, fit, fresh, monkeypatch):
    monkeypatch.setattr(_fit, "_room", lambda run: 1e18)
    with pytest.raises(FolderError, match="this run needs about 1000000000000 MB"):
        fit(tmp_path / "run", True)
    assert names(tmp_path) == set()


def test_truth_of_another_shape_is_refused_at_once(fleet):
    problem, data, _ = fleet
    with pytest.raises(DataError, match=r"truth.theta has shape \(2, 3\); 3 systems with 3 parameters"):
        _fit.fit(problem, data, truth=Truth(np.zeros((2, 3))))


def test_resume_needs_a_folder(fleet, fit, tmp_path):
    with pytest.raises(ValueError, match="name it with out="):
        _fit.fit(*fleet[:2], resume=True)
    with pytest.raises(ProblemError, match="holds no checkpoint to continue from; start again"):
        fit(tmp_path, True, resume=True)
