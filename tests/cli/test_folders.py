"""Folders that cannot be used or continued, and what the command line ends with."""

import errno
import os
import shutil
from types import SimpleNamespace

import pytest
from springs import PHYSICS, PROBLEM

from closura.cli import _main
from closura.diagnose import Fault, Party, Undecided, Verdict

STAMP = "chains: 64\nabout:\n  versions:\n    closura: 0.1.0\n"


def test_folder_with_another_run(closura, problem, table, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(STAMP)
    code, _, err = closura("fit", problem, "--data", table, "--out", "run")
    assert code == 2
    assert "run holds another run; choose another folder with --out, replace it with --overwrite\n" in err
    (tmp_path / "run" / "checkpoint.npz").touch()
    _, _, err = closura("fit", problem, "--data", table, "--out", "run")
    assert "or continue it with `closura resume run`" in err
    assert [path.name for path in sorted((tmp_path / "run").iterdir())] == ["checkpoint.npz", "config.yaml"]


@pytest.mark.parametrize("name", ["thesis.tex", "config.yaml", "data.csv"])
@pytest.mark.parametrize("option", [[], ["--overwrite"]])
def test_folder_with_other_files(closura, problem, table, tmp_path, name, option):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("about: me\n")
    code, _, err = closura("fit", problem, "--data", table, "--out", "mine", *option)
    assert code == 2
    assert "mine is not empty and holds no closura run; choose another folder with --out" in err
    assert (tmp_path / "mine" / name).read_text() == "about: me\n"


def test_overwrite_spares_the_old_run_until_the_new_one_can_start(closura, files, table, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(STAMP)
    bad = files("bad.py", PROBLEM.replace(PHYSICS, "return v, jnp.log(-1.0) * f(v)"))
    code, _, err = closura("fit", bad, "--data", table, "--out", "run", "--overwrite")
    assert code == 2
    assert "the physics gives nan" in err
    assert (tmp_path / "run" / "config.yaml").read_text() == STAMP


def test_out_is_a_file(closura, problem, table, tmp_path):
    (tmp_path / "run").write_text("mine")
    for out in ("run", "run/below"):
        code, _, err = closura("fit", problem, "--data", table, "--out", out)
        assert code == 2
        assert "run is a file; choose another folder with --out" in err
    assert (tmp_path / "run").read_text() == "mine"


def test_no_permission(refused, problem, table, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    refused(problem, "--data", table, says=("cannot write to run: no permission; choose another folder with --out",))


def test_no_room(refused, problem, table, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7e6))
    refused(problem, "--data", table, says=("only 7 MB are free under run", "needs about 50 MB", "make room"))


def test_simulation_that_cannot_be_written(closura, tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_text", full)
    code, _, err = closura("simulate", "mass-damper", "--systems", "2", "--out", "new/sim")
    assert code == 2
    assert "cannot write to new/sim: No space left on device; make room or choose another folder" in err
    assert list(tmp_path.iterdir()) == []


def test_simulation_refuses_to_replace(closura, tmp_path):
    (tmp_path / "data.csv").write_text("mine")
    code, _, err = closura("simulate", "mass-damper", "--systems", "2", "--out", ".")
    assert code == 2
    assert "data.csv exists; choose another --out, or replace it with --overwrite" in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    assert closura("simulate", "mass-damper", "--systems", "0", "--out", "x").code == 2


# Resuming


def test_nothing_to_resume(closura, tmp_path):
    code, _, err = closura("resume", "nowhere")
    assert code == 2
    assert "there is no folder nowhere" in err
    (tmp_path / "run").mkdir()
    assert "run holds no checkpoint to continue from: it is not the folder of a run" in closura("resume", "run").err
    (tmp_path / "run" / "config.yaml").write_text(STAMP)
    code, _, err = closura("resume", "run")
    assert code == 2
    assert "stopped before its first one; start again with" in err
    assert "`closura fit --config run/config.yaml --out run --overwrite`" in err
    (tmp_path / "run" / "metrics.json").write_text('{"finished": true}')
    assert "that run is finished, see run/report.html" in closura("resume", "run").err
    (tmp_path / "run" / "metrics.json").write_text('{"finished": false, "diverged": "Lower learning_rate."}')
    assert "that run would diverge again. Lower learning_rate." in closura("resume", "run").err


# Exit codes


@pytest.mark.parametrize(
    ("verdict", "word", "code"),
    [
        (Verdict(), "converged", 0),
        (Verdict(undecided=[Undecided((Party("k", "number", "k"),))]), "undecided", 0),
        (Verdict([Fault("not_converged", "chains disagree")]), "not_converged", 1),
        (Verdict([Fault("untrusted", "the fit misses the data")]), "untrusted", 1),
    ],
)
def test_exit_code_says_whether_it_can_be_used(closura, monkeypatch, problem, table, verdict, word, code):
    done = SimpleNamespace(converged=verdict.converged, verdict=verdict)
    monkeypatch.setattr(_main, "fit_fleet", lambda *_, **__: done)
    assert verdict.word == word
    assert closura("fit", problem, "--data", table).code == code


def test_exit_code_of_a_run_that_broke_off(closura, monkeypatch, problem, table):
    def fit(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_main, "fit_fleet", fit)
    outcome = closura("fit", problem, "--data", table)
    assert outcome.code == 130
    assert "closura: stopped at once. Nothing was kept." in outcome.err


def test_help_tells_the_exit_codes(closura):
    code, out, _ = closura("fit", "--help")
    words = " ".join(out.split())
    assert code == 0
    assert "Exit code: 0 converged; 1 not converged, or stopped by Ctrl-C; 2 input or folder cannot be used" in words


def test_list(closura):
    code, out, _ = closura("list")
    assert code == 0
    assert out.startswith("mass-damper ")
    assert "unknown damping law" in out
