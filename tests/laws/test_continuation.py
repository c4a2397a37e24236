"""Longer tables: the prior goes on beyond the end of a table, given what the law is inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closura.laws import FittedLaw, Law, Range, Scaling
from closura.laws._basis import DETAIL, Smooth, covariance, make_frame, matern
from closura.laws._continuation import longer
from closura.laws._table import Axis

SCALING = Scaling(jnp.array([1.0]), jnp.array([2.0]), jnp.asarray(4.0))
RANGE = Range(jnp.array([-3.0]), jnp.array([5.0]))


@pytest.mark.parametrize(("order", "left", "within"), [(3, 16, 1e-4), (3, 0, 1e-4), (2, 10, 5e-4), (1, 16, 3e-3)])
@pytest.mark.parametrize("detail", [1e-12, 100.0])
def test_a_longer_table_has_the_same_prior(float64, order, left, within, detail):
    """Value at every node, inside and beyond, against the closed form of the process. Of detail, coordinates leave out a
    hundredth on either side of where tables meet."""
    within = within if detail < 1 else 0.025
    axis, unit = (
        Axis(jnp.asarray(0.5), jnp.asarray(float(left)), 33),
        Scaling(jnp.zeros(1), jnp.array([4.0]), jnp.ones(())),
    )
    prior = Smooth(order, (3.0, 2.0, 1.0)[:order], 0, {})
    frame, count = longer(make_frame(prior, axis, unit), prior, 20)
    assert frame.nodes.shape[0] == 73
    assert frame.rigid.shape == (frame.nodes.shape[-1],)
    assert count == 2 * sum(prior.counts(20))
    z = np.asarray(frame.axis.points()) / 4
    value = np.asarray(frame.nodes[:, 0])
    found = value / np.asarray(frame.precision(jnp.log(jnp.array([0.3, detail])))) @ value.T
    powers = np.stack([sd * z**i / max(1, i) for i, sd in enumerate((3.0, 2.0, 1.0)[:order])])
    exact = 0.3 * covariance(z, z, order) + detail * matern(z[:, None] - z, DETAIL) + powers.T @ powers
    sd = np.sqrt(np.diag(exact))
    np.testing.assert_allclose(found / np.outer(sd, sd), exact / np.outer(sd, sd), atol=within)


@pytest.mark.parametrize(
    "structure",
    [
        {},
        {"odd": True},
        {"even": True},
        {"dissipative": True},
        {"increasing": True},
        {"convex": True},
        {"positive": True},
        {"at": {0.0: 1.0}},
    ],
    ids=str,
)
def test_draws_go_on_where_tables_end(structure):
    """Inside nothing changes; beyond the end draws part, keep their structure, and are as smooth as before."""
    spec = Law(**structure)
    frame = spec.frame(RANGE, SCALING)
    sizes = jnp.array([-1.0, -5.0])
    precision = frame.precision(sizes)
    one = np.random.default_rng(1).normal(size=precision.shape) / np.sqrt(precision)
    law = jax.vmap(lambda _: spec.build(jax.random.key(0), SCALING))(jnp.arange(50))
    law = law.with_weights(jnp.tile(one, (50, 1))).with_size(jnp.tile(sizes, (50, 1)))
    short = FittedLaw("f", law, ("v",), None, frame)
    long = short.continued()
    low, high = float(frame.low[0]), float(frame.high[0])
    width = high - low
    assert float(long.frame.high[0]) == pytest.approx(high + width, rel=1e-5)
    inside = np.linspace(low, high, 101)[1:-1]
    np.testing.assert_allclose(long.draws(inside), short.draws(inside), rtol=1e-5, atol=1e-5)
    beyond = np.array([high + 0.5 * width, low - 0.5 * width])
    assert np.all(short.draws(beyond).std(axis=0) < 1e-4)
    assert np.all(long.draws(beyond).std(axis=0) > 0.01)
    np.testing.assert_array_equal(long.draws(beyond), short.continued().draws(beyond), "a seed for every draw")
    wide = np.linspace(float(long.frame.low[0]), float(long.frame.high[0]), 400, dtype=np.float32)
    f = long.draws(wide)
    holds = {
        "odd": lambda: np.array_equal(long.draws(-wide), -f),
        "even": lambda: np.array_equal(long.draws(-wide), f),
        "dissipative": lambda: np.all(f * wide >= 0),
        "increasing": lambda: np.all(np.diff(f) > -1e-6 * np.abs(f).max()),
        "convex": lambda: np.all(np.diff(f, 2) > -1e-4 * np.abs(f).max()),
        "positive": lambda: np.all(f > 0),
        "at": lambda: np.allclose(long.draws(0.0), 1.0, atol=1e-4),
    }
    assert all(holds[name]() for name in structure)


def test_a_table_that_ends_before_a_given_point_stays():
    spec = Law(at={9.0: 2.0})
    frame = spec.frame(RANGE, SCALING)
    longer_frame, _ = longer(frame, spec.prior(frame.scaling), 32)
    assert float(longer_frame.high[0]) == pytest.approx(float(frame.high[0]))
    assert float(longer_frame.low[0]) < float(frame.low[0]) - 5
