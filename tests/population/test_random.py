"""One stream of random numbers, cut into parts."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from closura.population import normal, uniforms


def test_parts_are_uniform_and_independent():
    a, b = uniforms(jr.key(0), (300, 100), (30_000,))
    assert a.shape == (300, 100)
    assert b.shape == (30_000,)
    for part in (a.ravel(), b):
        assert stats.kstest(np.asarray(part, float), "uniform").pvalue > 1e-3
    correlation = np.corrcoef(np.asarray(a).ravel(), np.asarray(b))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(30_000)


def test_no_part_repeats_another_key():
    (a,), (b,) = uniforms(jr.key(0), (1000,)), uniforms(jr.key(1), (1000,))
    assert np.intersect1d(a, b).size < 10


def reach():
    eps = jnp.finfo(jnp.zeros(()).dtype).eps
    least, most = jnp.asarray([0.0, 1 - eps]) + eps / 2
    assert 0 < least < most < 1
    return normal(jnp.stack([least, most]))


def test_the_ends_of_the_interval_are_never_reached():
    np.testing.assert_allclose(reach(), [-5.295, 5.295], atol=0.01)


@pytest.mark.usefixtures("float64")
def test_the_ends_of_the_interval_are_never_reached_in_double_precision():
    np.testing.assert_allclose(reach(), [-8.210, 8.210], atol=0.01)


def test_normal_numbers():
    (uniform,) = uniforms(jr.key(2), (40_000,))
    assert stats.kstest(np.asarray(normal(uniform), float), "norm").pvalue > 1e-3
