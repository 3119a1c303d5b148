"""Fingerprints of server configurations, and the steps from one configuration to the next."""

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
    """Return a hash of what is run or reached. It is safe to store and show.

    Literal values of `env`, `headers`, `auth` and of the URL's query are excluded, because short secrets
    could be guessed; their names and references are included, as are `command`, `args` and the rest of the
    URL. Servers that differ only in an excluded value have the same fingerprint; `plan` compares the values.
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
    """Steps from the running servers to the new ones. `stop` contains names."""

    start: tuple[ServerConfig, ...] = ()
    stop: tuple[str, ...] = ()
    restart: tuple[ServerConfig, ...] = ()
    """Servers that must reconnect."""
    keep: tuple[ServerConfig, ...] = ()
    """Servers whose connection stays; filters or timeouts may have changed."""


class Changes:
    """The servers of a configuration, with those added and removed at run time."""

    def __init__(self, servers: Iterable[ServerConfig]) -> None:
        self._written = {server.name: server for server in servers}
        self._changed: dict[str, ServerConfig | None] = {}
        """Changes by name: the server that replaces the configured one; None if removed."""

    def note(self, name: str, server: ServerConfig | None) -> None:
        """Record an added server, or a removed one (None)."""
        self._changed[name] = server

    def over(self, servers: Iterable[ServerConfig]) -> Changes:
        """Return the changes applied to a new configuration, without servers whose entry changed."""
        new = Changes(servers)
        for name, server in self._changed.items():
            if self._written.get(name) == new._written.get(name):
                new._changed[name] = server
        return new

    @property
    def applied(self) -> tuple[ServerConfig, ...]:
        """The servers with the changes applied."""
        result = {**self._written, **self._changed}
        return tuple(server for server in result.values() if server is not None)


def reached(server: ServerConfig, host: HostConfig) -> ServerConfig:
    """Return the server with the host's `tls` and `proxy` where it has none."""
    if server.url is None or (host.tls is None and host.proxy is None):
        return server
    from mooring.core.addresses import host_realm

    here = host_realm(urlsplit(server.url).hostname or "") == "loopback"
    default = None if here else host.proxy  # the loopback of a proxy is another machine
    tls = host.tls if server.tls is None else server.tls
    return replace(server, tls=tls, proxy=server.proxy or default)


_CONNECTION = (*_SAFE, *_SHAPE, "url", "tls", "proxy", "isolation", "max_message", "protocol")


def plan(old: HostConfig, new: HostConfig) -> Plan:
    """Return the steps from the active servers of `old` to those of `new`."""
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
