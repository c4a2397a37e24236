"""Sampled laws with a kink, a jump or a known form: what each means, and that the prior is what is said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import RANGE, SCALING, drawn

from closura.laws import Law, Range
from closura.laws._basis import DETAIL, Smooth, covariance, make_frame, matern
from closura.laws._beside import Step
from closura.laws._stationary import AMPLITUDE, LENGTH, PLACES
from closura.laws._structure import Source
from closura.laws._table import Axis
from closura.parameters import HalfNormal, Interval, Positive, Real


def power(v, p):
    return p.c * jnp.sign(v) * jnp.abs(v) ** p.m


FORM = {"around": power, "parameters": {"c": Positive(0.5, width=0.5), "m": Real(1.5, width=0.3)}}
KINDS = {
    "kink": {"kink": 0.7},
    "kink odd": {"kink": 0.0, "odd": True},
    "kink increasing": {"kink": 0.7, "increasing": True},
    "kink dissipative": {"kink": 0.0, "dissipative": True},
    "jump": {"jump": 0.7},
    "jump odd": {"jump": 0.0, "odd": True},
    "jump increasing": {"jump": 0.7, "increasing": True},
    "jump through a point": {"jump": 0.7, "at": {2.0: 3.0}},
    "form": FORM,
    "form odd": FORM | {"odd": True},
    "form at the origin": FORM | {"zero_at_origin": True},
}


def one_sided(spec, frame, x0, count):
    """Value and gradient of draws of the prior next to a place, (draw, left and right)."""
    law = drawn(spec, frame, 0)
    precision = frame.precision(law.log_size)
    weights = np.random.default_rng(0).normal(size=(count, len(precision))) / jnp.sqrt(precision)
    x = x0 + jnp.array([-1e-6, 1e-6])

    def both(a):
        return jax.vmap(jax.value_and_grad(law.with_weights(a).prepare(frame)))(x)

    return map(np.asarray, jax.jit(jax.vmap(both))(weights))


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_are_as_many_as_there_are_and_move_the_law_as_derivatives_say(kind, float64):
    spec = Law(**KINDS[kind])
    frame = spec.frame(RANGE, SCALING)
    law = drawn(spec, frame, 0)
    assert law.weights.shape == frame.rigid.shape == (spec.coordinates,)
    x, along = (
        jnp.array([-2.3, -0.4, 0.69, 0.71, 1.1, 4.0, 8.0]),
        np.random.default_rng(1).normal(size=spec.coordinates),
    )

    def values(a):
        return jax.vmap(law.with_weights(a).prepare(frame))(x)

    small = 1e-5
    difference = (values(law.weights + small * along) - values(law.weights - small * along)) / (2 * small)
    derivative = jax.jvp(values, (law.weights,), (jnp.asarray(along),))[1]
    np.testing.assert_allclose(derivative, difference, rtol=1e-6, atol=1e-6 * float(jnp.abs(difference).max()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_in_the_input_is_that_of_the_values(kind, float64):
    spec = Law(**KINDS[kind])
    frame = spec.frame(RANGE, SCALING)
    f = drawn(spec, frame, 2).prepare(frame)
    x, small = jnp.array([-2.31, -0.41, 0.68, 0.73, 1.12, 4.03, 8.0]), 1e-6
    difference = (jax.vmap(f)(x + small) - jax.vmap(f)(x - small)) / (2 * small)
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(x), difference, rtol=1e-5, atol=1e-5)


def test_at_a_kink_the_gradient_jumps_and_the_value_does_not(float64):
    spec, plain, count = Law(kink=0.7), Law(reference=0.7), 4000
    value, gradient = one_sided(spec, spec.frame(RANGE, SCALING), 0.7, count)
    assert np.abs(np.diff(value)).max() < 1e-3
    jumps = np.diff(gradient) * 2.0 / 4.0  # in units of law and input
    # Both gradients have sd 3 of their own: their difference 3 sqrt(2), here within four standard errors.
    assert abs(np.std(jumps) / (3 * np.sqrt(2)) - 1) < 4 / np.sqrt(2 * count)
    _, gradient = one_sided(plain, plain.frame(RANGE, SCALING), 0.7, count)
    assert np.abs(np.diff(gradient)).max() < 1e-3


def test_each_side_of_a_kink_is_smooth_on_its_own(float64):
    """Given their common value, and detail that goes through it, sides are independent: each is a parabola with integrated
    noise."""
    axis = Axis(jnp.asarray(0.5), jnp.asarray(16.0), 33)
    scaling = SCALING._replace(center=jnp.zeros(1), scale=jnp.array([4.0]))
    frame = make_frame(Smooth(3, (3.0, 2.0, 1.0), 0, {}, joined=1), axis, scaling)
    z = np.asarray(axis.points()) / 4
    value = np.delete(np.asarray(frame.nodes[:, 0]), 16, axis=0)
    same = np.outer(z > 0, z > 0) | np.outer(z < 0, z < 0)
    for detail, within in ((1e-12, 1e-5), (0.04, 0.012 * 0.04)):
        precision = np.asarray(frame.precision(jnp.log(jnp.array([0.3, detail]))))
        exact = 9 + same * (0.3 * covariance(z, z, 3) + 4 * np.outer(z, z) + np.outer(z**2, z**2) / 4)
        exact += detail * matern(z[:, None] - z, DETAIL)
        np.testing.assert_allclose(value / precision @ value.T, exact, rtol=0, atol=within)


def test_a_jump_is_smooth_at_its_place_and_leads_to_another_law_beyond(float64):
    spec = Law(jump=0.7)
    frame = spec.frame(RANGE, SCALING)
    law = drawn(spec, frame, 0)
    narrow = law.with_weights(law.weights.at[1].set(-4.0))  # exp(-4) of its median, 0.05 units
    f, smooth = narrow.prepare(frame), law.with_weights(law.weights.at[:4].set(0.0)).prepare(frame)
    height, _, gradient, curvature = 3.0 * np.asarray(law.weights[:4])
    for x in (-1.5, 0.5, 0.9, 3.0):
        z, side = (x - 0.7) / 2, np.sign(x - 0.7)
        more = side * 0.5 * (height + gradient * z + curvature * z**2 / 2)
        np.testing.assert_allclose(float(f(x) - smooth(x)), 4 * more, rtol=1e-6)
    named = narrow.named(frame)
    np.testing.assert_allclose(named["height"], 4 * height)
    np.testing.assert_allclose(named["width"], 2 * 0.05 * np.exp(-4.0))
    x = 0.7 + np.linspace(-5, 5, 400) * float(named["width"])
    assert np.abs(np.diff(np.asarray(jax.vmap(f)(x)), 2)).max() < 1e-2 * abs(4 * height)


def test_a_jump_is_written_as_it_is_computed(float64):
    numbers = map(jnp.asarray, (1.5, 0.1, -0.4, 0.8, 2.0, -2.0, 1.5))
    step = Step(*numbers, at=0.7, anchor=2.0)
    calls = {"tanh": "np.tanh({})", "clip": "np.clip({}, {}, {})"}
    x = np.array([-9.0, 0.6, 0.7, 0.8, 2.0, 9.0])
    written = eval(step.written(Source("x", calls)).text, {"np": np, "x": x})
    np.testing.assert_allclose(written, jax.vmap(step)(jnp.asarray(x)), atol=1e-12)
    assert float(step(jnp.asarray(2.0))) == 0.0


def test_a_correction_is_orthogonal_to_what_parameters_can_do(float64):
    spec = Law(**FORM)
    frame = spec.frame(RANGE, SCALING)
    places, weight = PLACES
    x = jnp.asarray(1.0 + 2.0 * places)
    for seed in range(5):
        law = drawn(spec, frame, seed)
        at_guess = law.with_weights(law.weights.at[:2].set(0.0))
        form = power(x, spec.form.parameters.record(c=0.5, m=1.5))
        correction = np.asarray(jax.vmap(at_guess.prepare(frame))(x) - form)
        by_c, by_m = form, form * jnp.log(jnp.abs(x))
        size = np.sqrt(np.sum(weight * correction**2))
        for shape in (by_c, by_m):
            assert abs(np.sum(weight * np.asarray(shape) * correction)) < 1e-9 * size * float(jnp.linalg.norm(shape))
        assert size > 0.1


def test_corrections_are_the_stationary_process_given_that_they_are_orthogonal(float64):
    spec = Law(**FORM, reference=1.0, scale=2.0, unit=4.0, nodes=65)
    frame = spec.frame(RANGE, SCALING)
    precision = frame.precision(jnp.log(jnp.array([0.3])))
    assert not np.any(np.asarray(frame.offset))
    value = np.asarray(frame.nodes[:, 0])
    z = (np.asarray(frame.axis.points()) - 1.0) / 2.0
    places, weight = PLACES
    shapes = weight[:, None] * spec.form.value_and_shapes(1.0 + 2.0 * places)[1]
    cross = matern(z[:, None] - places, LENGTH) @ shapes
    held = shapes.T @ matern(places[:, None] - places, LENGTH) @ shapes
    exact = matern(z[:, None] - z, LENGTH) - cross @ np.linalg.solve(held, cross.T)
    found = value / np.asarray(precision)[2:] @ value.T / 0.3
    np.testing.assert_allclose(found, exact, atol=2e-3)


def test_an_amplitude_is_half_normal(float64):
    spec, size = Law(**FORM), np.linspace(1e-3, 4.0, 4000)
    log_size = 2 * np.log(size)
    log_density = jax.vmap(spec.log_size_prior)(jnp.asarray(log_size)[:, None])
    density = np.exp(np.asarray(log_density)) * 2 / size  # of s, not of log s^2
    wanted = np.exp(-0.5 * (size / AMPLITUDE) ** 2)
    np.testing.assert_allclose(density / density[0], wanted / wanted[0], atol=1e-9)


def test_parameters_of_a_form_have_the_priors_that_are_stated(float64):
    stated = {"c": Positive(prior=HalfNormal(2.0)), "m": Interval(1.0, 3.0, guess=1.5, width=0.4), "k": 2.0}
    spec = Law(around=lambda v, p: p.c * v**p.m / p.k, parameters=stated)
    frame = spec.frame(Range(jnp.array([0.1]), jnp.array([5.0])), SCALING)
    law = drawn(spec, frame, 0)

    def density(standard):
        moved = law.with_weights(law.weights.at[:2].set(jnp.asarray(standard)))
        return float(moved.log_prior(frame, None)), moved.named(frame)

    (one, first), (other, second) = density([0.3, -0.5]), density([-0.8, 0.9])
    kinds, logs = spec.form.parameters, []
    for named in (first, second):
        c, m = float(named["c"]), float(named["m"])
        logit = np.log((m - 1) / (3 - m)) - np.log(0.5 / 1.5)
        logs.append(-0.5 * (c / 2.0) ** 2 + np.log(c) - 0.5 * (logit / 0.4) ** 2)
    assert list(first) == list(kinds.names) == ["c", "m"]
    np.testing.assert_allclose(one - other, logs[0] - logs[1], rtol=1e-9)


def test_a_form_is_stated_in_its_own_units_and_stays_on_a_longer_table():
    spec = Law(**FORM)
    short, long = (spec.frame(Range(reach * RANGE.low, reach * RANGE.high), SCALING) for reach in (1.0, 1.3))
    x = 1.0 + 2.0 * PLACES[0]
    np.testing.assert_allclose(float(short.scaling.output), np.sqrt(np.mean((0.5 * np.abs(x) ** 1.5) ** 2)), rtol=1e-5)
    law, x = drawn(spec, short, 3, log_size=-1.0), jnp.linspace(-2.5, 4.5, 50)
    before, after = (
        np.asarray(jax.vmap(one.prepare(f))(x)) for one, f in ((law, short), (law.reframed(short, long), long))
    )
    np.testing.assert_allclose(after, before, atol=0.02 * np.abs(before).max())
    again = spec.frame(Range(1.3 * RANGE.low, 1.3 * RANGE.high), short.scaling)
    np.testing.assert_array_equal(again.scaling.output, short.scaling.output)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (FORM | {"positive": True}, "not there yet"),
        (FORM | {"kink": 0.0}, "into the form"),
        (FORM | {"at": {1.0: 2.0}}, "into the form"),
        ({"around": power}, "parameters that are inferred"),
        ({"around": power, "parameters": {"c": 1.0, "m": 2.0}}, "not all of them can be"),
        ({"around": lambda v, p: p.c + v, "parameters": {"c": Real(1.0)}, "zero_at_origin": True}, "not zero there"),
        ({"around": lambda v, p: jnp.ones(3) * p.c, "parameters": {"c": Real(1.0)}}, "must give one"),
    ],
    ids=["positive", "kink", "at", "no parameters", "no free parameter", "not zero", "three numbers"],
)
def test_what_a_form_cannot_be_is_refused(stated, words):
    with pytest.raises(ValueError, match=words):
        Law(**stated).frame(RANGE, SCALING)
