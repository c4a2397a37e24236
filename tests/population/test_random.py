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
    assert not np.intersect1d(a, b).size


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.usefixtures("float64"))])
def test_the_ends_of_the_interval_are_never_reached(dtype):
    eps = jnp.finfo(dtype).eps
    least, most = jnp.asarray([0.0, 1 - eps], dtype) + eps / 2
    assert 0 < least < most < 1
    far = normal(jnp.stack([least, most]))
    assert jnp.all(jnp.isfinite(far))
    assert float(far[0]) == pytest.approx(-float(far[1]), rel=1e-3)


def test_normal_numbers():
    (uniform,) = uniforms(jr.key(2), (40_000,))
    assert stats.kstest(np.asarray(normal(uniform), float), "norm").pvalue > 1e-3
