"""Shared code of all adapters: compiled schemas, calls from any event loop or thread, results as parts."""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import json
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Protocol, TypeVar, cast

from mooring.config.logs import logger
from mooring.core.catalog import Catalog
from mooring.core.discovery import CALL, DISCOVERY, Namespace, deferrable, namespaces
from mooring.core.schema import compile as schemas
from mooring.core.schema.compile import Compiled, Dialect, SetAside
from mooring.core.text import clean_for_model
from mooring.core.types import Block, Result, Tool

log = logger("mooring.adapters")


MAX_CACHED = 20_000
"""Compiled schemas in the cache. Compiling one can take hundreds of milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTool:
    """A tool with its schema in the dialect of a framework."""

    tool: Tool
    compiled: Compiled
    deferred: bool = False
    """Whether the provider loads it only when its own tool search finds it."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def schema(self) -> dict[str, Any]:
        """A copy of the schema of the arguments: frameworks modify it."""
        return deepcopy(dict(self.compiled.schema))

    def description(self, limit: int = 4_000) -> str:
        """Return the cleaned description of the tool. Never empty: some providers reject that."""
        return clean_for_model(self.tool.description or self.tool.title or self.name, limit) or self.name


_cache: dict[tuple[int, Dialect], tuple[Mapping[str, Any], Compiled | None]] = {}
"""By the identity of a schema, which the entry keeps alive. Catalogs reuse unchanged tools."""

_cache_lock = Lock()


def compiled_for(tool: Tool, dialect: Dialect) -> Compiled | None:
    """Return the schema of a tool in the dialect; None, with one warning, if it cannot be compiled."""
    schema = tool.input_schema
    key = (id(schema), dialect)
    known = _cache.get(key)
    if known is not None:
        return known[1]
    compiled: Compiled | None = None
    try:
        compiled = schemas.compile_schema(schema, dialect)
    except SetAside as problem:
        log.warning(
            "tool hidden from the model, its schema cannot be compiled tool=%r reason=%s",
            tool.name,
            problem.reason,
        )
    with _cache_lock:
        while len(_cache) >= MAX_CACHED:
            del _cache[next(iter(_cache))]
        _cache[key] = (schema, compiled)
    return compiled


def is_cached(tool: Tool, dialect: Dialect) -> bool:
    """Whether the schema is in the cache of `compiled_for`."""
    return (id(tool.input_schema), dialect) in _cache


IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Image types that all providers accept. Another type makes the whole request fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPart:
    """Text, or an image."""

    text: str = ""
    mime_type: str | None = None
    """None for text."""
    data: str = ""
    """Base64 of the image."""

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.data)

    @property
    def url(self) -> str:
        return f"data:{self.mime_type};base64,{self.data}"


def content_parts(result: Result, images: Collection[str] = IMAGES) -> list[ContentPart]:
    """Return the parts of a result for the model; never empty. Images of other types become text."""
    found = [part for block in result.blocks if (part := _content_part(block, images)) is not None]
    if found:
        return found
    if result.structured is not None:
        return [ContentPart(text=json.dumps(result.structured, ensure_ascii=False))]
    return [
        ContentPart(
            text="The tool failed and gave no reason." if result.is_error else "Done; there is no output."
        )
    ]


def marked_parts(result: Result) -> list[ContentPart]:
    """Return the parts, with `Error:` before the first one of a failed call.

    For frameworks and APIs that do not show the model whether a call failed.
    """
    first, *rest = content_parts(result)
    if not result.is_error:
        return [first, *rest]
    if first.mime_type is not None:
        return [ContentPart(text="Error:"), first, *rest]
    return [ContentPart(text=f"Error: {first.text}"), *rest]


def text(result: Result) -> str:
    """Return the result as text."""
    return "\n".join(part.text for part in content_parts(result, ()))


def fields(result: Result) -> dict[str, Any]:
    """Return the result as an object: the structured value, and the text unless it is the same."""
    if result.is_error:
        return {"error": text(result)}
    shown = "\n".join(part.text for part in content_parts(result) if part.mime_type is None)
    if result.structured is None:
        return {"output": shown}
    if not shown or _same(shown, result.structured):
        return {"output": result.structured}
    return {"output": shown, "structured": result.structured}


def _content_part(block: Block, images: Collection[str]) -> ContentPart | None:
    if block.text is not None:
        return ContentPart(text=block.text) if block.text else None
    if block.data is not None:
        kind = block.mime_type or "data"
        if kind in images and (data := _base64(block.data)) is not None:
            return ContentPart(mime_type=kind, data=data)
        where = f" from {block.uri}" if block.uri else ""
        return ContentPart(text=f"[{kind}{where}, {len(block.data) * 3 // 4} bytes, not shown]")
    if block.type == "resource_link":
        about = ", ".join(part for part in (block.raw.get("name"), block.mime_type) if isinstance(part, str))
        return ContentPart(text=f"[resource {block.uri}{f' ({about})' if about else ''}]")
    return ContentPart(text=json.dumps(dict(block.raw), ensure_ascii=False, default=str))


