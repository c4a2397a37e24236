"""The Fourier neural operator: transforms against NumPy's, both signs of every mode, points on demand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads

from closura.equations import ProblemError
from closura.forward.surrogates._fno import FNO, Layer, Waves

pytestmark = pytest.mark.usefixtures("float64")


def waves(*points, modes):
    phases = [np.arange(n) / n for n in points]
    return Waves(phases, [phase[:, None] for phase in phases], modes)


def smooth(field, modes):
    """Only modes below `modes` in every axis, by NumPy."""
    spectrum = np.fft.fftn(field, axes=range(field.ndim - 1))
    for axis in range(field.ndim - 1):
        number = np.fft.fftfreq(field.shape[axis]) * field.shape[axis]
        shape = [-1 if a == axis else 1 for a in range(field.ndim)]
        spectrum = spectrum * (np.abs(number) < modes - 0.5).reshape(shape)
    return np.fft.ifftn(spectrum, axes=range(field.ndim - 1)).real


@pytest.mark.parametrize("points", [(16,), (17,), (12, 15), (15, 12)])
def test_there_and_back_keeps_exactly_the_retained_modes(points):
    grid, field = waves(*points, modes=4), np.random.default_rng(0).normal(size=(*points, 3))
    np.testing.assert_allclose(grid.synthesise(grid.analyse(jnp.asarray(field))), smooth(field, 4), atol=1e-12)


def test_coefficients_are_those_of_the_fast_transform():
    grid, field = waves(12, 15, modes=4), np.random.default_rng(0).normal(size=(12, 15, 2))
    real, imaginary = grid.analyse(jnp.asarray(field))
    expected = np.fft.fft2(field, axes=(0, 1)) / (12 * 15)
    rows = np.arange(-3, 4)
    np.testing.assert_allclose(real + 1j * imaginary, expected[rows][:, :4], atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_waves_that_run_either_way_pass_a_layer(sign):
    """In two dimensions sin(x + y) and sin(x - y) are different modes; a layer must be able to tell and keep both."""
    grid, layer = waves(16, 16, modes=3), Layer((5, 3), 1, jr.key(0))
    x, y = np.meshgrid(2 * np.pi * np.arange(16) / 16, 2 * np.pi * np.arange(16) / 16, indexing="ij")
    field = jnp.asarray(np.sin(x + sign * y)[..., None])
    out = grid.synthesise(layer.convolved(grid.analyse(field)))
    gain = (layer.real[2 + sign, 1, 0, 0], layer.imaginary[2 + sign, 1, 0, 0])
    # Along the last axis the wave number is positive: sin(x - y) is minus the wave that runs the other way.
    phase = y + sign * x
    expected = sign * (gain[0] * np.sin(phase) + gain[1] * np.cos(phase))
    np.testing.assert_allclose(out[..., 0], expected, atol=1e-12)


def test_a_layer_does_not_care_where_a_periodic_grid_begins():
    grid, layer = waves(12, 10, modes=3), Layer((5, 3), 2, jr.key(0))
    field = jr.normal(jr.key(1), (12, 10, 2))

    def applied(field):
        return grid.synthesise(layer.convolved(grid.analyse(field))) + layer.local(field)

    moved = jnp.roll(field, (3, 4), axis=(0, 1))
    np.testing.assert_allclose(applied(moved), jnp.roll(applied(field), (3, 4), axis=(0, 1)), atol=1e-12)


def test_a_network_is_the_same_function_on_every_grid():
    """The points asked for do not take part in the work: a finer grid of the same period shows the same function."""
    coarse, fine = (FNO(3, 2, (n,), [True], jr.key(0), width=6, modes=4, depth=3) for n in (40, 80))
    coarse, fine = (eqx.tree_at(lambda n: n.out, made, eqx.nn.Linear(6, 2, key=jr.key(1))) for made in (coarse, fine))
    x = jnp.asarray([0.3, -0.2, 1.0])
    assert coarse.work.coordinates.shape == fine.work.coordinates.shape == (16, 2)
    assert np.ptp(coarse(x), axis=0).min() > 0.1
    np.testing.assert_allclose(coarse(x), fine(x)[::2], atol=1e-12)


def test_on_a_circle_the_ends_meet():
    made = network((40,), periodic=True)
    field = made(jnp.asarray([0.3, -0.2, 1.0]))
    steps = np.abs(np.diff(np.concatenate([field, field[:1]]), axis=0))
    assert np.all(steps[-1] <= 2 * steps[:-1].max(axis=0))


def network(points=(20,), periodic=False, **sizes):
    made = FNO(3, 2, points, [periodic] * len(points), jr.key(0), **{"width": 6, "modes": 4, "depth": 2} | sizes)
    return jax.tree.map(lambda a: a + 0.1 * jr.normal(jr.key(1), a.shape) if a.ndim < 3 else a, made)


@pytest.mark.parametrize("points", [(20,), (10, 12)])
def test_fields_have_the_grid_and_all_channels_count(points):
    made, x = network(points), jnp.asarray([0.3, -0.2, 1.0])
    out = made(x)
    assert out.shape == (*points, 2)
    slopes = jax.jacfwd(made)(x)
    assert np.all(np.abs(slopes).max(axis=tuple(range(len(points) + 1))) > 0)


@pytest.mark.parametrize("points", [(20,), (10, 12), (8, 9, 7)])
def test_some_points_are_those_of_the_whole(points):
    made, x, rows = network(points), jnp.asarray([0.3, -0.2, 1.0]), jnp.asarray([0, 7, 7, 19])
    np.testing.assert_allclose(made(x, rows), made(x).reshape(-1, 2)[rows], atol=1e-12)


def test_a_grid_too_coarse_for_its_modes():
    message = r"a grid of 13 points .* too coarse for 8 modes along each axis; use at most 6, or a finer grid"
    with pytest.raises(ProblemError, match=message):
        FNO(3, 2, (10,), [False], jr.key(0), modes=8)


def test_gradients():
    made, x = network(), jnp.asarray([0.3, -0.2, 1.0])
    check_grads(lambda x: made(jnp.asarray(x)), (x,), order=1, rtol=1e-5)
