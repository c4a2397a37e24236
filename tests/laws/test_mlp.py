"""What an MLP refuses, how it starts, its priors and its weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from laws import random_law, span, tabulate

import closura as cl
from closura.equations import unit_scaling


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"increasing": True, "dissipative": True, "inputs": 2},
            "increasing and dissipative contradict each other; choose one: where its first input is zero",
        ),
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


def test_weights_are_all_that_learning_moves():
    law = random_law(increasing=True)
    twice = law.with_weights(jax.tree.map(lambda w: 2 * w, law.weights))
    assert law.spec.trainable
    assert eqx.tree_equal(twice.with_weights(law.weights), law)
    assert eqx.tree_equal(twice.scaling, law.scaling)
    assert float(twice(1.0)) != float(law(1.0))


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
