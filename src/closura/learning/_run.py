"""A fit in progress: `Run.advance` is called until `Run.finished`.

learn    law and chains together, likelihood tempered in              (iterations)
tune     law frozen; preconditioner and step sizes find their place   (tune)
sample   everything frozen; these draws are the posterior             (draws x thin)
"""

import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ..data import Observations
from ..equations import Equation, align
from ..laws import AbstractLaw, SolverLaw, SolverLaws, first_of, over_draws, prepare
from ..sampling import Chains, Convergence, LawMove, Posterior, convergence, named_draws, split_keys
from ._initialise import (
    SURVEY_POINTS,
    device_count,
    finite_rows,
    initialise,
    law_inputs,
    spread_of,
    table_range,
    views_of,
)
from ._newton import MARGIN, SURVEY, newton_rate, newton_step, part_of_pass, restated, widened
from ._program import DRAWS, SAME, STATE, Program
from ._schedule import learn_schedule, make_plan, sample_schedule, temperatures
from ._settings import Settings
from ._setup import AXIS, Draws, Log, State
from ._stuck_chains import rescued
from .algorithm import learn, sample

SETBACKS, SLOWER = 2, 0.3
RESCUE_UNTIL = 0.9  # of learning; after that chains are on their own
EXPLODED = 1e6  # a loss, in squared units of the state, and against the first one


@eqx.filter_jit
def refreshed(posterior: Posterior, chains: Chains) -> Chains:
    return posterior.refresh(chains)


