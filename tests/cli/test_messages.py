"""Whatever is wrong is named, with what to do; exit code 2, and nothing is written."""

import os
import shutil

import numpy as np
import pytest
from springs import PHYSICS, PROBLEM, fleet

from closura.cli._options import choose

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


def test_law_must_have_what_it_is_told(refused):
    refused("mass-damper", "--set", "law={old: true}", says=("a law has no old; it has inputs, odd, even",))
    refused("mass-damper", "--oracle", "--set", "law={odd: true}", says=("there is none; drop it",))
    refused("mass-damper", "--set", "law=odd", says=("setting law='odd'",))


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
        (lambda t: t.iloc[[0, 1, 1, 2, 3]], ("line 4", "repeats line 3", "Drop one, or allow it", "--allow-duplicates")),
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


@pytest.mark.usefixtures("hardly_optimised")
@pytest.mark.nightly
def test_noise_that_is_not_given_is_inferred_and_that_is_said(closura, files, table, tmp_path):
    quiet = files("quiet.py", PROBLEM.replace("    sigma=0.15,\n", ""))
    few = ("--chains=32", "--iterations=4", "--draws=4", "--set=tune=4", "--set=extend=0", "--devices=1")
    code, out, err = closura("fit", quiet, "--data", table, "--out", "run", *few)
    assert code == 1
    assert "note: noise of u: not given, inferred; before data log-normal about" in err
    assert "sigma of u " in out


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
        ("x = 1\n", ("does not define `problem`; write problem = cl.",)),
        ("problem = 3\n", ("it is of type int",)),
        ("x = 1 +\n", ("SyntaxError: invalid syntax", "line 1")),
        ("import os\n\ny = 1 / 0\n", (", line 3 (y = 1 / 0): ZeroDivisionError: division by zero",)),
        ("def half(x):\n    return x / 0\n\nhalf(2)\n", (", line 2 (return x / 0), called from line 4 (half(2)): ZeroDivisionError",)),
        ("import sys\nsys.exit(3)\n", (", line 2 (sys.exit(3)): SystemExit: 3",)),
        ("import nosuchmodule\n", ("ModuleNotFoundError: No module named 'nosuchmodule'",)),
        (PROBLEM.replace(PHYSICS, "return v, nope(v)"), (", line 6 (return v, nope(v))", "name 'nope' is not defined")),
        (PROBLEM.replace(PHYSICS, "return v"), ("must return 2 numbers (u, v), it returned 1",)),
        (PROBLEM.replace(PHYSICS, "return v, f(v) * jnp.ones(3)"), ("its 'v' has shape (3,)",)),
        (PROBLEM.replace(PHYSICS, "return v, f(u, v)"), (", line 6 (return v, f(u, v))", "closure 'f' takes 1 input, but the physics calls it with 2")),
        (PROBLEM.replace("p.k", "p.c"), (", line 6", "there is no parameter 'c'; there are k, u0, v0")),
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


def test_what_suits_a_field_is_not_held_against_the_defaults_of_curves():
    _, settings = choose(None, ["groups=2"], {"problem": "darcy", "chains": 20})
    assert settings == {"groups": 2, "chains": 20}
