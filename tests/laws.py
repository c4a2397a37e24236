"""Laws with random weights, and what each promise means."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

import closura as cl
from closura.laws import Closure, Scaling

FLAGS = ("odd", "even", "zero_at_origin", "positive", "increasing", "dissipative")
CONTRADICTIONS = [{"odd", "even"}, {"odd", "positive"}, {"even", "increasing"}, {"even", "dissipative"}]
CONTRADICTIONS += [{"positive", "dissipative"}, {"positive", "zero_at_origin"}]
STRUCTURES = [
    (inputs, flags)
    for inputs in (1, 2)
    for count in range(1, 5)
    for flags in itertools.combinations(FLAGS, count)
    if not any(pair <= set(flags) for pair in CONTRADICTIONS)
    and not (inputs > 1 and {"increasing", "dissipative"} <= set(flags))
]


def random_law(*, seed=0, size=1.0, inputs=1, **options) -> Closure:
    """A law with every weight random; as built, the last layer is zero and promises hold by default."""
    scaling = Scaling(jnp.full(inputs, 0.3), jnp.linspace(1.5, 0.7, inputs), jnp.asarray(2.5))
    law = cl.MLP(inputs=inputs, **{"width": 8, "depth": 2} | options).build(jr.key(seed), scaling)
    weights, rest = eqx.partition(law.network, eqx.is_inexact_array)
    flat, unflatten = ravel_pytree(weights)
    network = eqx.combine(unflatten(flat + size * np.random.default_rng(seed).normal(size=flat.size)), rest)
    return eqx.tree_at(lambda c: c.network, law, network)


def points(inputs: int) -> np.ndarray:
    """Inside and far outside every range, on the axes, next to the origin and on it."""
    rng = np.random.default_rng(0)
    size = np.concatenate([rng.uniform(0, 12, (200, inputs)), 10 ** rng.uniform(-12, 3, (200, inputs))])
    x = rng.choice([-1, 1], size.shape) * size
    if inputs == 2:
        x[::5, 0], x[2::5, 1] = 0.0, 0.0
    return np.concatenate([x, np.zeros((1, inputs))]).astype(np.float32)


def rises(f, x) -> bool:
    """Strictly, along a line in every input."""
    lines = np.full((x.shape[1], *x.shape), 0.4, np.float32)
    for i, line in enumerate(lines):
        line[:, i] = np.linspace(-8.0, 8.0, len(x))
    return all(np.all(np.diff(f(line)) > 0) for line in lines)


LAWS = {
    "odd": lambda f, x: np.array_equal(f(-x), -f(x)),
    "even": lambda f, x: np.array_equal(f(-x), f(x)),
    "zero_at_origin": lambda f, x: not np.any(f(0 * x)) and np.abs(f(1e-6 * np.sign(x))).max() < 1e-3,
    "positive": lambda f, x: np.all(f(x) > 0),
    "increasing": rises,
    "dissipative": lambda f, x: np.all(np.sign(x[:, 0]) * f(x) >= 0) and not np.any(f(0 * x)),
}
