"""Sampled laws of two inputs: their prior against its definition, what truncation loses, structure in every draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from closura.laws import Law, Range, Scaling
from closura.laws._basis import covariance
from closura.laws._plane import Plane

RANGE = Range(jnp.array([-3.0, -6.0]), jnp.array([5.0, 7.0]))
SCALING = Scaling(jnp.array([1.0, 0.5]), jnp.array([2.0, 3.0]), jnp.asarray(4.0))
WIDE = (3.0, 3.0, 3.0)
STRUCTURES = [
    {},
    {"odd": True},
    {"even": True},
    {"zero_at_origin": True},
    {"positive": True},
    {"dissipative": True},
    {"dissipative": True, "odd": True},
    {"even": True, "positive": True},
    {"even": True, "zero_at_origin": True},
]


def drawn(spec, frame, seed, log_size=0.5):
    """A law of the prior."""
    precision = frame.precision(jnp.array([log_size]))
    normal = np.random.default_rng(seed).normal(size=precision.shape)
    return spec.build(jax.random.key(0), SCALING).with_weights(normal / jnp.sqrt(precision))


def process(z, y):
    """Covariance of W at points (z, y), from its definition."""

    def one(z):
        straight = 1 + np.outer(z, z) + np.outer(z, z) ** 2 / 4
        return straight + covariance(z, z, 3)

    polynomials = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
    factorial = (1, 1, 2)
    columns = [z**i * y**j / (factorial[i] * factorial[j]) for i, j in polynomials]
    low = sum(np.outer(c, c) for c in columns)
    return one(z) * one(y) - low, 9 * low


def places(frame):
    """z of the nodes, as columns."""
    z = [(x - c) / s for x, c, s in zip(frame.points(), frame.scaling.center, frame.scaling.scale)]
    return [np.asarray(a, float).ravel() for a in np.meshgrid(*z, indexing="ij")]


def rows(called, count, *x):
    """Values at places x of what is `called(a)`, which is linear in `count` coordinates: (place, coordinate)."""
    return np.asarray(jax.vmap(lambda a: jax.vmap(called(a))(*map(jnp.ravel, x)))(jnp.eye(count))).T


def test_truncation_loses_a_ten_thousandth_of_the_prior_variance_at_most(float64):
    frame = Plane(WIDE, True, 0, 17).frame(RANGE, SCALING)
    assert frame.rigid.shape == (100,)
    value = np.asarray(frame.nodes[:, :, 0]).reshape(-1, 100)
    log_size = 0.7
    kept = value / np.asarray(frame.precision(jnp.array([log_size]))) @ value.T
    curved, polynomial = process(*places(frame))
    exact = np.exp(log_size) * curved + polynomial
    scale = np.sqrt(np.diag(exact))
    assert np.abs((kept - exact) / np.outer(scale, scale)).max() < 1e-4
    # Of W alone: at every node where it is not as good as zero, and on the whole.
    lost, variance = np.diag(exact - kept) / np.exp(log_size), np.diag(curved)
    assert np.all(lost > -1e-6 * np.maximum(variance, 1.0))
    there = variance > 1e-2
    assert np.max(lost[there] / variance[there]) < 1e-4
    assert np.sum(lost) / np.sum(variance) < 1e-5


def test_more_coordinates_change_nothing_visible(float64):
    """Regression on a law of two inputs: mean and sd of the law, with as many coordinates as there are nodes beside fewer."""
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 300), np.sqrt(rng.uniform(0, 1, 300))
    u, v, sigma = 2.2 * radius * np.cos(angle), 4.5 * radius * np.sin(angle), 0.15
    data = 0.3 * v * (1 + u**2) / (1 + 0.5 * v**2) + sigma * rng.normal(size=300)
    at = np.meshgrid(np.linspace(-1.5, 1.5, 7), np.linspace(-3.0, 3.0, 7))
    range_, scaling = Range(jnp.array([-4.5, -9.0]), jnp.array([4.5, 9.0])), SCALING._replace(center=jnp.zeros(2))

    def posterior(most):
        frame = Plane(WIDE, True, 0, 17, most).frame(range_, scaling)
        values = [rows(frame.table, len(frame.rigid), *x) for x in ((u, v), at)]
        precision = values[0].T @ values[0] / sigma**2 + np.diag(frame.precision(jnp.array([1.0])))
        mean = values[1] @ np.linalg.solve(precision, values[0].T @ data / sigma**2)
        return mean, np.sqrt(np.sum(values[1].T * np.linalg.solve(precision, values[1].T), axis=0))

    (few, few_sd), (mean, sd), (many, many_sd), (every, every_sd) = map(posterior, (60, 100, 200, 289))
    assert np.abs(few - every).max() < 0.35 * every_sd.mean()
    assert np.abs(few_sd / every_sd - 1).max() < 0.08
    assert np.abs(mean - every).max() < 0.06 * every_sd.mean()
    assert np.abs(sd / every_sd - 1).max() < 0.02
    assert np.abs(many - every).max() < 0.01 * every_sd.mean()
    assert np.abs(many_sd / every_sd - 1).max() < 0.002


@pytest.mark.parametrize("structure", [{"odd": True}, {"even": True}, {"dissipative": True, "odd": True}], ids=str)
def test_a_symmetric_prior_is_as_wide_as_any(structure, float64):
    """W of a symmetric law has on either side the variance that W has, polynomials of the wrong parity left out."""
    spec = Law(inputs=2, **structure)
    frame = spec.frame(RANGE, SCALING)
    value = np.asarray(frame.nodes[:, :, 0]).reshape(-1, len(frame.rigid))[:, np.asarray(frame.flexible[0]) > 0]
    z, y = places(frame)
    one = [1 + a**2 + a**4 / 4 for a in (z, y)]
    noise = [np.abs(a) ** 5 / 20 for a in (z, y)]
    wanted = (one[0] + noise[0]) * (one[1] + noise[1]) - one[0] * one[1]
    parity = spec.plane.parity
    wanted += z**4 * y**4 / 16 if parity == 1 else z**4 * y**2 / 4 + z**2 * y**4 / 4
    np.testing.assert_allclose(np.sum(value**2, axis=1), wanted, rtol=1e-3, atol=1e-2)
    mirrored = value.reshape(17, 17, -1)[::-1, ::-1].reshape(289, -1)
    np.testing.assert_allclose(value, parity * mirrored, atol=1e-9 * np.abs(value).max())


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_structure_holds_in_every_draw(structure):
    spec = Law(inputs=2, **structure)
    frame = spec.frame(RANGE, SCALING)
    x = np.random.default_rng(1).uniform([-8, -12], [10, 14], (10_000, 2)).astype(np.float32)
    x[::5, 0], x[2::5, 1] = 0.0, 0.0
    for seed in range(3):
        law = drawn(spec, frame, seed)
        assert law.weights.shape == frame.rigid.shape == (spec.coordinates,)
        view = jax.jit(jax.vmap(law.prepare(frame)))
        f, mirrored, origin = (np.asarray(view(*x.T)) for x in (x, -x, 0 * x[:1]))
        assert np.abs(f).max() > 0.1
        holds = {
            "odd": np.array_equal(f, -mirrored),
            "even": np.array_equal(f, mirrored),
            "zero_at_origin": origin[0] == 0.0,
            "positive": np.all(f > 0),
            "dissipative": np.all(x[:, 0] * f >= 0) and np.all(f[x[:, 0] == 0] == 0),
        }
        assert all(holds[name] for name in structure), {name: holds[name] for name in structure}


def test_coordinates_move_the_law_linearly_where_nothing_bends_it():
    spec = Law(inputs=2)
    frame = spec.frame(RANGE, SCALING)
    one, other = drawn(spec, frame, 0), drawn(spec, frame, 1)
    both = one.with_weights(0.3 * one.weights + 0.7 * other.weights)
    x = jnp.linspace(-5, 7, 50), jnp.linspace(9, -8, 50)
    f, g, mixed = (np.asarray(jax.vmap(law.prepare(frame))(*x)) for law in (one, other, both))
    np.testing.assert_allclose(mixed, 0.3 * f + 0.7 * g, rtol=1e-4, atol=1e-5 * np.abs(f).max())


@pytest.mark.parametrize("structure", [{}, {"positive": True}, {"dissipative": True, "odd": True}], ids=str)
def test_gradients_in_coordinates_and_inputs(structure, float64):
    """Inside the table, beyond one end of it and beyond a corner, forward and reverse."""
    spec = Law(inputs=2, nodes=9, **structure)
    frame = spec.frame(RANGE, SCALING)
    law = drawn(spec, frame, 0)

    def value(a, x):
        return law.with_weights(a).prepare(frame)(*x)

    for x in ([0.83, -1.21], [9.7, 0.4], [1.1, -13.0], [11.0, 15.0]):
        check_grads(jax.jit(value), (law.weights, jnp.array(x)), 1, ("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_the_prior_does_not_depend_on_the_table(float64):
    """The same law has the same prior variance on a short table and on a long one, wherever both cover it."""
    spec, x = Law(inputs=2), np.meshgrid(np.linspace(-1.0, 3.0, 5), np.linspace(-2.0, 4.0, 5))
    frames = [spec.frame(Range(reach * RANGE.low, reach * RANGE.high), SCALING) for reach in (1.0, 1.5)]

    def sd(frame):
        precision, law = np.asarray(frame.precision(jnp.array([1.5]))), spec.build(jax.random.key(0), SCALING)
        values = rows(lambda a: law.with_weights(a).prepare(frame), len(precision), *x)
        return np.sqrt(np.sum(values**2 / precision, axis=1))

    np.testing.assert_allclose(sd(frames[0]), sd(frames[1]), rtol=0.01)


@pytest.mark.parametrize("structure", [{}, {"positive": True}, {"odd": True}], ids=str)
def test_a_law_stays_what_it_is_on_a_longer_table(structure):
    spec = Law(inputs=2, **structure)
    short, long = (spec.frame(Range(reach * RANGE.low, reach * RANGE.high), SCALING) for reach in (1.0, 1.3))
    law, rng = drawn(spec, short, 3, log_size=-1.0), np.random.default_rng(0)
    x = rng.uniform([-2.5, -5.0], [4.5, 6.0], (200, 2)).astype(np.float32)
    before, after = (
        np.asarray(jax.vmap(one.prepare(f))(*x.T)) for one, f in ((law, short), (law.reframed(short, long), long))
    )
    np.testing.assert_allclose(after, before, atol=0.02 * np.abs(before).max())


def test_units_are_those_of_each_input():
    stated = Law(inputs=2, unit=7.0, scale=(0.5, 2.0), reference=[1.0, 3.0]).frame(RANGE, SCALING).scaling
    np.testing.assert_array_equal(stated.center, [1.0, 3.0])
    np.testing.assert_array_equal(stated.scale, [0.5, 2.0])
    assert float(stated.output) == 7.0
    found = Law(inputs=2, dissipative=True, scale=2.0).frame(RANGE, SCALING)
    np.testing.assert_array_equal(found.scaling.center, SCALING.center)
    np.testing.assert_array_equal(found.scaling.scale, [2.0, 2.0])
    np.testing.assert_array_less(found.low, np.asarray(RANGE.low) + 1e-6)
    np.testing.assert_array_less(np.asarray(RANGE.high) - 1e-6, found.high)
    np.testing.assert_array_equal(Law(inputs=2, odd=True).frame(RANGE, SCALING).scaling.center, [0.0, 0.0])


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"inputs": 3}, "one or two; use cl.MLP"),
        ({"increasing": True}, "increasing is for laws of one input"),
        ({"convex": True}, "convex is for laws of one input"),
        ({"at": {1.0: 2.0}}, "at is for laws of one input"),
        ({"odd": True, "positive": True}, "odd and positive contradict"),
        ({"scale": (1.0, -2.0)}, "positive number"),
        ({"scale": (1.0, 2.0, 3.0)}, "one an input"),
        ({"reference": (1.0, float("nan"))}, "must be a number"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(structure, words):
    with pytest.raises(ValueError, match=words):
        Law(**{"inputs": 2} | structure)
