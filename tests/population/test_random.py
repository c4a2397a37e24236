"""Draws made of uniform numbers, by their moments; and these numbers."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from closura.population import chi_square, chi_square_numbers, uniforms
from closura.population._threefry import words

N = 200_000


@pytest.mark.parametrize("degrees", [1, 8, 11])
def test_chi_square_has_its_moments(degrees):
    uniform = jr.uniform(jr.key(degrees), (chi_square_numbers(degrees), N), minval=1e-7)
    x = np.asarray(chi_square(uniform, degrees), float)
    for found, mean, variance in (
        (x, degrees, 2 * degrees),
        ((x - degrees) ** 2, 2 * degrees, 48 * degrees + 12 * degrees**2 - (2 * degrees) ** 2),
        (np.exp(-x / 2), 2 ** (-degrees / 2), 3 ** (-degrees / 2) - 2.0**-degrees),
    ):
        assert abs(found.mean() - mean) < 4 * np.sqrt(variance / N)


@pytest.mark.parametrize("degrees", range(8, 31))
def test_chi_square_is_the_same_within_a_program(degrees):
    """XLA takes factors out of products: of many numbers they must not underflow."""

    def drawn(key):
        (uniform,) = uniforms(key, (chi_square_numbers(degrees), 50))
        return chi_square(uniform, degrees)

    np.testing.assert_allclose(jax.jit(drawn)(jr.key(0)), drawn(jr.key(0)), rtol=1e-4)


@pytest.mark.parametrize("count", [1, 500])
def test_words_are_those_of_the_generator_behind_keys(count):
    key = jr.key_data(jr.key(3))
    expected = threefry_2x32(key, jnp.arange(2 * count, dtype=jnp.uint32))
    np.testing.assert_array_equal(jnp.concatenate(words(key, count)), expected)


@pytest.mark.parametrize("double", [False, True])
def test_uniform_numbers_are_open_even_and_independent(double):
    with jax.enable_x64(double):
        first, second = uniforms(jr.key(1), (N // 2, 2), (N + 1,))
        assert first.dtype == (jnp.float64 if double else jnp.float32)
        together = np.r_[np.ravel(first), second].astype(float)
    assert 0 < together.min() < 4 / N
    assert 1 - 4 / N < together.max() < 1
    for power in range(1, 5):
        error = 1 / np.sqrt((2 * power + 1) * len(together))
        assert abs((together**power).mean() - 1 / (power + 1)) < 4 * error
    for lag in (1, 2, len(together) // 2):
        assert abs(np.corrcoef(together[lag:], together[:-lag])[0, 1]) < 4 / np.sqrt(len(together) - lag)


def test_numbers_of_two_keys_differ():
    one, other = jax.vmap(lambda key: uniforms(key, (100,))[0])(jr.split(jr.key(0), 2))
    assert not np.any(one == other)
