"""From a run to a result: everything that is said, drawn or kept of it."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from ..diagnose import (
    Evidence,
    Truth,
    bad_scheme,
    check_table,
    confounded,
    judge,
    remarks,
    spot_check,
    trajectories,
)
from ..equations import Equation, ProblemError, kinds_in_words
from ..laws import Law, support_of
from ..learning import Run
from ..posterior import posterior_tree, replicate, residual_views, summarise, true_values
from ._metrics import metrics_of, verdict_metrics
from ._result import Result
from ._view_parts import surrogate_apart, view_parts

EMPTY_HISTORY = ("iteration", "acceptance", "loglik", "temperature", "step_size", "phase")
# Names the posterior needs for itself.
TAKEN: tuple[str, ...] = ("mu", "tau", "sigma", "correlation", "shift", "effect", "quantity")
TAKEN += ("chain", "draw", "system", "parameter", "other")


def check_names(problem: Equation) -> None:
    """Parameters become variables of the posterior: refuse names that mean something else there."""
    if not isinstance(problem, Equation):
        raise ProblemError(
            f"a problem is a {kinds_in_words()}, not a {type(problem).__name__}; of a problem "
            "file, import `problem`, or use the command line: closura fit FILE --data TABLE"
        )
    for name in problem.parameters.names:
        if name in TAKEN:
            raise ProblemError(
                f"a parameter cannot be called {name!r}: in the posterior that name means something else "
                f"(taken: {', '.join(TAKEN)}); rename it, e.g. {name}_"
            )


@np.errstate(over="ignore", invalid="ignore")  # trajectories of a run that went wrong need not be finite
def collect(run: Run, truth: Truth | None = None, context: Mapping[str, Any] | None = None) -> Result:
    """`context` are settings the run does not know: where data came from, seeds of synthetic data."""
    context, parameters, visited = dict(context or {}), run.problem.parameters, run.visited()
    paths, replicas = trajectories(run, truth), replicate(run)
    checks = check_table(replicas.residual, replicas.inside, run.data)
    surrogate, noise = spot_check(run, paths, truth), run.setup.exact.noise
    unit = noise.unit(replicas.predicted.mean(axis=0), run.sigma())
    learned = any(spec.trainable for spec in run.problem.closures.values())
    found = Evidence(
        convergence=run.convergence(),
        chi_square=replicas.chi_square(run.sigma()),
        outside=run.outside(),
        surrogate_error=surrogate.error,
        reading=run.problem.interpolation_error(run.data, paths.fit.mean(axis=0), unit),
        checked=remarks(checks, replicas.residual, run.data, noise, learned=learned),
        scheme=None if run.diverged or run.phase == "learn" else bad_scheme(run),
        draws=run.draws(),
        log_step=run.log_steps,
    )
    verdict = judge(run, found)
    if verdict.converged and run.laws:
        verdict.remarks += confounded(run)
    metrics = metrics_of(run, truth, paths, context.get("data_seed"))
    metrics |= verdict_metrics(run, verdict, found, surrogate.figures)
    laws = _laws(run, visited)
    tree = posterior_tree(run, replicas.dataset())
    table = summarise(tree, parameters, found.convergence)
    drawn = view_parts(run, truth, laws, visited, paths) | {"summary": table}
    drawn |= {"surrogate_fit": surrogate.fit, "surrogate_apart": surrogate_apart(run, surrogate.fit, paths)}
    drawn |= {"truth_summary": true_values(table, parameters, truth)}
    drawn |= {"checks": checks, "residuals": residual_views(replicas, checks)}
    return Result(
        problem=run.problem,
        data=run.data,
        settings={**context, **run.settings.model_dump()},
        verdict=verdict,
        metrics=metrics,
        tree=tree,
        history=_history(run),
        closures=laws,
        network=run.network,
        visited=visited,
        truth=truth,
        summary_table=table,
        checks_table=checks,
        view_parts=drawn,
    )


def _laws(run: Run, visited: Mapping[str, np.ndarray]) -> dict[str, Law]:
    """The laws with where data supported them, and the range of their tables."""
    inputs = run.problem.law_input_names()
    tables = {name: (np.asarray(ends.low), np.asarray(ends.high)) for name, ends in run.state.ranges.items()}
    own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), run.kept.law) or {}
    laws = {name: own.get(name, law) for name, law in run.laws.items()}
    return {name: Law(name, law, inputs[name], support_of(visited[name]), tables[name]) for name, law in laws.items()}


def _history(run: Run) -> pd.DataFrame:
    """A row an iteration."""
    if not run.history:
        return pd.DataFrame(columns=list(EMPTY_HISTORY))
    return pd.DataFrame({key: np.concatenate([entry[key] for entry in run.history]) for key in run.history[0]})
