"""NAME: a starting point. Change what is marked, then

    closura check NAME.py --data fleet.csv     seconds: does it all fit together?
    closura fit NAME.py --data fleet.csv       minutes: parameters, population, law, report

fleet.csv has a line an observation: system, time, and one column a measured quantity (here u).
"""

import jax.numpy as jnp  # use jnp.sin, jnp.exp, jnp.where, ... instead of math, numpy and if

import closura as cl


# 1. What is known of one system: rates of its states. `f` is the law nobody wrote down; call it where it belongs.
def physics(t, state, p, f):
    u, v = state
    return v, p.force * jnp.sin(t) - p.k * u - f(v)


problem = cl.ODE(
    physics,
    state=("u", "v"),
    # 2. What differs between systems, and what you believe of a typical one before data. A plain number is known.
    #    Priors: cl.Normal, cl.LogNormal, cl.TruncatedNormal, cl.HalfNormal, cl.Gamma, cl.Uniform.
    parameters={
        "k": cl.LogNormal(1.0, 0.5),  # positive; log k is about 1, give or take 0.5
        "u0": cl.Normal(0.0, 1.0),
        "v0": cl.Normal(0.0, 2.0),
        "force": 10.0,
    },
    # 3. The state at the start of the span.
    initial=lambda p: (p.u0, p.v0),
    span=(0.0, 8.0),  # in the unit of the table's times
    # 4. What the table's columns are: states by name, or functions of them: {"strain": lambda state, p: state.u / 2.0}.
    observed="u",
    # 5. Noise: sigma=0.1 if you know it; without it, it is inferred. noise="lognormal" if it grows with what is measured,
    #    noise="student" if there are outliers.
    # 6. The law. What you know of it helps: cl.Law(odd=True), positive, increasing, dissipative, zero_at_origin.
    closure=cl.Law(),
)
