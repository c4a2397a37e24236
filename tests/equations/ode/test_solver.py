"""Schemes by their order, observations by interpolation, derivatives by finite differences, failures as values."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from jax.flatten_util import ravel_pytree

import closura as cl
from closura.equations import ODESolver, unit_scaling
from closura.forward import likelihood
from closura.forward._likelihood import block_size
from closura.laws import Range, Scaling, prepare
from closura.problems.mass_damper import damping, physics

THETA = np.array([np.log(5.0), 0.5, 2.0])


def oscillator(**changes) -> cl.ODE:
    options = {"physics": physics, "state": ("u", "v"), "observed": "u", "initial": lambda p: (p.u0, p.v0)}
    options |= {"parameters": {"k": cl.Positive(), "u0": cl.Real(), "v0": cl.Real()}, "closure": cl.Known(damping)}
    options |= {"span": (0.0, 4.0), "dt": 0.1, "sigma": 0.1} | changes
    return cl.ODE(options.pop("physics"), **options)


def known(problem) -> dict:
    return {name: spec.build(jr.key(0), unit_scaling(spec.inputs)) for name, spec in problem.closures.items()}


def direction(seed, size) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def moved(laws, seed, step) -> dict:
    """The same law, all weights moved in a random direction."""
    weights, rest = eqx.partition(laws["f"].network, eqx.is_inexact_array)
    flat, unflatten = ravel_pytree(weights)
    network = eqx.combine(unflatten(flat + step * direction(seed, flat.size)), rest)
    return {"f": eqx.tree_at(lambda c: c.network, laws["f"], network)}


def learned(problem) -> tuple[dict, dict]:
    """A random damping law, about as strong as the true one, and the range of its table."""
    law = problem.closures["f"].build(jr.key(0), Scaling(jnp.zeros(1), jnp.full(1, 3.0), jnp.asarray(2.0)))
    return moved({"f": law}, 0, 0.3), {"f": Range(jnp.array([-8.0]), jnp.array([8.0]))}


def trajectory(problem, theta=THETA) -> np.ndarray:
    return np.asarray(jax.jit(lambda th: ODESolver(problem).solution(th, known(problem), 0))(jnp.asarray(theta, float)))


def observed(problem, rows, quantities=("u",)) -> cl.Observations:
    """From rows (system, time, one value a quantity)."""
    frame = pd.DataFrame(rows, columns=["system", "time", *quantities])
    return cl.Observations.from_frame(frame).matched(problem.observed, {"time": problem.span}, problem.sigma)


def predictions(problem, data) -> np.ndarray:
    forward, where = problem.solver(data)
    predict = jax.jit(jax.vmap(lambda th, at: forward.predict(th, known(problem), at, 0), in_axes=(None, 0)))
    return np.asarray(predict(jnp.asarray(THETA, float), where))


# Schemes


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("integrator", "law", "least", "most"),
    [
        pytest.param(cl.RK4(), damping, 3.8, 4.5, id="rk4"),
        pytest.param(cl.Leapfrog(), damping, 1.9, 2.5, id="leapfrog"),
        pytest.param(cl.Leapfrog(corrected=False), damping, 0.8, 1.3, id="published"),
        pytest.param(cl.Leapfrog(corrected=False), jnp.zeros_like, 1.9, 2.5, id="published, undamped"),
    ],
)
def test_order_of_a_scheme(integrator, law, least, most):
    reference = trajectory(oscillator(closure=cl.Known(law), dt=0.1 / 64))[::64]
    problems = {n: oscillator(closure=cl.Known(law), dt=0.1 / n, integrator=integrator) for n in (2, 4)}
    coarse, fine = (np.abs(trajectory(problem)[::n] - reference).max() for n, problem in problems.items())
    assert least < np.log2(coarse / fine) < most
    assert fine < 0.05


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["tsit5", "kvaerno5"])
def test_adaptive_agrees_with_a_fine_grid(name):
    fine = trajectory(oscillator(dt=0.1 / 16))[::16]
    path = trajectory(oscillator(integrator=cl.Adaptive(name, rtol=1e-7, atol=1e-8)))
    np.testing.assert_allclose(path, fine, atol=5e-5)  # between its steps kvaerno5 is of third order


@pytest.mark.usefixtures("float64")
def test_stiff_problem():
    """Van der Pol's oscillator at mu = 100, eigenvalues near -300 and 0: 64 implicit steps are enough, explicit not."""

    def path(**options):
        def van_der_pol(t, s, p):
            return s.u, p.mu * (1 - s.x**2) * s.u - s.x

        parameters = {"parameters": {"mu": cl.Positive()}, "initial": lambda p: (2.0, 0.0), "closure": None}
        return trajectory(oscillator(physics=van_der_pol, state=("x", "u"), **parameters, **options), np.log([100.0]))

    implicit, explicit = (cl.Adaptive(name, 1e-7, 1e-8, max_steps=64) for name in ("kvaerno5", "tsit5"))
    np.testing.assert_allclose(path(integrator=implicit), path(dt=1e-3)[::100], atol=1e-5)
    assert np.isnan(path(integrator=explicit)).all(), "a solve that ran out of steps must say so"


