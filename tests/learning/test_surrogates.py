"""Runs on surrogates: each trains while it samples, says how wrong it is, and can be corrected by the solver."""

import jax
import numpy as np
import pandas as pd
import pytest

import closura as cl
from closura.equations import unit_scaling
from closura.forward import SURROGATES
from closura.laws import prepare
from closura.learning import Run
from closura.learning._settings import SettingsError, make_settings
from closura.problems import burgers, darcy, mass_damper
from closura.runs import collect, restore, store

pytestmark = pytest.mark.usefixtures("hardly_optimised")

SMALL = {"chains": 16, "groups": 2, "iterations": 20, "chunk": 10, "tune": 10, "draws": 5, "thin": 1, "extend": 0}
SMALL |= {"inner_steps": 2, "batch": 8, "replay": 2, "gradient_chains": 2}
SIZES = {"basis": {"width": 16, "depth": 2, "rank": 12}, "pinn": {"width": 16, "depth": 2}}


@pytest.fixture(scope="module")
def fleet():
    return mass_damper.simulate(3, 0)


def start(fleet, kind, **settings):
    problem = mass_damper.problem.with_closure(cl.MLP(width=8, depth=2))
    network = SIZES.get(kind, {"width": 6, "modes": 6, "depth": 2})
    return Run(problem, fleet[0], make_settings({"forward": kind, "network": network} | SMALL | settings))


def finish(run):
    while not run.finished:
        run.advance()
    return run


@pytest.fixture(scope="module")
def finished(fleet):
    """A run on a basis, as it ends."""
    return finish(start(fleet, "basis"))


@pytest.mark.parametrize(
    "kind", [kind if kind == "basis" else pytest.param(kind, marks=pytest.mark.nightly) for kind in SURROGATES]
)
def test_every_surrogate_runs_and_is_spot_checked(fleet, kind):
    run = start(fleet, kind)
    before = jax.device_get(run.state.surrogate.weights)
    result = collect(finish(run), fleet[1])
    after = jax.device_get(run.state.surrogate.weights)
    assert all(np.any(a != b) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after)))
    metrics = result.metrics
    for name in ("surrogate_error", "surrogate_fit_mse", "surrogate_mse", "solver_mse"):
        assert metrics[name] > 0, name
    assert metrics["second_stage_acceptance"] is None
    assert np.all(np.isfinite(result.history["surrogate_loss"][:20]))
    # So few steps cannot do: the verdict must not call this converged, and must say that the surrogate is off.
    assert metrics["surrogate_error"] > 0.5
    assert any("The surrogate is off from the solver by" in line for line in metrics["warnings"])
    assert np.all(np.isfinite(run.theta()))


@pytest.mark.nightly
def test_spot_check_is_what_it_says(fleet, finished):
    run = finished
    metrics = collect(run, fleet[1]).metrics
    laws, solver = prepare(run.laws, run.state.ranges), run.setup.exact.forward
    theta = np.asarray(fleet[1].theta, np.float32)
    said = jax.vmap(lambda t: run.network.states(t, 0))(theta)[..., 0]
    solved = jax.vmap(lambda t: solver.solution(t, laws, 0))(theta)[..., 0]
    truth = {"f": cl.Known(mass_damper.laws["f"]).build(jax.random.key(0), unit_scaling(1))}
    true = jax.vmap(lambda t: solver.solution(t, truth, 0))(theta)[..., 0]
    assert metrics["surrogate_mse"] == pytest.approx(float(np.mean((said - true) ** 2)), rel=1e-3)
    assert metrics["solver_mse"] == pytest.approx(float(np.mean((solved - true) ** 2)), rel=1e-3)


