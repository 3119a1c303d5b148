"""Python functions as tools, and the protocol of all other providers of tools."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from mooring.core.types import EMPTY, Block, Group, Result, Snapshot, Tool
from mooring.errors import CallError, CallTimeout, ConfigError, UnknownTool

Call = Callable[[Any], Any]
"""Takes `pydantic_core.ArgsKwargs`; raises its `ValidationError` for invalid arguments."""
Schema = dict[str, Any]

_SCALARS: Mapping[Any, tuple[str, str]] = {
    bool: ("bool", "boolean"),
    float: ("float", "number"),
    int: ("int", "integer"),
    str: ("str", "string"),
    NoneType: ("none", "null"),
}
_NAMES: Mapping[type, str] = {bool: "boolean", int: "integer", str: "string"}


def adapted(function: Callable[..., Any]) -> tuple[Call, Schema]:
    """Return a callable that validates arguments and calls the function, and the JSON Schema of the
    arguments.

    Raises:
        ValueError, TypeError, NameError: There is no schema, or it needs the package `pydantic`.
    """
    plain = _plain(function)
    if plain is not None:
        from pydantic_core import SchemaValidator

        checks, schema = plain
        return SchemaValidator(cast("Any", checks)).validate_python, schema
    try:
        from pydantic import PydanticUserError, TypeAdapter
    except ImportError:
        raise ValueError("its parameters need the package pydantic: pip install pydantic") from None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", function))
        return adapter.validate_python, adapter.json_schema()
    except PydanticUserError as problem:
        raise ValueError(str(problem)) from None


def _plain(function: Callable[..., Any]) -> tuple[Schema, Schema] | None:
    """Return core schema and JSON Schema of a function whose parameters all have JSON types; None for
    others."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError):
        return None
    checks: list[Schema] = []
    properties: dict[str, Schema] = {}
    for parameter in parameters:
        found = _of(hints.get(parameter.name, Any))
        if found is None or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return None
        check, shape = found
        title = {"title": parameter.name.title().replace("_", " ").strip()}
        if parameter.default is parameter.empty:
            properties[parameter.name] = {**title, **shape}
        elif not isinstance(parameter.default, str | int | float | NoneType):
            return None
        else:
            check = {"type": "default", "schema": check, "default": parameter.default}
            properties[parameter.name] = {**title, **shape, "default": parameter.default}
        mode = "keyword_only" if parameter.kind is parameter.KEYWORD_ONLY else "positional_or_keyword"
        checks.append({"name": parameter.name, "schema": check, "mode": mode})
    arguments = {"type": "arguments", "arguments_schema": checks}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [one["name"] for one in checks if one["schema"]["type"] != "default"]:
        schema["required"] = required
    return {"type": "call", "arguments_schema": arguments, "function": function}, schema


def _of(hint: Any) -> tuple[Schema, Schema] | None:
    """Return core schema and JSON Schema of a type; None if it is not a JSON type."""
    if hint is Any:
        return {"type": "any"}, {}
    if hint is None:
        hint = NoneType
    if hint in _SCALARS:
        check, name = _SCALARS[hint]
        return {"type": check}, {"type": name}
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated and all(isinstance(note, str) for note in parts[1:]):
        return _of(parts[0])
    if origin is Literal:
        return _literal(list(parts))
    if hint is list or origin is list:
        inner = _of(parts[0] if parts else Any)
        return inner and ({"type": "list", "items_schema": inner[0]}, {"type": "array", "items": inner[1]})
    if hint is dict or (origin is dict and parts[0] is str):
        inner = _of(parts[1] if parts else Any)
        return inner and (
            {"type": "dict", "keys_schema": {"type": "str" if parts else "any"}, "values_schema": inner[0]},
            {"type": "object", "additionalProperties": inner[1] or True},
        )
    return _union(parts) if origin in (Union, UnionType) else None


def _literal(values: list[Any]) -> tuple[Schema, Schema] | None:
    kinds: set[type] = {type(value) for value in values}
    if len(kinds) != 1 or (kind := kinds.pop()) not in _NAMES:
        return None
    shape = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {"type": "literal", "expected": values}, {**shape, "type": _NAMES[kind]}


def _union(parts: tuple[Any, ...]) -> tuple[Schema, Schema] | None:
    found = [_of(part) for part in parts if part is not NoneType]
    known = [one for one in found if one is not None]
    if len(known) != len(found):
        return None
    checks, shapes = [one[0] for one in known], [one[1] for one in known]
    check: Schema = checks[0] if len(checks) == 1 else {"type": "union", "choices": checks}
    if NoneType in parts:
        check, shapes = {"type": "nullable", "schema": check}, [*shapes, {"type": "null"}]
    return check, {"anyOf": shapes}


Progress = Callable[[float, float | None, str | None], Awaitable[None]]
OnProgress = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Called with progress, total and message of each report, in order. A plain function runs in a thread, a
coroutine function on the event loop."""


@runtime_checkable
class Provider(Protocol):
    """A source of tools, such as a connection to a server or `LocalTools`. Implement it for your own."""

    @property
    def name(self) -> str:
        """The name in tool names and results; unique within a host."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The current tools; must not block."""
        ...

    async def start(self) -> None:
        """Start. After an exception the provider has no tools until a refresh succeeds."""
        ...

    async def refresh(self) -> None:
        """Update `snapshot`; an exception is reported to the caller of `Host.refresh`."""
        ...

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        """Run the tool with this name at the provider (`Tool.remote_name`).

        Raises:
            MooringError: There is no result.
        """
        ...

    async def stop(self) -> None:
        """Free all resources; called once, must not raise."""
        ...


