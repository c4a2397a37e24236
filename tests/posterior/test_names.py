"""Every scalar by its name: in the verdict and in the summary, whatever is shared, correlated, shifted or known."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import closura as cl
from closura.diagnose import Evidence, judge
from closura.learning import Run, Settings
from closura.population import Phi
from closura.posterior import posterior_tree, summarise
from closura.runs._collect import traces_of
from closura.sampling import _convergence, convergence, convergence_if_enough

SYSTEMS, CHAINS, DRAWS = ("a", "b", "pump-3"), 16, 100
PARAMETERS = {
    "k": cl.Positive(guess=1.0),
    "rate": cl.Real(shared=True),
    "w": cl.Real(),
    "depth": cl.Positive(guess=1.0, shared=True),
    "u0": cl.Real(),
}


def lines(**changes):
    """Two straight lines; of v the noise is known, of u not."""
    options = {
        "state": ("u", "v"),
        "parameters": PARAMETERS,
        "initial": lambda p: (p.u0, p.w),
        "span": (0.0, 4.0),
        "dt": 0.5,
        "observed": ("u", "v"),
        "sigma": {"v": 0.1},
        "covariates": {"k": ["size", "age"], "u0": ["age"]},
    }
    return cl.ODE(lambda t, s, p: (p.rate * p.depth + 0.0 * s.u, p.k + 0.0 * s.v), **options | changes)


def table():
    time = np.arange(4.0)
    rows = [
        {"system": s, "time": t, "u": t, "v": t, "size": i, "age": i**2} for i, s in enumerate(SYSTEMS) for t in time
    ]
    return pd.DataFrame(rows)


def run_of(problem, hierarchy=True, population="full"):
    settings = Settings(
        chains=CHAINS, groups=2, preconditioner=None, hierarchy=hierarchy, population=population, devices=1
    )
    return Run(problem, cl.data.read_table(table()), settings)


def around(seed, *shape):
    return np.random.default_rng(seed).normal(size=(CHAINS, DRAWS, *shape)).astype(np.float32)


class Drawn:
    """Draws of a run: independent noise, of every number; `apart` moves one group away."""

    def __init__(self, run):
        self.run = run
        shared = np.array(run.problem.parameters.shared)
        theta = around(0, len(SYSTEMS), len(shared))
        self.theta = np.where(shared, theta[:, :, :1], theta)
        self.mu, self.log_tau = around(1, len(shared)), np.where(shared, -np.inf, around(2, len(shared)))
        self.mu[..., shared] = self.theta[:, :, 0, shared]
        self.slope, self.bond, self.log_sigma = around(3, 3), 0.3 * around(4, 3), around(5, 2)

    def apart(self, variable, *place):
        """Move one number of the first group away, by more than it scatters; what is shared, wherever it stands."""
        array = getattr(self, variable)
        array[(slice(0, CHAINS // 2), slice(None), *place)] += 3.0
        if variable == "theta":
            shared = np.array(self.run.problem.parameters.shared)
            self.mu[..., shared] = self.theta[:, :, 0, shared]

    def install(self):
        run = self.run
        effects = self.slope if run.problem.covariates else None
        bonds = self.bond if run.settings.population == "full" else None
        run.theta = lambda: self.theta
        run.phi = lambda: Phi(self.mu, self.log_tau, effects, bonds) if run.settings.hierarchy else ()
        run.log_sigma = lambda: self.log_sigma
        run.chunks, run.iteration = [self.theta], run.total
        return run


def contracted(check):
    """Any figures of the right names."""
    return check.figures.sel(figure="rhat", drop=True)


@pytest.fixture(scope="module")
def run():
    return run_of(lines())


# What moves, its name in the verdict, and the rows of the summary it is (a shared parameter is of every system, and of the population).
EVERY = [
    (("theta", 2, 0), "log k of system pump-3", {("pump-3", "k")}),
    (("theta", 1, 4), "u0 of system b", {("b", "u0")}),
    (("mu", 2), "mean of w in the population", {("population", "w")}),
    (("log_tau", 0), "log variance of log k in the population", {("population", "sd of log k")}),
    (("log_tau", 2), "log variance of w in the population", {("population", "sd of w")}),
    (("log_tau", 4), "log variance of u0 in the population", {("population", "sd of u0")}),
    (
        ("theta", slice(None), 3),
        "log depth, which all systems share",
        {(system, "depth") for system in (*SYSTEMS, "population")},
    ),
    (("slope", 1), "shift of log k by age in the population", {("population", "shift of log k by age")}),
    (("slope", 2), "shift of u0 by age in the population", {("population", "shift of u0 by age")}),
    (("bond", 0), "correlation of log k and w in the population", {("population", "correlation of log k and w")}),
    (("log_sigma", 0), "log sigma of u", {("population", "sigma of u")}),
]


@pytest.mark.parametrize(("moved", "name", "rows"), EVERY, ids=[name for _, name, _ in EVERY])
def test_verdict_and_summary_name_the_scalar_that_is_off(run, moved, name, rows):
    drawn = Drawn(run)
    drawn.apart(*moved)
    run = drawn.install()
    check = run.convergence()
    said = judge(run, Evidence(check, 1.0, {})).problems
    assert f"worst for {name}: chains disagree" in said[0]
    summary = summarise(tree_of(run), run.problem.parameters, check, contracted(check))
    off = summary[summary["rhat"] > 0.5 * (1 + check.rhat_max)]
    assert set(zip(off["system"], off["parameter"])) >= rows
    assert check.rhat_max > 1.5
    if moved[0] != "bond":  # which moves other correlations too
        assert set(zip(off["system"], off["parameter"])) == rows


def tree_of(run):
    return posterior_tree(run, np.asarray(run.problem.parameters.to_physical(run.theta())), xr.Dataset(), {}, [])


def test_every_scalar_is_there_once(run):
    """Three systems of three parameters, two shared, three means, variances, shifts and correlations, and one size of noise."""
    draws = Drawn(run).install().draws()
    sizes = {name: part[0, 0].size for name, part in draws.data_vars.items()}
    once = {"theta": 9, "shared": 2, "mu": 3, "log_tau": 3, "covariate_effect": 3, "correlation": 3, "log_sigma": 1}
    assert sizes == once
    assert draws["pair"].values.tolist() == ["log k and w", "log k and u0", "w and u0"]
    assert draws["quantity"].values.tolist() == ["u"]
    assert all(np.isfinite(part).all() for part in draws.data_vars.values())
    assert all(part.dims[:2] == ("chain", "draw") for part in draws.data_vars.values())


def test_names_hold_the_numbers_of_the_posterior(run):
    """The same draws under the names of `posterior.nc`."""
    run = Drawn(run).install()
    draws, tree = run.draws(), tree_of(run)
    posterior = tree["posterior"].to_dataset()
    theta = draws["theta"].sel(system="pump-3")
    np.testing.assert_allclose(np.exp(theta.sel(parameter="k")), posterior["k"].sel(system="pump-3"), rtol=1e-5)
    np.testing.assert_array_equal(theta.sel(parameter="u0"), posterior["u0"].sel(system="pump-3"))
    depth = draws["shared"].sel(shared_parameter="depth")
    np.testing.assert_allclose(np.exp(depth), posterior["depth"].sel(system="b"), rtol=1e-5)
    np.testing.assert_array_equal(draws["mu"].sel(parameter="w"), posterior["mu"].sel(parameter="w"))
    pair = posterior["correlation"].sel(parameter="u0", other="k")
    np.testing.assert_allclose(draws["correlation"].sel(pair="log k and u0"), pair, rtol=1e-6)
    sigma = posterior["sigma"].sel(quantity="u")
    np.testing.assert_allclose(np.exp(draws["log_sigma"].sel(quantity="u")), sigma, rtol=1e-6)
    assert np.isnan(posterior["sigma"].sel(quantity="v")).all()
    unit = np.std([0.0, 1.0, 4.0])
    effect = draws["covariate_effect"].sel(effect="u0 by age")
    np.testing.assert_allclose(effect / unit, posterior["shift"].sel(effect="u0 by age"), rtol=1e-5)
    assert float(posterior["tau"].sel(parameter="depth").max()) == 0


def test_what_a_run_does_not_have_has_no_name():
    one = Drawn(run_of(lines(covariates={}), hierarchy=False, population="diagonal")).install()
    assert list(one.draws().data_vars) == ["theta", "shared", "log_sigma"]
    everything = {name: cl.Real(shared=True) for name in PARAMETERS}
    same = Drawn(run_of(lines(parameters=everything, covariates={}, sigma=0.1), population="diagonal"))
    same.log_sigma, same.run.settings = None, same.run.settings.model_copy(update={"hierarchy": False})
    same.apart("theta", slice(None), 2)
    run = same.install()
    check = run.convergence()
    assert check.worst("rhat").name == "w, which all systems share"
    summary = summarise(tree_of(run), run.problem.parameters, check, contracted(check))
    assert set(summary.loc[summary["rhat"] > 1.5, "parameter"]) == {"w"}
    assert not check.enough


def test_what_never_moved_has_no_figures_and_is_not_named(run):
    drawn = Drawn(run)
    drawn.theta[:, :, 0, 0] = 1.0
    drawn.apart("mu", 0)
    check = drawn.install().convergence()
    assert np.isnan(check.figures["theta"].sel(system="a", parameter="k", figure="rhat"))
    assert check.worst("rhat").name == "mean of log k in the population"


def test_very_many_numbers_are_thinned_alike(run, monkeypatch):
    run = Drawn(run).install()
    whole = run.convergence()
    monkeypatch.setattr("closura.sampling._convergence.DIAGNOSED_NUMBERS", 1000)
    assert whole.least.value == run.convergence().least.value  # a hundred draws a chain are kept
    monkeypatch.setattr(run, "theta", lambda: np.repeat(around(0, 3, 5), 4, axis=1))
    monkeypatch.setattr(run, "phi", lambda: ())
    monkeypatch.setattr(run, "log_sigma", lambda: None)
    again = run.convergence()
    assert again.least.value == pytest.approx(whole.least.value, rel=0.3)
    assert list(again.figures.data_vars) == ["theta", "shared"]


def test_whether_draws_suffice_is_asked_until_one_says_no(run, monkeypatch):
    run, asked, figures = Drawn(run).install(), [], _convergence._figures
    monkeypatch.setattr(_convergence, "_figures", lambda draws, groups: asked.append(0) or figures(draws, groups))
    monkeypatch.setattr(_convergence, "RHAT_LIMIT", 1.5)
    monkeypatch.setattr(_convergence, "ESS_LEAST", 10)
    draws, groups = run.draws(), run.groups
    found = convergence_if_enough(draws, groups)
    assert len(asked) == len(draws.data_vars)
    xr.testing.assert_identical(found.figures, convergence(draws, groups).figures)
    asked.clear()
    monkeypatch.setattr(_convergence, "ESS_LEAST", 1e9)
    assert convergence_if_enough(draws, groups) is None
    assert len(asked) == 1


def test_the_report_shows_every_variable_above_the_systems(run):
    truth = cl.Truth(
        np.arange(15.0).reshape(3, 5) * [1, 0, 1, 0, 1] + [0, 7, 0, 8, 0], np.arange(5.0), np.full(5, np.e)
    )
    run = Drawn(run).install()
    shown = {part.title: part for part in traces_of(run, truth)}
    assert {title: part.labels for title, part in shown.items()} == {
        "what all systems share": ("rate", "log depth"),
        "mean μ": ("log k", "w", "u0"),
        "log variance log τ": ("log k", "w", "u0"),
        "shifts by covariates": ("log k by size", "log k by age", "u0 by age"),
        "correlations": ("log k and w", "log k and u0", "w and u0"),
        "log size of the noise": ("u",),
    }
    assert shown["what all systems share"].truth.tolist() == [7, 8]
    assert shown["mean μ"].truth.tolist() == [0, 2, 4]
    np.testing.assert_allclose(shown["log variance log τ"].truth, 1.0)
    assert shown["correlations"].truth is None
    np.testing.assert_array_equal(shown["mean μ"].draws[..., 1], run.phi().mu[..., 2])
    assert all(part.truth is None for part in traces_of(run, None))
