"""Fails when modules grow too large to hold in one's head: median over 250 lines, or any over 550."""

import sys
from pathlib import Path
from statistics import median

MEDIAN, LARGEST = 250, 550

sizes = {path: len(path.read_text().splitlines()) for path in sorted(Path("src").rglob("*.py"))}
middle = median(sizes.values())
problems = [
    f"{path}: {size} lines, at most {LARGEST} are allowed" for path, size in sizes.items() if size > LARGEST
]
if middle > MEDIAN:
    problems.append(f"the median module has {middle:g} lines, at most {MEDIAN} are allowed")
if problems:
    sys.exit("\n".join(problems))
sys.stdout.write(f"{len(sizes)} modules, median {middle:g} lines, largest {max(sizes.values())}\n")
