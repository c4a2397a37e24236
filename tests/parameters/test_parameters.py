"""Transforms, bounds, labels, messages, and the hyperprior of the built-in problem."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import closura as cl
from closura.parameters import Parameters
from closura.problems import mass_damper

KINDS = {"real": cl.Real(), "positive": cl.Positive(), "interval": cl.Interval(-0.02, 0.65)}
# Widths that round up: 0.65 is not -0.02 + (0.65 + 0.02) in float32.
ENDS = [(0.0, 1.0), (-0.02, 0.65), (-1.13, 0.07), (2.5, 1e4)]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_transforms_are_inverse_to_each_other(kind):
    theta = jnp.linspace(-6.0, 6.0, 41)
    np.testing.assert_allclose(kind.unconstrain(kind.constrain(theta)), theta, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_transforms_rise(kind):
    slope = jax.vmap(jax.grad(kind.constrain))(jnp.linspace(-6.0, 6.0, 41))
    assert np.all(np.asarray(slope) > 0)


def test_a_guess_may_come_first(monkeypatch):
    assert cl.Positive(2.0, width=0.3) == cl.Positive(guess=2.0, width=0.3)
    assert cl.Real(-1.0) == cl.Real(guess=-1.0)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"Positive: guess=LogNormal\(.*\) must be a number; .* goes to prior="):
        cl.Positive(cl.LogNormal(0.0, 1.0))


def test_transforms_are_what_the_table_says():
    assert float(cl.Positive().unconstrain(jnp.asarray(2.0))) == pytest.approx(np.log(2.0), rel=1e-6)
    odds = np.log((2.0 - 1.0) / (5.0 - 2.0))
    assert float(cl.Interval(1.0, 5.0).unconstrain(jnp.asarray(2.0))) == pytest.approx(odds, rel=1e-6)
    assert float(cl.Real().unconstrain(-3.0)) == -3.0


@pytest.mark.parametrize("ends", ENDS)
def test_interval_is_never_left(ends):
    value = np.asarray(cl.Interval(*ends).constrain(jnp.array([-jnp.inf, -1e4, -50.0, 50.0, 1e4, jnp.inf])))
    assert np.all(value >= np.float32(ends[0]))
    assert np.all(value <= np.float32(ends[1]))
    assert value[0] < value[-1]


def test_positive_is_positive_over_the_range_of_float32():
    assert np.all(np.asarray(cl.Positive().constrain(jnp.linspace(-87.0, 88.0, 100))) > 0)


def test_record_and_arrays_agree():
    parameters = Parameters(KINDS)
    theta = jnp.array([[0.3, -1.0, 0.7], [2.0, 0.5, -3.0]])
    physical = parameters.to_physical(theta)
    record = parameters.constrain(theta[1], 0)
    assert record._fields == ("real", "positive", "interval")
    np.testing.assert_allclose([record.real, record.positive, record.interval], physical[1], rtol=1e-6)
    np.testing.assert_allclose(parameters.to_theta(physical), theta, rtol=1e-4)


def test_labels_name_the_unconstrained_scale():
    parameters = Parameters(KINDS)
    assert len(parameters) == 3
    assert parameters.names == ("real", "positive", "interval")
    assert parameters.labels == ("real", "log positive", "logit interval")


def test_interval_guesses_its_middle():
    assert cl.Interval(2.0, 6.0).guess == 4.0
    assert cl.Interval(2.0, 6.0, guess=3.0).guess == 3.0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: cl.Positive(guess=-1.0), "guess=-1.0 must be positive; use Real"),
        (lambda: cl.Positive(guess=0.0), "guess=0.0 must be positive"),
        (lambda: cl.Positive(-1.0), "guess=-1.0 must be positive; use Real"),
        (lambda: cl.Interval(0.0, 1.0, guess=2.0), "guess=2.0 must lie between 0.0 and 1.0"),
        (lambda: cl.Interval(0.0, 1.0, guess=1.0), "guess=1.0 must lie between"),
        (lambda: cl.Interval(1.0, 0.0), "lower=1.0 must be below upper=0.0"),
        (lambda: cl.Real(width=0.0), "Real: width=0.0 must be positive"),
        (lambda: cl.Positive(spread=-1.0), "Positive: spread=-1.0 must be positive"),
        (lambda: cl.Real(spread_width=float("nan")), "spread_width=nan must be positive"),
        (lambda: Parameters({}), "at least one parameter"),
        (lambda: Parameters({"2k": cl.Real()}), "parameter name '2k' must be a Python identifier"),
        (lambda: Parameters({"lambda": cl.Real()}), "parameter name 'lambda' must be"),
        (lambda: Parameters({"_k": cl.Real()}), "without a leading underscore"),
    ],
)
def test_bad_values_say_what_to_do(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_something_that_is_no_parameter_is_refused(monkeypatch):
    # A user runs without shape checking, and gets this message instead of its one.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"parameter 'k' is 'three'; use cl\.Real\(\), cl\.Positive\(\)"):
        Parameters({"k": "three"})


def test_hyperprior_of_the_mass_damper():
    """DESIGN.md, section 5: m_mu, s_mu, m_tau, s_tau; tau, s_mu and s_tau are variances."""
    parameters = mass_damper.problem.parameters
    assert parameters.labels == ("log k", "u0", "v0")
    np.testing.assert_allclose(parameters.mean, [np.log(3.0), 0.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(parameters.mean_variance, [0.1, 1.0, 1.0], rtol=1e-12)
    np.testing.assert_allclose(parameters.log_variance, np.log([0.02, 1.0, 1.0]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(parameters.log_variance_variance, [0.4, 0.08, 0.08], rtol=1e-12)
    np.testing.assert_allclose(mass_damper.mu, [np.log(5.0), 0.0, 2.0])
    np.testing.assert_allclose(mass_damper.tau, [0.03, 2.0, 2.0])


def test_a_plain_number_is_known():
    parameters = Parameters({"g": 9.81, "k": cl.Positive(), "m": 2, "u0": cl.Normal(1.0, 2.0)})
    assert parameters.names == ("k", "u0")
    assert len(parameters) == 2
    record = parameters.constrain(jnp.array([0.0, 3.0]), 0)
    assert record._fields == ("g", "k", "m", "u0")
    np.testing.assert_allclose(record, [9.81, 1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="at least one parameter to infer"):
        Parameters({"g": 9.81})


def test_a_known_number_stays_known_under_another_law():
    problem = cl.ODE(
        lambda t, state, p, f: -p.k * state.u - f(state.u) + p.g,
        state="u",
        parameters={"k": cl.Positive(), "g": 0.5},
        initial=lambda p: p.g,
        span=(0.0, 1.0),
        observed="u",
        closure=cl.MLP(width=4, depth=1),
    )
    again = problem.with_closure(cl.Known(jnp.sin))
    assert again.parameters.names == ("k",)
    assert again.parameters.fixed == {"g": 0.5}


@pytest.mark.parametrize(
    ("prior", "kind", "guess", "width"),
    [
        (cl.Normal(2.0, 0.5), cl.Real, 2.0, 0.5),
        (cl.LogNormal(-1.0, 0.7), cl.Positive, np.exp(-1.0), 0.7),
        (cl.HalfNormal(3.0), cl.Positive, 2.0235, None),
        (cl.Uniform(-1.0, 3.0), cl.Interval, 1.0, None),
    ],
)
def test_a_prior_says_what_kind_it_is_of(prior, kind, guess, width):
    found = Parameters({"a": prior}).kinds["a"]
    assert type(found) is kind
    assert found.guess == pytest.approx(guess, rel=1e-4)
    if width is not None:
        assert found.width == pytest.approx(width, rel=1e-9)
        assert found.log_density is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: cl.Positive(guess=1.0, prior=cl.LogNormal(0.0, 1.0)), "give a prior, or guess and width, not both"),
        (
            lambda: cl.Positive(prior=cl.Normal(0.0, 1.0)),
            "use Real, or a prior that stays inside, like TruncatedNormal",
        ),
        (lambda: cl.Real(prior=cl.Gamma(2.0, 1.0)), "use Positive"),
        (lambda: cl.Positive(prior=cl.Uniform(0.0, 2.0)), r"use Interval\(0, 2\)"),
        (lambda: Parameters({"a": cl.TruncatedNormal(2.0, 1.0, 1.0)}), "give it an upper bound too"),
    ],
)
def test_priors_that_do_not_fit(make, says):
    with pytest.raises(ValueError, match=says):
        make()
