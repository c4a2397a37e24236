"""Everything a run can be told, with its default and a line of help; read from Python, YAML or the command line."""

import difflib
import warnings
from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator, model_validator

from ..equations import Equation
from ..forward import allowed, forwards, sees_laws
from ..population import POPULATIONS, Diagonal
from ..sampling import JointBlock, Kernel

KERNEL_NAMES = (
    "theta",
    "independence",
    "shared",
    "joint",
    "population",
    "noise",
    "differential_evolution",
    "multi_try",
)
Model = TypeVar("Model", bound=BaseModel)
Values = dict[str, object]


class SettingsError(ValueError):
    """A setting that does not exist or cannot be; the message names it and says what it is for."""


class Given(BaseModel):
    """Settings, each on its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    seed: int = Field(0, ge=0, description="seed of the run (chains, network weights)")
    preset: Literal["default", "paper"] = Field(
        "default", description="what settings not given are: tuned for two cores, or as published"
    )
    forward: str = Field("solver", description="what chains see: the solver, or a network trained while they run")
    law_kind: Literal["sampled", "network"] | None = Field(
        None,
        description="unknown laws sampled with error bars, or learned as a network (--law); none: as the problem states",
    )
    hierarchy: bool = Field(True, description="infer the population; false puts a fixed prior on every system")
    population: str | type[Diagonal] = Field(
        "diagonal", description="parameters vary between systems each on its own, or together (correlations inferred)"
    )
    chains: int = Field(64, ge=1, description="chains in all, split evenly into groups")
    groups: int = Field(4, ge=1, description="groups of chains that share neither preconditioner nor starting point")
    blocks: Literal["system", "joint"] = Field(
        "system", description="propose one system at a time, or everything at once"
    )
    covariance: Literal["halves", "self"] = Field(
        "halves",
        description="preconditioner from the other half of the chains (exact), or from all (published, biased)",
    )
    preconditioner: Literal["ensemble"] | None = Field("ensemble", description="ensemble covariance, or none")
    metropolis: bool = Field(True, description="accept or reject proposals; false leaves the discretisation error in")
    iterations: int = Field(1500, ge=1, description="iterations that learn the closure while sampling")
    tempering: float = Field(0.4, ge=0, le=1, description="part of those over which the likelihood is tempered in")
    tune: int = Field(
        200, ge=0, description="iterations with the closure frozen that tune preconditioner and step size"
    )
    draws: int = Field(300, ge=1, description="draws kept from each chain")
    thin: int = Field(2, ge=1, description="iterations from one kept draw to the next")
    extend: int = Field(
        10, ge=0, description="how often sampling may go on, by half as long again each time, if not converged"
    )
    step_size: float | None = Field(
        None, gt=0, description="step of the sampler; none finds one for every block by its acceptance"
    )
    learning_rate: float = Field(3e-3, gt=0, description="first learning rate of the closure, decaying to a fiftieth")
    gradient_chains: int = Field(
        8, ge=1, description="chains drawn at random for each closure gradient, at least one a group"
    )
    inner_steps: int = Field(8, ge=1, description="steps of the surrogate in an iteration")
    batch: int = Field(256, ge=1, description="draws in one step of the surrogate")
    replay: int = Field(16, ge=1, description="recent draws of all systems each group keeps to train the surrogate on")
    replay_prior_draws: int = Field(
        0, ge=0, description="draws of all systems from the current population each group adds to them in an iteration"
    )
    surrogate_rate: float = Field(
        2e-3, gt=0, description="first learning rate of the surrogate, decaying to a fiftieth"
    )
    surrogate_warmup: float = Field(
        0.0, ge=0, lt=1, description="first part of learning, in which only the surrogate learns"
    )
    surrogate_finetune: float = Field(
        0.15, ge=0, lt=1, description="last part of learning, in which only the surrogate still learns"
    )
    network: Values = Field(default_factory=dict, description="sizes of the surrogate's network, e.g. width and depth")
    hypergradient: Literal["adjoint", "unrolled", "implicit"] = Field(
        "adjoint", description="slope of the law: the solver's, through the surrogate's steps, or through its minimum"
    )
    delayed_acceptance: bool = Field(
        False, description="correct a surrogate by the solver while sampling, so that draws are of the exact posterior"
    )
    sampler: tuple[str | Kernel, ...] | None = Field(
        None, description="kernels of a sweep, in order, by name or as objects; none takes what suits the problem"
    )
    chunk: int = Field(50, ge=1, description="iterations compiled into one call; progress shows after each")
    newton_every: int = Field(10, ge=1, description="iterations from one Newton step of sampled laws to the next")
    minutes: float | None = Field(
        None,
        gt=0,
        description="about how long the fit may take: learning ends after half of it, sampling is not extended",
    )
    devices: int | None = Field(None, ge=1, description="devices to spread the groups over (default: all that fit)")

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: object) -> object:
        return current_names(values) if isinstance(values, dict) else values

    @field_validator("population", mode="before")
    @classmethod
    def _population(cls, value: object) -> object:
        if value in POPULATIONS or (isinstance(value, type) and issubclass(value, Diagonal)):
            return value
        raise ValueError(
            f"input should be {' or '.join(map(repr, POPULATIONS))}, or a subclass of closura.population.Diagonal"
        )

    @property
    def population_name(self) -> str:
        return self.population if isinstance(self.population, str) else self.population.__name__

    @field_serializer("population")
    def _serialised(self, value: object) -> str:
        return self.population_name

    @field_validator("sampler", mode="before")
    @classmethod
    def _kernels(cls, value: object) -> object:
        for one in value if isinstance(value, list | tuple) else ():
            if one not in KERNEL_NAMES and not isinstance(one, Kernel):
                raise ValueError(
                    f"{one!r} is no kernel; kernels are {', '.join(KERNEL_NAMES)}, or a closura.sampling.Kernel"
                )
        return value

    @field_serializer("sampler")
    def _kernel_names(self, value: tuple[str | Kernel, ...] | None) -> list[str] | None:
        return None if value is None else [one if isinstance(one, str) else one.name for one in value]

    @field_validator("preconditioner", "devices", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        """YAML's word is null; people write none."""
        return None if isinstance(value, str) and value.lower() == "none" else value

    @field_validator("forward")
    @classmethod
    def _exists(cls, value: str) -> str:
        if value not in forwards():
            raise ValueError(f"input should be {' or '.join(map(repr, forwards()))}")
        return value


