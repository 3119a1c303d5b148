"""Find constructs that the interpreter of scripts does not support, before anything runs.

Runs in the worker process, because parsing hostile code can take long or end the process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

__all__ = ["DIALECT", "diagnostics", "problems"]

DIALECT = """\
Write plain Python. Each tool is an async function with keyword arguments: `r = await tool(a=1)`; several at \
once with `await asyncio.gather(tool(a=1), tool(a=2))`. A tool returns its structured value, or its text; a \
failed call raises RuntimeError. The value of the last expression is the result; print() adds text. There \
are no files, network or environment. The clock stands still.
Not supported: del, yield, class inheritance, @property, next() over a generator expression (use \
next(iter([...]), None)), bound methods as values (key=str.lower; use a lambda), tools inside map() or \
sorted(key=), asyncio.create_task/wait_for/TaskGroup (use gather), return outside a function.
Modules: asyncio, json, re, math, datetime, collections, itertools, functools, random, decimal, copy, \
base64, hashlib, csv, typing, dataclasses, time."""
"""Description of the language for a model."""

MOST_PROBLEMS = 20
_LISTED = DIALECT.rpartition("Modules: ")[2].rstrip(".")
MODULES = frozenset((*_LISTED.split(", "), "__future__", "os", "pathlib", "sys"))
"""Modules of the interpreter; the last ones are incomplete."""
_NO_MODULE = {
    "statistics": "compute it with sum(), len() and sorted()",
    "heapq": "use sorted(...)[:n]",
    "operator": "use a lambda",
    "string": "write the characters out",
    "io": "use a str",
    "uuid": "use a counter, or let the server choose the id",
    "urllib": "there is no network; call a tool",
    "requests": "there is no network; call a tool",
    "httpx": "there is no network; call a tool",
    "aiohttp": "there is no network; call a tool",
    "socket": "there is no network; call a tool",
    "subprocess": "there are no processes; call a tool",
    "os": "there are no files and no environment; call a tool",
    "sys": "remove it",
    "pathlib": "there are no files; call a tool",
    "shutil": "there are no files; call a tool",
    "textwrap": "use slicing and str.join()",
    "logging": "use print()",
    "traceback": "use str(error)",
    "enum": "use strings",
    "contextlib": "use try and finally",
    "zoneinfo": "use datetime.timezone with a fixed offset",
    "pandas": "use lists and dicts",
    "numpy": "use lists and math",
    "ctypes": "remove it",
    "threading": "use asyncio.gather()",
    "concurrent": "use asyncio.gather()",
    "inspect": "remove it",
    "importlib": "remove it",
    "pickle": "use json",
}
_NO_ASYNCIO = {
    "create_task": "use `await asyncio.gather(...)`",
    "ensure_future": "use `await asyncio.gather(...)`",
    "wait_for": "await the call; the script has a time limit of its own",
    "wait": "use `await asyncio.gather(...)`",
    "as_completed": "use `await asyncio.gather(...)`",
    "TaskGroup": "use `await asyncio.gather(...)`",
    "Semaphore": "remove it: parallel calls are limited already",
    "timeout": "remove it: the script has a time limit of its own",
    "Queue": "use a list",
}
_NO_BUILTIN = {
    "open": "there are no files; call a tool",
    "input": "a script has no input; take a value from a tool",
    "eval": "write the expression out",
    "exec": "write the statements out",
    "compile": "write the statements out",
    "globals": "use a dict",
    "locals": "use a dict",
    "vars": "use a dict",
    "callable": "remove the test",
    "issubclass": "remove the test",
    "__import__": "use an import statement",
}
_VALUE_METHODS = frozenset(("lower", "upper", "strip", "title", "get", "casefold", "split", "format"))
_KEYED = frozenset(("sorted", "min", "max", "map", "filter", "sort", "reduce"))


def problems(tree: ast.AST, tools: Collection[str]) -> list[tuple[int, str]]:
    """Return the unsupported constructs of a program: line number and what to write instead."""
    found: dict[tuple[int, str], None] = {}
    for node in ast.walk(tree):
        for text in _of(node, tools):
            found[getattr(node, "lineno", 1), text] = None
    return sorted(found)[:MOST_PROBLEMS]


def _of(node: ast.AST, tools: Collection[str]) -> Iterator[str]:
    match node:
        case ast.Delete():
            yield "`del` is not supported; use .pop()"
        case ast.Yield() | ast.YieldFrom():
            yield "`yield` is not supported; return a list"
        case ast.TryStar():
            yield "`except*` is not supported; use `except`"
        case ast.ClassDef():
            yield from _of_class(node)
        case ast.Import():
            for name in node.names:
                yield from _of_module(name.name)
        case ast.ImportFrom():
            yield from _of_module(node.module or "")
            if node.module == "asyncio":
                for name in node.names:
                    if name.name in _NO_ASYNCIO:
                        yield f"`asyncio.{name.name}` is not supported; {_NO_ASYNCIO[name.name]}"
        case ast.AsyncWith():
            yield "`async with` is not supported; use try and finally"
        case ast.AsyncFor():
            yield "`async for` is not supported; await a list and use `for`"
        case ast.Call():
            yield from _of_call(node, tools)
        case ast.Attribute(value=ast.Name(id="asyncio")) if node.attr in _NO_ASYNCIO:
            yield f"`asyncio.{node.attr}` is not supported; {_NO_ASYNCIO[node.attr]}"
        case ast.Name(ctx=ast.Load()) if node.id in _NO_BUILTIN:
            yield f"`{node.id}` is not available; {_NO_BUILTIN[node.id]}"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Name) and decorator.id in (
                    "property",
                    "classmethod",
                    "staticmethod",
                ):
                    yield f"`@{decorator.id}` is not supported; write a plain function"
        case _:
            if type(node).__name__ == "TypeAlias":
                yield "`type X = ...` is not supported; remove the alias"


def _of_class(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else ast.unparse(base)
        if name.endswith(("Exception", "Error")):
            yield "own exception classes are not supported; raise RuntimeError or ValueError"
        elif name != "object":
            yield f"class inheritance ({node.name} from {name}) is not supported; use dicts or a @dataclass"


def _of_module(name: str) -> Iterator[str]:
    top = name.partition(".")[0]
    if top in _NO_MODULE:
        yield f"module `{name}` is not available; {_NO_MODULE[top]}"
    elif top not in MODULES:
        yield f"module `{name}` is not available; tools need no import, and these modules exist: {_LISTED}"


def _of_call(node: ast.Call, tools: Collection[str]) -> Iterator[str]:
    name = _called(node.func)
    if name == "next" and node.args and isinstance(node.args[0], ast.GeneratorExp):
        yield "`next(x for ...)` is not supported; use next(iter([x for ...]), None)"
    if name == "gather" and any(word.arg is not None for word in node.keywords):
        yield "keywords of `asyncio.gather` are not supported; handle errors inside a helper function"
    if name == "dumps" and any(word.arg == "default" for word in node.keywords):
        yield "`json.dumps(default=)` is not supported; convert the values first"
    if name == "sub" and len(node.args) >= 2 and isinstance(node.args[1], ast.Lambda):
        yield "`re.sub` with a function is not supported; use re.finditer and join the parts"
    if name in _KEYED:
        values = [*node.args, *(word.value for word in node.keywords if word.arg == "key")]
        for value in values:
            if isinstance(value, ast.Attribute) and value.attr in _VALUE_METHODS:
                yield f"`{ast.unparse(value)[:40]}` as a value is not supported; use a lambda"
            inside = (one for one in ast.walk(value) if isinstance(one, ast.Name) and one.id in tools)
            if name != "filter" and isinstance(value, ast.Lambda | ast.Name) and any(inside):
                yield f"a tool cannot be called inside `{name}`; use a comprehension with `await`"


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


_LINE = re.compile(r"^main\.py:(\d+):\d+: (?:error|warning)\[([a-z-]+)\] (.*)$", re.MULTILINE)
_UNDEFINED = re.compile(r"Name `(\w+)` used when not defined")
_NO_MEMBER = re.compile(r"Object of type `\w+_Result\w*` has no attribute `(\w+)`")
_MISTAKES = frozenset(
    (
        "call-non-callable",
        "invalid-argument-type",
        "invalid-await",
        "invalid-key",
        "invalid-syntax",
        "missing-argument",
        "missing-typed-dict-key",
        "parameter-already-assigned",
        "too-many-positional-arguments",
        "unknown-argument",
        "unresolved-attribute",
        "unresolved-import",
        "unresolved-reference",
        "unused-awaitable",
    )
)
"""Rules of the type checker that stop a script. The others also match programs that work."""


def diagnostics(text: str) -> list[tuple[int, str]]:
    """Return the mistakes in the output of the type checker: line number and text.

    A value that may be None is not one of them: such programs often work.
    """
    found: dict[tuple[int, str], None] = {}
    for match in _LINE.finditer(text):
        line, rule, said = int(match[1]), match[2], match[3]
        if rule not in _MISTAKES and "CoroutineType" not in said:
            continue
        if "None" in said and rule not in ("unknown-argument", "missing-argument", "invalid-key"):
            continue
        if rule == "unused-awaitable" or "CoroutineType" in said:
            said = "the call is not awaited; write `await` before it"
        elif rule == "invalid-syntax" and "`return`" in said:
            said = "`return` outside a function; end the script with the value as its last expression"
        elif (name := _UNDEFINED.fullmatch(said)) and name[1] in MODULES:
            said = f"`{name[1]}` is not imported; add `import {name[1]}`"
        elif member := _NO_MEMBER.fullmatch(said):
            said = f'a result is a dict without attributes; write `["{member[1]}"]` instead of `.{member[1]}`'
        found[line, said] = None
    return sorted(found)[:MOST_PROBLEMS]
