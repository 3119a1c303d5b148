"""Mutation test of the pure core and the lock: `make mutation` (MUTANTS=200 SECONDS=600).

Changes one operator, condition or constant at a time and runs the tests that execute its line, the fastest
first. The mutants are drawn at random from all functions of both rooms; `--seed` repeats a draw. Prints the
share of mutants that a test notices, and the others. Exits with 1 when the share is below `--goal`.

One process imports the source and collects the tests. A forked child runs every test on the unchanged source
and records which lines it executes; all must pass. Then each mutant gets a forked child that replaces the
code of the function and runs the tests of its line until one fails. A line that no test executes counts as
not noticed. A function that ran during the import may have left its result in a constant: when the child
notices nothing, the tests run again in a new process that imports the changed source.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import hashlib
import importlib.machinery
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
ROOMS = ("core", "lock")
OTHERS = ("extensions", "policy", "results", "servers", "adapters", "scripts", "interaction")
"""Rooms whose test files are run too if they import a module of `ROOMS`."""
THROUGH_A_HOST = "tests/interaction/test_pins.py"
"""Reaches the lock through a running host."""
WORK = ROOT / ".peers/mutation"
PYTEST = ["-q", "-s", "-x", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider"]
CPU_SECONDS, SECONDS = 30, 300
"""A mutant that needs more than the tests' own time and this is ended, and counts as noticed."""

COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}

Outcome = Literal["noticed", "timed out", "survived"]


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    lines: tuple[int, ...]
    """Lines of the changed expression, and the first line of its statement."""

    def __str__(self) -> str:
        place = Path(self.path).relative_to(SOURCE / "mooring")
        return f"{place}:{self.line}: {shorten(self.old)}  ->  {shorten(self.new)}"

    def compiled(self) -> types.CodeType:
        """The changed file."""
        raw = source_of(self.path)
        changed = raw[: self.start] + self.new.encode() + raw[self.end :]
        return compile(changed, self.path, "exec", dont_inherit=True)


@cache
def source_of(path: str) -> bytes:
    """The unchanged file, read once: a run is not disturbed by edits."""
    return Path(path).read_bytes()


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


