"""Negotiation of the protocol version with a server, and the metadata of each request to it.

Modern (2026-07-28): `server/discover`, then every request carries its metadata. Legacy: `initialize`. Which
request is sent, and what a reply means, is in the table of `core/eras.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mooring import __version__
from mooring.config.models import ServerConfig
from mooring.core.apps import ALL_MIME_TYPES
from mooring.core.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_CODES,
    MODERN_VERSIONS,
    TABLE,
    Action,
    Failure,
    Outcome,
    Reply,
    Request,
    discover_outcome,
    era_of,
    failure_outcome,
    initialize_outcome,
    start,
    supported,
    texts,
)
from mooring.core.extensions import SKILLS, TASKS, UI
from mooring.core.types import EMPTY, Era, ServerInfo, Snapshot
from mooring.transport import wire
from mooring.transport.base import Transport
from mooring.transport.forwarding import ABILITIES
from mooring.transport.message import WireError

INVALID_REQUEST = -32600
CLIENT_INFO: Mapping[str, str] = {"name": "mooring", "version": __version__}
_META = "io.modelcontextprotocol/"
_DISCOVERY = 5.0
"""Seconds to wait for the response to a probe for the 2026 era."""


class Incompatible(Exception):
    """There is no common version; a retry cannot succeed."""


def first_era(kind: str, config: ServerConfig, capabilities: Mapping[str, Any]) -> Era:
    """Return the era to try first on a server that may speak both.

    On a pipe the first request decides the era, and only a handshake server can elicit input during
    a call. So if elicitations can be answered, a child process gets the handshake. Any other
    server can have a second connection for that; see `EraConnections`.
    """
    if kind != "stdio" or not capabilities or era_of(config.min_protocol) == "modern":
        return "modern"
    return "legacy"


def refuse_older(peer: Peer, least: str | None) -> None:
    """Raise `Incompatible` when the version is older than the configuration allows."""
    if least is not None and peer.protocol < least:
        raise Incompatible(
            f"no common protocol version: the server speaks {peer.protocol}; its `min_protocol` is {least}"
        )


def doubted(snapshot: Snapshot, seen: str | None) -> Snapshot:
    """Return the snapshot, with a warning if the server spoke a newer era before (possible downgrade)."""
    now = snapshot.info.protocol
    if snapshot.info.chosen:
        return snapshot
    if era_of(seen) != "modern" or era_of(now) != "legacy":
        return snapshot
    warning = (
        f"{snapshot.server}: it spoke protocol {seen} before and only {now} now; if no older "
        f"version was installed, this may be an attack: `min_protocol: {seen}` refuses it"
    )
    return replace(snapshot, warnings=(*snapshot.warnings, warning))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The negotiated protocol of a server, and the metadata of each request to it."""

    era: Era
    protocol: str
    info: ServerInfo
    instructions: str | None
    raw: Mapping[str, Any]
    """The result of `server/discover` or `initialize`, for the SDK's session."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Goes into `_meta` of every request (modern)."""
    listing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same for list requests, with all of `ABILITIES`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of every HTTP request."""
    single: bool = False
    """Whether it is known from connecting that the server speaks only this era."""


async def negotiate(
    channel: Transport,
    *,
    era: Era | None,
    guessed: bool = True,
    config: ServerConfig,
    probe_timeout: float,
    capabilities: Mapping[str, Any],
    extensions: Mapping[str, Any] = EMPTY,
) -> Peer:
    """Agree with the server on a protocol version.

    Args:
        channel: The open transport.
        era: The era that the server spoke the last time, if known.
        guessed: Whether that was in another process, which may have preferred another era.
        config: The configuration of the server.
        probe_timeout: Seconds without a reply after which the other era is tried as well.
        capabilities: The client capabilities to declare.
        extensions: Extensions of the protocol to declare beside tasks.

    Raises:
        Incompatible: There is no common version.
        WireError: The server cannot be reached, has ended, or refuses both eras.
    """
    first = first_era(channel.kind, config, capabilities)
    if extensions:
        capabilities = {**capabilities, "extensions": extensions}
    if guessed and era != first:
        era = era if first == "modern" else None
    peer = await _Negotiation(channel, config.protocol, probe_timeout, capabilities).run(era, first)
    chosen = config.protocol != "auto" or first == "legacy"
    return replace(peer, single=chosen != (peer.era == "legacy"), info=replace(peer.info, chosen=chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    """The reply to one request: its result, or how it failed."""

    request: Request
    outcome: Outcome
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fault: WireError | None = None


_SENDS: Mapping[str, Request] = {"send discover": "discover", "send initialize": "initialize"}


class _Negotiation:
    """Sends the requests of one negotiation, and follows the table in `core/eras.py`."""

    def __init__(
        self, channel: Transport, protocol: str, probe_timeout: float, capabilities: Mapping[str, Any]
    ) -> None:
        self._channel, self._protocol = channel, protocol
        self._probe_timeout, self._capabilities = probe_timeout, capabilities
        exact = None if protocol == "auto" else protocol
        self._modern = exact or MODERN_VERSIONS[-1]
        self._newest = exact or HANDSHAKE_VERSIONS[-1]
        self._waiting: dict[Request, asyncio.Future[_Received]] = {}
        self._discovered: WireError | None = None

    async def run(self, spoken: Era | None, preferred: Era) -> Peer:
        request, state = start(self._protocol, spoken, preferred)
        self._send(request)
        try:
            while True:
                received = await self._next(self._probe_timeout if (state, "silence") in TABLE else None)
                reply: Reply = "silence" if received is None else (received.request, received.outcome)
                action, state = TABLE[state, reply]
                if action in _SENDS:
                    self._send(_SENDS[action])
                elif received is not None and action == "use":
                    return await self._agreed(received)
                elif received is not None and action != "wait":
                    raise self._problem(action, received)
        finally:
            for waiting in self._waiting.values():
                waiting.cancel()
            await asyncio.gather(*self._waiting.values(), return_exceptions=True)

    def _send(self, request: Request) -> None:
        self._waiting[request] = asyncio.ensure_future(self._ask(request))

    async def _ask(self, request: Request) -> _Received:
        try:
            if request == "discover":
                raw = await self._discover()
                return _Received(request=request, outcome=discover_outcome(raw, self._modern), raw=raw)
            raw = await self._initialize()
            return _Received(request=request, outcome=initialize_outcome(raw, self._newest), raw=raw)
        except WireError as fault:
            outcome = failure_outcome(fault.kind, fault.status, fault.code, fault.data)
            return _Received(request=request, outcome=outcome, fault=fault)

    async def _next(self, timeout: float | None) -> _Received | None:
        """Return the next reply; None after `timeout`. Of two, the one to `server/discover`."""
        waiting = self._waiting
        await asyncio.wait(waiting.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for request in ("discover", "initialize"):
            if request in waiting and waiting[request].done():
                received = waiting.pop(request).result()
                if request == "discover":
                    self._discovered = received.fault
                return received
        return None

    def _problem(self, action: Action | Failure, received: _Received) -> Exception:
        if action == "raise discover" and self._discovered is not None:
            return self._discovered
        if action == "raise" and received.fault is not None:
            return received.fault
        fault, raw = received.fault, received.raw
        if self._protocol == "auto":
            theirs = supported(fault.data) if fault is not None else [str(raw.get("protocolVersion"))]
            return Incompatible(_no_common(theirs))
        if fault is not None:
            return Incompatible(
                f"no common protocol version: the server refused {self._protocol}, "
                f"the only one allowed by `protocol` ({fault})"
            )
        if received.request == "discover":
            return Incompatible(_no_common(texts(raw.get("supportedVersions"))))
        version = str(raw.get("protocolVersion"))
        if version not in HANDSHAKE_VERSIONS:
            return Incompatible(_no_common([version]))
        return Incompatible(
            f"no common protocol version: the server speaks {version} and not {self._protocol}, "
            "the only one allowed by `protocol`"
        )

    async def _discover(self) -> dict[str, Any]:
        return await self._channel.request(
            "server/discover",
            {"_meta": _stamp(self._modern, self._capabilities)},
            headers={"MCP-Protocol-Version": self._modern, "Mcp-Method": "server/discover"},
            cancellable=False,
        )

    async def _initialize(self) -> dict[str, Any]:
        # All lists depend on these extensions: `mooring lock` and every host must get the same ones.
        known: dict[str, Any] = {
            SKILLS: {},
            UI: ALL_MIME_TYPES,
            **self._capabilities.get("extensions", EMPTY),
        }
        return await self._channel.request(
            "initialize",
            {
                "protocolVersion": self._newest,
                "capabilities": {**self._capabilities, "extensions": known},
                "clientInfo": CLIENT_INFO,
            },
            # Servers of the handshake era ignore it; a modern server that gets a handshake may check it.
            headers={"Mcp-Method": "initialize"},
            cancellable=False,
        )

    async def _agreed(self, received: _Received) -> Peer:
        raw = received.raw
        if received.request == "initialize":
            version = str(raw["protocolVersion"])
            self._channel.settle(version, modern=False)
            await self._channel.notify("notifications/initialized")
            return Peer(
                era="legacy",
                protocol=version,
                info=wire.info(raw, version),
                instructions=_instructions(raw),
                raw=raw,
            )
        version, meta = self._modern, _stamp(self._modern, self._capabilities)
        self._channel.settle(version, modern=True)
        return Peer(
            era="modern",
            protocol=version,
            info=wire.info(raw, version),
            instructions=_instructions(raw),
            raw=raw,
            meta=meta,
            listing={**meta, f"{_META}clientCapabilities": _listing_capabilities(self._capabilities)},
            headers={"MCP-Protocol-Version": version},
        )


async def may_be_modern(channel: Transport) -> bool:
    """Whether a server that got the handshake may speak the 2026 era on another connection.

    A server of both eras knows the method and refuses it only on this connection; others do not know it.
    """
    params = {"_meta": _stamp(MODERN_VERSIONS[-1], {})}
    try:
        await channel.request("server/discover", params, timeout=_DISCOVERY, cancellable=False)
    except WireError as fault:
        return fault.code in (INVALID_REQUEST, *MODERN_CODES)
    return True


def _stamp(version: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    # Tasks are an extension: a server uses them only if the client declares it.
    extensions: dict[str, Any] = {TASKS: {}, **capabilities.get("extensions", EMPTY)}
    return {
        f"{_META}protocolVersion": version,
        f"{_META}clientInfo": CLIENT_INFO,
        f"{_META}clientCapabilities": {**capabilities, "extensions": extensions},
    }


def _listing_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities for requests that list: everything that a list may depend on."""
    known: dict[str, Any] = {TASKS: {}, SKILLS: {}, UI: ALL_MIME_TYPES}
    return {**ABILITIES, "extensions": {**known, **capabilities.get("extensions", EMPTY)}}


def _instructions(raw: Mapping[str, Any]) -> str | None:
    text = raw.get("instructions")
    return text if isinstance(text, str) and text else None


def _no_common(theirs: list[str]) -> str:
    ours = ", ".join((*HANDSHAKE_VERSIONS, *MODERN_VERSIONS))
    return f"no common protocol version: the server speaks {', '.join(theirs)}; mooring speaks {ours}"
