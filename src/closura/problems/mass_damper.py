"""Forced oscillator  u'' + f(u') + k u = 10 sin t,  u(0) = u0,  u'(0) = v0;  theta = (log k, u0, v0).

Twenty oscillators of different stiffness ring down from different starts while the same force drives them. Each is seen
thirteen times in eight seconds, with noise. The damping law f, 0.08 v^3 + 0.08 v in truth, is the same in all of them and
is not told. Settings of the paper's first experiment.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ..equations import ODE, Leapfrog
from ..laws import Law
from ..parameters import Positive, Real
from ._built_in import BuiltIn


def physics(t: ArrayLike, state: tuple[Array, Array], p: Any, f: Callable[..., Array]) -> tuple[Array, Array]:
    u, v = state
    return v, 10 * jnp.sin(t) - f(v) - p.k * u


def damping(v: Array | np.ndarray | float) -> Array | np.ndarray | float:
    return 0.08 * v**3 + 0.08 * v


mass_damper = BuiltIn(
    name="mass-damper",
    shows="20 driven oscillators share an unknown damping law; stiffness and initial state differ",
    problem=ODE(
        physics,
        state=("u", "v"),
        parameters={
            "k": Positive(guess=3.0, width=math.sqrt(0.1), spread=math.sqrt(0.02), spread_width=math.sqrt(0.4)),
            "u0": Real(guess=0.5, width=1.0, spread=1.0, spread_width=math.sqrt(0.08)),
            "v0": Real(guess=1.0, width=1.0, spread=1.0, spread_width=math.sqrt(0.08)),
        },
        initial=lambda p: (p.u0, p.v0),
        span=(0.0, 8.0),
        dt=0.08,
        integrator=Leapfrog(),
        closure=Law(),
        observed="u",
        sigma=0.15,
        name="mass-damper",
    ),
    mu=np.array([math.log(5.0), 0.0, 2.0]),
    tau=np.array([0.03, 2.0, 2.0]),
    laws={"f": damping},
    ranges={"f": (-5.0, 5.0)},
    places=lambda random, systems: [0.64 * np.arange(13)[:, None]] * systems,
    sigma=0.15,
)
