"""How much data narrowed numbers and laws, where the answer is known."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sizes import FEW

import closura as cl
from closura.diagnose import contraction, law_contraction, typical_inputs, what_data_leave_open
from closura.diagnose._contraction import block_diagonal
from closura.laws import FittedLaw, Law, Range, Scaling, build
from closura.learning import Run, make_settings
from closura.learning._setup import Draws
from closura.population import Phi

pytestmark = pytest.mark.usefixtures("hardly_optimised")
GROUPS, CHAINS, DRAWS, SYSTEMS = 2, 8, 200, 4


def problem(**changes):
    """Lines u = a + b t, of which all systems share the drift c."""
    options = {
        "state": "u",
        "parameters": {
            "a": cl.Real(spread_width=1.0),
            "b": cl.Positive(guess=1.0, spread_width=1.0),
            "c": cl.Real(width=2.0, shared=True),
        },
        "initial": lambda p: p.a,
        "span": (0.0, 2.0),
        "dt": 0.5,
        "observed": "u",
    }
    return cl.ODE(lambda t, s, p: p.b + p.c * t + 0.0 * s.u, **options | changes)


def started(**settings):
    rows = {"system": np.repeat(list("wxyz"), 3), "time": np.tile([0.5, 1.0, 1.5], 4), "u": np.arange(12.0)}
    mine = problem()
    return Run(mine, cl.read_table(rows, axes=mine.axes), make_settings(FEW | settings, mine))


@pytest.fixture(scope="module")
def run(hardly_optimised):
    return started(population="full")


def drawn(run, narrowed):
    """The run with draws of its priors, those of a variable narrowed by a factor (in standard deviations) where asked."""
    random, shape = np.random.default_rng(0), (DRAWS, GROUPS, CHAINS)
    population = run.setup.population
    variance = {name: np.asarray(v, float) for name, v in population.prior_variances.items()}

    def normal(name, *more):
        scale = np.sqrt(variance.get(name, 1.0)) if name != "theta" else 1.0
        return narrowed.get(name, 1.0) * scale * random.normal(size=(*shape, *more))

    mu, log_tau = np.array([0.3, 0.1]) + normal("mu", 2), -2.0 + normal("log_tau", 2)
    own = mu[..., None, :] + np.exp(0.5 * log_tau)[..., None, :] * normal("theta", SYSTEMS, 2)
    shared = np.broadcast_to(normal("shared", 1)[..., None, :], (*shape, SYSTEMS, 1))
    # Half the log of (1 + r) / (1 - r) for r of an LKJ prior of two parameters, concentration 2: beta with shape 2.
    bond = narrowed.get("correlation", 1.0) * np.arctanh(2 * random.beta(2, 2, size=(*shape, 1)) - 1)
    log_sigma = np.asarray(run.setup.noise.mean) + narrowed.get("log_sigma", 1.0) * np.sqrt(
        run.setup.noise.variance
    ) * random.normal(size=(*shape, 1))
    run.chunks = [Draws(np.concatenate([own, shared], -1), Phi(mu, log_tau, None, bond), log_sigma, ())]
    return run


def test_draws_of_the_prior_are_not_contracted(run):
    found = contraction(drawn(run, {}))
    assert set(found.data_vars) == {"theta", "shared", "mu", "log_tau", "correlation", "log_sigma"}
    for name, values in found.data_vars.items():
        # 3,200 draws tell a variance to 2.5 %; that of systems, with tails, less well.
        np.testing.assert_allclose(values, 0.0, atol=0.3 if name == "theta" else 0.12, err_msg=str(name))


@pytest.mark.parametrize("name", ["shared", "mu", "log_tau", "correlation", "log_sigma"])
def test_what_data_narrowed_to_a_half_has_contraction_three_quarters(run, name):
    """A correlation, which is bounded, loses somewhat more."""
    found = contraction(drawn(run, {name: 0.5}))
    np.testing.assert_allclose(found[name], 0.75, atol=0.06 if name != "correlation" else 0.12)
    others = [float(abs(part).max()) for other, part in found.data_vars.items() if other not in (name, "theta")]
    assert max(others) < 0.12


def test_systems_are_compared_with_the_population_that_was_found(run):
    """Narrow because the population is: that is not what its own data say."""
    population = {"mu": 0.001, "log_tau": 0.01}
    np.testing.assert_allclose(contraction(drawn(run, population))["theta"], 0.0, atol=0.12)
    np.testing.assert_allclose(contraction(drawn(run, population | {"theta": 0.1}))["theta"], 0.99, atol=0.01)


def test_open_numbers_are_named_by_what_they_are_of(run):
    narrow = {"mu": 0.1, "theta": 0.1, "shared": 0.1}
    assert what_data_leave_open(drawn(run, narrow), {}, {}) == []
    (one,) = what_data_leave_open(drawn(run, narrow | {"shared": 1.0}), {}, {})
    assert str(one) == "c"
    said = {str(one) for one in what_data_leave_open(drawn(run, narrow | {"mu": 1.0}), {}, {})}
    assert said == {"a", "b"}


def test_without_a_population_systems_have_their_prior(hardly_optimised):
    run = started(hierarchy=False)
    random = np.random.default_rng(1)
    spread = np.sqrt(np.asarray(run.setup.population.variance))
    theta = spread * random.normal(size=(DRAWS, GROUPS, CHAINS, SYSTEMS, 3))
    theta[..., 2] = theta[..., :1, 2]
    theta[..., 1] *= 0.5
    run.chunks = [Draws(theta, (), np.zeros((DRAWS, GROUPS, CHAINS, 1)), ())]
    found = contraction(run)
    np.testing.assert_allclose(found["theta"].sel(parameter="a"), 0.0, atol=0.15)
    np.testing.assert_allclose(found["theta"].sel(parameter="b"), 0.75, atol=0.05)
    assert {str(one) for one in what_data_leave_open(run, {}, {})} == {"a", "c"}


# Laws


ONE = jnp.ones(1)
SCALING = Scaling(0.0 * ONE, ONE, jnp.asarray(2.0))


def fitted(spec, spread, draws=800, log_size=(0.0, -5.0)):
    """A law of which draws have so many of the prior's standard deviations."""
    frame = spec.frame(Range(-3 * ONE, 3 * ONE), SCALING)
    law = build({"f": spec}, jr.key(0), {"f": SCALING}, (draws,))["f"]
    law = law.with_size(jnp.tile(jnp.array(log_size), (draws, 1)))
    law = jax.vmap(lambda key, one: one.redrawn(key, frame, spread))(jr.split(jr.key(1), draws), law)
    return FittedLaw("f", law, ("v",), None, frame)


