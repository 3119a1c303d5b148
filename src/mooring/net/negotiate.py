"""Which protocol a server speaks: found out once, remembered, and stamped on each request.

Modern (2026-07-28): `server/discover`, then every request carries what it needs. Legacy: `initialize`.
A server that answers the probe with anything but modern evidence, or with silence, is legacy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from mooring import __version__
from mooring.core.types import ServerInfo, Snapshot
from mooring.net import wire
from mooring.net.message import WireError
from mooring.net.passage import ABILITIES
from mooring.net.rpc import Channel

Era = Literal["modern", "legacy"]

MODERN_VERSIONS = ("2026-07-28",)
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
UNSUPPORTED_VERSION = -32022
MODERN_CODES = (-32020, -32021, UNSUPPORTED_VERSION)
CLIENT_INFO: Mapping[str, str] = {"name": "mooring", "version": __version__}
_META = "io.modelcontextprotocol/"
TASKS = f"{_META}tasks"


def era_of(protocol: str | None) -> Era | None:
    """The era of a protocol version."""
    if protocol is None:
        return None
    return "modern" if protocol in MODERN_VERSIONS else "legacy"


class Incompatible(Exception):
    """The two sides share no version; trying again is useless."""


def refuse_older(peer: Peer, least: str | None) -> None:
    """Raise `Incompatible` when what was agreed is older than the configuration allows."""
    if least is not None and peer.protocol < least:
        raise Incompatible(
            f"no common protocol version: the server speaks {peer.protocol}; its `min_protocol` is {least}"
        )


def doubted(snapshot: Snapshot, seen: str | None) -> Snapshot:
    """The snapshot, with a warning if the server spoke a newer era before: somebody may stand in between."""
    now = snapshot.info.protocol
    if era_of(seen) != "modern" or era_of(now) != "legacy":
        return snapshot
    warning = (
        f"{snapshot.server}: it spoke protocol {seen} before and only {now} now; if nobody has put an older "
        f"version there, somebody may stand in between: `min_protocol: {seen}` refuses that"
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


async def negotiate(
    channel: Channel, *, era: Era | None, probe_timeout: float, capabilities: Mapping[str, Any]
) -> Peer:
    """The agreement with the server at the other end; `era` is what it was last time.

    Raises:
        Incompatible: no common version.
        WireError: the server cannot be reached, is gone, or refuses both ways.
    """
    if era == "legacy":
        return await _handshake(channel, capabilities)
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


async def _either(probe: asyncio.Future[Peer], channel: Channel, capabilities: Mapping[str, Any]) -> Peer:
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


async def _after_refused_probe(fault: WireError, channel: Channel, capabilities: Mapping[str, Any]) -> Peer:
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


async def _discover(channel: Channel, version: str, capabilities: Mapping[str, Any]) -> Peer:
    meta: dict[str, Any] = {
        f"{_META}protocolVersion": version,
        f"{_META}clientInfo": CLIENT_INFO,
        # Answers that come later are an extension: without a word of it no server gives one.
        f"{_META}clientCapabilities": {**capabilities, "extensions": {TASKS: {}}},
    }
    headers = {"MCP-Protocol-Version": version}
    raw = await channel.request(
        "server/discover",
        {"_meta": meta},
        headers={**headers, "Mcp-Method": "server/discover"},
        cancellable=False,
    )
    theirs = _texts(raw.get("supportedVersions"))
    if version not in theirs:
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
        listing={**meta, f"{_META}clientCapabilities": {**ABILITIES, "extensions": {TASKS: {}}}},
        headers=headers,
    )


async def _handshake(channel: Channel, capabilities: Mapping[str, Any]) -> Peer:
    raw = await channel.request(
        "initialize",
        {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": capabilities, "clientInfo": CLIENT_INFO},
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
