"""The resources of all servers: found, read at most once at a time, kept for a while, watched."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mooring import clock
from mooring.core.cache import Cache
from mooring.core.catalog import Catalog
from mooring.core.config import HostConfig
from mooring.core.near import nearest
from mooring.core.types import EMPTY, Contents, Resource, ResourceTemplate
from mooring.core.untrusted import line
from mooring.core.values import Value
from mooring.errors import (
    AmbiguousResource,
    CallTimeout,
    PolicyDenied,
    ServerError,
    UnknownResource,
)
from mooring.fleet import Fleet
from mooring.muster import gather

if TYPE_CHECKING:
    from mooring.audit import Audit

__all__ = ["ResourceList", "Resources"]

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
        fleet: Fleet,
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
        end = None if timeout is None else clock.monotonic() + timeout
        key = (server or await self._owner_of(uri, timeout), uri)
        await self.check(key)
        while True:
            if (kept := self._cache.get(key, clock.monotonic())) is not None:
                return kept
            left = None if end is None else max(end - clock.monotonic(), 0.0)
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
        from mooring.net import wire

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
            self._cache.put(key, contents, clock.monotonic() + ttl)

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
        from mooring.core.templates import matches

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
