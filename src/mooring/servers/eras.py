"""Connections of one server in both protocol eras, and which tools need the handshake era."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mooring import concurrency
from mooring.config.files import cache_home, keep, kept
from mooring.config.logs import logger
from mooring.config.models import ServerConfig
from mooring.config.plan import fingerprint
from mooring.core.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS, era_of
from mooring.core.types import Era, Snapshot
from mooring.core.value import replace
from mooring.errors import AuthNeeded, MooringError, ServerError
from mooring.servers.active import Guard
from mooring.servers.negotiate import may_be_modern
from mooring.servers.requests import RequestSender
from mooring.servers.status import Permanent
from mooring.servers.supervisor import Supervisor
from mooring.transport.forwarding import FORWARDED
from mooring.transport.message import WireError

_KEPT = 512
_log = logger("mooring.eracache")


def recall_eras(server: ServerConfig) -> dict[str, str]:
    """Return the stored era of each tool of this server."""
    try:
        found: object = json.loads(kept(_path(server)) or b"{}")
    except (OSError, ValueError) as error:
        _log.debug("The era cache of server %r is ignored: %s", server.name, error)
        return {}
    if not isinstance(found, dict):
        return {}
    eras = cast("dict[str, Any]", found)
    return {tool: era for tool, era in eras.items() if era in ("legacy", "modern")}


def remember_eras(server: ServerConfig, eras: Mapping[str, str]) -> None:
    """Store the eras for the next start."""
    try:
        keep(_path(server), json.dumps(dict(eras)).encode(), most=_KEPT)
    except OSError as error:
        _log.debug("No era cache for server %r: %s", server.name, error)


def _path(server: ServerConfig) -> Path:
    unique = sha256(f"{server.name}\0{fingerprint(server)}".encode("utf-8", "surrogatepass")).hexdigest()
    return cache_home() / "eras" / f"{unique[:32]}.json"


log = logger("mooring.connection")


AGAIN_AFTER = 60.0
"""Seconds until the other era is tried again after it could not be connected."""
MOST_LEARNED = 1_000
INTERNAL_ERROR = -32603
NEWEST: Mapping[Era, str] = {"legacy": HANDSHAKE_VERSIONS[-1], "modern": MODERN_VERSIONS[-1]}
_WORDS: Mapping[Era, tuple[str, ...]] = {
    "modern": ("back-channel", "server-initiated request", "server-to-client requests are not available"),
    "legacy": ("handler returned an invalid result", "returned an input-required result"),
}
_WIRES = {"stdio": "stdio", "http": "streamable-http", "sse": "sse"}


def pid_of(supervisor: Supervisor) -> int | None:
    """Return the process id of the child of a connection, while one is running."""
    return getattr(getattr(supervisor.live and supervisor.live.channel, "child", None), "pid", None)


class EraConnections:
    """Selects the connection for each request, and owns the second one."""

    def __init__(
        self,
        main: RequestSender,
        make: Callable[[ServerConfig], Supervisor],
        guard: Callable[[Snapshot], Guard | None],
    ) -> None:
        self.main = main
        self._make = make
        self._guard = guard
        self._other: RequestSender | None = None
        self._running: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._seen: Snapshot | None = None
        self._only: dict[str, Era] = {}
        """Tools that only one of the two connections lists, and the era that it speaks."""
        self._not_before = 0.0
        self._learned: dict[str, Era] | None = None
        """Tools that could not elicit input in one era, and the era to use. Read on first use."""

    def processes(self) -> int:
        """Return the number of child processes for the other era."""
        return int(self._other is not None and pid_of(self._other.supervisor) is not None)

    @property
    def _config(self) -> ServerConfig:
        return self.main.supervisor.config

    def wanted(self, tool: str | None = None) -> Era | None:
        """Return the era that the caller of this task needs; None: any."""
        forwarded = FORWARDED.get()
        if forwarded is not None:
            era = forwarded.era
        else:
            era = "legacy" if tool is not None and self.main.supervisor.questions.asks else None
        if tool is None:
            return era
        if self._only and tool in self._only:
            return self._only[tool]
        return era if era is None else self.learned(tool, era)

    def learned(self, tool: str, era: Era) -> Era:
        """Return the era for calls of `tool` whose caller needs `era`."""
        if self._learned is None:
            self._learned = cast("dict[str, Era]", recall_eras(self._config))
        return self._learned.get(tool, era)

    async def sender(self, wanted: Era | None, end: float, tool: str | None = None) -> RequestSender:
        """Return the connection in this era, else the main one. Waits until `end`.

        A call of a `tool` that the second connection does not list goes to the main one.
        """
        main, config = self.main, self._config
        if wanted is None or config.protocol != "auto" or concurrency.monotonic() < self._not_before:
            return main
        if wanted == "legacy" and era_of(config.min_protocol) == "modern":
            return main
        live = main.supervisor.live
        if live is None:
            try:
                live = await main.live(end)
            except (WireError, MooringError):
                return main  # the main one raises the error
        if live.peer.era == wanted or live.peer.single:
            return main
        other = self._other
        if other is None or other.supervisor.live is None:
            other = await self._opened(wanted, end)
        if other is None or (tool is not None and self._main_only(tool, live.peer.era)):
            return main
        return other

    def _main_only(self, tool: str, era: Era) -> bool:
        """Whether only the main connection lists the tool. It then lists again before the call."""
        if self._seen is None or any(one.remote_name == tool for one in self._seen.tools):
            return False
        if tool not in self._only:
            self._only = {**self._only, tool: era}
            self.main.supervisor.lists.mark_dirty()
        return True

    async def asking_by_result(
        self, tool: str | None, sender: RequestSender, problem: ServerError, end: float
    ) -> RequestSender | None:
        """Return the connection to retry a request on that failed because it returned `input_required`.

        The handshake era does not have that. None for any other failure, and without such a connection. For
        prompts, resources and tools that the configuration calls idempotent only: a server of the SDK
        reports any invalid result in the same words, and its tool has run by then. Later calls of `tool`
        use the 2026 era at once, even if this one fails again.
        """
        live = sender.supervisor.live
        if live is None or live.peer.era != "legacy" or problem.code != INTERNAL_ERROR:
            return None
        if not _could_not_ask("legacy", problem.said):
            return None
        other = await self.sender("modern", end)
        if other is sender or other.supervisor.live is None or other.supervisor.live.peer.era != "modern":
            return None
        if tool is not None and len(self._learned or ()) < MOST_LEARNED:
            self._remember(tool, "modern")
        return other

    def learn(self, tool: str, sender: RequestSender, said: str) -> str | None:
        """Return a hint for the error of a call whose tool cannot elicit input in this era.

        The next call of the tool uses the other era. This call is not repeated: it may have had effects
        before the elicitation.
        """
        live, wanted = sender.supervisor.live, self.wanted(tool)
        if wanted is None or live is None or not _could_not_ask(live.peer.era, said):
            return None
        other: Era = "legacy" if live.peer.era == "modern" else "modern"
        newest = NEWEST[other]
        if self._config.protocol != "auto":
            then = f"Set `protocol: {newest}`, or leave it out, for server {self._config.name!r}."
        elif (sender is self.main and live.peer.single) or len(self._learned or ()) >= MOST_LEARNED:
            return None
        else:
            self._remember(tool, other)
            then = (
                f"Later calls of it use {newest}. To use that from the first call on, set "
                f"`protocol: {newest}` for server {self._config.name!r}."
            )
        asks = "asks" if live.peer.era == "modern" else "may ask"  # any invalid result is reported like this
        return (
            f"The tool {asks} its user in a way that protocol {live.peer.protocol} does not have. The call "
            f"was not repeated, because it may have had effects. {then}"
        )

    def _remember(self, tool: str, era: Era) -> None:
        self._learned = {**(self._learned or {}), tool: era}
        remember_eras(self._config, self._learned)

    async def watch(self, uri: str, *, wanted: bool) -> None:
        """Subscribe to a resource on the second connection, too, or unsubscribe, if it is another process."""
        live = None if self._other is None else self._other.supervisor.live
        if live is None or live.channel.kind != "stdio":
            return
        watching = self._other and self._other.supervisor.notices.watching
        if watching:
            with suppress(WireError):
                await (watching.add(uri) if wanted else watching.remove(uri))

    async def idle(self) -> None:
        """Wait until no request is running on the second connection."""
        if self._other is not None:
            await self._other.idle()

    async def stop(self) -> None:
        """End the second connection."""
        other, self._other = self._other, None
        self._seen, self._only = None, {}
        if other is not None:
            await other.supervisor.stop()

    # --- inside ---------------------------------------------------------------------------------

    async def _opened(self, era: Era, end: float) -> RequestSender | None:
        """Return the second connection when it is connected; None if the server cannot have one."""
        async with self._opening:
            if self._other is None:
                if concurrency.monotonic() < self._not_before or not await self._may_speak(era):
                    return None
                self._start(era)
            other = self._other
            assert other is not None
            try:
                await other.supervisor.connected(end - concurrency.monotonic())
            except AuthNeeded:
                return None  # the main connection reports it
            except MooringError as problem:
                log.info("%s has no second connection in the %s era: %s", self._config.name, era, problem)
                await self.stop()
                alone = isinstance(problem, Permanent)
                self._not_before = math.inf if alone else concurrency.monotonic() + AGAIN_AFTER
                return None
        return other

    async def _may_speak(self, era: Era) -> bool:
        """Whether to try it: a second child process is started only if the server may speak the era."""
        live = self.main.supervisor.live
        if live is None or self.main.supervisor.place is not None:  # it may run once only
            return False
        if era == "legacy" or live.channel.kind != "stdio" or await may_be_modern(live.channel):
            return True
        self._not_before = math.inf
        return False

    def _start(self, era: Era) -> None:
        main = self.main.supervisor
        assert main.live is not None
        wire = _WIRES[main.live.channel.kind]
        supervisor = self._make(
            replace(self._config, protocol=NEWEST[era], start="background", transport=wire, min_protocol=None)
        )
        supervisor.access, supervisor.principal, supervisor.lease = main.access, main.principal, main.lease
        supervisor.privately(main.session, self._listed)
        if wire == "stdio":  # another process: the first one does not know about its changes
            supervisor.notices.watched = main.notices.watched
            main.extend = self._whole
        self._other = RequestSender(supervisor, gate=self.main.gate)
        self._running = asyncio.create_task(supervisor.run())

    def _listed(self, snapshot: Snapshot) -> Guard | None:
        if self._seen is not None and self._seen != snapshot:
            # The server announces the change only on this connection.
            self.main.supervisor.lists.mark_dirty()
            there, listed = era_of(snapshot.info.protocol), {tool.remote_name for tool in snapshot.tools}
            self._only = {tool: era for tool, era in self._only.items() if era == there or tool not in listed}
        self._seen = snapshot
        return self._guard(snapshot)

    def _whole(self, snapshot: Snapshot) -> Snapshot:
        """Return the listing of the main process with the tools that only the second process lists: each may
        add and remove tools. Calls of such a tool go to the process that lists it."""
        if self._other is None or self._seen is None:
            return snapshot
        own, other = ({tool.remote_name: tool for tool in one.tools} for one in (snapshot, self._seen))
        there: Era = era_of(self._seen.info.protocol) or "modern"
        here: Era = "legacy" if there == "modern" else "modern"
        self._only = dict.fromkeys(other.keys() - own.keys(), there)
        self._only |= dict.fromkeys(own.keys() - other.keys(), here)
        more = tuple(tool for name, tool in other.items() if name not in own)
        # Servers may declare their extensions in the modern era only.
        declared = self._seen.extensions if there == "modern" else ()
        extensions = {one.name: one for one in (*snapshot.extensions, *declared)}
        found = tuple(extensions[name] for name in sorted(extensions))
        if not more and found == snapshot.extensions:
            return snapshot
        return replace(snapshot, tools=(*snapshot.tools, *more), extensions=found)


def _could_not_ask(era: Era, said: str) -> bool:
    """Whether a call failed because its tool elicits input as in the other era, by the SDKs' messages."""
    return any(words in said.lower() for words in _WORDS[era])
