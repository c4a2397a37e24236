"""Directions in which everything follows a law: found, and followed along the right curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closura.population import Correlated, Diagonal
from closura.sampling._law_constants import POWERS, curved, ridges
from closura.sampling._law_move import _along


@pytest.mark.parametrize(
    ("power", "theta"),
    [
        (0.0, lambda x, own: own - x),
        (1.0, lambda x, own: np.log(own - 0.4 * x)),
        (-1.0, lambda x, own: -np.log(own + x)),
    ],
    ids=["differences", "sums", "products"],
)
def test_draws_tell_along_which_curve_a_logarithm_follows(power, theta):
    """A law of size x is known to share its sum, its product or its difference with a parameter."""
    random = np.random.default_rng(0)
    x, own = random.uniform(-1, 1, size=(400, 1)), np.array([1.5, 2.0, 2.5])
    draws = theta(x, own) + 0.01 * random.normal(size=(400, 3))
    # The gradient in x, averaged as information averages it, and a parameter beside it that does not follow.
    middle = theta(np.zeros((1, 1)), own)
    slope = (theta(np.full((1, 1), 1e-4), own) - theta(np.full((1, 1), -1e-4), own)) / 2e-4
    both = np.stack([draws, random.normal(size=(400, 3))], axis=-1)
    straight = np.stack([slope * x, np.zeros((400, 3))], axis=-1)
    powers, at = curved(both, straight, (True, False))
    assert powers.tolist() == [power, 0.0]
    assert at.shape == (3, 2)
    assert np.abs(at[:, 0] - middle[0]).max() < 1.0
    # No logarithm follows along a curve.
    assert curved(both, straight, (False, False))[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("power", POWERS)
def test_the_way_back_is_the_same(power):
    theta, change = jnp.linspace(-1.0, 1.5, 7), 0.2
    there = theta + _along(jnp.full(7, change), theta, jnp.full(7, power))
    back = there + _along(jnp.full(7, -change), there, jnp.full(7, power))
    np.testing.assert_allclose(back, theta, atol=1e-5)
    volume = jax.vmap(jax.grad(lambda x: x + _along(jnp.asarray(change), x, jnp.asarray(power))))(theta)
    np.testing.assert_allclose(np.log(volume), -power * (there - theta), atol=1e-5)


def test_a_ridge_is_where_information_is_lost_as_all_else_follows():
    random = np.random.default_rng(1)
    color = np.linalg.inv(random.normal(size=(6, 6)))  # b = color^-1 a has unit precision
    direction = np.linalg.qr(random.normal(size=(6, 2)))[0]
    whiten = np.linalg.inv(color)
    lost = whiten.T @ direction @ np.diag([50.0, 2.0]) @ direction.T @ whiten
    a = (random.normal(size=(2000, 6)) + 9 * random.normal(size=(2000, 1)) * direction[:, 0]) @ color.T
    found, there = ridges(color, lost, a, True)
    assert there.tolist() == [True, False, False, False]
    along = whiten @ found[0]
    assert abs(along @ direction[:, 0]) == pytest.approx(np.linalg.norm(along), rel=1e-6)
    assert np.linalg.norm(along) == pytest.approx(np.sqrt(82), rel=0.1)  # as long as draws are wide


@pytest.mark.parametrize("kind", [Diagonal, Correlated])
def test_a_population_that_follows_its_systems_has_them_where_they_were(kind):
    column = jnp.array([0.5, 0.2])
    population = kind(column, column, column, column)
    phi = population.phi_from_normal(jnp.array([[0.3, -1.0], [0.5, 0.1]]))
    before = jnp.asarray(np.random.default_rng(2).normal(size=(5, 2)), float)
    after = 3.0 * before + jnp.array([1.0, -2.0])
    moved = population.followed(phi, before, after)
    for theta, there in ((before, phi), (after, moved)):
        scaled = (theta - there.mu) * jnp.exp(-0.5 * there.log_tau)
        expected = (before - phi.mu) * jnp.exp(-0.5 * phi.log_tau)
        np.testing.assert_allclose(scaled - scaled.mean(0), expected - expected.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved.mu - after.mean(0), phi.mu - before.mean(0), rtol=1e-4, atol=1e-5)
    # Two systems tell nothing of a spread that follows.
    assert population.followed(phi, before[:2], after[:2]).log_tau is phi.log_tau
