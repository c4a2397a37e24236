"""What a run is told: options, `--set` pairs and a YAML file, checked before anything is loaded."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ..learning import Given, Settings, SettingsError, checked, current_names, help_of, unknown


class UsageError(ValueError):
    """What was asked cannot be done; the message names the choices that work."""


class Context(BaseModel):
    """What a run works on; the rest are `closura.Settings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    problem: str | None = Field(None, description="a built-in problem, or a Python file that defines `problem`")
    data: str | None = Field(None, description="table of observations, or a folder made by `closura simulate`")
    inputs: str | None = Field(None, description="second table, of known signals: system, time, one column each")
    time_unit: str | None = Field(None, description="times are dates: count them in s, min, h or d")
    sheet: str | None = Field(None, description="sheet of an Excel workbook", coerce_numbers_to_str=True)
    allow_duplicates: bool = Field(False, description="the same observation may stand twice in the table")
    systems: int | None = Field(None, ge=1, description="number of synthetic systems")
    data_seed: int | None = Field(None, ge=0, description="seed of the synthetic data")
    oracle: bool = Field(False, description="use the true law of a built-in problem instead of learning one")
    law: dict[str, object] | None = Field(
        None, description="what else is known of the law: options of cl.Law (or cl.MLP), e.g. {odd: true}"
    )
    float64: bool = Field(False, description="compute in double precision")
    track: list[str] | None = Field(None, description="who follows the run: tensorboard, wandb, mlflow, or none")
    about: object = Field(None, description="versions and date, written by closura and ignored when read", exclude=True)

    @field_validator("law", mode="before")
    @classmethod
    def _structure(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(
                f"law={value} says what is known of the law, as in {{odd: true}}; its kind is --law {value}"
            )
        return value

    @field_validator("track", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        """One or several; none is a word too."""
        names = [value] if isinstance(value, str) else value
        return [name for name in names if name != "none"] if isinstance(names, list) else names


def _option(
    name: str, kind: object, help: str, *flags: str, default: object = None, metavar: str | None = None
) -> Parameter:
    if kind is bool and not flags:
        flags = (f"--{name.replace('_', '-')}",)  # no --no-...
    told = typer.Option(default, *flags, help=help, metavar=metavar)
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=told)


_PROBLEM = typer.Argument(None, help="a built-in problem or a Python file that defines `problem`")
_TABLE = "table (text, Excel, Parquet, NetCDF, MATLAB): system, time (for fields x, y or time, x), one column a quantity [, sigma]"
_FIT = (
    Parameter("problem", Parameter.KEYWORD_ONLY, annotation=str, default=_PROBLEM),
    _option("data", Path, _TABLE),
    _option("inputs", Path, "second table, of known signals: system, time, one column each"),
    _option("time_unit", str, "times are dates: count them in s, min, h or d"),
    _option("sheet", str, "sheet of an Excel workbook (default: the first with data)"),
    _option("allow_duplicates", bool, "the same observation may stand twice in the table"),
    _option("out", Path, "run folder (default: runs/NAME, numbered)"),
    _option("overwrite", bool, "replace the run in the folder", default=False),
    _option("config", Path, "YAML file of settings; options here win over it"),
    _option("oracle", bool, "use the true law instead of learning one"),
    _option("law_kind", str, "sampled (with error bars) or network (as published)", "--law"),
    _option("hierarchy", bool, "infer the population, or fix the prior", "--hierarchy/--no-hierarchy"),
    _option("forward", str, "solver, basis, fno-supervised, fno-physics or pinn"),
    _option("preset", str, "default, or paper: sizes and rates as published"),
    _option(
        "delayed_acceptance",
        bool,
        "correct a surrogate by the solver while sampling",
        "--delayed-acceptance",
        "--exact",
    ),
    _option("seed", int, "seed of the run"),
    _option("data_seed", int, "seed of synthetic data"),
    _option("systems", int, "number of synthetic systems"),
    _option("chains", int, "chains in all"),
    _option("iterations", int, "learning iterations"),
    _option("draws", int, "draws kept from each chain"),
    _option("set_", list[str], "any other setting; repeat", "--set", metavar="KEY=VALUE"),
    _option("devices", int, "CPU devices; 1 switches spreading over cores off"),
    _option("float64", bool, "double precision"),
    _option("tensorboard", bool, "scalars for TensorBoard, in the run folder", default=False),
    _option("track", list[str], "who follows the run: tensorboard, wandb, mlflow; repeat", metavar="NAME"),
    _option("cache", bool, "keep compiled programs for the next run", "--cache/--no-cache", default=True),
    _option("quiet", bool, "no progress", default=False),
)
OPTIONS = {option.name: option for option in _FIT}


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take these of the options of `closura fit`, after arguments of its own."""

    def change(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD and p.name not in names]
        command.__signature__ = Signature([*own, *map(OPTIONS.__getitem__, names)])  # type: ignore[attr-defined]
        return command

    return change


def choose(
    config: Path | None, pairs: Sequence[str] | None, options: Mapping[str, object]
) -> tuple[Context, dict[str, Any]]:
    """All that was said, checked: about the work, and settings that were given. Options win over pairs, pairs over the file."""
    given = {
        key: str(value) if isinstance(value, Path) else value for key, value in options.items() if value is not None
    }
    chosen = _read_config(config) | _read_pairs(pairs or ()) | given
    inside = {key: value for key, value in chosen.items() if key in Context.model_fields}
    settings = {key: value for key, value in chosen.items() if key not in inside}
    # What goes together depends on the problem, which is not loaded yet.
    made = checked(Given, settings)
    return checked(Context, inside), {key: getattr(made, key) for key in settings}


def _read_config(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check its name and folder") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {error}; write `key: value` lines, e.g. `chains: 64`") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds a {type(content).__name__}; write `key: value` lines, e.g. `chains: 64`")
    return _known({str(key): value for key, value in content.items()}, str(path))


def _read_pairs(pairs: Sequence[str]) -> dict[str, object]:
    chosen = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"--set {pair!r}: write KEY=VALUE, e.g. --set blocks=joint")
        try:
            chosen[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--set {pair!r}: the value {value!r} cannot be read; write a number or a word") from None
    return _known(chosen, "--set")


def _known(values: dict[str, object], source: str) -> dict[str, object]:
    """Command-line names have hyphens, Python names underscores: either will do."""
    values = current_names({key.replace("-", "_"): value for key, value in values.items()})
    known = help_of(Context) | help_of(Settings)
    bad = [unknown(key, known) for key in values if key not in known]
    if bad:
        raise SettingsError("\n".join(f"{source}: {line}" for line in bad))
    return values
