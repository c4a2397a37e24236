"""Sampled laws: their prior against closed forms, their structure in every draw."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import RANGE, SCALING, drawn, sizes

from closura.laws import Law, Range, Scaling
from closura.laws._basis import DETAIL, TYPICAL, Smooth, covariance, make_frame, matern
from closura.laws._table import Axis

STRUCTURES = [
    {},
    {"odd": True},
    {"even": True},
    {"zero_at_origin": True},
    {"positive": True},
    {"increasing": True},
    {"decreasing": True},
    {"convex": True},
    {"concave": True},
    {"dissipative": True},
    {"dissipative": True, "odd": True},
    {"dissipative": True, "increasing": True},
    {"increasing": True, "odd": True},
    {"even": True, "convex": True},
    {"even": True, "positive": True},
    {"positive": True, "decreasing": True},
    {"at": {0.0: 1.0, 2.0: 3.0}},
    {"at": {1.5: 2.0}, "increasing": True},
    {"at": {1.5: 2.0}, "convex": True},
    {"at": {1.5: 2.0}, "positive": True},
    {"at": {1.0: 2.0}, "odd": True},
    {"at": {1.0: 2.0}, "dissipative": True},
    {"kink": 0.7},
    {"kink": 0.0, "odd": True},
    {"kink": 0.0, "even": True},
    {"kink": 0.7, "zero_at_origin": True},
    {"kink": 0.7, "positive": True},
    {"kink": 0.7, "increasing": True},
    {"kink": 0.0, "increasing": True, "dissipative": True},
    {"kink": 0.0, "dissipative": True},
    {"kink": 0.0, "dissipative": True, "odd": True},
    {"kink": 0.7, "at": {0.0: 1.0, 2.0: 3.0}},
    {"jump": 0.7},
    {"jump": 0.0, "odd": True},
    {"jump": 0.7, "zero_at_origin": True},
    {"jump": 0.7, "positive": True},
    {"jump": 0.7, "increasing": True},
    {"jump": 0.7, "decreasing": True},
    {"jump": 0.0, "increasing": True, "odd": True},
    {"jump": 0.0, "increasing": True, "dissipative": True},
    {"jump": 0.7, "at": {2.0: 3.0}},
    {"jump": 0.7, "at": {2.0: 3.0}, "positive": True},
]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_covariance_is_that_of_integrated_noise(order):
    z, other, step = np.array([-0.7, 0.3, 1.2]), np.array([1.1, -0.2, 0.8]), 1e-4
    noise = np.arange(step / 2, 2, step)

    def response(z):
        far = np.abs(z)[:, None] - noise
        return np.where(far > 0, np.maximum(far, 0.0) ** (order - 1), 0.0) / math.factorial(order - 1)

    same_side = np.sign(z)[:, None] == np.sign(other)
    np.testing.assert_allclose(
        covariance(z, other, order), step * response(z) @ response(other).T * same_side, atol=1e-4
    )
    if order > 1:
        small = 1e-5
        difference = (covariance(z + small, other, order) - covariance(z - small, other, order)) / (2 * small)
        np.testing.assert_allclose(covariance(z, other, order, derivative=1), difference, atol=1e-8)


def of_nodes(frame, trend, detail):
    """Covariance of g at the nodes of a table, given s^2 and r^2."""
    value = np.asarray(frame.nodes[:, 0])
    return value / np.asarray(frame.precision(jnp.log(jnp.array([trend, detail])))) @ value.T


@pytest.mark.parametrize(("detail", "within"), [(1e-12, 1e-5), (0.04, 0.012 * 0.04), (1.0, 0.012)])
def test_the_prior_of_node_values_is_the_process(float64, detail, within):
    """But for a hundredth of detail that is finer than coordinates tell, at any node."""
    axis = Axis(jnp.asarray(0.5), jnp.asarray(16.0), 33)
    frame = make_frame(Smooth(3, (3.0, 2.0, 1.0), 0, {}), axis, Scaling(jnp.zeros(1), jnp.array([4.0]), jnp.ones(())))
    z = np.asarray(axis.points()) / 4
    exact = 0.3 * covariance(z, z, 3) + 9 + 4 * np.outer(z, z) + np.outer(z**2, z**2) / 4
    exact += detail * matern(z[:, None] - z, DETAIL)
    np.testing.assert_allclose(of_nodes(frame, 0.3, detail), exact, rtol=0, atol=within)


def test_given_points_condition_the_prior(float64):
    """Against conditioning of the joint normal, at the sizes coordinates are made for. At others the same function of the values
    is taken away: what is known is known exactly, and all else is no surer than it may be."""
    axis = Axis(jnp.asarray(0.5), jnp.asarray(16.0), 33)
    scaling = Scaling(jnp.zeros(1), jnp.array([4.0]), jnp.ones(()))
    plain = make_frame(Smooth(3, (3.0, 3.0, 3.0), 0, {}), axis, scaling)
    z = np.asarray(axis.points()) / 4
    points = {float(z[20]): 1.0, float(z[9]): 2.0}
    frame = make_frame(Smooth(3, (3.0, 3.0, 3.0), 0, points), axis, scaling)
    assert frame.rigid.shape == plain.rigid.shape
    at = [20, 9]

    def conditioned(joint):
        gain = joint[:, at] @ np.linalg.inv(joint[np.ix_(at, at)])
        return gain, joint - gain @ joint[at]

    gain, left = conditioned(of_nodes(plain, *TYPICAL[1:]))
    np.testing.assert_allclose(frame.offset[:, 0], gain @ [1.0, 2.0], atol=1e-9)
    np.testing.assert_allclose(of_nodes(frame, *TYPICAL[1:]), left, atol=1e-8)
    joint, taken = of_nodes(plain, 0.25, 0.09), np.eye(33)
    taken[:, at] -= gain
    found = of_nodes(frame, 0.25, 0.09)
    np.testing.assert_allclose(found, taken @ joint @ taken.T, atol=1e-8)
    np.testing.assert_allclose(found[at], 0.0, atol=1e-9)
    assert np.linalg.eigvalsh(found - conditioned(joint)[1]).min() > -1e-8


@pytest.mark.parametrize("structure", STRUCTURES, ids=str)
def test_structure_holds_in_every_draw(structure):
    spec = Law(**structure)
    frame = spec.frame(RANGE, SCALING)
    x = np.sort(np.random.default_rng(1).uniform(-8, 10, 10_000)).astype(np.float32)
    even = np.linspace(-8, 10, 200, dtype=np.float32)
    for seed in range(5):
        law = drawn(spec, frame, seed)
        assert law.weights.shape == frame.rigid.shape
        view = jax.jit(jax.vmap(law.prepare(frame)))
        f, mirrored = np.asarray(view(x)), np.asarray(view(-x))
        rounding = 1e-6 * np.abs(f).max()
        holds = {
            "odd": np.array_equal(f, -mirrored),
            "even": np.array_equal(f, mirrored),
            "zero_at_origin": float(law.prepare(frame)(0.0)) == 0.0,
            "positive": np.all(f > 0),
            "increasing": np.all(np.diff(f) >= -rounding),
            "decreasing": np.all(np.diff(f) <= rounding),
            "convex": np.all(np.diff(np.asarray(view(even)), 2) >= -4 * rounding),
            "concave": np.all(np.diff(np.asarray(view(even)), 2) <= 4 * rounding),
            "dissipative": np.all(x * f >= 0),
            "at": all(np.isclose(float(law.prepare(frame)(at)), to, rtol=1e-5) for at, to in spec.at),
            "kink": spec.kink is None
            or np.ptp(np.asarray(view(spec.kink + jnp.array([-1e-6, 1e-6])))) < 10 * rounding + 2e-5,
            "jump": spec.jump is None or np.all(np.isfinite(f)),
        }
        assert all(holds[name] for name in structure), {name: holds[name] for name in structure}


def test_coordinates_move_the_law_linearly_where_nothing_bends_it():
    spec = Law()
    frame = spec.frame(RANGE, SCALING)
    one, other = drawn(spec, frame, 0), drawn(spec, frame, 1)
    x = jnp.linspace(-5, 7, 50)
    both = one.with_weights(0.3 * one.weights + 0.7 * other.weights)
    f, g, mixed = (np.asarray(jax.vmap(law.prepare(frame))(x)) for law in (one, other, both))
    np.testing.assert_allclose(mixed, 0.3 * f + 0.7 * g, rtol=1e-4, atol=1e-4)


def prior_sd(spec, frame, x):
    """Of the law at x before data, at a size of its own."""
    precision = frame.precision(sizes(frame))
    law = spec.build(jax.random.key(0), SCALING)
    values = jax.vmap(lambda a: jax.vmap(law.with_weights(a).prepare(frame))(x))(jnp.eye(len(precision)))
    return np.sqrt(np.asarray(jnp.sum(values**2 / precision[:, None], axis=0)))


def test_the_prior_does_not_depend_on_the_table(float64):
    """The same law has the same prior variance on a short table and on a long one, wherever both cover it."""
    spec, x = Law(), jnp.linspace(-1.0, 3.0, 9)
    frames = [spec.frame(Range(reach * RANGE.low, reach * RANGE.high), SCALING) for reach in (1.0, 1.7)]
    short, long = (prior_sd(spec, frame, x) for frame in frames)
    np.testing.assert_allclose(short, long, rtol=0.01)


SHARP = [{"kink": 0.7}, {"kink": 0.7, "increasing": True}, {"kink": 0.0, "dissipative": True}, {"jump": 0.7}]


@pytest.mark.parametrize("structure", [{}, {"positive": True}, {"increasing": True}, {"even": True}, *SHARP], ids=str)
def test_a_law_stays_what_it_is_on_a_longer_table(structure):
    spec = Law(**structure)
    short, long = (spec.frame(Range(reach * RANGE.low, reach * RANGE.high), SCALING) for reach in (1.0, 1.3))
    law, x = drawn(spec, short, 3, log_size=-1.0, detail=-5.0), jnp.linspace(-2.5, 4.5, 50)
    before, after = (
        np.asarray(jax.vmap(one.prepare(f))(x)) for one, f in ((law, short), (law.reframed(short, long), long))
    )
    np.testing.assert_allclose(after, before, atol=0.02 * np.abs(before).max())


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"odd": True, "positive": True}, "odd and positive contradict"),
        ({"increasing": True, "decreasing": True}, "no law grows and falls"),
        ({"positive": True, "at": {1.0: -2.0}}, "cannot be -2"),
        ({"dissipative": True, "at": {1.0: -2.0}}, "the sign of its input"),
        ({"odd": True, "at": {-1.0: 2.0}}, "positive input"),
        ({"increasing": True, "at": {1.0: 2.0, 3.0: 4.0}}, "one point"),
        ({"inputs": 3}, "cl.MLP"),
        ({"nodes": 10}, "odd"),
        ({"unit": 0.0}, "positive number"),
        ({"kink": 0.0, "jump": 0.0}, "leave kink out"),
        ({"kink": 1.0, "odd": True}, "at 0.0 only"),
        ({"kink": 1.0, "convex": True}, "not there yet"),
        ({"kink": 1.0, "reference": 2.0}, "drop reference"),
        ({"jump": 0.0, "even": True}, "use kink=0.0"),
        ({"jump": 0.0, "concave": True}, "no jumps"),
        ({"jump": 0.0, "dissipative": True}, "with increasing only"),
        ({"jump": 1.0, "at": {2.0: 3.0, 4.0: 5.0}}, "one point"),
        ({"jump": 1.0, "increasing": True, "zero_at_origin": True}, "at 0.0 only"),
        ({"jump": 1.0, "increasing": True, "at": {2.0: 3.0}}, "can be given there only"),
        ({"jump": float("nan")}, "finite"),
        ({"parameters": {"c": 1.0}}, "those of a form"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(structure, words):
    with pytest.raises(ValueError, match=words):
        Law(**structure)
