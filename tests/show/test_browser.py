"""The report page in a real browser: it opens without errors, draws, answers to pointer and keys, and fits a phone.

A harness page beside the report holds it in a frame of the wanted width, does something with it, and leaves what it saw in
its own DOM, which Chromium prints.
"""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from views import (
    EVIL,
    MESH,
    THREE_INPUTS,
    awkward_names,
    banded,
    field_view,
    log_normal,
    make_view,
    moving_view,
    surface,
    without_truth,
)

from closura.show import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE, DESK = 360, 1000
IMAGE = "<img src=x onerror=alert(2)>"

HARNESS = """<!doctype html><meta charset="utf-8"><body>
<iframe id="frame" %s style="border:0;width:%dpx;height:800px"></iframe>
<script>
const frame = document.getElementById("frame");
const all = (selector) => [...frame.contentDocument.querySelectorAll(selector)];
const one = (selector) => all(selector)[0];
const curve = () => one("#fit svg path[stroke='#0065A8']").getAttribute("d");
const chosen = () => [one("#fit .who").textContent, one("#system").selectedOptions[0].textContent];
const tell = (node, type) => node.dispatchEvent(new Event(type, { bubbles: true }));
const point = (node, type, x, y, pointerType = "mouse") => {
  const box = node.getBoundingClientRect();
  const where = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerType, bubbles: true };
  node.dispatchEvent(new PointerEvent(type, where));
};
frame.onload = () => {
  const seen = document.createElement("pre");
  seen.textContent = JSON.stringify((() => { %s })());
  frame.remove();
  document.body.append(seen);
};
frame.src = "report.html%s";
</script>"""

STATE = """
const root = frame.contentDocument.scrollingElement;
const broken = all("svg *").filter((node) => [...node.attributes].some((a) => /NaN|Infinity|undefined|null/.test(a.value)));
const words = all("svg text, .caption, .legend, .who").map((node) => node.textContent);
return {
  parts: all("#interactive section:not([hidden])").map((node) => node.id),
  drawn: all("#interactive svg").length, broken: broken.map((node) => node.outerHTML.slice(0, 200)),
  odd: words.filter((text) => /NaN|undefined|null|\\[object/.test(text)),
  cut: all("#interactive svg text:not(.name)").filter((node) => {
    const [mine, whole] = [node, node.ownerSVGElement].map((of) => of.getBoundingClientRect());
    return mine.left < whole.left - 0.5 || mine.right > whole.right + 0.5;
  }).map((node) => node.textContent),
  wide: root.scrollWidth, captions: all(".caption").map((node) => node.textContent),
  small: all("#interactive svg text").some((node) => parseFloat(getComputedStyle(node).fontSize) < 12),
};"""