class Run:
    """A fit in progress. All that changes is in `state` and a few counters, which `closura.runs` can store and restore."""

    def __init__(self, problem: Equation, data: Observations, settings: Settings):
        settings.check_size(len(data.systems), len(problem.parameters))
        self.began = time.perf_counter()
        self.problem, self.data = align(problem, data)
        self.settings = settings
        self.setup, self.notes, state = initialise(self.problem, self.data, settings)
        self.mesh = Mesh(np.array(jax.devices()[: device_count(self.problem, settings)]), (AXIS,))
        self.plan = make_plan(settings, state.chains.theta.size)
        self.state = self._first = self.spread(state)
        self.iteration = 0
        self.stale = True
        self.extended = 0
        self.setbacks = 0
        self.diverged: str | None = None
        self.history: list[dict[str, np.ndarray]] = []
        self.chunks: list[Draws] = []  # a chunk each, (draw, group, chain, ...)
        self.nonfinite = 0
        axes = 0 if state.chains.law else None
        self._programs: dict[str, PyTree] = {
            "learn": Program(learn, self.setup, self.mesh, (STATE, SAME), (STATE, SAME)),
            "sample": Program(sample, self.setup, self.mesh, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME)),
            "visited": eqx.filter_jit(partial(law_inputs, self.setup.exact.forward, axes)),
        }
        self._surveyed: dict[str, int] = {}
        self._solved = 1.0  # the share of calls of laws, in solutions at current chains, that are finite

    # The loop ---------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        if self.iteration < self.plan.learn:
            return "learn"
        return "tune" if self.iteration < self.plan.learn + self.plan.tune else "sample"

    @property
    def total(self) -> int:
        return self.plan.learn + self.plan.tune + self.plan.sample * (1 + self.extended)

    @property
    def finished(self) -> bool:
        return self.iteration >= self.total

    def advance(self) -> dict[str, np.ndarray]:
        """One chunk of the current phase; returns its log."""
        return self._learn_chunk() if self.phase == "learn" else self._sample_chunk()

    def _learn_chunk(self) -> dict[str, np.ndarray]:
        size = self.plan.learn_chunk
        now = np.arange(self.iteration, self.iteration + size) / self.plan.learn
        now = part_of_pass(now) if self.sampled else now
        schedule = learn_schedule(self.settings, now, self.network is not None, SLOWER**self.setbacks)
        if self.iteration == 0 and not self.state.learns:
            self._refresh()
        before = self.state
        self.state, log = self._programs["learn"](self.state, schedule)
        seen = self.visited() if self.problem.closures else {}
        temperature = temperatures(self.settings, now)
        if self._went_wrong(log, seen):
            return self._step_back(before, log, temperature)
        self.stale = True
        # Tables cover where solutions go now.
        ranges = {name: table_range(x) for name, x in seen.items() if name not in self.sampled}
        self.state = self.state._replace(ranges={**self.state.ranges, **ranges})
        if self.sampled:
            self._newton(seen, float(temperature[-1]), float(now[-1]))
        if temperature[-1] == 1 and self.iteration + size < RESCUE_UNTIL * self.plan.learn:
            self._rescue()
        return self._log("learn", log, size, temperature)

    def _sample_chunk(self) -> dict[str, np.ndarray]:
        phase, size = self.phase, self.plan.sample_chunk
        if self.iteration == self.plan.learn:
            self._tune(self.state.chains)
            self._disperse()
        schedule = sample_schedule(self.settings, phase, self.iteration - self.plan.learn + np.arange(size))
        leaps = jnp.arange(self.plan.keep) % max(1, len(self.setup.leaps))
        stale, self.stale = jnp.asarray(self.stale), False
        self.state, draws, log = self._programs["sample"](self.state, stale, schedule, leaps)
        logged = self._log(phase, log, size, np.ones(size))
        if phase == "sample":
            self.chunks.append(jax.tree.map(np.asarray, draws))
            # Go on sampling, within limits, while the draws do not suffice.
            if self.finished and self.extended < self.settings.extend and not self.convergence().enough:
                self.extended += 1
        elif self.phase == "tune":  # after the last chunk of tuning nothing changes any more
            # Draws of a whole chunk make a smoother preconditioner than one moment of the ensemble.
            self._tune(draws.pooled(self.state.chains))
        return logged

    # Parts of it ------------------------------------------------------------------------------------------------------

    def _newton(self, seen: dict[str, np.ndarray], temperature: float, part: float) -> None:
        """A step of the sampled laws; after the survey, their units, and everything from the start."""
        done, size = self.iteration, self.plan.learn_chunk
        frames, chains = self.state.ranges, self.state.chains
        if done < SURVEY * self.plan.learn <= done + size:
            for name in self.sampled:
                table = table_range(seen[name], MARGIN)
                law = chains.law[name]
                frames = frames | {name: restated(frames[name], law, spread_of(seen[name], 0.95), table)}
            self.state = self._first._replace(keys=self.state.keys, ranges=frames)
        else:
            ranges = {name: table_range(seen[name]) for name in self.sampled}
            chains, frames = widened(chains, frames, ranges)
            posterior = self.setup.posterior(self.views, self.state._replace(ranges=frames))
            rounds = (1 - SURVEY) * self.plan.learn / size
            chains, _ = newton_step(posterior, chains, temperature, newton_rate(part, rounds))
            self.state = self.spread(self.state._replace(chains=chains, ranges=frames))
        self._refresh()

    @property
    def sampled(self) -> list[str]:
        """Names of the laws that chains sample."""
        return [name for name, law in (self.state.chains.law or {}).items() if law.weights is not None]

    def spread(self, state: State) -> State:
        """The state on its devices, groups of chains on one each."""

        def put(spec: PartitionSpec, part: PyTree) -> PyTree:
            return jax.device_put(part, NamedSharding(self.mesh, spec))

        return jax.tree.map(put, STATE, state, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec))

    def _rescue(self) -> None:
        if self.settings.blocks == "joint":
            return
        chains, count = rescued(self.posterior, self.state.chains, self.settings.seed + self.iteration)
        if count:
            self.state = self.spread(self.state._replace(chains=chains))
            if not self.state.learns:
                self._refresh()

    def _tune(self, draws: Chains) -> None:
        """Let every kernel learn from many draws at once."""
        if self.settings.covariance == "self" and self.iteration > self.plan.learn:
            return
        self.state = self.spread(self.setup.tuned(self.state, draws))

    def _disperse(self) -> None:
        """Give every chain sampled laws of its own; until here chains of a group shared them."""
        keys, chains = split_keys(self.state.keys, 2), self.state.chains
        for kernel in self.setup.sweep:
            if isinstance(kernel, LawMove):
                tuning = self.state.tuning[kernel.name]
                chains = kernel.dispersed(keys[1], chains, tuning, self.posterior)
        self.state = self.spread(self.state._replace(keys=keys[0], chains=chains))

    def _refresh(self) -> None:
        """Likelihoods of a run that learns nothing (with a law to learn every iteration does this)."""
        chains = refreshed(self.posterior, self.state.chains)
        self.state = self.spread(self.state._replace(chains=chains))

    @property
    def posterior(self) -> Posterior:
        """The density that chains see now."""
        return self.setup.posterior(self.views, self.state)

    def _went_wrong(self, log: Log, seen: dict[str, np.ndarray]) -> bool:
        """Are law or surrogate no longer numbers, or has no chain a solution any more where they had when this began?

        Chains on a surrogate do not notice what becomes of the law: whether it can still be solved is asked of the solver.
        """
        weights = jax.tree.leaves((self.state.law.weights, self.state.surrogate.weights))
        if not all(np.isfinite(w).all() for w in jax.device_get(weights)):
            return True
        if self.network is None:
            return bool(weights) and bool(np.isfinite(log.loglik[0])) and not np.isfinite(log.loglik[-1])
        first = float(self.history[0]["surrogate_loss"][0]) if self.history else 0.0
        exploded = not float(log.surrogate_loss[-1]) < max(EXPLODED, EXPLODED * first)
        before, self._solved = self._solved, min((len(x) / self._surveyed[n] for n, x in seen.items()), default=1.0)
        return exploded or self._solved < min(0.25, 0.5 * before)

    def _step_back(self, before: State, log: Log, temperature: np.ndarray) -> dict[str, np.ndarray]:
        """Undo a chunk that went wrong, to do it again more slowly; after that has been tried often enough, give up."""
        self.state, self._solved = before, 1.0
        self.setbacks += 1
        if self.setbacks > SETBACKS:
            rates = f"learning_rate (now {self.settings.learning_rate:g})"
            if self.network is not None:
                rates += f" or surrogate_rate (now {self.settings.surrogate_rate:g})"
            self.diverged = (
                f"Learning diverged: after iteration {self.iteration} the {'law' if self.network is None else 'surrogate or the law'} "
                f"gave nothing finite any more, also with learning rates {SLOWER:g} and {SLOWER**2:.2g} times as large. Lower {rates}, "
                "give the closure structure (odd, dissipative) or a prior (decay, smoothness), or narrow the priors of the "
                "parameters."
            )
        return self._entries("learn", log, len(temperature), temperature)

    def _log(self, phase: str, log: Log, size: int, temperature: np.ndarray) -> dict[str, np.ndarray]:
        entries = self._entries(phase, log, size, temperature)
        self.nonfinite += int(entries["nonfinite"].sum() * self.settings.chains * self.blocks + 0.5)
        self.history.append(entries)
        self.iteration += size
        return entries

    def _entries(self, phase: str, log: Log, size: int, temperature: np.ndarray) -> dict[str, np.ndarray]:
        """What a chunk told, an entry an iteration."""
        return {
            "iteration": np.arange(self.iteration, self.iteration + size),
            "phase": np.full(size, phase),
            "seconds": np.full(size, round(time.perf_counter() - self.began, 3)),
            "temperature": np.asarray(temperature),
        } | {name: np.asarray(value) for name, value in log._asdict().items()}

    # What a run knows -------------------------------------------------------------------------------------------------

    @property
    def laws(self) -> dict[str, AbstractLaw]:
        """The laws with their current weights; those that every chain has for itself as the first chain has them."""
        return self.setup.laws(self.state.law.weights) | first_of(self.state.chains.law or {}, 2)

    @property
    def views(self) -> dict[str, SolverLaw]:
        """The same as solvers call them."""
        return views_of(self.laws, self.state.ranges)

    def views_at(self, chosen: np.ndarray | None = None) -> tuple[SolverLaws, int]:
        """All laws as solvers call them: at kept draws, by their number (chain after chain), or at all chains of now.

        Where chains have laws of their own, every law has a draw axis in front, and 1 is returned beside them; else 0.
        """
        own = self.state.chains.law if chosen is None else self.kept.law
        own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[... if chosen is None else chosen], own)
        shared = {name: law for name, law in self.views.items() if name in self.setup.closures}
        return over_draws(shared, prepare(own or {}, self.state.ranges, leading=1))

    @property
    def network(self) -> PyTree:
        """The surrogate with its current weights; None where chains see the solver itself."""
        return eqx.combine(self.state.surrogate.weights, self.setup.network)

    @property
    def law_steps(self) -> int:
        """Steps the law took; where the solver had no finite solution there was none to take."""
        return int(self.state.law.optimiser.count)

    @property
    def seconds_compile(self) -> float:
        return sum((p.seconds_compile for p in self._programs.values() if isinstance(p, Program)), 0.0)

    @property
    def groups(self) -> np.ndarray:
        """(chain,): the group of each chain."""
        return np.repeat(np.arange(self.settings.groups), self.settings.chains // self.settings.groups)

    @property
    def numbers_kept(self) -> int:
        """How many numbers the kept draws of theta are, of a run that is not extended."""
        return self.plan.sample // self.plan.thin * self.state.chains.theta.size

    def theta(self) -> np.ndarray:
        """Kept draws (chain, draw, system, parameter); before sampling, where the chains stand, as one draw."""
        return np.asarray(self.kept.theta)

    def phi(self) -> PyTree:
        """Kept draws of the population, (chain, draw, parameter) each; () without hierarchy."""
        return self.setup.population.told(self.kept.phi, np.asarray(self.kept.theta))

    def log_sigma(self) -> np.ndarray | None:
        """Kept draws of the size of the noise, (chain, draw, quantity); None where it is known."""
        return self.kept.log_sigma

    @property
    def kept(self) -> Draws:
        """Kept draws of everything, (chain, draw, ...); before sampling, where the chains stand, as one draw."""
        if self.chunks:
            return jax.tree.map(lambda *a: _by_chain(np.concatenate(a)), *self.chunks)
        return jax.tree.map(lambda a: _by_chain(np.asarray(a)[None]), Draws.of(self.state.chains))

    @property
    def log_steps(self) -> np.ndarray:
        return np.asarray(self.state.log_steps)

    @property
    def blocks(self) -> int:
        """How many blocks of a chain are proposed in an iteration."""
        return self.log_steps.shape[1]

    def sigma(self) -> np.ndarray:
        """Of every observation; where it is inferred, its posterior median."""
        log_sigma = self.log_sigma()
        if log_sigma is None:
            return self.data.sigma
        typical = np.exp(np.median(log_sigma, axis=(0, 1)))[self.data.quantity]
        return np.where(np.isnan(self.data.sigma), typical, self.data.sigma)

    def draws(self) -> xr.Dataset:
        """Kept draws of every scalar that is inferred, by name."""
        prior, sizes = self.setup.noise, self.log_sigma()
        noise = {}
        if prior is not None and sizes is not None:
            noise = {self.data.quantities[i]: sizes[..., i] for i in np.flatnonzero(prior.free)}
        effects = [(name, column) for name, columns in self.problem.covariates.items() for column in columns]
        return named_draws(self.theta(), self.phi(), noise, self.problem.parameters, self.data.systems, effects)

    def convergence(self) -> Convergence:
        """Of every scalar; on every so-many-th draw where there are very many numbers."""
        return convergence(self.draws(), self.groups)

    def some_chains(self, chains: int = 16) -> np.ndarray:
        """Numbers of a few chains of every group."""
        groups, count, systems = self.state.chains.theta.shape[:3]
        each = max(1, min(chains, SURVEY_POINTS // (systems * len(self.problem.points))) // groups)
        return (count * np.arange(groups)[:, None] + np.arange(min(each, count))).ravel()

    def some_theta(self, chains: int = 16) -> np.ndarray:
        """(chain, system, parameter): where a few chains of every group stand."""
        theta = np.asarray(self.state.chains.theta)
        return theta.reshape(-1, *theta.shape[2:])[self.some_chains(chains)]

    def visited(self) -> dict[str, np.ndarray]:
        """Inputs the laws were called with along trajectories of current chains, name -> (call, input)."""
        some = self.some_chains()
        laws, axes = self.views_at()
        laws = jax.device_get(jax.tree.map(lambda a: a[some], laws) if axes else laws)
        seen = self._programs["visited"](laws, self.some_theta())
        self._surveyed = {name: int(np.prod(np.shape(x)[:-1])) for name, x in seen.items()}
        return finite_rows(seen)

    def outside(self) -> dict[str, float]:
        """Which part of the calls went outside each table."""
        laws = self.views
        outside = {name: laws[name].outside(jnp.asarray(x, float)) for name, x in self.visited().items() if len(x)}
        return {name: float(np.mean(np.asarray(calls))) for name, calls in outside.items() if calls is not None}


def _by_chain(draws: np.ndarray) -> np.ndarray:
    """(draw, group, chain, ...) to (group x chain, draw, ...)."""
    return np.moveaxis(draws, 0, 2).reshape(draws.shape[1] * draws.shape[2], draws.shape[0], *draws.shape[3:])
