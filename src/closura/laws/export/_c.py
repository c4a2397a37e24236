"""A law as one C99 file that needs math.h and nothing else."""

import re
import textwrap

import numpy as np

from .._mlp import Dense
from ._formula import Formula, Network, Tables, activation, folded

CALLS = {"plain": "plain((double[]){{{all}}})", "softplus": "softplus({})", "exp": "exp({})", "tanh": "tanh({})"}
CALLS |= {"zero_where": "({} ? 0.0 : {})", "either": "({} ? {} : {})"}

SOURCE = """\
/*
{about}
*/

#include <math.h>

const double {name}_support[{inputs}][2] = {{{support}}};
{cells}{constants}
{helpers}
{law}
int {name}_supported({arguments})
{{
    const double point[] = {{{names}}};
    for (int i = 0; i < {inputs}; i++)
        if (!(point[i] >= {name}_support[i][0] && point[i] <= {name}_support[i][1]))
            return 0;
{look_up}
}}

/* The law; where {name}_supported(...) is 0 it is an extrapolation. */
double {name}({arguments})
{{
{mean}
}}
{more}"""

HELPERS = {
    "softplus": """
static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}
""",
    "maximum": """
static double maximum(double x, double y)
{
    return x < y ? y : x;
}
""",
}

LOOK_UP = """\
    int cell[{inputs}];
    for (int i = 0; i < {inputs}; i++) {{
        const double low = {name}_support[i][0], high = {name}_support[i][1];
        cell[i] = (int)((point[i] - low) / (high > low ? high - low : 1.0) * {count});
        if (cell[i] > {count} - 1)
            cell[i] = {count} - 1;
    }}
    return cells{place} == '1';"""

NETWORK = """\
static double activated(double h)
{{
    return {activation};
}}

static void layer(const double *weight, const double *bias, int in, int out, const double *x, double *y)
{{
    for (int i = 0; i < out; i++) {{
        y[i] = bias[i];
        for (int j = 0; j < in; j++)
            y[i] += weight[i * in + j] * x[j];
    }}
}}

static double plain(const double *point)
{{
    double x[{inputs}], h[{width}], g[{width}];
    for (int i = 0; i < {inputs}; i++)
        x[i] = (point[i] - center[i]) / scale[i];
{calls}
}}
"""

NETWORK_MEAN = """\
    const double raw = {raw};
    return {value};"""

TABLES = """\
/* The law of a table of cubics, one a cell; straight lines outside. */
static double law(const double table[][4], double x)
{{
{fold}    const double place = x / {step!r} + {offset!r};
    const double inside = place < 0.0 ? 0.0 : place > {last}.0 ? {last}.0 : place;
    int cell = inside >= 0.0 ? (int)inside : 0;
    if (cell > {last} - 1)
        cell = {last} - 1;
    const double u = inside - cell, *c = table[cell];
    const double gradient = c[1] + u * (2 * c[2] + 3 * u * c[3]);
    const double raw = c[0] + u * (c[1] + u * (c[2] + u * c[3])) + gradient * (place - inside);
    return {value};
}}
"""

TABLES_MEAN = """\
    double total = 0.0;
    for (int i = 0; i < {count}; i++)
        total += law(draws[i], {argument});
    return total / {count};"""

DRAWS = """
const int {name}_count = {count};

/* The law of each draw; `values` has room for {name}_count of them. */
void {name}_draws({arguments}, double *values)
{{
    for (int i = 0; i < {count}; i++)
        values[i] = law(draws[i], {names});
}}
"""


def c_source(law: Formula) -> str:
    """The file: `f`, `f_supported` and `f_support`, of a sampled law `f_draws` and `f_count` too; of a closure with a name,
    `f_NAME` and so on."""
    name = "f" if law.name == "f" else "f_" + re.sub(r"\W", "_", law.name, flags=re.ASCII)
    cells, inputs = law.support.cells, law.structure.inputs
    ends = zip(law.support.low.tolist(), law.support.high.tolist())
    body = _network(law, law.body) if isinstance(law.body, Network) else _tables(law, law.body, name)
    used = [text for helper, text in HELPERS.items() if f"{helper}(" in body["law"] + body["mean"]]
    look_up = "    return 1;"
    if cells is not None:
        place = "".join(f"[cell[{i}]]" for i in range(inputs))
        look_up = LOOK_UP.format(name=name, inputs=inputs, count=len(cells), place=place)
    return SOURCE.format(
        about="\n".join(law.about),
        name=name,
        inputs=inputs,
        support=", ".join(f"{{{low!r}, {high!r}}}" for low, high in ends),
        cells="" if cells is None else _quoted(cells),
        helpers="".join(used),
        look_up=look_up,
        arguments=_arguments(law),
        names=", ".join(law.arguments),
        **body,
    )


