"""The worker process: runs one script at a time in the Monty interpreter, and asks the host for every call.

Started by `workers.py` as a program, with an empty environment and its module paths as an argument. It
confines itself, starts two interpreters as its children (one runs the script, one checks its types before),
and exchanges frames with the host over its pipes: the lengths of a JSON text and of binary data, then both.
The host is trusted; the script is not. Each frame of the host makes the script run until it needs something.
"""

from __future__ import annotations

import ast
import json
import os
import re
import struct
import sys
import time
import types
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, cast

HEAD = struct.Struct(">II")
MOST_VALUES, DEEPEST = 200_000, 100
"""Nested values, and levels, of one argument list or result."""
LARGEST_ARGUMENTS, LARGEST_VALUE, LARGEST_FRAME = 1 << 20, 4 << 20, 6 << 20
"""Bytes of JSON: the arguments of one call, the result of a script, all calls between two answers."""
LARGEST_SNAPSHOT = 32 << 20
LONGEST_OUTPUT = 1 << 20
"""Characters that a script may print."""
LONGEST_SLEEP = 86_400.0
"""Seconds; the host ends the worker when the time of the script is over."""
LONGEST_TRACEBACK = 4_000
MOST_CHECKED = 32
"""Programs that are remembered because they passed the check of types, and that one checker checks."""
CHECKER_MEMORY = 16 << 20
"""Bytes of values in the interpreter that checks types; programs do not run in it."""
STOP = "mooring_types_checked"
_FUTURE = re.compile(r"^from __future__ import (?:\([^)]*\)|.*)$", re.MULTILINE)


class ValueTooLarge(Exception):
    """A value is too large or too deep to leave the sandbox."""


