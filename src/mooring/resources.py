"""Resources of all servers: listed, read through a cache, subscribed to, and offered to models as tools."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mooring import concurrency
from mooring.config.models import HostConfig
from mooring.core.catalog import Catalog
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
from mooring.local import AtHand, Progress
from mooring.servers.manager import ServerManager
from mooring.servers.waiting import gather

if TYPE_CHECKING:
    from mooring.audit import Audit


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """The entries used last, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """The entry, unless it is too old or was never there."""
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
        """Keep the entry; the one that was not used for longest makes room for it."""
        self._entries[key] = (until, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        for key in [key for key in self._entries if unwanted(key)]:
            del self._entries[key]


NOT_FOUND = (-32002, -32602)
"""What servers answer to a URI that they do not have: the old code, and the new one."""
LARGEST_KEPT = 2**20
"""Characters of a reading beyond which it is not kept."""
LONGEST_KEPT = 3600.0
"""Seconds that a reading is kept at most, whatever its server says."""

Key = tuple[str, str]


class ResourceList(Value):
    """What all servers offer to read."""

    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    errors: Mapping[str, str] = EMPTY
    """By server: why its resources are not among them."""


class Resources:
    """The verbs of a host that concern resources."""

    def __init__(
        self,
        fleet: ServerManager,
        catalog: Callable[[], Catalog],
        config: Callable[[], HostConfig],
        audit: Callable[[], Audit | None],
    ) -> None:
        self._fleet, self._catalog, self._config, self._audit = fleet, catalog, config, audit
        self._cache: Cache[Key, Contents] = Cache(config().resource_cache.max_entries)
        self._flights: dict[Key, asyncio.Future[Contents]] = {}

    async def list(self, server: str | None = None, *, timeout: float | None = None) -> ResourceList:
        """What can be read, of one server or of all; those that are not connected are connected.

        Raises:
            UnknownServer: there is no such server.
        """
        errors = await gather(self._fleet, None if server is None else (server,), timeout)
        for status in self._fleet.status():
            failed = [text for text in status.warnings if text.startswith(f"{status.name}: resources/")]
            if failed and server in (None, status.name):
                errors[status.name] = "; ".join(failed)
        found = self._catalog()
        return ResourceList(
            resources=tuple(entry for entry in found.resources if server in (None, entry.server)),
            templates=tuple(entry for entry in found.templates if server in (None, entry.server)),
            errors=errors,
        )

    async def read(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> Contents:
        """The contents of one resource: of `server`, or of the one that lists it or has a template for it.

        Raises:
            UnknownResource, UnknownServer: it is not there, or several servers have it.
            PolicyDenied: its scheme or its place is not allowed; nothing was sent.
            CallError, AuthNeeded: the server could not be asked, or failed.
        """
        audit, work = self._audit(), self._read(uri, server, timeout)
        return await (work if audit is None else audit.other("read", uri, None, work, server=server))

    async def _read(self, uri: str, server: str | None, timeout: float | None) -> Contents:
        self._check_form(uri, server or "")
        end = None if timeout is None else concurrency.monotonic() + timeout
        key = (server or await self._owner_of(uri, timeout), uri)
        await self.check(key)
        while True:
            if (kept := self._cache.get(key, concurrency.monotonic())) is not None:
                return kept
            left = None if end is None else max(end - concurrency.monotonic(), 0.0)
            flight = self._flights.get(key)
            if flight is None:
                return await self._fly(key, left)
            if (shared := await _joined(flight, key, left)) is not None:
                return shared

    async def subscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Have every change of a resource told as a `ResourceUpdated` event, across reconnects.

        Raises:
            UnknownResource, UnknownServer, PolicyDenied: as for `read`.
            CallError, AuthNeeded: the server does not tell of changes.
        """
        self._check_form(uri, server or "")
        key = (server or await self._owner_of(uri, timeout), uri)
        await self.check(key)
        await self._fleet.connection(key[0]).watch(uri, timeout)

    async def unsubscribe(self, uri: str, server: str | None = None, *, timeout: float | None = None) -> None:
        """Have the changes of a resource told no longer.

        Raises:
            UnknownResource, UnknownServer: as for `read`.
            CallError, AuthNeeded: the server did not take the word; nothing is told all the same.
        """
        name = server or await self._owner_of(uri, timeout)
        await self._fleet.connection(name).unwatch(uri, timeout)

    def forget(self, server: str, uri: str | None = None) -> None:
        """What was read of a resource, or of all of a server's, is no longer good."""
        self._cache.drop(lambda key: key[0] == server and uri in (None, key[1]))
        for key in [key for key in self._flights if key[0] == server and uri in (None, key[1])]:
            # Whoever is on this flight gets its answer; whoever comes now needs a newer one.
            del self._flights[key]

    # --- one reading ----------------------------------------------------------------------------

    async def _fly(self, key: Key, timeout: float | None) -> Contents:
        """Ask the server, in the caller's own task; whoever wants the same meanwhile waits for it."""
        flight: asyncio.Future[Contents] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            contents, ttl = await self._ask(key, timeout)
            if self._flights.get(key) is flight:  # else it changed while it was being read
                self._keep(key, contents, ttl)
            flight.set_result(contents)
            return contents
        except Exception as problem:
            if not isinstance(problem, CallTimeout):  # that is the matter of this caller alone
                flight.set_exception(problem)
                flight.exception()  # nobody need have waited
            raise
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.cancel()

    async def _ask(self, key: Key, timeout: float | None) -> tuple[Contents, float | None]:
        from mooring.transport import wire

        server, uri = key
        try:
            raw = await self._fleet.connection(server).ask(
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
            listed = [entry.uri for entry in self._catalog().resources if entry.server == server]
            said = line(str(fault), 300)
            raise UnknownResource(uri, nearest(uri, listed), hint=f"({said})") from fault

    def _keep(self, key: Key, contents: Contents, hint: float | None) -> None:
        settings = self._config().resource_cache
        ttl = min(settings.ttl if hint is None else hint, LONGEST_KEPT)
        size = sum(len(block.text or block.data or "") for block in contents.blocks)
        if settings.enabled and ttl > 0 and size <= LARGEST_KEPT:
            self._cache.most = settings.max_entries
            self._cache.put(key, contents, concurrency.monotonic() + ttl)

    # --- whose it is, and whether it may be read ---------------------------------------------------

    async def _owner_of(self, uri: str, timeout: float | None) -> str:
        """The one server that has the resource; those that have not yet spoken are asked if need be."""
        owners = self._owners(uri)
        for able in (True, False):  # servers that are known to have no resources are asked last
            if not owners:
                names = [
                    name for name in self._fleet.configs if self._fleet.may_offer(name, "resources") is able
                ]
                await gather(self._fleet, names, timeout)
                owners = self._owners(uri)
        if len(owners) == 1:
            return owners[0]
        if owners:
            raise AmbiguousResource(uri, owners, hint="Name the server.")
        known = [entry.uri for entry in self._catalog().resources]
        raise UnknownResource(uri, nearest(uri, known), hint="No server lists it or has a template for it.")

    def _owners(self, uri: str) -> list[str]:
        from mooring.core.uris import matches

        found = self._catalog()
        listed = {entry.server for entry in found.resources if entry.uri == uri}
        return sorted(
            listed or {entry.server for entry in found.templates if matches(entry.uri_template, uri)}
        )

    def _check_form(self, uri: str, server: str) -> None:
        from mooring.core.uris import malformed

        if problem := malformed(uri):
            raise _denied(uri[:200], server, problem)

    async def check(self, key: Key) -> None:
        """Raises PolicyDenied unless the configuration allows to read this: a server and a URI."""
        from anyio.to_thread import run_sync

        from mooring.core.uris import local_path, scheme_of, scheme_refused

        server, uri = key
        config, known = self._config(), self._fleet.configs.get(server)
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
    """Whether a path lies within a root however it is read: by its letters, and with its links followed."""
    folders = [os.path.expanduser(root) for root in roots]
    spelled = Path(os.path.normpath(path))
    meant = Path(os.path.realpath(path))
    return any(
        spelled.is_relative_to(os.path.abspath(folder)) or spelled.is_relative_to(os.path.realpath(folder))
        for folder in folders
    ) and any(meant.is_relative_to(os.path.realpath(folder)) for folder in folders)


async def _joined(flight: asyncio.Future[Contents], key: Key, timeout: float | None) -> Contents | None:
    """What another caller's flight brings; None if that caller gave up, so that a new one is due."""
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.shield(flight)
    except TimeoutError:
        raise CallTimeout(
            f"{key[1]!r} of {key[0]!r} was not read within {timeout or 0:g} s",
            server=key[0],
            tool=key[1],
            elapsed=timeout or 0.0,
        ) from None
    except asyncio.CancelledError:
        if flight.cancelled() and not _cancelling():
            return None
        raise


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _denied(uri: str, server: str, reason: str) -> PolicyDenied:
    return PolicyDenied(f"{uri!r} is not read: {reason}", server=server, tool=uri, reason=reason)


PAGE = 100
"""Resources in one answer."""
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
        "List what the MCP servers offer to read: URIs, and templates of URIs to fill in.",
        {"server": _SERVER, "cursor": {"type": "string", "description": "From an earlier answer"}},
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


class ResourceTools(AtHand):
    """The provider of these tools: a host shows them as soon as a server has resources."""

    name = OWNER

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.shown = False

    @property
    def snapshot(self) -> Snapshot:
        if not self.shown:
            return Snapshot(server=self.name)
        group = Group(
            id=self.name,
            title="Resources of MCP servers",
            description="Finds and reads the resources that the MCP servers offer.",
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
        server, given = self._text(tool, arguments, "server"), dict(arguments)
        known = next(entry for entry in TOOLS if entry.name == tool).input_schema["properties"]
        if unknown := sorted(given.keys() - known):
            raise self._unfit(tool, f"it has no argument {unknown[0]!r}; it takes {', '.join(known)}")
        if tool == "list_mcp_resources":
            blocks, structured = await self._listed(server, self._text(tool, arguments, "cursor"), timeout)
        else:
            uri = self._text(tool, arguments, "uri")
            if uri is None:
                raise self._unfit(tool, "it needs a 'uri'")
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
            raise self._unfit("list_mcp_resources", "'cursor' must be one that an earlier answer gave")
        start = int((cursor or "0")[:9])
        page = entries[start : start + PAGE]
        following = str(start + PAGE) if start + PAGE < len(entries) else None
        errors = {name: line(why, 300) for name, why in found.errors.items()}
        lines = [*_by_server(page), *(f"{name} did not answer: {why}" for name, why in errors.items())]
        if following is not None:
            lines.append(f"There are {len(entries) - start - PAGE} more: give cursor {following!r}.")
        text = "\n".join(lines) or "No server offers resources."
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
        raise self._unfit(tool, f"{name!r} must be text")

    def _unfit(self, tool: str, problem: str) -> CallError:
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
    """One fence for each server, since each speaks for itself."""
    lines: dict[str, list[str]] = {}
    for entry in entries:
        place = entry.get("uri") or f"{entry['uri_template']} (template)"
        words = " - ".join(filter(None, (entry["name"], entry["description"])))
        lines.setdefault(entry["server"], []).append(f"{place}: {words}")
    return [fence("\n".join(own), server, _PAGE_TEXT) for server, own in lines.items()]


def _read(contents: Contents) -> tuple[Block, ...]:
    """What a model gets of a resource: texts marked as the server's, images as such, the rest as it came."""
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
