"""Whatever is wrong is named, with what to do; exit code 2, and nothing is written."""

import errno
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from springs import PHYSICS, PROBLEM, fleet

from closura.cli import _main
from closura.diagnose import Verdict
from closura.learning import Diverged


@pytest.fixture
def refused(closura, tmp_path):
    """Call with `--out run`; must end with code 2, a message with these parts, and no run folder."""

    def call(*words, says: tuple[str, ...]) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = closura("fit", *words, "--out", "run")
        assert code == 2
        assert out == ""
        assert err.startswith("closura: ")
        assert "Traceback" not in err
        for part in says:
            assert part in err, f"{part!r} is not in: {err}"
        assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before
        return err

    return call


@pytest.fixture
def fitted(monkeypatch):
    """In place of a fit: what it was called with."""
    calls = []

    def fit(problem, data, **options):
        calls.append((problem, data, options))
        return SimpleNamespace(converged=calls[0] is None, verdict=Verdict())

    monkeypatch.setattr(_main, "fit_fleet", fit)
    return calls


# Problems and settings


def test_unknown_problem(refused):
    refused("mass_dampr", says=("unknown problem 'mass_dampr'", "did you mean 'mass-damper'?", "a file ending in .py"))
    refused("xyz", says=("unknown problem 'xyz'; built-in problems: mass-damper",))


def test_no_problem(refused):
    refused(says=("name a problem: `closura fit mass-damper`",))


def test_simulate_takes_built_in_problems_only(closura):
    code, _, err = closura("simulate", "springs.py", "--out", "sim")
    assert code == 2
    assert "unknown problem 'springs.py'; built-in problems: mass-damper" in err


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("chans", ("unknown setting 'chans'", "did you mean 'chains' (chains in all, split evenly into groups)?")),
        ("problme", ("unknown setting 'problme'", "did you mean 'problem' (a built-in problem, or a Python file")),
        ("zzz", ("unknown setting 'zzz'; settings are problem, data,", "learning_rate")),
    ],
)
def test_unknown_key(refused, files, key, says):
    refused("mass-damper", "--config", files("mine.yaml", f"{key}: 3\n"), says=(f"mine.yaml: {says[0]}", *says[1:]))
    refused("mass-damper", "--set", f"{key}=3", says=(f"--set: {says[0]}", *says[1:]))


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("chains=many", "setting chains='many': input should be a valid integer"),
        ("iterations=0", "(iterations: iterations that learn the closure while sampling)"),
        ("blocks=all", "setting blocks='all': input should be 'system' or 'joint'"),
        ("oracle=perhaps", "setting oracle='perhaps': input should be a valid boolean"),
        ("systems=0", "setting systems=0: input should be greater than or equal to 1 (systems: number of synthetic"),
        ("data_seed=-1", "setting data_seed=-1: input should be greater than or equal to 0"),
        ("chains", "--set 'chains': write KEY=VALUE"),
        ("=3", "--set '=3': write KEY=VALUE"),
        ("chains=[", "--set 'chains=[': the value '[' cannot be read"),
    ],
)
def test_bad_value(refused, pair, says):
    refused("mass-damper", "--set", pair, says=(says,))


def test_hyphens_and_underscores_are_the_same(closura, fitted, problem, table, files):
    config = files("mine.yaml", "gradient-chains: 4\nlearning_rate: 1e-3\n")
    closura("fit", problem, "--data", table, "--config", config, "--set", "data-seed=3", "--set", "preconditioner=none")
    _, _, options = fitted[0]
    assert options["gradient_chains"] == 4
    assert options["learning_rate"] == 1e-3
    assert options["preconditioner"] is None
    assert options["context"]["data_seed"] == 3


def test_options_win_over_pairs_and_those_over_the_file(closura, fitted, problem, table, files):
    config = files("mine.yaml", "chains: 64\ndraws: 5\nseed: 1\n")
    closura(
        *("fit", problem, "--data", table, "--config", config, "--set", "chains=96"),
        *("--set", "seed=2", "--chains", "128"),
    )
    _, _, options = fitted[0]
    assert (options["chains"], options["seed"], options["draws"]) == (128, 2, 5)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("chains: [3\n", "is not valid YAML"),
        ("\t- x: :\n", "is not valid YAML"),
        ("- chains\n- 64\n", "holds a list; write `key: value` lines"),
        ("chains\n", "holds a str; write `key: value` lines"),
    ],
)
def test_bad_configuration(refused, files, content, says):
    refused("mass-damper", "--config", files("mine.yaml", content), says=("mine.yaml", says, "`chains: 64`"))


def test_missing_configuration(refused):
    refused("mass-damper", "--config", "no.yaml", says=("cannot read no.yaml: No such file", "check its name"))


def test_empty_configuration(refused, files):
    refused("nothing", "--config", files("mine.yaml", ""), says=("unknown problem 'nothing'",))


