"""Say which of the named files are untidy: `python tools/tidy.py FILE ...` prints a line for each fault, and fails if there is one.

Text ends with one newline, holds no blanks at the ends of lines and no marks of a merge; no file is larger than LARGEST bytes.
"""

import sys
from pathlib import Path

LARGEST = 500_000
MARKS = (b"<<<<<<< ", b"=======\n", b">>>>>>> ")


def faults(path: Path) -> list[str]:
    """What is wrong with this file, in words; files that are not text are judged by their size alone."""
    content = path.read_bytes()
    found = []
    if len(content) > LARGEST:
        found.append(
            f"{len(content) / 1000:.0f} kB, at most {LARGEST / 1000:.0f} are allowed: keep large data elsewhere"
        )
    if not content or b"\0" in content:
        return found
    lines = content.splitlines(keepends=True)
    if not content.endswith(b"\n"):
        found.append("the last line has no end: add a newline")
    elif not lines[-1].strip():
        found.append("blank lines at the end: remove them")
    for number, line in enumerate(lines, start=1):
        if line.rstrip(b"\r\n") != line.rstrip():
            found.append(f"blanks at the end of line {number}: remove them")
        if line.startswith(MARKS):
            found.append(f"line {number} is the mark of a merge: resolve it")
    return found


def main(names: list[str]) -> int:
    """Print the faults of all files that exist; 1 if there are any."""
    paths = [path for path in map(Path, names) if path.is_file()]
    said = [f"{path}: {fault}" for path in paths for fault in faults(path)]
    print("\n".join(said), end="\n" if said else "")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
