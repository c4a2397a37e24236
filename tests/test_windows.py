"""Nothing is imported, and nothing is called, that native Windows does not have."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import closura
from closura.runs import _collect

ROOT = Path(closura.__file__).parent
MISSING_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
MISSING_OF_OS = {"fork", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice"}
MISSING_OF_OS |= {"sched_getaffinity", "setsid", "statvfs", "sysconf", "uname", "wait", "waitpid", "chown", "fchmod"}
MISSING_OF_SIGNAL = {"SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "alarm", "pause"}
MISSING = {"os": MISSING_OF_OS, "signal": MISSING_OF_SIGNAL}


def unguarded(source):
    """Modules imported without `try`, and functions used where nobody asks whether they exist (hasattr)."""
    tree = ast.parse(source)
    guarded = {
        id(node) for tried in ast.walk(tree) if isinstance(tried, ast.Try) for s in tried.body for node in ast.walk(s)
    }
    asked = {
        (call.args[0].id, call.args[1].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "hasattr"
        and isinstance(call.args[0], ast.Name) and isinstance(call.args[1], ast.Constant)
    }  # fmt: skip
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MISSING_MODULES
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {node.module} & MISSING_MODULES
            found |= {
                f"{node.module}.{alias.name}" for alias in node.names if alias.name in MISSING.get(node.module, ())
            }
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = (node.value.id, node.attr)
            if node.attr in MISSING.get(node.value.id, ()) and name not in asked:
                found.add(".".join(name))
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import resource", {"resource"}),
        ("def f():\n    import pwd, os", {"pwd"}),
        ("from resource import getrusage", {"resource"}),
        ("try:\n    import resource\nexcept ImportError:\n    pass", set()),
        ("import os\nos.fork()", {"os.fork"}),
        ("from os import fork", {"os.fork"}),
        ("import os\nos.sched_getaffinity(0) if hasattr(os, 'sched_getaffinity') else 1", set()),
        ("import signal\nsignal.SIGKILL, signal.SIGTERM", {"signal.SIGKILL"}),
        ("import os\nos.replace('a', 'b')\nrun.wait()", set()),
    ],
)
def test_what_windows_lacks_is_seen(source, found):
    assert unguarded(source) == found


def test_nothing_that_windows_lacks():
    wrong = {str(file.relative_to(ROOT)): unguarded(file.read_text("utf-8")) for file in ROOT.rglob("*.py")}
    assert {file: names for file, names in wrong.items() if names} == {}


def test_imports_without_posix():
    hidden = f"import sys; sys.modules.update(dict.fromkeys({sorted(MISSING_MODULES - {'posix'})!r}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}\nimport closura.cli._main, closura.runs._collect"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_memory_is_null_where_nobody_says_it(uninstalled):
    assert 10 < _collect._peak_memory() < 1e6
    uninstalled("resource")
    assert json.dumps(_collect._peak_memory()) == "null"
