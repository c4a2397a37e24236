"""Laws that are learned: networks with structure built in.

A law is specified with the problem (`MLP`), gets its weights when a fit starts (`build`), and is tabulated once an
iteration for the solver (`prepare`). Structure holds exactly, in network and table alike, because the table stores what
comes *before* the output transform.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._base import AbstractLaw, LawSpec, Range, Scaling, SolverLaw
from ._structure import FLAGS, Structure
from ._table import TabulatedLaw, axis, curve, surface

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": jax.nn.silu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}


@dataclasses.dataclass(frozen=True)
class MLP(LawSpec):
    """An unknown law f(x1, x2, ...), learned as a multilayer perceptron.

    Structure, each exact by construction:

    - `odd`: f(-x) = -f(x);  `even`: f(-x) = f(x);  `zero_at_origin`: f(0) = 0
    - `positive`: f > 0;  `increasing`: f grows with every input
    - `dissipative`: x f(x) >= 0 in the first input (a damper never drives)

    The network has `inputs` inputs, `depth` layers of `width` and "silu", "tanh" or "gelu" as `activation`; solvers look it up in
    a table of `table` nodes along each input (0 calls the network itself).

    A prior keeps the law tame where there are no data: `decay` (Gaussian on the weights, this is their precision) or
    `smoothness` (precision of the law's curvature over the range where it is used, in units of that range and of how large
    a law must be to matter, under a Cauchy density; for laws of one input by default a weak one, 0.003).
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
    trainable: ClassVar[bool] = True

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
        self.structure.check()

    def as_sampled(self) -> LawSpec:
        from ._law import Law  # which knows this as its network

        return Law(self.inputs, network=self, **{flag: getattr(self, flag) for flag in FLAGS})

    @property
    def structure(self) -> Structure:
        return Structure(self.inputs, **{flag: getattr(self, flag) for flag in FLAGS})

    @property
    def curvature_precision(self) -> float:
        """The precision of the curvature; a weak one by default, where there is one input."""
        return (0.003 if self.inputs == 1 else 0.0) if self.smoothness is None else self.smoothness

    @property
    def nodes(self) -> int:
        """Table nodes along each input; 0 when the solver calls the network itself."""
        if self.inputs > 2 or (self.increasing and self.inputs > 1):
            return 0
        if self.table is None:
            return 257 if self.inputs == 1 else 65
        return self.table | 1 if self.table else 0

    def build(self, key: PRNGKeyArray, scaling: Scaling) -> "NetworkLaw":
        if self.structure.symmetric:
            scaling = scaling._replace(center=jnp.zeros_like(scaling.center))
        return NetworkLaw(self, _network(self, key), scaling)


class Dense(NamedTuple):
    """A network as numbers, in double precision: weight and bias of each layer, what comes between them, and a straight
    line beneath where there is one."""

    layers: list[tuple[np.ndarray, np.ndarray]]
    activation: str
    line: np.ndarray | None = None


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
            positive = jax.nn.softplus(QUICK * weight if last else weight)
            h = positive @ h * (4.0 / weight.shape[1] if depth else 1.0) + bias
            h = h if last else jnp.tanh(h)
        return h + jax.nn.softplus(QUICK * self.line) @ x


def _network(spec: MLP, key: PRNGKeyArray) -> eqx.nn.MLP | MonotoneNetwork:
    if spec.increasing:
        return MonotoneNetwork(spec, key)
    network = eqx.nn.MLP(spec.inputs, 1, spec.width, spec.depth, ACTIVATIONS[spec.activation], key=key)
    # Start from no law at all: the first iterations then see the known physics alone.
    return eqx.tree_at(lambda n: n.layers[-1], network, replace_fn=lambda l: jax.tree.map(jnp.zeros_like, l))


class NetworkLaw(AbstractLaw):
    """A law with weights: `raw` is what a table stores, the structure's `finish` makes the law of it."""

    spec: MLP = eqx.field(static=True)
    network: eqx.nn.MLP | MonotoneNetwork
    scaling: Scaling

    def __call__(self, *x: ArrayLike) -> Float[Array, ""]:
        arrays = tuple(jnp.asarray(xi, float) for xi in x)
        _, scale, output = lax.stop_gradient(self.scaling)
        return self.spec.structure.finish(arrays, self.raw(*arrays), scale[0], output)

    def raw(self, *x: Float[Array, ""]) -> Float[Array, ""]:
        return self.spec.structure.raw(self._plain, x)

    def _plain(self, *x: Float[Array, ""]) -> Float[Array, ""]:
        center, scale, _ = lax.stop_gradient(self.scaling)
        return self.network((jnp.stack(x) - center) / scale)[0]

    def unit(self, range_: PyTree) -> float:
        return float(self.scaling.output)

    def prepare(self, range_: Range) -> "NetworkLaw | TabulatedLaw":
        """A table over `range_` (with linear continuation), or the network itself."""
        spec, structure = self.spec, self.spec.structure
        if not spec.nodes:
            return self
        if structure.shifted:  # the origin must be a node, wherever the range lies
            range_ = Range(jnp.minimum(range_.low, 0.0), jnp.maximum(range_.high, 0.0))
        axes = tuple(axis(low, high, spec.nodes, structure.symmetric) for low, high in zip(*range_))
        grid = jnp.stack(jnp.meshgrid(*(a.points() for a in axes), indexing="ij"), axis=-1)
        value = jax.vmap(lambda x: self.raw(*x))(grid.reshape(-1, spec.inputs)).reshape(grid.shape[:-1])
        table = curve(axes[0], value, spec.increasing) if len(axes) == 1 else surface(axes, value)
        return TabulatedLaw(spec, table, self.scaling)

    def log_prior(self, range_: Range, view: SolverLaw | None) -> Float[Array, ""]:
        """Of the weights (`decay`), and of the curvature of the law over its range (`smoothness`).

        The curvature is that of `view`: the network is not called again for it.
        """
        spec, total = self.spec, jnp.zeros(())
        if spec.decay:
            squares = [jnp.sum(w**2) for w in jax.tree.leaves(self.weights)]
            total = total - 0.5 * spec.decay * sum(squares)
        if spec.curvature_precision and view is not None:
            x = jnp.linspace(range_.low[0], range_.high[0], 65)
            step = 2.0 / (x.shape[0] - 1)  # in half-widths of the range
            law = jax.vmap(view)(x) / lax.stop_gradient(self.scaling.output)
            bend = (law[2:] - 2 * law[1:-1] + law[:-2]) / step**2
            # Heavy tails: a law that must bend pays for it by the logarithm, and is not held straight.
            total = total - 0.5 * jnp.log1p(spec.curvature_precision * jnp.sum(bend**2) * step)
        return total

    @property
    def weights(self) -> PyTree[Array]:
        return eqx.filter(self.network, eqx.is_inexact_array)

    def with_weights(self, weights: PyTree) -> "NetworkLaw":
        return eqx.tree_at(lambda law: law.network, self, eqx.combine(weights, self.network))

    def dense(self) -> Dense:
        """The network inside, for those who write it down."""
        network = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if eqx.is_array(leaf) else leaf, self.network)
        if not isinstance(network, MonotoneNetwork):
            return Dense([(layer.weight, layer.bias) for layer in network.layers], self.spec.activation)
        weights = [*network.weights[:-1], QUICK * network.weights[-1]]
        sizes = [np.logaddexp(w, 0.0) * (4.0 / w.shape[1] if depth else 1.0) for depth, w in enumerate(weights)]
        return Dense(list(zip(sizes, map(np.asarray, network.biases))), "tanh", np.logaddexp(QUICK * network.line, 0.0))
