"""A fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t, as figures and report get it."""

from dataclasses import replace

import numpy as np
import pandas as pd

from closura.show import BandView, ClosureView, ResidualView, TraceView, View

TIMES = np.linspace(0, 8, 161)
EVIL = "<script>alert(1)</script>"
LOG_LABELS = {"bar_label": "data ± σ of the logarithm", "residual_label": "log(data / fit) / σ"}
LOG_LABELS |= {"scale_label": "Of the measurement noise: the standard deviation of its logarithm."}
PANELS = {"population": 6, "fit": 6, "checks": 2, "closure": 2, "traces": 9, "hyper_traces": 6, "posteriors": 3}


def damping(v):
    return 0.6 * v + 0.06 * v**3


def solve(theta):
    """Trajectories (..., state, time) by the midpoint rule; theta = (log k, u0, v0)."""
    k, step = np.exp(theta[..., 0]), TIMES[1] - TIMES[0]

    def slope(t, y):
        return np.stack([y[1], 10 * np.sin(t) - damping(y[1]) - k * y[0]])

    path = [np.stack([theta[..., 1], theta[..., 2]])]
    for t in TIMES[:-1]:
        path.append(path[-1] + step * slope(t + step / 2, path[-1] + step / 2 * slope(t, path[-1])))
    return np.moveaxis(np.stack(path), (0, 1), (-1, -2))


def correlated(rng, *shape):
    """Draws with a little memory along axis 1, as a sampler leaves them."""
    noise = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        noise[:, draw] = 0.6 * noise[:, draw - 1] + 0.8 * noise[:, draw]
    return noise


def make_law(visited):
    v, (low, high) = np.linspace(-7, 7, 200), np.quantile(visited, [0.005, 0.995])
    density = np.exp(-0.5 * ((v[:, None] - visited) / 0.4) ** 2).mean(1) / (0.4 * np.sqrt(2 * np.pi))
    learned = damping(v) + 0.15 * np.sin(1.3 * v) + 0.4 * np.maximum(v - high, 0) ** 2
    return ClosureView("f", ("v",), v[:, None], learned, density, (low, high), damping(v))


def banded(law):
    """The same law as a posterior over functions."""
    rng, x = np.random.default_rng(2), law.grid[:, 0]
    draws = law.value + 0.1 * (rng.normal(size=(200, 1)) + rng.normal(size=(200, 1)) * x + 0.1 * x**2)
    slopes = np.gradient(draws, x, axis=1)
    ends = [np.quantile(part, [0.025, 0.975], axis=0) for part in (draws, slopes)]
    prior_sd = 3 + x**2
    band = BandView(
        draws.std(0), *ends[0], slopes.mean(0), *ends[1], draws[:20], prior_sd, (-1.96 * prior_sd, 1.96 * prior_sd)
    )
    return replace(law, value=draws.mean(0), supported=law.inside, band=band)


def summary_of(systems, physical, mu):
    """As a result makes it, with convergence figures of no chains in particular."""

    def rows(level, system, parameter, draws):
        flat = draws.reshape(-1, len(parameter))
        low, high = np.quantile(flat, [0.025, 0.975], axis=0)
        columns = {"mean": flat.mean(0), "sd": flat.std(0), "2.5%": low, "97.5%": high}
        chains = {"rhat": 1.004, "ess_bulk": np.nan, "ess_tail": 876.5}
        return pd.DataFrame({"level": level, "system": system, "parameter": parameter, **columns, **chains})

    names = ["k", "u0", "v0"]
    typical = np.concatenate([np.exp(mu[..., :1]), mu[..., 1:]], -1)
    own = rows("system", np.repeat(systems, 3), names * len(systems), physical)
    return pd.concat([rows("population", "population", names, typical), own], ignore_index=True)


def make_residuals(rng, times, quantity="u"):
    x = np.sort(times)
    runs = np.array_split(np.arange(x.size), 8)
    residual, expected = rng.normal(size=x.size), np.linspace(-2.5, 2.5, 50)
    return ResidualView(
        quantity=quantity,
        along="time",
        x=x,
        residual=residual,
        odd=x == x[-1],
        run_x=np.array([x[run].mean() if run.size else 0.0 for run in runs]),
        run_mean=np.array([residual[run].mean() if run.size else 0.0 for run in runs]),
        run_band=np.full(8, 0.5),
        expected=expected,
        low=expected - 0.3,
        high=expected + 0.3,
        ordered=1.1 * expected,
    )


