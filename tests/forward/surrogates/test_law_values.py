"""A basis that sees laws: its function does not depend on units, and its derivative in the law is its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from fields import PROBLEMS, observed, theta

import closura as cl
from closura.equations import unit_scaling
from closura.forward import Units, law_values, likelihood, seen_through, sees_laws, trainable

pytestmark = pytest.mark.usefixtures("float64")
SIZES = {"width": 8, "depth": 2, "rank": 6}


def law(function):
    return {"f": cl.Known(function).build(jr.key(0), unit_scaling(1))}


@pytest.fixture
def seen():
    """A likelihood, and a network of any weights that sees a law between -1 and 1."""
    problem, data = PROBLEMS["rock"], observed("rock")
    made = seen_through(likelihood(problem, data), problem, data, "basis", **SIZES)
    count = len(problem.parameters)
    units = Units(jnp.asarray(problem.parameters.mean, float), jnp.full(count, 0.5), jnp.ones(1))
    values = law_values({"f": (np.array([-1.0]), np.array([1.0]))}, {"f": 2.0})
    network = made.forward.build(units, jr.key(0), values)
    weights, fixed = eqx.partition(network, trainable(network))
    moved = jax.tree.map(lambda w: w + 0.3 * jr.normal(jr.key(1), w.shape), weights)
    return made, eqx.tree_at(lambda n: n.laws, eqx.combine(moved, fixed), values)


def test_a_law_is_seen_by_its_values(seen):
    made, network = seen
    at = theta("rock")
    one, same, other = (network.seeing(law(f)).states(at, 0) for f in (jnp.sin, jnp.sin, jnp.cos))
    np.testing.assert_array_equal(one, same)
    assert float(jnp.max(jnp.abs(one - other))) > 1e-3
    np.testing.assert_allclose(network.given(network.laws.of(law(jnp.sin))).states(at, 0), one, rtol=1e-12)
    where = jax.tree.map(lambda a: a[0], made.where)
    read = made.forward.read(at, one, where, 0)
    np.testing.assert_allclose(made.forward.predict(at, network.seeing(law(jnp.sin)), where, 0), read, rtol=1e-9)


def test_units_are_those_of_draws(seen):
    _, network = seen
    draws = jr.normal(jr.key(2), (50, 16)) @ jnp.diag(jnp.linspace(0.1, 2.0, 16)) + 3.0
    whitened = jax.vmap(network.laws.over(draws).standard)(draws)
    np.testing.assert_allclose(np.mean(whitened, axis=0), 0.0, atol=1e-9)
    covariance = jnp.cov(whitened, rowvar=False)
    assert float(covariance[-1, -1]) == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(covariance - jnp.diag(jnp.diag(covariance)), 0.0, atol=1e-9)


def test_draws_that_are_all_the_same_tell_no_units(seen):
    _, network = seen
    values = network.laws.over(jnp.ones((10, 16)))
    np.testing.assert_array_equal(values.whiten, network.laws.whiten)


def test_solutions_are_told_by_their_principal_components(seen):
    """As many as a basis holds, six here, tell all that six functions can say; coefficients have variance one."""
    _, network = seen
    many = theta("rock") + 0.5 * jr.normal(jr.key(3), (40, len(theta("rock"))))
    laws = jr.normal(jr.key(4), (40, 16))
    states = jax.vmap(lambda t, v: network.given(v).states(t, 0))(many, laws)
    parts = jax.vmap(lambda t, s: network.frame.part(t, 0, s))(many, states)
    new = network.renewed(jr.key(5), network.laws.over(laws), parts)
    targets = new.targets(parts)
    np.testing.assert_allclose(np.mean(targets**2, axis=0), 1.0, rtol=1e-5)
    spoken = jax.vmap(lambda w: new.basis @ w + new.center)(targets)
    again = jax.vmap(lambda t, part: new.frame.whole(t, 0, part))(many, spoken)
    np.testing.assert_allclose(again, states, atol=1e-7)


def test_only_a_basis_and_the_solver_see_laws():
    assert [name for name in ("solver", "basis", "fno-supervised", "fno-physics", "pinn") if sees_laws(name)] == [
        "solver",
        "basis",
    ]
