"""A law as one C99 file that needs math.h and nothing else."""

import re
import textwrap

import numpy as np

from ..laws import factored, reflects, shifted
from ._formula import Formula

ACTIVATIONS = {
    "silu": "h * exp(-softplus(-h))",
    "tanh": "tanh(h)",
    "gelu": "0.5 * h * (1.0 + tanh(0.7978845608028654 * (h + 0.044715 * h * h * h)))",
}

SOURCE = """\
/*
{about}
*/

#include <math.h>

const double {name}_support[{inputs}][2] = {{{support}}};
{cells}static const double center[] = {center};
static const double scale[] = {scale};
{arrays}
{softplus}
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
    const double point[] = {{{names}}};
    double raw = plain(point);
{structure}
}}
"""

SOFTPLUS = """
static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}
"""

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
    cells, inputs = law.support.cells, law.spec.inputs
    rows = [] if cells is None else ["".join(str(int(cell)) for cell in row) for row in cells]
    ends = zip(law.support.low.tolist(), law.support.high.tolist())
    arrays = [
        f"static const double {kind}{i}[] = {_numbers(part)};"
        for i, layer in enumerate(law.layers)
        for kind, part in zip(("weight", "bias"), layer)
    ]
    structure = _structure(law)
    uses_softplus = any("softplus" in text for text in (*structure, ACTIVATIONS[law.activation]))
    return SOURCE.format(
        about="\n".join(law.about),
        name=name,
        inputs=inputs,
        support=", ".join(f"{{{low!r}, {high!r}}}" for low, high in ends),
        cells="" if cells is None else _quoted(rows),
        center=_numbers(law.center),
        scale=_numbers(law.scale),
        arrays="\n".join(
            arrays + ([] if law.line is None else [f"static const double line[] = {_numbers(law.line)};"])
        ),
        softplus=SOFTPLUS if uses_softplus else "",
        activation=ACTIVATIONS[law.activation],
        width=max(len(bias) for _, bias in law.layers),
        calls=textwrap.indent("\n".join(_calls(law)), "    "),
        look_up="    return 1;" if cells is None else LOOK_UP.format(name=name, count=len(cells)),
        arguments=", ".join(f"double {argument}" for argument in law.arguments),
        names=", ".join(law.arguments),
        structure=textwrap.indent("\n".join(structure), "    "),
    )


def _calls(law: Formula) -> list[str]:
    lines, source, target = [], "x", "h"
    for i, (weight, _) in enumerate(law.layers):
        out, count = weight.shape
        lines.append(f"layer(weight{i}, bias{i}, {count}, {out}, {source}, {target});")
        if i < len(law.layers) - 1:
            lines += [f"for (int i = 0; i < {out}; i++)", f"    {target}[i] = activated({target}[i]);"]
        source, target = target, "g" if target == "h" else "h"
    if law.line is not None:
        lines += [f"for (int i = 0; i < {len(law.line)}; i++)", f"    {source}[0] += line[i] * x[i];"]
    return [*lines, f"return {source}[0];"]


def _structure(law: Formula) -> list[str]:
    """As `Closure.raw` and what finishes it, line by line."""
    spec, lines = law.spec, []
    if reflects(spec):
        sign = "+" if spec.even or factored(spec) else "-"
        lines += [f"const double mirrored[] = {{{', '.join(f'-{x}' for x in law.arguments)}}};"]
        lines += [f"raw = 0.5 * (raw {sign} plain(mirrored));"]
    if shifted(spec):
        lines += [f"const double origin[{spec.inputs}] = {{0.0}};", "raw -= plain(origin);"]
    if spec.positive:
        return [*lines, f"return fmax({law.output!r} * softplus(raw), {law.tiny!r});"]
    if factored(spec):
        return [*lines, f"return {law.output!r} * (point[0] / scale[0]) * softplus(raw);"]
    if spec.dissipative:
        first = law.arguments[0]
        lines += [f"if (({first} >= 0 && raw < 0) || ({first} <= 0 && raw > 0))", "    raw = 0.0;"]
    elif shifted(spec):
        lines += [f"if ({' && '.join(f'{x} == 0' for x in law.arguments)})", "    raw = 0.0;"]
    return [*lines, f"return {law.output!r} * raw;"]


def _numbers(x: np.ndarray) -> str:
    """Every digit, over several lines where there are many."""
    text = ", ".join(map(repr, x.ravel().tolist()))
    if len(text) < 90:
        return f"{{{text}}}"
    return "{\n" + textwrap.fill(text, 118, initial_indent="    ", subsequent_indent="    ") + "}"


def _quoted(rows: list[str]) -> str:
    text = ",\n    ".join(f'"{row}"' for row in rows)
    return f"static const char *const cells[] = {{\n    {text}}};\n"
