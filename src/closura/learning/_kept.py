"""What a run knows while it goes on: its laws, its draws by name, whether they suffice, and where solutions go."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import PyTree

from ..data import Observations
from ..equations import Equation
from ..laws import AbstractLaw, SolverLaw, SolverLaws, first_of, over_draws
from ..sampling import Convergence, convergence, convergence_if_enough, named_draws
from ._initialise import SURVEY_POINTS, finite_rows, views_of
from ._newton import law_values
from ._program import Program
from ._schedule import Plan, stride
from ._settings import Settings
from ._setup import Draws, Setup, State


class Kept:
    """What of a run others read; see `Run`, which is the only one there is."""

    problem: Equation
    data: Observations
    settings: Settings
    setup: Setup
    plan: Plan
    state: State
    chunks: list[Draws]
    extended: int
    _read: dict[str, list[np.ndarray]]
    law_inputs: dict[str, list[list[float]]]
    _programs: dict[str, PyTree]
    _surveyed: dict[str, int]
    _sufficient: tuple[int, Convergence | None]  # figures of so many chunks, where these were enough

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
        own = jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[2:])[... if chosen is None else chosen], own)
        shared = {name: law for name, law in self.views.items() if name in self.setup.closures}
        return over_draws(shared, views_of(own or {}, self.state.ranges, 1))

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
            return jax.tree.map(lambda *a: _by_chain(_joined(a)), *self.chunks)
        return jax.tree.map(lambda a: _by_chain(np.asarray(a)[None]), Draws.of(self.state.chains))

    def keep(self, draws: Draws, first: int) -> None:
        """Keep every so-many-th of these draws, of which `first` came before."""
        every = stride(self.extended, self.plan.most)
        kept = jax.tree.map(lambda a: np.ascontiguousarray(a[-first % every :: every]), draws)  # no view of all of them
        if len(kept.theta):
            self.chunks.append(kept)

    def extend(self) -> None:
        """Sample longer; draws that are there are thinned as those to come will be."""
        before, self.extended = stride(self.extended, self.plan.most), self.extended + 1
        every = stride(self.extended, self.plan.most) // before
        if every > 1:
            self.chunks = [jax.tree.map(lambda *a: np.ascontiguousarray(_joined(a)[::every]), *self.chunks)]
            self._read = {name: [np.concatenate(read, axis=1)[:, ::every]] for name, read in self._read.items()}

    def join_chunks(self) -> None:
        """Hold all kept draws in one piece, so that they are not copied whenever they are asked for."""
        for name, inputs in self.law_inputs.items() if self.chunks else ():
            self._at_inputs(name, np.array(inputs))  # while chunks are what they were, one program reads them
        self._read = {name: [np.concatenate(read, axis=1)] for name, read in self._read.items()}
        count, found = self._sufficient
        self._sufficient = (1, found) if count == len(self.chunks) else (0, None)
        self.chunks = [jax.tree.map(lambda *a: _joined(a), *self.chunks)] if self.chunks else []

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
        parameters, systems = self.problem.parameters, self.data.systems
        return named_draws(self.theta(), self.phi(), noise, parameters, systems, effects, self._law_draws())

    def _law_draws(self) -> dict[str, dict[str, np.ndarray]]:
        """Kept draws of sampled laws at some inputs, of what is named in them, and of their sizes, (chain, draw) each."""
        found: dict[str, dict[str, np.ndarray]] = {"law": {}, "law_parameter": {}, "log_size": {}}
        for name, inputs in self.law_inputs.items():
            law, frame = self.kept.law[name], self.state.ranges[name]
            for x, values in zip(inputs, np.moveaxis(self._at_inputs(name, np.array(inputs)), -1, 0)):
                found["law"][f"{name}({', '.join(f'{xi:.3g}' for xi in x)})"] = values
            named = {f"{what} of law {name}": np.asarray(value) for what, value in law.named(frame).items()}
            found["law_parameter"] |= named
            sizes = np.moveaxis(np.asarray(law.log_size), -1, 0)
            found["log_size"] |= dict(zip((name, f"{name} in detail"), sizes))
        return found if self.law_inputs else {}

    def _at_inputs(self, name: str, inputs: np.ndarray) -> np.ndarray:
        """Kept draws of a law at inputs, (chain, draw, point). Each chunk is read once, and all by one program."""
        frame = self.state.ranges[name]
        if not self.chunks:
            return law_values(self.kept.law[name], frame, inputs)
        read = self._read.setdefault(name, [])
        for chunk in self.chunks[len(read) :]:
            read.append(law_values(jax.tree.map(_by_chain, chunk.law[name]), frame, inputs))
        return np.concatenate(read, axis=1)

    def convergence(self) -> Convergence:
        """Of every scalar; on every so-many-th draw where there are very many numbers."""
        count, found = self._sufficient
        return found if found and count == len(self.chunks) else convergence(self.draws(), self.groups)

    def suffice(self) -> bool:
        """Do the kept draws suffice?"""
        found = convergence_if_enough(self.draws(), self.groups)
        self._sufficient = len(self.chunks), found
        return found is not None

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
        laws = jax.device_get(laws)
        laws = jax.tree.map(lambda a: a[some], laws) if axes else laws
        seen = self._programs["visited"](laws, self.some_theta())
        self._surveyed = {name: int(np.prod(np.shape(x)[:-1])) for name, x in seen.items()}
        return finite_rows(seen)

    def outside(self) -> dict[str, float]:
        """Which part of the calls went outside each table."""
        laws = self.views
        outside = {name: laws[name].outside(jnp.asarray(x, float)) for name, x in self.visited().items() if len(x)}
        return {name: float(np.mean(np.asarray(calls))) for name, calls in outside.items() if calls is not None}


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _by_chain(draws: np.ndarray) -> np.ndarray:
    """(draw, group, chain, ...) to (group x chain, draw, ...)."""
    return np.moveaxis(draws, 0, 2).reshape(draws.shape[1] * draws.shape[2], draws.shape[0], *draws.shape[3:])