def _network(law: Formula, body: Network) -> dict[str, str]:
    network = body.network
    constants = [f"static const double center[] = {_numbers(body.center)};"]
    constants.append(f"static const double scale[] = {_numbers(body.scale)};")
    for i, layer in enumerate(network.layers):
        for kind, part in zip(("weight", "bias"), layer):
            constants.append(f"static const double {kind}{i}[] = {_numbers(part)};")
    if network.line is not None:
        constants.append(f"static const double line[] = {_numbers(network.line)};")
    written = NETWORK.format(
        inputs=law.structure.inputs,
        activation=activation(network, CALLS),
        width=max(len(bias) for _, bias in network.layers),
        calls=textwrap.indent("\n".join(_layers(network)), "    "),
    )
    value = law.value(_calls(law), "scale[0]", repr(law.output))
    mean = NETWORK_MEAN.format(raw=law.raw(CALLS), value=value)
    return {"constants": "\n".join(constants), "law": written, "mean": mean, "more": ""}


def _tables(law: Formula, body: Tables, name: str) -> dict[str, str]:
    (argument,), side = law.arguments, law.side(CALLS)
    count, last, _ = body.draws.shape
    each = ",\n".join(_cubics(draw) for draw in body.draws)
    constants = [f"static const double draws[{count}][{last}][4] = {{\n{each}}};"]
    if body.mean is not None:
        constants.append(f"static const double mean[{last}][4] = {_cubics(body.mean)};")
    value = law.value(_calls(law), repr(body.scale), repr(law.output))
    written = TABLES.format(
        fold="" if side is None else f"    const double side = {side};\n    x = side * x;\n",
        step=body.step,
        offset=body.offset,
        last=last,
        value=f"side * ({value})" if law.structure.odd else value,
    )
    mean = f"    return law(mean, {argument});"
    if body.mean is None:
        mean = TABLES_MEAN.format(count=count, argument=argument)
    more = DRAWS.format(name=name, count=count, arguments=_arguments(law), names=argument)
    return {"constants": "\n".join(constants), "law": written, "mean": mean, "more": more}


def _layers(network: Dense) -> list[str]:
    lines, source, target = [], "x", "h"
    for i, (weight, _) in enumerate(network.layers):
        out, count = weight.shape
        lines.append(f"layer(weight{i}, bias{i}, {count}, {out}, {source}, {target});")
        if i < len(network.layers) - 1:
            lines += [f"for (int i = 0; i < {out}; i++)", f"    {target}[i] = activated({target}[i]);"]
        source, target = target, "g" if target == "h" else "h"
    if network.line is not None:
        lines += [f"for (int i = 0; i < {len(network.line)}; i++)", f"    {source}[0] += line[i] * x[i];"]
    return [*lines, f"return {source}[0];"]


def _arguments(law: Formula) -> str:
    return ", ".join(f"double {argument}" for argument in law.arguments)


def _calls(law: Formula) -> dict[str, str]:
    return CALLS | {"above_zero": f"maximum({{}}, {law.tiny!r})"}


def _numbers(x: np.ndarray) -> str:
    """Every digit."""
    return f"{{{folded(', '.join(map(repr, x.ravel().tolist())), '    ')}}}"


def _cubics(cells: np.ndarray) -> str:
    """A table, a row a cell."""
    rows = ", ".join("{" + ", ".join(map(repr, row)) + "}" for row in cells.tolist())
    return f"{{{folded(rows, '    ')}}}"


def _quoted(cells: np.ndarray) -> str:
    """Of one input a text, of two a text a row."""
    texts = ["".join(str(int(cell)) for cell in row) for row in np.atleast_2d(cells)]
    if cells.ndim == 1:
        return f'static const char cells[] = "{texts[0]}";\n'
    text = ",\n    ".join(f'"{row}"' for row in texts)
    return f"static const char *const cells[] = {{\n    {text}}};\n"
