"""Which protocol a server speaks: found out once, remembered, and stamped on each request.

Modern (2026-07-28): `server/discover`, then every request carries what it needs. Legacy: `initialize`.
A server that answers the probe with anything but modern evidence, or with silence, is legacy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mooring import __version__
from mooring.config.models import ServerConfig
from mooring.config.validate import PROTOCOLS
from mooring.core.apps import ALL_MIME_TYPES
from mooring.core.extensions import SKILLS, TASKS, UI
from mooring.core.types import EMPTY, Era, ServerInfo, Snapshot
from mooring.transport import wire
from mooring.transport.base import Transport
from mooring.transport.message import ABILITIES, WireError

MODERN_VERSIONS = ("2026-07-28",)
HANDSHAKE_VERSIONS = tuple(version for version in PROTOCOLS if version not in MODERN_VERSIONS)
UNSUPPORTED_VERSION = -32022
INVALID_REQUEST = -32600
MODERN_CODES = (-32020, -32021, UNSUPPORTED_VERSION)
CLIENT_INFO: Mapping[str, str] = {"name": "mooring", "version": __version__}
_META = "io.modelcontextprotocol/"
_DISCOVERY = 5.0
"""Seconds that a server gets to say whether it knows the 2026 era."""


def era_of(protocol: str | None) -> Era | None:
    """The era of a protocol version."""
    if protocol is None:
        return None
    return "modern" if protocol in MODERN_VERSIONS else "legacy"


class Incompatible(Exception):
    """The two sides share no version; trying again is useless."""


def first_era(kind: str, config: ServerConfig, capabilities: Mapping[str, Any]) -> Era:
    """The era that a server is asked for which may speak both.

    On a pipe the first request decides for all others, and only a handshake server can ask while it works on
    a call. So where its questions can be answered, a child process is greeted with the handshake. Any other
    server can have a second connection for that; see `EraConnections`.
    """
    if kind != "stdio" or not capabilities or era_of(config.min_protocol) == "modern":
        return "modern"
    return "legacy"


def refuse_older(peer: Peer, least: str | None) -> None:
    """Raise `Incompatible` when what was agreed is older than the configuration allows."""
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
    """What was agreed with the server, and how each request to it is stamped."""

    era: Era
    protocol: str
    info: ServerInfo
    instructions: str | None
    raw: Mapping[str, Any]
    """The result of `server/discover` or `initialize`, for the SDK's session to adopt."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Goes into `_meta` of every request (modern)."""
    listing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same for requests that list: with all of `ABILITIES`, whatever this host can answer."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Goes onto every HTTP request."""
    single: bool = False
    """Whether connecting has shown that the server speaks only this era."""


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
        channel: The open wire.
        era: What the server spoke the last time, if that is known.
        guessed: Whether that was in another process, perhaps one that wanted another era.
        config: Of the server.
        probe_timeout: Seconds of silence after which the other era is tried as well.
        capabilities: What the server may ask of us.
        extensions: Extensions of the protocol to declare beside tasks.

    Raises:
        Incompatible: no common version.
        WireError: the server cannot be reached, is gone, or refuses both ways.
    """
    first = first_era(channel.kind, config, capabilities)
    if extensions:
        capabilities = {**capabilities, "extensions": extensions}
    if guessed and era != first:
        era = era if first == "modern" else None
    if config.protocol != "auto":
        peer = await _exactly(config.protocol, channel, capabilities)
    elif era == "legacy":
        peer = await _handshake(channel, capabilities)
    elif era is None and first == "legacy":
        peer = await _handshake_first(channel, probe_timeout, capabilities)
    else:
        peer = await _modern_first(channel, era, probe_timeout, capabilities)
    chosen = config.protocol != "auto" or first == "legacy"
    return replace(peer, single=chosen != (peer.era == "legacy"), info=replace(peer.info, chosen=chosen))


async def _modern_first(
    channel: Transport, era: Era | None, probe_timeout: float, capabilities: Mapping[str, Any]
) -> Peer:
    """Discovery; where it is refused or stays without an answer, the handshake."""
    probe = asyncio.ensure_future(_discover(channel, MODERN_VERSIONS[-1], capabilities))
    try:
        done, _ = await asyncio.wait({probe}, timeout=probe_timeout)
        if not done and era != "modern":
            return await _either(probe, channel, capabilities)
        try:
            return await probe
        except WireError as fault:
            return await _after_refused_probe(fault, channel, capabilities)
    finally:
        probe.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await probe


async def _exactly(version: str, channel: Transport, capabilities: Mapping[str, Any]) -> Peer:
    """The agreement on this version; a handshake may also end with an older one of its era."""
    try:
        if version in MODERN_VERSIONS:
            peer = await _discover(channel, version, capabilities, falls_back=False)
        else:
            peer = await _handshake(channel, capabilities, version)
    except WireError as fault:
        refused = fault.kind in ("answer", "invalid") or fault.status in (400, 404, 405, 406, 415)
        if fault.kind == "auth" or not refused:
            raise
        raise Incompatible(
            f"no common protocol version: the server refused {version}, the only one to be spoken ({fault})"
        ) from None
    if peer.protocol > version:
        raise Incompatible(
            f"no common protocol version: the server speaks {peer.protocol} and not {version}, "
            "the only one to be spoken"
        )
    return peer


async def _handshake_first(channel: Transport, probe_timeout: float, capabilities: Mapping[str, Any]) -> Peer:
    """The handshake; where it is refused or stays without an answer, discovery."""
    shake = asyncio.ensure_future(_handshake(channel, capabilities))
    probe: asyncio.Future[Peer] | None = None
    try:
        await asyncio.wait({shake}, timeout=probe_timeout)
        if not shake.done():
            probe = asyncio.ensure_future(_discover(channel, MODERN_VERSIONS[-1], capabilities))
            await asyncio.wait({probe, shake}, return_when=asyncio.FIRST_COMPLETED)
            if probe.done() and probe.exception() is None:
                return probe.result()
        try:
            return await shake
        except WireError as fault:
            if fault.kind != "answer":
                raise
            # It knows no handshake: then it speaks the 2026 era, or nothing that we do.
            return await (probe or _discover(channel, MODERN_VERSIONS[-1], capabilities))
    finally:
        for task in (shake, probe):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


async def _either(probe: asyncio.Future[Peer], channel: Transport, capabilities: Mapping[str, Any]) -> Peer:
    """Silence so far: also try the handshake, and take whichever is answered first. A slow starter
    answers the probe first, because it reads in order."""
    shake = asyncio.ensure_future(_handshake(channel, capabilities))
    try:
        await asyncio.wait({probe, shake}, return_when=asyncio.FIRST_COMPLETED)
        if probe.done() and not probe.cancelled() and probe.exception() is None:
            return probe.result()
        try:
            return await shake
        except WireError as fault:
            if fault.code != UNSUPPORTED_VERSION:
                raise
            return await probe
    finally:
        shake.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await shake


async def _after_refused_probe(fault: WireError, channel: Transport, capabilities: Mapping[str, Any]) -> Peer:
    if fault.kind in ("closed", "refused", "auth", "timeout", "too-large"):
        raise fault
    if fault.kind == "status" and (fault.status in (403, 429) or (fault.status or 0) >= 500):
        raise fault
    if fault.code == UNSUPPORTED_VERSION:
        theirs = _supported(fault.data)
        if common := [version for version in MODERN_VERSIONS if version in theirs]:
            return await _discover(channel, common[-1], capabilities)
        if theirs and not any(version in HANDSHAKE_VERSIONS for version in theirs):
            raise Incompatible(_no_common(theirs))
    elif fault.code in MODERN_CODES:
        raise fault  # it is modern and refuses for another reason
    return await _handshake(channel, capabilities)


async def may_be_modern(channel: Transport) -> bool:
    """Whether a server that was greeted with the handshake may speak the 2026 era on another connection.

    A server of both eras knows the method and refuses it only on this connection; others do not know it.
    """
    params = {"_meta": _stamp(MODERN_VERSIONS[-1], {})}
    try:
        await channel.request("server/discover", params, timeout=_DISCOVERY, cancellable=False)
    except WireError as fault:
        return fault.code in (INVALID_REQUEST, *MODERN_CODES)
    return True


def _stamp(version: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    # Answers that come later are an extension: without a word of it no server gives one.
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


async def _discover(
    channel: Transport, version: str, capabilities: Mapping[str, Any], *, falls_back: bool = True
) -> Peer:
    meta = _stamp(version, capabilities)
    headers = {"MCP-Protocol-Version": version}
    raw = await channel.request(
        "server/discover",
        {"_meta": meta},
        headers={**headers, "Mcp-Method": "server/discover"},
        cancellable=False,
    )
    theirs = _texts(raw.get("supportedVersions"))
    if version not in theirs:
        if not falls_back:
            raise Incompatible(_no_common(theirs))
        # It knows the question but offers only handshake versions: an advertisement of the old era.
        return await _handshake(channel, capabilities)
    channel.settle(version, modern=True)
    return Peer(
        era="modern",
        protocol=version,
        info=wire.info(raw, version),
        instructions=_instructions(raw),
        raw=raw,
        meta=meta,
        listing={**meta, f"{_META}clientCapabilities": _listing_capabilities(capabilities)},
        headers=headers,
    )


async def _handshake(
    channel: Transport, capabilities: Mapping[str, Any], newest: str = HANDSHAKE_VERSIONS[-1]
) -> Peer:
    raw = await channel.request(
        "initialize",
        {"protocolVersion": newest, "capabilities": capabilities, "clientInfo": CLIENT_INFO},
        # Older servers ignore it; one of the 2026 era, which may be asked for a handshake, looks at it.
        headers={"Mcp-Method": "initialize"},
        cancellable=False,
    )
    version = raw.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        raise Incompatible(_no_common([str(version)]))
    channel.settle(version, modern=False)
    await channel.tell("notifications/initialized")
    return Peer(
        era="legacy",
        protocol=version,
        info=wire.info(raw, version),
        instructions=_instructions(raw),
        raw=raw,
    )


def _instructions(raw: Mapping[str, Any]) -> str | None:
    text = raw.get("instructions")
    return text if isinstance(text, str) and text else None


def _supported(data: Any) -> list[str]:
    return _texts(cast("dict[str, Any]", data).get("supported")) if isinstance(data, dict) else []


def _texts(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def _no_common(theirs: list[str]) -> str:
    ours = ", ".join((*HANDSHAKE_VERSIONS, *MODERN_VERSIONS))
    return f"no common protocol version: the server speaks {', '.join(theirs)}; mooring speaks {ours}"
