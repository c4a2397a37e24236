"""Before the first iteration: is the problem solvable, what are the units of its laws, where do they get called?"""

from collections.abc import Callable, Iterable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from ..data import DataError, Observations
from ..equations import Equation, ForwardModel, ProblemError, constant_laws, place_names
from ..forward import (
    LawValues,
    NoisePrior,
    law_values,
    likelihood,
    noise_prior,
    seen_through,
    sees_laws,
    trainable,
)
from ..laws import AbstractLaw, Range, Scaling, SolverLaws, build, first_of, prepare
from ..parameters import System
from ..population import Effects, Population, normal, population, uniforms
from ..sampling import Cache, Chains, init_all
from ._sampler import check_moves, make_sampler
from ._settings import Settings, SettingsError
from ._setup import Replay, Setup, State, begin

MARGIN = 0.25
FIRST_DRAWS = 4  # of a group, of which a surrogate that sees laws takes its units
SURVEY_POINTS = 2_000_000
PATIENCE = 86_400.0  # seconds that the solutions a surrogate is trained on may take
RESTS = 0.01  # of the rates that the data need: what moves less is at rest


views_of = eqx.filter_jit(prepare)  # where nothing around it is compiled


def initialise(problem: Equation, data: Observations, settings: Settings) -> tuple[Setup, list[str], State]:
    """What does not change, what to know of the defaults taken, and the first state."""
    target = likelihood(problem, data)
    noise, notes = noise_prior(problem, data)
    effects = effects_of(problem, data)
    check_blocks(problem, settings, noise is not None, effects is not None)
    prior = population(problem.parameters, settings.hierarchy, settings.population, effects)
    seen = seen_through(target, problem, data, settings.forward, **settings.network)
    if seen.forward.labelled:
        check_patience(problem, settings, len(data.systems))
    key_laws, key_chains, key_network = jr.split(jr.key(settings.seed), 3)
    scales = jnp.asarray(problem.parameters.first_scales, float)
    keys, chains = jax.jit(lambda key: first_chains(prior, noise, settings, len(data.systems), key, scales))(key_chains)
    laws, ranges = start_laws(
        target.forward, chains.theta[:, 0], key_laws, rhs_scale_of(problem, data), chains.theta.shape[:2]
    )
    check_physics(target.forward, views_of(first_of(laws, 2), ranges))
    own = {name: law for name, law in laws.items() if law.spec.per_chain}
    laws = {name: law for name, law in laws.items() if name not in own}
    sampled = [name for name, law in own.items() if law.weights is not None]
    unseen = [name for name in own if name not in sampled or not sees_laws(settings.forward)]
    if unseen and seen.forward.approximate:
        raise SettingsError(
            f"every chain has its own law {', '.join(unseen)}, and one network cannot stand for all; use forward='solver'"
        )
    if own and seen.forward.approximate and "derivatives" not in problem.offers:
        raise SettingsError(
            f"sampled laws are learned by derivatives of the solution, and {problem.name!r} has none; use law_kind='network'"
        )
    chains = chains._replace(law=own or ())
    values = law_values_over(first_of(own, 2), ranges, {name: (ranges[name].low, ranges[name].high) for name in own})
    network, replay = first_surrogate(seen.forward, prior, laws, chains, ranges, settings, values, key_network)
    surrogate, frame = eqx.partition(network, trainable(network))
    observations = target.measured.value.shape[-1]
    specs = {name: own[name].spec for name in sampled}
    sampler = make_sampler(settings, prior, noise, (len(data.systems), observations), specs, problem.parameters.logs)
    check_moves(sampler, chains)
    setup = Setup(seen, target, prior, laws, frame, noise, sampler, settings)
    weights = {name: law.weights for name, law in laws.items()}
    state = State(keys, chains, {}, begin(weights), begin(surrogate), replay, ranges)
    return setup, [*notes, *problem.parameters.notes], with_blanks(setup, state)


