"""Resources of all servers: list, read through a cache and subscribe; and the tools for models that do so."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from mooring import concurrency
from mooring.core.discovery import OWNER
from mooring.core.text import clean_for_model, fence, line, nearest, quote
from mooring.core.types import (
    EMPTY,
    Block,
    Contents,
    Group,
    Resource,
    ResourceTemplate,
    Result,
    Snapshot,
    Tool,
)
from mooring.core.value import Value
from mooring.errors import (
    AmbiguousResource,
    CallError,
    CallTimeout,
    PolicyDenied,
    ServerError,
    UnknownResource,
    UnknownTool,
)
from mooring.local import Progress, StaticProvider
from mooring.servers.catalog import CatalogBuilder
from mooring.servers.manager import ServerManager
from mooring.servers.state import CurrentConfig
from mooring.servers.waiting import absence_of_resource, gather
from mooring.telemetry import AuditManager

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """A cache of at most `max_entries` entries, each with its time of expiry. The least recently used go
    first."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """Return the entry; None if there is none or it has expired."""
        found = self._entries.get(key)
        if found is None:
            return None
        until, value = found
        if now >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, until: float) -> None:
        """Store the entry, and drop the least recently used one if there are too many."""
        self._entries[key] = (until, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self.max_entries:
            self._entries.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Remove all entries whose key is `unwanted`."""
        for key in [key for key in self._entries if unwanted(key)]:
            del self._entries[key]


NOT_FOUND = (-32002, -32602)
"""Error codes of servers for an unknown URI, in the older and the newer protocol."""
MAX_CACHED_SIZE = 2**20
"""Characters above which contents are not cached."""
MAX_CACHED_TIME = 3600.0
"""Seconds that contents are cached at most, whatever the server says."""

Key = tuple[str, str]
"""A server and a URI."""


class ResourceList(Value):
    """The resources and templates of one server or of all."""

    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    errors: Mapping[str, str] = EMPTY
    """By server: why its resources are missing."""


class ContentsCache:
    """Contents that were read, and the requests that are reading."""

    def __init__(self, current: CurrentConfig) -> None:
        self._current = current
        self._cache: Cache[Key, Contents] = Cache(current.config.resource_cache.max_entries)
        self.pending: dict[Key, asyncio.Future[Contents]] = {}
        """Requests that other callers can wait for."""

    def get(self, key: Key) -> Contents | None:
        """Return the cached contents, if they have not expired."""
        return self._cache.get(key, concurrency.monotonic())

    def put(self, key: Key, contents: Contents, hint: float | None) -> None:
        """Cache contents for the seconds that the server says (`hint`) or the configuration."""
        settings = self._current.config.resource_cache
        ttl = min(settings.ttl if hint is None else hint, MAX_CACHED_TIME)
        size = sum(len(block.text or block.data or "") for block in contents.blocks)
        if settings.enabled and ttl > 0 and size <= MAX_CACHED_SIZE:
            self._cache.max_entries = settings.max_entries
            self._cache.put(key, contents, concurrency.monotonic() + ttl)

    def forget(self, server: str, uri: str | None = None) -> None:
        """Drop the contents of a resource, or of all resources of a server."""
        self._cache.drop(lambda key: key[0] == server and uri in (None, key[1]))
        for key in [key for key in self.pending if key[0] == server and uri in (None, key[1])]:
            # Callers that already wait get this answer; later callers send a new request.
            del self.pending[key]


