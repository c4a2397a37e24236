"""A small problem, its file and its table."""

import numpy as np
import pandas as pd

PROBLEM = """\
import jax.numpy as jnp
import closura as cl

def physics(t, state, p, f):
    u, v = state
    return v, 10 * jnp.sin(t) - f(v) - p.k * u

problem = cl.ODE(
    physics,
    state=("u", "v"),
    parameters={"k": cl.Positive(guess=4.0, width=0.3, spread=0.2), "u0": cl.Real(guess=0.0), "v0": cl.Real(guess=0.0)},
    initial=lambda p: (p.u0, p.v0),
    span=(0.0, 8.0),
    dt=0.08,
    integrator=cl.Leapfrog(),
    closure=cl.MLP(width=8, depth=1),
    observed="u",
    sigma=0.15,
)
"""
PHYSICS = "return v, 10 * jnp.sin(t) - f(v) - p.k * u"


def fleet(systems=3, points=9) -> pd.DataFrame:
    """A table as good as any."""
    time = np.linspace(0, 8, points)
    parts = [pd.DataFrame({"system": f"s{k}", "time": time, "u": np.sin(time + k)}) for k in range(systems)]
    return pd.concat(parts, ignore_index=True)