def law_values_over(
    laws: Mapping[str, AbstractLaw], ranges: Mapping[str, PyTree], inputs: Mapping[str, tuple[ArrayLike, ArrayLike]]
) -> LawValues | None:
    """What a surrogate sees of sampled laws (as one chain holds them): values from the low to the high end of their inputs."""
    ends = {name: (np.asarray(low), np.asarray(high)) for name, (low, high) in inputs.items()}
    return law_values(ends, {name: laws[name].unit(ranges[name]) for name in ends})


def first_surrogate(
    forward: ForwardModel,
    prior: Population,
    laws: Mapping[str, AbstractLaw],
    chains: Chains,
    ranges: Mapping[str, PyTree],
    settings: Settings,
    values: LawValues | None,
    key: PRNGKeyArray,
) -> tuple[PyTree, Replay | tuple[()]]:
    """A surrogate with its first weights, and the draws that it is first trained on; None and () for a solver."""
    own = first_of(chains.law or {}, 2)
    views = views_of({**laws, **own}, ranges)
    first = chains.theta[:, : min(settings.replay, FIRST_DRAWS) if own else settings.replay]
    network, kept = forward.initialise(prior, views, first, key, values)
    if not kept:
        return network, ()
    begun = jnp.zeros(settings.groups, int)
    if values is None:
        return network, Replay(kept[0], kept[1], begun)
    # These tell units; before it is trained all of them are replaced.
    slots = np.arange(settings.replay) % first.shape[1]
    theta, label = jax.tree.map(lambda a: a[:, slots], kept)
    return network, Replay(theta, label, begun, jnp.zeros((*theta.shape[:3], len(values.center))))


def check_patience(problem: Equation, settings: Settings, systems: int) -> None:
    """Refuse a solver so slow that a surrogate would not have its solutions within a day."""
    each = problem.solve_seconds()
    first, more = systems * settings.groups * settings.replay, systems * max(settings.gradient_chains, settings.groups)
    count = first + more * settings.iterations
    if each is not None and each * count > PATIENCE:
        raise SettingsError(
            f"one solution takes {each:.2g} s, and the surrogate is trained on {count:,} of them ({first:,} before the first iteration, "
            f"{more:,} in each): about {each * count / 86400:.2g} days. Make solve faster (a coarser grid, compiled code, JAX), or ask for "
            f"fewer: lower iterations (now {settings.iterations}), gradient_chains (now {settings.gradient_chains}) and replay (now "
            f"{settings.replay}), or fit some of the {systems} systems first"
        )


def check_blocks(problem: Equation, settings: Settings, scale: bool, effects: bool) -> None:
    """The published sampler can less; `scale`: the size of the noise is inferred, `effects`: there are covariates."""
    if effects and not settings.hierarchy:
        raise SettingsError("covariates shift the mean of a population: use hierarchy=True, or drop them")
    beyond = {
        "noise of unknown size": scale,
        "covariates": effects,
        "shared parameters": any(problem.parameters.shared),
    }
    asked = " or ".join(what for what, here in beyond.items() if here)
    if settings.blocks == "joint" and asked:
        raise SettingsError(f"blocks='joint' is the published sampler, which knows no {asked}; use blocks='system'")


def device_count(problem: Equation, settings: Settings) -> int:
    """Devices over which the groups can be spread."""
    available = min(settings.devices or len(jax.devices()), len(jax.devices()), problem.most_devices or 2**30)
    return max(n for n in range(1, available + 1) if settings.groups % n == 0)


def effects_of(problem: Equation, data: Observations) -> Effects | None:
    """How covariates enter the population: standardised, each shift as unsure before data as the mean itself."""
    pairs = [(name, column) for name, columns in problem.covariates.items() for column in columns]
    if not pairs:
        return None
    columns = []
    for name, column in pairs:
        value = data.constants[column]
        if not value.std() > 1e-9 * abs(value).max():
            raise DataError(f"covariate '{column}' of {name} is the same for all systems; leave it out")
        columns.append((value - value.mean()) / value.std())
    names, shared = problem.parameters.names, problem.parameters.shared
    variance = [problem.parameters.mean_variance[names.index(name)] for name, _ in pairs]
    varying = [name for name, same in zip(names, shared) if not same]
    which = tuple(varying.index(name) for name, _ in pairs)
    return Effects(jnp.asarray(np.stack(columns, axis=-1), float), jnp.asarray(variance, float), which)


