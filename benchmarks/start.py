"""From the shell to the first iterations: cold, and with the compilation cache of an earlier run.

python benchmarks/start.py
"""

import os
import subprocess
import sys
import tempfile

from _common import heading, table

SCRIPT = """
import time, sys
began = float(sys.argv[1])
from closura.cli._main import _start_jax
_start_jax(None, False, True)
from closura.problems import mass_damper
from closura.learning import Run, Settings
run = Run(mass_damper.problem, mass_damper.simulate(20, 0)[0], Settings())
made = time.time() - (time.perf_counter() - run.began)
log = run.advance()
print(made + log["seconds"][0] - began)
"""


def first_chunk(cache: str) -> float:
    import time

    environment = os.environ | {"XDG_CACHE_HOME": cache}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(time.time())], env=environment, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    heading("Start to the first 50 iterations (mass-damper, K=20)")
    with tempfile.TemporaryDirectory() as cache:
        cold = first_chunk(cache)
        warm = min(first_chunk(cache) for _ in range(3))
    print(table(["start", "seconds", "aim"], [["cold", cold, "<= 15"], ["with compilation cache", warm, "<= 5"]]))


if __name__ == "__main__":
    main()
