"""A fit in progress: `Run.advance` is called until `Run.finished`.

learn    law and chains together, likelihood tempered in              (iterations)
tune     law frozen; preconditioner and step sizes find their place   (tune)
sample   everything frozen; these draws are the posterior             (draws x thin)
"""

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ..data import Observations
from ..equations import Equation, align
from ..forward import NoisePrior, likelihood, noise_prior, seen_through, trainable
from ..laws import AbstractLaw, SolverLaw, SolverLaws, first_of, over_draws, prepare
from ..population import Population, normal, population, uniforms
from ..sampling import Cache, Chains, Convergence, Posterior, convergence, init_all, named_draws
from ._hypergradients import AXIS, begin
from ._initialise import (
    SURVEY_POINTS,
    check_blocks,
    check_physics,
    device_count,
    effects_of,
    finite_rows,
    outside_share,
    rhs_scale_of,
    start_laws,
    start_surrogate,
    table_range,
)
from ._program import DRAWS, SAME, STATE, Program
from ._sampler import check_moves, make_sampler
from ._schedule import learn_schedule, make_plan, sample_schedule, temperatures
from ._settings import Settings, SettingsError
from ._setup import Draws, Log, Setup, State, weights_of, with_weights
from ._stuck_chains import rescued
from .algorithm import learn, sample

SETBACKS, SLOWER = 2, 0.3
RESCUE_UNTIL = 0.9  # of learning; after that chains are on their own
EXPLODED = 1e6  # a loss, in squared units of the state, and against the first one

