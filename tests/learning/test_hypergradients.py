"""Slopes of the upper level against finite differences of what each of them differentiates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from closura import MLP
from closura.forward.surrogates._frame import Draw, Frame
from closura.laws import prepare
from closura.learning import Run, _hypergradients as _bilevel, begin
from closura.learning._hypergradients import AXIS, Bilevel, members, neighbours
from closura.learning._settings import make_settings
from closura.population import Phi
from closura.problems import mass_damper

pytestmark = [pytest.mark.usefixtures("hardly_optimised"), pytest.mark.usefixtures("float64")]

SMALL = {"chains": 16, "groups": 2, "gradient_chains": 2, "inner_steps": 3, "batch": 6, "replay": 2, "devices": 1}


@pytest.fixture(scope="module")
def data():
    return mass_damper.simulate(2, 0)[0]


def levels(data, **settings) -> Bilevel:
    problem = mass_damper.problem.with_closure(MLP(width=4, depth=1, table=9, smoothness=0.0))
    run = Run(problem, data, make_settings(SMALL | settings))
    # Some law and some surrogate, not those of a start from nothing.
    trained = {name: getattr(run.state, name) for name in ("law", "surrogate")}
    shake = jax.tree.map(lambda w: w + 0.1 * jr.normal(jr.key(3), w.shape), {n: t.weights for n, t in trained.items()})
    run.state = run.state._replace(**{name: one._replace(weights=shake[name]) for name, one in trained.items()})
    draws = run.state.chains.theta[:, :1]
    return Bilevel(
        run.setup,
        run.state.surrogate,
        run.state.replay,
        prepare(run.laws, run.state.ranges),
        draws,
        jnp.ones(draws.shape[:3], bool),
        None,
        draws[:, :0],
        jr.split(jr.key(1), 2),
        jnp.asarray(1e-3),
    )


def alone(function):
    """As on one device, where averages over devices are of one."""
    return jax.jit(jax.vmap(function, in_axes=None, out_axes=None, axis_name=AXIS, axis_size=1))


def along(laws, size):
    """The laws with their tables raised."""
    return {"f": eqx.tree_at(lambda law: law.table.coefficients, laws["f"], replace_fn=lambda c: c.at[:, 0].add(size))}


def slope_along(slope):
    return float(jnp.sum(slope["f"].table.coefficients[:, 0]))


def difference(function, step=1e-4):
    return float(function(step) - function(-step)) / (2 * step)


@pytest.mark.parametrize("forward", ["basis", pytest.param("pinn", marks=pytest.mark.nightly)])
def test_adjoint_is_the_slope_of_the_exact_likelihood(data, forward):
    both = levels(data, forward=forward, hypergradient="adjoint")
    _, _, slope, loss = alone(lambda: both.advance())()
    assert np.isfinite(float(loss))
    flat = both.draws.reshape(-1, *both.draws.shape[2:])
    value = jax.jit(lambda size: -both.setup.exact.mean(flat, along(both.laws, size)))
    assert slope_along(slope) == pytest.approx(difference(value), rel=1e-5)


@pytest.mark.parametrize("forward", ["basis", pytest.param("fno-physics", marks=pytest.mark.nightly)])
def test_unrolled_is_the_slope_through_the_steps(data, forward):
    both = levels(data, forward=forward, hypergradient="unrolled")
    _, _, slope, _ = alone(lambda: both.advance())()

    def upper(size):
        laws = along(both.laws, size)
        labelled = both.setup.likelihood.forward.labelled
        replay = both.remembered(laws, both.labels(laws, both.draws) if labelled else None)
        return both.misfit(both.train(laws, replay)[0].weights)

    # Adam's first steps are nearly signs of gradients: small differences, or some of those flip.
    assert slope_along(slope) == pytest.approx(difference(alone(upper), 1e-7), rel=1e-3)


class Linear(eqx.Module):
    """A surrogate linear in its weights: its best weights solve a linear system."""

    frame: Frame
    weights: jnp.ndarray

    def states(self, theta, system):
        x = self.frame.inputs(theta, system)
        features = jnp.concatenate([jnp.ones(1), x, jnp.outer(x, x)[jnp.triu_indices(3)]])
        return self.frame.whole(theta, system, self.weights @ features)

    def at(self, theta, where, system):
        return self.states(theta, system)[where.node[:, 0], 0]


@pytest.mark.nightly
@pytest.mark.parametrize("forward", ["basis", "fno-physics"])
def test_implicit_is_the_slope_of_the_damped_minimum(data, forward, monkeypatch):
    damping = 1e-4
    monkeypatch.setattr(_bilevel, "DAMPING", damping)
    monkeypatch.setattr(_bilevel, "SOLVE_STEPS", 2000)
    both = levels(data, forward=forward, hypergradient="implicit")
    frame = both.setup.network.frame
    shape = (len(frame.points), 2, 10)
    fixed = eqx.tree_at(lambda n: n.weights, Linear(frame, jnp.zeros(1)), None)
    setup = eqx.tree_at(lambda s: s.network, both.setup, fixed, is_leaf=lambda x: x is None)
    theta, systems = both.draws.reshape(-1, 3), jnp.tile(jnp.arange(2), 2)
    both = both._replace(setup=setup, rate=jnp.asarray(0.0))

    def best(laws, center, damping):
        """Minimum of half the mean square residual and of damping / 2 times the squared distance from `center`."""
        label = both.labels(laws, both.draws).reshape(len(theta), -1, 2) if forward == "basis" else None
        keys = jr.split(jr.key(0), len(theta))

        def residual(flat):
            conditions = both.residual(
                Linear(None, flat.reshape(shape)), laws, Draw(theta, systems, label, keys)
            ).ravel()
            return jnp.concatenate([conditions / conditions.size**0.5, damping**0.5 * (flat - center)])

        flat = center
        for _ in range(4):
            slope = jax.jacfwd(residual)(flat)
            flat = flat - jnp.linalg.solve(slope.T @ slope, slope.T @ residual(flat))
        return flat

    here = jax.jit(lambda: best(both.laws, 0.01 * jr.normal(jr.key(0), (int(np.prod(shape)),)), 1e-9))()
    both = both._replace(surrogate=begin(Linear(None, here.reshape(shape))))
    _, _, slope, _ = alone(lambda: both.advance())()

    def value(size):
        return both.misfit(Linear(None, best(along(both.laws, size), here, damping).reshape(shape)))

    assert slope_along(slope) == pytest.approx(difference(jax.jit(value), 1e-3), rel=0.01)


def test_replay_leaves_out_what_cannot_be_solved(data):
    both = levels(data, forward="basis")
    label = both.labels(both.laws, both.draws).at[0, 0, 1, 5, 0].set(jnp.nan)
    after = both._replace(sound=both.sound.at[1, 0, 0].set(False)).remembered(both.laws, label)
    changed = np.any(np.asarray(after.theta != both.replay.theta), axis=-1)
    assert changed[:, 1:].sum() == 0
    assert bool(jnp.all(jnp.isfinite(after.label)))
    assert not changed[0, 0, 1]
    assert not changed[1, 0, 0]
    assert after.next.tolist() == [1, 1]


def test_newcomers_are_remembered_with_their_solutions(data):
    """Three draws in a replay of two: the newest stay, each with its own solution."""
    both = levels(data, forward="basis")
    new = both.draws + jnp.asarray([[[[0.1]], [[0.2]]]]).reshape(1, 2, 1, 1)
    after = both._replace(prior_draws=new).remembered(both.laws, both.labels(both.laws, both.draws))
    np.testing.assert_allclose(after.theta, new)
    np.testing.assert_allclose(after.label, both.labels(both.laws, new))


def test_newcomers_are_of_the_population(data):
    population = levels(data, forward="basis").setup.population
    mu = jnp.stack([jnp.full((16, 3), 5.0), jnp.full((16, 3), -5.0)])
    log_tau = jnp.broadcast_to(jnp.log(jnp.asarray([1e-4, 0.04, 0.25])), mu.shape)
    theta = jnp.zeros((2, 16, 500, 3))
    keys = jr.split(jr.key(0), 2)
    drawn = np.asarray(members(keys, population, *neighbours(keys, (theta, Phi(mu, log_tau)), 8)))
    assert drawn.shape == (2, 8, 500, 3)
    np.testing.assert_allclose(drawn.mean(axis=(1, 2)), mu[:, 0], atol=4 * 0.5 / 4000**0.5)
    np.testing.assert_allclose(drawn.std(axis=(1, 2)), np.tile([0.01, 0.2, 0.5], (2, 1)), rtol=4 / 8000**0.5)


def test_training_makes_the_loss_small(data):
    both = levels(data, forward="basis", inner_steps=300, batch=4)
    replay = both.remembered(both.laws, both.labels(both.laws, both.draws))
    surrogate, loss = alone(lambda: both._replace(rate=jnp.asarray(3e-3)).train(both.laws, replay))()
    theta = replay.theta.reshape(-1, 3)
    label = replay.label.reshape(len(theta), -1, 2)
    batch = Draw(theta, jnp.arange(len(theta)) % 2, label, jr.split(jr.key(0), len(theta)))
    assert float(loss) < 0.1 * float(both.loss(both.surrogate.weights, both.laws, batch))
    assert float(both.loss(surrogate.weights, both.laws, batch)) < 0.1 * float(
        both.loss(both.surrogate.weights, both.laws, batch)
    )