class Driver:
    """Drives the interpreter, and reports to the host in frames."""

    def __init__(self, monty: Any, pool: Any, lint: Any, out: BinaryIO) -> None:
        self._monty, self._pool, self._lint, self._out = monty, pool, lint, out
        self._session: Any = None
        self._snapshot: Any = None
        self._problem: Exception | None = None
        """Why the script ended while the host was making its call."""
        self._printed: list[str] = []
        self._length = 0
        self._names: frozenset[str] = frozenset()
        self._pausing: frozenset[str] = frozenset()
        self._calls_left = 0
        self._new: list[dict[str, Any]] = []
        self._new_size = 0
        self._dry = False
        self._checker = Checker(monty, pool, lint)
        self._checked: set[tuple[str, str]] = set()

    # --- frames ---------------------------------------------------------------------------------

    def send(self, event: str, data: bytes = b"", **fields: Any) -> None:
        """Send an event with the printed text and the calls since the last one."""
        printed, self._printed = "".join(self._printed), []
        calls, self._new, self._new_size = self._new, [], 0
        text = json.dumps({"event": event, "printed": printed, "calls": calls, **fields}).encode()
        self._out.write(HEAD.pack(len(text), len(data)) + text + data)
        self._out.flush()

    def handle(self, message: dict[str, Any], data: bytes) -> None:
        """Execute one frame of the host."""
        match message["do"]:
            case "start":
                self._start(message)
            case "load":
                self._load(message, data)
            case "go":
                self._answer_call()
            case "results":
                self._run(lambda: self._resumed(message["results"]))
            case "dump":
                self._dump()
            case _:
                self._close()
                self.send("idle")

    # --- scripts --------------------------------------------------------------------------------

    def _prepare(self, message: dict[str, Any]) -> None:
        self._close()
        self._printed, self._new, self._length = [], [], int(message.get("length", 0))
        self._new_size, self._problem = 0, None
        self._names, self._pausing = frozenset(message["names"]), frozenset(message["pausing"])
        self._calls_left, self._dry = int(message["calls"]), bool(message.get("dry"))

    def _start(self, message: dict[str, Any]) -> None:
        self._prepare(message)
        code: str = message["code"]
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
            line = getattr(problem, "lineno", None) or 1
            said = getattr(problem, "msg", None) or str(problem) or "the program is nested too deeply"
            if "await" in said and "outside" in said:
                tree = None  # top-level await is allowed here
            else:
                return self.send("invalid", problems=[(line, f"invalid syntax: {said}")])
        if tree is not None and (found := self._lint.problems(tree, self._names)):
            return self.send("invalid", problems=found)
        self._session = opened(
            self._monty,
            self._pool,
            limits={
                "max_memory": message["memory"],
                "max_feed_duration_secs": message["time"],
                "max_suspensions": 4 * self._calls_left + 1_000,
                "max_recursion_depth": 500,
            },
            os_policy=_policy(message),
        )
        return self._run(lambda: self._fed(code, message["stubs"]))

    def _fed(self, code: str, stubs: str) -> Any:
        """Check the types, then start the program."""
        if (code, stubs) not in self._checked:
            if found := self._checker.mistakes(code, stubs, self._system):
                self.send("invalid", problems=found)
                return None
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            self._checked.add((code, stubs))
        return self._session.feed_start(code, print_callback=self._print)

    def _load(self, message: dict[str, Any], data: bytes) -> None:
        self._prepare(message)
        self._session = opened(self._monty, self._pool, os_policy=_policy(message))
        self._run(lambda: self._session.load_snapshot(data, print_callback=self._print))

    def _dump(self) -> None:
        if self._problem is not None:
            return self._run(lambda: self._resumed(()))
        data = self._snapshot.dump()
        self._close()
        if len(data) > LARGEST_SNAPSHOT:
            return self.send(
                "error", text=f"The script holds too much data ({len(data) >> 20} MiB) to wait for approval."
            )
        return self.send("snapshot", data)

    def _close(self) -> None:
        session, self._session, self._snapshot = self._session, None, None
        if session is not None:
            session.__exit__(None, None, None)

    # --- running --------------------------------------------------------------------------------

    def _run(self, step: Any) -> None:
        """Make a step, then continue until the script ends or needs the host."""
        monty = self._monty
        try:
            snapshot = step()
            while snapshot is not None:
                self._snapshot = snapshot
                if isinstance(snapshot, monty.MontyComplete):
                    return self._finished(snapshot.output)
                if isinstance(snapshot, monty.FutureSnapshot):
                    return self.send("waiting", pending=list(snapshot.pending_call_ids))
                if isinstance(snapshot, monty.NameLookupSnapshot):
                    snapshot = self._name(snapshot)
                elif snapshot.is_os_function:
                    snapshot = self._system(snapshot)
                else:
                    snapshot = self._called(snapshot)
        except monty.MontyCrashedError as problem:
            self.send("limit" if problem.timed_out else "crash", text=str(problem))
        except monty.MontySyntaxError as problem:
            self.send("invalid", problems=[(_line(problem), problem.display("msg"))])
        except monty.MontyRuntimeError as problem:
            self._failed(problem)
        except (ValueTooLarge, monty.MontyConversionError) as problem:
            self.send("error", text=str(problem))
        except TimeoutError:
            self.send("crash", text="no interpreter was free")
        return None

    def _failed(self, problem: Any) -> None:
        kind = type(problem.exception()).__name__
        text = problem.display("type-msg")
        if kind == "NotImplementedError" and not self._snapshot:
            self.send("invalid", problems=[(_line(problem), problem.display("msg"))])
        elif kind == "TimeoutError" and "time limit" in text:
            self.send("limit", text="it computed for longer than its time limit")
        elif kind == "MemoryError":
            self.send("limit", text="it used more memory than its limit")
        elif kind == "RuntimeError" and "suspension" in text:
            self.send("limit", text="it made too many calls")
        else:
            self.send(
                "error",
                text=problem.display("traceback").replace("<python-input-0>", "script")[-LONGEST_TRACEBACK:],
            )

    def _name(self, snapshot: Any) -> Any:
        name = snapshot.variable_name
        if name not in self._names or snapshot.object_id is not None:
            return snapshot.resume()

        def tool() -> None:
            """Represents a tool that the script uses as a value."""

        tool.__name__ = name
        return snapshot.resume(value=tool)

    def _system(self, snapshot: Any) -> Any:
        if snapshot.function_name in ("system.sleep", "system.async_sleep") and snapshot.args:
            time.sleep(0 if self._dry else min(max(float(snapshot.args[0]), 0.0), LONGEST_SLEEP))
            return snapshot.resume({"return_value": None})
        if snapshot.function_name == "import_stubs":
            missing = ", ".join(map(str, snapshot.args[0] if snapshot.args else ()))
            return snapshot.resume(
                {"exc_type": "ModuleNotFoundError", "message": f"No module named {missing!r}"}
            )
        return snapshot.resume_not_handled()

    def _called(self, snapshot: Any) -> Any:
        """Begin a call; a call that must be approved first waits for the host."""
        name = snapshot.function_name
        if name not in self._names or snapshot.object_id is not None:
            return snapshot.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        if snapshot.args:
            return snapshot.resume(
                {"exc_type": "TypeError", "message": f"{name}() takes keyword arguments only"}
            )
        try:
            arguments, size = plain(snapshot.kwargs, LARGEST_ARGUMENTS)
        except (TypeError, ValueError) as problem:
            return snapshot.resume({"exc_type": "TypeError", "message": f"{name}(): {problem}"})
        self._new_size += size
        if self._new_size > LARGEST_FRAME:
            raise ValueTooLarge("The arguments of the calls that run at once are too large.")
        if self._calls_left <= 0:
            self.send("limit", text="it made more calls than its limit")
            return None
        call = {"id": snapshot.call_id, "name": name, "arguments": arguments}
        if name in self._pausing:
            self.send("write", call=call)
            return None
        self._calls_left -= 1
        self._new.append(call)
        if snapshot.allow_eager_await:
            return self._awaited(snapshot)
        return snapshot.resume({"future": ...})

    def _awaited(self, snapshot: Any) -> None:
        """Send a call that the script awaits at once. The interpreter goes on to the `await` meanwhile."""
        self.send("waiting", pending=[snapshot.call_id])
        try:
            self._snapshot = snapshot.resume({"future": ...})
        except Exception as problem:
            self._problem = problem

    def _resumed(self, results: Iterable[tuple[int, bool, Any]]) -> Any:
        """Give the script the results of calls."""
        if self._problem is not None:
            raise self._problem
        return self._snapshot.resume({id_: self._settled(ok, value) for id_, ok, value in results})

    def _answer_call(self) -> None:
        """Continue after a call that the host has started."""
        self._calls_left -= 1
        self._run(lambda: self._snapshot.resume({"future": ...}))

    def _settled(self, ok: bool, value: Any) -> dict[str, Any]:
        return {"return_value": value} if ok else {"exc_type": "RuntimeError", "message": value}

    def _finished(self, output: Any) -> None:
        as_text = None
        try:
            value, _ = plain(output, LARGEST_VALUE)
        except TypeError as problem:
            value, as_text = repr(output)[:LONGEST_TRACEBACK], f"not JSON: {problem}"
        except ValueError as problem:
            raise ValueTooLarge(f"The value that the script returns cannot be used: {problem}.") from None
        self._close()
        self.send("done", value=value, as_text=as_text)

    def _print(self, stream: str, text: str) -> None:
        self._length += len(text)
        if self._length > LONGEST_OUTPUT:  # raising here would not stop the script
            self.send("limit", text=f"it printed more than {LONGEST_OUTPUT:,} characters")
            _end()
        self._printed.append(text)