def browser():
    """Asked for when it is needed and not before: `make test` may install it while other tests run."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(autouse=True)
def needs_a_browser():
    if browser() is None:
        pytest.skip("needs a browser: sudo apt-get install chromium")


def opened(view, folder, probe=STATE, *, width=PHONE, fragment="", change=None, rights=""):
    """What the probe saw of the view's report, and what the console said."""
    write_report(view, {}, folder / "report.html")
    if change is not None:
        page = (folder / "report.html").read_text(encoding="utf-8")
        (folder / "report.html").write_text(change(page), encoding="utf-8")
    (folder / "harness.html").write_text(HARNESS % (rights, width, probe, fragment), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --enable-logging=stderr --v=0 --allow-file-access-from-files"
    command = [
        browser(),
        *flags.split(),
        "--window-size=1100,900",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
    ]
    run = subprocess.run([*command, (folder / "harness.html").as_uri()], capture_output=True, text=True, timeout=60)
    console = [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
    found = re.search("<pre>(.*)</pre>", run.stdout, re.DOTALL)
    assert found, (console, run.stderr[-2000:])
    return json.loads(html.unescape(found[1])), console


@pytest.fixture(scope="module")
def view():
    return make_view(6, 4, 40)


def renamed(view):
    """Names that would be markup, were they not kept as text."""
    systems = (EVIL, IMAGE, *view.systems[2:])
    table = view.observations.replace(dict(zip(view.systems, systems)))
    law = replace(view.closures[0], name=IMAGE, inputs=(EVIL,))
    names = (IMAGE, EVIL, "v0")
    said = {"labels": names, "parameters": names, "quantities": (EVIL,), "axes": (IMAGE,)}
    table = table.assign(quantity=EVIL).rename(columns={"time": IMAGE})
    return replace(view, systems=systems, observations=table, closures=[law], **said)


def with_surrogate(view):
    losses = np.where(view.history["phase"] == "warm-up", np.exp(-view.history["iteration"] / 99), np.nan)
    apart = np.full_like(view.fit_mean, 0.1 / 0.15)
    return replace(
        view,
        surrogate_fit=view.fit_mean + 0.1,
        surrogate_apart=apart,
        history=view.history.assign(surrogate_loss=losses),
    )


def edged(view):
    """0.01 on the upper axis, where the lower one begins."""
    left = np.quantile(view.theta[..., 0], 0.025, axis=(0, 1)).min()
    physical = np.concatenate([0.01 * np.exp(5 * (view.theta[..., :1] - left)), view.physical[..., 1:]], -1)
    return replace(view, mu=None, tau=None, physical=physical)


EVERY = ["fit", "law", "population", "draws", "history"]
RUNS = {
    "typical": (lambda view: view, EVERY),
    "no truth": (without_truth, EVERY),
    "no hierarchy": (lambda view: replace(view, mu=None, tau=None), EVERY),
    "surrogate": (with_surrogate, [*EVERY, "surrogate"]),
    "no closure, no data, no history": (
        lambda view: replace(
            view, closures=[], observations=view.observations.iloc[:0], history=view.history.iloc[:0], residuals=()
        ),
        ["fit", "population", "draws"],
    ),
    "one system, stopped before it kept draws": (lambda view: without_truth(make_view(1, 4, 1)), EVERY),
    "one system, one chain": (lambda view: make_view(1, 1, 1), EVERY),
    "a physical value at the left edge": (edged, EVERY),
    "noise of logarithms": (log_normal, EVERY),
    "failed solutions": (
        lambda view: replace(view, fit_low=view.fit_low * np.nan, fit_mean=view.fit_mean * np.nan),
        EVERY,
    ),
    "field on a grid": (lambda view: field_view(view, (4, 5)), EVERY),
    "field on triangles": (lambda view: field_view(view, None, MESH), EVERY[1:]),
    "field that moves": (moving_view, EVERY[1:]),
    "laws of more inputs": (lambda view: replace(view, closures=[surface(), *view.closures, THREE_INPUTS]), EVERY),
    "a sampled law": (lambda view: replace(view, closures=[banded(view.closures[0])]), EVERY),
    "awkward names": (awkward_names, EVERY),
    "names that look like markup": (renamed, EVERY),
}


SOON = ("typical", "field on a grid", "names that look like markup")


@pytest.mark.parametrize("run", [run if run in SOON else pytest.param(run, marks=pytest.mark.nightly) for run in RUNS])
def test_every_run_opens_on_a_phone_without_errors(view, run, tmp_path):
    make, parts = RUNS[run]
    seen, console = opened(make(view), tmp_path)
    assert console == []
    assert seen["parts"] == parts
    assert seen["drawn"] > 5
    assert seen["broken"] == []
    assert seen["odd"] == []
    assert seen["wide"] <= PHONE
    assert seen["cut"] == []
    assert not seen["small"]


def test_a_script_that_was_changed_does_not_run(view, tmp_path):
    seen, console = opened(view, tmp_path, change=lambda page: page.replace("begin();", "begin( );"))
    assert "Content Security Policy" in console[0]
    assert seen["parts"] == []


@pytest.mark.nightly
def test_without_scripts_the_verdict_and_the_tables_remain(view, tmp_path):
    probe = """
    const tall = (selector) => all(selector).filter((node) => node.getBoundingClientRect().height > 0).length;
    return { verdict: tall(".verdict"), note: tall("noscript"), tables: tall("table"), empty: tall("#interactive section, #picker") };"""
    seen, _ = opened(view, tmp_path, probe, rights='sandbox="allow-same-origin"')
    assert seen.pop("tables") >= 6  # one more is folded
    assert seen == {"verdict": 1, "note": 1, "empty": 0}


def test_another_system_can_be_chosen_in_every_way(view, tmp_path):
    probe = """
    const seen = [[chosen(), curve()]], note = () => seen.push([chosen(), curve()]);
    one("#next").click(); note();
    one("#back").click(); one("#back").click(); note();
    one("#system").value = "1"; tell(one("#system"), "change"); note();
    one("#filter").value = "UNIT 06"; tell(one("#filter"), "input"); note();
    one("#filter").value = ""; tell(one("#filter"), "input");
    point(all("#population .cell:first-child svg")[1], "click", 0.5, 0.99); note();
    return { seen, address: frame.contentWindow.location.hash, options: all("#system option").length };"""
    seen, console = opened(view, tmp_path, probe, fragment="#system=unit%2003", width=DESK)
    lowest = view.systems[view.theta[..., 0].mean((0, 1)).argmin()]
    expected = ["unit 03", "unit 04", "unit 02", "unit 02", "unit 06", lowest]
    assert [who for who, _ in seen["seen"]] == [[f" · {name}", name] for name in expected]
    curves = dict(zip(expected, (curve for _, curve in seen["seen"])))
    assert len(set(curves.values())) == len(set(expected))
    assert seen["address"] == f"#system={lowest.replace(' ', '%20')}"
    assert seen["options"] == 6
    assert console == []


@pytest.mark.nightly
def test_names_stay_text(view, tmp_path):
    probe = """
    one("#next").click();
    const made = { script: all("script").length, img: all("img").length, chosen: chosen() };
    return { ...made, text: all("#interactive svg text").map((node) => node.textContent), options: all("option").map((o) => o.textContent) };"""
    seen, console = opened(
        renamed(view), tmp_path, probe, fragment="#system=%3Cscript%3Ealert(1)%3C%2Fscript%3E", width=DESK
    )
    assert (seen["script"], seen["img"]) == (2, 0)
    assert seen["chosen"] == [f" · {IMAGE}", IMAGE]
    assert seen["options"][:2] == [EVIL, IMAGE]
    assert {EVIL, IMAGE} <= set(seen["text"])
    assert console == []


def test_pointer_shows_the_values_under_it(view, tmp_path):
    probe = """
    const svg = one("#fit svg"), tip = () => one("#fit .tip");
    const before = tip().hidden;
    point(svg, "pointermove", 0.5, 0.5);
    const lines = [...tip().children].map((node) => node.textContent), inside = tip().getBoundingClientRect().right <= 360;
    point(svg, "pointerleave", 0, 0);
    return { before, lines, inside, after: tip().hidden };"""
    seen, console = opened(view, tmp_path, probe)
    told = dict(line.rsplit(" ", 1) if ": " not in line else line.split(": ") for line in seen["lines"])
    number = {name: float(text.replace("−", "-")) for name, text in told.items() if name in ("time", "fit", "truth")}
    point = np.abs(view.grid[:, 0] - number["time"]).argmin()
    np.testing.assert_allclose(number["fit"], view.fit_mean[0, 0, point], atol=0.01)
    np.testing.assert_allclose(number["truth"], view.truth_fit[0, 0, point], atol=0.01)
    assert (seen["before"], seen["inside"], seen["after"]) == (True, True, True)
    assert console == []


def test_pointer_shows_single_draws_of_a_law(view, tmp_path):
    probe = """
    const svg = one("#law svg"), threads = () => frame.contentWindow.getComputedStyle(one("#law .threads")).visibility;
    const before = threads();
    point(svg, "pointermove", 0.5, 0.5);
    const over = threads(), lines = [...one("#law .tip").children].map((node) => node.textContent);
    point(svg, "pointerleave", 0, 0);
    return { before, over, after: threads(), lines, count: all("#law .threads path").length,
      plots: all("#law svg[role=img]").map((node) => node.getAttribute("aria-label")) };"""
    law = banded(view.closures[0])
    seen, console = opened(replace(view, closures=[law]), tmp_path, probe)
    assert (seen["before"], seen["over"], seen["after"]) == ("hidden", "visible", "hidden")
    assert seen["count"] == 20
    assert seen["plots"] == ["law f", "slope of f", "where the data were, for f"]
    told = dict(line.split(": ", 1) for line in seen["lines"] if ": " in line)
    assert told.keys() == {"prior, 95 % band", "95 % band", "f, posterior mean", "truth"}
    x = float(seen["lines"][0].rsplit(" ", 1)[1].replace("−", "-"))
    at = np.abs(law.grid[:, 0] - x).argmin()
    ends = [float(end.replace("−", "-")) for end in told["95 % band"].split(" to ")]
    np.testing.assert_allclose(ends, [law.band.low[at], law.band.high[at]], atol=0.1)
    assert console == []


@pytest.mark.nightly
def test_pointer_reads_fields_where_it_is(view, tmp_path):
    field = field_view(view, (4, 5))
    probe = """
    point(one("#fit svg"), "pointermove", 0.8, 0.3);
    return [...one("#fit .tip").children].map((node) => node.textContent);"""
    seen, console = opened(field, tmp_path, probe, fragment="#system=unit%2002", width=DESK)
    x, y, value = (float(text.replace("−", "-")) for text in re.findall(r"(?:^x|y|fit:) ([−.\d]+)", " ".join(seen)))
    apart = np.abs(field.grid - [x, y]).sum(1)
    assert apart.min() < 0.3
    np.testing.assert_allclose(value, field.fit_mean[1, 0, apart.argmin()], atol=0.01)
    assert console == []


@pytest.mark.nightly
def test_what_a_finger_showed_stays_until_it_touches_another_place(view, tmp_path):
    probe = """
    const tips = () => all(".tip").filter((tip) => !tip.hidden).map((tip) => tip.parentNode.firstChild.getAttribute("aria-label"));
    const touch = (selector) => { for (const type of ["pointerdown", "pointerleave"]) point(one(selector), type, 0.5, 0.5, "touch"); };
    touch("#fit svg"); const first = tips();
    touch("#law svg"); const second = tips();
    point(one("h1"), "pointerdown", 0.5, 0.5, "touch");
    return [first, second, tips()];"""
    seen, console = opened(view, tmp_path, probe)
    assert seen == [["u of unit 01"], ["law f"], []]
    assert console == []


@pytest.mark.nightly
def test_draws_of_the_population_can_be_chosen(view, tmp_path):
    probe = """
    const labels = () => all("#draws svg[role=img]").map((node) => node.getAttribute("aria-label")), before = labels();
    one("#of").value = "mean μ"; tell(one("#of"), "change");
    const after = labels();
    one("#of").value = "correlations"; tell(one("#of"), "change");
    return { before, after, pairs: labels() };"""
    seen, _ = opened(view, tmp_path, probe)
    assert seen["pairs"][0] == "draws of log k and u0, population, correlations"
    assert seen["before"][:3] == [f"{kind} of log k, unit 01" for kind in ("draws", "posterior", "ranks")]
    assert seen["after"][:2] == [f"{kind} of log k, population, mean μ" for kind in ("draws", "posterior")]


@pytest.mark.nightly
def test_five_hundred_systems_are_drawn_and_changed_quickly(tmp_path):
    probe = """
    const { performance } = frame.contentWindow, drawn = performance.now();
    one("#next").click();
    return { drawn, changed: performance.now() - drawn, options: all("#system option").length };"""
    seen, console = opened(make_view(500, 8, 60), tmp_path, probe)
    assert seen["options"] == 500
    assert seen["drawn"] < 2000
    assert seen["changed"] < 1000
    assert console == []


@pytest.mark.nightly
def test_key_figures_are_explained_on_a_phone(view, tmp_path):
    probe = """
    const [name, meaning] = ["th", ".meaning"].map((part) => one(`.key tr:nth-child(2) ${part}`).getBoundingClientRect());
    return { beneath: meaning.top >= name.bottom - 1, tall: meaning.height, right: meaning.right };"""
    seen, _ = opened(view, tmp_path, probe)
    assert seen["beneath"]
    assert seen["tall"] > 10
    assert seen["right"] <= PHONE


@pytest.mark.nightly
def test_no_line_of_the_verdict_ends_within_an_option(view, tmp_path):
    lines = [
        f"{'so ' * count}raise --iterations (now 3), or `closura resume --delayed-acceptance`." for count in range(30)
    ]
    probe = """
    return { heights: all(".verdict .whole").map((node) => node.getClientRects().length), words: one(".verdict li").textContent,
      code: one(".verdict code").textContent };"""
    seen, _ = opened(replace(view, verdict=["Not converged.", *lines]), tmp_path, probe)
    assert seen["heights"] == [1] * 60
    assert seen["words"] == lines[0].replace("`", "")
    assert seen["code"] == "closura resume --delayed-acceptance"