def expressions(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """The expressions inside functions, each with its statement; no annotations, defaults or decorators."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _inside(statement, statement)


def _inside(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.stmt, ast.expr]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.JoinedStr):
                continue
            if isinstance(child, ast.expr):
                yield statement, child
            if isinstance(child, ast.AST):
                yield from _inside(child, child if isinstance(child, ast.stmt) else statement)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of one file."""
    raw = source_of(str(path))
    begins = [0]
    for line in raw.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found: dict[tuple[int, int, str], Mutant] = {}
    for statement, node in expressions(ast.parse(raw)):
        for changed in mutations(node):
            start = begins[node.lineno - 1] + node.col_offset
            last = node.end_lineno or node.lineno
            end = begins[last - 1] + (node.end_col_offset or 0)
            new = f"({ast.unparse(ast.fix_missing_locations(changed))})"
            lines = tuple({statement.lineno, *range(node.lineno, last + 1)})
            old = raw[start:end].decode()
            found[start, end, new] = Mutant(str(path), node.lineno, start, end, old, new, lines)
    return list(found.values())


def is_program(mutant: Mutant) -> bool:
    """Whether Python accepts the changed file."""
    try:
        mutant.compiled()
    except SyntaxError:
        return False
    return True


def test_files() -> list[str]:
    """The test files of both rooms, and those of other rooms that import a module of them."""
    own = [file for room in ROOMS for file in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    others = [file for room in OTHERS for file in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    own += [one for one in others if any(f"mooring.{room}" in one.read_text() for room in ROOMS)]
    return [*(str(file.relative_to(ROOT)) for file in own), THROUGH_A_HOST]


def _named(code: types.CodeType) -> dict[tuple[str, int, int], types.CodeType]:
    """A code object and all inside it, by name, first line, and number among those that share both."""
    found: dict[tuple[str, int, int], types.CodeType] = {}
    pending = [code]
    for one in pending:
        number = sum((one.co_qualname, one.co_firstlineno) == key[:2] for key in found)
        found[one.co_qualname, one.co_firstlineno, number] = one
        pending += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
    return found


def replace(mutant: Mutant, functions: list[types.FunctionType]) -> None:
    """Give the functions of the file the code of the mutant."""
    old = _named(compile(source_of(mutant.path), mutant.path, "exec", dont_inherit=True))
    new = _named(mutant.compiled())
    changed = {code: new[name] for name, code in old.items() if name in new and new[name] != code}
    for function in functions:
        if (code := changed.get(function.__code__)) is not None:
            function.__code__ = code


def tracer_of_lines() -> coverage.Coverage:
    """A tracer of the lines of both rooms."""
    tracer = coverage.Coverage(data_file=None, include=[f"{SOURCE}/mooring/{room}/*" for room in ROOMS])
    tracer.set_option("run:disable_warnings", ["no-data-collected"])
    return tracer


class Runner:
    """Plugin of pytest that runs mutants in the place of the tests."""

    def __init__(self, chosen: list[Mutant], options: argparse.Namespace) -> None:
        self.chosen, self.options = chosen, options
        self.outcomes: list[Outcome] = []
        self.complete = False
        self.failed = ""
        self.seconds: dict[str, float] = {}
        """CPU seconds of each test on the unchanged source."""
        self.executing: dict[str, dict[int, set[str]]] = {}
        """The tests that execute each line of a file."""
        self.functions: dict[str, list[types.FunctionType]] = {}
        self.importing = tracer_of_lines()
        self.importing.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or f"{report.nodeid}: {report.longreprtext[-2000:]}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.importing.stop()
        imported = self.importing.get_data()
        self.at_import = {file: set(imported.lines(file) or ()) for file in imported.measured_files()}
        self.items = {item.nodeid: item for item in session.items}
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType):
                self.functions.setdefault(one.__code__.co_filename, []).append(one)
        self.run_unchanged()
        end = time.monotonic() + self.options.seconds
        running: dict[int, tuple[Mutant, float]] = {}
        waiting = list(reversed(self.chosen))
        while running or (waiting and time.monotonic() < end):
            if waiting and len(running) < self.options.jobs and time.monotonic() < end:
                mutant = waiting.pop()
                lines = self.executing.get(mutant.path, {})
                among = lines if self.runs_at_import(mutant) else mutant.lines
                tests = {test for line in among for test in lines.get(line, ())}
                if tests:
                    cpu = CPU_SECONDS + 3 * sum(self.seconds[test] for test in tests)
                    pid = self.fork(mutant, sorted(tests, key=self.seconds.__getitem__), cpu)
                    running[pid] = mutant, time.monotonic() + SECONDS + 10 * cpu
                else:
                    self.note("survived", mutant, " (no test executes it)")
            for pid, (mutant, limit) in list(running.items()):
                if (outcome := _ended(pid, limit)) is not None:
                    del running[pid]
                    self.note(outcome, mutant)
            time.sleep(0.005)
        self.complete = True
        return True

    def runs_at_import(self, mutant: Mutant) -> bool:
        return not self.at_import.get(mutant.path, set()).isdisjoint(mutant.lines)

    def note(self, outcome: Outcome, mutant: Mutant, why: str = "") -> None:
        self.outcomes.append(outcome)
        if outcome != "noticed":
            print(f"{outcome:<9} {mutant}{why}", flush=True)

    def fork(self, mutant: Mutant, tests: list[str], cpu: float) -> int:
        """Start a child that runs the tests on the mutant; its exit status is 0 when none fails."""
        if pid := os.fork():
            return pid
        _prepare_child(cpu)
        replace(mutant, self.functions.get(mutant.path, []))
        for _ in self.run(tests):
            if self.failed:
                os._exit(1)
        if not self.runs_at_import(mutant):
            os._exit(0)
        files = sorted({test.partition("::")[0] for test in tests})
        command = [sys.executable, __file__, "--fresh", json.dumps(asdict(mutant)), *files]
        os._exit(1 if subprocess.run(command, cwd=ROOT).returncode else 0)

    def run(self, tests: list[str]) -> Iterator[str]:
        """Run tests, and return the name of each after it."""
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            item = self.items[test]
            after = self.items[following] if following else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            yield test

    def run_unchanged(self) -> None:
        """Find what each test executes. The result for a test file is kept until it or the source changes."""
        common = [*sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "tests").rglob("conftest.py"))]
        state = hashlib.sha256(b"".join(file.read_bytes() for file in common)).digest()
        by_file: dict[str, list[str]] = {}
        for test in self.items:
            by_file.setdefault(test.partition("::")[0], []).append(test)
        for file, tests in by_file.items():
            key = hashlib.sha256(state + (ROOT / file).read_bytes()).hexdigest()[:16]
            place = WORK / f"{Path(file).stem}-{key}.json"
            if not place.exists():
                if (pid := os.fork()) == 0:
                    _prepare_child(600)
                    self.record(tests, place)
                while (outcome := _ended(pid, float("inf"))) is None:
                    time.sleep(0.01)
                if outcome != "survived":
                    why = place.with_suffix(".txt")
                    said = why.read_text() if why.exists() else outcome
                    pytest.exit(f"{file} fails without a change: {said}", 2)
            seconds, executed = json.loads(place.read_text())
            self.seconds.update(seconds)
            for path, lines in executed.items():
                for line, these in lines.items():
                    self.executing.setdefault(path, {}).setdefault(int(line), set()).update(these)

    def record(self, tests: list[str], place: Path) -> None:
        """In a child: run tests and write what they execute."""
        tracer = tracer_of_lines()
        tracer.start()
        seconds: dict[str, float] = {}
        begin = time.process_time()
        tracer.switch_context(tests[0])
        for test, following in zip(self.run(tests), [*tests[1:], tests[0]], strict=True):
            seconds[test] = time.process_time() - begin
            begin = time.process_time()
            tracer.switch_context(following)
        tracer.stop()
        if self.failed:
            place.with_suffix(".txt").write_text(self.failed)
            os._exit(1)
        data = tracer.get_data()
        lines = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
        place.with_suffix(".part").write_text(json.dumps([seconds, lines]))
        place.with_suffix(".part").rename(place)
        os._exit(0)


