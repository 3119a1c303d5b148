"""Notifications to clients about changed lists and resources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mooring.config.logs import logger
from mooring.core.events import CatalogChanged, ConfigApplied, ResourceUpdated
from mooring.core.extensions import qualified, qualified_file
from mooring.gateway.clients import Client, Outbox, SessionRegistry
from mooring.gateway.profiles import Profile, ProfileCatalog
from mooring.gateway.protocol import (
    INVALID_PARAMS,
    SUBSCRIPTION,
    Refusal,
    fields,
    notice_body,
    result_body,
    stamped,
)
from mooring.servers.active import LEVELS, USUAL, more_verbose, set_level
from mooring.transport.message import RequestId

if TYPE_CHECKING:
    from mooring.gateway.app import Gateway

__all__ = ["LogLevels", "Subscriptions"]

log = logger("mooring.gateway")

KINDS: Mapping[str, str] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
}
_METHODS: Mapping[str, tuple[str, ...]] = {
    "toolsListChanged": ("tools/list",),
    "resourcesListChanged": ("resources/list", "resources/templates/list"),
    "promptsListChanged": ("prompts/list",),
}
UPDATED = "notifications/resources/updated"


@dataclass(slots=True, eq=False)
class _Listener:
    """One `subscriptions/listen` request."""

    client: Client
    id: RequestId
    outbox: Outbox
    kinds: frozenset[str]
    uris: frozenset[str]

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        stamp = {**fields(params.get("_meta")), SUBSCRIPTION: self.id}
        self.outbox.put(notice_body(method, {**params, "_meta": stamp}))


class Subscriptions:
    """The listeners, and the contents of each profile at the last notification."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._listeners: set[_Listener] = set()
        self._last: dict[Profile, ProfileCatalog] = {}

    async def run(self) -> None:
        """Forward events of the host until it closes."""
        for profile in self._gateway.watched_profiles():
            self.follow(profile)
        async for event in self._gateway.host.events(CatalogChanged, ConfigApplied, ResourceUpdated):
            if isinstance(event, ResourceUpdated):
                self.updated(event.server, event.uri, event.session)
            else:
                self.changed()

    def follow(self, profile: Profile) -> None:
        """Compare the lists of a new profile with those that it has now."""
        self._last[profile] = profile.contents

    def changed(self) -> None:
        """Notify the clients of each profile whose lists changed."""
        for profile in self._gateway.watched_profiles():
            old, new = self._last.get(profile), profile.contents
            self._last[profile] = new
            if old is None or old is new:
                continue
            kinds = [
                kind
                for kind, same in (
                    (
                        "toolsListChanged",
                        (old.catalog.tools, old.catalog.app_tools)
                        == (new.catalog.tools, new.catalog.app_tools),
                    ),
                    (
                        "resourcesListChanged",
                        (old.resources, old.templates) == (new.resources, new.templates),
                    ),
                    ("promptsListChanged", old.prompts == new.prompts),
                )
                if not same
            ]
            for kind in kinds:
                self._notify(profile, kind, new)

    def _notify(self, profile: Profile, kind: str, new: ProfileCatalog) -> None:
        for client in self._gateway.registry:
            listed = [client.listed[method]() for method in _METHODS[kind] if method in client.listed]
            knows = bool(listed) and all(contents is new for contents in listed)
            if client.profile is profile and not client.silenced and not knows:
                client.notify(KINDS[kind])
        for listener in list(self._listeners):
            if listener.client.profile is profile and kind in listener.kinds:
                listener.notify(KINDS[kind], {})

    def updated(self, server: str, uri: str, session: str | None) -> None:
        """Notify subscribers of a changed resource of a server: all of them, or those of one session."""
        shown = {uri, qualified(uri, server), qualified_file(uri, server)}

        def used_by(client: Client) -> set[str]:
            if session not in (None, client.session.id):
                return set()
            return {one for one in shown if client.subscribed.get(one) == server}

        for client in self._gateway.registry:
            for one in used_by(client):
                client.notify(UPDATED, {"uri": one})
        for listener in list(self._listeners):
            for one in used_by(listener.client) & listener.uris:
                listener.notify(UPDATED, {"uri": one})

    @asynccontextmanager
    async def listening(
        self, client: Client, message: Mapping[str, Any], outbox: Outbox
    ) -> AsyncGenerator[None]:
        """Queue the notifications that the request asks for in `outbox` while the block runs.

        Raises:
            Refusal: The request is invalid.
        """
        wanted = fields(fields(message.get("params")).get("notifications"))
        named: object = wanted.get("resourceSubscriptions", [])
        uris = cast("list[object]", named) if isinstance(named, list) else [None]
        if not wanted or not all(isinstance(uri, str) for uri in uris):
            raise Refusal(INVALID_PARAMS, "'notifications' must name what to subscribe to")
        kinds = frozenset(kind for kind in KINDS if wanted.get(kind) is True)
        watched = await self._gateway.era_bridge.watch_all(client, cast("list[str]", uris))
        listener = _Listener(client, message["id"], outbox, kinds, frozenset(watched))
        self._listeners.add(listener)
        accepted: dict[str, Any] = dict.fromkeys(sorted(kinds), True)
        if watched:
            accepted["resourceSubscriptions"] = sorted(watched)
        listener.notify("notifications/subscriptions/acknowledged", {"notifications": accepted})
        try:
            yield
        finally:
            self._listeners.discard(listener)
            await self._gateway.era_bridge.leave(client)

    def close(self, still_valid: Callable[[Client], bool] = lambda client: False) -> None:
        """End every subscription with a result, except those of clients that stay."""
        for listener in list(self._listeners):
            if not still_valid(listener.client):
                listener.outbox.put(result_body(listener.id, stamped({})))
                listener.outbox.close()


