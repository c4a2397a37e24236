"""Nonlinear Darcy flow  -div(exp(z(x)) sigmoid(f(u)) grad u) = s(x)  in a square, u = 0 on its boundary.

Twenty samples of porous rock. The permeability of each varies in space by three coefficients of its own,
z(x) = z1 sin(2 pi x) sin(2 pi y) + z2 sin(2 pi x) sin(pi y) + z3 sin(pi x) sin(2 pi y), and changes with the pressure u in
a way that is the same in all of them and is not told: f(u) = u^2 / 2 in truth. Each is seen at sixty places, with noise.
Settings of the paper's second experiment.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..equations import Elliptic, Rectangle
from ..laws import Law
from ..parameters import Real
from ._built_in import BuiltIn

NODES = 50


def permeability(u: Array, x: Any, p: Any, f: Callable[..., Array]) -> Array:
    z = p.z1 * _wave(x, 2, 2) + p.z2 * _wave(x, 2, 1) + p.z3 * _wave(x, 1, 2)
    return jnp.exp(z) * jax.nn.sigmoid(f(u))


def source(x: Any, p: Any) -> Array:
    return 2 * jnp.pi**2 * _wave(x, 1, 1)


def pressure_law(u: Array | np.ndarray | float) -> Array | np.ndarray | float:
    return u**2 / 2


def _wave(x: Any, m: int, n: int) -> Array:
    return jnp.sin(m * jnp.pi * x.x) * jnp.sin(n * jnp.pi * x.y)


def interior_nodes(random: np.random.Generator, systems: int) -> list[np.ndarray]:
    """Sixty nodes of each system's own, none on the boundary."""
    inside = np.linspace(0, 1, NODES)[1:-1]
    nodes = np.stack(np.meshgrid(inside, inside, indexing="ij"), axis=-1).reshape(-1, 2)
    return [nodes[random.choice(len(nodes), 60, replace=False)] for _ in range(systems)]


def _coefficient(guess: float) -> Real:
    return Real(guess=guess, width=math.sqrt(0.4), spread=math.sqrt(0.2), spread_width=math.sqrt(0.1))


darcy = BuiltIn(
    name="darcy",
    shows="20 porous samples share an unknown dependence of permeability on pressure; the rock differs in space",
    problem=Elliptic(
        permeability,
        source,
        domain=Rectangle(x=(0.0, 1.0), y=(0.0, 1.0), nodes=(NODES, NODES)),
        parameters={"z1": _coefficient(0.0), "z2": _coefficient(0.2), "z3": _coefficient(-0.1)},
        closure=Law(),
        sigma=0.1,
        name="darcy",
    ),
    mu=np.array([0.2, -0.1, 0.2]),
    tau=np.array([0.5, 0.5, 0.5]),
    laws={"f": pressure_law},
    ranges={"f": (0.0, 2.5)},
    places=interior_nodes,
    sigma=0.1,
)
