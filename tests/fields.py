"""Small fields for tests: a square of rock, a channel, an L-shaped plate, a tray that cools."""

import jax.numpy as jnp
import numpy as np
import pandas as pd

import closura as cl
from closura.problems import burgers, darcy

ROCK = cl.Elliptic(
    darcy.problem.coefficient,
    darcy.problem.source,
    domain=cl.Rectangle(nodes=(9, 8)),
    parameters=darcy.problem.parameters.kinds,
    closure=cl.MLP(width=8, depth=2),
    sigma=0.1,
    name="rock",
)
CHANNEL = cl.Evolution(
    burgers.problem.physics,
    parameters=burgers.problem.parameters.kinds,
    initial=burgers.problem.initial,
    span=(0.0, 0.3),
    domain=(-1.0, 1.0),
    cells=16,
    snapshots=6,
    closure=cl.MLP(width=8, depth=2),
    sigma=0.1,
    name="channel",
)


def _plate() -> cl.Elliptic:
    x, y = np.meshgrid(np.arange(5) / 4, np.arange(5) / 4, indexing="ij")
    points, number = np.stack([x.ravel(), y.ravel()], axis=-1), np.arange(25).reshape(5, 5)
    squares = [(i, j) for i in range(4) for j in range(4) if not (i >= 2 and j >= 2)]
    lower = [(number[i, j], number[i + 1, j], number[i + 1, j + 1]) for i, j in squares]
    upper = [(number[i, j], number[i + 1, j + 1], number[i, j + 1]) for i, j in squares]
    triangles = np.array(lower + upper)
    used = np.unique(triangles)
    return cl.Elliptic(
        lambda u, x, p, f: p.k * jnp.exp(f(u)),
        lambda x, p: 1.0 + 0 * x.x,
        domain=cl.Mesh(points[used], np.searchsorted(used, triangles)),
        parameters={"k": cl.Positive(guess=1.0, width=0.3, spread=0.3)},
        closure=cl.MLP(width=8, depth=2),
        sigma=0.01,
        name="plate",
    )


PLATE = _plate()
TRAY = cl.Evolution(
    lambda u, ux, uxx, x, t, p, f: p.d * (uxx.x + uxx.y) - f(u),
    parameters={"d": cl.Positive(guess=0.02, width=0.2, spread=0.2), "z": cl.Real(guess=1.0, width=0.3, spread=0.3)},
    initial=lambda x, p: p.z * jnp.sin(jnp.pi * x.x) * jnp.sin(2 * jnp.pi * x.y),
    boundary={"x": cl.Dirichlet(0.0), "y": "periodic"},
    span=(0.0, 1.0),
    domain=((0.0, 1.0), (0.0, 1.0)),
    cells=12,
    snapshots=6,
    closure=cl.MLP(width=8, depth=2),
    sigma=0.1,
    name="tray",
)
PROBLEMS = {"rock": ROCK, "channel": CHANNEL, "plate": PLATE, "tray": TRAY}
PLACES = {
    "rock": [[0.25, 3 / 7], [0.5, 0.33], [0.9, 0.5]],
    "channel": [[0.1, 0.25], [0.12, -0.9], [0.3, 0.999]],
    "plate": [[0.25, 0.25], [0.3, 0.8], [0.8, 0.1]],
    "tray": [[0.3, 0.25, 0.25], [0.5, 0.3, 0.8], [0.9, 0.77, 0.1]],
}


def observed(name: str, systems: int = 1, value: float = 0.1) -> cl.Observations:
    """Every system at the same three places."""
    problem = PROBLEMS[name]
    places = pd.DataFrame(PLACES[name], columns=list(problem.axes))
    frame = pd.concat([places.assign(system=f"s{k}", u=value + 0.01 * k) for k in range(systems)])
    data = cl.Observations.from_frame(frame.reset_index(drop=True), axes=problem.axes)
    return data.matched(problem.observed, dict(zip(problem.axes, problem.bounds)), problem.sigma)


def theta(name: str) -> jnp.ndarray:
    mean = PROBLEMS[name].parameters.mean
    return jnp.asarray(mean + 0.1 * np.arange(1, 1 + len(mean)), float)
