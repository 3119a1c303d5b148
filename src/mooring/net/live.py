"""A connection while it is up: a wire, what was agreed on it, and how requests are stamped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from anyio import to_thread

from mooring import clock
from mooring.core.redact import Redactor
from mooring.core.types import EMPTY, Snapshot, Tool
from mooring.core.weight import heavy
from mooring.errors import MooringError
from mooring.net import trace
from mooring.net.deadline import Progress
from mooring.net.headers import HeaderMap, mirrored, parameter_headers, request_headers
from mooring.net.listing import take_snapshot
from mooring.net.message import WireError, number
from mooring.net.negotiate import Peer
from mooring.net.passage import PASSAGE
from mooring.net.rpc import Channel
from mooring.net.wire import Raw

Guard = Callable[[str, Mapping[str, Any]], MooringError | None]
"""Returns why a request (method, parameters) must not be sent, or None; made for one listing."""
LISTS = frozenset(("tools/list", "prompts/list", "resources/list", "resources/templates/list"))
TRACE = ("traceparent", "tracestate", "baggage")


@dataclass(slots=True)
class Live:
    """Requests on one wire. Gone when the wire is: never kept across a reconnect."""

    channel: Channel
    peer: Peer
    redact: Redactor
    header_maps: dict[str, HeaderMap] = field(default_factory=dict[str, HeaderMap])
    ttl: float = 0.0
    """Seconds for which the server says its list of tools holds; 0 when it says nothing."""
    list_started: float = 0.0
    """When the last listing began, on the clock of `mooring.clock`."""
    mourned: bool = False
    """Whether a request has already reported that the wire died."""
    deferred: frozenset[str] = frozenset()
    """Tools that must be called as tasks (handshake era)."""
    task_news: dict[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])
    """Whom to tell that a task has changed, by its id."""
    task_keys: set[str] = field(default_factory=set[str])
    """Ids of the held requests that tell of tasks."""
    log_level: str | None = None
    """What the server was last told to log from (handshake era)."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def next_number(self) -> int:
        """A number that no other held request on this wire has."""
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
        """The raw result of one request.

        Raises:
            WireError: no result came.
            ValueError, TypeError: `params` is not JSON.
        """
        if (passage := PASSAGE.get()) is not None:
            params = {**passage.params, **params}
            # A client's own trace goes on as it is; whatever else we stamp is not for it to choose.
            traced = {key: passage.meta[key] for key in TRACE if key in passage.meta}
            meta = {**passage.meta, **(meta or EMPTY), **traced}
        peer = self.peer
        stamp = peer.listing if method in LISTS else peer.meta
        if meta or stamp:
            params = {**params, "_meta": {**(meta or EMPTY), **stamp}}
            if passage is not None and peer.era == "modern":
                params["_meta"].update(passage.stamp)
        headers: Mapping[str, str] | None = None
        if peer.era == "modern" and self.channel.kind == "http":
            headers = {**peer.headers, **request_headers(method, params)}
            if (
                self.header_maps
                and method == "tools/call"
                and (found := self.header_maps.get(params["name"]))
            ):
                headers = {**headers, **parameter_headers(found, params.get("arguments", {}))}
        if passage is not None:
            self.channel.passages.append(passage)
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
                trace.note(self.channel.server, method, params, None, error)
            raise
        finally:
            if passage is not None:
                self.channel.passages.remove(passage)
        trace.note(self.channel.server, method, params, result)
        return result

    async def _redacted(self, page: dict[str, Any]) -> dict[str, Any]:
        """The page without secrets: a large one is looked through in a thread."""
        if self.redact and heavy(page):
            return await to_thread.run_sync(self.redact.within, page)
        return self.redact.within(page)

    async def list(self, timeout: float) -> Snapshot:
        """What the server offers now; see `take_snapshot`."""

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            # What a server says of itself is kept in the lock and shown to models.
            page = await self._redacted(await self.ask(method, params, timeout=timeout))
            if method == "tools/list" and (ttl := number(page.get("ttlMs"))) is not None:
                self.ttl = max(ttl / 1000, 0.0)
            return page

        self.list_started = clock.monotonic()
        trace.note(self.channel.server, "initialize", {}, self.peer.raw)
        snapshot = _without_secrets(await take_snapshot(self.channel.server, self.peer, ask), self.redact)
        if self.peer.era == "modern" and self.channel.kind == "http":
            snapshot, self.header_maps = mirrored(snapshot)
        if self.peer.era == "legacy" and "tasks" in self.peer.info.capabilities:
            self.deferred = frozenset(tool.name for tool in snapshot.tools if _needs_task(tool))
        return snapshot


def _without_secrets(snapshot: Snapshot, redact: Redactor) -> Snapshot:
    """The rest of what a snapshot says: its entries were looked at page by page."""
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
