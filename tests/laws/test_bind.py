"""The laws of a problem together: by name, on arrays, recorded; shared by all chains, or one of each chain's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from laws import network_and_table, random_law, span, tabulate, visits

import closura as cl
from closura.equations import unit_scaling
from closura.laws import FittedLaw, bind, build, chain_axes, prepare, support_of


def test_several_closures_by_name():
    laws = {"damping": cl.Known(lambda v: v**3), "spring": cl.Known(lambda u, v: u - v, inputs=2)}
    built = {name: law.build(jr.key(0), unit_scaling(law.inputs)) for name, law in laws.items()}
    f = bind(prepare(built, {"damping": span(0.0, 1.0), "spring": span(0.0, 1.0, 2)}), single=False)
    assert float(f.damping(2.0)) == 8.0
    assert float(f.spring(5.0, 1.0)) == 4.0
    with pytest.raises(TypeError, match=r"several closures; call one by name: f\.damping, f\.spring"):
        f(0.5)
    with pytest.raises(TypeError, match="closure 'spring' takes 2 inputs, but the physics calls it with 1"):
        f.spring(0.5)
    with pytest.raises(TypeError, match=r"closure 'damping' takes 1 input, .* with 2; declare it with inputs=2"):
        f.damping(0.5, 0.5)


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_law_takes_arrays(inputs):
    law, x = random_law(inputs=inputs), jr.normal(jr.key(0), (inputs, 3, 4))
    each = network_and_table(law, span(-4.0, 4.0, inputs), x.reshape(inputs, -1).T)
    for closure, expected in zip((law, tabulate(law, span(-4.0, 4.0, inputs))), each):
        f = jax.jit(bind({"f": closure}, single=True))
        np.testing.assert_allclose(f(*x), np.reshape(expected, (3, 4)), rtol=1e-4)


def test_calls_are_recorded():
    record = {"f": []}
    f = bind({"f": cl.Known(jnp.add, inputs=2).build(jr.key(0), unit_scaling(2))}, single=True, record=record)
    assert f(jnp.arange(3.0), 0.5).shape == (3,)
    np.testing.assert_array_equal(record["f"][0], [[0, 0.5], [1, 0.5], [2, 0.5]])


def test_a_known_law_is_itself():
    law = cl.Known(lambda v: 2 * v).build(jr.key(0), unit_scaling(1))
    assert law.prepare(span(0.0, 1.0)) is law
    assert float(law(3.0)) == 6.0
    assert float(law.log_prior(span(0.0, 1.0), law)) == 0.0
    assert not law.spec.trainable
    assert not jax.tree.leaves((law, law.weights, law.with_weights(law.weights)))


# A law in every chain


def drawn(key):
    """Two constants, in a structure of their own."""
    first, second = jr.normal(key, (2,))
    return {"a": first, "b": [jnp.stack([second, 2.0 * second])]}


OWN = cl.Known(lambda c, v: c["a"] * v + c["b"][0][1] * v**2, draw=drawn)
BOTH = {"damping": OWN, "spring": cl.MLP(width=8, depth=1)}
RANGES = {name: span(-2.0, 2.0) for name in BOTH}


def test_every_chain_has_a_law_of_its_own():
    laws = build(BOTH, jr.key(3), dict.fromkeys(BOTH, unit_scaling(1)), (2, 3))
    assert (OWN.per_chain, BOTH["spring"].per_chain) == (True, False)
    assert [leaf.shape[:2] for leaf in jax.tree.leaves(laws["damping"])] == [(2, 3)] * 2
    assert len(np.unique(laws["damping"].constants["a"])) == 6
    assert eqx.tree_equal(laws["spring"], build(BOTH, jr.key(3), dict.fromkeys(BOTH, unit_scaling(1)), (5,))["spring"])
    views = prepare(laws, RANGES, leading=2)
    axes = chain_axes(views)
    assert axes == {"damping": 0, "spring": None}

    def one_chain(views, v):
        f = bind(views, single=False)
        return f.damping(v) + f.spring(v)

    each = jax.vmap(jax.vmap(one_chain, (axes, None)), (axes, None))(views, 1.5)
    c, spring = laws["damping"].constants, float(views["spring"](1.5))
    np.testing.assert_allclose(each, c["a"] * 1.5 + c["b"][0][..., 1] * 2.25 + spring, rtol=1e-5)
    gradient = jax.grad(lambda law: law(1.5))(jax.tree.map(lambda a: a[1, 2], laws["damping"]))
    assert float(gradient.constants["a"]) == 1.5


class OwnNetwork(cl.MLP):
    """Nothing learns these yet; their tables are filled chain by chain all the same."""

    per_chain = True


def test_tables_of_every_chain():
    spec = {"f": OwnNetwork(width=8, depth=1, increasing=True)}
    laws = build(spec, jr.key(0), {"f": unit_scaling(1)}, (2, 3))
    views = prepare(laws, {"f": span(-2.0, 2.0)}, leading=2)
    each = jax.vmap(jax.vmap(lambda f: f(0.7), chain_axes(views)["f"]))(views["f"])
    assert len(np.unique(each)) == 6
    weights, rest = eqx.partition(laws["f"], eqx.is_array)
    one = eqx.combine(jax.tree.map(lambda w: w[1, 2], weights), rest)
    assert float(each[1, 2]) == pytest.approx(float(one.prepare(span(-2.0, 2.0))(0.7)), rel=1e-5)
    flat = eqx.combine(jax.tree.map(lambda w: w.reshape(-1, *w.shape[2:]), weights), rest)
    found = FittedLaw("f", flat, ("v",), support_of(visits(1)))
    np.testing.assert_allclose(found.draws(0.7), each.ravel(), rtol=1e-3)
    assert found(0.7) == pytest.approx(found.draws(0.7).mean())


def test_one_of_them_alone_is_drawn_by_its_key():
    one = OWN.build(jr.key(7), unit_scaling(1))
    assert eqx.tree_equal(one.constants, jax.tree.map(jnp.asarray, drawn(jr.key(7))))


def test_what_is_found_is_the_mean_over_draws():
    laws = build(BOTH, jr.key(0), dict.fromkeys(BOTH, unit_scaling(1)), (4,))
    own, shared = (FittedLaw(name, law, ("v",), support_of(visits(1))) for name, law in laws.items())
    x = np.linspace(-1.0, 1.0, 7)
    c = laws["damping"].constants
    each = np.asarray(c["a"])[:, None] * x + np.asarray(c["b"][0])[:, 1, None] * x**2
    np.testing.assert_allclose(own.draws(x), each, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own(x), each.mean(axis=0), rtol=1e-5, atol=1e-6)
    assert isinstance(own(0.5), float)
    assert shared.draws(x).shape == (1, 7)
    np.testing.assert_array_equal(shared.draws(x)[0], shared(x))
