"""The report of a run: one HTML file that opens offline, the verdict first.

Its template, style and script are the files in `page`; the script draws from JSON that stands in the page.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from math import floor, isfinite, log10
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Environment
from markupsafe import Markup, escape

from ._figures import FIGURES
from ._payload import drawn, payload
from ._view import View, counted

KEY_FIGURES = {
    "systems": ("Systems", ""),
    "rhat_max": ("R-hat, worst", "Do the chains agree? 1.00 is perfect."),
    "ess_bulk_min": ("Effective draws, worst", "How many independent draws the averages are worth."),
    "ess_tail_min": ("Effective draws in the tails, worst", "The same for the ends of the intervals."),
    "residual_chi_square": ("Misfit", "Mean squared residual in units of the noise; about 1 is right."),
    "coverage_2sd": ("Coverage", "Share of true parameters within ± 2 standard deviations; 0.95 is right."),
    "law_coverage": (
        "Coverage of the law",
        "Share of where systems went in which the law's 95 % band holds the truth.",
    ),
    "theta_mse": ("Parameter error", "Mean square distance of estimates and truth, unconstrained scale."),
    "closure_mse": ("Law error", "Mean square distance of learned and true law on its stated range."),
    "closure_mse_visited": ("Law error where data were", "The same, weighted by where the systems went."),
    "surrogate_error": ("Surrogate error", "Surrogate against solver at the data, in units of the noise."),
    "surrogate_fit_mse": ("Surrogate fit", "Mean square distance of surrogate and solver over whole solutions."),
    "second_stage_acceptance": ("Second stage", "Share of the surrogate's moves that the solver confirmed."),
    "noise_sd": ("Noise", ""),
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

PAGE = files(__package__) / "page"


def write_report(view: View, figures: dict[str, Path], path: Path) -> None:
    """Write the run as one HTML file at `path`, with those PNGs of `figures` (name -> file) in it that it does not draw."""
    head = ["Parameter", "mean ± sd", "2.5 %", "97.5 %", "R-hat", "ESS bulk", "ESS tail"]
    script = "".join(_page(name) for name in ("chart.js", "parts.js", "page.js"))
    page = Environment(autoescape=True, trim_blocks=True).from_string(_page("report.html"))
    data = json.dumps(payload(view), allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    still = {name: file for name, file in figures.items() if name not in drawn(view)}
    html = page.render(
        title=view.title,
        converged=view.converged,
        verdict=[_marked(line) for line in view.verdict or ["Converged." if view.converged else "Not converged."]],
        key_figures=_key_figures(view),
        still={name: (_base64(file.read_bytes()), FIGURES[name][1]) for name, file in still.items()},
        summary_head=head + ["truth"] * (view.truth_summary is not None),
        population=_summary_rows(view, "population"),
        parameters=_summary_rows(view, "system"),
        checks=_check_rows(view),
        systems=counted(len(view.systems), len(view.systems), "system"),
        phase_head=["Phase", "until iteration", "acceptance", "step size", "log likelihood at its end"],
        phases=_phase_rows(view),
        settings=[(name, _text(value)) for name, value in _flat(view.settings)],
        metrics=[(name, _text(value)) for name, value in _flat(view.metrics)],
        style=Markup(_page("report.css")),
        data=Markup(data.replace("<", "\\u003c")),  # cannot end the script element it stands in
        script=Markup(script),
        hash=f"sha256-{_base64(sha256(script.encode()).digest())}",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")


def _page(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _marked(line: str) -> Markup:
    """Text in backticks as code, and options (--iterations) that no line ends within; all else stays text."""
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(line)))
    return Markup(re.sub(r"(?<![\w-])(--[A-Za-z][\w-]{0,30})", r'<span class="whole">\1</span>', coded))


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _key_figures(view: View) -> list[tuple[str, str, str]]:
    metrics, known = view.metrics, KEY_FIGURES | {"noise_sd": ("Noise", view.scale_label)}
    there = ((key, *words) for key, words in known.items() if metrics.get(key) is not None)
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
    # Counted from one, as in the verdict.
    return [[str(phase), _text(until + 1), *map(_text, row)] for phase, until, *row in table.itertuples()]


def _estimate(mean: float, sd: float, low: float, high: float) -> tuple[str, str, str]:
    """Rounded to two digits of the standard deviation: more would be noise."""
    if not (isfinite(mean) and isfinite(sd) and sd > 0) or abs(mean) >= 1e6 or sd < 1e-6:
        spread = f" ± {sd:.2g}" if sd > 0 else ""
        return f"{mean:.4g}{spread}", f"{low:.4g}", f"{high:.4g}"
    digits = max(0, 1 - floor(log10(sd)))
    return f"{mean:z.{digits}f} ± {sd:.{digits}f}", f"{low:z.{digits}f}", f"{high:z.{digits}f}"


def _flat(tree: Mapping[str, object], before: str = "") -> list[tuple[str, object]]:
    """Nested settings as ('sampler.chains', 32)."""
    rows: list[tuple[str, object]] = []
    for name, value in tree.items():
        nested = _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else []
        rows += nested or [(f"{before}{name}", value)]
    return rows


def _text(value: object) -> str:
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
