"""Fixtures every test may ask for."""

import gc
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


# Compiling takes most of the time of `make test`: XLA's older emitters, hardly any passes of LLVM, one piece of code a program and
# no notes of which line made what take a third of it, and the numbers are the same. At night programs are compiled as users compile
# them.
COMPILED_SOON = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
COMPILED_SOON += " --xla_cpu_parallel_codegen_split_count=1"


BY_DAY = "not nightly"


def pytest_configure(config):
    flags = os.environ.get("XLA_FLAGS", "")
    if config.option.markexpr == BY_DAY:
        jax.config.update("jax_disable_most_optimizations", True)
        jax.config.update("jax_traceback_in_locations_limit", 0)
        if COMPILED_SOON not in flags:  # workers inherit them
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
def seldom_searched():
    """Tracing makes many small objects and hardly any cycles: to look for those all the time takes a tenth of all time."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def compiled_once():
    """Many tests compile the same program: let them share it, also between workers and from run to run."""
    jax.config.update("jax_compilation_cache_dir", str(compiled.place()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(autouse=True, scope="session")
def compiled_no_better(request):
    """Programs that closura asks to be compiled in its own way are so too."""
    if request.config.option.markexpr == BY_DAY:
        from closura import _compile  # here, as who hands out the tests needs none of it

        _compile.SOON["xla_backend_optimization_level"] = "0"


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """Programs of one file are of no use to the next, and gigabytes of them slow everything down."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def hardly_optimised():
    """For files of short runs: to compile a program well takes longer than to run it. So are all files but those of long runs
    in `make test`."""
    yield from optimisations(False)


@pytest.fixture(scope="module")
def optimised():
    """For files of long runs."""
    yield from optimisations(True)


def optimisations(wanted):
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not wanted)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def uninstalled(monkeypatch):
    """`uninstalled("wandb")`: as if it were not there; `instead` is found in its place."""

    def remove(package, instead=None):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, instead)

    return remove
