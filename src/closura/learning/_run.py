"""A fit in progress: `Run.advance` is called until `Run.finished`.

learn    law and chains together, likelihood tempered in              (iterations)
tune     law frozen; preconditioner and step sizes find their place   (tune)
sample   everything frozen; these draws are the posterior             (draws x thin)
"""

import dataclasses
import time
from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from .._compile import jit_soon
from ..data import Observations
from ..equations import Equation, align
from ..laws import SolverLaws
from ..sampling import Chains, Posterior, per_group, split_keys
from ._initialise import (
    blank_cache,
    device_count,
    initialise,
    law_inputs,
    spread_of,
    table_range,
)
from ._kept import Kept
from ._law_surrogate import begin_surrogate, refine_surrogate, sees_sampled_laws, solver_round
from ._newton import (
    MARGIN,
    ROUNDS,
    SURVEY,
    first_laws,
    grid_of,
    newton_rate,
    newton_step,
    part_of_pass,
    restated,
    retabled,
    rising,
    tamed,
)
from ._notes import learning_notes, network_note
from ._program import DRAWS, GROUPS, SAME, STATE, Program
from ._refine import refine
from ._schedule import leaps_in_turn, learn_schedule, make_plan, passes, sample_schedule, temperatures
from ._settings import Settings, with_laws
from ._setup import AXIS, Draws, Log, Schedule, Setup, State
from ._stuck_chains import rescued, rescued_groups
from .algorithm import learn, sample

LEAP_EVERY = 4  # so many kept draws, where proposals are independent of where chains are
SETBACKS, SLOWER = 2, 0.3
RESCUE_UNTIL = 0.9  # of learning; after that chains are on their own
EXPLODED = 1e6  # a loss, in squared units of the state, and against the first one


def _refreshed(posterior: Posterior, chains: Chains) -> Chains:
    return posterior.refresh(chains)


@eqx.filter_jit
def _posterior_of(setup: Setup, laws: SolverLaws, state: State) -> Posterior:
    return setup.posterior(laws, state)


