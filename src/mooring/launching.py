"""How a connection comes about: what all of them share, where each leads, and as whom it speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mooring.callbacks import call_back
from mooring.config import GetSecret, default_lookup
from mooring.config.logs import guard
from mooring.core.config import HostConfig, ServerConfig, Target
from mooring.core.events import Event
from mooring.core.known import Known
from mooring.core.plan import reached
from mooring.core.redact import Redactor
from mooring.core.types import Snapshot
from mooring.identity import OwnHeaders, speaking_as

if TYPE_CHECKING:
    from mooring.net.connection import Connection
    from mooring.net.live import Guard
    from mooring.net.login import OnAuth
    from mooring.net.passage import Relay
    from mooring.net.pool import HttpPool
    from mooring.net.questions import OnElicit, Questions
    from mooring.net.starts import StartLimit

__all__ = ["Launcher"]


class Launcher:
    """Makes connections, none of them started. The network code is imported with the first one."""

    def __init__(
        self,
        *,
        get_secret: GetSecret | None,
        publish: Callable[[Snapshot], Guard | None],
        emit: Callable[[Event], None],
        stale: Callable[[str, str | None], None],
        on_auth: OnAuth | None,
        on_elicit: OnElicit | None,
        relay: Relay | None,
        max_starting: int | None,
    ) -> None:
        self.config = HostConfig()
        """What holds for all servers, such as the way through a proxy."""
        self.redact = Redactor()
        guard(self.redact)
        self._get_secret = get_secret
        self._publish = publish
        self._emit = emit
        self._stale = stale
        self._on_auth, self._on_elicit, self._relay = on_auth, on_elicit, relay
        self.guard: Callable[[Snapshot], Guard | None] = lambda snapshot: None
        """The guard for what a connection lists that is not the catalog's."""
        self._questions: Questions | None = None
        self._pool: HttpPool | None = None
        self._max_starting = max_starting
        self._starts: StartLimit | None = None

    def connection(
        self,
        server: ServerConfig,
        *,
        enabled: bool,
        known: Known | None = None,
        publish: Callable[[Snapshot], Guard | None] | None = None,
        emit: Callable[[Event], None] | None = None,
        headers: OwnHeaders | None = None,
    ) -> Connection:
        """A connection to a server, with headers of its own if there are any."""
        if enabled and server.command and server.start != "lazy":
            from mooring.net import supervisor

            supervisor.prepare()  # it starts while the imports below run
        from mooring.net.connection import Connection
        from mooring.net.pool import HttpPool
        from mooring.net.questions import Questions
        from mooring.net.starts import StartLimit

        if self._starts is None:
            self._starts = StartLimit(self._starting)
        if self._pool is None:
            self._pool = HttpPool()
        if self._questions is None:
            self._questions = Questions(self._on_elicit, self._relay)
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

    def _starting(self) -> int:
        """How many servers may start at once."""
        from mooring.net.starts import default_limit

        return self._max_starting or self.config.max_starting or default_limit()

    async def close(self) -> None:
        """Let go of what the connections shared; they have ended before."""
        if self._pool is not None:
            await self._pool.close()
        if "mooring.net.supervisor" in sys.modules:
            from mooring.net import supervisor

            await supervisor.dismiss()

    async def _target(self, server: ServerConfig) -> Target:
        from mooring.config.resolving import resolve_within

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
