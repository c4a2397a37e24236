"""Figures and report of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

import re
import struct
from dataclasses import replace

import matplotlib
import matplotlib.text
import numpy as np
import pandas as pd
import pytest
from matplotlib._pylab_helpers import Gcf

from closura.show import ClosureView, View, save_figures, write_report
from closura.show._figures import FIGURES, closure, hyper_traces, population, posteriors, traces, trajectories
from closura.show._view import label

TIMES = np.linspace(0, 8, 161)


def damping(v):
    return 0.6 * v + 0.06 * v**3


def solve(theta):
    """Trajectories (..., state, time) by Runge-Kutta; theta = (log k, u0, v0)."""
    k, step = np.exp(theta[..., 0]), TIMES[1] - TIMES[0]

    def slope(t, y):
        return np.stack([y[1], 10 * np.sin(t) - damping(y[1]) - k * y[0]])

    y, path = np.stack([theta[..., 1], theta[..., 2]]), []
    for t in TIMES:
        path.append(y)
        a = slope(t, y)
        b = slope(t + step / 2, y + step / 2 * a)
        c = slope(t + step / 2, y + step / 2 * b)
        d = slope(t + step, y + step * c)
        y = y + step / 6 * (a + 2 * b + 2 * c + d)
    return np.moveaxis(np.stack(path), (0, 1), (-1, -2))


def correlated(rng, shape):
    """Draws with a little memory along axis 1, as a sampler leaves them."""
    noise = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        noise[:, draw] = 0.6 * noise[:, draw - 1] + 0.8 * noise[:, draw]
    return noise


def make_view(systems=12, chains=16, draws=150, seed=0):
    rng = np.random.default_rng(seed)
    mu, tau = np.array([np.log(5), 0.0, 2.0]), np.array([0.03, 2.0, 2.0])
    truth = mu + np.sqrt(tau) * rng.normal(size=(systems, 3))
    sd = np.array([0.04, 0.12, 0.35])
    centre = truth + sd * rng.normal(size=truth.shape)
    theta = centre + sd * correlated(rng, (chains, draws, systems, 3))
    physical = np.concatenate([np.exp(theta[..., :1]), theta[..., 1:]], -1)
    fits = solve(theta[:4, :: max(1, draws // 15)])[..., :1, :].reshape(-1, systems, 1, TIMES.size)
    exact = solve(truth)
    names = tuple(f"unit {i + 1:02d}" for i in range(systems))
    at = np.arange(0, 161, 13)
    observations = pd.DataFrame(
        [
            (name, TIMES[j], "u", exact[i, 0, j] + 0.15 * rng.normal(), 0.15)
            for i, name in enumerate(names)
            for j in at
        ],
        columns=["system", "time", "quantity", "value", "sigma"],
    )
    v = np.linspace(-7, 7, 200)
    visited = exact[:, 1].ravel()
    low, high = np.quantile(visited, [0.005, 0.995])
    density = np.exp(-0.5 * ((v[:, None] - visited) / 0.4) ** 2).mean(1) / (0.4 * np.sqrt(2 * np.pi))
    learned = damping(v) + 0.15 * np.sin(1.3 * v) + 0.4 * np.maximum(v - high, 0) ** 2
    law = ClosureView("f", ("v",), v[:, None], learned, density, (low, high), damping(v))
    iterations = np.arange(0, 1200, 10)
    history = pd.DataFrame(
        {
            "iteration": iterations,
            "acceptance": 0.6 + 0.05 * rng.normal(size=iterations.size),
            "loglik": -400 + 300 * (1 - np.exp(-iterations / 200)),
            "temperature": np.clip(iterations / 480, 1e-3, 1),
            "step_size": 0.8,
            "phase": np.where(iterations < 480, "warm-up", np.where(iterations < 900, "learn", "sample")),
        }
    )
    metrics = {
        "problem": "mass-damper",
        "forward": "solver",
        "hierarchical": True,
        "oracle": False,
        "systems": systems,
        "chains": chains,
        "iterations": 1200,
        "seed": 0,
        "theta_mse": 0.0211,
        "coverage_2sd": 0.967,
        "closure_mse": 0.365,
        "closure_mse_visited": 0.021,
        "surrogate_error": None,
        "mu": [1.61, 0.02, 1.94],
        "noise_sd": 0.15,
        "rhat_max": 1.0094,
        "ess_bulk_min": 2143.4,
        "ess_tail_min": 1801.2,
        "seconds_total": 71.3,
        "seconds_per_iteration": 0.025,
        "peak_rss_mb": 812.0,
        "converged": True,
        "warnings": [],
    }
    return View(
        title="Mass-damper, 12 units",
        converged=True,
        verdict=[
            "Converged: the results can be used.",
            "R-hat is 1.009 (at most 1.01 is asked).",
            "Outside v in [-5.1, 5.3] the law is extrapolated: do not read it there.",
        ],
        parameters=("k", "u0", "v0"),
        labels=("log k", "u0", "v0"),
        systems=names,
        theta=theta,
        physical=physical,
        groups=np.arange(chains) % 2,
        mu=mu + np.sqrt(tau / systems) * correlated(rng, (chains, draws, 3)),
        tau=tau * np.exp(0.3 * correlated(rng, (chains, draws, 3))),
        grid=TIMES,
        quantities=("u",),
        fit_mean=fits.mean(0),
        fit_low=np.quantile(fits, 0.025, axis=0),
        fit_high=np.quantile(fits, 0.975, axis=0),
        observations=observations,
        closures=[law],
        history=history,
        metrics=metrics,
        settings={"forward": "solver", "seed": 0, "sampler": {"blocks": "system", "chains": 16}},
        truth_theta=truth,
        truth_mu=mu,
        truth_tau=tau,
        truth_fit=exact[:, :1],
    )


@pytest.fixture(scope="module")
def view():
    return make_view()


def one_parameter(view):
    return replace(
        view,
        parameters=("k",),
        labels=("log k",),
        theta=view.theta[..., :1],
        physical=view.physical[..., :1],
        mu=view.mu[..., :1],
        tau=view.tau[..., :1],
        truth_theta=view.truth_theta[:, :1],
        truth_mu=np.array([np.nan]),
        truth_tau=view.truth_tau[:1],
    )


def without_truth(view):
    laws = [replace(law, truth=None) for law in view.closures]
    return replace(view, closures=laws, truth_theta=None, truth_mu=None, truth_tau=None, truth_fit=None)


def half_known(view):
    truth, path = view.truth_theta.copy(), view.truth_fit.copy()
    truth[::2], path[::2] = np.nan, np.nan
    return replace(view, truth_theta=truth, truth_fit=path, truth_mu=np.full(3, np.nan))


def awkward_names(view):
    names = tuple(rf"$\frac$ <b>_{i} " + "long " * 20 for i in range(len(view.systems)))
    law = replace(view.closures[0], name=r"$\frac$", inputs=("$",))
    labels = (r"log $\frac$", "u_0", "<v0> $")
    return replace(
        view, systems=names, parameters=labels, labels=labels, quantities=(r"$\frac$",), closures=[law]
    )


def surface(truth=True):
    x = np.stack(np.meshgrid(np.linspace(-3, 3, 25), np.linspace(0, 2, 25)), -1).reshape(-1, 2)
    value, density = np.sin(x[:, 0]) * x[:, 1], np.exp(-(x[:, 0] ** 2) - 4 * (x[:, 1] - 1) ** 2)
    exact = np.where(np.arange(len(x)) == 7, np.nan, value)
    return ClosureView("g", ("T", "p"), x, value + 0.1, density, None, exact if truth else None)


def three_inputs():
    return ClosureView("h", ("a", "b", "c"), np.zeros((4, 3)), np.zeros(4), np.zeros(4), None, None)


def flat_law(view):
    return replace(
        view.closures[0], value=np.zeros(200), truth=None, support=None, density=np.zeros(200), known=True
    )


VARIANTS = {
    "typical": lambda view: view,
    "one system, one parameter, one draw": lambda view: one_parameter(make_view(1, 1, 1)),
    "two systems": lambda view: make_view(2, 2, 5),
    "no truth": without_truth,
    "partly unknown truth": half_known,
    "no hierarchy": lambda view: replace(view, mu=None, tau=None),
    "no closure": lambda view: replace(view, closures=[]),
    "many closures": lambda view: replace(view, closures=[*view.closures, surface(), three_inputs()]),
    "flat closures": lambda view: replace(view, closures=[flat_law(view)] * 3),
    "surface without truth": lambda view: replace(view, closures=[surface(truth=False)]),
    "awkward names": awkward_names,
    "no data": lambda view: replace(view, observations=view.observations.iloc[:0]),
    "500 systems": lambda view: make_view(500, 4, 8),
    "many groups": lambda view: replace(view, groups=np.arange(16)),
}


def drawn_texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def png_size(path):
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_run_can_be_shown(view, variant, tmp_path):
    shown = VARIANTS[variant](view)
    before = dict(matplotlib.rcParams)
    paths = save_figures(shown, tmp_path / "figures")
    write_report(shown, paths, tmp_path / "report.html")
    expected = set(FIGURES)
    expected -= {"hyper_traces"} if shown.mu is None else set()
    expected -= {"closure"} if not shown.closures else set()
    assert set(paths) == expected
    for path in paths.values():
        width, height = png_size(path)
        assert width == 1170
        assert 150 <= height <= 2400
    assert dict(matplotlib.rcParams) == before
    assert not Gcf.figs


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("population", 6),
        ("trajectories", 6),
        ("closure", 2),
        ("traces", 9),
        ("hyper_traces", 6),
        ("posteriors", 3),
    ],
)
def test_panels_and_truth(view, name, panels):
    draw = FIGURES[name][0]
    assert len(draw(view).axes) == panels
    labels = {text for axes in draw(view).axes for text in axes.get_legend_handles_labels()[1]}
    bare = {text for axes in draw(without_truth(view)).axes for text in axes.get_legend_handles_labels()[1]}
    assert labels & {"truth", "true value"}
    assert not bare & {"truth", "true value"}


def test_figures_that_do_not_apply_say_so(view):
    assert "no closure" in closure(replace(view, closures=[])).get_suptitle()
    bare = replace(view, mu=None, tau=None)
    assert "no population" in hyper_traces(bare).get_suptitle()
    assert "no population" in population(bare).get_suptitle()


def test_closure_is_grey_exactly_where_no_system_went(view):
    law = view.closures[0]
    above, below = closure(view).axes
    for axes in (above, below):
        spans = sorted(
            patch.get_extents().transformed(axes.transData.inverted()).intervalx for patch in axes.patches
        )
        np.testing.assert_allclose(np.ravel(spans), [-7, law.support[0], law.support[1], 7], atol=1e-6)
    assert "no data here" in drawn_texts(closure(view))
    everywhere = replace(law, support=(-8.0, 8.0))
    assert not closure(replace(view, closures=[everywhere])).axes[0].patches


def test_extrapolation_does_not_hide_the_law(view):
    law = view.closures[0]
    inside = (law.grid[:, 0] > law.support[0]) & (law.grid[:, 0] < law.support[1])
    wild = replace(law, value=np.where(inside, law.value, 1e6), truth=None)
    low, high = closure(replace(view, closures=[wild])).axes[0].get_ylim()
    assert low < law.value[inside].min()
    assert law.value[inside].max() < high < 50


def test_closures_of_several_inputs(view):
    figure = closure(replace(view, closures=[surface(), three_inputs()]))
    assert [axes.get_title() for axes in figure.axes][:2] == ["learned g", "true g"]
    assert any("no data here" in text for text in drawn_texts(figure))
    assert "h, of 3 inputs, is not drawn." in drawn_texts(figure)


def test_forest_of_a_large_fleet_shows_forty_and_says_so():
    figure = posteriors(make_view(500, 2, 4))
    assert "first 40 of 500 systems" in figure.get_suptitle()
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(names) == 40
    assert names[-1] == "unit 01"


def test_traces_are_thinned_and_coloured_by_group():
    axes = traces(make_view(3, 16, 2500)).axes[0]
    lines = [line for line in axes.lines if line.get_label().startswith("chain group")]
    assert len(lines) == 8
    assert len({line.get_color() for line in lines}) == 2
    assert all(len(line.get_xdata()) == 400 and line.get_xdata()[-1] == 2500 for line in lines)


def test_trajectories_show_the_data_of_their_own_system(view):
    for axes in trajectories(view).axes:
        dots = axes.containers[0].lines[0]
        mine = view.observations[view.observations["system"] == axes.get_title()]
        np.testing.assert_array_equal(dots.get_ydata(), mine["value"])


def test_systems_are_picked_from_one_end_of_the_fleet_to_the_other(view):
    ladder = np.zeros_like(view.theta)
    ladder[..., 0] = np.array([3, 9, 1, 0, 4, 2, 8, 5, 7, 6, 11, 10])
    picked = replace(view, theta=ladder).spread(4)
    assert sorted(ladder[0, 0, picked, 0]) == [0, 4, 7, 11]


def test_population_density_is_the_normal_of_its_draws(view):
    fixed = replace(view, mu=np.full_like(view.mu, 2.0), tau=np.full_like(view.tau, 0.25))
    x, (low, mean, high) = fixed.population_density(0)
    np.testing.assert_allclose(mean, np.exp(-2 * (x - 2) ** 2) / np.sqrt(0.5 * np.pi))
    np.testing.assert_allclose(low, high)
    assert abs(np.trapezoid(mean, x) - 1) < 5e-3


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_physical_ticks_lie_where_the_transform_puts_them(view, scale, sign):
    theta = scale * view.theta
    places, values = replace(view, theta=theta, physical=np.exp(sign * theta)).physical_ticks(0)
    assert 2 <= len(values) <= 8
    np.testing.assert_allclose(np.exp(sign * places), values, rtol=0.02)


def test_no_physical_ticks_without_a_transform_of_one_parameter(view):
    mixed = replace(view, physical=np.exp(view.theta + view.theta[..., ::-1]))
    assert mixed.physical_ticks(0)[0].size == 0
    assert view.physical_ticks(1)[0].size == 0


def test_labels_are_short_and_never_mathematics():
    assert label("a$b\n c") == r"a\$b c"
    assert label("pump " * 20 + "17", 18).endswith(" 17")
    assert len(label("x" * 100, 18)) == 18


def test_report_is_one_file_and_the_verdict_comes_first(view, tmp_path):
    paths = save_figures(view, tmp_path)
    write_report(view, paths, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]{0,30})', html)
    assert len(sources) == len(FIGURES)
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"<script|<link|https?:|url\(", html)
    places = [html.index(part) for part in ("Converged: the results", "R-hat, worst", "<img", "Settings")]
    assert places == sorted(places)
    assert 'class="verdict good"' in html
    assert "Surrogate error" not in html
    k = view.physical[:, :, 0, 0]
    assert f"{k.mean():.2f} ± {k.std():.2f}" in html
    assert "sampler.chains" in html


def test_report_keeps_names_as_text(view, tmp_path):
    evil = "<script>alert(1)</script>"
    shown = replace(
        view,
        title=evil,
        verdict=[evil, evil],
        converged=False,
        systems=(evil, *view.systems[1:]),
        labels=(evil, "u0", "v0"),
        parameters=(evil, "u0", "v0"),
        settings={evil: {evil: evil}},
        metrics={evil: evil, "rhat_max": np.float32(np.nan)},
    )
    write_report(shown, {}, tmp_path / "sub" / "report.html")
    html = (tmp_path / "sub" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 10
    assert 'class="verdict check"' in html
