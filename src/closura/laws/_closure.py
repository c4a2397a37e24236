"""Closures: the piece of physics nobody wrote down, as a network with structure built in.

A closure is specified with the problem (`MLP`, `Known`), gets its weights when a fit starts (`build`), and is
tabulated once an iteration for the solver (`prepare`). Structure holds exactly, in network and table alike,
because the table stores what comes *before* the output transform.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ._table import Curve, Surface, axis, curve, surface

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
}


class Range(NamedTuple):
    """Where a closure was called: one low and one high an input."""

    low: Float[Array, " input"]
    high: Float[Array, " input"]


class Scaling(NamedTuple):
    """Units of a closure: network inputs are (x - center) / scale, its output is multiplied by `output`."""

    center: Float[Array, " input"]
    scale: Float[Array, " input"]
    output: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class MLP:
    """An unknown law f(x1, x2, ...), learned as a multilayer perceptron.

    Structure, each exact by construction:

    - `odd`: f(-x) = -f(x);  `even`: f(-x) = f(x);  `zero_at_origin`: f(0) = 0
    - `positive`: f > 0;  `increasing`: f grows with every input
    - `dissipative`: x f(x) >= 0 in the first input (a damper never drives)

    The network has `inputs` inputs, `depth` layers of `width` and "silu", "tanh" or "gelu" as `activation`; solvers look it up in
    a table of `table` nodes along each input (0 calls the network itself).

    A prior keeps the law tame where there are no data: `decay` (Gaussian on the weights, this is their precision) or
    `smoothness` (precision of the law's curvature over the range where it is used, in units of that range and of how large
    a law must be to matter, under a Cauchy density; for laws of one input a weak one, 0.003, unless you say otherwise).
    """

    inputs: int = 1
    width: int = 64
    depth: int = 4
    activation: str = "silu"
    odd: bool = False
    even: bool = False
    zero_at_origin: bool = False
    positive: bool = False
    increasing: bool = False
    dissipative: bool = False
    decay: float = 0.0
    smoothness: float | None = None
    table: int | None = None

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.width < 1 or self.depth < 1:
            raise ValueError("MLP: inputs, width and depth must be at least 1")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"MLP: activation {self.activation!r} is not one of {', '.join(ACTIVATIONS)}")
        if self.decay < 0 or self.curvature_precision < 0:
            raise ValueError("MLP: decay and smoothness are precisions and cannot be negative")
        if self.smoothness and self.inputs > 1:
            raise ValueError("MLP: smoothness is for closures of one input; use decay")
        if self.table is not None and self.table < 8 and self.table != 0:
            raise ValueError("MLP: table needs at least 8 nodes (0 calls the network directly)")
        at_odds = [("odd", "even"), ("odd", "positive"), ("even", "increasing"), ("even", "dissipative")]
        at_odds += [("positive", "dissipative"), ("positive", "zero_at_origin")]
        for one, other in at_odds:
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"MLP: {one} and {other} contradict each other; choose one")
        if self.increasing and self.dissipative and self.inputs > 1:
            raise ValueError(
                "MLP: increasing and dissipative go together with one input only (a dissipative law is zero wherever its "
                "first input is, so there it cannot grow with the others); choose one"
            )

    @property
    def curvature_precision(self) -> float:
        """The precision of the curvature; a weak one by default, where there is one input."""
        return (0.003 if self.inputs == 1 else 0.0) if self.smoothness is None else self.smoothness

    @property
    def nodes(self) -> int:
        """Table nodes along each input; 0 when the solver calls the network itself."""
        if self.inputs > 2 or (self.increasing and self.inputs > 1):
            return 0
        default = 257 if self.inputs == 1 else 65
        return default if self.table is None else self.table | 1 if self.table else 0

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "Closure":
        if self.odd or self.even:
            scaling = scaling._replace(center=jnp.zeros_like(scaling.center))
        return Closure(_network(self, key), scaling, self)


def _network(spec: MLP, key: PRNGKeyArray) -> eqx.Module:
    if spec.increasing:
        return MonotoneNetwork(spec, key)
    network = eqx.nn.MLP(spec.inputs, 1, spec.width, spec.depth, ACTIVATIONS[spec.activation], key=key)
    # Start from no law at all: the first iterations then see the known physics alone.
    return eqx.tree_at(lambda n: n.layers[-1], network, replace_fn=lambda l: jax.tree.map(jnp.zeros_like, l))


QUICK = 5.0  # from no law to one that matters is a long way through a softplus, and Adam's steps are all of one size


class MonotoneNetwork(eqx.Module):
    """Increasing in every input: non-negative weights, increasing activations, and a rising line beneath."""

    weights: list[Float[Array, "out in"]]
    biases: list[Float[Array, " out"]]
    line: Float[Array, " input"]

    def __init__(self, spec: MLP, key: PRNGKeyArray):
        sizes = [spec.inputs] + [spec.width] * spec.depth + [1]
        keys = jr.split(key, 2 * len(sizes))
        self.weights = [jr.normal(k, (m, n)) for k, n, m in zip(keys, sizes[:-1], sizes[1:])]
        self.weights[-1] = (self.weights[-1] - 5.0) / QUICK  # nearly no law at first
        self.biases = [jr.normal(k, (m,)) for k, m in zip(keys[len(sizes) :], sizes[1:-1])] + [jnp.zeros(1)]
        self.line = jnp.full((spec.inputs,), -3.0 / QUICK)

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " 1"]:
        h = x
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            last = depth == len(self.weights) - 1
            h = (
                jax.nn.softplus(QUICK * weight if last else weight) @ h * (4.0 / weight.shape[1] if depth else 1.0)
                + bias
            )
            h = h if last else jnp.tanh(h)
        return h + jax.nn.softplus(QUICK * self.line) @ x


class Closure(eqx.Module):
    """A law with weights: `raw` is what a table stores, `finish` applies the promised structure."""

    network: eqx.Module
    scaling: Scaling
    spec: MLP = eqx.field(static=True)

    def __call__(self, *x: Any) -> Float[Array, ""]:
        point = jnp.stack([jnp.asarray(xi, float) for xi in x])
        return _finish(self.spec, self.scaling, tuple(point), self.raw(point))

    def raw(self, x: Float[Array, " input"]) -> Float[Array, ""]:
        spec = self.spec
        value = self._plain(x)
        if reflects(spec):
            # A dissipative odd law is x times an even factor.
            value = 0.5 * (value + (1 if spec.even or factored(spec) else -1) * self._plain(-x))
        if shifted(spec):
            value = value - self._plain(jnp.zeros_like(x))
        return value

    def _plain(self, x: Float[Array, " input"]) -> Float[Array, ""]:
        center, scale, _ = lax.stop_gradient(self.scaling)
        return self.network((x - center) / scale)[0]  # type: ignore[operator]

    def prepare(self, range_: Range) -> "Closure | Tabulated":
        """What the solver calls: a table over `range_` (with linear continuation), or the network itself."""
        spec = self.spec
        if not spec.nodes:
            return self
        if shifted(spec):  # the origin must be a node, wherever the range lies
            range_ = Range(jnp.minimum(range_.low, 0.0), jnp.maximum(range_.high, 0.0))
        axes = tuple(axis(low, high, spec.nodes, reflects(spec)) for low, high in zip(*range_))
        grid = jnp.stack(jnp.meshgrid(*(a.points() for a in axes), indexing="ij"), axis=-1)
        value = jax.vmap(self.raw)(grid.reshape(-1, spec.inputs)).reshape(grid.shape[:-1])
        table = curve(axes[0], value, spec.increasing) if spec.inputs == 1 else surface(axes, value)  # type: ignore[arg-type]
        return Tabulated(table, self.scaling, spec)

    def log_prior(self, range_: Range, view: "Closure | Tabulated") -> Float[Array, ""]:
        """Log density of the weights (`decay`) and of the law's curvature over its range (`smoothness`), up to a constant.

        The curvature is that of `view`, the law as prepared: the network is not called again for it.
        """
        spec, total = self.spec, jnp.zeros(())
        if spec.decay:
            squares = [jnp.sum(w**2) for w in jax.tree.leaves(eqx.filter(self.network, eqx.is_inexact_array))]
            total = total - 0.5 * spec.decay * sum(squares)
        if spec.curvature_precision:
            x = jnp.linspace(range_.low[0], range_.high[0], 65)
            step = 2.0 / (x.shape[0] - 1)  # in half-widths of the range
            law = jax.vmap(view)(x) / lax.stop_gradient(self.scaling.output)
            bend = (law[2:] - 2 * law[1:-1] + law[:-2]) / step**2
            # Heavy tails: a law that must bend pays for it by the logarithm, and is not held straight.
            total = total - 0.5 * jnp.log1p(spec.curvature_precision * jnp.sum(bend**2) * step)
        return total


class Tabulated(eqx.Module):
    """A closure as the solver sees it."""

    table: Curve | Surface
    scaling: Scaling
    spec: MLP = eqx.field(static=True)

    def __call__(self, *x: Any) -> Float[Array, ""]:
        if not reflects(self.spec):
            return _finish(self.spec, self.scaling, x, self.table(*x))
        # One look-up on the side where the first input that is not zero is positive, reflected: the symmetry is exact,
        # not to rounding.
        side = jnp.where(x[-1] >= 0, 1.0, -1.0)
        for xi in x[-2::-1]:
            side = jnp.where(xi == 0, side, jnp.where(xi > 0, 1.0, -1.0))
        mirrored = tuple(side * xi for xi in x)
        value = _finish(self.spec, self.scaling, mirrored, self.table(*mirrored))
        return side * value if self.spec.odd else value

    def outside(self, x: Float[Array, "... input"]) -> Float[Array, "..."]:
        """1 where a call lies outside the table."""
        axes = (self.table.axis,) if isinstance(self.table, Curve) else self.table.axes
        return jnp.max(jnp.stack([a.outside(x[..., i]) for i, a in enumerate(axes)]), axis=0)


def reflects(spec: MLP) -> bool:
    """Symmetric about the origin, one way or the other."""
    return spec.odd or spec.even


def factored(spec: MLP) -> bool:
    """Dissipative without growing: x times a positive factor. (Increasing through the origin is dissipative anyway.)"""
    return spec.dissipative and not spec.increasing


def shifted(spec: MLP) -> bool:
    """Zero at the origin by subtraction, where no symmetry or factor makes it so."""
    wanted = spec.zero_at_origin or (spec.dissipative and spec.increasing)
    return wanted and not factored(spec) and not spec.odd


def _finish(spec: MLP, scaling: Scaling, x: tuple[Any, ...], raw: Float[Array, ""]) -> Float[Array, ""]:
    _, scale, output = lax.stop_gradient(scaling)
    if spec.positive:
        # softplus underflows far below zero
        return jnp.maximum(output * jax.nn.softplus(raw), jnp.finfo(raw.dtype).tiny)
    if factored(spec):
        return output * (x[0] / scale[0]) * jax.nn.softplus(raw)
    return output * _through_origin(spec, x, raw)


def _through_origin(spec: MLP, x: tuple[Any, ...], raw: Float[Array, ""]) -> Float[Array, ""]:
    """Zero at the origin, and the sign of x, to the last bit: the two values whose difference raw is round differently."""
    if spec.dissipative:
        exact = jnp.clip(raw, jnp.where(x[0] < 0, -jnp.inf, 0.0), jnp.where(x[0] > 0, jnp.inf, 0.0))
    elif shifted(spec):
        exact = jnp.where(functools.reduce(operator.and_, [xi == 0 for xi in x]), 0.0, raw)
    else:
        return raw
    return raw + lax.stop_gradient(exact - raw)  # slopes stay as they are


@dataclasses.dataclass(frozen=True)
class Known:
    """A law that is given, `function(x1, x2, ...)` in plain JAX, in place of one to be learned: a formula to be tested."""

    function: Callable[..., Any]
    inputs: int = 1

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "KnownClosure":
        return KnownClosure(self)


class KnownClosure(eqx.Module):
    spec: Known = eqx.field(static=True)

    def __call__(self, *x: Any) -> Any:
        return self.spec.function(*x)

    def prepare(self, range_: Range) -> "KnownClosure":
        return self

    def log_prior(self, range_: Range, view: Any) -> Float[Array, ""]:
        return jnp.zeros(())


ClosureSpec = MLP | Known
Closures = Mapping[str, Any]


def prepare(closures: Closures, ranges: Mapping[str, Range]) -> dict[str, Any]:
    """Every closure as the solver calls it."""
    return {name: closure.prepare(ranges[name]) for name, closure in closures.items()}


class Laws:
    """Several closures, called by name: f.damping(v), f.spring(u)."""

    def __init__(self, laws: Mapping[str, Callable[..., Any]]):
        self.__dict__.update(laws)

    def __call__(self, *x: Any) -> Any:
        raise TypeError(
            f"this problem has several closures; call one by name: {', '.join(f'f.{n}' for n in self.__dict__)}"
        )


def bind(
    closures: Closures, single: bool, record: dict[str, list[Array]] | None = None
) -> Callable[..., Any] | Laws | None:
    """The `f` a physics function receives. With `record`, every call's inputs are noted there."""
    laws = {name: _law(name, closure, record) for name, closure in closures.items()}
    if not laws:
        return None
    return laws["f"] if single else Laws(laws)


def _law(name: str, closure: Any, record: dict[str, list[Array]] | None) -> Callable[..., Any]:
    takes = closure.spec.inputs

    def law(*x: Any) -> Any:
        if len(x) != takes:
            raise TypeError(
                f"closure {name!r} takes {takes} input{'s' * (takes > 1)}, but the physics calls it with {len(x)}; "
                f"declare it with inputs={len(x)}, or change the call"
            )
        arrays = jnp.broadcast_arrays(*(jnp.asarray(xi, float) for xi in x))
        if record is not None:
            record[name].append(jnp.stack(arrays, axis=-1).reshape(-1, takes))
        return jnp.vectorize(closure)(*arrays) if arrays[0].ndim else closure(*arrays)

    return law