@pytest.mark.parametrize(
    "spec", [Law(nodes=9), Law(nodes=9, odd=True), Law(nodes=9, at={1.0: 0.5}), Law(nodes=9, increasing=True)]
)
def test_a_law_from_its_prior_is_not_contracted(spec):
    points = np.array([[-2.5], [-0.7], [0.4], [2.0]])
    np.testing.assert_allclose(law_contraction(fitted(spec, 1.0), points), 0.0, atol=0.2)


def test_a_law_that_data_know_is():
    points = np.array([[-2.0], [0.5], [1.5]])
    np.testing.assert_allclose(law_contraction(fitted(Law(nodes=9), 0.1), points), 0.99, atol=0.003)


@pytest.mark.parametrize("log_size", [(-8.0, -5.0), (3.0, -5.0), (0.0, -12.0), (0.0, 1.0)])
def test_the_prior_has_the_size_that_the_posterior_has(log_size):
    """A small size that was inferred is no knowledge of a law far away."""
    small = fitted(Law(nodes=9, at={0.0: 1.0}), 1.0, draws=4000, log_size=log_size)
    precision = np.asarray(small.frame.precision(jnp.array(log_size)), float)
    standard = np.asarray(small.law.coordinates, float) * np.sqrt(precision)
    assert np.abs(standard.mean(axis=0)).max() < 4 / np.sqrt(4000)
    assert np.abs(standard.var(axis=0) - 1).max() < 4 * np.sqrt(2 / 4000)


def test_inputs_are_taken_as_often_as_they_were_visited():
    visited = np.concatenate([np.zeros(90), np.linspace(1, 2, 10)])[:, None]
    assert np.mean(typical_inputs(visited) == 0) > 0.85
    assert typical_inputs(np.random.default_rng(0).normal(size=(500, 2))).shape == (64, 2)


def test_blocks_need_not_be_square():
    whole = block_diagonal([np.ones((1, 2)), 2 * np.ones((2, 1))])
    np.testing.assert_array_equal(whole, [[1, 1, 0], [0, 0, 2], [0, 0, 2]])