# Observations


@pytest.mark.usefixtures("float64")
def test_between_steps_is_fourth_order():
    rows = [("a", t, 0.0, 0.0) for t in np.random.default_rng(0).uniform(0.0, 4.0, 60)]

    def at_times(dt):
        problem = oscillator(dt=dt, observed=("u", "v"))
        return predictions(problem, observed(problem, rows, ("u", "v")))

    exact = at_times(0.1 / 32)
    coarse, fine = (np.abs(at_times(dt) - exact).max() for dt in (0.1, 0.05))
    assert np.log2(coarse / fine) > 3.8
    assert fine < 1e-4


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("integrator", "times", "stride", "atol"),
    [
        pytest.param(cl.RK4(), [1.3], 1, 1e-12, id="every step"),
        pytest.param(cl.RK4(), [1.2], 4, 1e-12, id="every fourth step"),
        pytest.param(cl.RK4(), [1.3, 0.777], 1, 1e-12, id="off the grid"),
        pytest.param(cl.Adaptive(rtol=1e-9, atol=1e-9), [1.3, 0.777], 1, 1e-6, id="adaptive"),
    ],
)
def test_every_quantity_at_its_own_times_from_start_to_end(integrator, times, stride, atol):
    """Ragged, masked, quantities in another order than the states; with one time off the grid all interpolate."""
    problem = oscillator(integrator=integrator, observed=("v", "u"))
    rows = [("a", 0.0, 9.0, 9.0), ("a", 4.0, 9.0, 9.0), ("b", 0.4, 9.0, np.nan), ("b", 4.0, np.nan, 9.0)]
    data = observed(problem, rows + [("a", time, np.nan, 9.0) for time in times], ("u", "v"))
    forward, where = problem.solver(data)
    assert (where.rate_weight is None, forward.stride, data.mask.all()) == (0.777 not in times, stride, False)
    path, got = trajectory(problem), predictions(problem, data)
    for k, i in zip(*np.nonzero(data.mask & (data.time != 0.777))):
        expected = path[np.argmin(np.abs(problem.times - data.time[k, i])), 1 - data.quantity[k, i]]
        assert got[k, i] == pytest.approx(expected, abs=atol)


def test_seen_at_the_start_alone():
    assert predictions(oscillator(), observed(oscillator(), [("a", 0.0, 9.0)])) == pytest.approx(0.5)


# Likelihood and its derivatives


def fleet(problem) -> cl.Observations:
    """Three systems seen at different times, on and off the grid."""
    rng = np.random.default_rng(1)
    return observed(problem, [(s, t, rng.normal()) for s, n in zip("abc", (5, 3, 1)) for t in rng.uniform(0, 4, n)])


def chains(count=2) -> jax.Array:
    return jnp.asarray(THETA + 0.3 * direction(2, (count, 3, 3)), float)


def differences(f, theta, h):
    """d f / d theta, the parameter first."""
    return jnp.stack([(f(theta + way) - f(theta - way)) / (2 * h) for way in h * jnp.eye(theta.shape[-1])])


@pytest.mark.usefixtures("float64")
def test_jacobian():
    problem = oscillator(closure=cl.MLP(width=8, depth=2), integrator=cl.Leapfrog())
    model, prepared = likelihood(problem, fleet(problem)), prepare(*learned(problem))
    linearise = jax.jit(lambda theta: model.linearise(theta, prepared))
    numeric = differences(lambda theta: linearise(theta)[0], chains(), 1e-5)
    np.testing.assert_allclose(linearise(chains())[1], numeric, atol=1e-6 * float(jnp.abs(numeric).max()))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("integrator", "h", "tolerance"),
    [(cl.Leapfrog(), 1e-5, 1e-6), (cl.Adaptive(rtol=1e-9, atol=1e-9), 1e-3, 1e-4)],  # adaptive steps move with theta
)
def test_score(integrator, h, tolerance):
    problem = oscillator(integrator=integrator)
    model, laws = likelihood(problem, fleet(problem)), known(problem)
    evaluate = jax.jit(lambda theta: model.evaluate(theta, laws))
    numeric = differences(lambda theta: evaluate(theta)[0], chains(), h)
    score = jnp.moveaxis(evaluate(chains())[1], -1, 0)
    np.testing.assert_allclose(score, numeric, atol=tolerance * float(jnp.abs(numeric).max()))


