"""The report page of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from views import EVIL, MESH, field_view, log_normal, make_view, moving_view, surface, without_truth

from closura.show import FIGURE_NAMES, save_figures, write_report
from closura.show._payload import drawn, pack


@pytest.fixture(scope="module")
def view():
    return make_view()


def embedded(html):
    """What the script of the page draws from."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def unpacked(packed):
    codes = np.frombuffer(b64decode(packed["b64"]), "<u2").reshape(packed["of"])
    return np.where(codes == 65535, np.nan, packed["at"] + packed["by"] * codes)


def report_of(view, folder, figures=None):
    write_report(view, figures or {}, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_report_is_one_file_and_the_verdict_comes_first(view, tmp_path):
    write_report(view, save_figures(view, tmp_path), tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]{0,30})', html)
    assert len(sources) == 1  # the residuals; the page draws the other figures itself
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"<link|https?:|url\((?!#)| src=\"(?!data:)", html)
    order = ('class="verdict good"', "Converged.", "R-hat, worst", "Data and fit", "<img", "sampler.chains")
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert "Surrogate error" not in html
    k = view.physical[:, :, 0, 0]
    assert f"{k.mean():.2f} ± {k.std():.2f}" in html


def test_report_has_the_population_first_and_folds_a_large_fleet(view, tmp_path):
    html = report_of(view, tmp_path)
    first = html.index("<h2>Population</h2>")
    assert first < html.index("<h2>Parameters of each system</h2>") < html.index("<h2>Settings</h2>")
    assert "<details open><summary>12 systems" in html
    assert "<details><summary>200 systems" in report_of(make_view(200, 2, 4), tmp_path)
    above = html[first : html.index("<h2>Parameters of each system</h2>")]
    k = np.exp(view.mu[..., 0])
    assert f"{k.mean():.2f} ± {k.std():.2f}" in above
    assert all(f'<td class="number">{cell}</td>' in above for cell in ("1.004", "—", "876", "5"))
    bare = report_of(without_truth(view), tmp_path)
    assert "truth" not in bare[bare.index("<h2>Population</h2>") : bare.index("<h2>Settings</h2>")]


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
    said = {
        "title": EVIL,
        "verdict": [EVIL, f"`{EVIL}` --x{EVIL}"],
        "settings": {EVIL: {EVIL: EVIL}},
        "metrics": {EVIL: EVIL},
    }
    write_report(replace(shown, **said), {}, tmp_path / "new" / "report.html")
    html = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert re.findall("<script[^>]*>", html) == ['<script type="application/json" id="data">', "<script>"]
    assert "alert(1)</" not in html
    assert embedded(html)["names"]["systems"] == list(systems)
    assert html.count("&lt;script&gt;alert(1)") >= 10
    assert 'class="verdict check"' in html


def test_only_the_script_of_the_page_may_run(view, tmp_path):
    html = report_of(view, tmp_path)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    assert policy in html
    assert "innerHTML" not in script


@pytest.mark.parametrize("values", [[1e9 + 1, 1e9 + 2, np.nan], [0.25] * 3, [np.nan] * 2, [], [-1e300, 1e300, np.inf]])
def test_packed_numbers_come_back_within_a_part_in_65000_of_their_range(values):
    known = np.where(np.isfinite(values), values, np.nan)
    width = float(np.nanmax(known) / 65000 - np.nanmin(known) / 65000) if np.isfinite(known).any() else 0.0
    np.testing.assert_allclose(unpacked(pack(values)), known, rtol=0, atol=width)


