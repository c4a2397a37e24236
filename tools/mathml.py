"""Equations of the site as MathML, which browsers show without any script (a hook of mkdocs)."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    return MARKED.sub(_rendered, html)


def _rendered(found: re.Match[str]) -> str:
    tag, bracket, latex = found.groups()
    display = "block" if bracket == "[" else "inline"
    return f'<{tag} class="equation">{convert(unescape(latex).strip(), display=display)}</{tag}>'
