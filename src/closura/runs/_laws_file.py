"""Laws in a run folder: weights in closure.eqx, all else in closure.json; no code of the problem is needed to read them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd

from ..equations import unit_scaling
from ..laws import MLP
from ..posterior import Law, LawError, Support, choose, export_law, was_given
from ._result import Result

WEIGHTS, FACTS = "closure.eqx", "closure.json"


def write_laws(result: Result, folder: Path) -> None:
    eqx.tree_serialise_leaves(folder / WEIGHTS, {n: _arrays(law.law) for n, law in result.closures.items()})
    facts = {"problem": result.problem.name, "converged": result.converged, "equation": result.problem.fingerprint()}
    laws = {name: _facts(law) for name, law in result.closures.items()}
    (folder / FACTS).write_text(json.dumps({**facts, "closures": laws}, indent=1) + "\n", "utf-8")


def _facts(law: Law) -> dict[str, Any]:
    spec = dataclasses.asdict(law.law.spec) if law.learned else None
    support = None
    if law.support is not None:
        cells = law.support.cells
        support = {"low": law.support.low.tolist(), "high": law.support.high.tolist()}
        support |= {"cells": None if cells is None else cells.astype(int).tolist()}
    table = None if law.table is None else [np.asarray(end).tolist() for end in law.table]
    return {"spec": spec, "double": law.double, "inputs": law.inputs, "support": support, "table": table}


def load_closures(folder: str | Path) -> dict[str, Law]:
    """The laws that were learned in a run, from its folder; each can be called, and has its `support`."""
    return read_laws(folder)[0]


def read_laws(folder: str | Path) -> tuple[dict[str, Law], dict[str, Any]]:
    """The learned laws, and what else is known: `problem`, `converged`."""
    folder = Path(folder).expanduser()
    if not (folder / FACTS).is_file() or not (folder / WEIGHTS).is_file():
        raise LawError(
            f"{folder} holds no laws ({WEIGHTS} and {FACTS}); name the folder of a run that has ended, "
            "and fit again if an older closura wrote it"
        )
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        stored = {name: about for name, about in facts["closures"].items() if about["spec"] is not None}
        blank = {name: _blank(about) for name, about in stored.items()}
        arrays = eqx.tree_deserialise_leaves(
            folder / WEIGHTS, {n: _arrays(law, np.asarray) for n, law in blank.items()}
        )
        laws = {name: _law(name, about, arrays[name], blank[name]) for name, about in stored.items()}
    except Exception as error:
        raise LawError(
            f"the laws in {folder} cannot be read ({type(error).__name__}: {error}); the files {WEIGHTS} and {FACTS} "
            "are damaged or not of one run: copy them again, or fit again"
        ) from None
    return laws, facts


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


def _arrays(law: Any, convert: Any = lambda leaf: leaf) -> Any:
    return jax.tree.map(convert, eqx.filter(law, eqx.is_inexact_array))


def _blank(about: dict[str, Any]) -> Any:
    """A law of the right shape."""
    spec = MLP(**about["spec"])
    with jax.enable_x64(about["double"]):
        return spec.build(jr.key(0), unit_scaling(spec.inputs))


def _law(name: str, about: dict[str, Any], weights: Any, blank: Any) -> Law:
    with jax.enable_x64(about["double"]):
        law = eqx.combine(jax.tree.map(jnp.asarray, weights), blank)
    return law_from(name, about, law)


def law_from(name: str, about: dict[str, Any], law: Any) -> Law:
    """A law with all that its folder says of it."""
    support, table = about["support"], about.get("table")
    if support is not None:
        cells = support["cells"]
        low, high = (np.array(support[end], float) for end in ("low", "high"))
        support = Support(low, high, None if cells is None else np.array(cells, bool))
    ends = None if table is None else (np.array(table[0], float), np.array(table[1], float))
    return Law(name, law, tuple(about["inputs"]), support, ends)
