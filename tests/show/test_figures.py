"""Figures and report of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

import re
import struct
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.text import Text

from closura.show import ClosureView, ResidualView, View, save_figures, write_report
from closura.show._figures import FIGURES, checks, closure, fit, hyper_traces, population, posteriors, traces
from closura.show._view import label

TIMES = np.linspace(0, 8, 161)
EVIL = "<script>alert(1)</script>"
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
    columns = {"system": np.repeat(names, at.size), "time": np.tile(TIMES[at], systems), "quantity": "u"}
    steps = np.arange(0, 1200, 10)
    history = {"iteration": steps, "acceptance": 0.6, "loglik": -100 - 300 * np.exp(-steps / 200)}
    history |= {"temperature": 1.0, "step_size": 0.8, "phase": np.where(steps < 480, "warm-up", "sample")}
    known = {"truth_theta": truth, "truth_mu": mu, "truth_tau": tau, "truth_fit": exact[:, :1]}
    said = {"title": "Mass-damper", "converged": True, "verdict": ["Converged.", "R-hat 1.009."]}
    said |= {"parameters": ("k", "u0", "v0"), "labels": ("log k", "u0", "v0")}
    physical = np.concatenate([np.exp(theta[..., :1]), theta[..., 1:]], -1)
    population_mean = mu + np.sqrt(tau / systems) * correlated(rng, chains, draws, 3)
    return View(
        **said,
        systems=tuple(names),
        theta=theta,
        physical=physical,
        groups=np.arange(chains) % 2,
        mu=population_mean,
        tau=tau * np.exp(0.3 * correlated(rng, chains, draws, 3)),
        grid=TIMES[:, None],
        quantities=("u",),
        fit_mean=fits.mean(0),
        **dict(zip(("fit_low", "fit_high"), np.quantile(fits, [0.025, 0.975], axis=0))),
        observations=pd.DataFrame(columns | {"value": values.ravel(), "sigma": 0.15}),
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
    return replace(view, parameters=("k",), labels=("log k",), **cut)


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


THREE_INPUTS = ClosureView("h", ("a", "b", "c"), np.zeros((4, 3)), np.zeros(4), np.zeros(4), None, None)
VARIANTS = {
    "typical, single precision": lambda view: single(replace(view, closures=[single(view.closures[0])])),
    "one system, parameter, draw": lambda view: one_parameter(make_view(1, 1, 1)),
    "no truth": without_truth,
    "partly unknown truth": half_known,
    "no hierarchy": lambda view: replace(view, mu=None, tau=None),
    "no closure, no data": lambda view: replace(
        view, closures=[], observations=view.observations.iloc[:0], residuals=()
    ),
    "awkward names": awkward_names,
    "500 systems": lambda view: make_view(500, 4, 8),
}


@pytest.fixture(scope="module")
def view():
    return make_view()


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def legend(figure):
    return {text for axes in figure.axes for text in axes.get_legend_handles_labels()[1]}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_run_can_be_shown(view, variant, tmp_path):
    shown, before, held = VARIANTS[variant](view), dict(matplotlib.rcParams), list(Gcf.figs)
    paths = save_figures(shown, tmp_path / "figures")
    write_report(shown, paths, tmp_path / "report.html")
    absent = {"hyper_traces": shown.mu is None, "closure": not shown.closures, "checks": not shown.residuals}
    assert set(paths) == {name for name in FIGURES if not absent.get(name)}
    for head in (path.read_bytes()[:24] for path in paths.values()):
        width, height = struct.unpack(">II", head[16:])
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert width == 1170
        assert 150 <= height <= 2400
    assert dict(matplotlib.rcParams) == before
    assert list(Gcf.figs) == held  # pyplot keeps none of them alive


@pytest.mark.parametrize(("name", "panels"), PANELS.items())
def test_panels_and_truth(view, name, panels):
    draw = FIGURES[name][0]
    assert len(draw(view).axes) == panels
    if name == "checks":
        return  # data and what they should be: no truth in it
    assert legend(draw(view)) & {"truth", "true value"}
    assert not legend(draw(without_truth(view))) & {"truth", "true value"}


def test_figures_that_do_not_apply_say_so(view):
    bare = replace(view, mu=None, tau=None, closures=[], residuals=())
    assert "no residuals" in checks(bare).get_suptitle()
    assert "no closure" in closure(bare).get_suptitle()
    assert "no population" in hyper_traces(bare).get_suptitle()
    assert "no population" in population(bare).get_suptitle()


def test_closure_is_grey_exactly_where_no_system_went(view):
    law, figure = view.closures[0], closure(view)
    for axes in figure.axes:
        edges = sorted(x + part * p.get_width() for p in axes.patches for x in [p.get_x()] for part in (0, 1))
        np.testing.assert_allclose(edges, [-7, law.support[0], law.support[1], 7])
    assert "no data here" in texts(figure)
    assert not closure(replace(view, closures=[replace(law, support=(-8.0, 8.0))])).axes[0].patches


def test_extrapolation_does_not_hide_the_law(view):
    law = view.closures[0]
    inside = (law.grid[:, 0] > law.support[0]) & (law.grid[:, 0] < law.support[1])
    wild = replace(law, value=np.where(inside, law.value, 1e6), truth=None)
    low, high = closure(replace(view, closures=[wild])).axes[0].get_ylim()
    assert low < law.value[inside].min()
    assert law.value[inside].max() < high < 50


def test_closures_of_several_inputs(view):
    figure = closure(replace(view, closures=[*view.closures, surface(), THREE_INPUTS]))
    figure.draw_without_rendering()
    assert {"learned g", "true g"} <= {axes.get_title() for axes in figure.axes}
    assert "g (paler: no data here)" in texts(figure)
    assert "h, of 3 inputs, is not drawn." in texts(figure)


def test_closures_side_by_side_even_when_flat_or_given(view):
    nothing = np.zeros(200)
    flat = replace(view.closures[0], value=nothing, truth=None, support=None, density=nothing, known=True)
    figure = closure(replace(view, closures=[flat] * 3))
    figure.draw_without_rendering()
    assert len(figure.axes) == 6
    assert "given f" in legend(figure)
    constant = replace(surface(truth=False), value=np.ones(625), density=np.zeros(625))
    lone = closure(replace(view, closures=[constant]))
    lone.draw_without_rendering()
    assert not any("no data" in text for text in texts(lone))


def test_forest_of_a_large_fleet_shows_forty_and_says_so():
    figure = posteriors(make_view(500, 2, 4))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert "first 40 of 500 systems" in figure.get_suptitle()
    assert names[::-1] == [f"unit {i:02d}" for i in range(1, 41)]


def test_traces_are_thinned_and_coloured_by_group():
    long = make_view(3, 16, 2500)
    lines = [line for line in traces(long).axes[0].lines if line.get_label().startswith("chain group")]
    assert len(lines) == 8
    assert len({line.get_color() for line in lines}) == 2
    assert all(len(line.get_xdata()) == 400 and line.get_xdata()[-1] == 2500 for line in lines)
    assert len(replace(long, groups=np.arange(16)).shown_chains()) == 8


def test_curves_show_the_data_of_their_own_system(view):
    for axes in fit(view).axes:
        mine = view.observations[view.observations["system"] == axes.get_title()]
        np.testing.assert_array_equal(axes.containers[0].lines[0].get_ydata(), mine["value"])


def test_systems_are_picked_from_one_end_of_the_fleet_to_the_other(view):
    ladder = np.zeros_like(view.theta)
    ladder[..., 0] = [3, 9, 1, 0, 4, 2, 8, 5, 7, 6, 11, 10]
    assert sorted(ladder[0, 0, replace(view, theta=ladder).spread(4), 0]) == [0, 4, 7, 11]


def test_population_density_is_the_normal_of_its_draws(view):
    x, (low, mean, high) = replace(view, mu=0 * view.mu + 2, tau=0 * view.tau + 0.25).population_density(0)
    np.testing.assert_allclose(mean, np.exp(-2 * (x - 2) ** 2) / np.sqrt(0.5 * np.pi))
    np.testing.assert_allclose(low, high)


@pytest.mark.parametrize("factor", [0.3, 1.0, 5.0, -1.0, -5.0])
def test_physical_ticks_lie_where_the_transform_puts_them(view, factor):
    places, values = replace(view, physical=np.exp(factor * view.theta)).physical_ticks(0)
    assert 2 <= len(values) <= 8
    np.testing.assert_allclose(np.exp(factor * places), values, rtol=0.02)


def test_no_physical_ticks_without_a_transform_of_one_parameter(view):
    assert view.physical_ticks(1)[0].size == 0
    assert replace(view, physical=view.theta + view.theta[..., ::-1]).physical_ticks(0)[0].size == 0


def test_labels_are_short_and_never_mathematics():
    assert label("a$b\n c") == r"a\$b c"
    assert label("pump " * 20 + "17", 18).endswith(" 17")
    assert len(label("x" * 100, 18)) == 18


def test_report_is_one_file_and_the_verdict_comes_first(view, tmp_path):
    write_report(view, save_figures(view, tmp_path), tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]{0,30})', html)
    assert len(sources) == len(FIGURES)
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"<script|<link|https?:|url\(", html)
    order = ('class="verdict good"', "Converged.", "R-hat, worst", "<img", "sampler.chains")
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert "Surrogate error" not in html
    k = view.physical[:, :, 0, 0]
    assert f"{k.mean():.2f} ± {k.std():.2f}" in html


def test_report_has_the_population_first_and_folds_a_large_fleet(view, tmp_path):
    def page(shown):
        write_report(shown, {}, tmp_path / "report.html")
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    html = page(view)
    first = html.index("<h2>Population</h2>")
    assert first < html.index("<h2>Parameters of each system</h2>") < html.index("<h2>Course of the run</h2>")
    assert "<details open><summary>12 systems" in html
    assert "<details><summary>200 systems" in page(make_view(200, 2, 4))
    above = html[first : html.index("<h2>Parameters of each system</h2>")]
    k = np.exp(view.mu[..., 0])
    assert f"{k.mean():.2f} ± {k.std():.2f}" in above
    assert all(f'<td class="number">{cell}</td>' in above for cell in ("1.004", "—", "876", "5"))
    assert "truth" not in page(without_truth(view))[first:]


def test_residuals_of_systems_that_stand_out_are_told_apart(view):
    along, quantiles = checks(view).axes
    lines = {line.get_label(): line for line in along.lines}
    (residuals,) = view.residuals
    odd = lines["residual of a system that stands out"]
    np.testing.assert_array_equal(odd.get_ydata(), residuals.residual[residuals.odd])
    np.testing.assert_array_equal(lines["residual"].get_xdata(), residuals.x[~residuals.odd])
    np.testing.assert_array_equal(lines["running mean"].get_ydata(), residuals.run_mean)
    np.testing.assert_array_equal(quantiles.lines[-1].get_ydata(), residuals.ordered)
    both = replace(view, residuals=[residuals, replace(residuals, quantity="v")] * 3)
    assert len(checks(both).axes) == 8
    assert "(4 of 6 quantities)" in checks(both).get_suptitle()


def test_report_shows_checks_of_all_and_of_those_that_stand_out(view, tmp_path):
    write_report(view, {}, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    part = html[html.index("<h2>Checks</h2>") : html.index("<h2>Population</h2>")]
    assert part.count("<tr>") == 1 + 5 + 1
    assert re.findall(r"<th>system ([^<]*)</th>", part) == ["unit 01"]
    assert part.count("0.5 to 1.5") == 6
    write_report(replace(view, checks=None), {}, tmp_path / "report.html")
    assert "<h2>Checks</h2>" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_report_says_which_truth_lies_outside(view, tmp_path):
    table, truth = view.summary, view.truth_summary.copy()
    truth[:2] = table["97.5%"].iloc[0] + 1, table["2.5%"].iloc[1] + 1e-3
    write_report(replace(view, truth_summary=truth), {}, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{truth[0]:.4g} (outside)" in html
    assert f'<td class="number">{truth[1]:.4g}</td>' in html


def test_report_keeps_names_as_text(view, tmp_path):
    three, systems = (EVIL, "u0", "v0"), (EVIL, *view.systems[1:])
    table = view.summary.replace({view.systems[0]: EVIL, "k": EVIL})
    shown = replace(view, converged=False, parameters=three, labels=three, systems=systems, summary=table)
    said = {"title": EVIL, "verdict": [EVIL, EVIL], "settings": {EVIL: {EVIL: EVIL}}, "metrics": {EVIL: EVIL}}
    write_report(replace(shown, **said), {}, tmp_path / "new" / "report.html")
    html = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 10
    assert 'class="verdict check"' in html


def test_names_known_without_matplotlib_are_those_of_the_figures():
    from closura.show import FIGURE_NAMES
    from closura.show._figures import FIGURES

    assert set(FIGURE_NAMES) == set(FIGURES)


def field_view(view, shape, triangles=None):
    """The same run, of a field over x and y."""
    x, y = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 5), indexing="ij")
    grid = np.stack([x.ravel(), y.ravel()], axis=-1)
    field = np.sin(3 * grid[:, 0]) * grid[:, 1] + np.arange(len(view.systems))[:, None, None]
    table = view.observations.assign(x=0.25, y=0.75).drop(columns="time")
    fits = {"fit_mean": field, "fit_low": field - 0.1, "fit_high": field + 0.1, "truth_fit": field + 0.02}
    return replace(view, axes=("x", "y"), grid=grid, shape=shape, triangles=triangles, observations=table, **fits)


MESH = np.array([[0, 1, 5], [1, 6, 5], [1, 2, 6]])


@pytest.mark.parametrize(("shape", "triangles"), [((4, 5), None), (None, MESH)])
@pytest.mark.parametrize("change", [None, without_truth])
def test_fields_show_truth_fit_and_their_difference_with_the_places_of_the_data(view, shape, triangles, change):
    made = field_view(view, shape, triangles)
    figure = fit(made if change is None else change(made))
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    expected = ["truth", "fit", "fit − truth"] if change is None else ["fit", "width of 95 % band"]
    assert titles == expected * 3
    panels = [axes for axes in figure.axes if axes.get_title()]
    for axes in panels:
        (dots,) = axes.get_lines()
        np.testing.assert_array_equal(np.unique(dots.get_xydata(), axis=0), [[0.25, 0.75]])
    if change is None:
        difference = panels[2].collections[0].get_array()
        np.testing.assert_allclose(difference, -0.02)