def test_embedded_numbers_are_those_of_the_run(view, tmp_path):
    table, data = view.observations, embedded(report_of(view, tmp_path))
    third, mine = data["systems"][2], table[table["system"] == view.systems[2]]
    curves = dict(zip(third["fit"][0]["of"], unpacked(third["fit"][0]["curves"])))
    np.testing.assert_allclose(curves["high"], view.fit_high[2, 0], atol=1e-3)
    np.testing.assert_allclose(curves["truth"], view.truth_fit[2, 0], atol=1e-3)
    np.testing.assert_allclose(unpacked(third["seen"][0]["value"]), mine["value"], atol=1e-3)
    np.testing.assert_allclose(unpacked(third["draws"][1]), view.theta[:, :, 2, 1][view.shown_chains()], atol=1e-3)
    middle = unpacked(data["population"][0]["rows"])[2]
    np.testing.assert_allclose(middle, view.theta[..., 0].mean((0, 1)), atol=1e-3)


def test_reports_of_many_systems_and_draws_stay_small(tmp_path):
    small, large = (len(report_of(make_view(*size), tmp_path)) for size in ((20, 16, 400), (300, 16, 60)))
    assert small < 1e6
    assert large < 8e6
    thinned = embedded(report_of(make_view(3, 16, 900), tmp_path))
    assert thinned["draws"]["total"] == 900
    assert thinned["systems"][0]["draws"][0]["of"] == [8, 200]


def test_what_the_page_cannot_draw_stays_a_picture(view):
    mesh = field_view(view, None, MESH)
    assert "fit" not in drawn(mesh)
    assert "fit" not in drawn(moving_view(view))
    assert "fit" in drawn(field_view(view, (4, 5)))
    scattered = replace(surface(), grid=surface().grid + np.linspace(0, 0.1, 625)[:, None])
    assert "closure" not in drawn(replace(view, closures=[scattered]))
    assert drawn(view) | {"checks"} == set(FIGURE_NAMES)


def test_fields_are_embedded_on_their_grid(view, tmp_path):
    made = field_view(view, (4, 5))
    data = embedded(report_of(made, tmp_path))
    assert data["grid"]["kind"] == "field"
    assert [part["of"] for part in data["grid"]["at"]] == [[4], [5]]
    np.testing.assert_allclose(unpacked(data["systems"][1]["fit"][0]["curves"])[0], made.fit_mean[1, 0], atol=1e-3)
    assert embedded(report_of(field_view(view, None, MESH), tmp_path))["grid"]["kind"] == "none"


def test_surrogate_error_is_in_units_of_the_noise(view, tmp_path):
    assert embedded(report_of(view, tmp_path))["surrogate"] is None
    data = embedded(report_of(replace(view, surrogate_apart=np.full_like(view.fit_mean, 2.0)), tmp_path))
    np.testing.assert_allclose(unpacked(data["surrogate"]["size"]), 2.0, rtol=1e-4)
    assert data["surrogate"]["apart"]["of"][:2] == [len(view.systems), len(view.quantities)]


def test_noise_of_logarithms_is_told_as_such(view, tmp_path):
    html, shown = report_of(log_normal(view), tmp_path), log_normal(view).observations
    seen, mine = embedded(html)["systems"][0]["seen"][0], shown[shown["system"] == view.systems[0]]
    np.testing.assert_allclose(unpacked(seen["low"]), mine["value"] * np.exp(-0.15), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(unpacked(seen["high"]), mine["value"] * np.exp(0.15), rtol=1e-3, atol=1e-3)
    assert "standard deviation of its logarithm" in html
    assert "of its logarithm" not in report_of(view, tmp_path)
    assert embedded(html)["bars"] == {"name": "data ± σ of the logarithm", "symmetric": False}
    assert embedded(report_of(view, tmp_path))["bars"] == {"name": "data ± σ", "symmetric": True}


def test_iterations_count_from_one(view, tmp_path):
    html = report_of(replace(view, history=view.history.assign(iteration=np.arange(len(view.history)))), tmp_path)
    phases = html[html.index("<h2>Phases</h2>") : html.index("<h2>Checks</h2>")]
    assert re.findall(r'<tr><th>[^<]*</th><td class="number">(\d+)<', phases) == ["48", "120"]
    course = embedded(html)["history"]
    np.testing.assert_allclose(unpacked(course["iteration"])[[0, -1]], [1, 120], atol=0.01)
    assert [phase["from"] for phase in course["phases"]] == [1, 49]