def test_chains(refused, problem, table):
    refused(problem, "--data", table, "--chains", "20", says=("chains=20 do not split into 4 groups", "use 24 or 16"))
    says = ("chains=24 are too few", "blocks='system' have 3 dimensions", "at least 32 chains", "raise chains to 32")
    refused(problem, "--data", table, "--chains", "24", says=says)
    says = ("blocks='joint' have 15 dimensions", "needs at least 128 chains", "or lower groups")
    refused(problem, "--data", table, "--set", "blocks=joint", says=says)


# Data


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop(columns="system"), ("there is no column 'system'", "the columns are: time, u")),
        (lambda t: t.rename(columns={"time": "tiem"}), ("there is no column 'time'", "Did you mean 'time' by 'tiem'?")),
        (lambda t: t.astype({"u": object}).replace({"u": {0.0: "abc"}}), ("'u' is not a finite number", "'abc'")),
        (lambda t: t.replace({"u": {0.0: np.nan}}), ("no value of u", "line 2 (system s0, time 0.0)", "delete the line")),
        (lambda t: t[:1], ("holds 1 observation in all", "the 3 parameters of one system (k, u0, v0)", "add data")),
        (lambda t: t.iloc[[0, 1, 1, 2, 3]], ("line 4", "repeats line 3", "Drop one, or pass allow_duplicates")),
        (lambda t: t.assign(time=t.time + 5), ("outside the problem's span 0.0 to 8.0", "s0 at time 9.0", "widen the span")),
        (lambda t: t.assign(sigma=0.0), ("'sigma' is not a positive number", "line 2 (system s0, time 0.0) has '0.0'")),
        (lambda t: t.assign(sigma=-1.0), ("'sigma' is not a positive number", "'-1.0'")),
        (lambda t: t.rename(columns={"u": "w"}), ("the problem observes 'u', but the table has no such column",)),
        (lambda t: t[:0], ("the table is empty", "Add a line per observation")),
    ],
    ids=["system", "time", "text", "nan", "one", "duplicate", "outside", "zero", "negative", "quantity", "empty"],
)  # fmt: skip
def test_bad_table(refused, files, problem, change, says):
    content = change(fleet().replace({"u": {np.sin(0.0): 0.0}})).to_csv(index=False)
    refused(problem, "--data", files("bad.csv", content), says=says)


def test_no_data(refused, problem, tmp_path):
    refused(problem, says=("springs.py has no data of its own; name a table with --data FILE.csv",))
    refused(problem, "--data", "no.csv", says=("no.csv: No such file", "Check its name and folder"))
    (tmp_path / "empty").mkdir()
    refused(problem, "--data", "empty", says=("empty holds no data.csv", "`closura simulate`"))


def test_no_noise(refused, files, table):
    quiet = files("quiet.py", PROBLEM.replace("    sigma=0.15,\n", ""))
    refused(quiet, "--data", table, says=("no noise is known for u", "Add a column 'sigma'"))


def test_systems_are_for_synthetic_data(refused, table):
    refused("mass-damper", "--data", table, "--systems", "3", says=("--systems is for synthetic data",))


def test_unsorted_and_unused_are_noted(closura, fitted, files, problem):
    mixed = fleet().assign(note="x", w=1.0)[::-1].to_csv(index=False)
    code, _, err = closura("fit", problem, "--data", files("mixed.csv", mixed))
    assert code == 1
    assert "note: times sorted in 3 of 3 systems\n" in err
    assert "note: column 'note' holds text" in err
    assert "note: column 'w' is not in the problem: ignored" in err
    _, data, _ = fitted[0]
    assert np.all(np.diff(data.time) > 0)


def test_duplicates_may_be_allowed(closura, fitted, files, problem):
    twice = fleet().iloc[[0, 1, 1, 2, 3]].to_csv(index=False)
    closura("fit", problem, "--data", files("twice.csv", twice), "--allow-duplicates")
    assert fitted[0][1].counts.tolist() == [5]


def test_truth_of_other_parameters_is_left_out(closura, fitted, files, table, tmp_path):
    (tmp_path / "sim").mkdir()
    shutil.move(table, "sim/data.csv")
    files("sim/truth.csv", "system,k,u0\ns0,1,2\ns1,1,2\ns2,1,2\n")
    _, _, err = closura("fit", files("p.py", PROBLEM), "--data", "sim")
    assert "note: no scores against the truth" in err
    assert "v0" in err
    assert fitted[0][2]["truth"] is None


