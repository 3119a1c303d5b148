"""Changes of a running host, for the admin API and the console: servers on and off, approval of changes;
and one answer of those of several workers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.config.logs import logger
from mooring.config.models import ServerConfig
from mooring.core.text import nearest
from mooring.core.transforms import described, transformed
from mooring.core.types import Tool
from mooring.core.value import replace
from mooring.errors import MooringError, UnknownServer
from mooring.gateway.web import Denied
from mooring.host import Host, runtime_of
from mooring.lock.diff import Change, describe

if TYPE_CHECKING:
    from mooring.servers.connection import Connection

__all__ = [
    "Combine",
    "HostAdmin",
    "all_lines",
    "all_principals",
    "all_servers",
    "all_sessions",
    "first",
    "last_lines",
    "lock_changes",
    "unlocked",
]

log = logger("mooring.gateway")

TAIL = 2 * 2**20
"""Bytes of the audit log that are searched for the last lines."""
LONGEST_DEFINITION = 16_384
"""Characters of a definition in the document of a change."""


class HostAdmin:
    """Changes a running host. One change is made after the other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turn = asyncio.Lock()

    def server(self, name: str) -> ServerConfig:
        """Return the configuration of a server.

        Raises:
            UnknownServer: There is none.
        """
        servers = self._host.config.servers
        for server in servers:
            if server.name == name:
                return server
        raise UnknownServer(name[:80], nearest(name[:80], [one.name for one in servers]))

    async def switch(self, name: str, steps: Sequence[bool]) -> str:
        """Disable or enable a server until the configuration is next reloaded; return its state.

        Args:
            name: The server.
            steps: Values of `disabled`, applied in order: True and False reconnect it.
        """
        self.server(name)
        async with self._turn:
            for disabled in steps:
                config = self._host.config
                servers = tuple(
                    replace(one, disabled=disabled) if one.name == name else one for one in config.servers
                )
                await self._host.apply(replace(config, servers=servers))
        return next(status.state for status in self._host.status() if status.name == name)

    async def approve(self, name: str, tool: str | None, revision: object, by: str) -> int:
        """Approve what the caller saw; return the number of changes that are left.

        Args:
            name: The server.
            tool: One tool by the server's own name; None: everything.
            revision: The revision of the changes as they were listed; it must still be the current one.
            by: The principal, for the log.

        Raises:
            Denied: The server is not connected, has no lock or has not changed, or the revision is another
                one.
        """
        runtime = runtime_of(self._host)
        async with self._turn:
            connection = runtime.servers.connections.get(self.server(name).name)
            if connection is None or connection.state != "connected":
                raise Denied(409, f"the server {name!r} is not connected")
            pins, snapshot = runtime.builder.pins, connection.snapshot
            if not pins.covers(connection.config):
                raise Denied(409, f"there is no lock for {name!r}, so nothing is blocked; see `mooring lock`")
            changes = pins.changes(connection.config, snapshot)
            if not changes:
                raise Denied(409, f"{name!r} has not changed since it was approved")
            if change_document(self._host, name, changes)["revision"] != revision:
                raise Denied(409, "the changes are no longer the same; list them again")
            await asyncio.to_thread(pins.approve, connection.config, snapshot, tool)
            log.info("lock approved server=%r tool=%r by=%r", name, tool, by)
            await self._host.refresh(name)
        return len(pins.changes(connection.config, connection.snapshot))


def lock_changes(host: Host, *, complete: bool = False) -> list[dict[str, Any]]:
    """Return the changes of each connected server since it was approved.

    Args:
        host: The host.
        complete: With both definitions of a changed tool, and with suspicious texts of the server.
    """
    runtime = runtime_of(host)
    found: list[dict[str, Any]] = []
    for name, connection in sorted(runtime.servers.connections.items()):
        if connection.state != "connected":
            continue
        changes = runtime.builder.pins.changes(connection.config, connection.snapshot)
        if not changes:
            continue
        row = change_document(host, name, changes)
        row["transforms"] = _transforms(host, connection, {one.name for one in changes})
        if complete:
            from mooring.core.injection_scan import injection_warnings

            both = [{"before": _definition(one.before), "after": _definition(one.after)} for one in changes]
            more = host.redact.within(both)
            row["changes"] = [{**one, **two} for one, two in zip(row["changes"], more, strict=True)]
            row["findings"] = list(injection_warnings(connection.snapshot))[:50]
        found.append(row)
    return found


