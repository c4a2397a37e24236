"""Laws with random weights, and what each promise means."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

import closura as cl
from closura.laws import FittedLaw, NetworkLaw, Range, Scaling, support_of

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


def random_law(*, seed=0, size=1.0, inputs=1, **options) -> NetworkLaw:
    """A law with every weight random; as built, the last layer is zero and promises hold by default."""
    scaling = Scaling(jnp.full(inputs, 0.3), jnp.linspace(1.5, 0.7, inputs), jnp.asarray(2.5))
    law = cl.MLP(inputs=inputs, **{"width": 8, "depth": 2} | options).build(jr.key(seed), scaling)
    flat, unflatten = ravel_pytree(law.weights)
    return law.with_weights(unflatten(flat + size * np.random.default_rng(seed).normal(size=flat.size)))


# Of sampled laws: where a table is, and its units.
RANGE = Range(jnp.array([-3.0]), jnp.array([5.0]))
SCALING = Scaling(jnp.array([1.0]), jnp.array([2.0]), jnp.asarray(4.0))


def sizes(frame, log_size=0.5, detail=-3.0):
    """Logs of squared sizes, as many as a prior has."""
    return jnp.array([log_size, detail][: len(frame.flexible)])


def drawn(spec, frame, seed, log_size=0.5, detail=-3.0):
    """A law of the prior."""
    precision = frame.precision(sizes(frame, log_size, detail))
    normal = np.random.default_rng(seed).normal(size=precision.shape)
    law = spec.build(jr.key(0), SCALING)
    return law.with_weights(normal / jnp.sqrt(precision))


def span(low, high, inputs=1) -> Range:
    return Range(jnp.full(inputs, low, float), jnp.full(inputs, high, float))


@eqx.filter_jit
def network_and_table(law, range_, x):
    return jax.vmap(lambda p: law(*p))(x), jax.vmap(lambda p: law.prepare(range_)(*p))(x)


tabulate = eqx.filter_jit(lambda law, range_: law.prepare(range_))


def visits(inputs: int) -> np.ndarray:
    """Along a line; with two inputs on a ring, the middle of which nobody visited; or anywhere in a ball."""
    random = np.random.default_rng(1)
    around = random.normal(size=(20_000, inputs))
    if inputs == 2:
        around *= (2 + 0.1 * random.normal(size=(20_000, 1))) / np.linalg.norm(around, axis=1, keepdims=True)
    return around + 0.5


def law_of(name: str, inputs: int = 1, **options) -> FittedLaw:
    """A law as a fit could have found it."""
    return FittedLaw(name, random_law(inputs=inputs, **options), ("u", "v", "w")[:inputs], support_of(visits(inputs)))


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
