"""NAME: a starting point for a field that moves along a line, u_t = R(u, u_x, u_xx, x, t). Change what is marked, then

    closura check NAME.py --data fleet.csv     seconds: does it all fit together?
    closura fit NAME.py --data fleet.csv       minutes: parameters, population, law, report

fleet.csv has a line an observation: system, time, x, and the field (here u).
"""

import jax.numpy as jnp  # use jnp.sin, jnp.exp, jnp.where, ... instead of math, numpy and if

import closura as cl


# 1. What is known of one system. `f` is the law nobody wrote down; call it where it belongs.
def physics(u, ux, uxx, x, t, p, f):
    return p.nu * uxx - f(u)


problem = cl.Evolution(
    physics,
    # 2. What differs between systems, and what you believe of a typical one before data. A plain number is known.
    parameters={"nu": cl.LogNormal(-3.0, 0.5), "height": cl.LogNormal(0.0, 0.3)},
    # 3. The field at the start of the span, and its ends: "periodic", cl.Dirichlet(0.0) or cl.Neumann(0.0).
    initial=lambda x, p: p.height * jnp.sin(jnp.pi * x),
    boundary=cl.Dirichlet(0.0),
    span=(0.0, 2.0),  # in the unit of the table's times
    domain=(0.0, 1.0),
    # 4. How finely it is solved. Observations may lie anywhere.
    cells=40,
    snapshots=40,
    # 5. Noise: sigma=0.1 if you know it; without it, it is inferred.
    # 6. The law. What you know of it helps: cl.Law(odd=True), positive, increasing, zero_at_origin.
    closure=cl.Law(zero_at_origin=True),
)