def make_checks(systems):
    kinds = ["chi_square", "largest", "autocorrelation", "inside"]
    rows = [("fleet", "", "u", kind) for kind in [*kinds, "pattern"]]
    rows += [("system", name, "", kind) for name in systems for kind in kinds]
    table = pd.DataFrame(rows, columns=["level", "system", "quantity", "check"])
    figures = {"observations": 13, "value": 1.25, "low": 0.5, "high": 1.5, "p": 0.2, "p_adjusted": 0.4}
    return table.assign(**figures, off=(table["system"] == systems[0]) & (table["check"] == "largest"))


def make_view(systems=12, chains=16, draws=100, seed=0):
    rng = np.random.default_rng(seed)
    mu, tau, sd = np.array([np.log(5), 0.0, 2.0]), np.array([0.03, 2.0, 2.0]), np.array([0.04, 0.12, 0.35])
    truth = mu + np.sqrt(tau) * rng.normal(size=(systems, 3))
    centre = truth + sd * rng.normal(size=truth.shape)
    theta = centre + sd * correlated(rng, chains, draws, systems, 3)
    fits = solve(theta[:4, :: max(1, draws // 10)])[..., :1, :].reshape(-1, systems, 1, TIMES.size)
    exact, names, at = solve(truth), [f"unit {i + 1:02d}" for i in range(systems)], np.arange(0, 161, 13)
    values = exact[:, 0, at] + 0.15 * rng.normal(size=(systems, at.size))
    noise = {"value": values.ravel(), "sigma": 0.15, "low": values.ravel() - 0.15, "high": values.ravel() + 0.15}
    columns = {"system": np.repeat(names, at.size), "time": np.tile(TIMES[at], systems), "quantity": "u"}
    steps = np.arange(0, 1200, 10)
    history = {"iteration": steps, "acceptance": 0.6, "loglik": -100 - 300 * np.exp(-steps / 200)}
    history |= {"temperature": 1.0, "step_size": 0.8, "phase": np.where(steps < 480, "warm-up", "sample")}
    known = {"truth_theta": truth, "truth_mu": mu, "truth_tau": tau, "truth_fit": exact[:, :1]}
    said = {"title": "Mass-damper", "converged": True, "verdict": ["Converged.", "R-hat 1.009."]}
    said |= {"parameters": ("k", "u0", "v0"), "labels": ("log k", "u0", "v0")}
    physical = np.concatenate([np.exp(theta[..., :1]), theta[..., 1:]], -1)
    population_mean = mu + np.sqrt(tau / systems) * correlated(rng, chains, draws, 3)
    spread = tau * np.exp(0.3 * correlated(rng, chains, draws, 3))
    traces = [
        TraceView("mean μ", said["labels"], population_mean, mu),
        TraceView("log variance log τ", said["labels"], np.log(spread), np.log(tau)),
        TraceView("correlations", ("log k and u0",), correlated(rng, chains, draws, 1)),
    ]
    return View(
        **said,
        systems=tuple(names),
        theta=theta,
        physical=physical,
        groups=np.arange(chains) % 2,
        mu=population_mean,
        tau=spread,
        population=traces,
        grid=TIMES[:, None],
        quantities=("u",),
        fit_mean=fits.mean(0),
        **dict(zip(("fit_low", "fit_high"), np.quantile(fits, [0.025, 0.975], axis=0))),
        observations=pd.DataFrame(columns | noise),
        closures=[make_law(exact[:, 1].ravel())],
        history=pd.DataFrame(history),
        residuals=[make_residuals(rng, np.tile(TIMES[at], systems))],
        checks=make_checks(names),
        summary=summary_of(names, physical, population_mean),
        truth_summary=np.concatenate([[5.0, 0.0, np.nan], np.exp(truth[:, 0]), np.zeros(2 * systems)]),
        metrics={"systems": systems, "rhat_max": 1.0094, "surrogate_error": None, "warnings": []},
        settings={"forward": "solver", "sampler": {"blocks": "system", "chains": chains}},
        **known,
    )


def one_parameter(view):
    arrays = ("theta", "physical", "mu", "tau", "truth_theta", "truth_mu", "truth_tau")
    cut = {name: getattr(view, name)[..., :1] for name in arrays}
    return replace(view, parameters=("k",), labels=("log k",), population=(), **cut)


def without_truth(view):
    laws = [replace(law, truth=None) for law in view.closures]
    unknown = dict.fromkeys(("truth_theta", "truth_mu", "truth_tau", "truth_fit", "truth_summary"))
    return replace(view, closures=laws, **unknown)


def single(view):
    floats = {name: part for name, part in vars(view).items() if getattr(part, "dtype", None) == np.float64}
    return replace(view, **{name: part.astype(np.float32) for name, part in floats.items()})


def half_known(view):
    known = np.where(np.arange(len(view.systems)) % 2, 1.0, np.nan)[:, None]
    return replace(view, truth_theta=known * view.truth_theta, truth_mu=np.full(3, np.nan))


def awkward_names(view):
    systems = tuple(rf"$\frac$ <b>_{i} " + "long " * 20 for i in range(len(view.systems)))
    labels, quantities = (r"log $\frac$", "u_0", "<v0> $"), (r"$\frac$",)
    law = replace(view.closures[0], name=r"$\frac$", inputs=("$",))
    return replace(view, systems=systems, labels=labels, quantities=quantities, closures=[law])


def surface(truth=True):
    x = np.stack(np.meshgrid(np.linspace(-3, 3, 25), np.linspace(0, 2, 25)), -1).reshape(-1, 2)
    value, density = np.sin(x[:, 0]) * x[:, 1], np.exp(-(x[:, 0] ** 2) - 4 * (x[:, 1] - 1) ** 2)
    exact = np.where(np.arange(len(x)) == 7, np.nan, value)
    return ClosureView("g", ("T", "p"), x, value + 0.1, density, None, exact if truth else None)


def log_normal(view):
    """The same fleet, its values made positive, and noise of their logarithms."""
    table, fits = view.observations, {name: np.exp(getattr(view, name)) for name in ("fit_mean", "fit_low", "fit_high")}
    value = np.exp(table["value"])
    table = table.assign(value=value, low=value * np.exp(-0.15), high=value * np.exp(0.15))
    metrics = view.metrics | {"noise_sd": 0.15}
    return replace(view, observations=table, metrics=metrics, truth_fit=np.exp(view.truth_fit), **LOG_LABELS, **fits)


def field_view(view, shape, triangles=None):
    """The same run, of a field over x and y."""
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 5), indexing="ij")
    grid = np.stack([x.ravel(), y.ravel()], axis=-1)
    field = np.sin(3 * grid[:, 0]) * grid[:, 1] + np.arange(len(view.systems))[:, None, None]
    table = view.observations.assign(x=0.25, y=0.75).drop(columns="time")
    fits = {"fit_mean": field, "fit_low": field - 0.1, "fit_high": field + 0.1, "truth_fit": field + 0.02}
    return replace(view, axes=("x", "y"), grid=grid, shape=shape, triangles=triangles, observations=table, **fits)


def moving_view(view):
    """The same run, of a field over time, x and y."""
    lines = np.linspace(0, 8, 5), np.linspace(0, 1, 6), np.linspace(0, 2, 7)
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 3)
    t, x, y = grid.T
    field = np.sin(3 * x) * y * np.exp(-t / 4) + 0.1 * np.arange(len(view.systems))[:, None, None]
    table = view.observations.assign(x=view.observations["time"] / 8, y=0.75)
    fits = {
        "fit_mean": field,
        "fit_low": field - 0.1 * x,
        "fit_high": field + 0.1,
        "truth_fit": field + 0.02 * (x - 0.3),
    }
    return replace(view, axes=("time", "x", "y"), grid=grid, shape=(5, 6, 7), observations=table, **fits)


MESH = np.array([[0, 1, 5], [1, 6, 5], [1, 2, 6]])
THREE_INPUTS = ClosureView("h", ("a", "b", "c"), np.zeros((4, 3)), np.zeros(4), np.zeros(4), None, None)
VARIANTS = {
    "typical, single precision": lambda view: single(replace(view, closures=[single(view.closures[0])])),
    "one system, parameter, draw": lambda view: one_parameter(make_view(1, 1, 1)),
    "no truth": without_truth,
    "a sampled law": lambda view: replace(view, closures=[banded(view.closures[0])]),
    "partly unknown truth": half_known,
    "no hierarchy": lambda view: replace(view, mu=None, tau=None, population=()),
    "no closure, no data": lambda view: replace(
        view, closures=[], observations=view.observations.iloc[:0], residuals=()
    ),
    "awkward names": awkward_names,
    "a field that moves": lambda view: moving_view(without_truth(view)),
    "500 systems": lambda view: make_view(500, 4, 8),
}
