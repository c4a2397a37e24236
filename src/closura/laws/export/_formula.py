"""A law as numbers, for the languages it is written in: what a network or tables hold, and what its structure does with them."""

import datetime
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._fitted import ENOUGH, FittedLaw, LawError, Support, was_given
from .._mlp import Dense, NetworkLaw
from .._structure import Source, Structure, softplus
from .._table import Curve

ACTIVATIONS: dict[str, Callable[[Source], Source]] = {
    "silu": lambda h: h * (-softplus(-h)).call("exp"),
    "tanh": lambda h: h.call("tanh"),
    "gelu": lambda h: 0.5 * h * ((0.7978845608028654 * (h + 0.044715 * h * h * h)).call("tanh") + 1.0),
}
DRAWS = 50  # of a sampled law


@dataclass(frozen=True, eq=False)
class Network:
    """raw = network((x - center) / scale), made symmetric and moved to the origin."""

    center: np.ndarray
    scale: np.ndarray
    network: Dense


@dataclass(frozen=True, eq=False)
class Tables:
    """raw = the cubic of a cell, straight lines outside: cell = x / step + offset.

    `draws` is (draw, cell, 4); `mean` (cell, 4) the table of the posterior mean, None where the mean of laws is not the law of
    a mean: f is then the mean over the draws.
    """

    step: float
    offset: float
    scale: float
    draws: np.ndarray
    mean: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Formula:
    """finish(x, raw) of a `structure`, in double precision.

    - `body`: where `raw` comes from.
    - `tiny`: the least value of a positive law.
    - `about`: what a reader of the file must know, a line each.
    """

    name: str
    structure: Structure
    arguments: tuple[str, ...]
    output: float
    body: Network | Tables
    tiny: float
    support: Support
    about: list[str]

    def raw(self, calls: Mapping[str, str]) -> str:
        """Of a network, from the arguments."""
        return self.structure.raw(lambda first, *more: first.call("plain", *more), self._inputs(calls)).text

    def value(self, calls: Mapping[str, str], scale: str, output: str) -> str:
        """The law, from `raw` and the arguments."""
        return self.structure.finish(
            self._inputs(calls), *(Source(name, calls) for name in ("raw", scale, output))
        ).text

    def side(self, calls: Mapping[str, str]) -> str | None:
        """1 or -1: what arguments are multiplied by before a law that knows one side is called; None where it knows both."""
        return self.structure.side(self._inputs(calls)).text if self.structure.symmetric else None

    def _inputs(self, calls: Mapping[str, str]) -> tuple[Source, ...]:
        return tuple(Source(name, calls) for name in self.arguments)


def activation(network: Dense, calls: Mapping[str, str]) -> str:
    """What lies between layers, of `h`."""
    return ACTIVATIONS[network.activation](Source("h", calls)).text


def check(found: FittedLaw) -> None:
    """Refuse a law that is not worth writing, in whatever form."""
    if not found.learned:
        raise was_given(found.name)
    if found.support is None:
        raise LawError(f"closure {found.name!r} was never called with finite inputs: no data support it; fit again")
    numbers = jax.tree.leaves(eqx.filter(found.law, eqx.is_inexact_array_like))
    if not all(np.isfinite(x).all() for x in numbers):
        raise LawError(f"closure {found.name!r} has weights that are not finite: learning diverged; fit again")


def formula(found: FittedLaw, problem: str, converged: bool) -> Formula:
    assert found.support is not None, "a law that is written has passed `check`"
    inputs = found.law.spec.inputs
    (body, output) = _tables(found) if found.law.spec.sampled else _network(found)
    return Formula(
        name=found.name,
        structure=found.law.spec.structure,
        arguments=("x", "y")[:inputs] if inputs <= 2 else tuple(f"x{i + 1}" for i in range(inputs)),
        output=output,
        body=body,
        tiny=float(np.finfo(np.float64 if found.double else np.float32).tiny),
        support=found.support,
        about=_about(found, found.support, body, problem, converged),
    )