def test_log_likelihood_is_that_of_its_observations():
    """Against the formula, system by system; nothing of the padding enters, whatever stands there."""
    data = fleet(problem := oscillator())
    value, sigma = np.where(data.mask, data.value, 1e3), np.where(data.mask, data.sigma, 1e-3)
    rubbish = dataclasses.replace(data, value=value, sigma=sigma)
    theta, laws = chains(1), known(problem)
    run = eqx.filter_jit(lambda m: (*m.evaluate(theta, laws), *jax.value_and_grad(m.mean)(theta, laws)))
    loglik, score, mean, slope = run(likelihood(problem, data))
    predicted = eqx.filter_jit(lambda model: model.linearise(theta, laws)[0])(likelihood(problem, data))[0]
    for k in range(3):
        z = (data.value[k] - np.asarray(predicted[k]))[data.mask[k]] / 0.1
        assert float(loglik[0, k]) == pytest.approx(np.sum(-0.5 * z**2 - np.log(0.1 * np.sqrt(2 * np.pi))), rel=1e-4)
    assert float(mean) == pytest.approx(float(loglik.sum()), rel=1e-5)
    np.testing.assert_allclose(slope, score, rtol=1e-3)
    for left, right in zip(run(likelihood(problem, rubbish)), (loglik, score, mean, slope)):
        np.testing.assert_array_equal(left, right)


@eqx.filter_jit
def mean_and_slope(model, theta, ranges, laws, sound=None):
    """Mean log likelihood and its gradient in the weights, through table, interpolation and solver."""
    return eqx.filter_value_and_grad(lambda laws: model.mean(theta, prepare(laws, ranges), sound))(laws)


@pytest.mark.usefixtures("float64")
def test_gradient_in_the_weights():
    problem = oscillator(closure=cl.MLP(width=8, depth=2), integrator=cl.Leapfrog())
    laws, ranges = learned(problem)
    model, theta, h = likelihood(problem, fleet(problem)), chains(), 1e-5
    slope = mean_and_slope(model, theta, ranges, laws)[1]["f"]
    flat = ravel_pytree(eqx.filter(slope.network, eqx.is_array))[0]
    assert not jnp.any(slope.scaling.output), "units are not learned"
    for seed in (1, 2, 3):
        up, down = (mean_and_slope(model, theta, ranges, moved(laws, seed, step))[0] for step in (h, -h))
        assert float(flat @ direction(seed, flat.size)) == pytest.approx(float(up - down) / (2 * h), rel=1e-5)


# Failures


