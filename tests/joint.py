"""Fleets by their draws, each with a law of its own: nothing is fitted, and what follows has closed forms.

u' = b + f(t),  u(0) = a:      u(t) = a + b t + integral of f
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

import closura as cl
from closura.laws import FittedLaw, Law, Range, Scaling, Support
from closura.predict import Fleet
from closura.predict._new_systems import matched

TIMES = np.array([0.25, 0.5, 1.0])
SCALING = Scaling(jnp.array([0.5]), jnp.array([0.5]), jnp.asarray(1.0))
SPEC = Law(nodes=9)


def ramp(sigma=None, shared=False) -> cl.ODE:
    return cl.ODE(
        lambda t, s, p, f: p.b + f(t),
        state="u",
        parameters={"a": cl.Real(width=3.0), "b": cl.Real(width=3.0, shared=shared)},
        initial=lambda p: p.a,
        span=(0.0, 1.0),
        dt=1 / 16,
        observed="u",
        closure=SPEC,
        sigma=sigma,
    )


def laws(coordinates, log_size=(0.0, -5.0), support=(0.0, 1.0)) -> FittedLaw:
    """Of draws of (value, gradient) at the middle of the table, in units of the prior's standard deviations: straight lines,
    f(t) = 3 (first + second (2 t - 1))."""
    frame = SPEC.frame(Range(jnp.zeros(1), jnp.ones(1)), SCALING)
    count = len(coordinates)
    whole = np.zeros((count, SPEC.coordinates))
    whole[:, : np.shape(coordinates)[1]] = coordinates
    built = jax.vmap(lambda _: SPEC.build(jax.random.key(0), SCALING))(jnp.arange(count))
    law = built.with_weights(jnp.asarray(whole, float)).with_size(jnp.tile(jnp.array(log_size), (count, 1)))
    return FittedLaw("f", law, ("t",), Support(*(np.array([end], float) for end in support)), frame)


def integral(coordinates, t):
    """Of f from 0 to t, (draw, time)."""
    first, second = np.asarray(coordinates, float).T[:2, :, None]
    return 3 * (first * t + second * (t**2 - t))


def fleet(problem, theta, mu, tau, law, sigma=None) -> Fleet:
    """`theta` is (draw, system, parameter), `mu` and `tau` (draw, parameter)."""
    theta, mu, tau = (np.asarray(part, float) for part in (theta, mu, tau))
    systems = [f"s{k}" for k in range(theta.shape[1])]
    table = pd.concat([pd.DataFrame({"system": name, "time": TIMES, "u": 1.0}) for name in systems])
    coords = {"chain": [0], "draw": np.arange(len(mu)), "system": systems, "parameter": ["a", "b"], "quantity": ["u"]}
    posterior = {n: (("chain", "draw", "system"), theta[None, ..., i]) for i, n in enumerate(("a", "b"))}
    posterior |= {n: (("chain", "draw", "parameter"), x[None]) for n, x in (("mu", mu), ("tau", tau))}
    if sigma is not None:
        posterior["sigma"] = (("chain", "draw", "quantity"), np.reshape(sigma, (1, -1, 1)))
    free = {"theta": (("chain", "draw", "system", "parameter"), theta[None])}
    groups = {"/posterior": xr.Dataset(posterior, coords), "/unconstrained_posterior": xr.Dataset(free, coords)}
    return Fleet(problem, matched(problem, table), xr.DataTree.from_dict(groups), {"f": law})


def newcomer(value, name="new", times=TIMES) -> pd.DataFrame:
    return pd.DataFrame({"system": name, "time": times[: len(value)], "u": value})