def test_corrected_by_the_solver_draws_are_of_the_exact_posterior(fleet):
    """A surrogate hardly trained, corrected: what each chain holds as exact is the solver's likelihood where it stands."""
    run = finish(start(fleet, "basis", delayed_acceptance=True, iterations=100))
    position = run.state.chains.theta
    flat = position.reshape(-1, *position.shape[2:])
    exact = run.setup.exact.values(flat, prepare(run.laws, run.state.ranges)).reshape(position.shape[:3])
    np.testing.assert_allclose(run.state.chains.cache.exact, exact, rtol=1e-3, atol=1e-2)
    metrics = collect(run, fleet[1]).metrics
    assert 0 < metrics["second_stage_acceptance"] < 1
    assert not any("The surrogate is off from the solver" in line for line in metrics["warnings"])


def test_exact_on_the_solver_is_nothing_new(fleet):
    run = start(fleet, "solver", delayed_acceptance=True, network={})
    assert run.state.chains.cache.exact is None


@pytest.mark.nightly
def test_stop_and_go_on(tmp_path, fleet, finished):
    first = start(fleet, "basis")
    first.advance()
    store(first, tmp_path)
    again = start(fleet, "basis")
    restore(again, tmp_path)
    np.testing.assert_allclose(finish(again).theta(), finished.theta(), rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
def test_without_hierarchy(fleet):
    run = finish(start(fleet, "pinn", hierarchy=False, newcomers=1))
    assert run.phi() == ()
    assert np.all(np.isfinite(run.theta()))


@pytest.mark.nightly
def test_a_known_law_needs_no_slope(fleet):
    problem = mass_damper.oracle()
    settings = make_settings({"forward": "basis", "network": SIZES["basis"]} | SMALL)
    run = finish(Run(problem, fleet[0], settings))
    assert np.all(np.isfinite(run.theta()))
    assert run.network is not None


def test_defaults_and_presets():
    assert make_settings({"forward": "pinn"}).surrogate_rate == 5e-3
    assert make_settings({"forward": "pinn"}).hypergradient == "adjoint"
    assert make_settings({"forward": "pinn", "hypergradient": "unrolled"}).hypergradient == "unrolled"
    paper = make_settings({"forward": "fno-supervised", "preset": "paper"})
    assert (paper.chains, paper.inner_steps, paper.step_size) == (200, 20, 0.010)
    assert paper.network == {"width": 32, "modes": 16, "depth": 4}
    assert (paper.blocks, paper.covariance, paper.hypergradient) == ("joint", "self", "unrolled")
    with pytest.raises(
        SettingsError, match="the paper has no forward='basis' here; preset='paper' exists for solver, fno"
    ):
        make_settings({"forward": "basis", "preset": "paper"})
    with pytest.raises(SettingsError, match="no forward='pinn' here; preset='paper' exists for fno-supervised"):
        make_settings({"forward": "pinn", "preset": "paper"}, burgers.problem)
    field = make_settings({"forward": "pinn", "preset": "paper"}, darcy.problem)
    assert (field.chains, field.inner_steps, field.step_size, field.learning_rate) == (160, 20, 0.020, 5e-4)
    assert make_settings({"forward": "basis"}, darcy.problem).groups == 2


@pytest.mark.nightly
def test_the_papers_settings_run(fleet):
    """A smoke test: smaller networks on three systems, two iterations, fewer chains."""
    few = {"iterations": 2, "draws": 2, "gradient_chains": 2, "chains": 40}
    few |= {"network": {"width": 6, "modes": 4, "depth": 2}}
    settings = make_settings({"forward": "fno-supervised", "preset": "paper"} | few)
    run = Run(mass_damper.problem, fleet[0], settings)
    step = float(np.exp(run.log_steps).max())
    finish(run)
    assert float(np.exp(run.log_steps).max()) == pytest.approx(step)
    assert np.all(np.isfinite(run.theta()))


def test_sizes_a_network_does_not_have(fleet):
    with pytest.raises(cl.ProblemError, match="a network of forward='pinn' has no modes; it has width, depth, hard"):
        start(fleet, "pinn", network={"modes": 3})


def exploding():
    """Systems that reach infinity in finite time for many draws of the prior, which a network does not mind."""
    problem = cl.ODE(
        lambda t, state, p, f: p.r * state.u**3 - f(state.u),
        state="u",
        parameters={
            "r": cl.Positive(guess=0.1, width=1.0, spread=0.5),
            "u0": cl.Positive(guess=1.0, width=0.3, spread=0.3),
        },
        initial=lambda p: (p.u0,),
        span=(0.0, 4.0),
        dt=0.05,
        closure=cl.MLP(width=8, depth=1),
        observed="u",
        sigma=0.05,
    )
    times = np.linspace(0.5, 4.0, 8)
    frames = [pd.DataFrame({"system": k, "time": times, "u": (1 + 0.1 * k) * np.exp(-0.1 * times)}) for k in range(3)]
    return problem, cl.read_table(pd.concat(frames))


@pytest.mark.parametrize("kind", ["basis", "pinn"])
@pytest.mark.nightly
def test_the_law_learns_where_the_solver_fails_at_some_draws(kind):
    problem, data = exploding()
    settings = SMALL | {"iterations": 40, "chunk": 20, "network": SIZES[kind], "forward": kind, "gradient_chains": 4}
    run = Run(problem, data, make_settings(settings))
    while run.phase == "learn" and run.diverged is None:
        run.advance()
    exact = run.setup.exact.values(jax.numpy.asarray(run.some_theta()), prepare(run.laws, run.state.ranges))
    assert not np.all(np.isfinite(exact)), "the test needs draws that cannot be solved"
    assert int(run.state.law.optimiser.count) == 40


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ("basis", {"learning_rate": 1e6}),
        pytest.param("pinn", {"surrogate_rate": 1e6}, marks=pytest.mark.nightly),
    ],
)
def test_a_law_or_a_network_that_explodes_is_noticed(fleet, kind, rates):
    run = start(fleet, kind, iterations=60, **rates)
    while run.phase == "learn" and run.diverged is None:
        run.advance()
    assert run.diverged is not None
    assert next(iter(rates)) in run.diverged
    theta = run.theta()
    assert np.abs(theta).max() < 100, "the run stands where it was before"


