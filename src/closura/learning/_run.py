"""The method, on one screen: `Run.advance` is called until `Run.finished`.

learn    closure and chains together, likelihood tempered in        (iterations)
settle   closure frozen; preconditioner and step sizes find their place   (settle)
sample   everything frozen; these draws are the posterior            (draws x thin)
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from ..data import Observations
from ..equations import Equation, align
from ..forward import Fit, Likelihood, likelihood, trainable, unknown_noise
from ..laws import Range, prepare
from ..population import Sharing, normal, population, uniforms
from ..sampling import BLOCKS, Ensemble, convergence, factors, init
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
from ._schedule import adaptations, learning_rates, make_plan, temperatures
from ._settings import Settings
from ._stuck_chains import rescued
from .algorithm import (
    DRAWS,
    GROUPS,
    SAME,
    Chains,
    Learned,
    Program,
    Schedule,
    Setup,
    learn,
    sample,
    views_of,
    weights_of,
    with_weights,
)

DIAGNOSED_NUMBERS = 3_000_000
SETBACKS, SLOWER = 2, 0.3
RESCUE_UNTIL = 0.9  # of learning; after that chains are on their own
EXPLODED = 1e6  # a loss, in squared units of the state, and against the first one


class Run:
    """A fit in progress. All that changes is here, and `closura.result` can store and restore it."""

    def __init__(self, problem: Equation, data: Observations, settings: Settings):
        settings.check_size(len(data.systems), len(problem.parameters))
        self.began = time.perf_counter()
        problem, self.data = align(problem, data)
        self.problem, self.settings = problem, settings
        target = likelihood(problem, self.data)
        scale, notes = unknown_noise(problem, self.data)
        self.notes = [*notes, *problem.parameters.notes]
        effects = effects_of(problem, self.data)
        check_blocks(problem, settings, scale is not None, effects is not None)
        prior = population(problem.parameters, settings.hierarchy, settings.population == "full", effects)
        seen = likelihood(problem, self.data, settings.forward, **settings.network)
        seen = seen if seen.forward.approximate else target
        systems, count = len(data.systems), len(problem.parameters)
        self.plan = make_plan(settings, settings.chains * systems * count)
        key_laws, key_chains, key_network = jr.split(jr.key(settings.seed), 3)

        theta, phi, keys, log_step, factor = jax.jit(lambda key: self._first_state(prior, key, systems))(key_chains)
        laws, self.ranges = start_laws(target.forward, theta[:, 0], key_laws, rhs_scale_of(problem, self.data))
        check_physics(target.forward, laws)
        network, replay = start_surrogate(
            seen.forward, prior, views_of(laws, self.ranges), theta[:, : settings.replay], key_network
        )
        surrogate, frame = eqx.partition(network, trainable(network))
        self.setup = Setup(seen, target, prior, laws, frame, scale, settings)
        self.mesh = Mesh(np.array(jax.devices()[: device_count(problem, settings)]), (AXIS,))
        position, phi = self.setup.blocks.pack(theta, phi)
        self.learned = Learned(begin(weights_of(laws)), begin(surrogate))
        log_sigma = None
        if scale is not None:
            (stream,) = uniforms(jr.fold_in(key_chains, 1), (*position.shape[:2], len(scale.free)))
            log_sigma = scale.draw(normal(stream))
        blank = self._blank(position, target)
        self.chains = self.spread(Chains(keys, blank, phi, log_step, replay, log_sigma))
        self.factor = self.spread(factor)

        self.iteration = 0
        self.stale = True
        self.extended = 0
        self.setbacks = 0
        self.diverged: str | None = None
        self.history: list[dict[str, np.ndarray]] = []
        self.theta_draws: list[np.ndarray] = []
        self.above_draws: list[Any] = []  # of the population, and of the noise
        self.nonfinite = 0
        self._programs: dict[str, Any] = {}
        self._surveyed: dict[str, int] = {}
        self._solved = 1.0  # the share of calls of laws, in solutions at current chains, that are finite

    # The loop ---------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        if self.iteration < self.plan.learn:
            return "learn"
        return "settle" if self.iteration < self.plan.learn + self.plan.settle else "sample"

    @property
    def total(self) -> int:
        return self.plan.learn + self.plan.settle + self.plan.sample * (1 + self.extended)

    @property
    def finished(self) -> bool:
        return self.iteration >= self.total

    def advance(self) -> dict[str, np.ndarray]:
        """One chunk of the current phase; returns its log."""
        return self._learn_chunk() if self.phase == "learn" else self._sample_chunk()

    def _learn_chunk(self) -> dict[str, np.ndarray]:
        size = self.plan.learn_chunk
        now = np.arange(self.iteration, self.iteration + size) / self.plan.learn
        temperature = temperatures(self.settings, now)
        slower = SLOWER**self.setbacks
        rates = [slower * rate for rate in learning_rates(self.settings, now, self.network is not None)]
        follow = adaptations(self.settings, "learn", now)
        schedule = Schedule(*(jnp.asarray(x, float) for x in (temperature, follow, *rates)))
        if not jax.tree.leaves(self._weights) and self.iteration == 0:
            self._refresh()
        program = self._program("learn", learn, (GROUPS, SAME, SAME, SAME), (GROUPS, SAME, SAME))
        before = self.chains, self.learned
        self.chains, self.learned, log = program(self.chains, self.learned, self.ranges, schedule)
        seen = self.visited() if self.laws else {}
        if self._went_wrong(log, seen):
            return self._step_back(*before, log, temperature)
        self.stale = True
        self.ranges = {name: table_range(x) for name, x in seen.items()}  # tables cover where solutions go now
        if temperature[-1] == 1 and self.iteration + size < RESCUE_UNTIL * self.plan.learn:
            chains, count = rescued(self.setup, self.chains, self.settings.seed + self.iteration)
            self.chains = self.spread(chains) if count else self.chains
        return self._log("learn", log, size, temperature)

    def _sample_chunk(self) -> dict[str, np.ndarray]:
        phase, size = self.phase, self.plan.sample_chunk
        if self.iteration == self.plan.learn and self.settings.preconditioner is not None:
            shrink = self.settings.covariance == "halves"
            self.factor = self.spread(factors(self.chains.ensemble.position, self.setup.shared, shrink))
        rate = adaptations(self.settings, phase, self.iteration - self.plan.learn + np.arange(size))
        schedule = Schedule(jnp.ones(size), jnp.asarray(rate, float), jnp.zeros(size), jnp.zeros(size))
        function = lambda *a: sample(*a, thin=self.plan.thin)  # noqa: E731
        program = self._program("sample", function, (GROUPS, SAME, SAME, GROUPS, SAME, SAME), (GROUPS, DRAWS, SAME))
        stale, self.stale = jnp.asarray(self.stale), False
        self.chains, draws, log = program(self.chains, self.learned, self.ranges, self.factor, stale, schedule)
        theta, phi, log_sigma = jax.tree.map(np.asarray, tuple(draws))
        logged = self._log(phase, log, size, np.ones(size))
        if phase == "sample":
            self.theta_draws.append(theta)
            self.above_draws.append((phi, log_sigma))
            self._extend_if_needed()
        elif self.phase == "settle":  # after the last chunk of settling nothing changes any more
            self._tune(theta, phi)
        return logged

    # Parts of it ------------------------------------------------------------------------------------------------------

    def _first_state(self, prior: Any, key: Array, systems: int) -> tuple[Any, ...]:
        """Every chain from a population of its own, drawn from the hyperprior; keys, step sizes and no preconditioner yet."""
        groups, each = self.settings.groups, self.settings.chains // self.settings.groups

        def draw(above: Array, below: Array) -> tuple[Array, Any]:
            phi = prior.draw(above)
            return prior.scatter(phi, below), phi

        keys, count = jr.split(key, groups + 1), prior.mean.shape[0]
        stream = uniforms(keys[0], (groups, each, 2, count), (groups, each, systems, count))
        theta, phi = jax.vmap(jax.vmap(draw))(*map(normal, stream))
        position = BLOCKS[self.settings.blocks](prior, systems).pack(theta, phi)[0]
        shared = prior.shared if isinstance(prior, Sharing) else None
        size = groups, position.shape[2] + (shared is not None)
        log_step = jnp.full(size, jnp.log(self.settings.step_size or 0.3))
        return theta, phi, keys[1:], log_step, factors(position, shared, plain=True)

    def _blank(self, position: Array, target: Likelihood) -> Ensemble:
        """Nothing is evaluated yet."""
        none = jnp.full(position.shape[:3], -jnp.inf, position.dtype)
        fit: Any = (none, jnp.zeros_like(position))
        exact: Any = none
        if target.member is not None:
            terms = target.member.shape[2 if target.family.linear else 1]
            square = jnp.full((*position.shape[:3], terms), jnp.inf, position.dtype)
            fit, exact = Fit(square, jnp.zeros((*square.shape, position.shape[-1]))), Fit(square, None)
        return Ensemble(position, fit, exact if self.settings.corrected else None)

    def spread(self, tree: Any) -> Any:
        return jax.device_put(tree, NamedSharding(self.mesh, GROUPS))

    def _program(self, name: str, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Program:
        if name not in self._programs:
            self._programs[name] = Program(function, self.setup, self.mesh, in_specs, out_specs)
        return self._programs[name]

    def _refresh(self) -> None:
        """First likelihoods of a run that learns nothing (with a law to learn every iteration does this)."""
        model = self.setup.model(self.views, self.learned.surrogate)
        evaluate = jax.jit(lambda x: self.setup.blocks.evaluate(self.setup.likelihood, model, x))
        self.chains = self.spread(self.chains._replace(ensemble=init(self.chains.ensemble.position, evaluate)))

    @property
    def _weights(self) -> Any:
        return self.learned.law.weights, self.learned.surrogate.weights

    def _went_wrong(self, log: Any, seen: dict[str, np.ndarray]) -> bool:
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

    def _step_back(self, chains: Chains, learned: Learned, log: Any, temperature: np.ndarray) -> dict[str, np.ndarray]:
        """Undo a chunk that went wrong, to do it again more slowly; after that has been tried often enough, give up."""
        self.chains, self.learned, self._solved = chains, learned, 1.0
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

    def _log(self, phase: str, log: Any, size: int, temperature: np.ndarray) -> dict[str, np.ndarray]:
        entries = self._entries(phase, log, size, temperature)
        self.nonfinite += int(entries["nonfinite"].sum() * self.settings.chains * self.chains.log_step.shape[1] + 0.5)
        self.history.append(entries)
        self.iteration += size
        return entries

    def _entries(self, phase: str, log: Any, size: int, temperature: np.ndarray) -> dict[str, np.ndarray]:
        """What a chunk told, an entry an iteration."""
        return {
            "iteration": np.arange(self.iteration, self.iteration + size),
            "phase": np.full(size, phase),
            "seconds": np.full(size, round(time.perf_counter() - self.began, 3)),
            "temperature": np.asarray(temperature),
        } | {name: np.asarray(value) for name, value in log._asdict().items()}

    def _tune(self, theta: np.ndarray, phi: Any) -> None:
        """Preconditioner of each group from all its draws in this chunk, many more than it has chains."""
        if self.settings.preconditioner is None or self.settings.covariance == "self":
            return
        position = np.asarray(self.setup.blocks.pack(*jax.tree.map(jnp.asarray, (theta, phi)))[0])
        pooled = np.moveaxis(position, 0, 1).reshape(position.shape[1], -1, *position.shape[3:])
        self.factor = self.spread(factors(jnp.asarray(pooled), self.setup.shared))

    def _extend_if_needed(self) -> None:
        """Go on sampling, within limits, while the draws do not suffice."""
        if not self.finished or self.extended >= self.settings.extend:
            return
        check = self.convergence()
        if not check.enough:
            self.extended += 1

    # What a run knows -------------------------------------------------------------------------------------------------

    @property
    def laws(self) -> dict[str, Any]:
        """The closures with their current weights."""
        return with_weights(self.setup.closures, self.learned.law.weights)

    @property
    def views(self) -> dict[str, Any]:
        """The closures as solvers call them."""
        return views_of(self.laws, self.ranges)

    @property
    def network(self) -> Any:
        """The surrogate with its current weights; None where chains see the solver itself."""
        return eqx.combine(self.learned.surrogate.weights, self.setup.network)

    @property
    def law_steps(self) -> int:
        """Steps the law took; where the solver had no finite solution there was none to take."""
        return int(self.learned.law.optimiser.count)

    @property
    def seconds_compile(self) -> float:
        return sum((p.seconds_compile for p in self._programs.values() if isinstance(p, Program)), 0.0)

    @property
    def groups(self) -> np.ndarray:
        """(chain,): the group of each chain."""
        return np.repeat(np.arange(self.settings.groups), self.settings.chains // self.settings.groups)

    def theta(self) -> np.ndarray:
        """Kept draws (chain, draw, system, parameter); before sampling, where the chains stand, as one draw."""
        if self.theta_draws:
            return _by_chain(np.concatenate(self.theta_draws))
        return _by_chain(np.asarray(self.setup.blocks.unpack(self.chains.ensemble.position, self.chains.phi)[0])[None])

    def phi(self) -> Any:
        """Kept draws of the population, (chain, draw, parameter) each; () without hierarchy."""
        phi, prior = self._above()[0], self.setup.population
        return prior.told(phi, self.theta()) if isinstance(prior, Sharing) else phi

    def log_sigma(self) -> np.ndarray | None:
        """Kept draws of the size of the noise, (chain, draw, quantity); None where it is known."""
        return self._above()[1]

    def _above(self) -> Any:
        if self.above_draws:
            return jax.tree.map(lambda *a: _by_chain(np.concatenate(a)), *self.above_draws)
        return jax.tree.map(lambda a: _by_chain(np.asarray(a)[None]), self.above_now)

    @property
    def above_now(self) -> Any:
        phi = self.setup.blocks.unpack(self.chains.ensemble.position, self.chains.phi)[1]
        return phi, self.chains.log_sigma

    def sigma(self) -> np.ndarray:
        """Of every observation; where it is inferred, its posterior median."""
        log_sigma = self.log_sigma()
        if log_sigma is None:
            return self.data.sigma
        typical = np.exp(np.median(log_sigma, axis=(0, 1)))[self.data.quantity]
        return np.where(np.isnan(self.data.sigma), typical, self.data.sigma)

    def convergence(self) -> Any:
        """Of every theta and phi; on every so-many-th draw where there are very many numbers."""
        scale, sizes = self.setup.scale, self.log_sigma()
        if scale is not None and sizes is not None:
            sizes = sizes[..., np.flatnonzero(scale.free)]
        phi = self.phi()
        if phi:  # what is shared has a mean and no spread
            phi = phi._replace(log_tau=phi.log_tau[..., ~np.array(self.problem.parameters.shared)])
        scalars = [a.reshape(*a.shape[:2], -1) for a in (self.theta(), *phi, sizes) if a is not None]
        joined = np.concatenate(scalars, axis=2)
        apart = max(1, min(joined.shape[1] // 100, joined.size // DIAGNOSED_NUMBERS))
        return convergence(joined[:, ::apart], self.groups)

    def some_theta(self, chains: int = 16) -> np.ndarray:
        """(chain, system, parameter): recent positions of a few chains of every group."""
        theta = np.asarray(self.setup.blocks.unpack(self.chains.ensemble.position, self.chains.phi)[0])
        calls = theta.shape[2] * len(self.problem.points)
        each = max(1, min(chains, SURVEY_POINTS // calls) // theta.shape[0])
        return theta[:, :each].reshape(-1, *theta.shape[2:])

    def visited(self) -> dict[str, np.ndarray]:
        """Inputs the laws were called with along trajectories of current chains, name -> (call, input)."""
        if "visited" not in self._programs:
            forward, setup = self.setup.exact.forward, self.setup

            def survey(weights: Any, ranges: dict[str, Range], theta: Array) -> Any:
                laws = prepare(with_weights(setup.closures, weights), ranges)
                of_systems = jax.vmap(lambda t, k: forward.law_inputs(t, laws, k))
                return jax.vmap(of_systems, (0, None))(theta, jnp.arange(theta.shape[1]))

            self._programs["visited"] = jax.jit(survey)
        weights, ranges = jax.device_get((self.learned.law.weights, self.ranges))
        seen = self._programs["visited"](weights, ranges, self.some_theta())
        self._surveyed = {name: int(np.prod(np.shape(x)[:-1])) for name, x in seen.items()}
        return finite_rows(seen)

    def outside(self) -> dict[str, float]:
        return outside_share(self.laws, self.views, self.visited())


def _by_chain(draws: np.ndarray) -> np.ndarray:
    """(draw, group, chain, ...) to (group x chain, draw, ...)."""
    return np.moveaxis(draws, 0, 2).reshape(draws.shape[1] * draws.shape[2], draws.shape[0], *draws.shape[3:])