def _prepare_child(cpu: float) -> None:
    """In a child: own process group, own folder, no output, at most so many seconds of the CPU."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    folder = WORK / f"tmp-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu), int(cpu) + 5))


def _ended(pid: int, limit: float) -> Outcome | None:
    """How a child ended, or None while it runs; ends it after the limit."""
    done, status = os.waitpid(pid, os.WNOHANG)
    late = not done and time.monotonic() > limit
    if not done and not late:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if late:
        os.waitpid(pid, 0)
    shutil.rmtree(WORK / f"tmp-{pid}", ignore_errors=True)
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return "timed out"
    return "noticed" if status else "survived"


def fresh(text: str, files: list[str]) -> int:
    """Run test files in this process, with the changed source instead of the file."""
    mutant = Mutant(**json.loads(text))
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        return mutant.compiled() if self.path == mutant.path else plain(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code
    return int(pytest.main([*PYTEST, *files]))


def main() -> int:
    """Run mutants until their number or the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200, help="how many to run")
    parser.add_argument("--seconds", type=float, default=600, help="start no mutant after this time")
    parser.add_argument("--seed", type=int, default=None, help="which mutants to choose")
    parser.add_argument("--only", default="", help="part of the path of the files to change")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--goal", type=float, default=0.9, help="share that must be noticed")
    parser.add_argument("--fresh", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(SOURCE), str(ROOT)]
    if options.fresh:
        return fresh(options.fresh, options.files)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    files = [path for room in ROOMS for path in sorted((SOURCE / "mooring" / room).rglob("*.py"))]
    everything = [one for path in files if options.only in str(path) for one in mutants(path)]
    random.Random(seed).shuffle(everything)
    chosen = list(islice(filter(is_program, everything), options.mutants))
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} of {len(everything)} mutants, seed {seed}", flush=True)
    runner = Runner(chosen, options)
    pytest.main([*PYTEST, *test_files()], plugins=[runner])
    outcomes = runner.outcomes
    noticed, late = len(outcomes) - outcomes.count("survived"), outcomes.count("timed out")
    share = noticed / len(outcomes) if outcomes else 0.0
    print(
        f"{noticed} of {len(outcomes)} mutants were noticed ({late} timed out): {share:.0%} "
        f"(goal {options.goal:.0%}, seed {seed}, {len(chosen) - len(outcomes)} not run)"
    )
    return share < options.goal or not runner.complete


if __name__ == "__main__":
    sys.exit(main())