def first_chains(
    prior: Population,
    noise: NoisePrior | None,
    settings: Settings,
    systems: int,
    key: PRNGKeyArray,
    scales: Float[Array, "2 parameter"],
) -> tuple[Array, Chains]:
    """Keys of the groups, and every chain from a population of its own, drawn from the hyperprior, or with `scales` nearer to
    its middle."""
    groups, each = settings.groups, settings.chains // settings.groups

    def draw(above: Array, below: Array) -> tuple[Array, PyTree]:
        phi = prior.phi_from_normal(scales * above)
        return prior.theta_from_normal(phi, below if prior.hierarchical else scales[0] * below), phi

    keys, count = jr.split(key, groups + 1), prior.mean.shape[0]
    stream = uniforms(keys[0], (groups, each, 2, count), (groups, each, systems, count))
    theta, phi = jax.vmap(jax.vmap(draw))(*map(normal, stream))
    log_sigma = None
    if noise is not None:
        (sizes,) = uniforms(jr.fold_in(key, 1), (groups, each, len(noise.free)))
        log_sigma = noise.draw(normal(sizes))
    return keys[1:], Chains(theta, phi, log_sigma)


def with_blanks(setup: Setup, state: State) -> State:
    """The state with a first tuning, and a cache in which nothing is evaluated yet."""
    state = blank_cache(setup, state)
    return state._replace(tuning=eqx.filter_jit(init_all)(setup.sweep, state.chains))


def blank_cache(setup: Setup, state: State, sampling: bool = False) -> State:
    """The state with a cache in which nothing is evaluated yet, as kernels of learning or sampling need it."""
    theta = state.chains.theta
    stats = setup.likelihood.blank(theta, not sampling or setup.needs_gradients)
    exact = setup.exact.blank(theta, gradients=False) if setup.settings.corrected else None
    prediction = None
    if sampling and setup.needs_scores:
        observations = setup.likelihood.measured.value.shape[-1]
        prediction = jnp.zeros((*theta.shape[:-1], observations), theta.dtype)
    return state._replace(chains=state.chains._replace(cache=Cache(stats, exact, prediction)))


def check_physics(forward: ForwardModel, laws: SolverLaws) -> None:
    """The discretisation must suit the equation; one solution from the middle of the prior, and its gradient, must be finite."""
    problem = forward.problem
    problem.check_scheme()
    theta = jnp.asarray(problem.parameters.mean, float)

    @eqx.filter_jit
    def solve(theta: Array, laws: SolverLaws) -> tuple[Array, Array]:
        if "derivatives" not in problem.offers:
            return jnp.zeros((1, 1, 1)), forward.solution(theta, laws, 0)
        return jax.jacfwd(lambda theta: (forward.solution(theta, laws, 0),) * 2, has_aux=True)(theta)

    gradient, path = map(np.asarray, solve(theta, laws))
    bad = ~np.isfinite(path)
    if bad.any():
        step = int(np.argmax(bad.any(axis=1)))
        state, place = problem.state_names[int(np.argmax(bad[step]))], place_names(problem, problem.points[step])
        guesses = ", ".join(f"{n}={kind.guess:.4g}" for n, kind in problem.parameters.kinds.items())
        raise ProblemError(problem.explain_failure(float(path[step][bad[step]][0]), state, place, guesses))
    bad = ~np.isfinite(gradient)
    if bad.any():
        step, state, parameter = np.argwhere(bad)[0]
        raise ProblemError(
            f"the solution is finite, but the derivative of {problem.state_names[state]!r} in "
            f"{problem.parameters.names[parameter]} is {gradient[step, state, parameter]} at {place_names(problem, problem.points[step])}, with "
            "parameters at their guesses, and sampling needs derivatives; look for a square root, absolute value, norm or power "
            "of something that is exactly zero just before: add a small number to it, as in jnp.sqrt(u + 1e-6), or move a "
            "guess or the initial state off zero"
        )
    if "derivatives" in problem.offers:
        _check_flat(problem, lambda theta: map(np.asarray, solve(theta, laws)), np.asarray(theta), path, gradient)


