"""Whole runs through the command line: what they leave behind, how they stop, and how they go on."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import arviz_base
import compiled
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
from arviz_stats.base import array_stats
from springs import PROBLEM

from closura import Settings, _compile
from closura.problems import mass_damper

# One group of tests, so that runs and compiled programs are shared when tests are spread over processes.
pytestmark = pytest.mark.xdist_group("runs")

# `closura`, its programs compiled as those of this process.
CLOSURA = """
from closura import _compile
from closura.cli import main
_compile.SOON.update({})
"""
# The same, but every chunk is told and takes its time; the first word is the time between checkpoints.
SLOWLY = """
import sys, time
from closura import _fit, learning
from closura.learning import _progress
_fit.CHECKPOINT_EVERY = float(sys.argv.pop(1))
_progress.LINE_EVERY = 0.0
advance = learning.Run.advance
def slowly(run):
    time.sleep(0.4)
    return advance(run)
learning.Run.advance = slowly
main()
"""
SMALL = {"chains": 32, "iterations": 60, "draws": 20, "devices": 1}
SMALL = [f"--{key}={value}" for key, value in SMALL.items()] + ["--set=tune=20", "--set=extend=0", "--set=chunk=10"]
METRICS = {
    "problem": str,
    "forward": str,
    "hierarchical": bool,
    "oracle": bool,
    "systems": int,
    "chains": int,
    "iterations": int,
    "seed": int,
    "data_seed": int,
    "theta_mse": float,
    "coverage_2sd": float,
    "coverage_95": float,
    "population_coverage_95": None,
    "closure_mse": None,
    "closure_mse_visited": None,
    "law_coverage": None,
    "law_coverage_outside": None,
    "surrogate_mse": None,
    "surrogate_fit_mse": None,
    "surrogate_error": None,
    "surrogate_error_worst": None,
    "diverged": None,
    "second_stage_acceptance": None,
    "mu": dict,
    "tau": dict,
    "noise_sd": float,
    "rhat_max": float,
    "ess_bulk_min": float,
    "ess_tail_min": float,
    "seconds_total": float,
    "seconds_compile": float,
    "seconds_per_iteration": float,
    "peak_rss_mb": float,
    "verdict": str,
    "undecided": list,
    "law_learned": bool,
    "law_contraction": dict,
    "converged": bool,
    "warnings": list,
}
FILES = "closure.csv closure.eqx closure.json config.yaml data.csv history.parquet metrics.json posterior.nc problem.py"
FILES += " report.html"
FIGURES = "checks closure fit hyper_traces population posteriors traces"


class Shell:
    """A folder in which `closura` is called as a process of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.script = CLOSURA.format(_compile.SOON)
        jax = {"JAX_COMPILATION_CACHE_DIR": compiled.place(), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
        # Short runs: to compile well takes longer than to run.
        jax |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": 1, "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": 0}
        self.options = {"cwd": folder, "env": {**os.environ, **{k: str(v) for k, v in jax.items()}}}
        self.options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def __call__(self, *words) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", self.script + "main()", *map(str, words)]
        return subprocess.run(command, timeout=600, **self.options)

    def slowly(self, *words, until: str, send: int, checkpoint_every=1e9) -> subprocess.CompletedProcess:
        """Send a signal when a line with `until` appears."""
        command = [sys.executable, "-c", self.script + SLOWLY, str(checkpoint_every), *map(str, words)]
        with subprocess.Popen(command, **self.options) as process:
            said = []
            for line in process.stderr:
                said.append(line)
                if until in line:
                    process.send_signal(send)
                    break
            out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess(words, process.returncode, out, "".join(said) + err)


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def draws_of(folder: Path) -> np.ndarray:
    with xr.open_datatree(folder / "posterior.nc") as tree:
        return tree["unconstrained_posterior/theta"].values


def all_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


WHOLE = {*FILES.split(), "summary.csv", "checks.csv", "truth.csv", *(f"figures/{name}.png" for name in FIGURES.split())}
CHECKPOINT = {"checkpoint.npz", "history.jsonl"}


@pytest.fixture(scope="module")
def shell(tmp_path_factory) -> Shell:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "springs.py").write_text(PROBLEM)
    return Shell(folder)


