"""Code in the documentation runs."""

import re
from pathlib import Path

import numpy as np
import pytest

from closura import MLP
from closura.learning import Run, Settings
from closura.learning._programs import Log
from closura.problems import mass_damper
from closura.result import collect
from closura.result._folder import FILES
from closura.track import JsonLines

PAGES = Path(__file__).parent.parent / "docs"
COLUMNS = ("iteration", "phase", "seconds", "temperature", *Log._fields)


def run(page, **names):
    """The names its code leaves behind, beside those it is given."""
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        if "not run here" not in block:
            exec(block, names)
    return names


def test_fields():
    names = run("fields.md")
    for problem in (names["problem"], names["rods"]):
        problem.check_scheme()
        assert problem.law_inputs() == {"f": ("u",)}


@pytest.mark.usefixtures("hardly_optimised")
def test_problem():
    sizes = {"chains": 16, "groups": 2, "iterations": 4, "settle": 0, "draws": 2, "thin": 1, "extend": 0, "chunk": 2}
    names = run("problem.md", sizes=sizes | {"progress": False, "devices": 1})
    assert names["result"].posterior["leak"].shape == (16, 2, 2)


def test_data():
    assert run("data.md")["data"].systems == ("A",)


@pytest.fixture(scope="module")
def result(hardly_optimised):
    small = Settings(chains=32, iterations=20, settle=0, draws=5, extend=0, chunk=10, devices=1)
    problem = mass_damper.problem.with_closure(MLP(width=8, depth=1, dissipative=True))
    return collect(Run(problem, mass_damper.simulate(3, 0)[0], small))


def test_law(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = run("law.md", result=result)
    assert names["law"].f(1.0) > 0


def test_results(result, tmp_path, monkeypatch):
    (tmp_path / "runs" / "fleet").mkdir(parents=True)
    entries = {name: np.ones(2, np.float32) for name in COLUMNS} | {"phase": np.array(["learn", "settle"])}
    JsonLines(tmp_path / "runs" / "fleet" / "history.jsonl").follow([entries])
    monkeypatch.chdir(tmp_path)
    names = run("results.md", result=result)
    assert len(names["own"]) == 9
    assert names["odd"].columns.tolist() == names["table"].columns.tolist()


def test_the_folder_is_described():
    """Every file a run may leave has its place in a table, and every column of its history."""
    page = (PAGES / "results.md").read_text()
    files = {name for name in FILES if not name.startswith("figures/")} | {
        "checkpoint.npz",
        "history.jsonl",
        "tensorboard/",
        "figures/",
    }
    assert {name for name in (*files, *COLUMNS) if f"`{name}`" not in page} == set()


@pytest.mark.filterwarnings("ignore:the law f is asked for more")
def test_predict(result):
    assert run("predict.md", result=result)["forecast"]["system"].unique().tolist() == ["pump 21"]
