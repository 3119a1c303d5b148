"""One server of a host for a client in the same process, under the server's own names.

`Dispatcher` has the shape of the official SDK's protocol of that name, so that `mooring.sdk` can use it
for a `ClientSession`. This module does not import the SDK.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.abc

from mooring.concurrency import OrderedCallback
from mooring.config.logs import logger
from mooring.core.catalog import Catalog
from mooring.core.eras import HANDSHAKE_VERSIONS
from mooring.core.events import CatalogChanged, ResourceUpdated
from mooring.core.extensions import declared
from mooring.core.names import LOGIN, build_tool_name
from mooring.core.text import nearest
from mooring.core.types import Era, Tool
from mooring.core.uris import malformed
from mooring.errors import MooringError, PolicyDenied, UnknownPrompt, UnknownServer, UnknownTool
from mooring.gateway.era_bridge import ask_server
from mooring.gateway.lists import HINTS, prompt_entry, resource_entry, template_entry, tool_entry
from mooring.gateway.protocol import (
    CAPABILITIES,
    INVALID_PARAMS,
    LOG_LEVEL,
    METHOD_NOT_FOUND,
    SUBSCRIPTION,
    Refusal,
    fields,
    forwarded_meta,
    shaped,
)
from mooring.gateway.subscriptions import KINDS, UPDATED
from mooring.host import Host, runtime_of
from mooring.servers.connection import Connection
from mooring.servers.negotiate import Peer
from mooring.session import Session
from mooring.transport.forwarding import ClientBridge, ForwardedRequest
from mooring.transport.message import CONNECTION_CLOSED, number

__all__ = ["Context", "Dispatcher"]

log = logger("mooring.gateway")

MOST_WAITING = 256
"""Queued notifications for the client; further ones are dropped."""
NOT_OFFERED = ("logging", "tasks")
"""Capabilities of a server that mooring uses itself and hides from the client."""
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

OnRequest = Callable[..., Awaitable[dict[str, Any]]]
OnNotify = Callable[..., Awaitable[None]]
Intercept = Callable[[str, Mapping[str, Any] | None], bool]


@dataclass(slots=True)
class Context:
    """Context of an inbound message, as the SDK reads it."""

    request_id: int | str | None = None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class _SdkListener:
    """One `subscriptions/listen` request."""

    id: int | str
    kinds: frozenset[str]
    uris: frozenset[str]


class Dispatcher:
    """Answers the requests of one client with the methods of a host."""

    def __init__(self, host: Host, server: str, session: Session | None) -> None:
        self._host, self._server, self._session = host, server, session
        self._bridge = runtime_of(host).relay or ClientBridge()
        self._peer: Peer | None = None
        self.era: Era = "legacy"
        self._tools_cache: tuple[Catalog, dict[str, Tool]] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._on_request: OnRequest | None = None
        self._intercept: Intercept | None = None
        self._notices: anyio.abc.ObjectSendStream[tuple[str, Mapping[str, Any]]] | None = None
        self._listeners: set[_SdkListener] = set()
        self._watched: dict[str, int] = {}
        self._request_count = 0
        self._closed = anyio.Event()

    # --- the connection -------------------------------------------------------------------------

    async def connect(self) -> Peer:
        """Connect the server and return the negotiated protocol.

        Raises:
            UnknownServer: The host has no such server.
            MooringError: The server cannot be connected.
        """
        connection = self._connection()
        config = connection.config
        active = await connection.supervisor.connected(config.connect_timeout + config.list_timeout)
        self._peer, self.era = active.peer, active.peer.era
        return active.peer

    def _connection(self) -> Connection:
        provider: Any = runtime_of(self._host).provider(self._server, self._session or self._host.session())
        connection = getattr(provider, "connection", provider)  # a session's own connection is wrapped
        if not isinstance(connection, Connection):
            raise UnknownServer(self._server)
        return connection

    def greeting(self, era: Era) -> dict[str, Any]:
        """The server's result of `server/discover` or `initialize`, in the form of `era`."""
        assert self._peer is not None
        peer, redact = self._peer, self._host.redact
        raw: dict[str, Any] = {**redact.within(dict(peer.raw))}
        offered = fields(raw.get("capabilities")).items()
        capabilities = {key: value for key, value in offered if key not in NOT_OFFERED}
        about: dict[str, Any] = {"capabilities": capabilities}
        groups = self._host.catalog.groups
        said = next((group.instructions for group in groups if group.id == f"mcp:{self._server}"), None)
        if said:
            about["instructions"] = said
        if era == "modern":
            meta = {_SERVER_INFO: fields(raw.get("_meta")).get(_SERVER_INFO)}
            versions = raw.get("supportedVersions") or [peer.protocol]
            return shaped({"supportedVersions": versions, **HINTS, **about, "_meta": meta}, era)
        info = {"name": peer.info.name or self._server, "version": peer.info.version or ""}
        version = peer.protocol if peer.era == "legacy" else HANDSHAKE_VERSIONS[-1]
        return {"protocolVersion": version, "serverInfo": redact.within(info), **about}

    # --- the shape of the SDK's `Dispatcher` ----------------------------------------------------

    async def request(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the result of one request of the client.

        Raises:
            MooringError, Refusal: The request failed.
        """
        if self._closed.is_set():
            raise Refusal(CONNECTION_CLOSED, "Connection closed")
        return await self._answer(method, dict(params or {}), opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> None:
        """Ignore notifications of the client: the host sent its own when it connected."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: Intercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Forward events of the host to the client until the host is closed."""
        self._on_request, self._intercept = on_request, on_notify_intercept
        send, receive = anyio.create_memory_object_stream[tuple[str, Mapping[str, Any]]](MOST_WAITING)
        try:
            async with (
                aclosing(self._host.events(CatalogChanged, ResourceUpdated)) as events,
                send,
                receive,
                anyio.create_task_group() as tasks,
            ):
                self._tasks, self._notices = tasks, send
                tasks.start_soon(self._deliver, receive, on_notify)
                shown = self._shown()
                task_status.started()
                async for event in events:
                    if isinstance(event, ResourceUpdated):
                        self._resource_updated(event)
                        continue
                    old, shown = shown, self._shown()
                    for kind, now in shown.items():
                        if now != old[kind]:
                            self._list_changed(kind)
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = self._notices = self._on_request = self._intercept = None
            self._closed.set()
            with anyio.CancelScope(shield=True):
                await self._unwatch_all()

    # --- requests of the client ----------------------------------------------------------------

    async def _answer(self, method: str, params: dict[str, Any], opts: Mapping[str, Any]) -> dict[str, Any]:
        timeout: float | None = opts.get("timeout")
        match method:
            case "initialize":
                self.era = "legacy"
                return self.greeting("legacy")
            case "server/discover" if self._peer is not None and self._peer.era == "modern":
                self.era = "modern"
                return self.greeting("modern")
            case "ping":
                await self._connection().ping(timeout or 5.0)
                return {}
            case "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list":
                return self._page(method, params)
            case "tools/call":
                return await self._call(params, opts)
            case "resources/read":
                return await self._read(params, timeout)
            case "prompts/get":
                return await self._prompt(params, timeout)
            case "completion/complete":
                return await self._forward(method, params, "completion", timeout)
            case "resources/subscribe" | "resources/unsubscribe":
                return await self._subscribe(method, str(params.get("uri", "")), timeout)
            case "subscriptions/listen" if self.era == "modern":
                return await self._listen(opts.get("request_id", 0), fields(params.get("notifications")))
            case _ if self._peer is not None and declared(self._server, self._peer.info.capabilities):
                return await self._forward(method, params, str(params.get("uri", method)), timeout)
            case _:
                raise Refusal(METHOD_NOT_FOUND, f"mooring does not forward {method!r} to servers")

    def _page(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a list from the catalog of the host, as one page."""
        if params.get("cursor") is not None:
            raise Refusal(INVALID_PARAMS, "invalid cursor: the list has one page only")
        catalog, server = self._host.catalog, self._server
        page: dict[str, Any]
        match method:
            case "tools/list":
                entries = [tool_entry(name, tool, self.era) for name, tool in self._tools().items()]
                page = {"tools": entries}
            case "resources/list":
                found = [resource_entry(item) for item in catalog.resources if item.server == server]
                page = {"resources": found}
            case "resources/templates/list":
                found = [template_entry(item) for item in catalog.templates if item.server == server]
                page = {"resourceTemplates": found}
            case _:
                prompts = [prompt_entry(item.name, item) for item in catalog.prompts if item.server == server]
                page = {"prompts": prompts}
        return shaped({**page, **HINTS}, self.era)

    async def _call(self, params: dict[str, Any], opts: Mapping[str, Any]) -> dict[str, Any]:
        timeout, on_progress = opts.get("timeout"), opts.get("on_progress")
        name = str(params.get("name", ""))
        tool = self._tools().get(name) or await self._wait_for_tool(name, timeout)
        progress = None if on_progress is None else OrderedCallback(on_progress, "progress_callback", timeout)
        with self._bridge.under_way(self._forwarded(params, ("name", "arguments"), progress)):
            result = await (self._session or self._host).call(
                tool.name, params.get("arguments"), timeout=timeout, on_progress=progress, budget=0
            )
        if progress is not None:
            await progress.delivered()
        if result.error is not None:
            raise result.error
        result_object: Mapping[str, Any] = result.raw or {
            "content": result.content,
            "isError": result.is_error,
        }
        return shaped(result_object, self.era)

    async def _wait_for_tool(self, name: str, timeout: float | None) -> Tool:
        """Wait for a tool of a starting server; raise the reason if it is hidden or unknown."""
        guessed = build_tool_name(self._server, name, self._host.style)
        await runtime_of(self._host).arrival(guessed, timeout)
        if (tool := self._tools().get(name)) is not None:
            return tool
        if (withheld := runtime_of(self._host).withheld(guessed)) is not None:
            raise withheld
        raise UnknownTool(name, nearest(name, self._tools()))

    async def _read(self, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        uri = str(params.get("uri", ""))
        await self._check(uri)
        work = self._forward("resources/read", params, uri, timeout)
        audit = runtime_of(self._host).audit
        raw = await (work if audit is None else audit.other("read", uri, None, work, server=self._server))
        return shaped({**HINTS, **raw}, self.era)

    async def _check(self, uri: str) -> None:
        if problem := malformed(uri):
            what = f"{uri[:200]!r} is not read: {problem}"
            raise PolicyDenied(what, server=self._server, tool=uri[:200], reason=problem)
        await runtime_of(self._host).resources.check((self._server, uri))

    async def _prompt(self, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        name = str(params.get("name", ""))
        known = [item.name for item in self._host.catalog.prompts if item.server == self._server]
        if name not in known:
            raise UnknownPrompt(name, nearest(name, known))
        work = self._forward("prompts/get", params, name, timeout)
        audit, given, about = runtime_of(self._host).audit, params.get("arguments"), {"server": self._server}
        return await (work if audit is None else audit.other("prompt", name, given, work, **about))

    async def _forward(
        self, method: str, params: dict[str, Any], about: str, timeout: float | None
    ) -> dict[str, Any]:
        """Forward a request unchanged and return the result."""
        own = {key: value for key, value in params.items() if key != "_meta"}
        with self._bridge.under_way(self._forwarded(params, tuple(own), None)):
            raw = await ask_server(self._connection, method, own, about=about, timeout=timeout)
        return shaped(raw, self.era)

    async def _subscribe(self, method: str, uri: str, timeout: float | None) -> dict[str, Any]:
        if method == "resources/subscribe":
            await self._watch(uri, timeout)
        else:
            await self._unwatch(uri)
        return {}

    async def _listen(self, key: int | str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Send changes to the listener until the host is closed, then return."""
        uris: list[str] = []
        try:
            for uri in cast("list[str]", wanted.get("resourceSubscriptions") or []):
                with suppress(MooringError):
                    await self._watch(uri, None)
                    uris.append(uri)
            kinds = frozenset(kind for kind in KINDS if wanted.get(kind) is True)
            listener = _SdkListener(key, kinds, frozenset(uris))
            self._listeners.add(listener)
            try:
                accepted: dict[str, Any] = dict.fromkeys(sorted(kinds), True)
                if uris:
                    accepted["resourceSubscriptions"] = uris
                self._notify(_ACKNOWLEDGED, {"notifications": accepted}, listener)
                await self._closed.wait()
            finally:
                self._listeners.discard(listener)
        finally:
            with anyio.CancelScope(shield=True):
                for uri in uris:
                    await self._unwatch(uri)
        return {"resultType": "complete"}

    # --- catalog --------------------------------------------------------------------------------

    def _tools(self) -> dict[str, Tool]:
        """Return the callable tools of the server by the server's own names."""
        catalog = self._host.catalog
        if self._tools_cache is None or self._tools_cache[0] is not catalog:
            found = (tool for tool in catalog.tools.values() if tool.server == self._server)
            plain = {
                item.own_name: item for item in found if item.verb == "call" and item.remote_name != LOGIN
            }
            self._tools_cache = (catalog, plain)
        return self._tools_cache[1]

    def _shown(self) -> dict[str, list[Any]]:
        catalog, server = self._host.catalog, self._server
        return {
            "toolsListChanged": list(self._tools().values()),
            "resourcesListChanged": [
                item for item in (*catalog.resources, *catalog.templates) if item.server == server
            ],
            "promptsListChanged": [item for item in catalog.prompts if item.server == server],
        }

    # --- notifications and requests of the server -----------------------------------------------

    def _forwarded(
        self, params: Mapping[str, Any], ours: tuple[str, ...], progress: OrderedCallback | None
    ) -> ForwardedRequest:
        """Return what is forwarded with a request, and the callbacks for the server's messages."""
        meta = fields(params.get("_meta"))
        stamp: dict[str, Any] = {}
        if runtime_of(self._host).relay is not None:
            stamp = {key: meta[key] for key in (CAPABILITIES, LOG_LEVEL) if key in meta}

        def heard(method: str, said: Mapping[str, Any]) -> None:
            if method != "notifications/progress":
                self._notify(method, said)
            elif progress is not None and self._tasks is not None:
                text = said.get("message")
                step = (number(said.get("progress")), number(said.get("total")))
                self._tasks.start_soon(progress, *step, text if isinstance(text, str) else None)

        return ForwardedRequest(
            client=self,
            era=None if runtime_of(self._host).relay is None else self.era,
            meta=forwarded_meta(meta),
            stamp=stamp,
            params={key: value for key, value in params.items() if key not in (*ours, "_meta")},
            heard=heard,
            asked=self.ask,
        )

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of the server with the client's callbacks."""
        if self._on_request is None:
            raise Refusal(CONNECTION_CLOSED, "Connection closed")
        return await self._on_request(self.context(), method, params)

    def context(self) -> Context:
        """Return the context of the next request of the server."""
        self._request_count += 1
        return Context(f"mooring-{self._request_count}")

    def _resource_updated(self, event: ResourceUpdated) -> None:
        mine = None if self._session is None else self._session.id
        if event.server != self._server or event.session not in (None, mine):
            return
        if self.era == "legacy" and event.uri in self._watched:
            self._notify(UPDATED, {"uri": event.uri})
        for listener in list(self._listeners):
            if event.uri in listener.uris:
                self._notify(UPDATED, {"uri": event.uri}, listener)

    def _list_changed(self, kind: str) -> None:
        if self.era == "legacy":
            self._notify(KINDS[kind], {})
        for listener in list(self._listeners):
            if kind in listener.kinds:
                self._notify(KINDS[kind], {}, listener)

    def _notify(self, method: str, params: Mapping[str, Any], listener: _SdkListener | None = None) -> None:
        """Send a notification to the client."""
        if listener is not None:
            params = {**params, "_meta": {SUBSCRIPTION: listener.id}}
        if self._intercept is not None and self._intercept(method, params):
            return
        if self._notices is not None:
            try:
                cast("Any", self._notices).send_nowait((method, params))
            except anyio.WouldBlock:
                log.warning(
                    "notification dropped: the client's callbacks are too slow server=%s", self._server
                )

    async def _deliver(self, receive: Any, on_notify: OnNotify) -> None:
        async for method, params in receive:
            await on_notify(Context(), method, params)

    # --- resource subscriptions -----------------------------------------------------------------

    async def _watch(self, uri: str, timeout: float | None) -> None:
        if uri not in self._watched:
            await self._check(uri)
            await self._connection().watch(uri, timeout)
        self._watched[uri] = self._watched.get(uri, 0) + 1

    async def _unwatch(self, uri: str) -> None:
        left = self._watched.pop(uri, 0) - 1
        if left > 0:
            self._watched[uri] = left
        elif left == 0:
            with suppress(MooringError):
                await self._connection().unwatch(uri, 5.0)

    async def _unwatch_all(self) -> None:
        for uri in list(self._watched):
            self._watched[uri] = 1
            await self._unwatch(uri)
