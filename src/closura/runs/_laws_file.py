"""Laws in a run folder: weights in closure.eqx, all else in closure.json; no code of the problem is needed to read them.

Of laws that were given the code is: only the constants of each draw are stored, after the weights.
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
from jaxtyping import Array, PyTree

from ..equations import equation_at, unit_scaling
from ..laws import MLP, AbstractLaw, Law, LawError, LawSpec, Support, build, choose, export_law, was_given
from ._result import Result

WEIGHTS, FACTS = "closure.eqx", "closure.json"
Facts = dict[str, Any]


def write_laws(result: Result, folder: Path) -> None:
    laws = result.closures
    arrays = [{n: _arrays(law.law) for n, law in laws.items() if law.learned is learned} for learned in (True, False)]
    eqx.tree_serialise_leaves(folder / WEIGHTS, arrays)
    facts = {"problem": result.problem.name, "converged": result.converged, "equation": equation_at(result.problem)}
    stored = {name: _facts(law) for name, law in laws.items()}
    (folder / FACTS).write_text(json.dumps({**facts, "closures": stored}, indent=1) + "\n", "utf-8")


def _facts(law: Law) -> Facts:
    spec = dataclasses.asdict(law.law.spec) if law.learned else None
    support = None
    if law.support is not None:
        cells = law.support.cells
        support = {"low": law.support.low.tolist(), "high": law.support.high.tolist()}
        support |= {"cells": None if cells is None else cells.astype(int).tolist()}
    table = None if law.table is None else [np.asarray(end).tolist() for end in law.table]
    draws = len(jax.tree.leaves(law.law)[0]) if law.law.spec.per_chain else None
    return {
        "spec": spec,
        "double": law.double,
        "inputs": law.inputs,
        "support": support,
        "table": table,
        "draws": draws,
    }


def load_closures(folder: str | Path) -> dict[str, Law]:
    """The laws that were learned in a run, from its folder; each can be called, and has its `support`."""
    return read_laws(folder)[0]


def read_laws(folder: str | Path, given: Mapping[str, LawSpec] | None = None) -> tuple[dict[str, Law], Facts]:
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
        stored: dict[str, Facts] = facts["closures"]
        learned = {name: MLP(**about["spec"]) for name, about in stored.items() if about["spec"] is not None}
        known = {
            name: spec
            for name, spec in (given or {}).items()
            if name in stored
            and name not in learned
            and not spec.trainable
            and spec.per_chain is (stored[name].get("draws") is not None)
        }
        blank = [{n: _blank(spec, stored[n]) for n, spec in specs.items()} for specs in (learned, known)]
        arrays = eqx.tree_deserialise_leaves(
            folder / WEIGHTS, [{n: _arrays(law, np.asarray) for n, law in laws.items()} for laws in blank]
        )
        filled = {n: _filled(stored[n], arrays[i][n], law) for i, laws in enumerate(blank) for n, law in laws.items()}
    except Exception as error:
        raise LawError(
            f"the laws in {folder} cannot be read ({type(error).__name__}: {error}); the files {WEIGHTS} and {FACTS} "
            "are damaged or not of one run: copy them again, or fit again"
        ) from None
    return {name: _found(name, about, filled[name]) for name, about in stored.items() if name in filled}, facts


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

    about: dict[str, Any] = {"problem": facts["problem"], "converged": facts["converged"]}
    return export_law(law, path, table, overwrite=overwrite, **about)


def _arrays(law: AbstractLaw, convert: Any = lambda leaf: leaf) -> PyTree[Array]:
    return jax.tree.map(convert, eqx.filter(law, eqx.is_inexact_array))


def _blank(spec: LawSpec, about: Facts) -> AbstractLaw:
    """A law of the right shape, with as many draws as are stored."""
    draws = about.get("draws")
    with jax.enable_x64(about["double"]):
        scalings = {"f": unit_scaling(spec.inputs)}
        return build({"f": spec}, jr.key(0), scalings, () if draws is None else (draws,))["f"]


def _filled(about: Facts, arrays: PyTree[Array], blank: AbstractLaw) -> AbstractLaw:
    with jax.enable_x64(about["double"]):
        return eqx.combine(jax.tree.map(jnp.asarray, arrays), blank)


def _found(name: str, about: Facts, law: AbstractLaw) -> Law:
    """A law with all that its folder says of it."""
    support, table = about["support"], about.get("table")
    if support is not None:
        cells = support["cells"]
        low, high = (np.array(support[end], float) for end in ("low", "high"))
        support = Support(low, high, None if cells is None else np.array(cells, bool))
    ends = None if table is None else (np.array(table[0], float), np.array(table[1], float))
    return Law(name, law, tuple(about["inputs"]), support, ends)
