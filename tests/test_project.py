"""What stands around the code: dependencies, versions, workflows, templates."""

import ast
import functools
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import closura

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NIGHTLY = "nightly"

# Distributions whose name is not that of what they let one import.
IMPORTED_AS = {"pyyaml": "yaml", "pytest-xdist": "xdist", "mkdocs-material": "material", "tensorboardx": "tensorboardX"}
# Needed, though nothing imports them; the word in the file is what makes them needed.
UNIMPORTED = {
    "h5netcdf": ("src/closura/runs/_folder.py", 'engine="h5netcdf"'),
    "pytest-xdist": ("Makefile", "--dist loadfile"),
    "beartype": ("pyproject.toml", "beartype.beartype"),
    "ruff": ("Makefile", "ruff"),
    "mypy": ("Makefile", "mypy"),
    "pandas-stubs": ("src/closura/posterior/_summary.py", "import pandas"),
    "types-pyyaml": ("src/closura/cli/_options.py", "import yaml"),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "mkdocstrings-python": ("mkdocs.yml", "mkdocstrings"),
    "polars": ("tests/data/test_readers.py", 'importorskip("polars"'),
}


def distribution(requirement):
    """`jax>=0.10` and `closura[docs]` are called jax and closura."""
    return re.match(r"[\w.-]+", requirement)[0].lower()


@functools.cache
def third_party(*folders):
    """First names of everything imported below these folders, at any depth of their code, that is not Python's own."""
    names = set()
    for file in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names)


def needed_by(group, folders):
    """Those of a group of requirements that are neither imported below `folders` nor needed for a stated reason."""
    names = {distribution(requirement) for requirement in group} - {"closura"}
    imported = third_party(*folders)
    return {name for name in names if IMPORTED_AS.get(name, name.replace("-", "_")) not in imported} - set(UNIMPORTED)


def test_every_dependency_is_used():
    assert needed_by(PROJECT["dependencies"], ["src"]) == set()


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_every_optional_dependency_is_used(extra):
    assert needed_by(PROJECT["optional-dependencies"][extra], ["src", "tests", "tools", "benchmarks"]) == set()


def test_unused_dependencies_are_seen():
    assert needed_by(["jax>=0.10", "torch", "nothing-like-it[all]>=3"], ["src"]) == {"torch", "nothing-like-it"}


@pytest.mark.parametrize("name", UNIMPORTED)
def test_reasons_hold(name):
    everything = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    assert name in {distribution(requirement) for group in everything for requirement in group}, "drop its reason too"
    file, word = UNIMPORTED[name]
    assert word in (ROOT / file).read_text("utf-8")


def test_everything_imported_is_declared():
    declared = [
        *PROJECT["dependencies"],
        *(r for name in ("tensorboard", "wandb", "mlflow") for r in PROJECT["optional-dependencies"][name]),
    ]
    names = {distribution(requirement) for requirement in declared}
    assert third_party("src") - {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names} == {"closura"}


def test_pinned_versions_are_of_what_is_declared():
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    declared = {
        distribution(r)
        for group in (PROJECT["dependencies"], *(PROJECT["optional-dependencies"][n] for n in ("dev", "docs")))
        for r in group
    }
    assert declared - {name.lower().replace("_", "-") for name in pinned} == {"closura"}


# Versions -------------------------------------------------------------------------------------------------------------


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest, date = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE).groups()
    assert closura.__version__ == PROJECT["version"] == citation["version"] == newest
    assert citation["date-released"] == date


def test_versions_are_dated():
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heads
    assert [head for head in heads if not re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", head)] == []
    assert heads == sorted(heads, key=lambda head: [int(part) for part in head.split()[0].split(".")], reverse=True)


def test_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert citation["authors"] == [{"name": "The closura developers"}]
    assert citation["title"].startswith("closura")
    assert citation["message"]


# Workflows, hooks, templates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name
)
def test_yaml_is_read(path):
    assert isinstance(yaml.safe_load(path.read_text("utf-8")), dict)


def workflow(name):
    content = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8"))
    (job,) = content["jobs"].values()
    return content[True], job["strategy"]["matrix"]["python"], [step["run"] for step in job["steps"] if "run" in step]


def targets():
    rules = re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return {target for rule in rules for target in rule.split()}


@pytest.mark.parametrize(
    ("name", "when", "target"), [("pull_request", "pull_request", "test"), (NIGHTLY, "schedule", NIGHTLY)]
)
def test_workflows_run_what_make_knows(name, when, target):
    on, pythons, commands = workflow(name)  # YAML reads `on` as true
    assert when in on
    assert pythons == ["3.11", "3.13"]
    assert commands == [f"make {target} PYTHON=python"]
    assert target in targets()


def test_ci_is_make_test():
    assert (ROOT / ".ci" / "run").read_text("utf-8").splitlines()[-1] == "make test"


def test_hooks_are_local():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    entries = {hook["id"]: hook["entry"] for hook in hooks[0]["hooks"]}
    assert set(entries) == {"tidy", "ruff-check", "ruff-format", "mypy"}
    assert all(entry.startswith(".venv/bin/") for entry in entries.values())
    assert {hook["language"] for hook in hooks[0]["hooks"]} == {"system"}


@pytest.mark.parametrize("name", ["bug", "question", "feature"])
def test_issue_forms(name):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text("utf-8"))
    assert {"name", "description", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked)
    assert all(part["attributes"]["label"] for part in asked)


def test_bugs_can_be_repeated():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text("utf-8"))
    required = {part["id"] for part in form["body"] if part.get("validations", {}).get("required")}
    assert {"problem", "data", "command", "printed"} <= required


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", []),
        (b"a\nb\n", []),
        (b"a\r\n", []),
        (b"a", ["the last line has no end"]),
        (b"a\n\n", ["blank lines at the end"]),
        (b"a \nb\n", ["blanks at the end of line 1"]),
        (b"a\n<<<<<<< HEAD\n", ["line 2 is the mark of a merge"]),
        (b"\0" * 600_000, ["600 kB"]),
    ],
)
def test_tidy(content, says, tmp_path, capsys):
    main = runpy.run_path(str(ROOT / "tools" / "tidy.py"))["main"]
    (tmp_path / "file").write_bytes(content)
    assert main([str(tmp_path / "file"), str(tmp_path / "removed")]) == bool(says)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(says)
    assert all(part in line for part, line in zip(says, said))
