"""NAME: a starting point for a stationary field in the plane, -div(a grad u) = s. Change what is marked, then

    closura check NAME.py --data fleet.csv     seconds: does it all fit together?
    closura fit NAME.py --data fleet.csv       minutes: parameters, population, law, report

fleet.csv has a line an observation: system, x, y, and the field (here u).
"""

import jax.numpy as jnp  # use jnp.sin, jnp.exp, jnp.where, ... instead of math, numpy and if

import closura as cl


# 1. The coefficient, which must be positive. `f` is the law nobody wrote down; call it where it belongs.
def coefficient(u, x, p, f):
    return p.k * jnp.exp(p.slope * (x.x - 0.5) + f(u))


# 2. The source.
def source(x, p):
    return 10.0 * jnp.sin(jnp.pi * x.x) * jnp.sin(jnp.pi * x.y)


problem = cl.Elliptic(
    coefficient,
    source,
    # 3. The domain: a rectangle with so many nodes, or cl.Mesh(points, triangles). u is zero on its boundary unless
    #    boundary= says otherwise.
    domain=cl.Rectangle(x=(0.0, 1.0), y=(0.0, 1.0), nodes=(30, 30)),
    # 4. What differs between systems, and what you believe of a typical one before data. A plain number is known.
    parameters={"k": cl.LogNormal(0.0, 0.5), "slope": cl.Normal(0.0, 1.0)},
    # 5. Noise: sigma=0.1 if you know it; without it, it is inferred.
    # 6. The law. What you know of it helps: cl.Law(odd=True), positive, increasing, zero_at_origin.
    closure=cl.Law(zero_at_origin=True),
)
