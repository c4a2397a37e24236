"""The report of a run: one HTML file that opens offline, the verdict first."""

from base64 import b64encode
from collections.abc import Mapping
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment

from ._figures import FIGURES
from ._view import View, counted

KEY_FIGURES = {
    "systems": ("Systems", ""),
    "rhat_max": ("R-hat, worst", "Do the chains agree? 1.00 is perfect."),
    "ess_bulk_min": ("Effective draws, worst", "How many independent draws the averages are worth."),
    "ess_tail_min": ("Effective draws in the tails, worst", "The same for the ends of the intervals."),
    "residual_chi_square": ("Misfit", "Mean squared residual in units of the noise; about 1 is right."),
    "coverage_2sd": ("Coverage", "Share of true parameters within ± 2 standard deviations; 0.95 is right."),
    "theta_mse": ("Parameter error", "Mean square distance of estimates and truth, unconstrained scale."),
    "closure_mse": ("Law error", "Mean square distance of learned and true law on its stated range."),
    "closure_mse_visited": ("Law error where data were", "The same, weighted by where the systems went."),
    "surrogate_error": ("Surrogate error", "Surrogate against solver at the data, in units of the noise."),
    "surrogate_fit_mse": ("Surrogate fit", "Mean square distance of surrogate and solver over whole solutions."),
    "second_stage_acceptance": ("Second stage", "Share of the surrogate's moves that the solver confirmed."),
    "noise_sd": ("Noise", "Standard deviation of the measurement noise."),
    "chains": ("Chains", ""),
    "iterations": ("Iterations", ""),
    "seconds_total": ("Seconds", "Whole run, compilation included."),
}

