"""A fitted fleet, back from its run folder."""

import json
from pathlib import Path

import xarray as xr

from ..data import read_table
from ..equations import Equation, ProblemError, align, same_equation
from ..laws import Law
from ..predict import Fleet, notes_of
from ._laws_file import read_laws


class LoadError(ValueError):
    """The folder holds nothing to predict from; the message says why and what to do."""


def load(folder: str | Path, problem: Equation) -> Fleet:
    """A fitted fleet from its run folder, to predict with; `problem` is the one it was fitted with."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise LoadError(f"there is no folder {folder}; name one that `closura fit` wrote, with --out or under runs/")
    if not (folder / "posterior.nc").is_file():
        stopped = (folder / "checkpoint.npz").is_file()
        todo = (
            f"continue that run with `closura resume {folder}`"
            if stopped
            else "name the folder of a run that has ended"
        )
        raise LoadError(f"{folder} holds no posterior (posterior.nc); {todo}")
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
    return Fleet(problem, data, tree, _laws(folder, problem), notes_of(metrics))


def _laws(folder: Path, problem: Equation) -> dict[str, Law]:
    laws, facts = read_laws(folder, problem.closures)
    for name in problem.closures:
        if name not in facts["closures"]:
            raise ProblemError(f"{folder} has no law {name!r}; give the problem it was fitted with")
        if name not in laws:
            raise ProblemError(
                f"law {name!r} was given in {folder} (Known), and not as here; give the problem it was fitted with"
            )
    laws = {name: laws[name] for name in problem.closures}
    before = facts.get("equation")
    if before is not None and not same_equation(before, problem.fingerprint()):
        raise ProblemError(
            f"the equation (or the initial state) of the problem is not the one {folder} was fitted with: at the same places it "
            "gives other numbers; give the problem it was fitted with"
        )
    return laws
