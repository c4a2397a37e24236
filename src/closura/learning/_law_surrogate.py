"""The part of a run whose chains sample laws through a surrogate: learned by the solver, then seen through a network.

learn    Gauss-Newton steps by the solver alone, the likelihood tempered in: they find law and parameters
tune     the surrogate is trained about these, and between chunks on the draws of chains, which walk on it
sample   as always: everything is frozen
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, PyTree

from ..sampling import Chains, Kernel, per_group, split_keys
from ._initialise import spread_of, table_range
from ._newton import MARGIN, ROUNDS, reframed_to, restated, retabled
from ._program import GROUPS
from ._refine import looking_where, spaced
from ._schedule import FIRST_TEMPERATURE
from ._setup import Draws, Log, State
from ._solver_newton import ARRIVED, NEARLY_ARRIVED, best_first, drawn, gauss_newton_round, quadratics

if TYPE_CHECKING:
    from ._run import Run

TEMPERED = 6  # rounds, over which the likelihood comes in
LOOKED = 4  # rounds from one look at where solutions go to the next
WIDER = 1.3  # than the quadratic approximation are the draws that a surrogate is first trained on
TRAINING, THOROUGHLY = 400, 4  # rounds of `inner_steps` steps; so many times as many in the end
PARTS = 4  # of the replay, one of which is solved at a time


def sees_sampled_laws(run: "Run") -> bool:
    """Is there a surrogate that sees laws which chains sample?"""
    return run.network is not None and bool(run.sampled)


def solver_round(run: "Run") -> dict[str, np.ndarray]:
    """One Gauss-Newton step of parameters and laws. Where it has arrived, laws get their units from where solutions go then;
    where it has arrived once more, they are learned."""
    temperature = float(FIRST_TEMPERATURE ** max(0.0, 1 - run.iteration / TEMPERED))
    posterior, kernels = run.posterior.by_solver(), _gibbs_kernels(run)
    keys, chains = split_keys(run.state.keys, 2), run.state.chains
    if run.iteration == 0:
        chains = best_first(posterior, chains)
    tuning = {kernel.name: run.state.tuning[kernel.name] for kernel in kernels}
    chains, told, length = gauss_newton_round(keys[1], posterior, kernels, tuning, chains, temperature)
    decrement = np.array([quadratic.decrement for quadratic in told])
    run.state = run.spread(run.state._replace(keys=keys[0], chains=chains))
    near = ARRIVED if run.arrived else NEARLY_ARRIVED
    there = temperature == 1 and bool(np.all((decrement < near) | (length == 0)))
    late = run.arrived == 0 and 2 * (run.iteration + 1) >= run.plan.learn
    if there or late:
        run.arrived = ROUNDS if run.arrived else 1
    if run.arrived == 1 and (there or late):
        _restate(run)
    elif (run.iteration + 1) % LOOKED == 0:
        ranges = {name: table_range(x) for name, x in run.visited().items() if name in run.sampled}
        chains, frames = retabled(run.state.chains, run.state.ranges, ranges, temperature == 1)
        run.state = run.spread(run.state._replace(chains=chains, ranges=frames))
    return run.note_round(_log_of(decrement, length), temperature)


def _restate(run: "Run") -> None:
    """Units of the laws' inputs from where solutions go; laws stay the same as nearly as their new tables allow."""
    seen, frames, laws = run.visited(), dict(run.state.ranges), dict(run.state.chains.law)
    for name in run.sampled:
        old, law = frames[name], laws[name]
        frames[name] = restated(old, law, spread_of(seen[name], 0.95), table_range(seen[name], MARGIN))
        laws[name] = reframed_to(law, old, frames[name])
    chains = run.state.chains._replace(law=laws)
    run.state = run.spread(run.state._replace(chains=chains, ranges=frames))


def begin_surrogate(run: "Run", first: State) -> None:
    """Train a surrogate about where learning by the solver ended; `first` is the state in which it was made."""
    keys, chains = split_keys(run.state.keys, 2), run.state.chains
    told = quadratics(run.posterior.by_solver(), chains, 1.0)
    state = run.state._replace(keys=keys[0])
    run.state = run.spread(looking_where(run.setup, state, first, run.visited()))
    for part in range(2):
        draws = drawn(per_group(keys[1], part), chains, told, _some(run), WIDER)
        _train(run, draws, TRAINING)


def refine_surrogate(run: "Run", draws: Draws) -> None:
    """Train the surrogate on draws of a chunk of tuning, beside those that it knows; the last time more thoroughly."""
    last = run.iteration + run.plan.sample_chunk >= run.plan.learn + run.plan.tune
    _train(run, spaced(draws, _some(run)), (THOROUGHLY if last else 1) * TRAINING)
    run.stale = True


def _some(run: "Run") -> int:
    """Draws of a group that are solved at once, to train a surrogate on: a part of the replay."""
    return max(1, run.settings.replay // PARTS)


def _train(run: "Run", draws: tuple[Array, PyTree], rounds: int) -> None:
    some = jax.tree.map(lambda a: jax.device_put(a, NamedSharding(run.mesh, GROUPS)), draws)
    steps = jnp.asarray(rounds * run.settings.inner_steps)
    # What it does not look at changes its form between learning and sampling.
    whole, none = run.state, jnp.zeros((run.settings.groups, 0, 0, 0))
    bare = whole._replace(chains=Chains(none), tuning={})
    told, error = run.refine_program(bare, some, steps)
    run.state = told._replace(chains=whole.chains, tuning=whole.tuning)
    run.surrogate_errors.append(float(error))


def _gibbs_kernels(run: "Run") -> list[Kernel]:
    """Kernels that draw what stands above the systems given theta."""
    above = {"phi", "log_sigma"}
    return [kernel for kernel in run.setup.learning_kernels if set(kernel.moves) <= above]


def _log_of(decrement: np.ndarray, length: np.ndarray) -> Log:
    """What a round tells: how far it was from its mode, and how long its steps were."""
    none, zero = jnp.full(1, jnp.nan), jnp.zeros(1)
    return Log(none, jnp.full(1, -decrement.mean()), jnp.full(1, length.mean()), none, zero, none, none, none)
