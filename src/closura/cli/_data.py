"""What a command works on: a problem, its data, and the truth where data are synthetic."""

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..diagnose import Truth
from ..problem import ODE, DataError, Observations, ProblemError, read_table
from ..problems import BuiltIn
from ..result import FolderError


class Task(NamedTuple):
    problem: ODE
    data: Observations
    truth: Truth | None
    context: dict[str, Any]


def load_task(context: dict[str, Any], built_in: Callable[[str], BuiltIn], stored: Path | None = None) -> Task:
    """`stored` is the copy of the data a stopped run kept."""
    name = context["problem"]
    context = {key: value for key, value in context.items() if value is not None}
    known = None if name.endswith(".py") else built_in(name)
    problem = _from_file(Path(name)) if known is None else known.oracle() if context.get("oracle") else known.problem
    if known is None and context.get("oracle"):
        raise ProblemError("--oracle needs the true law, which only built-in problems know; drop it")
    if stored is None and not context.get("data"):
        if known is None:
            raise DataError(f"{name} has no data of its own; name a table with --data FILE.csv")
        seed = context.setdefault("data_seed", 0)
        data, truth = known.simulate(context.get("systems"), seed)
        return Task(problem, data, truth, context | {"systems": len(data.systems)})
    if context.get("systems"):
        raise DataError("--systems is for synthetic data; with --data the table says how many systems there are")
    path = Path(context["data"])
    table = stored or (path / "data.csv" if path.is_dir() else path)
    data = read_table(table)
    return Task(problem, data, _read_truth(path / "truth.csv", problem, data, known), context)


def _from_file(path: Path) -> ODE:
    from ._main import load_module

    if not path.exists():
        raise ProblemError(f"there is no file {path}")
    try:
        module = load_module(path)
    except Exception as error:
        mine = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f" (line {mine[-1].lineno}: {mine[-1].line})" if mine else ""
        raise ProblemError(f"{path} failed on import{place}: {type(error).__name__}: {error}") from None
    problem = getattr(module, "problem", None)
    if not isinstance(problem, ODE):
        raise ProblemError(f"{path} must define `problem = cl.ODE(...)`; it defines {type(problem).__name__}")
    return problem


def _read_truth(path: Path, problem: ODE, data: Observations, known: BuiltIn | None) -> Truth | None:
    if not path.is_file():
        return None
    table = pd.read_csv(path, dtype={"system": str}).set_index("system")
    names = list(problem.parameters.names)
    try:
        physical = table.loc[list(data.systems), names].to_numpy(float)
    except KeyError as error:
        raise DataError(f"{path} does not fit the data: {error.args[0]}") from None
    theta = np.asarray(problem.parameters.to_theta(physical), float)
    return Truth(theta) if known is None else Truth(theta, known.mu, known.tau, known.laws, known.ranges)


def write_simulation(built_in: BuiltIn, systems: int | None, seed: int, out: Path, overwrite: bool) -> list[Path]:
    paths = [out / "data.csv", out / "truth.csv", out / "truth.json"]
    taken = [path for path in paths if path.exists()]
    if taken and not overwrite:
        raise FolderError(f"{taken[0]} exists; choose another --out, or replace it with --overwrite")
    if systems is not None and systems < 1:
        raise DataError(f"--systems {systems}: at least one system is needed")
    data, truth = built_in.simulate(systems, seed)
    table = pd.DataFrame(
        built_in.problem.parameters.to_physical(truth.theta), columns=list(built_in.problem.parameters.names)
    )
    table.insert(0, "system", list(data.systems))
    facts = {
        "problem": built_in.name,
        "data_seed": seed,
        "sigma": built_in.sigma,
        "mu": built_in.mu.tolist(),
        "tau": built_in.tau.tolist(),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        data.to_frame().to_csv(paths[0], index=False)
        table.to_csv(paths[1], index=False)
        paths[2].write_text(json.dumps(facts, indent=2) + "\n")
    except OSError as error:
        raise FolderError(f"cannot write to {out}: {error.strerror or error}; choose another --out") from None
    return paths
