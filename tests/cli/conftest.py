"""The command line in this process, and a small problem to call it with."""

import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from springs import PROBLEM, fleet

from closura.cli import _main
from closura.diagnose import Verdict


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def closura(monkeypatch, capsys, tmp_path):
    """`closura("fit", ...)` as if typed in an empty folder; JAX is left as the other tests found it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_main, "_start_jax", lambda *_: None)

    def call(*words) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["closura", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            _main.main()
        said = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err)

    return call


@pytest.fixture
def files(tmp_path):
    """`files("p.py", text)` writes a file into the folder the command line is called in."""

    def write(name, text) -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture
def problem(files) -> str:
    return files("springs.py", PROBLEM)


@pytest.fixture
def table(files) -> str:
    return files("fleet.csv", fleet().to_csv(index=False))


@pytest.fixture
def refused(closura, tmp_path):
    """Call with `--out run`; must end with code 2, a message with these parts, and no run folder."""

    def call(*words, says: tuple[str, ...]) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = closura("fit", *words, "--out", "run")
        assert code == 2
        assert out == ""
        assert err.startswith("closura: ")
        assert "Traceback" not in err
        for part in says:
            assert part in err, f"{part!r} is not in: {err}"
        assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before
        return err

    return call


@pytest.fixture
def fitted(monkeypatch):
    """In place of a fit: what it was called with."""
    calls = []

    def fit(problem, data, **options):
        calls.append((problem, data, options))
        return SimpleNamespace(converged=calls[0] is None, verdict=Verdict())

    monkeypatch.setattr(_main, "fit_fleet", fit)
    return calls
