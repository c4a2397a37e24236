"""A fitted fleet and its laws, back from a run folder.

Of laws the weights are in closure.eqx, all else in closure.json; no code of the problem is needed to read them. Of laws that
were given the code is: only the constants of each draw are stored, after the weights.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import PyTree

from ..data import read_table
from ..equations import Equation, ProblemError, align, same_equation, unit_scaling
from ..laws import (
    MLP,
    AbstractLaw,
    FittedLaw,
    Law,
    LawError,
    LawSpec,
    Range,
    Support,
    build,
    choose,
    export_law,
    was_given,
)
from ..predict import Fleet, notes_of
from ._checkpoint import find
from ._result import Result

WEIGHTS, FACTS = "closure.eqx", "closure.json"
KINDS: dict[str, type[LawSpec]] = {"MLP": MLP, "Law": Law}  # of laws that are learned


class LoadError(ValueError):
    """The folder holds nothing to predict from; the message says why and what to do."""


def load(folder: str | Path, problem: Equation) -> Fleet:
    """A fitted fleet from its run folder, to predict with; `problem` is the one it was fitted with."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise LoadError(f"there is no folder {folder}; name one that `closura fit` wrote, with --out or under runs/")
    if not (folder / "posterior.nc").is_file():
        go_on = f"continue that run with `closura resume {folder}`"
        remedy = go_on if find(folder) else "name the folder of a run that has ended"
        raise LoadError(f"{folder} holds no posterior (posterior.nc); {remedy}")
    try:
        with xr.open_datatree(folder / "posterior.nc", engine="h5netcdf") as stored:
            tree = stored.load()
        metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
        posterior = tree["posterior"].to_dataset()
        systems, names = (tuple(map(str, posterior[kind].values)) for kind in ("system", "parameter"))
    except Exception as error:
        raise LoadError(
            f"the results in {folder} cannot be read ({type(error).__name__}: {error}); copy the folder again, or fit again"
        ) from None
    if names != problem.parameters.names:
        raise ProblemError(
            f"{folder} was fitted with the parameters {', '.join(names)}, the problem has {', '.join(problem.parameters.names)}; "
            "give the problem it was fitted with"
        )
    inputs = folder / "inputs.csv" if (folder / "inputs.csv").is_file() else None
    table = read_table(folder / "data.csv", axes=problem.axes, allow_duplicates=True, inputs=inputs)
    problem, data = align(problem, table)
    if data.systems != systems:
        raise LoadError(
            f"data.csv and posterior.nc in {folder} are not of the same run; copy the folder again, or fit again"
        )
    return Fleet(problem, data, tree, _same_laws(folder, problem), notes_of(metrics))


def _same_laws(folder: Path, problem: Equation) -> dict[str, FittedLaw]:
    laws, facts = read_laws(folder, problem.closures)
    for name in problem.closures:
        if name not in facts["closures"]:
            raise ProblemError(f"{folder} has no law {name!r}; give the problem it was fitted with")
        if name not in laws:
            raise ProblemError(
                f"law {name!r} was given in {folder} (Known), and not as here; give the problem it was fitted with"
            )
    before = facts.get("equation")
    if before is not None and not same_equation(before, problem.fingerprint()):
        raise ProblemError(
            f"the equation (or the initial state) of the problem is not the one {folder} was fitted with: at the same places it "
            "gives other numbers; give the problem it was fitted with"
        )
    return {name: laws[name] for name in problem.closures}


def write_laws(result: Result, folder: Path) -> None:
    laws = result.closures
    arrays = [
        {n: _arrays(law.law, law.frame) for n, law in laws.items() if law.learned is learned}
        for learned in (True, False)
    ]
    eqx.tree_serialise_leaves(folder / WEIGHTS, arrays)
    facts = {"problem": result.problem.name, "converged": result.converged, "equation": result.problem.fingerprint()}
    stored = {name: _facts(law) for name, law in laws.items()}
    (folder / FACTS).write_text(json.dumps({**facts, "closures": stored}, indent=1) + "\n", "utf-8")


def _facts(law: FittedLaw) -> dict[str, object]:
    spec = dataclasses.asdict(law.law.spec) if law.learned else None
    kind = type(law.law.spec).__name__ if law.learned else None
    support = None
    if law.support is not None:
        cells = law.support.cells
        support = {"low": law.support.low.tolist(), "high": law.support.high.tolist()}
        support |= {"cells": None if cells is None else cells.astype(int).tolist()}
    table = None if law.frame is None else [np.asarray(end).tolist() for end in (law.frame.low, law.frame.high)]
    facts = {"kind": kind, "spec": spec, "double": law.double, "inputs": law.inputs, "support": support, "table": table}
    return facts | {"draws": len(jax.tree.leaves(law.law)[0]) if law.law.spec.per_chain else None}


def load_closures(folder: str | Path) -> dict[str, FittedLaw]:
    """The laws that were learned in a run, from its folder; each can be called, and has its `support`."""
    return read_laws(folder)[0]


