"""A law as a Python file that needs NumPy and nothing else."""

import numpy as np

from ._formula import Formula, folded

CALLS = {"plain": "_plain({all})", "softplus": "np.logaddexp({}, 0.0)", "exp": "np.exp({})", "tanh": "np.tanh({})"}
CALLS |= {"zero_where": "np.where({}, 0.0, {})"}

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
    [{arguments}], shape = _flat({arguments})
    if warn and not _warned and not _inside({arguments}).all():
        _warned = True
        warnings.warn("called where no data supported this law; see SUPPORT and supported()", stacklevel=2)
    raw = {raw}
    value = {value}
    return value.reshape(shape)[()]


def supported({arguments}):
    """True where data supported the law."""
    [{arguments}], shape = _flat({arguments})
    return _inside({arguments}).reshape(shape)[()]


def _flat(*x):
    x = np.broadcast_arrays(*(np.asarray(xi, float) for xi in x))
    return [xi.ravel() for xi in x], x[0].shape


def _inside(*x):
    points = np.stack(x, axis=-1)
    low, high = np.array(SUPPORT).T
    inside = np.all((points >= low) & (points <= high), axis=-1)
{look_up}    return inside


def _plain(*x):
    h = x = (np.stack([np.atleast_1d(xi) for xi in x], axis=-1) - CENTER) / SCALE
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
    cells, network = law.support.cells, law.network
    ends = zip(law.support.low.tolist(), law.support.high.tolist())
    calls = CALLS | {"above_zero": f"np.maximum({{}}, {law.tiny!r})"}
    activation, raw, value = law.expressions(calls, "SCALE[0]", "OUTPUT")
    return SOURCE.format(
        about="\n".join(law.about),
        support=f"({' '.join(f'({low!r}, {high!r}),' for low, high in ends)})",
        cells="" if cells is None else f"CELLS = np.array({_numbers(cells.astype(int))}, bool)\n",
        center=_numbers(law.center),
        scale=_numbers(law.scale),
        output=repr(law.output),
        line="" if network.line is None else f"LINE = np.array({_numbers(network.line)})\n",
        layers="\n".join(f"    (np.array({_numbers(w)}), np.array({_numbers(b)}))," for w, b in network.layers),
        arguments=", ".join(law.arguments),
        raw=raw,
        value=value,
        look_up="" if cells is None else LOOK_UP,
        activation=activation,
        straight="" if network.line is None else ' + np.einsum("j,nj->n", LINE, x)',
    )


def _numbers(x: np.ndarray) -> str:
    """Every digit."""
    return folded(repr(x.tolist()), "  ")
