"""Equations of the site as MathML, which browsers show without any script (a hook of mkdocs)."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# "Distributed as" is a relation, and names of functions stand apart from what follows.
MENDED = {"<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>", "<mi>log</mi>": '<mi>log</mi><mspace width="0.17em" />'}


def on_page_content(html: str, **_: Any) -> str:
    return MARKED.sub(_rendered, html)


def _rendered(found: re.Match[str]) -> str:
    tag, bracket, escaped = found.groups()
    latex = unescape(escaped).strip()
    math = convert(latex, display="block" if bracket == "[" else "inline")
    if "\\" in math:
        raise PluginError(f"the equation {latex} has a command that latex2mathml does not know; write it differently")
    for plain, mended in MENDED.items():
        math = math.replace(plain, mended)
    return f'<{tag} class="equation">{math}</{tag}>'