@pytest.fixture(scope="module")
def simulated(shell) -> Path:
    done = shell("simulate", "mass-damper", "--systems", 3, "--data-seed", 5, "--out", "sim")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["sim/data.csv", "sim/truth.csv", "sim/truth.json"]
    return shell.folder / "sim"


@pytest.fixture(scope="module")
def whole(shell, simulated) -> subprocess.CompletedProcess:
    return shell("fit", "springs.py", "--data", "sim", "--out", "whole", *SMALL)


@pytest.fixture(scope="module")
def run(shell, whole) -> Path:
    assert whole.returncode == 1, whole.stderr
    return shell.folder / "whole"


def test_simulation_has_its_truth(simulated):
    table = pd.read_csv(simulated / "data.csv")
    assert list(table.columns) == ["system", "time", "u", "sigma"]
    assert len(table) == 3 * 13
    truth = pd.read_csv(simulated / "truth.csv")
    assert list(truth.columns) == ["system", "k", "u0", "v0"]
    assert json.loads((simulated / "truth.json").read_text())["data_seed"] == 5


def test_prints_verdict_first_and_plain_lines(run, whole):
    assert whole.stdout.startswith("NOT CONVERGED: do not use these results yet.\n")
    assert whole.stdout.endswith("report: whole/report.html\n")
    assert "\x1b" not in whole.stdout + whole.stderr
    lines = whole.stderr.splitlines()
    assert lines[0] == "compiling …"
    assert re.fullmatch(r" +10/120 learning the closure: +… it/s  accept 0\.\d\d  log-lik \S+  temper 0\.\d+", lines[1])
    assert re.fullmatch(r" +120/120 sampling: +\d+ it/s .*temper 1\.000  ETA 0 s", lines[-1])


def test_folder_is_whole(run):
    assert all_files(run) == WHOLE
    assert all((run / name).stat().st_size > 0 for name in WHOLE)


def test_metrics(run):
    metrics = metrics_of(run)
    assert metrics.keys() >= METRICS.keys()
    for key, kind in METRICS.items():
        assert metrics[key] is None if kind is None else type(metrics[key]) is kind, key
    assert metrics["problem"] == "springs"
    assert metrics["data_seed"] == 5
    assert metrics["iterations"] == 120
    assert metrics["finished"] is True
    assert metrics["mu"].keys() == metrics["tau"].keys() == {"log k", "u0", "v0"}
    assert 0 <= metrics["coverage_2sd"] <= 1
    assert metrics["seconds_total"] > metrics["seconds_compile"] > 0
    assert metrics["converged"] is False
    assert metrics["verdict"] == "not_converged"
    assert any("R-hat" in line for line in metrics["warnings"])


def test_posterior_opens_in_arviz(run):
    with xr.open_datatree(run / "posterior.nc") as tree:
        groups = {"posterior", "unconstrained_posterior", "posterior_predictive", "sample_stats", "observed_data"}
        assert set(tree.children) == groups
        posterior = tree["posterior"]
        assert posterior["k"].dims == ("chain", "draw", "system")
        assert posterior["k"].shape == (32, 20, 3)
        assert posterior["mu"].dims == posterior["tau"].dims == ("chain", "draw", "parameter")
        assert posterior["parameter"].values.tolist() == ["k", "u0", "v0"]
        theta = tree["unconstrained_posterior/theta"]
        assert theta.dims == ("chain", "draw", "system", "parameter")
        np.testing.assert_allclose(np.exp(theta.sel(parameter="k")), posterior["k"], rtol=1e-5)
        assert tree["observed_data/value"].dims == ("system", "observation")
        data = arviz_base.convert_to_datatree(tree)
        assert arviz_base.extract(data, var_names="k").shape == (3, 32 * 20)
        rhat = array_stats.rhat(data["unconstrained_posterior/theta"].values, chain_axis=0, draw_axis=1)
        assert rhat.shape == (3, 3)
        assert metrics_of(run)["rhat_chains_max"] >= rhat.max() - 1e-3