views_of = eqx.filter_jit(prepare)  # where nothing around it is compiled


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
        self.setup, self.notes, state = self._begin()
        self.mesh = Mesh(np.array(jax.devices()[: device_count(self.problem, settings)]), (AXIS,))
        numbers = settings.chains * len(data.systems) * len(problem.parameters)
        self.plan = make_plan(settings, numbers)
        self.state = self.spread(state)
        self.iteration = 0
        self.stale = True
        self.extended = 0
        self.setbacks = 0
        self.diverged: str | None = None
        self.history: list[dict[str, np.ndarray]] = []
        self.chunks: list[Draws] = []  # a chunk each, (draw, group, chain, ...)
        self.nonfinite = 0
        self._programs: dict[str, PyTree] = {}
        self._surveyed: dict[str, int] = {}
        self._solved = 1.0  # the share of calls of laws, in solutions at current chains, that are finite

    def _begin(self) -> tuple[Setup, list[str], State]:
        """What does not change, what to know of the defaults taken, and the first state."""
        problem, data, settings = self.problem, self.data, self.settings
        target = likelihood(problem, data)
        noise, notes = noise_prior(problem, data)
        effects = effects_of(problem, data)
        check_blocks(problem, settings, noise is not None, effects is not None)
        prior = population(problem.parameters, settings.hierarchy, settings.population, effects)
        seen = seen_through(target, problem, data, settings.forward, **settings.network)
        key_laws, key_chains, key_network = jr.split(jr.key(settings.seed), 3)
        keys, chains = jax.jit(lambda key: _first_chains(prior, noise, settings, len(data.systems), key))(key_chains)
        laws, ranges = start_laws(
            target.forward, chains.theta[:, 0], key_laws, rhs_scale_of(problem, data), chains.theta.shape[:2]
        )
        check_physics(target.forward, views_of(first_of(laws, 2), ranges))
        own = {name: law for name, law in laws.items() if law.spec.per_chain}
        laws = {name: law for name, law in laws.items() if name not in own}
        if own and seen.forward.approximate:
            raise SettingsError(
                f"every chain has its own law {', '.join(own)}, and one network cannot stand for all; use forward='solver'"
            )
        chains = chains._replace(law=own or ())
        network, replay = start_surrogate(
            seen.forward, prior, views_of(laws, ranges), chains.theta[:, : settings.replay], key_network
        )
        surrogate, frame = eqx.partition(network, trainable(network))
        sampler = make_sampler(settings, prior, noise, len(data.systems))
        check_moves(sampler, chains)
        setup = Setup(seen, target, prior, laws, frame, noise, sampler, settings)
        state = State(keys, chains, {}, begin(weights_of(laws)), begin(surrogate), replay, ranges)
        return setup, [*notes, *problem.parameters.notes], _with_blanks(setup, state)

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
        schedule = learn_schedule(self.settings, now, self.network is not None, SLOWER**self.setbacks)
        if self.iteration == 0 and not self.setup.learns(self.state):
            self._refresh()
        program = self._program("learn", learn, (STATE, SAME), (STATE, SAME))
        before = self.state
        self.state, log = program(self.state, schedule)
        seen = self.visited() if self.problem.closures else {}
        temperature = temperatures(self.settings, now)
        if self._went_wrong(log, seen):
            return self._step_back(before, log, temperature)
        self.stale = True
        # Tables cover where solutions go now.
        self.state = self.state._replace(ranges={name: table_range(x) for name, x in seen.items()})
        if temperature[-1] == 1 and self.iteration + size < RESCUE_UNTIL * self.plan.learn:
            self._rescue()
        return self._log("learn", log, size, temperature)

    def _sample_chunk(self) -> dict[str, np.ndarray]:
        phase, size = self.phase, self.plan.sample_chunk
        if self.iteration == self.plan.learn:
            self._tune(self.state.chains)
        schedule = sample_schedule(self.settings, phase, self.iteration - self.plan.learn + np.arange(size))
        leaps = jnp.arange(self.plan.keep) % max(1, len(self.setup.leaps))
        program = self._program("sample", sample, (STATE, SAME, SAME, SAME), (STATE, DRAWS, SAME))
        stale, self.stale = jnp.asarray(self.stale), False
        self.state, draws, log = program(self.state, stale, schedule, leaps)
        logged = self._log(phase, log, size, np.ones(size))
        if phase == "sample":
            self.chunks.append(jax.tree.map(np.asarray, draws))
            self._extend_if_needed()
        elif self.phase == "tune":  # after the last chunk of tuning nothing changes any more
            # Draws of a whole chunk make a smoother preconditioner than one moment of the ensemble.
            pooled = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1, *a.shape[3:]), draws)
            self._tune(self.state.chains._replace(**pooled._asdict()))
        return logged

    # Parts of it ------------------------------------------------------------------------------------------------------

    def spread(self, state: State) -> State:
        """The state on its devices, groups of chains on one each."""
        return jax.tree.map(
            lambda spec, part: jax.device_put(part, NamedSharding(self.mesh, spec)), STATE, state, is_leaf=_is_spec
        )

    def _rescue(self) -> None:
        if self.settings.blocks == "joint":
            return
        chains, count = rescued(self.posterior, self.state.chains, self.settings.seed + self.iteration)
        if count:
            self.state = self.spread(self.state._replace(chains=chains))
            if not self.setup.learns(self.state):
                self._refresh()

    def _tune(self, draws: Chains) -> None:
        """Let every kernel learn from many draws at once."""
        if self.settings.covariance == "self" and self.iteration > self.plan.learn:
            return
        tuned = {kernel.name: kernel.tune(self.state.tuning[kernel.name], draws) for kernel in self.setup.sweep}
        self.state = self.spread(self.state._replace(tuning=tuned))

    def _program(
        self, name: str, function: Callable[..., PyTree], in_specs: tuple[PyTree, ...], out_specs: PyTree
    ) -> Program:
        if name not in self._programs:
            self._programs[name] = Program(function, self.setup, self.mesh, in_specs, out_specs)
        return self._programs[name]

    def _refresh(self) -> None:
        """Likelihoods of a run that learns nothing (with a law to learn every iteration does this)."""
        chains = refreshed(self.posterior, self.state.chains)
        self.state = self.spread(self.state._replace(chains=chains))

    @property
    def posterior(self) -> Posterior:
        """The density that chains see now."""
        return self.setup.posterior(self.views, self.state)

    @property
    def _weights(self) -> PyTree:
        return self.state.law.weights, self.state.surrogate.weights

    def _went_wrong(self, log: Log, seen: dict[str, np.ndarray]) -> bool:
        """Are law or surrogate no longer numbers, or has no chain a solution any more where they had when this began?

        Chains on a surrogate do not notice what becomes of the law: whether it can still be solved is asked of the solver.
        """
        weights = jax.tree.leaves(self._weights)
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

    def _extend_if_needed(self) -> None:
        """Go on sampling, within limits, while the draws do not suffice."""
        if not self.finished or self.extended >= self.settings.extend:
            return
        check = self.convergence()
        if not check.enough:
            self.extended += 1

    # What a run knows -------------------------------------------------------------------------------------------------

    @property
    def laws(self) -> dict[str, AbstractLaw]:
        """The laws with their current weights; those that every chain has for itself as the first chain has them."""
        return with_weights(self.setup.closures, self.state.law.weights) | first_of(self.state.chains.law or {}, 2)

    @property
    def views(self) -> dict[str, SolverLaw]:
        """The same as solvers call them."""
        return views_of(self.laws, self.state.ranges)

    def views_at(self, chosen: np.ndarray | None = None) -> tuple[SolverLaws, int]:
        """All laws as solvers call them: at kept draws, by their number (chain after chain), or at all chains of now.

        Where chains have laws of their own, every law has a draw axis in front, and 1 is returned beside them; else 0.
        """
        if chosen is None:
            own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self.state.chains.law)
        else:
            own = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[chosen], self.kept.law)
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
        """(group, block): log step sizes of all kernels that have one."""
        tunings = [tuning for tuning in self.state.tuning.values() if hasattr(tuning, "log_step")]
        return np.concatenate([np.asarray(tuning.log_step) for tuning in tunings], axis=1)

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
        if "visited" not in self._programs:
            forward = self.setup.exact.forward

            def survey(laws: SolverLaws, theta: Array) -> dict[str, Array]:
                def of_chain(theta: Array, laws: SolverLaws) -> dict[str, Array]:
                    return jax.vmap(lambda t, k: forward.law_inputs(t, laws, k))(theta, jnp.arange(len(theta)))

                return jax.vmap(of_chain, (0, 0 if self.state.chains.law else None))(theta, laws)

            self._programs["visited"] = eqx.filter_jit(survey)
        some = self.some_chains()
        laws, axes = self.views_at()
        laws = jax.device_get(jax.tree.map(lambda a: a[some], laws) if axes else laws)
        seen = self._programs["visited"](laws, self.some_theta())
        self._surveyed = {name: int(np.prod(np.shape(x)[:-1])) for name, x in seen.items()}
        return finite_rows(seen)

    def outside(self) -> dict[str, float]:
        return outside_share(self.views, self.visited())