# Problem files


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x = 1\n", ("does not define `problem`; write problem = cl.ODE(...)",)),
        ("problem = 3\n", ("`problem` must be a cl.ODE(...), it is of type int",)),
        ("x = 1 +\n", ("SyntaxError: invalid syntax", "line 1")),
        ("import os\n\ny = 1 / 0\n", (", line 3 (y = 1 / 0): ZeroDivisionError: division by zero",)),
        ("import sys\nsys.exit(3)\n", (", line 2 (sys.exit(3)): SystemExit: 3",)),
        ("import nosuchmodule\n", ("ModuleNotFoundError: No module named 'nosuchmodule'",)),
        (PROBLEM.replace(PHYSICS, "return v, nope(v)"), (", line 6 (return v, nope(v))", "name 'nope' is not defined")),
        (PROBLEM.replace(PHYSICS, "return v"), ("must return 2 numbers (u, v), it returned 1",)),
        (PROBLEM.replace(PHYSICS, "return v, f(v) * jnp.ones(3)"), ("its 'v' has shape (3,)",)),
        (PROBLEM.replace(PHYSICS, "return v, f(u, v)"), (", line 6 (return v, f(u, v))", "closure 'f' takes 1 input, but the physics calls it with 2")),
        (PROBLEM.replace("p.k", "p.c"), (", line 6", "has no attribute 'c'")),
        (PROBLEM.replace("(p.u0, p.v0)", "p.u0"), ("initial(p) must return 2 numbers (u, v), it returned 1",)),
        (PROBLEM.replace("cl.MLP(width=8, depth=1)", "cl.MLP(width=0)"), (", line 16 (closure=cl.MLP(width=0),)",)),
    ],
)  # fmt: skip
def test_bad_problem_file(refused, files, table, content, says):
    refused(files("bad.py", content), "--data", table, says=("bad.py", *says))


def test_missing_problem_file(refused, table):
    refused("no.py", "--data", table, says=("there is no file", "no.py; check its name and folder"))


def test_physics_that_gives_nan(refused, files, table):
    content = PROBLEM.replace(PHYSICS, "return v, jnp.sqrt(-1 - u**2) - f(v)")
    says = ("the physics gives nan for 'u' at t = 0.08", "(k=4, u0=0, v0=0)", "roots or logarithms of negative numbers")
    refused(files("bad.py", content), "--data", table, says=says)


def test_parameter_named_like_the_population(refused, files, table):
    content = PROBLEM.replace('"k":', '"tau":').replace("p.k", "p.tau")
    says = ("a parameter cannot be called 'tau'", "rename it, e.g. tau_")
    refused(files("bad.py", content), "--data", table, says=says)


def test_oracle_needs_a_built_in_problem(refused, problem, table):
    refused(problem, "--data", table, "--oracle", says=("--oracle needs the true law", "drop it"))


def test_problem_file_may_import_its_neighbours_and_have_any_name(closura, fitted, files, table):
    files("helper.py", "from dataclasses import dataclass\nSTART = 1.0\n")
    content = "from __future__ import annotations\nfrom helper import START, dataclass\n" + PROBLEM
    files("numpy.py", content + "\n\n@dataclass\nclass Extra:\n    x: float = START\n")
    code, _, _ = closura("fit", "numpy.py", "--data", table)
    assert code == 1
    problem, _, options = fitted[0]
    assert problem.name == "numpy"
    assert options["out"].as_posix() == "runs/numpy"
    assert options["context"]["problem"] == os.path.abspath("numpy.py")
    assert options["context"]["data"] == os.path.abspath(table)


def test_default_folder_is_numbered_and_stays_below_runs(closura, fitted, files, table, tmp_path):
    content = PROBLEM.replace("sigma=0.15,", "sigma=0.15,\n    name='../a b/<c>',")
    (tmp_path / "runs" / "a-b-c").mkdir(parents=True)
    closura("fit", files("p.py", content), "--data", table)
    assert fitted[0][2]["out"].as_posix() == "runs/a-b-c-2"


# Folders


STAMP = "chains: 64\nabout:\n  versions:\n    closura: 0.1.0\n"


def test_folder_with_another_run(closura, problem, table, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(STAMP)
    code, _, err = closura("fit", problem, "--data", table, "--out", "run")
    assert code == 2
    assert "run holds another run; choose another folder with --out, replace it with --overwrite\n" in err
    (tmp_path / "run" / "checkpoint").mkdir()
    _, _, err = closura("fit", problem, "--data", table, "--out", "run")
    assert "or continue it with `closura resume run`" in err
    assert [path.name for path in sorted((tmp_path / "run").iterdir())] == ["checkpoint", "config.yaml"]


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


# Exit codes


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["chains disagree"], 1)])
def test_exit_code_says_whether_it_converged(closura, monkeypatch, problem, table, problems, code):
    done = SimpleNamespace(converged=not problems, verdict=Verdict(problems))
    monkeypatch.setattr(_main, "fit_fleet", lambda *_, **__: done)
    assert closura("fit", problem, "--data", table).code == code


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (Diverged("the weights are no longer finite"), 1, "closura: the weights are no longer finite"),
        (KeyboardInterrupt(), 130, "closura: stopped at once. Nothing was kept."),
    ],
)
def test_exit_code_of_a_run_that_broke_off(closura, monkeypatch, problem, table, error, code, says):
    def fit(*_, **__):
        raise error

    monkeypatch.setattr(_main, "fit_fleet", fit)
    outcome = closura("fit", problem, "--data", table)
    assert outcome.code == code
    assert says in outcome.err


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