def test_tables(run):
    law = pd.read_csv(run / "closure.csv")
    assert list(law.columns) == ["closure", "input", "f", "density", "supported"]
    assert np.isfinite(law[["input", "f", "density"]]).all(axis=None)
    history = pd.read_parquet(run / "history.parquet")
    assert {"iteration", "loglik", "acceptance", "step_size", "temperature", "seconds", "phase"} <= set(history.columns)
    assert history["iteration"].tolist() == list(range(120))
    assert history["phase"].unique().tolist() == ["learn", "tune", "sample"]
    summary = pd.read_csv(run / "summary.csv")
    told = ["level", "system", "parameter", "mean", "sd", "2.5%", "97.5%", "rhat", "ess_bulk", "ess_tail"]
    told += ["contraction", "decided_by"]
    assert list(summary.columns) == told
    assert summary["level"].value_counts().to_dict() == {"system": 9, "population": 6}
    assert summary["rhat"].max() == pytest.approx(metrics_of(run)["rhat_max"])


def test_law_of_a_users_problem_leaves_its_folder(run, closura, tmp_path):
    """Weights and facts are enough: neither the problem's file nor the rest of the folder is needed."""
    (tmp_path / "part").mkdir()
    for name in ("closure.eqx", "closure.json", "closure.csv"):
        (tmp_path / "part" / name).write_bytes((run / name).read_bytes())
    assert closura("export", "part", "--out", "law.py") == (0, "law.py\n", "")
    law, table = runpy.run_path(str(tmp_path / "law.py")), pd.read_csv(run / "closure.csv")
    size = table["f"].abs().max()
    np.testing.assert_allclose(law["f"](table["input"], warn=False), table["f"], atol=1e-5 * size)
    assert law["supported"](table["input"]).tolist() == table["supported"].tolist()
    assert "The law f(v) of springs" in law["__doc__"]


def test_report_starts_with_the_verdict(run):
    page = (run / "report.html").read_text()
    body = page[page.index("<body>") :]
    assert body.index("NOT CONVERGED") < body.index("Key figures") < body.index("<img")
    assert "http://" not in page.replace("http-equiv", "")
    assert body.count("<img") == 1  # residuals; the rest is drawn in the page


def test_configuration_repeats_the_run(run, shell):
    content = yaml.safe_load((run / "config.yaml").read_text())
    assert content["about"]["versions"].keys() >= {"closura", "jax", "numpy"}
    assert content["problem"] == str(shell.folder / "springs.py")
    assert content["data"] == str(shell.folder / "sim")
    assert content.keys() >= set(Settings.model_fields)
    assert (run / "problem.py").read_text() == PROBLEM


def test_overwrite_leaves_other_files_alone_and_uses_the_truth(run, shell, closura):
    """No hierarchy, the true law, data with its truth, over an old run."""
    folder = shell.folder / "oracle"
    (folder / "figures").mkdir(parents=True)
    (folder / "config.yaml").write_text((run / "config.yaml").read_text())
    for name in ("thesis.tex", "figures/mine.png", "figures/hyper_traces.png", "problem.py"):
        (folder / name).write_text("mine")
    words = ["--data", shell.folder / "sim", "--out", folder, "--oracle", "--no-hierarchy", *SMALL]
    refused = closura("fit", "mass-damper", *words)
    assert refused.code == 2
    assert "oracle holds another run" in refused.err
    done = closura("fit", "mass-damper", *words, "--overwrite", "--quiet")
    assert (done.code, done.err) == (1, "")
    left = WHOLE - {"problem.py", "figures/hyper_traces.png"} | {"thesis.tex", "figures/mine.png"}
    assert all_files(folder) == left
    metrics = metrics_of(folder)
    assert (metrics["oracle"], metrics["hierarchical"]) == (True, False)
    assert metrics["mu"] is metrics["tau"] is metrics["closure_mse"] is None
    assert metrics["theta_mse"] is not None
    law = pd.read_csv(folder / "closure.csv")
    np.testing.assert_allclose(law["f"], law["truth"], rtol=1e-4, atol=1e-5)
    with xr.open_datatree(folder / "posterior.nc") as tree:
        assert "mu" not in tree["posterior"]
    theta = mass_damper.simulate(3, 5)[1].theta
    np.testing.assert_allclose(np.log(pd.read_csv(folder / "truth.csv")["k"]), theta[:, 0], rtol=1e-4)


# One run, from the configuration of the first: killed while learning, then stopped by Ctrl-C while sampling, each time continued.


