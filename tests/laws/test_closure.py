"""Structure holds to the last bit, in network and table alike; tables are accurate, smooth and differentiable."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.test_util import check_grads
from laws import CONTRADICTIONS, FLAGS, LAWS, STRUCTURES, points, random_law

import closura as cl
from closura.equations import unit_scaling
from closura.laws import Closure, Range, prepare
from closura.laws._closure import bind
from closura.laws._table import axis, curve, surface

RANGES = {"around zero": (-2.0, 3.0), "off zero": (1.0, 3.0), "up to zero": (-3.0, 0.0)}


def span(low, high, inputs=1) -> Range:
    return Range(jnp.full(inputs, low, float), jnp.full(inputs, high, float))


@eqx.filter_jit
def network_and_table(law, range_, x):
    return jax.vmap(lambda p: law(*p))(x), jax.vmap(lambda p: law.prepare(range_)(*p))(x)


tabulate = eqx.filter_jit(lambda law, range_: law.prepare(range_))


@pytest.mark.parametrize(("inputs", "flags"), STRUCTURES, ids=lambda v: "-".join(v) if isinstance(v, tuple) else str(v))
def test_promises_hold_exactly(inputs, flags):
    x = points(inputs)
    for seed, (place, (low, high)), which in itertools.product((0, 1), RANGES.items(), (0, 1)):
        law, range_ = random_law(seed=seed, inputs=inputs, **dict.fromkeys(flags, True)), span(low, high, inputs)

        def f(x, law=law, range_=range_, which=which):
            return np.asarray(network_and_table(law, range_, x)[which])

        broken = [flag for flag in flags if not LAWS[flag](f, x)]
        assert not broken, f"{('network', 'table')[which]}, range {place}: not {', '.join(broken)}"
    assert np.std(f(x)) > 0.1, "a constant keeps promises for nothing"


@pytest.mark.parametrize("flag", FLAGS)
def test_laws_can_be_broken(flag):
    """A plain network keeps none of the promises, so the law test tells them apart."""
    plain = random_law(seed=1)
    assert not LAWS[flag](lambda x: np.asarray(network_and_table(plain, span(-2.0, 3.0), x)[0]), points(1))


@pytest.mark.parametrize("pair", CONTRADICTIONS, ids=lambda pair: "-".join(sorted(pair)))
def test_contradictions_are_refused(pair):
    with pytest.raises(ValueError, match="contradict each other; choose one"):
        cl.MLP(**dict.fromkeys(pair, True))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"increasing": True, "dissipative": True, "inputs": 2}, "with one input only"),
        ({"inputs": 0}, "must be at least 1"),
        ({"activation": "step"}, "'step' is not one of silu, tanh, gelu"),
        ({"decay": -1.0}, "cannot be negative"),
        ({"smoothness": 1.0, "inputs": 2}, "use decay"),
        ({"table": 4}, "at least 8 nodes"),
    ],
)
def test_bad_options_say_what_to_do(options, says):
    with pytest.raises(ValueError, match=says):
        cl.MLP(**options)


def test_a_new_law_is_no_law():
    assert float(cl.MLP(width=8, depth=2).build(jr.key(0), unit_scaling(1))(1.7)) == 0.0


# Tables


def table_error(law, nodes: int) -> tuple[float, float]:
    """Largest difference to the network on [-3, 3] and on its middle part, relative to the law's size.

    The outermost cells are of second order: their slope is a one-sided difference.
    """
    law = Closure(law.network, law.scaling, dataclasses.replace(law.spec, table=nodes))
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
    """Value and slope agree on both sides of every node, the last ones included; beyond those the slope is constant."""
    law = random_law(size=0.3, **options)
    inputs = law.spec.inputs
    table = tabulate(law, span(-2.0, 3.0, inputs)).table  # what is stored: before the output transform
    axes = table.axes if inputs == 2 else (table.axis,)
    value_and_slope = jax.jit(jax.vmap(jax.value_and_grad(lambda p: table(*p))))
    for i, along in enumerate(axes):
        nodes = along.points()
        line = jnp.full((len(nodes), inputs), 0.37).at[:, i].set(nodes)
        tiny = jnp.zeros(inputs).at[i].set(1e-9)
        (left, slope_left), (right, slope_right) = value_and_slope(line - tiny), value_and_slope(line + tiny)
        np.testing.assert_allclose(left, right, atol=1e-7)
        np.testing.assert_allclose(slope_left, slope_right, atol=1e-5)
        for end, outwards in ((line[0], -1.0), (line[-1], 1.0)):
            steps = outwards * jnp.array([0.0, 0.5, 1.0, 40.0])
            value, slope = value_and_slope(end + steps[:, None] * jnp.sign(tiny))
            np.testing.assert_allclose(value, value[0] + steps * slope[0, i], rtol=1e-9)
            np.testing.assert_allclose(slope[:, i], slope[0, i], rtol=1e-9)


def test_a_table_of_a_step_rises_without_overshoot():
    """Central slopes would leave the node values behind a step; those of an increasing law must not."""
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
@pytest.mark.parametrize("flags", [("odd",), ("zero_at_origin",), ("increasing", "dissipative")])
def test_slope_at_the_origin_survives(flags):
    """Values are made exactly zero there; derivatives must not be."""
    law = random_law(size=0.5, **dict.fromkeys(flags, True))
    for f in (law, tabulate(law, span(-2.0, 3.0))):
        value, forward, reverse = eqx.filter_jit(lambda x, f=f: (f(x), jax.jacfwd(f)(x), jax.grad(f)(x)))(jnp.zeros(()))
        right, left = (float(eqx.filter_jit(f)(jnp.asarray(x))) for x in (1e-5, -1e-5))
        assert float(value) == 0.0
        assert float(forward) == pytest.approx((right - left) / 2e-5, rel=1e-4)
        assert float(reverse) == pytest.approx(float(forward))


# Priors, names, calls


def prior(law, range_, view=None):
    return float(law.log_prior(range_, view or law))


def test_decay_is_a_gaussian_on_the_weights():
    law, range_ = random_law(decay=3.0, smoothness=0.0), span(-1.0, 1.0)
    twice = eqx.tree_at(lambda c: c.network, law, jax.tree.map(lambda w: 2 * w if eqx.is_array(w) else w, law.network))
    squares = sum(float(jnp.sum(w**2)) for w in jax.tree.leaves(eqx.filter(law.network, eqx.is_array)))
    assert prior(law, range_) == pytest.approx(-1.5 * squares, rel=1e-5)
    assert prior(twice, range_) == pytest.approx(-6.0 * squares, rel=1e-5)


@pytest.mark.usefixtures("float64")
def test_smoothness_is_the_integral_of_squared_curvature_with_heavy_tails():
    law, range_ = random_law(smoothness=2.0, size=0.3), span(-1.0, 2.0)
    bent = eqx.tree_at(lambda c: c.network.layers[-1].weight, law, replace_fn=lambda w: 3 * w)
    half, output = 1.5, law.scaling.output
    x = jnp.linspace(-1.0, 2.0, 2001)
    bend = jax.jit(jax.vmap(jax.grad(jax.grad(law))))(x) * half**2 / output
    energy = float(jnp.trapezoid(bend**2, x / half))
    expected = -0.5 * np.log1p(2 * energy)
    assert prior(law, range_) == pytest.approx(expected, rel=0.05)
    assert prior(law, range_, tabulate(law, range_)) == pytest.approx(expected, rel=0.05)
    assert np.expm1(-2 * prior(bent, range_)) == pytest.approx(9 * np.expm1(-2 * prior(law, range_)), rel=1e-6)
    assert prior(random_law(smoothness=0.0), range_) == 0.0


def test_laws_of_one_input_are_a_little_smooth_by_default():
    range_ = span(-1.0, 2.0)
    assert prior(random_law(), range_) == pytest.approx(prior(random_law(smoothness=0.003), range_))
    assert prior(random_law(), range_) < 0.0
    assert prior(random_law(inputs=2), span(-1.0, 2.0, 2)) == 0.0


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
    assert prior(law, span(0.0, 1.0)) == 0.0
