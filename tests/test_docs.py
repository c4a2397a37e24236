"""Code in the documentation runs."""

import re
from pathlib import Path

import pytest

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


def test_data():
    assert run("data.md")["data"].systems == ("A",)


@pytest.fixture(scope="module")
def result(hardly_optimised):
    small = Settings(chains=32, iterations=20, settle=0, draws=5, extend=0, chunk=10, devices=1)
    problem = mass_damper.problem.with_closure(MLP(width=8, depth=1, dissipative=True))
    return collect(Run(problem, mass_damper.simulate(3, 0)[0], small))


def test_law(tmp_path, monkeypatch, result):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run("law.md", result=result)["law"].f(1.0) > 0


@pytest.mark.filterwarnings("ignore:the law f is asked for more")
def test_predict(result):
    assert run("predict.md", result=result)["forecast"]["system"].unique().tolist() == ["pump 21"]