class StaticProvider:
    """Base of providers that need no start, refresh or stop."""

    async def start(self) -> None:
        """Nothing to do."""

    async def refresh(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to free."""


class LocalTools(StaticProvider):
    """Plain typed functions as tools. They keep their names and win every name clash.

        tools = LocalTools(add, fetch_order, name="orders", title="Orders", description="Orders of our shop")
        Host(servers, local=[tools, LocalTools(pay, name="billing")])

    The schema follows from the signature, the description from the docstring. Parameters of other types than
    those of JSON (and their lists, dicts, unions and literals) need the package `pydantic`.
    Synchronous functions run in a thread. An exception becomes an error result for the model.
    """

    def __init__(
        self,
        *functions: Callable[..., Any],
        name: str = "local",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
    ) -> None:
        self.name = name
        self._about = (title, description, instructions)
        self._functions: dict[str, tuple[Callable[..., Any], Any]] = {}
        self._tools: dict[str, Tool] = {}
        for function in functions:
            self.add(function)

    def add(
        self, function: Callable[..., Any], *, name: str | None = None, description: str | None = None
    ) -> None:
        """Add a function as a tool.

        Args:
            function: A plain or coroutine function with type annotations.
            name: The name of the tool. Default: the name of the function.
            description: Default: the docstring of the function.

        Raises:
            ConfigError: Its signature has no JSON Schema, or its name is taken.
        """
        label = name or getattr(function, "__name__", "")
        if not label or label in self._tools:
            raise ConfigError(f"a tool needs a name of its own, and {label!r} is empty or taken")
        try:
            call, schema = adapted(function)
        except (ValueError, TypeError, NameError) as problem:
            first = str(problem).partition("\n")[0]
            raise ConfigError(f"the signature of {label!r} has no JSON Schema: {first}") from None
        if schema.get("type") != "object":
            raise ConfigError(f"{label!r} takes positional-only parameters; a tool is called by names")
        self._functions[label] = (function, call)
        self._tools[label] = Tool(
            name=label,
            server=self.name,
            remote_name=label,
            description=description or inspect.getdoc(function) or "",
            input_schema=schema,
        )

    @property
    def snapshot(self) -> Snapshot:
        title, description, instructions = self._about
        group = Group(
            id=self.name,
            title=title or f"Tools of the application ({self.name})",
            description=description or "Functions of the application.",
            instructions=instructions,
            members=tuple(self._tools),
        )
        return Snapshot(server=self.name, tools=tuple(self._tools.values()), groups=(group,))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        if tool not in self._functions:
            raise UnknownTool(tool, list(self._tools)[:3])
        function, call = self._functions[tool]
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                value = await _invoke(function, call, arguments)
        except TimeoutError:
            raise CallTimeout(
                f"{tool!r} did not end within {timeout:g} s",
                server=self.name,
                tool=tool,
                elapsed=time.monotonic() - started,
                outcome="unknown",
            ) from None
        except Exception as problem:
            return self._result(tool, _error_text(problem), started, is_error=True)
        if isinstance(value, Result):
            return value
        return self._result(tool, value, started)

    def _result(self, tool: str, value: object, started: float, *, is_error: bool = False) -> Result:
        structured, text = _rendered(value, self.name, tool)
        return Result(
            server=self.name,
            tool=tool,
            blocks=(Block({"type": "text", "text": text}),),
            structured=structured,
            is_error=is_error,
            duration=time.monotonic() - started,
        )


def local_bundles(given: LocalTools | Iterable[LocalTools | Callable[..., Any]]) -> list[LocalTools]:
    """Return the bundles of the application: one for all plain functions, then the `LocalTools`."""
    if isinstance(given, LocalTools):
        return [given]
    parts = list(given)
    functions = [part for part in parts if not isinstance(part, LocalTools)]
    bundles = [part for part in parts if isinstance(part, LocalTools)]
    return [LocalTools(*functions), *bundles] if functions else bundles


async def _invoke(
    function: Callable[..., Any], call: Callable[[Any], Any], arguments: Mapping[str, Any]
) -> object:
    from pydantic_core import ArgsKwargs

    packed = ArgsKwargs((), dict(arguments))
    if inspect.iscoroutinefunction(function):
        return await cast("Awaitable[object]", call(packed))
    from anyio.to_thread import run_sync

    # The thread is abandoned on cancellation, because a Python function cannot be interrupted.
    value = await run_sync(partial(call, packed), abandon_on_cancel=True)
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


def _error_text(problem: Exception) -> str:
    """Return the text of an exception for a model; invalid arguments are listed one per line."""
    from pydantic_core import ValidationError

    if not isinstance(problem, ValidationError):
        return f"{type(problem).__name__}: {problem}"
    wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors(include_url=False)]
    return "\n".join(["The arguments do not fit:", *wrong])


def _rendered(value: object, server: str, tool: str) -> tuple[Any, str]:
    """Return the value as structured data (None for plain text) and as text."""
    from pydantic_core import to_jsonable_python

    if value is None:
        return None, ""
    if isinstance(value, str):
        return None, value
    try:
        data: Any = to_jsonable_python(value)
    except ValueError as problem:
        raise CallError(
            f"{tool!r} returned a value that is not JSON-serialisable: {problem}", server=server, tool=tool
        ) from None
    structured = cast("dict[str, Any]", data) if isinstance(data, dict) else {"result": data}
    return structured, json.dumps(data, ensure_ascii=False)