@pytest.fixture(scope="module")
def killed(run, shell) -> Path:
    words = ("fit", "--config", "whole/config.yaml", "--out", "stopped")
    done = shell.slowly(*words, until=" 20/120", send=signal.SIGKILL, checkpoint_every=0)
    assert done.returncode == -signal.SIGKILL
    return shell.folder / "stopped"


@pytest.fixture(scope="module")
def stopped_while_sampling(killed, shell):
    """The problem's file is gone: its copy does."""
    (shell.folder / "springs.py").unlink()
    done = shell.slowly("resume", "stopped", until="sampling", send=signal.SIGINT)
    (shell.folder / "springs.py").write_text(PROBLEM)
    return done, metrics_of(killed), all_files(killed)


def test_killed(killed, shell, closura):
    assert all_files(killed) >= {"config.yaml", "data.csv", "problem.py", "truth.csv"} | CHECKPOINT
    assert "metrics.json" not in all_files(killed)
    live = pd.read_json(killed / "history.jsonl", lines=True, nrows=10)  # what came after it may be cut off
    assert live["iteration"].tolist() == list(range(10))
    (shell.folder / "springs.py").write_text(PROBLEM.replace("10 *", "11 *"))
    changed = closura("resume", killed)
    (shell.folder / "springs.py").write_text(PROBLEM)
    assert changed.code == 2
    assert "springs.py changed since this run began" in changed.err
    assert "put it back, or start a new run" in changed.err


@pytest.mark.nightly
def test_ctrl_c_while_learning(run, shell):
    done = shell.slowly(
        *("fit", "--config", "whole/config.yaml", "--out", "begun"), until="learning the closure", send=signal.SIGINT
    )
    metrics = metrics_of(shell.folder / "begun")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("NOT CONVERGED")
    assert re.search("Stopped at iteration [123]0 of 120, while learning the closure", done.stdout)
    assert all_files(shell.folder / "begun") == WHOLE | CHECKPOINT
    assert metrics["finished"] is False
    assert metrics["iterations"] < 60
    assert metrics["rhat_max"] is None
    assert metrics["problem"] == "springs"
    assert "Stopped at iteration" in metrics["warnings"][0]


def test_ctrl_c_while_sampling(stopped_while_sampling):
    done, metrics, files = stopped_while_sampling
    assert done.returncode == 1, done.stderr
    assert " 10/120" not in done.stderr  # it went on, it did not begin again
    assert "Stopping after this chunk; what was done is kept." in done.stderr
    assert done.stdout.startswith("NOT CONVERGED")
    assert re.search("Stopped at iteration (90|100) of 120, while sampling", done.stdout)
    assert "`closura resume`" in done.stdout
    assert files == WHOLE | CHECKPOINT
    assert metrics["finished"] is False
    assert metrics["rhat_max"] > 0
    assert "Stopped at iteration" in metrics["warnings"][0]


def test_resumed_it_ends_where_the_whole_run_ended(stopped_while_sampling, killed, shell, run):
    done = shell("resume", "stopped")
    assert done.returncode == 1, done.stderr
    assert all_files(killed) == WHOLE
    metrics = metrics_of(killed)
    assert metrics["finished"] is True
    assert not any("Stopped" in line for line in metrics["warnings"])
    np.testing.assert_allclose(draws_of(killed), draws_of(run), rtol=1e-4, atol=1e-4)
    assert metrics["theta_mse"] == pytest.approx(metrics_of(run)["theta_mse"], rel=1e-3)
    history = pd.read_parquet(killed / "history.parquet")
    assert history["iteration"].tolist() == list(range(120))
    assert history["seconds"].is_monotonic_increasing


def test_killed_before_its_first_checkpoint(run, shell, closura):
    words = ("fit", "--config", "whole/config.yaml", "--out", "early")
    shell.slowly(*words, until="compiling", send=signal.SIGKILL)
    early = shell.folder / "early"
    assert all_files(early) == {"config.yaml", "data.csv", "history.jsonl", "problem.py", "truth.csv"}
    code, _, err = closura("resume", early)
    assert code == 2
    assert f"{early} holds no checkpoint to continue from" in err
    assert f"closura fit --config {early}/config.yaml --out {early} --overwrite" in err