def _base64(data: str) -> str | None:
    """Normalise base64; None if it is invalid."""
    try:
        return base64.b64encode(base64.b64decode(data)).decode() if data else None
    except (binascii.Error, ValueError):
        return None


def _same(shown: str, structured: Any) -> bool:
    try:
        return json.loads(shown) == structured
    except (ValueError, RecursionError):
        return False


T = TypeVar("T")

_OWN = {tool.name: tool for tool in (*DISCOVERY, CALL)}


class ToolSource(Protocol):
    """A `Host` or a `Session`."""

    @property
    def catalog(self) -> Catalog: ...

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]: ...

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, /
    ) -> Coroutine[Any, Any, Result]: ...


class SyncToolSource(Protocol):
    """A `SyncHost` or a `SyncSession`."""

    @property
    def catalog(self) -> Catalog: ...

    def tools(self, *, complete: bool = False) -> tuple[Tool, ...]: ...

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, /) -> Result: ...


AnySource = ToolSource | SyncToolSource


@contextmanager
def extra(name: str) -> Generator[None]:
    """Import a framework in the block; the error of a missing one names the extra to install."""
    try:
        yield
    except ImportError as problem:
        raise ImportError(
            f"mooring.adapters.{name} needs a package that is not installed ({problem}): "
            f'pip install "mooring[{name.replace("_", "-")}]"'
        ) from problem