def _check_flat(
    problem: Equation,
    solve: Callable[[Array], Iterable[np.ndarray]],
    theta: np.ndarray,
    path: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """Derivatives that are exactly zero must be so because nothing changes: also a way off the guess."""
    for i in np.flatnonzero(~np.any(gradient, axis=(0, 1))):
        away = theta + np.sqrt(problem.parameters.mean_variance[i]) * (np.arange(len(theta)) == i)
        there, moved = solve(jnp.asarray(away, float))
        if not np.any(there[..., i]) and np.abs(moved - path).max() > 1e-3 * np.abs(path).max():
            raise ProblemError(problem.explain_flat(problem.parameters.names[i]))


def finite_rows(seen: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Calls of each law as (call, input), of solutions that are finite and not on their way to infinity."""

    def one(x: np.ndarray) -> np.ndarray:
        """`x` is (..., call, input), with a solution for every index before."""
        solutions, flat = x.reshape(-1, *x.shape[-2:]), x.reshape(-1, x.shape[-1])
        size = np.abs(solutions).max(axis=(1, 2), initial=0.0)
        finite = np.isfinite(size)
        if not finite.any():
            return flat[np.isfinite(flat).all(axis=1)]
        usual = np.median(size[finite])
        return solutions[finite & (size <= 1e3 * usual)].reshape(-1, x.shape[-1])

    return {name: one(np.asarray(x)) for name, x in seen.items()}


def spread_of(inputs: np.ndarray, share: float = 0.999) -> tuple[np.ndarray, np.ndarray]:
    """The central interval that holds `share` of the calls; never of zero width."""
    if not len(inputs):
        return -np.ones(inputs.shape[1]), np.ones(inputs.shape[1])
    low, high = np.quantile(inputs, [(1 - share) / 2, (1 + share) / 2], axis=0)
    least = 1e-3 * np.maximum(1e-3, np.maximum(np.abs(low), np.abs(high)))
    return np.where(high - low < least, low - least, low), np.where(high - low < least, high + least, high)


def table_range(inputs: np.ndarray, margin: float = MARGIN) -> Range:
    """The range a table covers: what was visited, and a margin."""
    low, high = spread_of(inputs)
    margin = margin * (high - low)
    return Range(jnp.asarray(low - margin, float), jnp.asarray(high + margin, float))


def start_laws(
    forward: ForwardModel,
    theta: Float[Array, "chain system parameter"],
    key: PRNGKeyArray,
    rhs_scale: float = 1.0,
    chains: tuple[int, ...] = (),
) -> tuple[dict[str, AbstractLaw], dict[str, PyTree]]:
    """Laws with first weights and units taken from the problem itself, and the ranges of their tables. Where every chain
    has a law of its own it has the axes `chains` in front.

    Inputs are scaled by where trajectories of prior draws go when the unknown laws are absent. The output is scaled by how
    large a law must be to matter: the size of the known right-hand side over its response to the law. Where nothing moves
    without the law (most of the time), or nothing can be solved, laws of the size that makes the right-hand side as large as
    the data need it, `rhs_scale`, take its place.
    """
    specs = forward.problem.closures
    unknown = [name for name, spec in specs.items() if spec.trainable]
    systems = jnp.arange(theta.shape[1])

    @jax.jit
    def survey(theta: Array, sizes: dict[str, ArrayLike]) -> tuple[PyTree, PyTree, PyTree]:
        of_systems = jax.vmap(lambda t, k: _with_constant_laws(forward, t, k, sizes))
        return jax.vmap(of_systems, (0, None))(theta, systems)

    seen, without, change = jax.device_get(survey(theta, dict.fromkeys(unknown, 0.0)))
    outputs = {name: _output_scale(without, change[name], rhs_scale) for name in unknown}
    inputs = finite_rows(seen)
    if unknown and any(_says_little(seen[name]) for name in unknown):
        signs = (1.0,) if any(specs[name].structure.positive for name in unknown) else (1.0, -1.0)
        more = [finite_rows(survey(theta, {n: sign * outputs[n] for n in unknown})[0]) for sign in signs]
        inputs = {name: np.concatenate([inputs[name], *(rows[name] for rows in more)]) for name in inputs}
    scalings = {}
    for name in specs:
        low, high = spread_of(inputs[name], 0.95)
        numbers = (low + high) / 2, (high - low) / 2, outputs.get(name, 1.0)
        scalings[name] = Scaling(*(jnp.asarray(x, float) for x in numbers))

    built = eqx.filter_jit(lambda key, scalings: build(specs, key, scalings, chains))(key, scalings)
    return built, {name: specs[name].frame(table_range(x), scalings[name]) for name, x in inputs.items()}


def _with_constant_laws(
    forward: ForwardModel, theta: Array, system: System, sizes: dict[str, ArrayLike]
) -> tuple[dict[str, Array], Array, dict[str, Array]]:
    """One system with its unknown laws constant: inputs they get, right-hand side, and its change when one grows by one."""
    problem = forward.problem
    laws = constant_laws(problem.closures, sizes)
    states = forward.solution(theta, laws, system)
    more = {name: constant_laws(problem.closures, sizes | {name: sizes[name] + 1.0}) for name in sizes}
    change = {name: forward.law_effect(theta, laws, more[name], states, system) for name in sizes}
    return forward.law_inputs(theta, laws, system), forward.rhs_values(theta, laws, states, system), change


def rhs_scale_of(problem: Equation, data: Observations) -> float:
    """How large what the laws are part of must be, for observed quantities to vary as they do."""
    value = np.asarray(data.value)[np.asarray(data.mask)]
    scale = problem.rhs_scale(float(np.ptp(value))) if value.size and np.ptp(value) > 0 else 0.0
    return scale if np.isfinite(scale) and scale > 0 else 1.0


def _says_little(seen: np.ndarray) -> bool:
    """Most calls failed, or all were made with the same input."""
    flat = seen.reshape(-1, seen.shape[-1])
    sound = flat[np.isfinite(flat).all(axis=1)]
    if len(sound) < len(flat) / 2:
        return True
    low, high = np.quantile(sound, [0.025, 0.975], axis=0) if len(sound) else (np.zeros(1), np.zeros(1))
    return bool(np.any(high - low <= 1e-3 * np.maximum(np.abs(low), np.abs(high))))


def _output_scale(without: np.ndarray, change: np.ndarray, rhs_scale: float) -> float:
    feels = np.isfinite(change) & np.isfinite(without) & (np.abs(change) > 0)
    if not feels.any():
        return 1.0
    usual = float(np.median(np.abs(without[feels])))
    needed = usual if usual > RESTS * rhs_scale else rhs_scale
    ratio = needed / np.median(np.abs(change[feels]))
    return float(ratio) if np.isfinite(ratio) and ratio > 0 else 1.0


def law_inputs(
    forward: ForwardModel, law_axes: int | None, laws: SolverLaws, theta: Float[Array, "chain system parameter"]
) -> dict[str, Array]:
    """Inputs that each law is called with, of every chain and system; `law_axes` is 0 where chains have laws of their own."""

    def of_chain(theta: Array, laws: SolverLaws) -> dict[str, Array]:
        return jax.vmap(lambda t, k: forward.law_inputs(t, laws, k))(theta, jnp.arange(len(theta)))

    return jax.vmap(of_chain, (0, law_axes))(theta, laws)
