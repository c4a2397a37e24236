"""All benchmarks, one after the other: each is a program of its own, so that none inherits another's memory or caches.

python benchmarks/run.py [NAME ...]
"""

import subprocess
import sys
from pathlib import Path

PLAN = [
    ["cost"],
    ["start"],
    ["elliptic"],
    ["evolution"],
    ["quality", "20", "5"],
    ["quality", "100", "1"],
    ["published", "3"],
    ["surrogates", "3"],
    ["phases"],
    ["slopes"],
    ["fields", "5", "darcy basis", "burgers basis"],
    [
        "fields",
        "1",
        "darcy solver",
        "darcy fno-supervised",
        "darcy pinn",
        "darcy fno-physics",
        "burgers fno-supervised",
    ],
]


def main(names: list[str]) -> None:
    for name, *arguments in PLAN:
        if not names or name in names:
            subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py"), *arguments], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