class Bridge:
    """Lists and calls the tools of one source in one dialect, from any event loop or thread."""

    def __init__(self, source: AnySource, dialect: Dialect, *, unlisted: bool = False) -> None:
        """
        Args:
            source: A host or a session.
            dialect: The form of JSON Schema that the provider reads.
            unlisted: Whether calls of tools that were not listed reach the adapter. If not, the source lists
                the whole catalog in mode `auto`, and `tools_call` in mode `always`.
        """
        self._source = source
        self._dialect: Dialect = dialect
        self._unlisted = unlisted
        self.blocking = not inspect.iscoroutinefunction(source.call)
        """Whether the methods of the source block instead of being awaited."""
        self._home = None if self.blocking else _running()

    def tools(self, *, deferred: bool = False) -> list[CompiledTool]:
        """Return the tools that the model sees now, without those whose schema cannot be compiled.

        Args:
            deferred: Return all tools of the catalog; those that the session does not show are marked.
        """
        if self.blocking or self._at_home():
            return self._compiled(self._listed(deferred))
        return self._compiled(self._wait(self._look, deferred))

    def namespaces(self) -> tuple[list[tuple[Namespace, list[CompiledTool]]], list[CompiledTool]]:
        """Return all tools of the catalog by namespace, and those without a namespace."""
        left = {entry.name: entry for entry in self.tools(deferred=True)}
        loaded = {name for name, entry in left.items() if not entry.deferred}
        found: list[tuple[Namespace, list[CompiledTool]]] = []
        for space in namespaces(self._source.catalog, loaded):
            members = [left.pop(entry.tool.name) for entry in space.tools if entry.tool.name in left]
            if members:
                found.append((space, members))
        return found, list(left.values())

    async def fresh_tools(self, *, deferred: bool = False) -> list[CompiledTool]:
        """Return the same as `tools`, compiled in a thread: for frameworks that list before each turn."""
        listed = await self._reach(self._look(deferred), partial(self._listed, deferred))
        if all(is_cached(tool, self._dialect) for tool, _ in listed):
            return self._compiled(listed)
        return await asyncio.to_thread(self._compiled, listed)

    def named(self, name: str) -> CompiledTool | None:
        """Return the tool of the catalog with this name, listed or not; None if it does not exist or cannot
        be compiled."""
        tool = self._source.catalog.tools.get(name)
        compiled = compiled_for(tool, self._dialect) if tool is not None else None
        return (
            CompiledTool(tool=tool, compiled=compiled) if tool is not None and compiled is not None else None
        )

    def names(self) -> list[str]:
        """Return the names of all tools of the catalog."""
        return list(self._source.catalog.tools)

    async def call(self, name: str, arguments: Any, compiled: Compiled | None = None) -> Result:
        """Call a tool with the arguments of the model for the schema `compiled`."""
        return await self._reach(
            self._call(name, arguments, compiled), partial(self._call_blocking, name, arguments, compiled)
        )

    def call_now(self, name: str, arguments: Any, compiled: Compiled | None = None) -> Result:
        """Call a tool and block until it returns.

        Raises:
            RuntimeError: This thread runs the event loop of the host, which would block itself.
        """
        if self.blocking:
            return self._call_blocking(name, arguments, compiled)
        if self._at_home():
            raise RuntimeError(
                "A tool of a Host was called without await on the thread of its event loop: run the agent "
                "in a thread (`await asyncio.to_thread(agent.run, …)`), or use SyncHost"
            )
        return self._wait(self._call, name, arguments, compiled)

    def _at_home(self) -> bool:
        """Whether this thread runs the event loop of the host, or that is unknown."""
        return self._home is None or self._home is _running()

    def _wait(self, work: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> T:
        """Run a coroutine on the event loop of the host and block until it ends."""
        home = self._alive()
        future = asyncio.run_coroutine_threadsafe(work(*given), home)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _reach(self, work: Coroutine[Any, Any, T], blocking: Callable[[], T]) -> T:
        """Run `work` on the event loop of the host, or `blocking` in a thread for a blocking source."""
        if self.blocking:
            work.close()
            return await asyncio.to_thread(blocking)
        if self._at_home():
            return await work
        try:
            home = self._alive()
        except RuntimeError:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))

    def _alive(self) -> asyncio.AbstractEventLoop:
        assert self._home is not None
        if not self._home.is_running():
            raise RuntimeError("The event loop of the host has ended; create the tools while the host runs")
        return self._home

    async def _look(self, deferred: bool) -> list[tuple[Tool, bool]]:
        return self._listed(deferred)

    def _listed(self, deferred: bool) -> list[tuple[Tool, bool]]:
        shown = self._source.tools(complete=not (deferred or self._unlisted))
        if not deferred:
            return [(tool, False) for tool in shown]
        loaded = {tool.name for tool in shown}
        return [(entry.tool, entry.defer_loading) for entry in deferrable(self._source.catalog, loaded)]

    def _compiled(self, listed: Sequence[tuple[Tool, bool]]) -> list[CompiledTool]:
        entries: list[CompiledTool] = []
        for tool, later in listed:
            if (compiled := compiled_for(tool, self._dialect)) is not None:
                entries.append(CompiledTool(tool=tool, compiled=compiled, deferred=later))
        return entries

    async def _call(self, name: str, arguments: Any, compiled: Compiled | None) -> Result:
        return await cast("ToolSource", self._source).call(name, self._back(name, arguments, compiled))

    def _call_blocking(self, name: str, arguments: Any, compiled: Compiled | None) -> Result:
        return cast("SyncToolSource", self._source).call(name, self._back(name, arguments, compiled))

    def _back(self, name: str, arguments: Any, compiled: Compiled | None) -> Any:
        """Convert the arguments of the model for the server. The session rejects non-objects."""
        if not isinstance(arguments, Mapping):
            return arguments
        given = cast("Mapping[str, Any]", arguments)
        if compiled is None:
            tool = _OWN.get(name) or self._source.catalog.tools.get(name)
            compiled = compiled_for(tool, self._dialect) if tool is not None else None
        return compiled.back(given) if compiled is not None else given


def parsed(text: str) -> Any:
    """Parse arguments of a model. Invalid JSON stays text, which the session rejects."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


MAX_THREADS = 16
"""Concurrent calls of one reply with a blocking source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call in a reply of the model."""

    id: str | None
    """None for Gemini."""
    name: str
    arguments: Any


Answer = dict[str, Any]
Render = Callable[[Call, Result], Answer]


def member(thing: Any, name: str) -> Any:
    """Return a member of an object of an SDK or of a dict; None if it is missing."""
    return cast("Any", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def answers(
    bridge: Bridge, calls: Sequence[Call], render: Render
) -> list[Answer] | Coroutine[Any, Any, list[Answer]]:
    """Return one answer per call: a list for a blocking source, else an awaitable."""
    return _made(bridge, calls, render) if bridge.blocking else _awaited(bridge, calls, render)


async def _awaited(bridge: Bridge, calls: Sequence[Call], render: Render) -> list[Answer]:
    results = await asyncio.gather(*(bridge.call(call.name, call.arguments) for call in calls))
    return [render(call, result) for call, result in zip(calls, results, strict=True)]


def _made(bridge: Bridge, calls: Sequence[Call], render: Render) -> list[Answer]:
    if not calls:
        return []

    def make(call: Call) -> Result:
        return bridge.call_now(call.name, call.arguments)

    with ThreadPoolExecutor(min(len(calls), MAX_THREADS), "mooring-calls") as pool:
        results = pool.map(make, calls)
        return [render(call, result) for call, result in zip(calls, results, strict=True)]
