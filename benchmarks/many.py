"""Cost of an iteration against the number of systems: Darcy flow and Burgers on a learned basis.

python benchmarks/many.py [PROBLEM ...]
"""

import resource
import sys
import time

import closura as cl
from closura.learning import Run, make_settings
from closura.problems import BUILT_IN

from _common import heading, table  # isort: skip

SYSTEMS = (10, 20, 50, 100, 200)
CHUNK = 10


def main(names: list[str]) -> None:
    cl.use_cores()
    heading("An iteration of learning and of sampling against K (basis)")
    rows = []
    for name in names:
        known, first = BUILT_IN[name], None
        for systems in SYSTEMS:
            data, _ = known.simulate(systems, 0)
            sizes = {"iterations": 3 * CHUNK, "tune": 3 * CHUNK, "draws": 1, "extend": 0, "chunk": CHUNK}
            run = Run(known.problem, data, make_settings({"forward": "basis"} | sizes, known.problem))
            learn, sample = (seconds_of(run) for _ in range(2))
            first = first or (learn, sample)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            ratios = learn / first[0], sample / first[1]
            rows.append([name, systems, 1e3 * learn, 1e3 * sample, *ratios, peak])
            print(f"<!-- {rows[-1]} -->", flush=True)
    print(table(["problem", "K", "learning ms", "sampling ms", "of K=10", "of K=10", "peak GB so far"], rows))


def seconds_of(run: Run) -> float:
    """An iteration of the present phase, after one chunk to compile it; the better of two chunks."""
    run.advance()
    found = []
    for _ in range(2):
        start = time.perf_counter()
        run.advance()
        found.append((time.perf_counter() - start) / CHUNK)
    return min(found)


if __name__ == "__main__":
    main(sys.argv[1:] or ["darcy", "burgers"])
