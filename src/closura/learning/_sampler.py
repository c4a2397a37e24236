"""The list of kernels that a sweep runs: the default one, by name, or as given."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..forward import NoisePrior
from ..laws import LawSpec
from ..population import Population
from ..sampling import (
    Chains,
    DifferentialEvolution,
    Independence,
    JointBlock,
    Kernel,
    LawMove,
    LawSize,
    LawStep,
    Mala,
    MultiTry,
    NoiseGibbs,
    PopulationGibbs,
    SharedBlock,
    SystemBlocks,
)
from ._settings import Settings, SettingsError

Make = Callable[[Settings, Population, int, tuple[bool, ...]], Kernel]


def _mala(blocks: SystemBlocks | SharedBlock | JointBlock, settings: Settings) -> Mala:
    covariance = None if settings.preconditioner is None else settings.covariance
    shrink = settings.covariance == "halves"
    return Mala(blocks, covariance, settings.step_size or 0.3, settings.metropolis, shrink)


def _shared(settings: Settings, population: Population, systems: int, logs: tuple[bool, ...]) -> Kernel:
    if population.shared is None:
        raise SettingsError("sampler: 'shared' moves what all systems share, and no parameter is shared; leave it out")
    return _mala(SharedBlock(population.shared), settings)


KERNELS: dict[str, Make] = {
    "theta": lambda settings, population, systems, logs: _mala(SystemBlocks(population.shared), settings),
    "independence": lambda settings, population, systems, logs: Independence(population.shared, logs),
    "shared": _shared,
    "joint": lambda settings, population, systems, logs: _mala(
        JointBlock(systems, population.mean.shape[0], population.hierarchical), settings
    ),
    "population": lambda settings, population, systems, logs: PopulationGibbs(),
    "noise": lambda settings, population, systems, logs: NoiseGibbs(),
    "differential_evolution": lambda settings, population, systems, logs: DifferentialEvolution(population.shared),
    "multi_try": lambda settings, population, systems, logs: MultiTry(population.shared),
}


def make_sampler(
    settings: Settings,
    population: Population,
    noise: NoisePrior | None,
    size: tuple[int, int],
    laws: Mapping[str, LawSpec] = MappingProxyType({}),
    logs: tuple[bool, ...] = (),
) -> tuple[Kernel, ...]:
    """Kernels of a sweep: those that are asked for, or what suits the problem; `size` is how many systems there are and how
    many observations each has, `laws` are those that are sampled, `logs` says which parameters are logarithms."""
    systems, observations = size
    asked = settings.sampler or _default(settings, population, noise)
    kernels = [KERNELS[one](settings, population, systems, logs) if isinstance(one, str) else one for one in asked]
    if laws:
        kernels += [LawMove(name, logs=logs, observations=observations) for name in laws]
        kernels += [*(LawStep(name) for name, law in laws.items() if law.step), LawSize()]
    names = [kernel.name for kernel in kernels]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SettingsError(f"sampler: {', '.join(sorted(twice))} is there twice; give each kernel a name of its own")
    return tuple(kernels)


def _default(settings: Settings, population: Population, noise: NoisePrior | None) -> list[str]:
    if settings.blocks == "joint":
        return ["joint"]
    own = population.shared is None or not all(population.shared)
    names = ["theta", "independence"] if settings.metropolis and own else ["theta"]
    names += ["shared"] if population.shared is not None else []
    names += ["population"] if population.hierarchical else []
    names += ["noise"] if noise is not None else []
    if settings.metropolis:
        names += ["differential_evolution"]
        names += ["multi_try"] if population.hierarchical else []
    return names


def check_moves(kernels: Sequence[Kernel], chains: Chains) -> None:
    """Refuse a list of kernels under which something would stay where it began."""
    words = {
        "theta": "the parameters of the systems: add 'theta'",
        "phi": "the population: add 'population', or use hierarchy=False",
        "log_sigma": "the size of the noise: add 'noise', or give sigma",
    }
    needed = {"theta": True, "phi": bool(chains.phi), "log_sigma": chains.log_sigma is not None}
    always = [kernel for kernel in kernels if kernel.learning and not kernel.leap]  # leaps come before kept draws only
    moved = {field for kernel in always for field in kernel.moves}
    still = [field for field, there in needed.items() if there and field not in moved]
    if still:
        raise SettingsError(f"no kernel of sampler= moves {' nor '.join(words[field] for field in still)}")