class Resources:
    """Lists, reads and subscribes to the resources of the servers of a host."""

    def __init__(
        self,
        manager: ServerManager,
        catalog: CatalogBuilder,
        current: CurrentConfig,
        audits: AuditManager,
        cache: ContentsCache,
    ) -> None:
        self._manager, self._builder, self._current, self._audits = manager, catalog, current, audits
        self._cache = cache

    async def list(self, server: str | None = None, *, timeout: float | None = None) -> ResourceList:
        """Implement `Host.resources`."""
        errors = await gather(self._manager, None if server is None else (server,), timeout)
        for status in self._manager.status():
            failed = [text for text in status.warnings if text.startswith(f"{status.name}: resources/")]
            if failed and server in (None, status.name):
                errors[status.name] = "; ".join(failed)
        found = self._builder.catalog
        return ResourceList(
            resources=tuple(entry for entry in found.resources if server in (None, entry.server)),
            templates=tuple(entry for entry in found.templates if server in (None, entry.server)),
            errors=errors,
        )

    async def list_missing(self, server: str, timeout: float | None) -> bool:
        """Connect the servers that have not been listed yet: `server` if it is one of them, otherwise all.
        Return whether there was one."""
        missing = self._manager.unlisted()
        names = [server] if server in self._manager.configs else missing
        if not (names := [name for name in names if name in missing]):
            return False
        await gather(self._manager, names, timeout)
        return True

    async def read(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> Contents:
        """Implement `Host.read`."""
        audit, work = self._audits.log, self._read(uri, server, timeout)
        return await (work if audit is None else audit.other("read", uri, None, work, server=server))

    async def read_fresh(self, uri: str, server: str, *, timeout: float | None = None) -> Contents:
        """Return the contents of a resource of this server, never from the cache."""
        audit, work = self._audits.log, self._read_fresh(uri, server, timeout)
        return await (work if audit is None else audit.other("read", uri, None, work, server=server))

    async def _read_fresh(self, uri: str, server: str, timeout: float | None) -> Contents:
        self._check_form(uri, server)
        await self.check((server, uri))
        return (await self._ask((server, uri), timeout))[0]

    async def _read(self, uri: str, server: str | None, timeout: float | None) -> Contents:
        self._check_form(uri, server or "")
        end = None if timeout is None else concurrency.monotonic() + timeout
        key = (server or await self._owner_of(uri, timeout), uri)
        await self.check(key)
        while True:
            if (cached := self._cache.get(key)) is not None:
                return cached
            left = None if end is None else max(end - concurrency.monotonic(), 0.0)
            pending = self._cache.pending.get(key)
            if pending is None:
                return await self._request(key, left)
            if (shared := await _joined(pending, key, left)) is not None:
                return shared

    async def subscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Implement `Host.subscribe`."""
        self._check_form(uri, server or "")
        key = (server or await self._owner_of(uri, timeout), uri)
        await self.check(key)
        await self._manager.connection(key[0]).watch(uri, timeout)

    async def unsubscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Implement `Host.unsubscribe`."""
        name = server or await self._owner_of(uri, timeout)
        await self._manager.connection(name).unwatch(uri, timeout)

    # --- one request ----------------------------------------------------------------------------

    async def _request(self, key: Key, timeout: float | None) -> Contents:
        """Send the request in the caller's own task; other callers that want the same wait for it."""
        pending: asyncio.Future[Contents] = asyncio.get_running_loop().create_future()
        self._cache.pending[key] = pending
        try:
            contents, ttl = await self._ask(key, timeout)
            if self._cache.pending.get(key) is pending:  # else the resource changed meanwhile
                self._cache.put(key, contents, ttl)
            pending.set_result(contents)
            return contents
        except Exception as problem:
            if not isinstance(problem, CallTimeout):  # the timeout is that of this caller alone
                pending.set_exception(problem)
                pending.exception()  # mark as retrieved: there may be no other caller
            raise
        finally:
            if self._cache.pending.get(key) is pending:
                del self._cache.pending[key]
            pending.cancel()

    async def _ask(self, key: Key, timeout: float | None) -> tuple[Contents, float | None]:
        from mooring.transport import wire

        server, uri = key
        try:
            raw = await self._manager.connection(server).ask(
                "resources/read", {"uri": uri}, about=uri, timeout=timeout
            )
            return wire.contents(server, uri, raw), wire.time_to_live(raw)
        except wire.Invalid as problem:
            raise ServerError(
                f"what {server!r} sent for {uri!r} is not valid: {problem}", server=server, tool=uri, code=0
            ) from None
        except ServerError as fault:
            if fault.code not in NOT_FOUND:
                raise
            listed = [entry.uri for entry in self._builder.catalog.resources if entry.server == server]
            said = line(str(fault), 300)
            raise UnknownResource(uri, nearest(uri, listed), hint=f"({said})") from fault

    # --- owner and permission -------------------------------------------------------------------

    async def _owner_of(self, uri: str, timeout: float | None) -> str:
        """Return the one server that has the resource; servers that are not listed yet are connected if
        needed."""
        # A server that lists the resource takes precedence over one with a template, also before it runs.
        if not self._listing(uri):
            known = self._builder.pins.servers_with_resource(uri)
            await gather(self._manager, [name for name in known if name in self._manager.configs], timeout)
        owners = self._owners(uri)
        for able in (True, False):  # servers without the capability are tried last
            if not owners:
                names = [
                    name
                    for name in self._manager.configs
                    if self._manager.may_offer(name, "resources") is able
                ]
                await gather(self._manager, names, timeout)
                owners = self._owners(uri)
        if len(owners) == 1:
            return owners[0]
        if owners:
            raise AmbiguousResource(uri, owners, hint="Name the server.")
        near = nearest(uri, [entry.uri for entry in self._builder.catalog.resources])
        hint = "No server lists it or has a template for it."
        if (absent := absence_of_resource(self._manager)) is None:
            raise UnknownResource(uri, near, hint=hint)
        hint = f"{hint} {absent.hint}"
        raise UnknownResource(uri, near, hint=hint, server=absent.server, state=absent.state)

    def _owners(self, uri: str) -> list[str]:
        from mooring.core.uris import matches

        templates = self._builder.catalog.templates
        return sorted(
            self._listing(uri) or {entry.server for entry in templates if matches(entry.uri_template, uri)}
        )

    def _listing(self, uri: str) -> set[str]:
        return {entry.server for entry in self._builder.catalog.resources if entry.uri == uri}

    def _check_form(self, uri: str, server: str) -> None:
        from mooring.core.uris import malformed

        if problem := malformed(uri):
            raise _denied(uri[:200], server, problem)

    async def check(self, key: Key) -> None:
        """Raise PolicyDenied if the configuration does not allow to read this resource."""
        from anyio.to_thread import run_sync

        from mooring.core.uris import local_path, scheme_of, scheme_refused

        server, uri = key
        config, known = self._current.config, self._manager.configs.get(server)
        remote = known is not None and known.url is not None
        if reason := scheme_refused(uri, config.resource_uri_allowlist, remote=remote):
            raise _denied(uri, server, reason)
        if not config.strict_root_paths:
            return
        if not scheme_of(uri):
            raise _denied(uri, server, "with `strict_root_paths`, a resource is named by a URI with a scheme")
        if scheme_of(uri) == "file":
            try:
                path = local_path(uri, windows=sys.platform == "win32")
            except ValueError as problem:
                raise _denied(uri, server, f"with `strict_root_paths`: {problem}") from None
            if not await run_sync(_inside, path, config.roots):
                raise _denied(uri, server, "it is outside of the `roots` of the configuration")


def _inside(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path lies within a root, both as written and with symbolic links resolved."""
    folders = [os.path.expanduser(root) for root in roots]
    written = Path(os.path.normpath(path))
    resolved = Path(os.path.realpath(path))
    return any(
        written.is_relative_to(os.path.abspath(folder)) or written.is_relative_to(os.path.realpath(folder))
        for folder in folders
    ) and any(resolved.is_relative_to(os.path.realpath(folder)) for folder in folders)


async def _joined(pending: asyncio.Future[Contents], key: Key, timeout: float | None) -> Contents | None:
    """Wait for the request of another caller; None if that caller gave up and a new request is needed."""
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.shield(pending)
    except TimeoutError:
        raise CallTimeout(
            f"timed out after {timeout or 0:g} s reading {key[1]!r} from server {key[0]!r}",
            server=key[0],
            tool=key[1],
            elapsed=timeout or 0.0,
        ) from None
    except asyncio.CancelledError:
        if pending.cancelled() and not _cancelling():
            return None
        raise


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _denied(uri: str, server: str, reason: str) -> PolicyDenied:
    return PolicyDenied(f"{uri!r} is not read: {reason}", server=server, tool=uri, reason=reason)


PAGE = 100
"""Resources in one result."""
_LINE = 200
_PAGE_TEXT = 40_000

_SERVER = {"type": "string", "description": "Name of the server; leave out for all"}


def _tool(name: str, description: str, properties: Mapping[str, Any], required: list[str]) -> Tool:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }
    return Tool(
        name=name,
        server=OWNER,
        remote_name=name,
        description=description,
        input_schema=schema,
        annotations={"readOnlyHint": True},
    )


TOOLS = (
    _tool(
        "list_mcp_resources",
        "List the resources of the MCP servers: URIs, and URI templates to fill in.",
        {"server": _SERVER, "cursor": {"type": "string", "description": "From an earlier result"}},
        [],
    ),
    _tool(
        "read_mcp_resource",
        "Read one resource of an MCP server by its URI.",
        {"server": _SERVER, "uri": {"type": "string", "description": "As `list_mcp_resources` shows it"}},
        ["uri"],
    ),
)
BUILTIN = frozenset(tool.name for tool in TOOLS)


class ResourceTools(StaticProvider):
    """The provider of the tools that read resources. The catalog shows them if a server has resources."""

    name = OWNER

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    @property
    def snapshot(self) -> Snapshot:
        group = Group(
            id=self.name,
            title="Resources of MCP servers",
            description="Find and read the resources of the MCP servers.",
            members=tuple(tool.name for tool in TOOLS),
        )
        return Snapshot(server=self.name, tools=TOOLS, groups=(group,))

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] = EMPTY,
    ) -> Result:
        if tool not in BUILTIN:
            raise UnknownTool(tool, nearest(tool, BUILTIN))
        started = time.monotonic()
        server = self._text(tool, arguments, "server")
        known = next(entry for entry in TOOLS if entry.name == tool).input_schema["properties"]
        if unknown := sorted(set(arguments) - set(known)):
            raise self._not_called(tool, f"it has no argument {unknown[0]!r}; it takes {', '.join(known)}")
        if tool == "list_mcp_resources":
            blocks, structured = await self._listed(server, self._text(tool, arguments, "cursor"), timeout)
        else:
            uri = self._text(tool, arguments, "uri")
            if uri is None:
                raise self._not_called(tool, "it needs a 'uri'")
            blocks, structured = _read(await self._resources.read(uri, server, timeout=timeout)), None
        return Result(
            server=self.name,
            tool=tool,
            blocks=blocks,
            structured=structured,
            duration=time.monotonic() - started,
        )

    async def _listed(
        self, server: str | None, cursor: str | None, timeout: float | None
    ) -> tuple[tuple[Block, ...], dict[str, Any]]:
        found = await self._resources.list(server, timeout=timeout)
        entries = [*map(_resource, found.resources), *map(_template, found.templates)]
        if cursor is not None and not cursor.isdecimal():
            raise self._not_called("list_mcp_resources", "'cursor' must come from an earlier result")
        start = int((cursor or "0")[:9])
        page = entries[start : start + PAGE]
        following = str(start + PAGE) if start + PAGE < len(entries) else None
        errors = {name: line(why, 300) for name, why in found.errors.items()}
        lines = [*_by_server(page), *(f"{name} did not answer: {why}" for name, why in errors.items())]
        if following is not None:
            lines.append(f"There are {len(entries) - start - PAGE} more: use cursor {following!r}.")
        text = "\n".join(lines) or "No server has resources."
        structured: dict[str, Any] = {
            "resources": [entry for entry in page if "uri" in entry],
            "templates": [entry for entry in page if "uri_template" in entry],
            "errors": errors,
            "next_cursor": following,
        }
        return (Block({"type": "text", "text": text}),), structured

    def _text(self, tool: str, arguments: Mapping[str, Any], name: str) -> str | None:
        value = arguments.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._not_called(tool, f"{name!r} must be text")

    def _not_called(self, tool: str, problem: str) -> CallError:
        return CallError(
            f"{tool!r} was not called: {problem}", server=self.name, tool=tool, outcome="not sent"
        )


def _resource(entry: Resource) -> dict[str, Any]:
    return {"uri": clean_for_model(entry.uri, 2_000), "mime_type": entry.mime_type, **_about(entry)}


def _template(entry: ResourceTemplate) -> dict[str, Any]:
    return {
        "uri_template": clean_for_model(entry.uri_template, 2_000),
        "mime_type": entry.mime_type,
        **_about(entry),
    }


def _about(entry: Resource | ResourceTemplate) -> dict[str, Any]:
    return {
        "server": entry.server,
        "name": line(entry.title or entry.name, _LINE),
        "description": line(entry.description, _LINE),
    }


def _by_server(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one quoted block of lines for each server."""
    lines: dict[str, list[str]] = {}
    for entry in entries:
        place = entry.get("uri") or f"{entry['uri_template']} (template)"
        words = " - ".join(filter(None, (entry["name"], entry["description"])))
        lines.setdefault(entry["server"], []).append(f"{place}: {words}")
    return [fence("\n".join(own), server, _PAGE_TEXT) for server, own in lines.items()]


def _read(contents: Contents) -> tuple[Block, ...]:
    """Return contents for a model: text quoted as the server's, images as images, other blocks unchanged."""
    blocks: list[Block] = []
    for block in contents.blocks:
        kind = block.mime_type or ""
        if block.text is not None:
            text = quote(block.text, contents.server, uri=block.uri or contents.uri)
            blocks.append(Block({"type": "text", "text": text}))
        elif kind.startswith("image/"):
            blocks.append(Block({"type": "image", "data": block.data, "mimeType": kind}))
        else:
            blocks.append(block)
    return tuple(blocks) or (Block({"type": "text", "text": f"[{contents.uri} is empty.]"}),)