def read_laws(
    folder: str | Path, given: Mapping[str, LawSpec] | None = None
) -> tuple[dict[str, FittedLaw], dict[str, Any]]:
    """The learned laws, and what else is known: `problem`, `converged`. With what the problem states of those that were
    `given`, these too."""
    folder = Path(folder).expanduser()
    if not (folder / FACTS).is_file() or not (folder / WEIGHTS).is_file():
        raise LawError(
            f"{folder} holds no laws ({WEIGHTS} and {FACTS}); name the folder of a run that has ended, "
            "and fit again if an older closura wrote it"
        )
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        stored: dict[str, dict[str, Any]] = facts["closures"]
        learned = {name: _spec(about) for name, about in stored.items() if about["spec"] is not None}
        known = {name: spec for name, spec in (given or {}).items() if _was_given(spec, stored.get(name))}
        blank = [{n: _blank(spec, stored[n]) for n, spec in specs.items()} for specs in (learned, known)]
        like = jax.tree.map(np.asarray, [{n: _arrays(*law) for n, law in laws.items()} for laws in blank])
        arrays = eqx.tree_deserialise_leaves(folder / WEIGHTS, like)
        pairs = [(n, arrays[i][n], law) for i, laws in enumerate(blank) for n, law in laws.items()]
        found = {name: _found(name, stored[name], weights, law) for name, weights, law in pairs}
    except Exception as error:
        raise LawError(
            f"the laws in {folder} cannot be read ({type(error).__name__}: {error}); the files {WEIGHTS} and {FACTS} "
            "are damaged or not of one run: copy them again, or fit again"
        ) from None
    return {name: found[name] for name in stored if name in found}, facts


def export_from(folder: str | Path, path: str | Path, name: str | None = None, *, overwrite: bool = False) -> Path:
    """Like `Result.export_closure`, of a run that is in a folder."""
    laws, facts = read_laws(folder)
    if name in facts["closures"] and name not in laws:
        raise was_given(name)
    law = choose(laws, name)

    def table() -> pd.DataFrame:
        place = Path(folder).expanduser() / "closure.csv"
        try:
            every = pd.read_csv(place)
        except (OSError, ValueError) as error:
            raise LawError(f"cannot read {place} ({error}); copy it again, or fit again") from None
        # Columns of the other laws, which may have other inputs, are empty here.
        mine = every[every["closure"] == law.name].drop(columns="closure").dropna(axis="columns", how="all")
        return mine[sorted(mine.columns, key=lambda column: not str(column).startswith("input"))]

    about = {key: facts[key] for key in ("problem", "converged")}
    return export_law(law, path, table, overwrite=overwrite, **about)


def _arrays(law: AbstractLaw, frame: PyTree) -> PyTree:
    """What is stored of a law: its arrays, and its frame where coordinates mean something in that frame only."""
    stored = (law, frame) if law.spec.sampled else law
    return eqx.filter(stored, lambda leaf: eqx.is_inexact_array(leaf) or isinstance(leaf, np.floating))


def _spec(about: dict[str, Any]) -> LawSpec:
    """A law as it was stated; version 0.1 knew one kind. JSON has lists where there were tuples."""

    def tuples(value: object) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return KINDS[about.get("kind", "MLP")](**{name: tuples(value) for name, value in about["spec"].items()})


def _was_given(spec: LawSpec, about: dict[str, Any] | None) -> bool:
    """Whether a law was given in the way that `spec` says."""
    if about is None or about["spec"] is not None or spec.trainable:
        return False
    return spec.per_chain is (about.get("draws") is not None)


def _blank(spec: LawSpec, about: dict[str, Any]) -> tuple[AbstractLaw, PyTree]:
    """A law of the right shape, with as many draws as are stored, and a frame."""
    chains, one = (about["draws"],) if spec.per_chain else (), jnp.ones(spec.inputs)
    with jax.enable_x64(about["double"]):
        scaling = unit_scaling(spec.inputs)
        return build({"f": spec}, jr.key(0), {"f": scaling}, chains)["f"], spec.frame(Range(-one, one), scaling)


def _found(name: str, about: dict[str, Any], arrays: PyTree, blank: tuple[AbstractLaw, PyTree]) -> FittedLaw:
    """A law with all that its folder says of it."""
    (law, frame), (support, table) = blank, (about["support"], about.get("table"))
    with jax.enable_x64(about["double"]):
        stored = jax.tree.map(jnp.asarray, arrays)
        law, frame = eqx.combine(stored, blank) if law.spec.sampled else (eqx.combine(stored, law), None)
    if support is not None:
        low, high = (np.array(support[end], float) for end in ("low", "high"))
        support = Support(low, high, None if support["cells"] is None else np.array(support["cells"], bool))
    if frame is None and table is not None:
        frame = Range(*(jnp.asarray(end, float) for end in table))
    return FittedLaw(name, law, tuple(about["inputs"]), support, frame)
