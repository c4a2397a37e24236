"""Before the first iteration: is the problem solvable, what are the units of its laws, where do they get called?"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..forward import Solver
from ..problem import ODE, Closure, DataError, Known, Observations, ProblemError, Range, Scaling, unit_scaling

MARGIN = 0.25
SURVEY_POINTS = 2_000_000


def check_data(problem: ODE, data: Observations) -> Observations:
    """The data as this problem sees them, or a message why it cannot."""
    matched = data.matched(problem.observed, problem.span, problem.sigma)
    total = int(matched.counts.sum())
    if total <= len(problem.parameters):
        raise DataError(
            f"the table holds {total} observation{'s' * (total != 1)} in all, not more than the {len(problem.parameters)} "
            f"parameters of one system ({', '.join(problem.parameters.names)}); add data, or fix some parameters"
        )
    return matched


def check_physics(forward: Solver, laws: Mapping[str, Any]) -> None:
    """One trajectory from the middle of the prior must be finite."""
    problem = forward.problem
    theta = jnp.asarray(problem.parameters.mean, float)
    path = np.asarray(forward.trajectory(theta, laws))
    bad = ~np.isfinite(path)
    if bad.any():
        step = int(np.argmax(bad.any(axis=1)))
        component = problem.state_names[int(np.argmax(bad[step]))]
        guesses = ", ".join(f"{n}={kind.guess:.4g}" for n, kind in problem.parameters.kinds.items())
        raise ProblemError(
            f"the physics gives {path[step][bad[step]][0]} for {component!r} at t = {problem.times[step]:.4g} with parameters at "
            f"their guesses ({guesses}) and the closure at its start (about zero); check the physics function for divisions "
            "by zero and roots or logarithms of negative numbers, lower dt, or choose Adaptive('kvaerno5') if it is stiff"
        )


def visited_inputs(forward: Solver, laws: Mapping[str, Any], theta: Array) -> dict[str, np.ndarray]:
    """Finite inputs every law was called with, name -> (call, input), over (chain, system) trajectories."""
    seen = jax.jit(jax.vmap(jax.vmap(lambda t: forward.visited(t, laws))))(theta)
    flat = {name: np.asarray(x).reshape(-1, x.shape[-1]) for name, x in seen.items()}
    return {name: x[np.isfinite(x).all(axis=1)] for name, x in flat.items()}


def spread_of(inputs: np.ndarray, share: float = 0.999) -> tuple[np.ndarray, np.ndarray]:
    """The central interval that holds `share` of the calls; never of zero width."""
    if not len(inputs):
        return -np.ones(inputs.shape[1]), np.ones(inputs.shape[1])
    low, high = np.quantile(inputs, [(1 - share) / 2, (1 + share) / 2], axis=0)
    least = 1e-3 * np.maximum(1e-3, np.maximum(np.abs(low), np.abs(high)))
    return np.where(high - low < least, low - least, low), np.where(high - low < least, high + least, high)


def table_range(inputs: np.ndarray) -> Range:
    """The range a table covers: what was visited, and a margin."""
    low, high = spread_of(inputs)
    margin = MARGIN * (high - low)
    return Range(jnp.asarray(low - margin, float), jnp.asarray(high + margin, float))


def start_laws(forward: Solver, theta: Array, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Range]]:
    """Closures with first weights and units taken from the problem itself, and the ranges of their tables.

    Inputs are scaled by where trajectories of prior draws go when the law is absent. The output is scaled by how large a
    law must be to matter: the size of the known right-hand side over its response to the law.
    """
    problem = forward.problem
    absent = {name: _constant(0.0, spec.inputs) for name, spec in problem.closures.items()}
    seen = visited_inputs(forward, absent, theta)
    laws: dict[str, Any] = {}
    for law_key, (name, spec) in zip(jr.split(key, max(1, len(problem.closures))), problem.closures.items()):
        low, high = spread_of(seen[name], 0.95)
        output = _output_scale(forward, absent, name, theta)
        scaling = Scaling(
            jnp.asarray((low + high) / 2, float), jnp.asarray((high - low) / 2, float), jnp.asarray(output, float)
        )
        laws[name] = spec.build(law_key, scaling)
    return laws, {name: table_range(inputs) for name, inputs in seen.items()}


def _constant(value: float, inputs: int) -> Any:
    return Known(lambda *x: jnp.full(jnp.shape(x[0]), value, dtype=float), inputs).build(jr.key(0), unit_scaling(inputs))


def _output_scale(forward: Solver, absent: dict[str, Any], name: str, theta: Array) -> float:
    problem = forward.problem
    present = absent | {name: _constant(1.0, problem.closures[name].inputs)}
    times = jnp.asarray(problem.times, float)

    def response(theta: Array) -> tuple[Array, Array]:
        path = forward.trajectory(theta, absent)
        without = jnp.stack(jax.vmap(problem.rate(theta, absent))(times, tuple(path.T)), axis=-1)
        with_law = jnp.stack(jax.vmap(problem.rate(theta, present))(times, tuple(path.T)), axis=-1)
        return without, with_law - without

    without, change = jax.jit(jax.vmap(jax.vmap(response)))(theta)
    feels = np.isfinite(change) & np.isfinite(without) & (np.abs(np.asarray(change)) > 0)
    if not feels.any():
        return 1.0
    ratio = np.median(np.abs(np.asarray(without)[feels])) / np.median(np.abs(np.asarray(change)[feels]))
    return float(ratio) if np.isfinite(ratio) and ratio > 0 else 1.0


def outside_share(laws: Mapping[str, Any], prepared: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Which part of the calls went outside each table."""
    return {
        name: float(np.mean(np.asarray(prepared[name].outside(jnp.asarray(inputs[name], float)))))
        for name, law in laws.items()
        if isinstance(law, Closure) and law.spec.nodes and len(inputs[name])
    }