class Checker:
    """Checks the types of programs in an interpreter of its own, which keeps the types of the library."""

    def __init__(self, monty: Any, pool: Any, lint: Any) -> None:
        self._monty, self._pool, self._lint = monty, pool, lint
        self._session: Any = None
        self._stubs = ""
        self._count = 0

    def mistakes(self, code: str, stubs: str, system: Callable[[Any], Any]) -> list[tuple[int, str]]:
        """Return the mistakes of a program, each with its line; only certain ones. `system`: answers calls of
        the operating system."""
        known = self._session is not None
        try:
            return self._mistakes(code, stubs, system)
        except self._monty.MontyCrashedError:
            self.close()
            if not known:
                raise
        return self._mistakes(code, stubs, system)  # its interpreter had ended before

    def _mistakes(self, code: str, stubs: str, system: Callable[[Any], Any]) -> list[tuple[int, str]]:
        monty = self._monty
        self._open(stubs)
        try:
            # The first statement stops the program when its types have been checked.
            snapshot = self._session.feed_start(f"{STOP}()\n{_FUTURE.sub(_blank, code)}")
            while snapshot.function_name != STOP:
                snapshot = system(snapshot)
            snapshot.resume({"exc_type": "RuntimeError", "message": "checked"})
        except monty.MontyTypingError as problem:
            return [(line - 1, text) for line, text in self._lint.diagnostics(problem.display())]
        except (monty.MontyRuntimeError, monty.MontySyntaxError):
            pass  # it was stopped, or the interpreter says the same when it starts the program
        return []

    def _open(self, stubs: str) -> None:
        self._count += 1
        if self._session is not None and stubs == self._stubs and self._count <= MOST_CHECKED:
            return
        self.close()
        self._stubs, self._count = stubs, 1
        self._session = opened(
            self._monty,
            self._pool,
            type_check=True,
            type_check_stubs=f"{stubs}\ndef {STOP}() -> None: ...\n",
            type_check_format="concise",
            limits={"max_memory": CHECKER_MEMORY, "max_feed_duration_secs": 1.0},
        )

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None, None, None)


