"""Is the band of a sampled law calibrated, and do intervals of theta know of it? Many data sets of one kind, each fitted twice:
with the law unknown, and with the law known.

python benchmarks/law.py [--first SEED] [--sets COUNT] [--workers COUNT] [--keep FILE] CASE ...

A case is a name below, with the number of systems behind a colon where it is not the usual ten: `cubic:3`. The unit is the
data set: means over data sets and their standard errors. What was fitted is kept in a file, a line each with the commit, and
not fitted again: a table may be made in parts. To fit a case again, remove its lines.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, commit, heading, kept_rows, table

SYSTEMS = 10
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A mass-damper with another truth, or another statement of what is known of its law."""

    truth: Callable[[Any], Any]
    stated: dict[str, Any] = dataclasses.field(default_factory=dict)
    made: Callable[["Case"], Any] = lambda case: _mass_damper(case)


def _cubic(v: Any) -> Any:
    return 0.08 * v**3 + 0.08 * v


def _library() -> dict[str, Case]:
    import jax
    import jax.numpy as jnp

    return {
        "cubic": Case(_cubic),
        # Other truths
        "tanh": Case(lambda v: jnp.tanh(2 * v)),
        "quadratic": Case(lambda v: 0.5 * v * jnp.abs(v)),
        "sine": Case(lambda v: 0.4 * jnp.sin(2 * v) + 0.2 * v),
        "hill": Case(lambda v: 3 * v**2 / (4 + v**2) * jnp.sign(v)),
        # Sharp ones
        "jump-4": Case(lambda v: 0.5 * jnp.tanh(4 * v) + 0.3 * v, {"jump": 0.0}),
        "jump-20": Case(lambda v: 0.5 * jnp.tanh(20 * v) + 0.3 * v, {"jump": 0.0}),
        "kink": Case(lambda v: 0.4 * jnp.abs(v) + 0.2 * v, {"kink": 0.0}),
        # Units and reference points that are wrong; the equation itself says 10 and where solutions go.
        "unit-small": Case(_cubic, {"unit": 1.0}),
        "unit-large": Case(_cubic, {"unit": 100.0}),
        "reference-low": Case(_cubic, {"reference": -5.0}),
        "reference-high": Case(_cubic, {"reference": 5.0}),
        # Structure that the truth has
        "odd": Case(_cubic, {"odd": True}),
        "positive": Case(jax.nn.softplus, {"positive": True}),
        "increasing": Case(_cubic, {"increasing": True}),
        "dissipative": Case(_cubic, {"dissipative": True}),
        "at": Case(_cubic, {"at": {2.0: 0.8}}),
        # Each system has a damping of its own beside the law, which holds all of it in truth but for a little.
        "confounded": Case(_cubic, made=_with_own_damping),
        # A law of two inputs, to be told from the spring
        "two-inputs": Case(lambda u, v: 0.3 * v * (1 + u**2) / (1 + 0.5 * v**2), {"inputs": 2}, made=_two_inputs),
    }


def main(arguments: list[str]) -> None:
    options = argparse.ArgumentParser()
    options.add_argument("cases", nargs="+")
    options.add_argument("--first", type=int, default=500)
    options.add_argument("--sets", type=int, default=20)
    options.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--keep", type=Path, default=ROOT / "benchmarks/kept/law.jsonl")
    asked = options.parse_args(arguments)
    asked.keep.parent.mkdir(parents=True, exist_ok=True)
    heading(f"Sampled laws, mass-damper, {asked.sets} data sets of each case from seed {asked.first}")
    # Programs are compiled once and shared by the workers through a cache on disk.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT.resolve() / "runs/compiled"))
    seeds = range(asked.first, asked.first + asked.sets)
    there = {(row["case"], row["seed"]) for row in kept_rows(asked.keep)}
    jobs = [(case, seed) for seed in seeds for case in asked.cases if (case, seed) not in there]
    # A process keeps every program it compiled, and the system lets it map so many pages of them.
    with get_context("spawn").Pool(asked.workers, maxtasksperchild=15) as pool, asked.keep.open("a") as kept:
        for row in pool.imap_unordered(_fit, jobs):
            print(json.dumps({**row, "commit": commit()}), file=kept, flush=True)
            print(f"<!-- {row} -->", file=sys.stderr, flush=True)
    rows = [row for row in kept_rows(asked.keep) if row["seed"] in seeds]
    print(table(COLUMNS, [_summary(case, [row for row in rows if row["case"] == case]) for case in asked.cases]))
    print("\nEach figure is a mean over data sets, with its standard error where there is a ±.")


