"""Checkpoints, and what a result can be asked."""

import warnings
from copy import copy
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import closura as cl
from closura.equations import ProblemError
from closura.forward import likelihood
from closura.learning import Draws, Run, Settings
from closura.parameters import Parameters
from closura.population import Phi
from closura.posterior._summary import summarise, true_values
from closura.runs import collect, restore, save, store
from closura.runs._checkpoint import ASIDE
from closura.sampling import Convergence, convergence, named_draws

pytestmark = pytest.mark.xdist_group("folder")

# Checkpoints


def test_checkpoint_survives_a_death_while_the_next_is_written(tmp_path, fresh):
    store(fresh, tmp_path)
    (tmp_path / ASIDE).write_bytes(b"half")
    again = copy(fresh)
    again.state = again.state._replace(law=jax.tree.map(np.zeros_like, fresh.state.law))
    restore(again, tmp_path)
    jax.tree.map(np.testing.assert_array_equal, again.state.law, fresh.state.law)
    store(again, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.npz"}


@pytest.mark.parametrize("damage", ["cut short", "part missing", "other shape"])
def test_damaged_checkpoint_says_so(tmp_path, fresh, damage):
    store(fresh, tmp_path)
    place = tmp_path / "checkpoint.npz"
    with np.load(place) as stored:
        arrays = dict(stored)
    if damage == "cut short":
        place.write_bytes(place.read_bytes()[:1000])
    elif damage == "part missing":
        np.savez(place, **{name: arrays[name] for name in arrays if name != "state.chains.theta"})
    else:
        np.savez(place, **(arrays | {"state.chains.theta": arrays["state.chains.theta"][..., None]}))
    before = dict(vars(fresh))
    with pytest.raises(ProblemError, match=r"is damaged, or does not fit .*; start again with --overwrite"):
        restore(fresh, tmp_path)
    assert all(vars(fresh)[key] is value for key, value in before.items())


def test_draws_are_stored_by_name(tmp_path, fresh, monkeypatch):
    def chunk(seed, draws):
        random, place = np.random.default_rng(seed), (draws, 4, 8)
        phi = Phi(random.normal(size=(*place, 3)), random.normal(size=(*place, 3)))
        return Draws(random.normal(size=(*place, 3, 3)), phi, None, ())

    chunks = [chunk(0, 5), chunk(1, 3)]
    monkeypatch.setattr(fresh, "chunks", chunks)
    theta, phi = fresh.theta(), fresh.phi()
    store(fresh, tmp_path)
    with np.load(tmp_path / "checkpoint.npz") as stored:
        assert {name for name in stored.files if "draws" in name} == {
            "draws.theta",
            "draws.phi.mu",
            "draws.phi.log_tau",
        }
        np.testing.assert_array_equal(stored["draws.phi.log_tau"][5:], chunks[1].phi.log_tau)
    monkeypatch.setattr(fresh, "chunks", [])
    restore(fresh, tmp_path)
    np.testing.assert_array_equal(fresh.theta(), theta)
    jax.tree.map(np.testing.assert_array_equal, fresh.phi(), phi)
    assert fresh.log_sigma() is None


def test_restored_history_keeps_its_phases_apart(tmp_path, fresh, monkeypatch):
    def entry(phase, first, count):
        return {"phase": np.full(count, phase), "iteration": first + np.arange(count), "loglik": np.zeros(count)}

    monkeypatch.setattr(fresh, "history", [entry("learn", 0, 3), entry("learn", 3, 3), entry("tune", 6, 2)])
    monkeypatch.setattr(fresh, "began", fresh.began - 100.0)
    store(fresh, tmp_path)
    monkeypatch.setattr(fresh, "began", fresh.began + 100.0)
    began = fresh.began
    restore(fresh, tmp_path)
    assert [(h["phase"][0], len(h["loglik"])) for h in fresh.history] == [("learn", 6), ("tune", 2)]
    assert began - fresh.began > 99  # seconds count from the first start


# What a result can be asked


def test_result_of_a_run_that_has_not_begun(result, fleet):
    assert str(result).startswith("NOT CONVERGED: do not use these results yet.\nStopped at iteration 0 of 30")
    k = np.exp(result.posterior["mu"].values[..., 0].astype(float))
    assert f"  k                        {k.mean():.4g} ± {k.std():.2g}" in str(result)
    assert "sd of log k" in str(result)
    assert not result.converged
    assert result.posterior["k"].dims == ("chain", "draw", "system")
    assert result.metrics["rhat_max"] is None
    assert result.metrics["finished"] is False
    assert result.history.empty


def test_chains_that_do_not_move_are_named(fresh):
    """From the run to the verdict: one system of one group stood still, and its step size ran away."""
    run, random = copy(fresh), np.random.default_rng(0)
    theta = np.asarray(run.theta().mean((0, 1)) + 0.01 * random.normal(size=(20, 4, 8, 3, 3)), np.float32)
    theta[:, 2, :, 1] = theta[0, 2, :, 1]
    phi = Phi(theta.mean(-2), np.log(theta.var(-2)))
    run.chunks, run.iteration = [Draws(theta, phi, None, ())], run.total
    log_step = np.zeros((4, 3), np.float32)
    log_step[2, 1] = 15.0
    tuning, unused = run.state.tuning, copy(run)
    run.state = run.state._replace(tuning=tuning | {"theta": tuning["theta"]._replace(log_step=log_step)})
    # Steps by which nothing is moved, because proposals are independent, are no one's concern.
    unused.state = run.state
    assert not any("step size" in problem for problem in collect(unused).verdict.problems)
    run.setup = replace(run.setup, handed_back=(1,))
    said = collect(run).verdict.problems
    assert said[0].startswith("The step size of system 2 in group 2 ran away to 3.3e+06 (usual here: 1)")
    assert said[1].startswith("Draws of k, u0, v0 of 2 in group 2 repeat 100% of the time (elsewhere 0%)")


def test_closure_takes_numbers_and_arrays(result):
    assert isinstance(result.closure(3.0), float)
    np.testing.assert_allclose(result.closure(np.array([[1.0, 3.0]]))[0, 1], result.closure(3.0), rtol=1e-6)
    np.testing.assert_allclose(result.closures["f"](3), result.closure(3.0))
    with pytest.raises(TypeError, match="this closure takes 1 inputs, got 2"):
        result.closure(1.0, 2.0)


@pytest.mark.parametrize("laws", [{}, {"damping": abs, "spring": abs}])
def test_closure_by_name_when_there_is_not_one(result, monkeypatch, laws):
    monkeypatch.setattr(result, "closures", laws)
    with pytest.raises(ValueError, match=f"has {len(laws)} closures .*use result.closures"):
        result.closure(1.0)


def test_summary(result):
    table = result.summary()
    own = table[table["level"] == "system"]
    assert own[["system", "parameter"]].iloc[[0, 4, 8]].to_numpy().tolist() == [["1", "k"], ["2", "u0"], ["3", "v0"]]
    draws = result.posterior["u0"].sel(system="2")
    row = own[(own["system"] == "2") & (own["parameter"] == "u0")].iloc[0]
    assert row["mean"] == pytest.approx(float(draws.mean()), rel=1e-4)
    assert row["2.5%"] < row["mean"] < row["97.5%"]
    above = table[table["level"] == "population"]
    assert above["parameter"].tolist() == ["k", "u0", "v0", "sd of log k", "sd of u0", "sd of v0"]
    assert set(above["system"]) == {"population"}
    k = np.exp(result.posterior["mu"].values[..., 0])
    assert above["mean"].iloc[0] == pytest.approx(k.mean(), rel=1e-5)
    spread = np.sqrt(result.posterior["tau"].values[..., 2])
    assert above["97.5%"].iloc[5] == pytest.approx(np.quantile(spread, 0.975), rel=1e-5)
    table["mean"] = 0.0
    assert result.summary()["mean"].ne(0).all()  # a table of one's own


def made_tree(chains=8, draws=50, system="population"):
    """Two systems of two parameters, with all a population can have; every number is told from the others by its mean."""
    random, dims = np.random.default_rng(0), ("chain", "draw")

    def around(mean, *shape):
        return np.asarray(mean) + 0.01 * random.normal(size=(chains, draws, *shape))

    own = {n: ((*dims, "system"), around([1 + 10 * i, 2 + 10 * i], 2)) for i, n in enumerate(("k", "u0"))}
    half = np.broadcast_to(np.eye(2) * 0.5 + 0.5, (chains, draws, 2, 2))
    above = {
        "mu": ((*dims, "parameter"), around([0.0, 7.0], 2)),
        "tau": ((*dims, "parameter"), around([4.0, 9.0], 2)),
        "shift": ((*dims, "effect"), around([0.3], 1)),
        "correlation": ((*dims, "parameter", "other"), half + around(0.0, 2, 2)),
        "sigma": ((*dims, "quantity"), around([np.nan, 0.2], 2)),
    }
    coords = {"system": ["1", system], "effect": ["k by size"], "quantity": ["u", "v"]}
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset(own | above, coords | {"parameter": ["k", "u0"], "other": ["k", "u0"]})}
    )


