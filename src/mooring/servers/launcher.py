"""Creates connections: shared resources, and the headers of one session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mooring.concurrency import call_back
from mooring.config import GetSecret, default_lookup
from mooring.config.logs import guard
from mooring.config.models import HostConfig, ServerConfig, Target
from mooring.config.plan import reached
from mooring.config.validate import check_headers, map_of_text
from mooring.core.events import Event
from mooring.core.redact import Redactor
from mooring.core.types import EMPTY, CachedSnapshot, Snapshot
from mooring.core.value import replace
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.auth.login import OnAuth
    from mooring.servers.active import Guard
    from mooring.servers.connection import Connection
    from mooring.servers.elicitation import ElicitationHandler, OnElicit
    from mooring.servers.start_queue import StartLimit
    from mooring.transport.forwarding import ClientBridge
    from mooring.transport.pool import HttpPool


OwnHeaders = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Headers, or a function that returns them for each new connection, because tokens expire."""


def identity_of(headers: OwnHeaders | None) -> Hashable:
    """Return a key for an identity, for comparison only. It must not be shown."""
    return headers if headers is None or callable(headers) else frozenset(headers.items())


def checked(headers: OwnHeaders) -> Mapping[str, str]:
    """Return the current headers.

    Raises:
        ConfigError: They cannot be sent. The message contains no value.
    """
    try:
        return check_headers(map_of_text(headers() if callable(headers) else headers))
    except ValueError as problem:
        raise ConfigError(f"the headers of a session: {problem}") from None


def speaking_as(headers: OwnHeaders, target: Target) -> Target:
    """Return the target with these headers over the configured ones. Each value is a secret."""
    own = checked(headers)
    names = {name.lower() for name in own}
    others = {name: value for name, value in target.headers.items() if name.lower() not in names}
    return replace(target, headers={**others, **own}, secrets=(*_parts(own.values()), *target.secrets))


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values to redact: each one, and without its scheme, longest first."""
    parts = {part for value in values for part in (value, value.rpartition(" ")[2]) if len(part) > 3}
    return tuple(sorted(parts, key=len, reverse=True))


class Launcher:
    """Creates connections without starting them. The network code is imported with the first one."""

    def __init__(
        self,
        *,
        get_secret: GetSecret | None,
        publish: Callable[[Snapshot], Guard | None],
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        on_auth: OnAuth | None,
        on_elicit: OnElicit | None,
        relay: ClientBridge | None,
        max_starting: int | None,
        extensions: Mapping[str, Any] = EMPTY,
    ) -> None:
        """
        Args:
            extensions: Extensions that the application supports, beside those in the configuration.
        """
        self.config = HostConfig()
        """Settings for all servers, such as the proxy."""
        self.redact = Redactor()
        guard(self.redact)
        self._get_secret = get_secret
        self._publish = publish
        self._emit = emit
        self._stale = stale
        self._on_auth, self._on_elicit, self._relay = on_auth, on_elicit, relay
        self.guard: Callable[[Snapshot], Guard | None] = lambda snapshot: None
        """Returns the guard for the listing of a connection that is not published to the catalog."""
        self._questions: ElicitationHandler | None = None
        self._pool: HttpPool | None = None
        self._max_starting = max_starting
        self._extensions = extensions
        self._starts: StartLimit | None = None

    def connection(
        self,
        server: ServerConfig,
        *,
        enabled: bool,
        known: CachedSnapshot | None = None,
        publish: Callable[[Snapshot], Guard | None] | None = None,
        emit: Callable[[Event], None] | None = None,
        headers: OwnHeaders | None = None,
    ) -> Connection:
        """Return a connection to a server, with headers of its own if there are any."""
        if enabled and server.command and server.start != "lazy":
            from mooring.transport import subreaper_client

            subreaper_client.prepare()  # it starts while the imports below run
        from mooring.servers.connection import Connection
        from mooring.servers.elicitation import ElicitationHandler
        from mooring.servers.start_queue import StartLimit
        from mooring.transport.pool import HttpPool

        if self._starts is None:
            self._starts = StartLimit(self._starting)
        if self._pool is None:
            self._pool = HttpPool()
        if self._pool.cipher is None and (keys := self.config.gateway.key):
            from mooring.auth.cipher import LoginCipher

            self._pool.cipher = LoginCipher(*keys)
        if self._questions is None:
            self._questions = ElicitationHandler(self._on_elicit, self._relay, self.extensions)
        return Connection(
            server,
            enabled=enabled,
            known=known,
            resolve=self._target if headers is None else partial(self._own_target, headers),
            redact=self.redact,
            pool=self._pool,
            publish=publish or self._publish,
            emit=emit or self._emit,
            on_auth=self._on_auth,
            stale=self._stale,
            questions=self._questions,
            starts=self._starts,
            guard=self.guard,
        )

    def extensions(self) -> dict[str, Any]:
        """Return the extensions that are declared to servers: those that mooring implements without the
        application, and those that the application or the configuration names. A host with gateway clients
        declares what the gateway can pass on."""
        from mooring.core.apps import ALL_MIME_TYPES
        from mooring.core.extensions import SKILLS, UI

        bridged = {UI: ALL_MIME_TYPES} if self._relay is not None and self._relay.capabilities else {}
        named = {**self.config.extensions, **self._extensions}
        return {SKILLS: {}, **bridged, **{name: dict(settings) for name, settings in named.items()}}

    def _starting(self) -> int:
        """Limit the number of servers that start at once."""
        from mooring.servers.start_queue import default_limit

        return self._max_starting or self.config.max_starting or default_limit()

    async def close(self) -> None:
        """Close the resources that connections share, after the connections."""
        if self._pool is not None:
            await self._pool.close()
        if "mooring.transport.subreaper_client" in sys.modules:
            from mooring.transport import subreaper_client

            await subreaper_client.dismiss()

    async def _target(self, server: ServerConfig) -> Target:
        from mooring.config.secrets import resolve_within

        server = reached(server, self.config)
        lookup = default_lookup(os.environ, self._get_secret, source=server.source)
        slow = self._get_secret is not None
        target = await resolve_within(server.connect_timeout, server, lookup, slow=slow)
        self.redact.learn(target.secrets)
        return target

    async def _own_target(self, headers: OwnHeaders, server: ServerConfig) -> Target:
        target = await self._target(server)
        # A function may fetch a token, and must not block the event loop.
        target = speaking_as(await call_back(headers) if callable(headers) else headers, target)
        self.redact.learn(target.secrets)
        return target
