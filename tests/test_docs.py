"""Code in the documentation runs."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", ["fields.md"])
def test_code_of_a_page_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:
        if "not run here" not in block:
            exec(block, names)
    for problem in (names["problem"], names["rods"]):
        problem.check_scheme()
        assert problem.law_inputs() == {"f": ("u",)}