def _by_chain(draws: np.ndarray) -> np.ndarray:
    """(draw, group, chain, ...) to (group x chain, draw, ...)."""
    return np.moveaxis(draws, 0, 2).reshape(draws.shape[1] * draws.shape[2], draws.shape[0], *draws.shape[3:])


def _is_spec(value: object) -> bool:
    return isinstance(value, PartitionSpec)


def _first_chains(
    prior: Population, noise: NoisePrior | None, settings: Settings, systems: int, key: Array
) -> tuple[Array, Chains]:
    """Keys of the groups, and every chain from a population of its own, drawn from the hyperprior."""
    groups, each = settings.groups, settings.chains // settings.groups

    def draw(above: Array, below: Array) -> tuple[Array, PyTree]:
        phi = prior.phi_from_normal(above)
        return prior.theta_from_normal(phi, below), phi

    keys, count = jr.split(key, groups + 1), prior.mean.shape[0]
    stream = uniforms(keys[0], (groups, each, 2, count), (groups, each, systems, count))
    theta, phi = jax.vmap(jax.vmap(draw))(*map(normal, stream))
    log_sigma = None
    if noise is not None:
        (sizes,) = uniforms(jr.fold_in(key, 1), (groups, each, len(noise.free)))
        log_sigma = noise.draw(normal(sizes))
    return keys[1:], Chains(theta, phi, log_sigma)


def _with_blanks(setup: Setup, state: State) -> State:
    """The state with a first tuning, and a cache in which nothing is evaluated yet."""
    stats, exact = setup.likelihood.blank(state.chains.theta), None
    if setup.settings.corrected:
        exact = stats._replace(gradient=None) if setup.exact.scale_inferred else stats[0]
    chains = state.chains._replace(cache=Cache(stats, exact))
    return state._replace(chains=chains, tuning=init_all(setup.sweep, chains))
