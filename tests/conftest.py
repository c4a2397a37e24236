"""Fixtures every test may ask for."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers inherit it: they are as many as there are cores

import compiled
import jax
import pytest

# Files that take longest come first, so that both workers are done at about the same time; what waits for a browser comes last.
FIRST: tuple[str, ...] = ()
LAST = ("show/test_browser.py",)


# Compiling takes most of the time of `make test`: XLA's older emitters and fewer passes of LLVM halve it, and the numbers are the
# same. At night programs are compiled as users compile them.
COMPILED_SOON = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"


def pytest_configure(config):
    flags = os.environ.get("XLA_FLAGS", "")
    if config.option.markexpr == "not nightly" and COMPILED_SOON not in flags:  # workers inherit them
        os.environ["XLA_FLAGS"] = f"{COMPILED_SOON} {flags}"
    if not hasattr(config, "workerinput"):
        compiled.prune(compiled.place())


def pytest_collection_modifyitems(items):
    """All other files stand between the first and the last, in their usual order."""
    place = {name: number for number, name in enumerate(FIRST)} | dict.fromkeys(LAST, len(FIRST) + 1)
    items.sort(key=lambda item: place.get(item.path.relative_to(Path(__file__).parent).as_posix(), len(FIRST)))


@pytest.fixture
def float64():
    """Double precision for one test; the default is restored after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_once():
    """Many tests compile the same program: let them share it, also between workers and from run to run."""
    jax.config.update("jax_compilation_cache_dir", str(compiled.place()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """Programs of one file are of no use to the next, and gigabytes of them slow everything down."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def hardly_optimised():
    """For files of short runs: to compile a program well takes longer than to run it."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def uninstalled(monkeypatch):
    """`uninstalled("wandb")`: as if it were not there; `instead` is found in its place."""

    def remove(package, instead=None):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, instead)

    return remove
