"""A law as one C99 file that needs math.h and nothing else."""

import re
import textwrap

import numpy as np

from .._mlp import Dense
from ._formula import Formula, folded

CALLS = {"plain": "plain((double[]){{{all}}})", "softplus": "softplus({})", "exp": "exp({})", "tanh": "tanh({})"}
CALLS |= {"zero_where": "({} ? 0.0 : {})"}

SOURCE = """\
/*
{about}
*/

#include <math.h>

const double {name}_support[{inputs}][2] = {{{support}}};
{cells}static const double center[] = {center};
static const double scale[] = {scale};
{arrays}
{helpers}
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
    const double raw = {raw};
    return {value};
}}
"""

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
    int cell[2];
    for (int i = 0; i < 2; i++) {{
        const double low = {name}_support[i][0], high = {name}_support[i][1];
        cell[i] = (int)((point[i] - low) / (high > low ? high - low : 1.0) * {count});
        if (cell[i] > {count} - 1)
            cell[i] = {count} - 1;
    }}
    return cells[cell[0]][cell[1]] == '1';"""


def c_source(law: Formula) -> str:
    """The file: `f`, `f_supported` and `f_support`; of a closure with a name, `f_NAME` and so on."""
    name = "f" if law.name == "f" else "f_" + re.sub(r"\W", "_", law.name, flags=re.ASCII)
    cells, inputs, network = law.support.cells, law.structure.inputs, law.network
    rows = [] if cells is None else ["".join(str(int(cell)) for cell in row) for row in cells]
    ends = zip(law.support.low.tolist(), law.support.high.tolist())
    arrays = [
        f"static const double {kind}{i}[] = {_numbers(part)};"
        for i, layer in enumerate(network.layers)
        for kind, part in zip(("weight", "bias"), layer)
    ]
    if network.line is not None:
        arrays.append(f"static const double line[] = {_numbers(network.line)};")
    calls = CALLS | {"above_zero": f"maximum({{}}, {law.tiny!r})"}
    activation, raw, value = law.expressions(calls, "scale[0]", repr(law.output))
    used = [text for helper, text in HELPERS.items() if f"{helper}(" in activation + value]
    return SOURCE.format(
        about="\n".join(law.about),
        name=name,
        inputs=inputs,
        support=", ".join(f"{{{low!r}, {high!r}}}" for low, high in ends),
        cells="" if cells is None else _quoted(rows),
        center=_numbers(law.center),
        scale=_numbers(law.scale),
        arrays="\n".join(arrays),
        helpers="".join(used),
        activation=activation,
        width=max(len(bias) for _, bias in network.layers),
        calls=textwrap.indent("\n".join(_calls(network)), "    "),
        look_up="    return 1;" if cells is None else LOOK_UP.format(name=name, count=len(cells)),
        arguments=", ".join(f"double {argument}" for argument in law.arguments),
        names=", ".join(law.arguments),
        raw=raw,
        value=value,
    )


def _calls(network: Dense) -> list[str]:
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


def _numbers(x: np.ndarray) -> str:
    """Every digit."""
    return f"{{{folded(', '.join(map(repr, x.ravel().tolist())), '    ')}}}"


def _quoted(rows: list[str]) -> str:
    text = ",\n    ".join(f'"{row}"' for row in rows)
    return f"static const char *const cells[] = {{\n    {text}}};\n"
