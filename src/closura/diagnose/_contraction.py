"""How much data narrowed what was believed before: contraction = 1 - var_posterior / var_prior.

1 where data decide, 0 where they say nothing; on the unconstrained scale. The prior of a system's parameters is the population
as the posterior has it, that of a law its prior at the sizes the posterior has: a small size that was inferred must not
pass for knowledge of places where nobody was.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key, PyTree

from .._compile import jit_soon
from ..laws import FittedLaw
from ..learning import Run
from ..population import Population
from ..sampling import labels_of
from ._undecided import Number, OnGrid, Undecided, Unknowns, lonely_means, undecided

DECIDED = 0.5
NUMBERS, BLOCK = 4_000_000, 1000
DRAWS = (100, 2000)  # at least and at most, of the population
LAW_DRAWS = 1000
POINTS = 32  # at which a law is looked at: as often at a place as it was visited


def contraction(run: Run) -> xr.Dataset:
    """Of every scalar, as `run.draws()` names them; NaN where its prior is not told."""
    draws, known = run.draws(), prior_variances(run)
    found = {}
    for name, variable in draws.data_vars.items():
        after = _variance(variable.values)
        before = known.get(str(name), np.full(after.shape, np.nan))
        found[name] = (variable.dims[2:], 1 - after / before)
    return xr.Dataset(found, draws.drop_dims(("chain", "draw")).coords)


def _variance(draws: Float[np.ndarray, "chain draw *scalar"]) -> Float[np.ndarray, "*scalar"]:
    """In double precision; a block of scalars at a time, of which there may be very many."""
    flat = draws.reshape(*draws.shape[:2], -1)
    blocks = [flat[..., i : i + BLOCK].astype(float).var(axis=(0, 1)) for i in range(0, flat.shape[2], BLOCK)]
    return np.concatenate([np.zeros(0), *blocks]).reshape(draws.shape[2:])


def prior_variances(run: Run) -> dict[str, np.ndarray]:
    """Before data, by the names of `run.draws()`."""
    population, noise, shared = run.setup.population, run.setup.noise, np.array(run.problem.parameters.shared)
    known = {name: np.asarray(variance, float) for name, variance in population.prior_variances.items()}
    if noise is not None:
        known["log_sigma"] = np.asarray(noise.variance, float)[np.array(noise.free)]
    return known | {"theta": _of_systems(run)[:, ~shared]}


def _of_systems(run: Run) -> Float[np.ndarray, "system parameter"]:
    """Variance of systems drawn from the population, at posterior draws of it."""
    theta, population = run.theta(), run.setup.population
    each = int(np.prod(theta.shape[2:]))
    count = int(np.clip(NUMBERS // each, *DRAWS))
    draws = [leaf.shape[0] * leaf.shape[1] for leaf in jax.tree.leaves(run.kept.phi)]
    chosen = _evenly(draws[0], count) if draws else np.zeros(count, int)
    phi = jax.tree.map(lambda a: jnp.asarray(a.reshape(-1, *a.shape[2:])[chosen]), run.kept.phi)
    keys = jr.split(jr.key(run.settings.seed), len(chosen))
    return np.asarray(_members(population, keys, phi, theta.shape[2:]), float).var(axis=0)


@jit_soon
def _members(population: Population, keys: Key[Array, " draw"], phi: PyTree, shape: tuple[int, ...]) -> Array:
    return jax.vmap(lambda key, phi: population.theta_from_normal(phi, jr.normal(key, shape)))(keys, phi)


def _evenly(total: int, most: int) -> np.ndarray:
    return np.linspace(0, total - 1, min(most, total)).astype(int)


# Laws -----------------------------------------------------------------------------------------------------------------


def law_draws(
    law: FittedLaw, points: Float[np.ndarray, "point input"], most: int = LAW_DRAWS
) -> tuple[Float[np.ndarray, "draw point"], Float[np.ndarray, "draw point"]]:
    """The law at points before and after data: a draw of its prior for each draw of the posterior, of the same size."""
    before, after = (np.asarray(of(*points.T, most=most), float) for of in (law.prior_draws, law.draws))
    return before, after


def law_contraction(law: FittedLaw, points: Float[np.ndarray, "point input"]) -> Float[np.ndarray, " point"]:
    """Of f(x) at every point."""
    before, after = law_draws(law, points)
    spread = before.var(axis=0)
    return 1 - after.var(axis=0) / np.where(spread > 0, spread, np.inf)


def typical_inputs(visited: Float[np.ndarray, "call input"], count: int = POINTS) -> np.ndarray:
    """Some of the inputs a law was called with: of one input its quantiles, of more every so-many-th."""
    visited = np.asarray(visited, float)
    if visited.shape[1] == 1:
        return np.quantile(visited, (np.arange(count) + 0.5) / count, axis=0)
    return visited[_evenly(len(visited), 2 * count)]


# What data do not decide ----------------------------------------------------------------------------------------------


def what_data_leave_open(run: Run, laws: Mapping[str, FittedLaw], visited: Mapping[str, np.ndarray]) -> list[Undecided]:
    """From the draws of a run: parameters of all systems together, shared ones, sampled laws, and means of the population."""
    numbers, after, before = _numbers(run)
    seen = [law for name, law in laws.items() if law.law.spec.sampled and len(visited[name])]
    chosen = _evenly(len(after), LAW_DRAWS) if seen else np.arange(len(after))
    grids = [typical_inputs(visited[law.name]) for law in seen]
    pairs = [law_draws(law, grid) for law, grid in zip(seen, grids)]
    draws = np.concatenate([after[chosen], *(pair[1] for pair in pairs)], axis=1)
    if not np.isfinite(draws).all() or len(draws) < 4:
        return []
    blocks = [np.diag(before), *(np.cov(pair[0].T) for pair in pairs)]
    on_grid = [OnGrid(law.name, law.inputs, grid, pair[1].mean(axis=0)) for law, grid, pair in zip(seen, grids, pairs)]
    found = undecided(Unknowns(numbers, on_grid), block_diagonal(blocks), np.atleast_2d(np.cov(draws.T)))
    contracted = contraction(run)
    return found + (lonely_means(numbers, contracted["mu"].values, found) if "mu" in contracted else [])


def _numbers(run: Run) -> tuple[list[Number], Float[np.ndarray, "draw number"], Float[np.ndarray, " number"]]:
    """Names, draws and variances before data of each parameter's mean over the systems, and of what systems share."""
    drawn, known = run.draws(), prior_variances(run)
    own, systems = drawn["theta"].mean("system"), drawn.sizes["system"]
    parts, numbers, prior = [own], called(own), [known["theta"].mean(axis=0) / systems]
    if "mu" in known:
        scatter = np.median(np.exp(drawn["log_tau"].values), axis=(0, 1)) if "log_tau" in drawn else 0.0
        prior = [known["mu"] + scatter / systems]
    if "shared" in drawn:
        parts.append(drawn["shared"])
        numbers += called(drawn["shared"])
        prior.append(known["shared"])
    after = [part.values.reshape(-1, part.shape[-1]).astype(float) for part in parts]
    return numbers, np.concatenate(after, axis=1), np.concatenate(prior)


def called(part: xr.DataArray) -> list[Number]:
    """Parameters by name, along the last dim."""
    dim = str(part.dims[-1])
    return [
        Number(name, label == f"log {name}") for name, label in zip(part[dim].values.tolist(), labels_of(part, dim))
    ]


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Of blocks of any shape."""
    whole = np.zeros(np.sum([(0, 0), *(block.shape for block in blocks)], axis=0))
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole
