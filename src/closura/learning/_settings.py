"""Everything a run can be told, with its default and a line of help; read from Python, YAML or the command line."""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..sampling import BLOCKS

Model = TypeVar("Model", bound=BaseModel)


class SettingsError(ValueError):
    """A setting that does not exist or cannot be; the message names it and says what it is for."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, description="seed of the run (chains, network weights)")
    forward: Literal["solver"] = Field("solver", description="forward model")
    hierarchy: bool = Field(True, description="infer the population; false puts a fixed prior on every system")
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
    warmup: float = Field(0.4, ge=0, le=1, description="part of those over which the likelihood is tempered in")
    settle: int = Field(
        200, ge=0, description="iterations with the closure frozen that tune preconditioner and step size"
    )
    draws: int = Field(300, ge=1, description="draws kept from each chain")
    thin: int = Field(2, ge=1, description="iterations from one kept draw to the next")
    extend: int = Field(3, ge=0, description="how often sampling may go on for as many draws again if not converged")
    learning_rate: float = Field(3e-3, gt=0, description="first learning rate of the closure, decaying to a fiftieth")
    gradient_chains: int = Field(
        8, ge=1, description="chains drawn at random for each closure gradient, at least one a group"
    )
    chunk: int = Field(50, ge=1, description="iterations compiled into one call; progress shows after each")
    devices: int | None = Field(None, ge=1, description="devices to spread the groups over (default: all that fit)")

    @field_validator("preconditioner", "devices", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        """YAML's word is null; people write none."""
        return None if isinstance(value, str) and value.lower() == "none" else value

    @model_validator(mode="after")
    def _check_chains(self) -> "Settings":
        if self.chains % (2 * self.groups):
            below = self.chains - self.chains % (2 * self.groups)
            raise ValueError(
                f"chains={self.chains} do not split into {self.groups} groups of two equal halves; "
                f"use {max(below, 0) + 2 * self.groups}{f' or {below}' if below else ''}, or other groups"
            )
        return self

    def check_size(self, systems: int, parameters: int) -> None:
        """Are there enough chains to estimate a covariance of one block?"""
        if self.preconditioner is None:
            return
        dimension = BLOCKS[self.blocks].dimension(systems, parameters, self.hierarchy)
        share = self.groups * (2 if self.covariance == "halves" else 1)
        needed = share * (dimension + 1)
        needed += -needed % (2 * self.groups)
        if self.chains < needed:
            raise SettingsError(
                f"chains={self.chains} are too few: blocks={self.blocks!r} have {dimension} dimensions, and with "
                f"groups={self.groups} and covariance={self.covariance!r} their covariance needs at least {needed} chains; "
                f"raise chains to {needed}" + (", or lower groups" if self.groups > 1 else "")
            )


def make_settings(values: dict[str, Any]) -> Settings:
    """Settings from keys and values, or one message that names each bad key and what it is for."""
    return checked(Settings, values)


def checked(kind: type[Model], values: dict[str, Any]) -> Model:
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


def _explain(item: Any, known: Mapping[str, str]) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return unknown(key, known)
    if key in known:
        return f"setting {key}={item['input']!r}: {item['msg'].lower()} ({key}: {known[key]})"
    return str(item["msg"]).removeprefix("Value error, ")
