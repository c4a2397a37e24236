"""A law as numbers, for the languages it is written in: what its network holds, and what its structure does with them."""

import datetime
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from .._fitted import FittedLaw, LawError, Support, was_given
from .._mlp import Dense, NetworkLaw
from .._structure import Source, Structure, softplus

ACTIVATIONS: dict[str, Callable[[Source], Source]] = {
    "silu": lambda h: h * (-softplus(-h)).call("exp"),
    "tanh": lambda h: h.call("tanh"),
    "gelu": lambda h: 0.5 * h * ((0.7978845608028654 * (h + 0.044715 * h * h * h)).call("tanh") + 1.0),
}


@dataclass(frozen=True, eq=False)
class Formula:
    """finish(x, raw(network((x - center) / scale))) of a `structure`, in double precision.

    - `tiny`: the least value of a positive law.
    - `about`: what a reader of the file must know, a line each.
    """

    name: str
    structure: Structure
    arguments: tuple[str, ...]
    center: np.ndarray
    scale: np.ndarray
    output: float
    network: Dense
    tiny: float
    support: Support
    about: list[str]

    def expressions(self, calls: Mapping[str, str], scale: str, output: str) -> tuple[str, str, str]:
        """In a language: what lies between layers, of `h`; `raw`, of the arguments; and the law, of `raw` and those."""
        x = tuple(Source(name, calls) for name in self.arguments)
        raw = self.structure.raw(lambda first, *more: first.call("plain", *more), x)
        value = self.structure.finish(x, *(Source(name, calls) for name in ("raw", scale, output)))
        return ACTIVATIONS[self.network.activation](Source("h", calls)).text, raw.text, value.text


def formula(found: FittedLaw, problem: str, converged: bool) -> Formula:
    law = found.law
    if not isinstance(law, NetworkLaw):
        raise was_given(found.name)
    if found.support is None:
        raise LawError(f"closure {found.name!r} was never called with finite inputs: no data support it; fit again")
    inputs, network = law.spec.inputs, law.dense()
    center, scale, output = (np.asarray(x, np.float64) for x in law.scaling)
    if not all(np.isfinite(x).all() for x in (center, scale, output, *(x for layer in network.layers for x in layer))):
        raise LawError(f"closure {found.name!r} has weights that are not finite: learning diverged; fit again")
    return Formula(
        name=found.name,
        structure=law.spec.structure,
        arguments=("x", "y")[:inputs] if inputs <= 2 else tuple(f"x{i + 1}" for i in range(inputs)),
        center=center,
        scale=scale,
        output=float(output),
        network=network,
        tiny=float(np.finfo(np.float64 if found.double else np.float32).tiny),
        support=found.support,
        about=_about(found, found.support, problem, converged),
    )


def _about(law: FittedLaw, support: Support, problem: str, converged: bool) -> list[str]:
    promised = law.law.spec.structure.promised
    lines = [
        f"The law {law.name}({', '.join(law.inputs)}) of {problem}, learned by closura {version('closura')}.",
        "",
        f"Exported: {datetime.datetime.now(datetime.UTC).date().isoformat()}.",
        f"Promised, and exact: {', '.join(promised)}." if promised else "Promised: nothing but that it is smooth.",
        "Data supported it for",
    ]
    ends = zip(law.inputs, support.low, support.high)
    lines += [f"    {name} from {low:.6g} to {high:.6g}" for name, low, high in ends]
    if support.cells is not None:
        lines.append("(not in all of that box; supported() tells)")
    lines.append(
        "which is the central 99 % of what the systems visited. Elsewhere it is an extrapolation and means nothing."
    )
    if not converged:
        lines.append("THE FIT HAD NOT CONVERGED: do not use this law yet.")
    return [_harmless(line) for line in lines]


def folded(text: str, indent: str) -> str:
    """Over several lines where it is long."""
    return text if len(text) < 90 else "\n" + textwrap.fill(text, 118, initial_indent=indent, subsequent_indent=indent)


def _harmless(line: str) -> str:
    """Names may hold anything; here they may not end a comment or a string."""
    indent = line[: len(line) - len(line.lstrip())]
    line = indent + " ".join(line.split()).replace("\\", "/").replace('"', "'")
    return line.replace("*/", "* /").replace("/*", "/ *")
