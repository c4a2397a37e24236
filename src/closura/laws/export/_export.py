"""A learned law as a file others can run, with the range in which data supported it."""

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from .._fitted import FittedLaw, LawError
from ._c import c_source
from ._formula import Formula, check, formula
from ._python import python_source

LANGUAGES: dict[str, Callable[[Formula], str]] = {".py": python_source, ".c": c_source}
ENDINGS = (*LANGUAGES, ".csv")


def export_law(
    law: FittedLaw,
    path: str | Path,
    table: Callable[[], pd.DataFrame],
    *,
    problem: str,
    converged: bool,
    overwrite: bool,
) -> Path:
    """Write a law in the language its ending names; `table` is what a .csv gets."""
    path = Path(path).expanduser()
    if path.suffix not in ENDINGS:
        raise LawError(f"{path} does not say what to write; end its name in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if path.exists() and not overwrite:
        raise LawError(f"{path} exists; choose another name, or replace it with overwrite=True (--overwrite)")
    check(law)
    language = LANGUAGES.get(path.suffix)
    text = table().to_csv(index=False) if language is None else language(formula(law, problem, converged))
    aside = path.with_name(f".{path.name}-new")
    try:
        try:
            aside.write_text(text, "utf-8")
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise LawError(f"cannot write {path}: {why}; choose another place") from None
    return path