def unlocked(host: Host) -> list[str]:
    """Return the servers that no lock covers."""
    pins = runtime_of(host).builder.pins
    return sorted(server.name for server in host.config.servers if not pins.covers(server))


def _transforms(host: Host, connection: Connection, changed: Collection[str]) -> list[dict[str, Any]]:
    """Return how clients see the changed tools that have a transform."""
    config = connection.config
    profiles = {name: profile.transforms for name, profile in host.config.gateway.profiles.items()}
    shown = transformed(config.name, connection.snapshot.tools, config.transforms, profiles)
    return [
        {"tool": tool.remote_name, "profile": profile or None, "text": "\n".join(described(tool))}
        for profile, tool in shown
        if tool.remote_name in changed
    ]


def change_document(host: Host, name: str, changes: Sequence[Change]) -> dict[str, Any]:
    """Return the changes of one server with their revision; approvals name it."""
    rows = [
        {"subject": one.subject, "name": one.name, "kind": one.kind, "text": describe(one)} for one in changes
    ]
    revision = sha256(json.dumps(rows).encode()).hexdigest()[:16]
    return host.redact.within({"server": name, "revision": revision, "changes": rows})


def _definition(entry: object) -> str | None:
    """Return the definition of a tool as JSON text; None for anything else."""
    if not isinstance(entry, Tool):
        return None
    parts = {
        "title": entry.title,
        "description": entry.description,
        "input_schema": entry.input_schema,
        "output_schema": entry.output_schema,
        "annotations": entry.annotations,
    }
    text = json.dumps({key: value for key, value in parts.items() if value}, indent=2, default=dict)
    return text if len(text) <= LONGEST_DEFINITION else f"{text[:LONGEST_DEFINITION]}…"


def last_lines(path: str, limit: int) -> list[Any]:
    """Return the last lines of a file of JSON lines; lines that are none are left out."""
    try:
        with Path(path).expanduser().open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL, 0))
            data = file.read(TAIL)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise MooringError(f"The audit log cannot be read: {problem.strerror}") from None
    found: list[Any] = []
    for line in data.splitlines()[-limit:]:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


Combine = Callable[[list[Any], Callable[[], int]], Any]
"""Makes one answer of those of all workers; the second argument returns the limit of the request."""


def first(answers: list[Any], _: Callable[[], int]) -> Any:
    return answers[0]


def all_servers(answers: list[Any], _: Callable[[], int]) -> Any:
    """Sums over the workers; the state is that of a worker where it is not connected, if there is one."""
    rows: dict[str, dict[str, Any]] = {}
    for row in (row for answer in answers for row in answer["servers"]):
        known = rows.get(row["name"])
        if known is None:
            rows[row["name"]] = dict(row)
            continue
        counted = {key: known[key] + row[key] for key in ("running", "waiting", "processes", "connects")}
        rows[row["name"]] = {**(known if known["state"] != "connected" else row), **counted}
    return {**answers[0], "servers": list(rows.values())}


def all_sessions(answers: list[Any], _: Callable[[], int]) -> Any:
    return {"sessions": [row for answer in answers for row in answer["sessions"]]}


def all_principals(answers: list[Any], _: Callable[[], int]) -> Any:
    rows: dict[str, dict[str, Any]] = {}
    for row in (row for answer in answers for row in answer["principals"]):
        known = rows.setdefault(row["name"], {**row, "sessions": 0})
        known["sessions"] += row["sessions"]
        known["last_used"] = max(known["last_used"] or 0, row["last_used"] or 0) or None
    return {"principals": [rows[name] for name in sorted(rows)]}


def all_lines(answers: list[Any], limit: Callable[[], int]) -> Any:
    lines = [line for answer in answers for line in answer["lines"]]
    return {"lines": sorted(lines, key=lambda line: line["time"])[-limit() :]}