def opened(monty: Any, pool: Any, **settings: Any) -> Any:
    """Return a session of an interpreter. One that has ended while it was not used is replaced."""
    for more in (True, True, False):
        session = pool.checkout(**settings)
        try:
            session.__enter__()
        except monty.MontyCrashedError:
            if more:
                continue
            raise
        return session
    raise AssertionError


def _blank(found: re.Match[str]) -> str:
    """Return a statement of as many lines: an import of the future must be the first one."""
    return "pass" + "\n" * found[0].count("\n")


def plain(value: Any, largest: int) -> tuple[Any, int]:
    """Return a value of the interpreter as JSON, and its size in bytes.

    Raises:
        TypeError: It has a part that JSON cannot express.
        ValueError: It is too large, too deep, or not a number.
    """
    left = [MOST_VALUES]
    result = _plain(value, 0, left)
    size = 0 if left[0] > MOST_VALUES - 20 and _short(result) else len(json.dumps(result))
    if size > largest:
        raise ValueError(f"{size:,} bytes are more than {largest:,}")
    return result, size


def _short(value: Any) -> bool:
    """Whether a value with few parts is small: its texts are short."""
    if isinstance(value, str):
        return len(value) < 200
    if isinstance(value, dict):
        return all(len(key) < 200 and _short(one) for key, one in cast("dict[str, Any]", value).items())
    return all(map(_short, cast("list[Any]", value))) if isinstance(value, list) else True


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    if depth > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if value.bit_length() > 64:
            raise ValueError("a whole number has more than 64 bits")
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("nan and inf are not JSON")
        return value
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {_key(key): _plain(item, depth + 1, left) for key, item in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1, left) for item in cast("list[Any]", value)]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ in ("Decimal", "timedelta", "PurePosixPath"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float) or key is None:
        return json.dumps(key)
    raise TypeError("keys of objects must be strings")


def _policy(message: dict[str, Any]) -> dict[str, Any]:
    """Return the clock and the random seed: the same after a snapshot is loaded again."""
    import datetime

    now = datetime.datetime.fromtimestamp(message["now"], datetime.UTC)
    return {"datetime": now, "random_start": {"seed": message["seed"]}, "sleep": "system"}


def _line(problem: Any) -> int:
    frames = problem.traceback()
    return frames[-1].line if frames else 1


def _end() -> None:
    """End this process and the interpreter at once."""
    if sys.platform != "win32":
        import signal

        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _read(source: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    text, data = HEAD.unpack(head)
    return json.loads(source.read(text)), source.read(data)


def main() -> None:
    """Serve scripts until the host closes the pipe."""
    setup: dict[str, Any] = json.loads(sys.argv[1])
    sys.path.extend(setup["paths"])
    # pydantic_monty imports it for a class that is not used here; it would take a third of the start.
    sys.modules.setdefault("asyncio", types.ModuleType("asyncio"))
    import pydantic_monty as monty

    from mooring.scripts import lint
    from mooring.transport.confine import Confinement, confine

    out, source = sys.stdout.buffer, sys.stdin.buffer
    missing = ["off"]
    if setup["confine"]:
        missing = confine(Confinement(read=tuple(setup["read"]), write=("/dev/null",), sockets=False))
    pool = monty.Monty(
        binary_path=setup["binary"],
        min_processes=1,
        max_processes=2,  # one runs programs, one checks their types
        checkout_timeout=10,
        request_timeout=setup["longest"],
    )
    with pool:
        worker = Driver(monty, pool, lint, out)
        worker.send("ready", missing=missing)
        while (frame := _read(source)) is not None:
            worker.handle(*frame)
    _end()


if __name__ == "__main__":
    main()
