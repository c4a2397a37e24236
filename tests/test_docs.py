"""Code in the documentation runs."""

import re
from pathlib import Path

from closura import MLP
from closura.learning import Run, Settings
from closura.problems import mass_damper
from closura.result import collect

PAGES = Path(__file__).parent.parent / "docs"


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


def test_problem():
    sizes = {"chains": 16, "groups": 2, "iterations": 4, "settle": 0, "draws": 2, "thin": 1, "extend": 0, "chunk": 2}
    names = run("problem.md", sizes=sizes | {"progress": False, "devices": 1})
    assert names["result"].posterior["leak"].shape == (16, 2, 2)


def test_data():
    assert run("data.md")["data"].systems == ("A",)


def test_law(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    small = Settings(chains=32, iterations=20, settle=0, draws=5, extend=0, chunk=10, devices=1)
    problem = mass_damper.problem.with_closure(MLP(width=8, depth=1, dissipative=True))
    names = run("law.md", result=collect(Run(problem, mass_damper.simulate(3, 0)[0], small)))
    assert names["law"].f(1.0) > 0
