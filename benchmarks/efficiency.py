"""Effective samples per CPU second, least scalar of theta and phi: this version, another one, BlackJAX NUTS on our likelihood.

python benchmarks/efficiency.py [FOLDER] [--seed SEED]

Mass-damper, law known, one core, one after the other. FOLDER is a checkout of another version, which runs in this environment.
NUTS begins near the truth; its warm-up is counted in a column of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SYSTEMS = (20, 100)
DRAWS = 600
NUTS_CHAINS, NUTS_WARM_UP, NUTS_DRAWS = 4, 700, 1000


def main(arguments: list[str]) -> None:
    from _common import ROOT, heading, table

    options = argparse.ArgumentParser()
    options.add_argument("other", type=Path, nargs="?")
    options.add_argument("--seed", type=int, default=11)
    asked = options.parse_args(arguments)
    heading("Effective samples per CPU second (mass-damper, law known, one core)")
    samplers = {"this version": (ROOT, "ours"), "BlackJAX NUTS": (ROOT, "nuts")}
    if asked.other:
        samplers = {"the other version": (asked.other, "ours"), **samplers}
    rows: list[list[Any]] = []
    for systems in SYSTEMS:
        found = {name: _apart(*how, systems, asked.seed) for name, how in samplers.items()}
        ours = found["this version"]["rate"]
        for name, one in found.items():
            warm = one["ess"] / (one["seconds"] + one["warm"]) if "warm" in one else ""
            rows.append([systems, name, one["ess"], one["seconds"], one["rate"], ours / one["rate"], warm])
    columns = ["systems", "sampler", "least ESS", "CPU s", "ESS / CPU s", "this version over it", "with its warm-up"]
    print(table(columns, rows))


def _apart(version: Path, kind: str, systems: int, seed: int) -> dict[str, float]:
    """In a process of its own, on one core."""
    core = str(min(os.sched_getaffinity(0)))
    environment = os.environ | {"PYTHONPATH": str(version.resolve() / "src")}
    command = ["taskset", "-c", core, sys.executable, __file__, "--one", kind, str(systems), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return found | {"rate": found["ess"] / found["seconds"]}


def _ours(systems: int, seed: int) -> dict[str, float]:
    import closura

    closura.use_cores(1)
    from closura.learning import Run, Settings
    from closura.problems import mass_damper

    data, _ = mass_damper.simulate(systems, seed)
    run = Run(mass_damper.oracle(), data, Settings(draws=DRAWS, extend=0, devices=1))
    seconds = []
    while not run.finished:
        phase, start = run.phase, time.process_time()
        run.advance()
        seconds += [time.process_time() - start] if phase == "sample" else []
    # In the first chunk something may still be compiled.
    draws = [run.theta(), *run.phi()[:2]]
    return {"ess": _least(draws), "seconds": float(np.median(seconds) * len(seconds))}


def _nuts(systems: int, seed: int) -> dict[str, float]:
    import closura

    closura.use_cores(1)
    import blackjax
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    from closura.equations import unit_scaling
    from closura.forward import likelihood
    from closura.population import Phi, population
    from closura.problems import mass_damper

    (data, truth), problem = mass_damper.simulate(systems, seed), mass_damper.oracle()
    target, prior = likelihood(problem, data), population(problem.parameters)
    laws = {name: spec.build(jr.key(0), unit_scaling(1)) for name, spec in problem.closures.items()}

    @jax.custom_jvp
    def loglik(theta: Any) -> Any:
        return jnp.sum(target.evaluate(theta[None], laws)[0])

    # The score that closura computes by forward mode, handed over as the derivative.
    @loglik.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        value, score = target.evaluate(primals[0][None], laws)
        return jnp.sum(value), jnp.sum(score[0] * tangents[0])

    def log_density(x: Any) -> Any:
        phi = Phi(x["mu"], x["log_tau"])
        return loglik(x["theta"]) + jnp.sum(prior.log_prior(x["theta"], phi)[0]) + prior.log_hyperprior(phi)

    # Data decide most of theta, so that NUTS does better in theta itself than in units of the population.
    start = {"theta": jnp.asarray(truth.theta, float), "mu": prior.mean, "log_tau": prior.log_variance}
    starts = jax.tree.map(lambda a: a + 0.05 * jr.normal(jr.key(5), (NUTS_CHAINS, *a.shape)), start)

    def warm_up(key: Any, start: Any) -> Any:
        (state, tuned), _ = blackjax.window_adaptation(blackjax.nuts, log_density).run(key, start, NUTS_WARM_UP)
        return state, tuned

    def sample(key: Any, state: Any, tuned: Any) -> Any:
        kernel = blackjax.nuts(log_density, **tuned).step

        def one(state: Any, key: Any) -> Any:
            state, _ = kernel(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jr.split(key, NUTS_DRAWS))[1]

    def timed(function: Any, *arguments: Any) -> tuple[Any, float]:
        compiled = jax.jit(jax.vmap(function)).lower(*arguments).compile()
        before = time.process_time()
        return jax.block_until_ready(compiled(*arguments)), time.process_time() - before

    keys = jr.split(jr.key(2), (2, NUTS_CHAINS))
    (state, tuned), warm = timed(warm_up, keys[0], starts)
    draws, seconds = timed(sample, keys[1], state, tuned)
    return {"ess": _least(list(draws.values())), "seconds": seconds, "warm": warm}


def _least(draws: list[Any]) -> float:
    """Least effective size of (chain, draw, ...)."""
    from arviz_stats.base import array_stats

    flat = np.concatenate([np.asarray(a, float).reshape(*a.shape[:2], -1) for a in draws], axis=-1)
    of = [array_stats.ess(one, chain_axis=0, draw_axis=1, method="mean") for one in np.moveaxis(flat, -1, 0)]
    return float(np.min(of))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps({"ours": _ours, "nuts": _nuts}[sys.argv[2]](int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(sys.argv[1:])
