"""A law as a Python file that needs NumPy and nothing else."""

import numpy as np

from ._formula import Formula, Network, Tables, activation, folded

CALLS = {"plain": "_plain({all})", "softplus": "np.logaddexp({}, 0.0)", "exp": "np.exp({})", "tanh": "np.tanh({})"}
CALLS |= {"zero_where": "np.where({}, 0.0, {})", "either": "np.where({}, {}, {})"}

SOURCE = '''"""{about}
"""

import warnings

import numpy as np

SUPPORT = {support}
{cells}OUTPUT = {output}
{constants}
_warned = False


def f({arguments}, *, warn=True):
    """The law at numbers or arrays; warns once when called where no data supported it, unless warn=False."""
    global _warned
    [{arguments}], shape = _flat({arguments})
    if warn and not _warned and not _inside({arguments}).all():
        _warned = True
        warnings.warn("called where no data supported this law; see SUPPORT and supported()", stacklevel=2)
    return {mean}.reshape(shape)[()]

{more}
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

{law}'''

LOOK_UP = """\
    width = np.where(high > low, high - low, 1.0)
    place = np.where(inside[:, None], (points - low) / width * len(CELLS), 0.0)
    inside &= CELLS[tuple(np.minimum(place.astype(int), len(CELLS) - 1).T)]
"""

NETWORK = """
def _law({arguments}):
    raw = {raw}
    return {value}


def _plain(*x):
    h = x = (np.stack([np.atleast_1d(xi) for xi in x], axis=-1) - CENTER) / SCALE
    for weight, bias in LAYERS[:-1]:
        h = np.einsum("ij,nj->ni", weight, h) + bias  # every point by itself, so that symmetry is exact
        h = {activation}
    weight, bias = LAYERS[-1]
    return (np.einsum("ij,nj->ni", weight, h) + bias)[:, 0]{straight}
"""

TABLES = """
def _law(tables, x):
{fold}    place = x / STEP + OFFSET
    inside = np.clip(place, 0.0, {last}.0)
    cell = np.nan_to_num(np.minimum(np.floor(inside), {last}.0 - 1.0)).astype(int)
    u, c = inside - cell, np.moveaxis(tables[..., cell, :], -1, 0)
    gradient = c[1] + u * (2 * c[2] + 3 * u * c[3])
    raw = c[0] + u * (c[1] + u * (c[2] + u * c[3])) + gradient * (place - inside)
    return {value}
"""

DRAWS = '''
def f_draws({arguments}):
    """The law of each draw, (draw, ...)."""
    [{arguments}], shape = _flat({arguments})
    return _law(DRAWS, {arguments}).reshape(len(DRAWS), *shape)

'''


def python_source(law: Formula) -> str:
    """The file: `f`, `supported` and `SUPPORT`; of a sampled law `f_draws` too."""
    cells = law.support.cells
    ends = zip(law.support.low.tolist(), law.support.high.tolist())
    arguments = ", ".join(law.arguments)
    body = _network(law, law.body) if isinstance(law.body, Network) else _tables(law, law.body)
    return SOURCE.format(
        about="\n".join(law.about),
        support=f"({' '.join(f'({low!r}, {high!r}),' for low, high in ends)})",
        cells="" if cells is None else f"CELLS = np.array({_numbers(cells.astype(int))}, bool)\n",
        output=repr(law.output),
        arguments=arguments,
        look_up="" if cells is None else LOOK_UP,
        **body,
    )


def _network(law: Formula, body: Network) -> dict[str, str]:
    network, arguments = body.network, ", ".join(law.arguments)
    constants = [f"CENTER = np.array({_numbers(body.center)})", f"SCALE = np.array({_numbers(body.scale)})"]
    constants += [] if network.line is None else [f"LINE = np.array({_numbers(network.line)})"]
    layers = (f"    (np.array({_numbers(w)}), np.array({_numbers(b)}))," for w, b in network.layers)
    constants += ["LAYERS = [  # weight, bias", *layers, "]"]
    written = NETWORK.format(
        arguments=arguments,
        raw=law.raw(CALLS),
        value=law.value(_calls(law), "SCALE[0]", "OUTPUT"),
        activation=activation(network, CALLS),
        straight="" if network.line is None else ' + np.einsum("j,nj->n", LINE, x)',
    )
    return {"constants": "\n".join(constants), "law": written, "mean": f"_law({arguments})", "more": ""}


def _tables(law: Formula, body: Tables) -> dict[str, str]:
    (argument,), side = law.arguments, law.side(CALLS)
    constants = [f"SCALE, STEP, OFFSET = {body.scale!r}, {body.step!r}, {body.offset!r}"]
    constants.append("# Of each draw and cell: a cubic in the place within the cell.")
    constants.append(f"DRAWS = np.array({_numbers(body.draws)})")
    constants += [] if body.mean is None else [f"MEAN = np.array({_numbers(body.mean)})"]
    value = law.value(_calls(law), "SCALE", "OUTPUT")
    written = TABLES.format(
        fold="" if side is None else f"    side = {side}\n    x = side * x\n",
        last=body.draws.shape[1],
        value=f"side * ({value})" if law.structure.odd else value,
    )
    mean = f"_law(DRAWS, {argument}).mean(axis=0)" if body.mean is None else f"_law(MEAN, {argument})"
    more = DRAWS.format(arguments=argument)
    return {"constants": "\n".join(constants), "law": written, "mean": mean, "more": more}


def _calls(law: Formula) -> dict[str, str]:
    return CALLS | {"above_zero": f"np.maximum({{}}, {law.tiny!r})"}


def _numbers(x: np.ndarray) -> str:
    """Every digit."""
    return folded(repr(x.tolist()), "  ")