class Run(Kept):
    """A fit in progress. All that changes is in `state` and a few counters, which `closura.runs` can store and restore."""

    def __init__(self, problem: Equation, data: Observations, settings: Settings):
        settings.check_size(len(data.systems), len(problem.parameters))
        self.began = time.perf_counter()
        self.problem, self.data = align(with_laws(problem, settings), data)
        self.settings = settings
        self.setup, self.notes, state = initialise(self.problem, self.data, settings)
        changed = [name for name, spec in self.problem.closures.items() if spec is not problem.closures[name]]
        if changed and settings.law_kind is None:
            self.notes.insert(0, network_note(", ".join(changed), settings))
        self.mesh = Mesh(np.array(jax.devices()[: device_count(self.problem, settings)]), (AXIS,))
        self.plan = make_plan(settings, state.chains.theta.size, bool(self._sampled(state)))
        self._first = state
        self.state = self.spread(state)
        self.state = self.spread(self._with_first_laws(state))
        self.iteration = 0
        self.arrived = 0  # rounds of Newton's method in a row that ended within their Monte Carlo error
        self.levels: list[float] = []  # of log densities, of rounds since the likelihood is whole
        self.learned: int | None = None  # the iteration at which learning ended before its limit
        self.cut_short = False  # by the clock
        self.law_inputs: dict[str, list[list[float]]] = {}  # where convergence of sampled laws is judged
        self.stale = True
        self.extended = 0
        self.setbacks = 0
        self.diverged: str | None = None
        self.history: list[dict[str, np.ndarray]] = []
        self.chunks: list[Draws] = []  # a chunk each, (draw, group, chain, ...)
        self._read: dict[str, list[np.ndarray]] = {}  # laws at the inputs where they are judged, a chunk each
        self.nonfinite = 0
        self.surrogate_errors: list[float] = []  # of each refinement, before it
        axes = 0 if state.chains.law else None
        self._programs: dict[str, PyTree] = {
            "learn": Program(learn, self.setup, self.mesh, (STATE, SAME), (STATE, SAME)),
            "sample": self._sample_program(),
            "visited": eqx.filter_jit(partial(law_inputs, self.setup.exact.forward, axes)),
        }
        self._sufficient = 0, None
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
        return self.plan.learn + self.plan.tune + self.plan.sample * passes(self.extended)

    @property
    def finished(self) -> bool:
        return self.iteration >= self.total

    def advance(self) -> dict[str, np.ndarray]:
        """One chunk of the current phase; returns its log."""
        if self.phase != "learn":
            return self._sample_chunk()
        return solver_round(self) if sees_sampled_laws(self) else self._learn_chunk()

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
        entries = self._log("learn", log, size, temperature)
        # Tables cover where solutions go now.
        ranges = {name: table_range(x) for name, x in seen.items() if name not in self.sampled}
        self.state = self.state._replace(ranges={**self.state.ranges, **ranges})
        if self.sampled:
            self._newton(seen, float(temperature[-1]), float(now[-1]))
        if temperature[-1] == 1 and self.iteration < RESCUE_UNTIL * self.plan.learn:
            self._rescue()
        self._end_learning(float(temperature[-1]))
        return entries

    def note_round(self, log: Log, temperature: float) -> dict[str, np.ndarray]:
        """Log a round of learning by the solver; where it has arrived, or it is late, it was the last."""
        entries = self._log("learn", log, 1, np.array([temperature]))
        if self.arrived >= ROUNDS and self.iteration < self.plan.learn:
            self.plan, self.learned = self.plan._replace(learn=self.iteration), self.iteration
        self._end_learning(temperature)
        return entries

    @property
    def refine_program(self) -> Program:
        """Trains a surrogate that sees laws; made when it is first asked for."""
        if "refine" not in self._programs:
            self._programs["refine"] = Program(refine, self.setup, self.mesh, (STATE, GROUPS, SAME), (STATE, SAME))
        return self._programs["refine"]

    def _end_learning(self, temperature: float) -> None:
        """Sampled laws are learned once Newton's method has arrived; the clock may end learning before."""
        minutes = self.settings.minutes
        late = minutes is not None and time.perf_counter() - self.began > 30 * minutes
        done = bool(self.sampled) and temperature == 1 and self.arrived >= ROUNDS
        done &= self.iteration > SURVEY * self.plan.learn and not self.still_rising
        if self.iteration < self.plan.learn and (done or late):
            self.plan, self.learned = self.plan._replace(learn=self.iteration), self.iteration
            self.cut_short = late and not done
        by_solver = bool(self.sampled) and self.network is None
        if by_solver and self.phase != "learn" and not np.isfinite(self.posterior.loglik(self.state.chains)).any():
            self.diverged = (
                f"Learning diverged: after iteration {self.iteration} no chain can be solved with the law it has. Say how large the law is (unit=), "
                "give it structure (odd, dissipative, at=), or narrow the priors of the parameters."
            )

    def _sample_chunk(self) -> dict[str, np.ndarray]:
        phase, size, first = self.phase, self.plan.sample_chunk, self.iteration - self.plan.learn - self.plan.tune
        if self.iteration == self.plan.learn:
            if sees_sampled_laws(self):
                begin_surrogate(self, self._first)
            self._tune(self.state.chains)
            self._disperse()
            self.state = self.spread(blank_cache(self.setup, self.state, sampling=True))
        self.state, draws, log = self._programs["sample"](self.state, *self._sample_arguments(phase))
        self.stale = False
        logged = self._log(phase, log, size, np.ones(size))
        if phase == "sample":
            self.keep(jax.tree.map(np.asarray, draws), first // self.plan.thin)
            # Go on sampling, within limits, while the draws do not suffice.
            if self.finished and self.extended < self.settings.extend and not self.suffice() and not self._out_of_time:
                self.extend()
        elif self.phase == "tune":  # after the last chunk of tuning nothing changes any more
            if sees_sampled_laws(self):
                refine_surrogate(self, draws)
            # Draws of a whole chunk make a smoother preconditioner than one moment of the ensemble.
            self._tune(draws.pooled(self.state.chains))
            if self.iteration + size == self.plan.learn + self.plan.tune:
                self.handed_back = self.setup.failing(self.state.tuning)  # whose steps are still adapted
        else:
            self.handed_back = self.setup.failing(self.state.tuning)
            self.law_inputs = grid_of(self.visited(), self.sampled)
        return logged

    def prepare_sampling(self) -> None:
        """Compile the program of sampling while others learn."""
        program = self._programs["sample"]
        if self.phase == "learn" and not program.begun:
            state = self.spread(blank_cache(self.setup, self.state, sampling=True))
            program.prepare(state, *self._sample_arguments("tune"))

    def _sample_arguments(self, phase: str) -> tuple[Array, Schedule, Array]:
        since = max(0, self.iteration - self.plan.learn) + np.arange(self.plan.sample_chunk)
        leaps = leaps_in_turn(self.plan.keep, len(self.setup.leaps), LEAP_EVERY if self.setup.independent else 1)
        return jnp.asarray(self.stale), sample_schedule(self.settings, phase, since), leaps

    # Parts of it ------------------------------------------------------------------------------------------------------

    def _newton(self, seen: dict[str, np.ndarray], temperature: float, part: float) -> None:
        """A step of the sampled laws; after the survey, their units, and everything from the start."""
        done, size = self.iteration, self.plan.learn_chunk
        frames, chains = self.state.ranges, self.state.chains
        if done - size < SURVEY * self.plan.learn <= done:
            for name in self.sampled:
                table = table_range(seen[name], MARGIN)
                law = chains.law[name]
                frames = frames | {name: restated(frames[name], law, spread_of(seen[name], 0.95), table)}
            self.state = self.spread(self._with_first_laws(self._first._replace(keys=self.state.keys, ranges=frames)))
            self.arrived, self.levels = 0, []
            self._refresh()
        else:
            ranges = {name: table_range(seen[name]) for name in self.sampled}
            chains, frames = retabled(chains, frames, ranges, temperature == 1)
            posterior = _posterior_of(self.setup, self.views, self.state._replace(ranges=frames, replay=()))
            rounds = (1 - SURVEY) * self.plan.learn / size
            chains, told = newton_step(posterior, chains, temperature, newton_rate(part, rounds))
            same = all(frames[name] is self.state.ranges[name] for name in self.sampled)
            self.arrived = self.arrived + 1 if told.arrived and temperature == 1 and same else 0
            self.state = self.spread(self.state._replace(chains=chains, ranges=frames))
            self.levels += [float(np.mean(told.level))] if temperature == 1 else []

    @property
    def still_rising(self) -> bool:
        """Do chains still become more likely? Learning by the solver asks that of itself."""
        theta = self.state.chains.theta
        return self.network is None and rising(self.levels, theta[0, 0].size, theta.shape[0] * theta.shape[1])

    @property
    def sampled(self) -> list[str]:
        """Names of the laws that chains sample."""
        return self._sampled(self.state)

    @property
    def learning_notes(self) -> list[str]:
        """What is to be said of how the learning of sampled laws ended, and of what keeps their chains from moving."""
        return learning_notes(self)

    def _sampled(self, state: State) -> list[str]:
        return [name for name, law in (state.chains.law or {}).items() if law.weights is not None]

    def _with_first_laws(self, state: State) -> State:
        if not self._sampled(state):
            return state
        keys = split_keys(state.keys, 2)
        chains = jit_soon(first_laws)(keys[1], state.chains, state.ranges)
        if self.network is None:  # a surrogate knows nothing yet
            chains = tamed(_posterior_of(self.setup, self.views, state._replace(replay=())), chains)
        return state._replace(keys=keys[0], chains=chains)

    def _sample_program(self) -> Program:
        return Program(sample, self.setup, self.mesh, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME))

    def blank_state(self, iteration: int, learned: int | None, handed_back: Sequence[int]) -> State:
        """A state of the form that one has at this iteration, for a stored one to be read into."""
        sampling = iteration > (self.plan.learn if learned is None else learned)
        return blank_cache(dataclasses.replace(self.setup, handed_back=tuple(handed_back)), self.state, sampling)

    @property
    def handed_back(self) -> list[int]:
        """Rows of the systems where kernels that run in the place of others fail, so that these run beside them."""
        return list(self.setup.handed_back)

    @handed_back.setter
    def handed_back(self, systems: list[int]) -> None:
        if systems != self.handed_back:
            self.setup = dataclasses.replace(self.setup, handed_back=tuple(systems))
            self._programs["sample"] = self._sample_program()
            self.state, self.stale = self.spread(blank_cache(self.setup, self.state, sampling=True)), True

    @property
    def _out_of_time(self) -> bool:
        minutes = self.settings.minutes
        return minutes is not None and time.perf_counter() - self.began > 60 * minutes

    def spread(self, state: State) -> State:
        """The state on its devices, groups of chains on one each."""

        def put(spec: PartitionSpec, part: PyTree) -> PyTree:
            return jax.device_put(part, NamedSharding(self.mesh, spec))

        return jax.tree.map(put, STATE, state, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec))

    def _rescue(self) -> None:
        if self.settings.blocks == "joint":
            return
        posterior = self.posterior
        chains, count = rescued(posterior, self.state.chains, self.settings.seed + self.iteration)
        tuning = self.state.tuning
        if self.sampled and not count:  # once its chains agree, a group may be left behind as a whole
            chains, tuning, count = rescued_groups(posterior, chains, tuning)
        if count:
            self.state = self.spread(self.state._replace(chains=chains, tuning=tuning))
            if not self.state.learns:
                self._refresh()

    def _tune(self, draws: Chains) -> None:
        """Let every kernel learn from many draws at once."""
        if self.settings.covariance == "self" and self.iteration > self.plan.learn:
            return
        self.state = self.spread(self.setup.tuned(self.state, draws))

    def _disperse(self) -> None:
        """Give every chain sampled laws of its own; until here chains of a group shared them."""
        keys, chains, tuning = split_keys(self.state.keys, 2), self.state.chains, self.state.tuning
        for number, kernel in enumerate(self.setup.sweep):
            chains = kernel.dispersed(per_group(keys[1], number), chains, tuning[kernel.name], self.posterior)
        self.state = self.spread(self.state._replace(keys=keys[0], chains=chains))

    def _refresh(self) -> None:
        """Likelihoods of a run that learns nothing (with a law to learn every iteration does this)."""
        chains = jit_soon(_refreshed)(self.posterior, self.state.chains)
        self.state = self.spread(self.state._replace(chains=chains))

    @property
    def posterior(self) -> Posterior:
        """The density that chains see now."""
        return _posterior_of(self.setup, self.views, self.state._replace(replay=()))

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
