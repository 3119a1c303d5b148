"""Mutation test of the pure core and the lock: `make mutation` (MUTANTS=200 SECONDS=600).

Changes one operator, condition or constant at a time in a copy of the source, and runs the tests that import
the changed module. The mutants are drawn at random from all functions of both rooms; `--seed` repeats a draw.
The tests must pass without a change first, so that no failure of their own counts. Prints the share of
mutants that a test notices, and the others. Exits with 1 when the share is below `--goal`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "lock")
TESTS = ("tests/core", "tests/lock")
OTHERS = (
    "tests/extensions",
    "tests/policy",
    "tests/results",
    "tests/servers",
    "tests/adapters",
    "tests/scripts",
)
"""Rooms whose tests are run too if they import the changed module and those of `TESTS` do not notice it."""
THROUGH_A_HOST = {
    "enforce.py": ("tests/interaction/test_pins.py", "tests/interaction/test_pinned_calls.py"),
}
"""Modules that tests reach only through a running host."""
WORK = ROOT / ".peers/mutation"
TIMEOUT = 300

COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}


Outcome = Literal["noticed", "timed out", "survived"]
"""A mutant that never ends counts as noticed."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        place = self.path.relative_to(ROOT / "src/mooring")
        return f"{place}:{self.line}: {shorten(self.old)}  ->  {shorten(self.new)}"


def shorten(text: str) -> str:
    """The text on one line, at most 90 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def mutations(node: ast.AST) -> Iterator[ast.AST]:
    """The changed forms of one node."""
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in COMPARE:
            changed = copy.deepcopy(node)
            changed.ops[0] = COMPARE[type(first)]()
            yield changed
        case ast.BoolOp(op=operator):
            changed = copy.deepcopy(node)
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield changed
        case ast.BinOp(op=operator) if type(operator) in BINARY and not _of_text(node):
            changed = copy.deepcopy(node)
            changed.op = BINARY[type(operator)]()
            yield changed
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case _:
            return


def _of_text(node: ast.BinOp) -> bool:
    parts = (node.left, node.right)
    return any(isinstance(one, ast.JoinedStr | ast.List | ast.Tuple) or _is_text(one) for one in parts)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions inside functions, without annotations, defaults and decorators."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _inside(statement)


def _inside(node: ast.AST) -> Iterator[ast.expr]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.JoinedStr):
                continue
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST):
                yield from _inside(child)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of one file."""
    source = path.read_text()
    lines = source.encode().splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    found: dict[tuple[int, int, str], Mutant] = {}
    for node in expressions(ast.parse(source)):
        for changed in mutations(node):
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
            new = f"({ast.unparse(ast.fix_missing_locations(changed))})"
            old = source.encode()[start:end].decode()
            found[start, end, new] = Mutant(path, node.lineno, start, end, old, new)
    return list(found.values())


def covering(path: Path) -> list[str]:
    """The test files that import a module, or else its users or its package, or else those of its room."""
    if found := THROUGH_A_HOST.get(path.name):
        return list(found)
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    files = [file for test in TESTS for file in sorted((ROOT / test).rglob("test_*.py"))]
    found = _importing(module, files)
    if not found and module.count(".") > 1:
        sources = [file for room in ROOMS for file in sorted((ROOT / "src/mooring" / room).rglob("*.py"))]
        users = _importing(module, sources)
        if path.parent.name not in ROOMS:
            users.append(path.parent / "__init__.py")
        names = {".".join(one.relative_to(ROOT / "src").with_suffix("").parts) for one in users}
        found = sorted({file for name in names for file in _importing(name.removesuffix(".__init__"), files)})
    return [str(file.relative_to(ROOT)) for file in found] or [f"tests/{module.split('.')[1]}"]


def others(path: Path) -> list[str]:
    """The test files of other rooms that import a module."""
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    files = [file for room in OTHERS for file in sorted((ROOT / room).rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in _importing(module, files)]


def _importing(module: str, files: list[Path]) -> list[Path]:
    """Those of the files that import the module."""
    parent, _, name = module.rpartition(".")
    used = re.compile(
        rf"^\s*(?:from {re.escape(module)} import|import {re.escape(module)}\b"
        rf"|from {re.escape(parent)} import [^\n]*\b{name}\b)",
        re.MULTILINE,
    )
    return [file for file in files if used.search(file.read_text())]


def outcome_of(mutant: Mutant | None, tests: list[str]) -> Outcome:
    """What the tests say of a mutant, or of the unchanged source."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        copied = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copied, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            target = copied / mutant.path.relative_to(ROOT / "src")
            raw = target.read_bytes()
            target.write_bytes(raw[: mutant.start] + mutant.new.encode() + raw[mutant.end :])
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(copied), "PYTHONDONTWRITEBYTECODE": "1"}
        where = subprocess.run(
            [sys.executable, "-c", "import mooring; print(mooring.__file__)"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        if where.returncode == 0 and not where.stdout.startswith(str(copied)):
            sys.exit(f"the tests would import {where.stdout.strip()}, not the changed copy")
        try:
            done = subprocess.run(
                [*command, "-p", "no:xdist", *tests],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
    return "noticed" if done.returncode else "survived"


def main() -> int:
    """Run mutants until their number or the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="how many to run")
    parser.add_argument("--seconds", type=float, default=600, help="start no mutant after this time")
    parser.add_argument("--seed", type=int, default=None, help="which mutants to choose")
    parser.add_argument("--only", default="", help="part of the path of the files to change")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--goal", type=float, default=0.9, help="share that must be noticed")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    files = [path for room in ROOMS for path in sorted((ROOT / "src/mooring" / room).rglob("*.py"))]
    everything = [one for path in files if options.only in str(path) for one in mutants(path)]
    chosen = random.Random(seed).sample(everything, min(options.mutants, len(everything)))
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} of {len(everything)} mutants, seed {seed}", flush=True)
    end = time.monotonic() + options.seconds

    baselines: dict[Path, bool] = {}
    lock = threading.Lock()

    def run(mutant: Mutant) -> Outcome | None:
        if time.monotonic() > end:
            return None
        tests = covering(mutant.path)
        with lock:
            if mutant.path not in baselines:
                baselines[mutant.path] = outcome_of(None, tests) == "survived"
        if not baselines[mutant.path]:
            print(f"skipped   {mutant}: its tests fail without a change", flush=True)
            return None
        found = outcome_of(mutant, tests)
        if found == "survived" and (more := others(mutant.path)):
            found = outcome_of(mutant, more)
        if found != "noticed":
            print(f"{found:<9} {mutant}", flush=True)
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [outcome for outcome in pool.map(run, chosen) if outcome is not None]
    killed = len(outcomes) - outcomes.count("survived")
    share = killed / len(outcomes) if outcomes else 0.0
    late = outcomes.count("timed out")
    print(
        f"{killed} of {len(outcomes)} mutants were noticed ({late} timed out): {share:.0%} "
        f"(goal {options.goal:.0%}, seed {seed}, {len(chosen) - len(outcomes)} not run)"
    )
    return share < options.goal or not all(baselines.values())


if __name__ == "__main__":
    sys.exit(main())
