"""Code in the documentation runs."""

import re
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs"


def run(page):
    """The names its code leaves behind."""
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert blocks
    names = {}
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
