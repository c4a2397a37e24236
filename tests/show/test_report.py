"""The report page of a fleet of forced damped oscillators  u'' + f(u') + k u = 10 sin t."""

import re
from dataclasses import replace

import numpy as np
import pytest
from views import EVIL, make_view, without_truth

from closura.show import save_figures, write_report
from closura.show._figures import FIGURES


@pytest.fixture(scope="module")
def view():
    return make_view()


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
