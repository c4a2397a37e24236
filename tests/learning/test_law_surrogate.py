"""Sampled laws on a surrogate: learned by the solver's Gauss-Newton steps, then seen through a basis that is trained on draws."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import PROBLEMS, observed
from sizes import FEW, NETWORKS

from closura.learning import Run
from closura.learning._refine import WIDER, spaced
from closura.learning._settings import make_settings
from closura.learning._setup import Draws
from closura.learning._solver_newton import NEARLY_ARRIVED, drawn, quadratics
from closura.runs import collect, restore, store

pytestmark = pytest.mark.usefixtures("hardly_optimised")
SMALL = FEW | {"forward": "basis", "law_kind": "sampled", "network": NETWORKS["basis"], "newton_every": 1}
SMALL |= {"iterations": 20, "tune": 12, "inner_steps": 1, "replay": 4}


def start(name="channel", **settings):
    return Run(PROBLEMS[name], observed(name, 3), make_settings(SMALL | settings, PROBLEMS[name]))


def finish(run):
    while not run.finished:
        run.advance()
    return run


@pytest.fixture(scope="module")
def phases():
    """A run as it was when it had learned, and when it was over."""
    run = start()
    while run.phase == "learn":
        run.advance()
    learned = copy.copy(run)
    return learned, finish(run)


@pytest.fixture(scope="module")
def learned(phases):
    return phases[0]


def assert_laws_were_sampled(run):
    law = run.kept.law["f"].coordinates
    assert np.isfinite(law).all()
    assert np.ptp(law, axis=(0, 1)).max() > 0
    assert np.ptp(run.theta(), axis=(0, 1)).min() > 0
    # Before it was trained, after it was about the mode, and on draws of the chains.
    assert run.surrogate_errors[0] > 1.5 * min(run.surrogate_errors[1:])
    assert len(run.surrogate_errors) == 4


def test_a_basis_samples_laws(phases):
    assert_laws_were_sampled(phases[1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["channel", "rock"])
def test_and_says_how_wrong_it_is(name):
    run = finish(start(name))
    assert_laws_were_sampled(run)
    result = collect(run)
    assert result.metrics["surrogate_error"] > 0
    assert not result.metrics["law_learned"], "it is not one estimate"
    assert float(result.closure.sd(0.1)) > 0


def test_learning_by_the_solver_finds_a_mode(learned):
    """Groups from other starts come to one law; no direction is left in which the density rises."""
    assert learned.learned is not None, "it arrived before its limit"
    told = quadratics(learned.posterior.by_solver(), learned.state.chains, 1.0)
    # The population was drawn anew after the last step: that is as near as a mode can be told.
    assert max(quadratic.decrement for quadratic in told) < NEARLY_ARRIVED
    law, frame = learned.state.chains.law["f"], learned.state.ranges["f"]
    firsts = [jax.tree.map(lambda a, g=g: a[g, 0], law).as_function(frame) for g in range(2)]
    x = jnp.linspace(-0.5, 0.5, 5)
    apart = jnp.abs(jax.vmap(firsts[0])(x) - jax.vmap(firsts[1])(x))
    _, draws = drawn(learned.state.keys, learned.state.chains, told, 20)
    values = jax.vmap(lambda law: jax.vmap(law.as_function(frame))(x))(
        jax.tree.map(lambda a: a.reshape(-1, *a.shape[3:]), draws["f"])
    )
    assert np.all(apart < jnp.std(values, axis=0)), "nearer to each other than one standard deviation"


def test_the_step_is_that_of_the_whole_quadratic(learned):
    """Theta, population mean and law are eliminated in blocks: the same as solving for all of them at once."""
    chains = learned.state.chains
    quadratic = quadratics(learned.posterior.by_solver(), chains, 1.0)[0]
    systems, own = quadratic.theta.shape
    inner, follows, top = quadratic.inner, quadratic.follows, len(quadratic.left)
    bound = np.einsum("sij,sjr->sir", inner, follows)
    whole = np.zeros((systems * own + top,) * 2)
    for k in range(systems):
        at = slice(k * own, (k + 1) * own)
        whole[at, at], whole[at, -top:], whole[-top:, at] = inner[k], bound[k], bound[k].T
    whole[-top:, -top:] = quadratic.left + np.einsum("sir,sij,sjq->rq", follows, inner, follows)
    step = np.concatenate([quadratic.theta.ravel(), quadratic.top])
    gradient = whole @ step
    assert quadratic.decrement == pytest.approx(gradient @ step, rel=1e-3, abs=1e-3)


def test_draws_have_a_law_for_every_system(learned):
    told = quadratics(learned.posterior.by_solver(), learned.state.chains, 1.0)
    theta, laws = drawn(learned.state.keys, learned.state.chains, told, 3, 1.3)
    assert theta.shape == (2, 3, 3, 2)
    assert laws["f"].coordinates.shape[:3] == (2, 3, 3)
    assert len(np.unique(np.asarray(laws["f"].coordinates[..., 0]))) == 18


def test_systems_take_draws_of_different_chains(learned):
    number = jnp.arange(10 * 2 * 8.0).reshape(10, 2, 8)  # draw, group, chain
    theta = jnp.broadcast_to(number[..., None, None], (10, 2, 8, 3, 2))
    law = learned.state.chains.law["f"]
    law = law.with_weights(jnp.broadcast_to(number[..., None], (*number.shape, law.weights.shape[-1])))
    picked, laws = spaced(Draws(theta, (), None, {"f": law.with_size(jnp.stack([number, number], axis=-1))}), 4)
    np.testing.assert_allclose(picked[..., 0], laws["f"].coordinates[..., 0], rtol=1e-6)
    size = np.asarray(laws["f"].log_size[..., 0])
    assert len(np.unique(size)) == 2 * 4 * 3
    mean = np.mean(number, axis=(0, 2))[:, None, None]
    np.testing.assert_allclose(picked[:, 2:, :, 0], size[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(picked[:, :2, :, 0] - mean, WIDER * (size[:, :2] - mean), rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("chunks", [3, 10])  # of fourteen
def test_it_goes_on_as_if_it_had_not_stopped(tmp_path, chunks):
    whole, stopped, again = start(), start(), start()
    for _ in range(chunks):
        stopped.advance()
    store(stopped, tmp_path)
    restore(again, tmp_path)
    np.testing.assert_array_equal(finish(whole).theta(), finish(again).theta())