class Settings(Given):
    """Everything a run can be told, each by its name: `fit(problem, data, iterations=3000)`. What does not go together is refused."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def networks(self) -> bool:
        """Must unknown laws be networks: asked for, or the only ones that the forward model and the sampler know?"""
        return self.law_kind == "network" or not sees_laws(self.forward) or self.blocks == "joint"

    @property
    def corrected(self) -> bool:
        """Is there anything to correct?"""
        return self.delayed_acceptance and self.forward != "solver"

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        if self.corrected and not self.metropolis:
            raise ValueError(
                "delayed_acceptance=True corrects by accepting and rejecting, which metropolis=False forbids; drop one"
            )
        if self.surrogate_warmup + self.surrogate_finetune >= 1:
            raise ValueError(
                f"surrogate_warmup={self.surrogate_warmup:g} and surrogate_finetune={self.surrogate_finetune:g} leave the law nothing of learning; lower them"
            )
        if self.population != "diagonal" and not self.hierarchy:
            raise ValueError(
                f"population={self.population_name!r} says how systems vary, and hierarchy=False infers no population; drop one"
            )
        if self.population != "diagonal" and self.blocks == "joint":
            raise ValueError(
                "blocks='joint' is the published sampler, whose population is diagonal; use blocks='system'"
            )
        if self.chains % (2 * self.groups):
            below = self.chains - self.chains % (2 * self.groups)
            raise ValueError(
                f"chains={self.chains} do not split into {self.groups} groups of two equal halves; "
                f"use {max(below, 0) + 2 * self.groups}{f' or {below}' if below else ''}, or other groups"
            )
        return self

    def chains_for(self, dimension: int) -> int:
        """How many chains it takes to estimate a covariance of one block, of so many dimensions, in every group."""
        if self.preconditioner is None:
            return 2 * self.groups
        needed = self.groups * (2 if self.covariance == "halves" else 1) * (dimension + 1)
        return needed + -needed % (2 * self.groups)

    def check_size(self, systems: int, parameters: int) -> None:
        """Are there enough chains to estimate a covariance of one block?"""
        joint = self.blocks == "joint"
        dimension = JointBlock.dimension(systems, parameters, self.hierarchy) if joint else parameters
        needed = self.chains_for(dimension)
        if self.chains < needed:
            raise SettingsError(
                f"chains={self.chains} are too few: blocks={self.blocks!r} have {dimension} dimensions, and with "
                f"groups={self.groups} and covariance={self.covariance!r} their covariance needs at least {needed} chains; "
                f"raise chains to {needed}" + (", or lower groups" if self.groups > 1 else "")
            )


# What does well on two cores: for curves over time, and for fields, whose solutions are expensive. Surrogates train better in many
# steps on few draws than in few steps on many.
_FEW: Values = {"chains": 32, "iterations": 1000}
_CURVES: dict[str, Values] = {
    "basis": {"iterations": 2000},
    "solver": {},
    "fno-supervised": _FEW | {"batch": 32, "inner_steps": 16, "surrogate_rate": 1e-2},
    "fno-physics": _FEW | {"batch": 16, "inner_steps": 32, "surrogate_rate": 1e-2},
    "pinn": _FEW | {"batch": 16, "inner_steps": 32, "surrogate_rate": 5e-3},
}
_FIELD: Values = {"chains": 32, "groups": 2, "gradient_chains": 2, "iterations": 600, "extend": 3}
_OPERATOR = _FIELD | {"chains": 24, "batch": 8, "inner_steps": 16, "surrogate_rate": 5e-3, "network": {"width": 16}}
_FIELDS: dict[str, Values] = {
    "basis": _FIELD | {"batch": 32, "inner_steps": 16, "surrogate_rate": 5e-3},
    "solver": _FIELD | {"chains": 24, "tune": 100, "draws": 200},
    "fno-supervised": _OPERATOR,
    "fno-physics": _OPERATOR | {"surrogate_warmup": 0.15},
    "pinn": _FIELD
    | {"batch": 16, "inner_steps": 16, "surrogate_rate": 2e-3, "iterations": 800, "tempering": 0.3}
    | {"surrogate_warmup": 0.2, "surrogate_finetune": 0.35},
}
# A law that drives an evolution is many times as large as it must be to matter: it has further to go.
_EVOLUTIONS = {kind: chosen | {"learning_rate": 1e-2, "tempering": 0.2} for kind, chosen in _FIELDS.items()}
# While an operator knows nothing, it leads chains and with them the law astray.
_EVOLUTIONS["fno-supervised"] |= {"surrogate_warmup": 0.15, "iterations": 1000}

PROFILES = {"curves": _CURVES, "fields": _FIELDS, "evolutions": _EVOLUTIONS}  # by what an equation says of itself
# Where chains sample the law: Newton steps need few iterations, and every chain must find its place among laws.
_SAMPLED: Values = {"chains": 32, "groups": 4, "iterations": 900, "chunk": 100, "tempering": 0.5}
_SAMPLED |= {"tune": 400, "draws": 200, "thin": 5}
# On a surrogate: what learns is Gauss-Newton steps, an iteration each; the surrogate is trained once, on many draws, and refined.
_ON_BASIS: Values = {"groups": 2, "iterations": 80, "newton_every": 1, "thin": 5, "draws": 400, "extend": 10}
_ON_BASIS |= {"replay": 256, "inner_steps": 16, "surrogate_rate": 1e-2}
_SAMPLED_ON = {"basis": _ON_BASIS}

# The runs of the paper (its appendix A), by problem; problems it does not have get those of its first.
_PAPER: Values = {"groups": 1, "blocks": "joint", "covariance": "self", "hypergradient": "unrolled"}
_PAPER |= {"iterations": 9000, "tempering": 0.0, "tune": 0, "draws": 1000, "thin": 1, "extend": 0}
_PAPER |= {"learning_rate": 5e-4, "gradient_chains": 200}
_PAPER |= {"surrogate_rate": 5e-4, "surrogate_finetune": 0.0, "replay": 1, "batch": 20}
_FNO = _PAPER | {"network": {"width": 32, "modes": 16, "depth": 4}}
_PINN = _PAPER | {"network": {"width": 64, "depth": 5, "hard": False}, "inner_steps": 20}


def _fno(chains: int, step_size: float, inner_steps: int) -> dict[str, Values]:
    both = _FNO | {"chains": chains, "step_size": step_size, "inner_steps": inner_steps}
    return {"fno-supervised": both, "fno-physics": both}


_FIRST = {"solver": _PAPER | {"chains": 200, "step_size": 0.010}, **_fno(200, 0.010, 20)}
_FIRST["pinn"] = _PINN | {"chains": 200, "step_size": 0.018, "learning_rate": 1e-3, "surrogate_rate": 1e-3}
PAPER = {
    "mass-damper": _FIRST,
    "darcy": _fno(160, 0.018, 18) | {"pinn": _PINN | {"chains": 160, "step_size": 0.020}},
    "burgers": {"fno-supervised": _fno(120, 0.018, 18)["fno-supervised"]},
}


RENAMED = {
    "warmup": "tempering",
    "settle": "tune",
    "exact": "delayed_acceptance",
    "polish": "surrogate_finetune",
    "head_start": "surrogate_warmup",
    "newcomers": "replay_prior_draws",
}


def current_names(values: Mapping[str, object]) -> Values:
    """Settings under the names of version 0.1 are taken, with a note."""
    for old in values.keys() & RENAMED.keys():
        if RENAMED[old] in values:
            raise SettingsError(f"{old} is called {RENAMED[old]} now, and both are given; drop {old}")
        warnings.warn(
            f"setting {old} is called {RENAMED[old]} now; the old name still works", FutureWarning, stacklevel=4
        )
    return {RENAMED.get(name, name): value for name, value in values.items()}


def make_settings(values: Mapping[str, object], problem: Equation | None = None) -> Settings:
    """Settings from keys and values, or one message that names each bad key and what it is for.

    What is not given has the default that suits problem and forward model, in the preset asked for.
    """
    values = current_names(values)
    preset = str(values.get("preset") or "default")
    forward = str(values.get("forward") or _usual_forward(problem, preset, values.get("law_kind")))
    known = PROFILES["curves" if problem is None else problem.profile]
    if preset == "paper":
        known = PAPER.get("" if problem is None else problem.name, _FIRST)
        if forward not in known:
            raise SettingsError(
                f"the paper has no forward={forward!r} here; preset='paper' exists for {', '.join(known)}"
            )
    usual = {"forward": forward} | known.get(forward, {})
    settings = checked(Settings, usual | values)
    if problem is None:
        return settings
    if any(spec.trainable and spec.per_chain for spec in with_laws(problem, settings).closures.values()):
        usual |= _SAMPLED | _SAMPLED_ON.get(forward, {})
        settings = checked(Settings, usual | values)
    if "chains" not in values and settings.blocks == "system":
        many = max(settings.chains, settings.chains_for(len(problem.parameters)))
        settings = checked(Settings, usual | {"chains": many} | values)
    return settings


def _usual_forward(problem: Equation | None, preset: str, law_kind: object) -> str:
    """What chains see where nobody says it: of a law that is to be sampled, what samples it best."""
    if problem is None or preset != "default":
        return "solver"
    laws = any(spec.sampled for spec in problem.closures.values()) and law_kind != "network"
    best = [name for name in problem.samples_laws_on if laws and allowed(name, problem)]
    return best[0] if best else problem.default_forward


def with_laws(problem: Equation, settings: Settings) -> Equation:
    """The problem with its unknown laws of the kind that the settings ask for."""
    if settings.law_kind == "sampled" and settings.networks:
        who, instead = f"forward={settings.forward!r}", "forward='solver' to sample them (of a field forward='basis')"
        if settings.blocks == "joint":
            who, instead = "blocks='joint', the published sampler,", "blocks='system' to sample them"
        raise SettingsError(f"{who} knows laws as networks only; use {instead}, or law_kind='network'")
    networks = settings.networks or (settings.law_kind is None and settings.forward not in problem.samples_laws_on)
    if settings.law_kind is None and not networks:
        return problem
    laws = {n: spec.as_network() if networks else spec.as_sampled() for n, spec in problem.closures.items()}
    if laws == dict(problem.closures):
        return problem
    return problem.with_closure(laws["f"] if problem.single else laws)


def checked(kind: type[Model], values: Mapping[str, object]) -> Model:
    """Values as such a model, or one message that names each bad key and what it is for."""
    try:
        return kind(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(item, help_of(kind)) for item in error.errors())) from None


def help_of(kind: type[BaseModel]) -> dict[str, str]:
    return {key: field.description or "" for key, field in kind.model_fields.items()}


def unknown(key: str, known: Mapping[str, str]) -> str:
    """`known` maps each key that exists to its line of help."""
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r} ({known[near[0]]})?" if near else f"settings are {', '.join(known)}"
    return f"unknown setting {key!r}; {hint}"


def _explain(item: Mapping[str, object], known: Mapping[str, str]) -> str:
    place = item["loc"]
    assert isinstance(place, tuple)
    key = ".".join(map(str, place))
    if item["type"] == "extra_forbidden":
        return unknown(key, known)
    said = str(item["msg"]).removeprefix("Value error, ")
    return f"setting {key}={item['input']!r}: {said.lower()} ({key}: {known[key]})" if key in known else said
