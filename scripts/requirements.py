"""Check tests/requirements/manifest.toml: every requirement names tests, and each of them exists.

python scripts/requirements.py          print what is wrong
python scripts/requirements.py --fix    replace names of tests that were renamed or moved, where one is close
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "tests/requirements/manifest.toml"
IDS = {
    "T": range(1, 11), "L": range(1, 16), "C": range(1, 12), "D": range(1, 10), "R": range(1, 10),
    "P": range(1, 7), "F": range(1, 9), "X": range(1, 4), "O": range(1, 6), "G": range(1, 8),
}  # fmt: skip
FAULTS = [*range(1, 29), *range(30, 46), *range(50, 69), *range(70, 86)]
THREATS = range(1, 35)


def ids() -> list[str]:
    """Every id that the manifest must have."""
    letters = [f"{letter}{number}" for letter, numbers in IDS.items() for number in numbers]
    return [*letters, *(f"FA{one:02}" for one in FAULTS), *(f"TH{one:02}" for one in THREATS)]


def manifest() -> dict[str, Any]:
    """The manifest by id."""
    return tomllib.loads(MANIFEST.read_text())


@cache
def tests() -> tuple[str, ...]:
    """Every test function as `path::name`."""
    return tuple(
        f"{path.relative_to(ROOT).as_posix()}::{node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )


def missing() -> dict[str, str | None]:
    """Names in the manifest that no test has, each with the nearest test that there is."""
    known = tests()
    named = {name for entry in manifest().values() for name in entry["tests"]}
    wrong = sorted(name for name in named if not any(fnmatchcase(one, name) for one in known))
    return {name: _nearest(name, known) for name in wrong}


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    path, _, function = name.partition("::")
    if "*" in function:
        moved = sorted({one.partition("::")[0] for one in known if fnmatchcase(one, f"*::{function}")})
        return f"{moved[0]}::{function}" if moved else None
    if same := [one for one in known if one.endswith(f"::{function}")]:
        return same[0]
    near = difflib.get_close_matches(name, [one for one in known if one.startswith(f"{path}::")], 1, 0.5)
    return (near or difflib.get_close_matches(name, known, 1, 0.7) or [None])[0]


def main() -> int:
    """Print the problems, or fix them; 1 when some are left."""
    absent = [one for one in ids() if not manifest().get(one, {}).get("tests")]
    wrong = missing()
    for name in absent:
        print(f"{name}: no test is named")
    for name, near in wrong.items():
        print(f"{name}\n    does not exist; nearest: {near}")
    if "--fix" not in sys.argv[1:]:
        return bool(absent or wrong)
    text = MANIFEST.read_text()
    for name, near in wrong.items():
        if near is not None:
            text = re.sub(rf'"{re.escape(name)}"', f'"{near}"', text)
    MANIFEST.write_text(text)
    return bool(absent or missing())


if __name__ == "__main__":
    sys.exit(main())
