"""Draws made of uniform numbers, by their moments."""

import jax.random as jr
import numpy as np
import pytest

from closura.population import chi_square, chi_square_numbers

N = 200_000


@pytest.mark.parametrize("degrees", [1, 8, 11])
def test_chi_square_has_its_moments(degrees):
    uniform = jr.uniform(jr.key(degrees), (N, chi_square_numbers(degrees)), minval=1e-7)
    x = np.asarray(chi_square(uniform, degrees), float)
    for found, mean, variance in (
        (x, degrees, 2 * degrees),
        ((x - degrees) ** 2, 2 * degrees, 48 * degrees + 12 * degrees**2 - (2 * degrees) ** 2),
        (np.exp(-x / 2), 2 ** (-degrees / 2), 3 ** (-degrees / 2) - 2.0**-degrees),
    ):
        assert abs(found.mean() - mean) < 4 * np.sqrt(variance / N)
