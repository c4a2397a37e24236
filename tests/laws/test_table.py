"""Tables are accurate, smooth and differentiable."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads
from laws import network_and_table, random_law, span, tabulate

import closura as cl
from closura.laws import NetworkLaw
from closura.laws._table import axis, curve, surface


def table_error(law, nodes: int) -> tuple[float, float]:
    """Largest difference to the network on [-3, 3] and on its middle part, relative to the law's size.

    The outermost cells are of second order: their gradient is a one-sided difference.
    """
    law = NetworkLaw(dataclasses.replace(law.spec, table=nodes), law.network, law.scaling)
    x = jr.uniform(jr.key(5), (1500, law.spec.inputs), minval=-3.0, maxval=3.0)
    network, table = network_and_table(law, span(-3.0, 3.0, law.spec.inputs), x)
    error, middle = jnp.abs(table - network) / jnp.max(jnp.abs(network)), jnp.all(jnp.abs(x) < 2.5, axis=1)
    return float(jnp.max(error)), float(jnp.max(error * middle))


SMOOTH = {"plain": {}, "two inputs": {"inputs": 2}}
SMOOTH |= {flag: {flag: True} for flag in ("odd", "positive", "increasing")}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", SMOOTH.values(), ids=SMOOTH)
def test_table_is_close_and_third_order(options):
    law = random_law(size=0.3, **options)
    (_, coarse), (whole, fine) = (table_error(law, nodes) for nodes in (law.spec.nodes // 2, law.spec.nodes))
    assert whole < 1e-4
    assert np.log2(coarse / fine) > 2.7


def test_table_sizes():
    assert cl.MLP().nodes == 257
    assert cl.MLP(inputs=2).nodes == 65
    assert cl.MLP(table=100).nodes == 101  # odd, so that zero can be in the middle
    assert cl.MLP(table=0).nodes == cl.MLP(inputs=3).nodes == cl.MLP(inputs=2, increasing=True).nodes == 0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", SMOOTH.values(), ids=SMOOTH)
def test_table_is_smooth_at_every_border_and_straight_outside(options):
    """Value and gradient agree on both sides of every node, the last ones included; beyond those the gradient is constant."""
    law = random_law(size=0.3, **options)
    inputs = law.spec.inputs
    table = tabulate(law, span(-2.0, 3.0, inputs)).table  # what is stored: before the output transform
    value_and_gradient = jax.jit(jax.vmap(jax.value_and_grad(lambda p: table(*p))))
    for i, along in enumerate(table.axes):
        nodes = along.points()
        line = jnp.full((len(nodes), inputs), 0.37).at[:, i].set(nodes)
        tiny = jnp.zeros(inputs).at[i].set(1e-9)
        (left, gradient_left), (right, gradient_right) = (
            value_and_gradient(line - tiny),
            value_and_gradient(line + tiny),
        )
        np.testing.assert_allclose(left, right, atol=1e-7)
        np.testing.assert_allclose(gradient_left, gradient_right, atol=1e-5)
        for end, outwards in ((line[0], -1.0), (line[-1], 1.0)):
            steps = outwards * jnp.array([0.0, 0.5, 1.0, 40.0])
            value, gradient = value_and_gradient(end + steps[:, None] * jnp.sign(tiny))
            np.testing.assert_allclose(value, value[0] + steps * gradient[0, i], rtol=1e-9)
            np.testing.assert_allclose(gradient[:, i], gradient[0, i], rtol=1e-9)


def test_a_table_of_a_step_rises_without_overshoot():
    """Central gradients would leave the node values behind a step; those of an increasing law must not."""
    values, x = jnp.array([0.0, 0.01, 0.02, 0.03, 1.0, 1.01, 1.02, 1.03, 1.04]), jnp.linspace(-3.0, 4.0, 701)
    look_up = eqx.filter_jit(lambda monotone: jax.vmap(curve(axis(-2.0, 3.0, 9, False), values, monotone))(x))
    assert np.all(np.diff(look_up(True)) > 0)
    assert not np.all(np.diff(look_up(False)) > 0)


@pytest.mark.usefixtures("float64")
def test_outside_is_counted():
    table = tabulate(random_law(), span(-2.0, 3.0))
    np.testing.assert_array_equal(table.outside(jnp.array([[-2.5], [-1.9], [2.9], [3.5]])), [1, 0, 0, 1])
    both = tabulate(random_law(inputs=2), span(-2.0, 3.0, 2))
    np.testing.assert_array_equal(both.outside(jnp.array([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])), [0, 1, 1])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", ["curve", "monotone curve", "surface"])
def test_gradients_of_a_look_up(kind):
    """In the place and in the node values, inside and outside, forward and reverse."""
    along = axis(-2.0, 3.0, 9, False)
    if kind == "surface":
        values, places = jr.normal(jr.key(2), (9, 9)), [(0.83, -1.21), (4.7, 0.4), (0.1, -6.0), (5.0, 5.0)]
    else:
        values, places = jnp.cumsum(jr.uniform(jr.key(2), (9,)) + 0.2), [(0.83,), (-1.21,), (4.7,), (-6.0,)]

    @jax.jit
    def look_up(values, x):
        table = surface((along, along), values) if kind == "surface" else curve(along, values, "mono" in kind)
        return table(*x)

    for x in places:
        tolerances = {"order": 1, "modes": ("fwd", "rev"), "atol": 1e-6, "rtol": 1e-6}
        check_grads(look_up, (values, jnp.asarray(x)), **tolerances)
        check_grads(lambda x: look_up(values, x), (jnp.asarray(x),), **tolerances)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", ["curve", "surface"])
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_of_tables_is_read_as_each_of_them(kind, first):
    """Chains have tables of their own, systems share one; derivatives forward, reverse and one over the other as well."""
    along, inputs = axis(-2.0, 3.0, 9, False), 2 if kind == "surface" else 1
    values = jr.normal(jr.key(3), (3, *(9,) * inputs))
    places = jr.uniform(jr.key(4), (3, 5, inputs), minval=-3.0, maxval=4.0)

    def total(values, places):
        table = surface((along, along), values) if kind == "surface" else curve(along, values, False)
        return jnp.sin(jax.vmap(lambda x: table(*x))(places)).sum()

    def twice(values, places):
        return jax.grad(lambda v: jnp.sum(jax.grad(total, 1)(v, places) ** 2))(values)

    for function in (total, jax.grad(total, (0, 1)), jax.jacfwd(total, (0, 1)), twice):
        if first:
            many = jax.jit(jax.vmap(function))(values, places)
        else:  # tables along the last axis, of two batches
            outer = jax.vmap(jax.vmap(function, (-1, None)), (-1, 0))
            stacked = jnp.moveaxis(values, 0, -1)
            many = jax.jit(outer)(jnp.stack([stacked] * 3, -1), places)
            many = jax.tree.map(lambda a: a[jnp.arange(3), jnp.arange(3)], many)
        one = [function(v, x) for v, x in zip(values, places)]
        jax.tree.map(lambda m, *o: np.testing.assert_allclose(m, jnp.stack(o), atol=1e-12), many, *one)
