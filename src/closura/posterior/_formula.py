"""A law as numbers, for the languages it is written in: what its network holds, and what its structure does with them."""

import datetime
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from ..laws import MLP, QUICK, MonotoneNetwork
from ._law import Law, LawError, Support, was_given

PROMISES = ("odd", "even", "zero_at_origin", "positive", "increasing", "dissipative")


@dataclass(frozen=True, eq=False)
class Formula:
    """output * finish(network((x - center) / scale)), in double precision.

    - `layers`: weight and bias of each, `activation` between them; `line` is the straight part of an increasing network.
    - `tiny`: the least value of a positive law.
    - `about`: what a reader of the file must know, a line each.
    """

    name: str
    spec: MLP
    arguments: tuple[str, ...]
    center: np.ndarray
    scale: np.ndarray
    output: float
    layers: list[tuple[np.ndarray, np.ndarray]]
    activation: str
    line: np.ndarray | None
    tiny: float
    support: Support
    about: list[str]


def formula(law: Law, problem: str, converged: bool) -> Formula:
    if not law.learned:
        raise was_given(law.name)
    if law.support is None:
        raise LawError(f"closure {law.name!r} was never called with finite inputs: no data support it; fit again")
    spec, network, line = law.law.spec, law.law.network, None
    if isinstance(network, MonotoneNetwork):
        raw = [*map(_double, network.weights[:-1]), QUICK * _double(network.weights[-1])]
        sizes = [_softplus(w) * (4.0 / w.shape[1] if depth else 1.0) for depth, w in enumerate(raw)]
        layers, activation = list(zip(sizes, map(_double, network.biases))), "tanh"
        line = _softplus(QUICK * _double(network.line))
    else:
        layers, activation = [(_double(l.weight), _double(l.bias)) for l in network.layers], spec.activation
    center, scale, output = map(_double, law.law.scaling)
    if not all(np.isfinite(x).all() for x in (center, scale, output, *(x for layer in layers for x in layer))):
        raise LawError(f"closure {law.name!r} has weights that are not finite: learning diverged; fit again")
    return Formula(
        name=law.name,
        spec=spec,
        arguments=("x", "y")[: spec.inputs] if spec.inputs <= 2 else tuple(f"x{i + 1}" for i in range(spec.inputs)),
        center=center,
        scale=scale,
        output=float(output),
        layers=layers,
        activation=activation,
        line=line,
        tiny=float(np.finfo(np.float64 if law.double else np.float32).tiny),
        support=law.support,
        about=_about(law, problem, converged),
    )


def _double(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0.0)


def _about(law: Law, problem: str, converged: bool) -> list[str]:
    assert law.support is not None
    promised = [flag for flag in PROMISES if getattr(law.law.spec, flag)]
    lines = [
        f"The law {law.name}({', '.join(law.inputs)}) of {problem}, learned by closura {version('closura')}.",
        "",
        f"Exported: {datetime.datetime.now(datetime.UTC).date().isoformat()}.",
        f"Promised, and exact: {', '.join(promised)}." if promised else "Promised: nothing but that it is smooth.",
        "Data supported it for",
    ]
    ends = zip(law.inputs, law.support.low, law.support.high)
    lines += [f"    {name} from {low:.6g} to {high:.6g}" for name, low, high in ends]
    if law.support.cells is not None:
        lines.append("(not in all of that box; supported() tells)")
    lines.append(
        "which is the central 99 % of what the systems visited. Elsewhere it is an extrapolation and means nothing."
    )
    if not converged:
        lines.append("THE FIT HAD NOT CONVERGED: do not use this law yet.")
    return [_harmless(line) for line in lines]


def _harmless(line: str) -> str:
    """Names may hold anything; here they may not end a comment or a string."""
    indent = line[: len(line) - len(line.lstrip())]
    line = indent + " ".join(line.split()).replace("\\", "/").replace('"', "'")
    return line.replace("*/", "* /").replace("/*", "/ *")
