"""A user's Python file that defines `problem`: run it, and say which of its lines is wrong."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ..equations import Equation, ProblemError, kinds_in_words
from ._options import UsageError


def from_file(path: Path, copy: Path | None = None) -> Equation:
    """`copy` is what the file held when a run that is now continued began."""
    source = path
    if copy is not None and copy.is_file():
        if not path.is_file():
            source = copy
        elif copy.read_bytes() != path.read_bytes():
            raise UsageError(
                f"{path} changed since this run began (it was like {copy}); put it back, or start a new run with `closura fit`"
            )
    if not source.is_file():
        raise ProblemError(f"there is no file {path}; check its name and folder")
    problem = getattr(_load(source), "problem", None)
    if problem is None:
        raise ProblemError(f"{path} does not define `problem`; write problem = {kinds_in_words()}")
    if not isinstance(problem, Equation):
        raise ProblemError(f"{path}: `problem` must be a {kinds_in_words()}, it is of type {type(problem).__name__}")
    if problem.name == "problem":
        problem.name = path.stem
    return problem


def write_start(path: Path, kind: str, overwrite: bool = False) -> None:
    """A problem of this kind to begin with."""
    starts = Path(__file__).parent / "starts"
    kinds = sorted(file.stem for file in starts.glob("*.py"))
    if kind not in kinds:
        raise UsageError(f"--kind {kind} is none; there are {', '.join(kinds)}")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise UsageError(f"{path}: name a Python file made of letters, digits and underscores, like my_problem.py")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists; choose another name, or replace it with --overwrite")
    try:
        path.write_text((starts / f"{kind}.py").read_text("utf-8").replace("NAME", path.stem), "utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _load(path: Path) -> ModuleType:
    # A name of its own: the file may well be called numpy.py.
    spec = importlib.util.spec_from_file_location(f"closura_problem_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    beside = str(path.parent)
    sys.path.append(beside)  # the file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ProblemError(f"{path}{_line(error, path)}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(beside)
    return module


def _line(error: BaseException, path: Path) -> str:
    """The user's own lines where it happened, the innermost of the first cause first."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for cause in reversed(chain):
        frames = traceback.extract_tb(cause.__traceback__)
        mine = [frame for frame in frames if Path(frame.filename).parent == path.parent]
        if mine:
            said = [f"line {f.lineno}{'' if f.filename == str(path) else f' of {f.filename}'} ({f.line})" for f in mine]
            return f", {', called from '.join(reversed(said))}"
    return ""
