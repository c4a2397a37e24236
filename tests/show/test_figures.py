"""Figures and report of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

import struct
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.text import Text
from views import (
    MESH,
    PANELS,
    THREE_INPUTS,
    VARIANTS,
    banded,
    field_view,
    log_normal,
    make_view,
    moving_view,
    surface,
    without_truth,
)

from closura.show import save_figures, write_report
from closura.show._figures import FIGURES, checks, closure, fit, hyper_traces, population, posteriors, traces
from closura.show._view import label


@pytest.fixture(scope="module")
def view():
    return make_view()


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def legend(figure):
    return {text for axes in figure.axes for text in axes.get_legend_handles_labels()[1]}


SOON = ("typical, single precision", "one system, parameter, draw", "a field that moves")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "variant", [name if name in SOON else pytest.param(name, marks=pytest.mark.nightly) for name in VARIANTS]
)
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


def test_a_law_with_a_band_shows_it_with_its_slope_and_its_prior(view):
    law = banded(view.closures[0])
    above, slope, data = closure(replace(view, closures=[law])).axes
    said = {text.get_text() for text in above.get_legend().get_texts()}
    assert {"95 % band", "prior, 95 % band", "f, posterior mean", "truth", "not decided by data"} <= said
    low, high = above.get_ylim()
    inside = law.inside
    assert low < law.band.low[inside].min()
    assert law.band.high[inside].max() < high < 50, "the prior does not decide what is seen"
    assert slope.get_ylabel() == "its slope"
    assert data.get_xlabel() == "v"
    gap = replace(law, gaps=((-1.0, 0.5),))
    assert [tuple(np.round(ends, 6)) for ends in gap.undecided][1] == (-1.0, 0.5)
    assert not gap.inside[np.abs(gap.grid[:, 0] + 0.2) < 0.5].any()
    assert len(closure(replace(view, closures=[gap])).axes[0].patches) == 3


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


def test_names_known_without_matplotlib_are_those_of_the_figures():
    from closura.show import FIGURE_NAMES
    from closura.show._figures import FIGURES

    assert set(FIGURE_NAMES) == set(FIGURES)


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


@pytest.mark.parametrize("change", [None, without_truth])
def test_fields_that_move_are_shown_at_three_times_with_the_data_of_each(view, change):
    made = moving_view(view)
    panels = [axes for axes in fit(made if change is None else change(made)).axes if axes.get_title()]
    last = "fit − truth\ntime = 8" if change is None else "width of 95 % band\ntime = 8"
    assert [axes.get_title() for axes in panels] == ["fit\ntime = 0", "fit\ntime = 4", "fit\ntime = 8", last] * 3
    seen = [axes.get_lines()[0].get_xydata() for axes in panels[:4]]
    assert sum(map(len, seen[:3])) == len(made.observations) / len(made.systems)
    for moment, dots in zip((0.0, 4.0, 8.0), seen):
        assert np.all(np.abs(8 * dots[:, 0] - moment) <= 2)  # x is an eighth of their time
    np.testing.assert_array_equal(seen[3], seen[2])
    field = made.fit_mean[view.spread(3)[0], 0].reshape(made.shape)
    for axes, moment in zip(panels, (0, 2, 4)):
        np.testing.assert_allclose(axes.collections[0].get_array(), field[moment])
    x = made.grid[: 6 * 7, 1].reshape(6, 7)
    expected = -0.02 * (x - 0.3) if change is None else 0.1 + 0.1 * x
    np.testing.assert_allclose(panels[3].collections[0].get_array(), expected)


@pytest.mark.filterwarnings("error")
def test_a_shared_parameter_has_no_density(view):
    shared = replace(view, tau=np.where(np.arange(view.tau.shape[-1]) == 1, 0.0, view.tau))
    assert str(texts(population(shared))).count("shared: the same in all systems") == 1
    assert "shared" not in str(texts(population(view)))


def test_error_bars_go_to_their_ends(view):
    for shown in (view, log_normal(view)):
        bars, table = fit(shown).axes[0].collections[-1].get_segments(), shown.observations
        mine = table[table["system"] == shown.systems[shown.spread(6)[0]]]
        np.testing.assert_allclose([bar[:, 1] for bar in bars], mine[["low", "high"]])
    assert "data ± σ of the logarithm" in legend(fit(log_normal(view)))
    assert "log(data / fit)" in checks(log_normal(view)).axes[0].get_ylabel()


def test_a_running_mean_needs_places_to_run_through(view):
    one = view.residuals[0]
    assert {"running mean", "noise alone: 95 % of running means"} <= legend(checks(view))
    alone = replace(one, run_x=one.run_x[:1], run_mean=one.run_mean[:1], run_band=one.run_band[:1])
    for few in (alone, replace(one, run_x=np.ones(8))):
        assert not {text for text in legend(checks(replace(view, residuals=[few]))) if "running" in text}