def made_check(parameters, system="population"):
    """Figures of all that the tree holds: of its first scalar 1, of the next 2, and so on; R-hat half more, effective draws 100 times."""
    shape = (2, 4)
    phi = Phi(*(np.zeros((*shape, count)) for count in (2, 2, 1, 1)))
    theta, noise = np.zeros((*shape, 2, 2)), {"v": np.zeros(shape)}
    check = convergence(named_draws(theta, phi, noise, parameters, ["1", system], [("k", "size")]), np.arange(2))
    start = 0
    for variable in check.figures.data_vars.values():
        numbers = (1.0 + start + np.arange(variable[0].size)).reshape(variable.shape[1:])
        variable.values[:] = numbers + 0.5, numbers, numbers + 0.5, 100 * numbers, 200 * numbers
        start += numbers.size
    return check


def made_contraction(check):
    """Of the first scalar 0.01, of the next 0.02, and so on, times eight."""
    return 0.08 * check.figures.sel(figure="rhat_chains", drop=True)


def test_summary_of_all_a_population_can_have():
    parameters = Parameters({"k": cl.Positive(), "u0": cl.Real()})
    # Theta, mean, log variance, shift, correlation, noise.
    check = made_check(parameters)
    table = summarise(made_tree(), parameters, check, made_contraction(check))
    assert table[["level", "system", "parameter"]].agg("/".join, axis=1).tolist() == [
        "population/population/k",
        "population/population/u0",
        "population/population/sd of log k",
        "population/population/sd of u0",
        "population/population/shift of log k by size",
        "population/population/correlation of log k and u0",
        "population/population/sigma of v",
        "system/1/k",
        "system/1/u0",
        "system/population/k",
        "system/population/u0",
    ]
    assert table["mean"].tolist() == pytest.approx([1, 7, 2, 3, 0.3, 0.5, 0.2, 1, 11, 2, 12], abs=0.01)
    assert table["rhat"].tolist() == [5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 1.5, 2.5, 3.5, 4.5]
    assert table["ess_tail"].tolist() == (200 * (table["rhat"] - 0.5)).tolist()
    np.testing.assert_allclose(table["contraction"], 0.08 * (table["rhat"] - 0.5))
    assert table["decided_by"].tolist() == ["prior"] * 2 + ["data"] * 5 + ["population"] * 4