def _fit(job: tuple[str, int]) -> Row:
    """A row of what one data set tells."""
    import closura as cl

    name, seed = job

    cl.use_cores(1)
    from closura.learning import Run, make_settings
    from closura.runs import collect

    kind, _, systems = name.partition(":")
    case = _library()[kind]
    problem = case.made(case)
    problem = dataclasses.replace(problem, problem=problem.problem.with_closure(cl.Law(**case.stated)))
    data, truth = problem.simulate(int(systems or SYSTEMS), seed)
    found = {}
    for which, equation in (("law", problem.problem), ("known", problem.oracle())):
        start = time.process_time()
        run = Run(equation, data, make_settings({"devices": 1}, equation))
        while not run.finished:
            run.advance()
        found[which] = (run, time.process_time() - start)
    (run, seconds), (known, _) = found["law"], found["known"]
    result = collect(run, truth)
    law, metrics = result.closures["f"], result.metrics
    visited = _some_of(run.visited()["f"])
    held = known.theta()
    low, high = np.quantile(held, [0.025, 0.975], axis=(0, 1))
    return {
        "case": name,
        "seed": seed,
        **{key: metrics[key] for key in KEYS},
        "undecided": metrics["undecided"],
        "theta known": float(np.mean((low <= truth.theta) & (truth.theta <= high))),
        "width": float(np.mean(run.theta().std(axis=(0, 1)) / held.std(axis=(0, 1)))),
        "band": float(np.mean(law.sd(*visited) / law.prior_sd(*visited))),
        "seconds": seconds,
    }


KEYS = ("verdict", "rhat_max", "ess_bulk_min", "coverage_95", "law_coverage", "law_coverage_outside", "closure_mse")
COLUMNS = ["case", "sets", "band covers where data were", "outside", "theta in 95 %", "law known", "difference"]
COLUMNS += [
    "theta's sd / known",
    "band / prior",
    "closure MSE",
    "R-hat median, worst",
    "least ESS",
    "CPU s",
    "verdicts",
]


def _summary(name: str, rows: list[Row]) -> list[Any]:
    """A row of the table."""

    def mean(values: list[Any]) -> str:
        known = np.array([v for v in values if v is not None], float)
        if not len(known):
            return ""
        error = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else np.nan
        return f"{known.mean():.3f} ± {error:.3f}"

    of = {key: [row[key] for row in rows] for key in rows[0]}
    apart = [a - b for a, b in zip(of["coverage_95"], of["theta known"], strict=True)]
    words = ", ".join(f"{of['verdict'].count(word)} {word}" for word in sorted(set(of["verdict"])))
    return [
        name,
        len(rows),
        mean(of["law_coverage"]),
        mean(of["law_coverage_outside"]),
        mean(of["coverage_95"]),
        mean(of["theta known"]),
        mean(apart),
        f"{np.mean(of['width']):.3f}",
        f"{np.mean(of['band']):.3f}",
        mean(of["closure_mse"]),
        f"{np.median(of['rhat_max']):.4f}, {max(of['rhat_max']):.4f}",
        f"{min(of['ess_bulk_min']):.0f}",
        f"{np.median(of['seconds']):.0f}",
        words,
    ]


def _mass_damper(case: Case) -> Any:
    from closura.problems import mass_damper

    return dataclasses.replace(mass_damper, laws={"f": case.truth})


def _some_of(visited: Any) -> list[Any]:
    """Inputs where most calls are, an array each: evenly spaced quantiles of one, every so-many-th call of two."""
    if visited.shape[1] == 1:
        return [np.quantile(visited[:, 0], np.linspace(0.05, 0.95, 19))]
    return list(visited[:: max(1, len(visited) // 100)].T)


def _with_own_damping(case: Case) -> Any:
    """u'' + f(u') + c_k u' + k u = 10 sin t, with dampings c_k of each system's own."""
    import jax.numpy as jnp

    import closura as cl

    def physics(t: Any, state: Any, p: Any, f: Any) -> Any:
        u, v = state
        return v, 10 * jnp.sin(t) - f(v) - p.c * v - p.k * u

    made = _oscillators(case, physics, {"c": cl.Real(guess=0.0, width=0.3, spread=0.1, spread_width=0.5)})
    return dataclasses.replace(made, mu=np.r_[made.mu, 0.1], tau=np.r_[made.tau, 0.01])


def _two_inputs(case: Case) -> Any:
    """u'' + f(u, u') + k u = 10 sin t."""
    import jax.numpy as jnp

    def physics(t: Any, state: Any, p: Any, f: Any) -> Any:
        u, v = state
        return v, 10 * jnp.sin(t) - f(u, v) - p.k * u

    return dataclasses.replace(_oscillators(case, physics, {}), ranges={})


def _oscillators(case: Case, physics: Callable[..., Any], more: dict[str, Any]) -> Any:
    """Other oscillators, with parameters and observations as the mass-damper's."""
    import closura as cl
    from closura.problems import mass_damper

    problem = cl.ODE(
        physics,
        state=("u", "v"),
        parameters={
            "k": cl.Positive(guess=3.0, width=0.316, spread=0.141, spread_width=0.632),
            "u0": cl.Real(guess=0.5, width=1.0, spread=1.0, spread_width=0.283),
            "v0": cl.Real(guess=1.0, width=1.0, spread=1.0, spread_width=0.283),
            **more,
        },
        initial=lambda p: (p.u0, p.v0),
        span=(0.0, 8.0),
        dt=0.08,
        closure=cl.Law(**case.stated),
        observed="u",
        sigma=0.15,
    )
    return dataclasses.replace(mass_damper, problem=problem, laws={"f": case.truth})


if __name__ == "__main__":
    main(sys.argv[1:])