CHECKS = {
    "chi_square": "mean squared residual",
    "largest": "largest residual",
    "autocorrelation": "correlation of neighbours",
    "inside": "share inside 95 % intervals",
    "pattern": "pattern over time or place",
}

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{{ title }}</title>
<style>
body { margin: 0 auto; max-width: 60rem; padding: 1rem 1.2rem 4rem; color: #1a1a1a; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid #ddd; padding-bottom: .25rem; }
.verdict { border-left: .5rem solid; border-radius: .3rem; padding: .8rem 1.1rem; }
.verdict p { font-size: 1.35rem; font-weight: 650; line-height: 1.3; margin: 0; }
.verdict ul { margin: .6rem 0 0; padding-left: 1.2rem; }
.good { background: #e7f5ec; border-color: #1a7f4b; } .good p { color: #12613a; }
.check { background: #fff4dc; border-color: #d48806; } .check p { color: #7a4d00; }
.scroll { overflow: auto; } .long { max-height: 36rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
thead th { position: sticky; top: 0; background: #fff; font-weight: 600; color: #444;
  white-space: nowrap; }
tbody th { font-weight: 500; min-width: 4.5rem; max-width: 20rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.quiet { color: #5c5c5c; }
figure { margin: 0 0 2rem; } img { width: 100%; max-width: 900px; height: auto; display: block; }
figcaption { color: #444; font-size: .95rem; margin-top: .3rem; }
summary { cursor: pointer; margin: .6rem 0; color: #0065a8; }
@media (max-width: 40rem) {
  .plot { overflow-x: auto; } .plot img { min-width: 38rem; } .meaning { display: none; } }
@media print { .long { max-height: none; } }
</style>
</head>
<body>
{% macro table(head, rows, words=1) %}
<div class="scroll{% if rows|length > 60 %} long{% endif %}"><table>
<thead><tr>{% for name in head %}
<th{% if loop.index > words %} class="number"{% endif %}>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr>{% for cell in row %}{% if loop.index <= words %}<th>{{ cell }}</th>
{%- else %}<td class="number">{{ cell }}</td>{% endif %}{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% endmacro %}
<h1>{{ title }}</h1>
<section class="verdict {{ 'good' if converged else 'check' }}">
<p>{{ '✓' if converged else '⚠' }} {{ verdict[0] }}</p>
{% if verdict[1:] %}<ul>{% for line in verdict[1:] %}<li>{{ line }}</li>{% endfor %}</ul>{% endif %}
</section>
{% if key_figures %}<h2>Key figures</h2>
<table>{% for name, value, meaning in key_figures %}
<tr><th scope="row">{{ name }}</th><td class="number">{{ value }}</td>
<td class="quiet meaning">{{ meaning }}</td></tr>
{%- endfor %}</table>{% endif %}
{% if figures %}<h2>Figures</h2>{% endif %}
{% for image, caption in figures %}<figure>
<div class="plot"><img src="data:image/png;base64,{{ image }}" alt="{{ caption }}"></div>
<figcaption>{{ caption }}</figcaption>
</figure>
{% endfor %}
{% if checks %}<h2>Checks</h2>
<p class="quiet">Are these data like data replicated from the fit? All systems together, and those that stand out; p adjusted for
the number of checks.</p>
{{ table(["Of", "Check", "found", "replicated, 95 %", "p", ""], checks, words=2) }}{% endif %}
{% if population %}<h2>Population</h2>
<p class="quiet">What the systems have in common. Parameters: the median of the population, physical scale; what is on another
scale says so in its name. Posterior mean ± standard deviation, and the central 95 % interval.</p>
{{ table(summary_head, population) }}{% endif %}
<h2>Parameters of each system</h2>
<details{% if parameters|length <= 60 %} open{% endif %}><summary>{{ systems }}, physical scale</summary>
{{ table(["System"] + summary_head, parameters, words=2) }}</details>
{% if phases %}<h2>Course of the run</h2>
{{ table(phase_head, phases) }}{% endif %}
<h2>Settings</h2>
{{ table(["Setting", "Value"], settings, words=2) }}
<details><summary>All metrics</summary>
{{ table(["Metric", "Value"], metrics, words=2) }}</details>
</body>
</html>
"""


def write_report(view: View, figures: dict[str, Path], path: Path) -> None:
    """Write the run as one HTML file at `path`, with the PNGs of `figures` (name -> file) inside it."""
    head = ["Parameter", "mean ± sd", "2.5 %", "97.5 %", "R-hat", "ESS bulk", "ESS tail"]
    page = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE)
    html = page.render(
        title=view.title,
        converged=view.converged,
        verdict=view.verdict or ["Converged." if view.converged else "Not converged."],
        key_figures=_key_figures(view.metrics),
        figures=[(_embedded(file), FIGURES[name][1] if name in FIGURES else name) for name, file in figures.items()],
        summary_head=head + ["truth"] * (view.truth_summary is not None),
        population=_summary_rows(view, "population"),
        parameters=_summary_rows(view, "system"),
        checks=_check_rows(view),
        systems=counted(len(view.systems), len(view.systems), "system"),
        phase_head=["Phase", "until iteration", "acceptance", "step size", "log likelihood at its end"],
        phases=_phase_rows(view),
        settings=[(name, _text(value)) for name, value in _flat(view.settings)],
        metrics=[(name, _text(value)) for name, value in _flat(view.metrics)],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")


def _embedded(file: Path) -> str:
    return b64encode(file.read_bytes()).decode("ascii")


def _key_figures(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    there = ((key, *words) for key, words in KEY_FIGURES.items() if metrics.get(key) is not None)
    return [(name, _text(metrics[key]), meaning) for key, name, meaning in there]


def _summary_rows(view: View, level: str) -> list[list[str]]:
    """Rows of the summary as text; the truth beside them where there is one."""
    truth = np.full(len(view.summary), np.nan) if view.truth_summary is None else view.truth_summary
    rows = []
    for row, true in zip(view.summary.itertuples(index=False, name=None), truth.tolist()):
        where, system, parameter, mean, sd, low, high, rhat, bulk, tail = row
        if where == level:
            named = [parameter] if level == "population" else [system, parameter]
            chains = [f"{rhat:.3f}", f"{bulk:.0f}", f"{tail:.0f}"]
            known = [] if view.truth_summary is None else [_truth(true, low, high)]
            rows.append([*named, *_estimate(mean, sd, low, high), *("—" if c == "nan" else c for c in chains), *known])
    return rows


def _check_rows(view: View) -> list[list[str]]:
    """Of all systems together, and of those that stand out (the first fifty)."""
    if view.checks is None:
        return []
    table, several = view.checks, len(view.quantities) > 1
    all_of_them = {"fleet": "all systems", "others": "all others"}
    odd = table[(table["level"] == "system") & table["off"]].head(50)
    shown = pd.concat([table[table["level"] != "system"], odd]).dropna(subset="p")
    columns = ["level", "system", "quantity", "check", "value", "low", "high", "p_adjusted", "off"]
    rows = []
    for level, system, quantity, check, value, low, high, p, off in shown[columns].to_numpy().tolist():
        who = all_of_them.get(level, f"system {system}") + (f", {quantity}" if several and quantity else "")
        rows.append([who, CHECKS[check], f"{value:.3g}", f"{low:.3g} to {high:.3g}", f"{p:.2g}", "off" if off else ""])
    return rows


def _truth(true: float, low: float, high: float) -> str:
    return f"{true:.4g}{'' if low <= true <= high else ' (outside)'}" if isfinite(true) else ""


def _phase_rows(view: View) -> list[list[str]]:
    if not {"phase", "iteration", "acceptance", "step_size", "loglik"} <= set(view.history.columns):
        return []
    phases = view.history.groupby("phase", sort=False, observed=True)
    table = phases.agg(
        until=("iteration", "last"), a=("acceptance", "mean"), s=("step_size", "last"), l=("loglik", "last")
    )
    return [[str(phase), *(_text(value) for value in row)] for phase, *row in table.itertuples()]


def _estimate(mean: float, sd: float, low: float, high: float) -> tuple[str, str, str]:
    """Rounded to two digits of the standard deviation: more would be noise."""
    if not (isfinite(mean) and isfinite(sd) and sd > 0) or abs(mean) >= 1e6 or sd < 1e-6:
        spread = f" ± {sd:.2g}" if sd > 0 else ""
        return f"{mean:.4g}{spread}", f"{low:.4g}", f"{high:.4g}"
    digits = max(0, 1 - floor(log10(sd)))
    return f"{mean:z.{digits}f} ± {sd:.{digits}f}", f"{low:z.{digits}f}", f"{high:z.{digits}f}"


def _flat(tree: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Nested settings as ('sampler.chains', 32)."""
    rows: list[tuple[str, Any]] = []
    for name, value in tree.items():
        nested = isinstance(value, Mapping) and value
        rows += _flat(value, f"{before}{name}.") if nested else [(f"{before}{name}", value)]
    return rows


def _text(value: Any) -> str:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or (isinstance(value, float) and value != value):
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e9 else f"{value:.0f}"
    if isinstance(value, list | tuple | set | Mapping):
        return ", ".join(_text(part) for part in value) or "none"
    return str(value)