def test_figures_go_by_name_whatever_the_order():
    parameters = Parameters({"k": cl.Positive(), "u0": cl.Real()})
    check = made_check(parameters)
    turned = Convergence(check.figures[sorted(check.figures.data_vars)].isel(system=[1, 0], parameter=[1, 0]))
    known = made_contraction(check)
    one, other = (summarise(made_tree(), parameters, each, known) for each in (turned, check))
    pd.testing.assert_frame_equal(one, other)


def test_truth_beside_the_summary():
    parameters, tree = Parameters({"k": cl.Positive(), "u0": cl.Real()}), made_tree()
    check = made_check(parameters)
    table = summarise(tree, parameters, check, made_contraction(check))
    truth = cl.Truth(np.array([[0.0, 2.0], [1.0, 3.0]]), mu=np.array([0.0, 5.0]), tau=np.array([4.0, 9.0]))
    known = true_values(table, parameters, truth)
    np.testing.assert_allclose(known[:4], [1, 5, 2, 3])
    assert np.isnan(known[4:7]).all()
    np.testing.assert_allclose(known[7:], [1, 2, np.e, 3], rtol=1e-6)
    assert true_values(table, parameters, None) is None


@pytest.mark.parametrize("name", ["closure", "fit", "checks", "population"])
def test_figures_on_demand(result, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(result, f"plot_{name}")().axes


def test_saving_twice_gives_the_same_numbers(tmp_path, result):
    save(result, tmp_path / "a")
    save(result, tmp_path / "b")
    for name in ("closure.csv", "summary.csv", "checks.csv", "data.csv", "closure.eqx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# The fit and the data


def oscillator() -> cl.ODE:
    return cl.ODE(
        lambda t, state, p: (state.v, -(p.omega**2) * state.u),
        state=("u", "v"),
        parameters={"omega": cl.Positive(guess=5.0)},
        initial=lambda p: (1.0, 0.0),
        span=(0.0, 4.0),
        dt=0.1,
        observed="u",
        sigma=0.01,
        integrator=cl.RK4(),
    )


def test_misfit_of_the_truth_between_grid_points():
    """Data from the model itself leave its own noise; straight lines between grid points would miss them by twice that."""
    problem, theta, random = oscillator(), np.log(5.0), np.random.default_rng(0)
    counts = (120, 40)
    parts = [{"system": str(k), "time": np.sort(random.uniform(0, 4, n)), "u": 0.0} for k, n in enumerate(counts)]
    frame = pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)
    where = cl.Observations.from_frame(frame).matched(problem.observed, {"time": problem.span}, problem.sigma)
    target = likelihood(problem, where)
    exact = np.asarray(jax.jit(lambda t: target._batched(target.forward, {})(t)[0])(jnp.full((1, 2, 1), theta)))
    frame["u"] = exact[where.mask] + random.normal(0, 0.01, len(frame))

    settings = Settings(hierarchy=False, devices=1, iterations=20, chains=16, draws=4, extend=0)
    run = Run(problem, cl.Observations.from_frame(frame), settings)
    run.chunks = [Draws(np.full((4, 4, 4, 2, 1), theta), (), None, ())]
    assert collect(run).metrics["residual_chi_square"] == pytest.approx(1.0, abs=0.25)


def test_warning_of_the_published_kernel_is_true(fleet, tmp_path):
    said = "biases the chains while the closure is learned .kept draws use a frozen covariance and are not biased by it"
    with pytest.warns(UserWarning, match=said), pytest.raises(cl.DataError):
        cl.fit(fleet[0], tmp_path / "absent.csv", covariance="self")
