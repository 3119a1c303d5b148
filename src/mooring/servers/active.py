"""An open connection: its transport, the negotiated protocol, and the metadata of each request."""

from __future__ import annotations

import asyncio
import itertools
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import anyio
from anyio import to_thread

from mooring import concurrency
from mooring.core.elicitation import URL_REQUIRED, addresses_in
from mooring.core.extensions import SKILLS, declared
from mooring.core.injection_scan import suspicion
from mooring.core.json_values import heavy, remember, shared
from mooring.core.redact import Redactor
from mooring.core.types import EMPTY, Extension, Prompt, Resource, ResourceTemplate, Skill, Snapshot, Tool
from mooring.errors import MooringError
from mooring.lock.definitions import is_pinnable
from mooring.servers.negotiate import Peer
from mooring.transport import base, wire
from mooring.transport.base import Transport
from mooring.transport.forwarding import FORWARDED, ForwardedRequest
from mooring.transport.limits import Progress
from mooring.transport.message import METHOD_NOT_FOUND, WireError, number
from mooring.transport.wire import Raw

_ANNOTATION = "x-mcp-header"
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)
_TYPES = ("string", "integer", "boolean")
_ONE_SCHEMA = frozenset(
    (
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
_LIST_OF_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAP_OF_SCHEMAS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties"))

HeaderMap = dict[tuple[str, ...], str]
"""The path of an argument (its name, and those of the objects around it), and the name after `Mcp-Param-`."""


def request_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Method`, and `Mcp-Name` for methods that name a thing."""
    headers = {"Mcp-Method": method}
    name = params.get(_NAMED.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = header_value(name)
    return headers


def parameter_headers(header_map: HeaderMap, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the `Mcp-Param-…` headers for the arguments that the tool's schema annotates, except those that
    are missing, null or not a plain value."""
    headers: dict[str, str] = {}
    for path, name in header_map.items():
        value: Any = arguments
        for key in path:
            value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
        if (text := _as_text(value)) is not None:
            headers[f"Mcp-Param-{name}"] = header_value(text)
    return headers


def header_value(text: str) -> str:
    """Return the text as the value of a header: unchanged, or in base64 between markers."""
    if not text or (_PRINTABLE.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{b64encode(text.encode()).decode()}?="


def header_map(schema: Mapping[str, Any]) -> HeaderMap:
    """Return the arguments of a valid schema that are sent as headers; see `header_problem`."""
    return {
        path: part[_ANNOTATION]
        for path, part in _annotated(schema)
        if path and isinstance(part[_ANNOTATION], str)
    }


def header_problem(schema: Mapping[str, Any]) -> str | None:
    """Return how a schema breaks the rules for header annotations, or None. Such a tool must not be used over
    HTTP."""
    owners: dict[str, str] = {}
    for path, part in _annotated(schema):
        if not path:
            return f"{_ANNOTATION} is only allowed on properties, not within another keyword or at the root"
        where, name, kind = ".".join(path), part[_ANNOTATION], part.get("type")
        if not isinstance(name, str):
            return f"property {where!r}: {_ANNOTATION} must be a string, not {type(name).__name__}"
        if not _TOKEN.fullmatch(name):
            return f"property {where!r}: {_ANNOTATION} {name!r} is not a token of RFC 9110"
        if not isinstance(kind, str) or kind not in _TYPES:
            found = repr(kind) if isinstance(kind, str) else type(kind).__name__
            return f"property {where!r}: {_ANNOTATION} needs the type string, integer or boolean, not {found}"
        if (owner := owners.get(name.lower())) is not None:
            return f"property {where!r}: {_ANNOTATION} {name!r} is also that of property {owner!r}"
        owners[name.lower()] = where
    return None


def mirrored(snapshot: Snapshot) -> tuple[Snapshot, dict[str, HeaderMap]]:
    """Return the snapshot without tools whose header annotations break the rules, and by remaining tool the
    arguments that are sent as headers."""
    kept: list[Tool] = []
    maps: dict[str, HeaderMap] = {}
    warnings: list[str] = []
    for tool in snapshot.tools:
        if _ANNOTATION in repr(tool.input_schema):  # faster than a traversal; mostly False
            if problem := header_problem(tool.input_schema):
                warnings.append(f"{tool.server}: tool {tool.name!r} is left out: {problem}")
                continue
            if found := header_map(tool.input_schema):
                maps[tool.name] = found
        kept.append(tool)
    if not warnings:
        return snapshot, maps
    return replace(snapshot, tools=tuple(kept), warnings=(*snapshot.warnings, *warnings)), maps


def _annotated(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Yield each part of a schema that has the annotation, with its path: the names of the properties above
    it; None if it is below another keyword than `properties`. References are not followed."""
    left: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while left:
        path, part = left.pop()
        if not isinstance(part, dict):
            continue
        schema = cast("dict[str, Any]", part)
        if _ANNOTATION in schema:
            yield path, schema
        for keyword, value in schema.items():
            if keyword in _ONE_SCHEMA:
                left.append((None, value))
            elif isinstance(value, list) and keyword in _LIST_OF_SCHEMAS:
                left.extend((None, item) for item in cast("list[Any]", value))
            elif isinstance(value, dict):
                inner = cast("dict[str, Any]", value)
                if keyword == "properties":
                    left.extend((None if path is None else (*path, name), inner[name]) for name in inner)
                elif keyword in _MAP_OF_SCHEMAS:
                    left.extend((None, item) for item in inner.values())


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        return str(value)
    except ValueError:  # a number with more digits than Python converts
        return None


Guard = Callable[[str, Mapping[str, Any]], MooringError | None]
"""Returns why a request (method, parameters) must not be sent, or None; made for one listing."""
_OF_2026 = ("inputResponses", "requestState")
MOST_VISITS = 256
LISTS = frozenset(("tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list"))
_OF_SKILLS = ("skills/list", "resources/directory/read")
TRACE = ("traceparent", "tracestate", "baggage")


@dataclass(slots=True)
class ActiveConnection:
    """Requests on one open transport. A reconnect makes a new one."""

    channel: Transport
    peer: Peer
    redact: Redactor
    header_maps: dict[str, HeaderMap] = field(default_factory=dict[str, HeaderMap])
    ttl: float = 0.0
    """Seconds for which the server declares its list of tools valid; 0 if it does not."""
    list_started: float = 0.0
    """When the last listing began, on the clock of `mooring.concurrency`."""
    loss_reported: bool = False
    """Whether a request has already reported that the transport was closed."""
    deferred: frozenset[str] = frozenset()
    """Tools that must be called as tasks (handshake era)."""
    task_news: dict[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])
    """Callbacks for changes of tasks, by id of the task."""
    task_keys: set[str] = field(default_factory=set[str])
    """Ids of the open subscriptions to changes of tasks."""
    log_level: str | None = None
    """Log level last set on the server (handshake era)."""
    visited: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    """By elicitation id: set when the server reports that the user has finished at the URL (handshake
    era)."""
    hides_extensions: bool = False
    """Whether the server may have extensions that this connection cannot declare: an SDK leaves them out of
    the reply to the handshake, and mooring chose the handshake."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        peer = self.peer
        undeclared = "extensions" not in peer.info.capabilities
        self.hides_extensions = peer.era == "legacy" and not peer.single and undeclared

    def next_number(self) -> int:
        """Return a number that no other subscription on this transport has."""
        return next(self._numbers)

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        idle: float | None = None,
        on_progress: Progress | None = None,
        meta: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Return the raw result of one request.

        Raises:
            WireError: There is no result.
            ValueError, TypeError: `params` is not JSON.
        """
        if (forwarded := FORWARDED.get()) is not None:
            params = {**forwarded.params, **params}
        if self.peer.era == "legacy" and ("inputResponses" in params or "requestState" in params):
            # These answer an `input_required` that replaced an error of this era: the server does not know
            # them.
            params = {key: value for key, value in params.items() if key not in _OF_2026}
        if forwarded is not None:
            # The client's trace context is forwarded unchanged; it cannot replace other metadata of mooring.
            traced = {key: forwarded.meta[key] for key in TRACE if key in forwarded.meta}
            meta = {**forwarded.meta, **(meta or EMPTY), **traced}
        peer = self.peer
        stamp = peer.listing if method in LISTS else peer.meta
        if meta or stamp:
            params = {**params, "_meta": {**(meta or EMPTY), **stamp}}
            if forwarded is not None and peer.era == "modern":
                params["_meta"].update(forwarded.stamp)
        headers: Mapping[str, str] | None = None
        if peer.era == "modern" and self.channel.kind == "http":
            headers = {**peer.headers, **request_headers(method, params)}
            if (
                self.header_maps
                and method == "tools/call"
                and (found := self.header_maps.get(params["name"]))
            ):
                headers = {**headers, **parameter_headers(found, params.get("arguments", {}))}
        if forwarded is not None:
            self.channel.forwarded_requests.append(forwarded)
        try:
            result = await self.channel.request(
                method,
                params,
                timeout=timeout,
                idle=idle,
                on_progress=on_progress,
                headers=headers,
                request_id=request_id,
            )
        except WireError as fault:
            if fault.kind == "answer":
                error = {"code": fault.code, "message": str(fault)}
                base.note(self.channel.server, method, params, None, error)
                if fault.code == URL_REQUIRED and (asked := self._addresses(fault.data, forwarded)):
                    return {"resultType": "input_required", "inputRequests": asked}
            raise
        finally:
            if forwarded is not None:
                self.channel.forwarded_requests.remove(forwarded)
        base.note(self.channel.server, method, params, result)
        return result

    def _addresses(self, data: object, forwarded: ForwardedRequest | None) -> dict[str, Any] | None:
        """Return the addresses that the user must open first, if the caller can get them as `input_required`:
        the application, or a client of the 2026 era that supports URLs. Other clients get the error."""
        if forwarded is not None and not (forwarded.answers and forwarded.opens_addresses):
            return None
        asked = addresses_in(data)
        for request in (asked or {}).values():
            key = request["params"].get("elicitationId")
            if isinstance(key, str) and len(self.visited) < MOST_VISITS:
                self.visited.setdefault(key, asyncio.Event())
        return asked

    async def _redacted(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return the page without secrets. A large one is searched in a thread."""
        if self.redact and heavy(page):
            return await to_thread.run_sync(self.redact.within, page)
        return self.redact.within(page)

    async def list(self, timeout: float, known: tuple[Extension, ...] = ()) -> Snapshot:
        """Return the current lists of the server; see `take_snapshot`.

        Args:
            timeout: Seconds for each request.
            known: Extensions that the server declared before, in any era.
        """
        hidden = known if self.hides_extensions else None

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            # Lists are stored in the lock and shown to models, so secrets in them are redacted.
            limit = min(timeout, WITHIN) if hidden is not None and method in _OF_SKILLS else timeout
            page = await self._redacted(await self.ask(method, params, timeout=limit))
            if method == "tools/list" and (ttl := number(page.get("ttlMs"))) is not None:
                self.ttl = max(ttl / 1000, 0.0)
            return page

        self.list_started = concurrency.monotonic()
        base.note(self.channel.server, "initialize", {}, self.peer.raw)
        taken = await take_snapshot(self.channel.server, self.peer, ask, hidden)
        self.hides_extensions = self.hides_extensions and bool(taken.extensions)
        snapshot = _without_secrets(taken, self.redact)
        if self.peer.era == "modern" and self.channel.kind == "http":
            snapshot, self.header_maps = mirrored(snapshot)
        if self.peer.era == "legacy" and "tasks" in self.peer.info.capabilities:
            self.deferred = frozenset(tool.name for tool in snapshot.tools if _needs_task(tool))
        return snapshot


def _without_secrets(snapshot: Snapshot, redact: Redactor) -> Snapshot:
    """Return the snapshot with its other fields redacted: its entries were redacted page by page."""
    if not redact:
        return snapshot
    info = snapshot.info
    return replace(
        snapshot,
        info=replace(
            info,
            name=redact.within(info.name),
            title=redact.within(info.title),
            version=redact.within(info.version),
            description=redact.within(info.description),
            capabilities=redact.within(info.capabilities),
        ),
        instructions=redact.within(snapshot.instructions),
        warnings=tuple(redact(warning) for warning in snapshot.warnings),
    )


def _needs_task(tool: Tool) -> bool:
    execution = tool.extra.get("execution")
    return isinstance(execution, Mapping) and cast("Raw", execution).get("taskSupport") == "required"


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
USUAL = "info"
"""Log level of clients that did not set one."""
WITHIN = 5.0


def more_verbose(one: str, other: str) -> str:
    """Return the more verbose of two log levels."""
    return min(one, other, key=LEVELS.index)


async def set_level(live: ActiveConnection, level: str) -> None:
    """Set the log level of a server that supports it. A refusal is ignored."""
    able = live.peer.era == "legacy" and "logging" in live.peer.info.capabilities
    if able and live.log_level != level:
        live.log_level = level
        with suppress(WireError):
            await live.ask("logging/setLevel", {"level": level}, timeout=WITHIN)


MAX_PAGES = 64
MAX_ITEMS = 10_000

T = TypeVar("T")
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


async def take_snapshot(
    server: str, peer: Peer, ask: Ask, hidden: tuple[Extension, ...] | None = None
) -> Snapshot:
    """Return the current lists of the server. If the list of tools fails, there is no snapshot; another list
    that fails is left out with a warning.

    Args:
        server: Its name.
        peer: The negotiated protocol.
        ask: Sends one request.
        hidden: The extensions known from other connections of a server that cannot declare any on this one.
            Its skills are listed if it answers that request.

    Raises:
        WireError: the tools could not be listed.
    """
    offered = peer.info.capabilities
    tools: list[Tool] = []
    resources: list[Resource] = []
    templates: list[ResourceTemplate] = []
    prompts: list[Prompt] = []
    skills: list[Skill] = []
    extensions = declared(server, offered) if hidden is None else hidden
    warnings: list[str] = []
    failed: list[WireError] = []

    async def optional(
        method: str, key: str, make: Callable[[str, Mapping[str, Any]], T], into: list[T]
    ) -> None:
        try:
            await _pages(server, method, key, make, ask, into, warnings)
        except WireError as fault:
            if fault.code != METHOD_NOT_FOUND:
                warnings.append(f"{server}: {method} failed: {fault}")

    async def required() -> None:
        try:
            await _pages(server, "tools/list", "tools", wire.tool, ask, tools, warnings)
        except WireError as fault:
            if fault.code != METHOD_NOT_FOUND:
                failed.append(fault)

    async def probed() -> None:
        nonlocal extensions
        others = tuple(one for one in extensions if one.name != SKILLS)
        try:
            await _pages(server, "skills/list", "skills", wire.skill, ask, skills, warnings)
        except WireError:
            extensions = others
            return
        if others == extensions:
            settings = {"directoryRead": True} if await reads_directories() else EMPTY
            extensions = (*others, Extension(name=SKILLS, server=server, settings=settings))

    async def reads_directories() -> bool:
        # A later connection in the modern era must not differ in what it declares.
        folders = [skill.uri.rpartition("/")[0] for skill in skills[:1]]
        try:
            return any([await ask("resources/directory/read", {"uri": folder}) for folder in folders])
        except WireError:
            return False

    async with anyio.create_task_group() as tasks:
        if "tools" in offered or not offered:
            tasks.start_soon(required)
        if "resources" in offered:
            tasks.start_soon(optional, "resources/list", "resources", wire.resource, resources)
            tasks.start_soon(
                optional, "resources/templates/list", "resourceTemplates", wire.template, templates
            )
        if "prompts" in offered:
            tasks.start_soon(optional, "prompts/list", "prompts", wire.prompt, prompts)
        if hidden is not None and "resources" in offered:
            tasks.start_soon(probed)
        elif any(one.name == SKILLS for one in extensions):
            tasks.start_soon(optional, "skills/list", "skills", wire.skill, skills)
    if failed:
        raise failed[0]
    return Snapshot(
        server=server,
        info=peer.info,
        instructions=peer.instructions,
        tools=tuple(tools),
        resources=tuple(resources),
        templates=tuple(templates),
        prompts=tuple(prompts),
        extensions=extensions,
        skills=tuple(skills),
        warnings=tuple(warnings),
    )


async def compared(known: Snapshot | None, listed: Snapshot) -> Snapshot:
    """Return the listing, with the known tool objects where definitions are identical; see `shared`. Large
    definitions are compared, and searched for suspicious text, in a thread."""
    if heavy([tool.input_schema for tool in listed.tools]):
        return await to_thread.run_sync(_compared, known, listed)
    return listed if known is None else shared(known, listed)


def _compared(known: Snapshot | None, listed: Snapshot) -> Snapshot:
    snapshot = listed if known is None else shared(known, listed)
    for tool in snapshot.tools:
        if heavy(tool.input_schema):
            remember(suspicion, tool)
            remember(is_pinnable, tool)
    return snapshot


async def _pages(
    server: str,
    method: str,
    key: str,
    make: Callable[[str, Mapping[str, Any]], T],
    ask: Ask,
    into: list[T],
    warnings: list[str],
) -> None:
    cursor: str | None = None
    before: tuple[str | None, object] | None = None
    for _ in range(MAX_PAGES):
        page = await ask(method, {} if cursor is None else {"cursor": cursor})
        following = page.get("nextCursor")
        if before == (following, page.get(key)):
            warnings.append(f"{server}: {method} repeats itself; entries before that are kept")
            return
        before = (following, page.get(key))
        good, bad = wire.entries(page, key, make, server)
        warnings.extend(bad)
        into.extend(good)
        if len(into) > MAX_ITEMS:
            del into[MAX_ITEMS:]
            warnings.append(f"{server}: {method} holds more than {MAX_ITEMS} entries; the rest is left out")
            return
        if not isinstance(following, str):  # an empty cursor is a cursor; only a missing one ends the list
            return
        cursor = following
    warnings.append(f"{server}: {method} has more than {MAX_PAGES} pages; the rest is left out")
