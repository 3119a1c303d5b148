"""What distinguishes one way of running or reaching a server from another: fingerprints, and the steps
from one configuration to the next."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mooring.config import validate
from mooring.config.models import HostConfig, ServerConfig
from mooring.core.value import Value, replace

__all__ = ["Changes", "Plan", "fingerprint", "plan", "reached"]

_SAFE = ("transport", "command", "args", "cwd", "inherit_env")
_SHAPE = ("env", "headers", "auth")


def fingerprint(server: ServerConfig) -> str:
    """A hash of what decides what is run or reached: it may be stored and shown.

    Literal values of `env`, `headers`, `auth` and of the URL's query are left out, since a short
    secret could be found again by hashing guesses; their names and the references in them are in.
    `command`, `args` and the rest of the URL are in as written: they *are* what is run or reached,
    and any process may see them anyway. So two servers that differ only in a literal value share a
    fingerprint: to notice such an edit, compare the values themselves, as `plan` does.
    """
    launch: dict[str, Any] = {name: getattr(server, name) for name in _SAFE}
    launch |= {name: validate.reference_names(getattr(server, name)) for name in _SHAPE}
    if server.url is not None:
        parts = urlsplit(server.url)
        query = [
            (name, validate.reference_names(value))
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        ]
        launch["url"] = [parts._replace(query="", fragment="").geturl(), query]
    return hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()


class Plan(Value):
    """What turns the running servers into the wanted ones. Entries are the new ones; `stop` holds names."""

    start: tuple[ServerConfig, ...] = ()
    stop: tuple[str, ...] = ()
    restart: tuple[ServerConfig, ...] = ()
    """The connection itself is another one."""
    keep: tuple[ServerConfig, ...] = ()
    """The connection stays; what governs its use (filters, time-outs) may have changed."""


class Changes:
    """The servers of a configuration, and what was added to and removed from them while a host runs."""

    def __init__(self, servers: Iterable[ServerConfig]) -> None:
        self._written = {server.name: server for server in servers}
        self._changed: dict[str, ServerConfig | None] = {}
        """By name: the server that is there instead of the written one; None: it was removed."""

    def note(self, name: str, server: ServerConfig | None) -> None:
        """Remember that a server was added, or removed (None)."""
        self._changed[name] = server

    def over(self, servers: Iterable[ServerConfig]) -> Changes:
        """Return the same changes over what is written now, without those whose entry was rewritten."""
        new = Changes(servers)
        for name, server in self._changed.items():
            if self._written.get(name) == new._written.get(name):
                new._changed[name] = server
        return new

    @property
    def applied(self) -> tuple[ServerConfig, ...]:
        """The servers with the changes made."""
        result = {**self._written, **self._changed}
        return tuple(server for server in result.values() if server is not None)


def reached(server: ServerConfig, host: HostConfig) -> ServerConfig:
    """The server with the host's own `tls` and `proxy` where it has none."""
    if server.url is None or (host.tls is None and host.proxy is None):
        return server
    from mooring.core.addresses import host_realm

    here = host_realm(urlsplit(server.url).hostname or "") == "loopback"
    default = None if here else host.proxy  # a proxy's loopback is not ours
    tls = host.tls if server.tls is None else server.tls
    return replace(server, tls=tls, proxy=server.proxy or default)


_CONNECTION = (*_SAFE, *_SHAPE, "url", "tls", "proxy", "isolation", "max_message", "protocol")


def plan(old: HostConfig, new: HostConfig) -> Plan:
    """The steps from the active servers of `old` to those of `new`; only what changed reconnects."""
    before = {server.name: server for server in old.active}
    after = {server.name: server for server in new.active}
    both = [(before[name], server) for name, server in after.items() if name in before]

    def same(one: ServerConfig, two: ServerConfig) -> bool:
        one, two = reached(one, old), reached(two, new)
        return all(getattr(one, name) == getattr(two, name) for name in _CONNECTION)

    return Plan(
        start=tuple(server for name, server in after.items() if name not in before),
        stop=tuple(name for name in before if name not in after),
        restart=tuple(two for one, two in both if not same(one, two)),
        keep=tuple(two for one, two in both if same(one, two)),
    )