@pytest.mark.nightly
def test_newcomers_with_joint_blocks(fleet):
    run = start(fleet, "fno-physics", newcomers=1, blocks="joint", groups=1, chains=40)
    run.advance()
    assert np.all(np.isfinite(run.theta()))


@pytest.mark.parametrize(
    ("kind", "network", "says"),
    [
        ("fno-physics", {"width": 0}, "width=0 of forward='fno-physics' must be a whole number from 1 up"),
        ("fno-physics", {"modes": 500}, "too coarse for 500 modes"),
        ("basis", {"rank": 2.5}, "rank=2.5 of forward='basis' must be a whole number"),
        ("basis", {"depth": True}, "depth=True"),
        ("pinn", {"hard": "yes"}, "hard='yes' of forward='pinn' must be true or false"),
        ("solver", {"width": 10}, "network is for surrogates, and forward='solver' has none"),
    ],
)
def test_bad_sizes_are_named(fleet, kind, network, says):
    with pytest.raises((cl.ProblemError, ValueError), match=says):
        start(fleet, kind, network=network)


def test_a_grid_too_coarse_for_a_network(fleet):
    problem = cl.ODE(
        lambda t, s, p, f: -f(s.u) * p.k,
        state="u",
        parameters={"k": cl.Positive()},
        initial=lambda p: 1.0,
        span=(0.0, 8.0),
        dt=4.0,
        closure=cl.MLP(),
        observed="u",
        sigma=0.1,
    )
    with pytest.raises(cl.ProblemError, match=r"3 points is too coarse for a surrogate, .* choose a smaller dt"):
        Run(problem, fleet[0], make_settings({"forward": "basis"}))
