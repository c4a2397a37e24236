"""What a run is told: options, `--set` pairs and a YAML file, checked before anything is loaded."""

import difflib
from pathlib import Path
from typing import Any

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
    law: dict[str, Any] | None = Field(
        None, description="what else is known of the law: options of cl.MLP, e.g. {odd: true}"
    )
    float64: bool = Field(False, description="compute in double precision")
    track: list[str] | None = Field(None, description="who follows the run: tensorboard, wandb, mlflow, or none")
    about: Any = Field(None, description="versions and date, written by closura and ignored when read", exclude=True)

    @field_validator("track", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """One or several; none is a word too."""
        names = [value] if isinstance(value, str) else value
        return [name for name in names if name != "none"] if isinstance(names, list) else names


def choose(config: Path | None, pairs: list[str], options: dict[str, Any]) -> tuple[Context, dict[str, Any]]:
    """All that was said, checked: about the work, and settings that were given. Options win over pairs, pairs over the file."""
    given = {key: value for key, value in options.items() if value is not None}
    chosen = read_config(config) | _read_pairs(pairs) | given
    inside = {key: value for key, value in chosen.items() if key in Context.model_fields}
    settings = {key: value for key, value in chosen.items() if key not in inside}
    # What goes together depends on the problem, which is not loaded yet.
    made = checked(Given, settings)
    return checked(Context, inside), {key: getattr(made, key) for key in settings}


def read_config(path: Path | None) -> dict[str, Any]:
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


def _read_pairs(pairs: list[str]) -> dict[str, Any]:
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


def _known(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Command-line names have hyphens, Python names underscores: either will do."""
    values = current_names({key.replace("-", "_"): value for key, value in values.items()})
    known = help_of(Context) | help_of(Settings)
    bad = [unknown(key, known) for key in values if key not in known]
    if bad:
        raise SettingsError("\n".join(f"{source}: {line}" for line in bad))
    return values


def built_in(name: str, or_file: bool = True) -> Any:
    """A problem that ships with closura."""
    from ..problems import BUILT_IN

    if name in BUILT_IN:
        return BUILT_IN[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), BUILT_IN, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    file = "; or give a file ending in .py" if or_file else ""
    raise UsageError(f"unknown problem {name!r}; {hint}built-in problems: {', '.join(BUILT_IN)}{file}")
