"""A law as a Python file that needs NumPy and nothing else."""

import textwrap
from typing import Any

import numpy as np

from ..laws import factored, reflects, shifted
from ._formula import Formula

ACTIVATIONS = {
    "silu": "h * np.exp(-np.logaddexp(-h, 0.0))",
    "tanh": "np.tanh(h)",
    "gelu": "0.5 * h * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * h**3)))",
}

SOURCE = '''"""{about}
"""

import warnings

import numpy as np

SUPPORT = {support}
{cells}CENTER = np.array({center})
SCALE = np.array({scale})
OUTPUT = {output}
{line}LAYERS = [  # weight, bias
{layers}
]
_warned = False


def f({arguments}, *, warn=True):
    """The law at numbers or arrays; warns once when called where no data supported it, unless warn=False."""
    global _warned
    points, shape = _points({arguments})
    if warn and not _warned and not _inside(points).all():
        _warned = True
        warnings.warn("called where no data supported this law; see SUPPORT and supported()", stacklevel=2)
    raw = _plain(points)
{structure}
    return value.reshape(shape)[()]


def supported({arguments}):
    """True where data supported the law."""
    points, shape = _points({arguments})
    return _inside(points).reshape(shape)[()]


def _points(*x):
    x = np.broadcast_arrays(*(np.asarray(xi, float) for xi in x))
    return np.stack([xi.ravel() for xi in x], axis=-1), x[0].shape


def _inside(points):
    low, high = np.array(SUPPORT).T
    inside = np.all((points >= low) & (points <= high), axis=-1)
{look_up}    return inside


def _plain(points):
    h = x = (points - CENTER) / SCALE
    for weight, bias in LAYERS[:-1]:
        h = np.einsum("ij,nj->ni", weight, h) + bias  # every point by itself, so that symmetry is exact
        h = {activation}
    weight, bias = LAYERS[-1]
    return (np.einsum("ij,nj->ni", weight, h) + bias)[:, 0]{straight}
'''

LOOK_UP = """\
    width = np.where(high > low, high - low, 1.0)
    place = np.where(inside[:, None], (points - low) / width * len(CELLS), 0.0)
    inside &= CELLS[tuple(np.minimum(place.astype(int), len(CELLS) - 1).T)]
"""


def python_source(law: Formula) -> str:
    """The file: `f`, `supported` and `SUPPORT`."""
    cells, ends = law.support.cells, zip(law.support.low.tolist(), law.support.high.tolist())
    return SOURCE.format(
        about="\n".join(law.about),
        support=f"({' '.join(f'({low!r}, {high!r}),' for low, high in ends)})",
        cells="" if cells is None else f"CELLS = np.array({_numbers(cells.astype(int))}, bool)\n",
        center=_numbers(law.center),
        scale=_numbers(law.scale),
        output=repr(law.output),
        line="" if law.line is None else f"LINE = np.array({_numbers(law.line)})\n",
        layers="\n".join(f"    (np.array({_numbers(w)}), np.array({_numbers(b)}))," for w, b in law.layers),
        arguments=", ".join(law.arguments),
        structure=textwrap.indent("\n".join(_structure(law)), "    "),
        look_up="" if cells is None else LOOK_UP,
        activation=ACTIVATIONS[law.activation],
        straight="" if law.line is None else ' + np.einsum("j,nj->n", LINE, x)',
    )


def _structure(law: Formula) -> list[str]:
    """As `Closure.raw` and what finishes it, line by line."""
    spec, lines = law.spec, []
    if reflects(spec):
        lines.append(f"raw = 0.5 * (raw {'+' if spec.even or factored(spec) else '-'} _plain(-points))")
    if shifted(spec):
        lines.append("raw = raw - _plain(np.zeros_like(points[:1]))")
    if spec.positive:
        return [*lines, f"value = np.maximum(OUTPUT * np.logaddexp(raw, 0.0), {law.tiny!r})"]
    if factored(spec):
        return [*lines, "value = OUTPUT * (points[:, 0] / SCALE[0]) * np.logaddexp(raw, 0.0)"]
    if spec.dissipative:
        ends = "np.where(points[:, 0] < 0, -np.inf, 0.0), np.where(points[:, 0] > 0, np.inf, 0.0)"
        lines.append(f"raw = np.clip(raw, {ends})")
    elif shifted(spec):
        lines.append("raw = np.where(np.all(points == 0, axis=-1), 0.0, raw)")
    return [*lines, "value = OUTPUT * raw"]


def _numbers(x: np.ndarray) -> str:
    """Every digit, over several lines where there are many."""
    text = _list(x.tolist())
    return text if len(text) < 90 else "\n" + textwrap.fill(text, 118, initial_indent="  ", subsequent_indent="  ")


def _list(x: Any) -> str:
    return f"[{', '.join(map(_list, x))}]" if isinstance(x, list) else repr(x)