def _network(found: FittedLaw) -> tuple[Network, float]:
    law = found.law
    assert isinstance(law, NetworkLaw)
    network = law.dense()
    center, scale, output = (np.asarray(x, np.float64) for x in law.scaling)
    return Network(center, scale, network), float(output)


def _tables(found: FittedLaw) -> tuple[Tables, float]:
    """Tables of some draws, and of the mean over all that `FittedLaw` takes its mean over."""
    with jax.enable_x64(True):
        frame = jax.tree.map(_double, found.frame)
        prepared = eqx.filter_jit(eqx.filter_vmap(lambda law: law.prepare(frame)))
        some, many = (prepared(jax.tree.map(_double, found.some(most))) for most in (DRAWS, ENOUGH))
    if not isinstance(some.table, Curve) or not isinstance(many.table, Curve):
        raise LawError(f"closure {found.name!r} has {len(found.inputs)} inputs: it can be written as .csv only")
    if some.beside is not None:
        raise LawError(f"closure {found.name!r} jumps, or has a form of its own: it can be written as .csv only")
    draws, every = (np.asarray(table.coefficients) for table in (some.table, many.table))
    (axis,), (_, scale, output) = some.table.axes, some.scaling
    constants = [float(np.ravel(x)[0]) for x in (axis.step, axis.offset, scale, output)]
    mean = every.mean(axis=0) if found.law.spec.structure.linear else None
    step, offset, unit, size = constants
    return Tables(step, offset, unit, draws, mean), size


def _double(leaf: object) -> object:
    return jnp.asarray(np.asarray(leaf), np.float64) if eqx.is_inexact_array_like(leaf) else leaf


def _about(law: FittedLaw, support: Support, body: Network | Tables, problem: str, converged: bool) -> list[str]:
    promised = law.law.spec.promised
    lines = [
        f"The law {law.name}({', '.join(law.inputs)}) of {problem}, learned by closura {version('closura')}.",
        "",
        f"Exported: {datetime.datetime.now(datetime.UTC).date().isoformat()}.",
        f"Promised, and exact: {', '.join(promised)}." if promised else "Promised: nothing but that it is smooth.",
        *_about_draws(law, body),
        *_about_support(law, support),
    ]
    if not converged:
        lines.append("THE FIT HAD NOT CONVERGED: do not use this law yet.")
    return [_harmless(line) for line in lines]


def _about_draws(law: FittedLaw, body: Network | Tables) -> list[str]:
    if isinstance(body, Network):
        return []
    of = "the posterior mean" if body.mean is not None else "the mean over these draws"
    return [
        f"{len(body.draws)} of the {law.count} posterior draws of the law are here, evenly picked; f is {of}. Quantities that follow",
        "from the law are to be computed draw by draw: their spread says how sure they are.",
    ]


def _about_support(law: FittedLaw, support: Support) -> list[str]:
    if support.nowhere:
        return ["Data supported it nowhere: it is what was assumed before data."]
    ends = zip(law.inputs, support.low, support.high)
    lines = ["Data supported it for", *(f"    {name} from {low:.6g} to {high:.6g}" for name, low, high in ends)]
    if support.cells is not None:
        lines.append("(not in all of that; supported() tells)")
    if law.law.spec.sampled:
        lines.append(
            "where they took away more than 75 % of the variance that it had before. Elsewhere it is an extrapolation,"
        )
        lines.append("as unsure as its draws are apart.")
    else:
        lines.append(
            "which is the central 99 % of what the systems visited. Elsewhere it is an extrapolation and means nothing."
        )
    return lines


def folded(text: str, indent: str) -> str:
    """Over several lines where it is long."""
    return text if len(text) < 90 else "\n" + textwrap.fill(text, 118, initial_indent=indent, subsequent_indent=indent)


def _harmless(line: str) -> str:
    """Names may hold anything; here they may not end a comment or a string."""
    indent = line[: len(line) - len(line.lstrip())]
    line = indent + " ".join(line.split()).replace("\\", "/").replace('"', "'")
    return line.replace("*/", "* /").replace("/*", "/ *")
