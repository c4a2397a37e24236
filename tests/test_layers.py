"""Data flow one way: each folder imports only from those above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import closura

ROOT = Path(closura.__file__).parent
ORDER = (
    "parameters",
    "data",
    "laws",
    "population",
    "equations",
    "forward",
    "sampling",
    "learning",
    "show",
    "track",
    "diagnose",
    "posterior",
    "predict",
    "runs",
    "problems",
    "cli",
)
ALLOWED = {folder: {"_compile", "_files", *ORDER[:place]} for place, folder in enumerate(ORDER)}
ALLOWED["show"] = ALLOWED["track"] = set()  # from plain arrays
ALLOWED["problems"] = {"data", "diagnose", "equations", "laws", "parameters"}
ALLOWED["cli"] |= {"_check", "_fit", "closura"}  # a thin layer over the verbs


def imported(source: str, package: tuple[str, ...]) -> set[str]:
    """First names below closura that a module of `package` (folders below closura) imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            if node.level:
                module = ["closura", *package[: len(package) + 1 - node.level], *module]
            targets = [[*module, alias.name] for alias in node.names] if module == ["closura"] else [module]
        else:
            continue
        names |= {target[1] if len(target) > 1 else "closura" for target in targets if target[0] == "closura"}
    return names - {package[0]} if package else names


def test_every_folder_has_its_place():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ORDER)


@pytest.mark.parametrize("folder", ORDER)
def test_imports_point_upwards(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for file in files:
        package = file.parent.relative_to(ROOT).parts
        wrong = imported(file.read_text(), package) - ALLOWED[folder]
        assert not wrong, f"{file.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from ..learning import Run", {"learning"}),
        ("from ..laws._bind import bind", {"laws"}),
        ("from .. import learning, laws", {"learning", "laws"}),
        ("def f():\n    from .._fit import fit", {"_fit"}),
        ("import closura.cli._main as main", {"cli"}),
        ("import closura as cl", {"closura"}),
        ("from closura import learning", {"learning"}),
        ("from closura.show import View", {"show"}),
        ("from ._table import axis\nfrom . import _table\nimport numpy\nfrom jax import lax", set()),
    ],
)
def test_imports_are_seen(source, names):
    assert imported(source, ("forward",)) == names


def test_slow_libraries_wait_until_they_are_needed():
    code = "import closura.cli._main, sys; print(*{'matplotlib', 'diffrax', 'scipy', 'arviz_stats', 'tensorboardX'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
