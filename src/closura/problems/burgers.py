"""Generalized Burgers equation  u_t + f(u) u_x = nu u_xx  on a circle, u(x, 0) = z sin(2 pi x) sin(pi x).

Twenty channels with a fluid of their own viscosity nu, stirred by an amplitude z of their own. How fast a wave of height u
travels is the same in all of them and is not told: f(u) = 7 (sigmoid(3 u) - 1/2) in truth. Ten sensors read each channel at
five to ten moments of its own, with noise. Settings of the paper's third experiment.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ..equations import Evolution
from ..laws import MLP, Law
from ..parameters import Positive, Real
from ._built_in import BuiltIn

CELLS, SNAPSHOTS, END = 50, 40, 0.5


def physics(u: Array, ux: Array, uxx: Array, x: Array, t: ArrayLike, p: Any, f: Callable[..., Array]) -> Array:
    return p.nu * uxx - f(u) * ux


def initial(x: Array, p: Any) -> Array:
    return p.z * jnp.sin(2 * jnp.pi * x) * jnp.sin(jnp.pi * x)


def wave_speed(u: Array | np.ndarray | float) -> Array:
    return 7 * (jax.nn.sigmoid(3 * u) - 0.5)


def sensors(random: np.random.Generator, systems: int) -> list[np.ndarray]:
    """Ten sensors, the same in every channel; five to ten snapshots of each channel's own."""
    x = -1 + 2 / CELLS * np.arange(2, CELLS, CELLS // 10)
    moments = [np.sort(random.choice(SNAPSHOTS, random.integers(5, 11), replace=False)) + 1 for _ in range(systems)]
    return [np.stack(np.meshgrid(END / SNAPSHOTS * m, x, indexing="ij"), axis=-1).reshape(-1, 2) for m in moments]


burgers = BuiltIn(
    name="burgers",
    shows="20 channels share an unknown wave speed; viscosity and initial amplitude differ",
    problem=Evolution(
        physics,
        parameters={
            "nu": Positive(guess=0.03, width=math.sqrt(0.09), spread=math.sqrt(0.04), spread_width=math.sqrt(0.3)),
            "z": Real(guess=1.2, width=math.sqrt(0.3), spread=math.sqrt(0.2), spread_width=math.sqrt(0.1)),
        },
        initial=initial,
        span=(0.0, END),
        domain=(-1.0, 1.0),
        cells=CELLS,
        snapshots=SNAPSHOTS,
        dt=0.00125,
        closure=Law(network=MLP(depth=2)),
        sigma=0.2,
        name="burgers",
    ),
    mu=np.array([math.log(0.05), 1.4]),
    tau=np.array([0.07, 0.2]),
    laws={"f": wave_speed},
    ranges={"f": (-1.5, 1.5)},
    places=sensors,
    sigma=0.2,
)
