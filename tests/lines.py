"""Straight lines that were fitted, by their draws: all that follows from them has a closed form."""

import numpy as np
import pandas as pd
import xarray as xr

import closura as cl
from closura.predict import Fleet
from closura.predict._new_systems import matched

TIMES = np.array([0.0, 0.5, 1.0])


def line(sigma=None, **options) -> cl.ODE:
    """u = a + b t: all that is inferred has a closed form."""
    return cl.ODE(
        lambda t, s, p: p.b,
        state="u",
        parameters={"a": cl.Real(width=3.0), "b": cl.Real(width=3.0)},
        initial=lambda p: p.a,
        span=(0.0, 1.0),
        dt=0.25,
        observed="u",
        sigma=sigma,
        **options,
    )


def fleet(problem, mu, tau, sigma=None, shift=None, correlation=None, **columns) -> Fleet:
    """One that was fitted, by its draws: (draw, parameter) each."""
    mu, tau = np.atleast_2d(mu).astype(float), np.atleast_2d(tau).astype(float)
    names, systems = ["a", "b"], ["one", "two"]
    table = pd.DataFrame({"system": np.repeat(systems, 3), "time": np.tile(TIMES, 2), "u": 1.0})
    table = table.assign(**{name: np.repeat(values, 3) for name, values in columns.items()})
    theta = np.random.default_rng(0).normal(mu[:, None], 0.1, (len(mu), 2, 2))
    coords = {"chain": [0], "draw": np.arange(len(mu)), "system": systems, "parameter": names, "quantity": ["u"]}
    posterior = {n: (("chain", "draw", "system"), theta[None, ..., i]) for i, n in enumerate(names)}
    posterior |= {n: (("chain", "draw", "parameter"), x[None]) for n, x in (("mu", mu), ("tau", tau))}
    if sigma is not None:
        posterior["sigma"] = (("chain", "draw", "quantity"), np.reshape(sigma, (1, -1, 1)))
    if shift is not None:
        posterior["shift"] = (("chain", "draw", "effect"), np.reshape(shift, (1, -1, 1)))
    if correlation is not None:
        posterior["correlation"] = (("chain", "draw", "parameter", "other"), np.reshape(correlation, (1, -1, 2, 2)))
    free = {"theta": (("chain", "draw", "system", "parameter"), theta[None])}
    groups = {"/posterior": xr.Dataset(posterior, coords), "/unconstrained_posterior": xr.Dataset(free, coords)}
    return Fleet(problem, matched(problem, table), xr.DataTree.from_dict(groups), {})


def newcomer(value, name="new", **columns) -> pd.DataFrame:
    return pd.DataFrame({"system": name, "time": TIMES[: len(value)], "u": value, **columns})