class LogLevels:
    """Sets the log level of handshake servers."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._active = False
        """Whether a client has asked for a level yet."""

    async def changed(self, client: Client) -> None:
        """Apply the level of a session to the connected shared servers, concurrently. Servers with
        `isolation: session` get it with their next call."""
        self._active = True
        levels: dict[Profile, str] = {client.profile: client.log_level or USUAL}
        for other in self._registry:
            wanted = other.log_level or USUAL
            levels[other.profile] = more_verbose(wanted, levels.get(other.profile, wanted))

        async def apply_level(server: str) -> None:
            level = min(
                (wanted for profile, wanted in levels.items() if profile.admits(server)), key=LEVELS.index
            )
            if (supervisor := self._supervisor(client, server)) is not None:
                await _set_level(supervisor, level)

        connected = [status.name for status in client.profile.host.status() if status.state == "connected"]
        await asyncio.gather(*(apply_level(name) for name in connected if client.profile.shares(name)))

    async def apply(self, client: Client, server: str, asked: object) -> None:
        """Set the level of a server before it gets a request of this client; `asked` is the level in the
        request (2026 era)."""
        modern = client.era == "modern"
        wanted = asked if modern else client.log_level
        self._active = self._active or wanted in LEVELS
        if not self._active or (modern and wanted not in LEVELS):
            return
        supervisor = self._supervisor(client, server)
        if supervisor is None or (wanted is None and supervisor.log_level is None):
            return
        level = USUAL if wanted is None else str(wanted)
        if supervisor.session is None and supervisor.log_level is not None:
            level = more_verbose(level, supervisor.log_level)  # shared with other clients
        await _set_level(supervisor, level)

    def _supervisor(self, client: Client, server: str) -> Any:
        if not client.profile.admits(server):
            return None
        provider: Any = client.profile.provider(server, client.session)
        return getattr(getattr(provider, "connection", provider), "supervisor", None)


async def _set_level(supervisor: Any, level: str) -> None:
    supervisor.log_level = level  # also applies to the next connection
    if supervisor.live is not None:
        await set_level(supervisor.live, level)
