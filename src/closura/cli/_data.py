"""What a command works on: a problem, its data, and the truth where data are synthetic."""

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..data import DataError, Observations, read_table
from ..diagnose import Truth
from ..equations import Equation, ProblemError, align
from ..problems import BUILT_IN, BuiltIn
from ..runs import FolderError, write_whole
from ._options import Context, UsageError
from ._problem_file import from_file

SIMULATED = ("data.csv", "truth.csv", "truth.json")


class Task(NamedTuple):
    problem: Equation
    data: Observations
    truth: Truth | None
    context: dict[str, object]
    notes: list[str]


def built_in(name: str, or_file: bool = True) -> BuiltIn:
    """A problem that ships with closura."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), BUILT_IN, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    file = "; or give a file ending in .py" if or_file else ""
    raise UsageError(f"unknown problem {name!r}; {hint}built-in problems: {', '.join(BUILT_IN)}{file}")


def load_task(context: Context, resumed: Path | None = None) -> Task:
    """`resumed` is the folder of a stopped run, which holds copies of its problem and data."""
    problem, known, context = load_problem(context, resumed)
    if context.data is None:
        return _synthetic(context, problem, known)
    return _measured(context, problem, known, resumed)


def load_problem(context: Context, resumed: Path | None = None) -> tuple[Equation, BuiltIn | None, Context]:
    """The problem that a context names, what else is known of it if it is built in, and the context with a full path."""
    if not context.problem:
        raise UsageError("name a problem: `closura fit mass-damper`, or a Python file that defines `problem`")
    name = context.problem
    if not name.endswith(".py"):
        known = built_in(name)
        problem = known.oracle() if context.oracle else known.problem
    elif context.oracle:
        raise ProblemError("--oracle needs the true law, which only built-in problems know; drop it")
    else:
        # Absolute, so that the run can be repeated and continued from anywhere.
        known, path = None, Path(name).expanduser().absolute()
        problem = from_file(path, None if resumed is None else resumed / "problem.py")
        context = context.model_copy(update={"problem": str(path)})
    if context.law:
        problem = _with_law(problem, context.law)
    return problem, known, context


def _with_law(problem: Equation, options: dict[str, Any]) -> Equation:
    """The problem with every law it learns changed in this way."""
    learned = [name for name, spec in problem.closures.items() if spec.trainable]
    if not learned:
        raise UsageError("law= changes a law that is learned, and here there is none; drop it")
    known = [field.name for field in dataclasses.fields(problem.closures[learned[0]])]
    wrong = [name for name in options if name not in known]
    if wrong:
        raise UsageError(f"a law has no {', '.join(wrong)}; it has {', '.join(known)}")
    try:
        changed = {
            name: dataclasses.replace(spec, **options) if name in learned else spec
            for name, spec in problem.closures.items()
        }
    except (ValueError, TypeError) as error:
        raise UsageError(f"law={options}: {error}") from None
    return problem.with_closure(changed["f"] if problem.single else changed)


def _synthetic(context: Context, problem: Equation, known: BuiltIn | None) -> Task:
    if known is None:
        raise DataError(f"{context.problem} has no data of its own; name a table with --data FILE.csv")
    seed = context.data_seed or 0
    data, truth = known.simulate(context.systems, seed)
    context = context.model_copy(update={"systems": len(data.systems), "data_seed": seed})
    return Task(problem, data, truth, context.model_dump(exclude_none=True), [])


def _measured(context: Context, problem: Equation, known: BuiltIn | None, resumed: Path | None) -> Task:
    if context.systems:
        raise DataError("--systems is for synthetic data; with --data the table says how many systems there are")
    path = Path(context.data or "").expanduser().absolute()
    folder = resumed or (path if path.is_dir() else None)
    if folder is not None and not (folder / "data.csv").is_file():
        raise DataError(f"{folder} holds no data.csv; name a table, or a folder made by `closura simulate`")
    table = path if folder is None else folder / "data.csv"
    inputs = Path(context.inputs).expanduser().absolute() if context.inputs and not resumed else None
    if folder is not None and (folder / "inputs.csv").is_file():
        inputs = folder / "inputs.csv"
    # The copy in a run folder is plain text, and its dates are numbers already.
    unit, sheet = (None, None) if resumed else (context.time_unit, context.sheet)
    duplicates = context.allow_duplicates
    read = read_table(table, axes=problem.axes, allow_duplicates=duplicates, time_unit=unit, sheet=sheet, inputs=inputs)
    _, data = align(problem, read)
    context = context.model_copy(update={"data": str(path), "inputs": inputs and str(inputs)})
    notes, truth = list(data.notes), None
    if folder is not None and (folder / "truth.csv").is_file():
        facts = read_facts(folder / "truth.json")
        context = context.model_copy(update={"data_seed": facts.get("data_seed", context.data_seed)})
        same = known is not None and facts.get("problem", known.name) == known.name
        try:
            theta = _read_truth(folder / "truth.csv", problem, data)
            truth = Truth(theta, known.mu, known.tau, known.laws, known.ranges) if known and same else Truth(theta)
        except DataError as error:
            notes.append(f"no scores against the truth: {error}")
    return Task(problem, data, truth, context.model_dump(exclude_none=True), notes)


def _read_truth(path: Path, problem: Equation, data: Observations) -> np.ndarray:
    """True parameters, unconstrained, in the order of the data."""
    names = list(problem.parameters.names)
    try:
        table = pd.read_csv(path, dtype={"system": str}, keep_default_na=False).set_index("system")
        physical = table.loc[list(data.systems), names].to_numpy(float)
    except (KeyError, ValueError, OSError) as error:
        raise DataError(f"{path} does not fit problem and data ({error})") from None
    if physical.shape != (len(data.systems), len(names)):
        raise DataError(f"{path} names a system twice")
    return np.asarray(problem.parameters.to_theta(physical), float)


def read_facts(path: Path) -> dict[str, object]:
    """What a JSON file says; nothing where it cannot be read."""
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def write_simulation(known: BuiltIn, context: Context, out: Path, overwrite: bool) -> list[Path]:
    paths = [out / name for name in SIMULATED]
    taken = [path for path in paths if path.exists()]
    if taken and not overwrite:
        raise FolderError(f"{taken[0]} exists; choose another --out, or replace it with --overwrite")
    seed = context.data_seed or 0
    data, truth = known.simulate(context.systems, seed)
    parameters = known.problem.parameters
    table = pd.DataFrame(parameters.to_physical(truth.theta), columns=list(parameters.names))
    table.insert(0, "system", list(data.systems))
    facts = {"problem": known.name, "data_seed": seed, "sigma": known.sigma}
    facts |= {"mu": known.mu.tolist(), "tau": known.tau.tolist()}

    def write(aside: Path) -> None:
        data.to_frame().to_csv(aside / SIMULATED[0], index=False)
        table.to_csv(aside / SIMULATED[1], index=False)
        (aside / SIMULATED[2]).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    write_whole(out, write)
    return paths