@pytest.mark.parametrize("integrator", [cl.RK4(), cl.Adaptive(max_steps=100)], ids=["rk4", "tsit5"])
def test_a_failed_solve_is_a_value(integrator):
    """u' = k u^2 - f(u) leaves every bound near t = 1 / (k u0); one chain of one system does."""
    options = {"state": "u", "parameters": {"k": cl.Positive(), "u0": cl.Real()}, "initial": lambda p: p.u0}
    options |= {"closure": cl.MLP(width=8, depth=2, dissipative=True), "integrator": integrator}
    problem = oscillator(physics=lambda t, s, p, f: p.k * s.u**2 - f(s.u), **options)
    rows = [("a", 0.1, -0.4), ("a", 4.0, -0.3), ("b", 0.0, -0.9), ("b", 4.0, -0.2)]
    model = likelihood(problem, observed(problem, rows))
    laws, ranges = learned(problem)
    good = jnp.array([[[0.2, -0.7], [0.1, -1.0]], [[0.2, -0.7], [0.0, -0.3]]])
    bad, others = good.at[0, 0, 1].set(3.0), np.array([[False, True], [True, True]])
    evaluate = jax.jit(lambda theta: model.evaluate(theta, prepare(laws, ranges)))
    (loglik, score), (good_loglik, good_score) = evaluate(bad), evaluate(good)
    assert (np.isfinite(good_loglik).all(), float(loglik[0, 0])) == (True, -np.inf)
    np.testing.assert_array_equal(score[0, 0], [0.0, 0.0])
    for got, expected in ((loglik, good_loglik), (score, good_score)):
        np.testing.assert_array_equal(got[others], expected[others])

    # In reverse, the failed solve is left out and its theta replaced: the others' share of the gradient is what it was.
    sound = jnp.isfinite(loglik)
    thetas = (jnp.where(sound[..., None], bad, 0.0), good)
    slopes = [mean_and_slope(model, theta, ranges, laws, sound)[1]["f"].network for theta in thetas]
    for got, expected in zip(*map(jax.tree.leaves, slopes)):
        assert np.abs(got).max() > 0
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("integrator", "late"),
    [
        pytest.param(cl.RK4(), 4.0, id="every fifth step"),
        pytest.param(cl.RK4(), 3.9, id="every step"),
        pytest.param(cl.RK4(), 3.97, id="off the grid"),
        pytest.param(cl.Adaptive(max_steps=200), 4.0, id="adaptive", marks=pytest.mark.nightly),
    ],
)
def test_what_comes_after_the_last_observation_of_a_system_is_nothing_to_it(integrator, late):
    """System a meets the root of a negative number at t = 0.55, would overflow soon after, and is observed before; b goes on."""
    options = {"state": "u", "parameters": {"k": cl.Positive(), "end": cl.Real()}, "initial": lambda p: 1.0}
    options |= {"closure": None, "integrator": integrator}
    problem = oscillator(physics=lambda t, s, p: p.k * s.u**2 + 0.1 * jnp.sqrt(p.end - t), **options)
    rows = [("a", 0.0, 1.1), ("a", 0.5, 2.1), ("b", 0.5, 1.2), ("b", late, 1.3)]
    theta = jnp.array([[[0.53, 0.55], [-4.6, 5.0]]])

    evaluate = eqx.filter_jit(lambda model, theta: model.evaluate(theta, {}))
    model = likelihood(problem, observed(problem, rows))
    loglik, score = evaluate(model, theta)
    alone, alone_score = evaluate(likelihood(problem, observed(problem, rows[:2])), theta[:, :1])
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(loglik[:, :1], alone, rtol=1e-3)
    np.testing.assert_allclose(score[:, :1], alone_score, rtol=1e-3)
    slope = jax.jit(jax.grad(lambda theta: model.mean(theta, {})))(theta)
    np.testing.assert_allclose(slope, score, rtol=1e-3)  # in reverse too, and finite

    longer = [rows[0], ("a", late, 2.1), *rows[2:]]
    loglik, score = evaluate(likelihood(problem, observed(problem, longer)), theta)
    np.testing.assert_array_equal(np.isfinite(loglik[0]), [False, True])
    assert not score[0, 0].any()


# Laws inside the solver


def test_visited_are_the_inputs_of_the_law():
    problem = oscillator(integrator=cl.Leapfrog())
    seen = jax.jit(lambda th: ODESolver(problem).law_inputs(th, known(problem), 0))(jnp.asarray(THETA, float))
    np.testing.assert_array_equal(seen["f"][:, 0], trajectory(problem)[:, 1])


@pytest.mark.usefixtures("float64")
def test_table_and_network_give_the_same_predictions():
    problem = oscillator(closure=cl.MLP(width=8, depth=2), integrator=cl.Leapfrog())
    laws, ranges = learned(problem)
    follow = eqx.filter_jit(lambda laws: ODESolver(problem).solution(jnp.asarray(THETA), laws, 0))
    network, table = map(follow, (laws, prepare(laws, ranges)))
    assert np.abs(network - trajectory(oscillator(closure=cl.Known(jnp.zeros_like)))).max() > 0.1
    assert np.abs(network - table).max() < 1e-4


def test_blocks_give_what_the_whole_batch_gives(monkeypatch):
    problem = oscillator(integrator=cl.Leapfrog())
    model, laws = likelihood(problem, fleet(problem)), known(problem)
    whole = jax.jit(lambda theta: model.evaluate(theta, laws))(chains())
    monkeypatch.setattr("closura.forward._likelihood.block_size", lambda solves, size: 2)  # of six, across systems
    blocked = jax.jit(lambda theta: model.evaluate(theta, laws))(chains())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), blocked, whole)


@pytest.mark.parametrize(("solves", "size"), [(1280, 320), (640, 320), (32000, 500), (7, 7), (1009, 1009)])
def test_block_size_divides(solves, size):
    assert block_size(solves, 64) == size
