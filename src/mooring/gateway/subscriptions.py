"""Changes behind the gateway, told to every client that wants to know."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mooring.config.logs import logger
from mooring.core.events import CatalogChanged, ConfigApplied, ResourceUpdated
from mooring.gateway.clients import Client, Outbox
from mooring.gateway.profiles import Profile, ProfileTools
from mooring.gateway.protocol import (
    INVALID_PARAMS,
    SUBSCRIPTION,
    Refusal,
    fields,
    notice_body,
    result_body,
    stamped,
)
from mooring.transport.message import RequestId

if TYPE_CHECKING:
    from mooring.gateway.app import Gateway

__all__ = ["Subscriptions"]

log = logger("mooring.gateway")

KINDS: Mapping[str, str] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
}
UPDATED = "notifications/resources/updated"


@dataclass(slots=True, eq=False)
class _Listener:
    """One `subscriptions/listen`."""

    client: Client
    id: RequestId
    box: Outbox
    kinds: frozenset[str]
    uris: frozenset[str]

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        stamp = {**fields(params.get("_meta")), SUBSCRIPTION: self.id}
        self.box.put(notice_body(method, {**params, "_meta": stamp}))


class Subscriptions:
    """Knows who listens, and what each view showed when it was last told."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._listeners: set[_Listener] = set()
        self._told: dict[Profile, ProfileTools] = {}

    async def run(self) -> None:
        """Follow the host until it ends."""
        for view in self._gateway.views():
            self._told[view] = view.offer
        async for event in self._gateway.host.events(CatalogChanged, ConfigApplied, ResourceUpdated):
            if isinstance(event, ResourceUpdated):
                self.updated(event.uri, event.session)
            else:
                self.changed()

    def changed(self) -> None:
        """Tell the clients of each view what is another one now."""
        for view in self._gateway.views():
            old, new = self._told.get(view), view.offer
            self._told[view] = new
            if old is None or old is new:
                continue
            kinds = [
                kind
                for kind, same in (
                    ("toolsListChanged", old.catalog.tools == new.catalog.tools),
                    (
                        "resourcesListChanged",
                        (old.resources, old.templates) == (new.resources, new.templates),
                    ),
                    ("promptsListChanged", old.prompts == new.prompts),
                )
                if not same
            ]
            for kind in kinds:
                self._tell(view, kind)

    def _tell(self, view: Profile, kind: str) -> None:
        for client in self._gateway.registry:
            if client.view is view:
                client.notify(KINDS[kind])
        for listener in list(self._listeners):
            if listener.client.view is view and kind in listener.kinds:
                listener.tell(KINDS[kind], {})

    def updated(self, uri: str, session: str | None) -> None:
        """A resource is another one now: for everybody, or for the session that has its server for itself."""

        def concerns(client: Client) -> bool:
            return session in (None, client.session.id)

        for client in self._gateway.registry:
            if uri in client.subscribed and concerns(client):
                client.notify(UPDATED, {"uri": uri})
        for listener in list(self._listeners):
            if uri in listener.uris and concerns(listener.client):
                listener.tell(UPDATED, {"uri": uri})

    @asynccontextmanager
    async def listening(
        self, client: Client, message: Mapping[str, Any], box: Outbox
    ) -> AsyncGenerator[None]:
        """Put into `box` what the request asked to be told, while the block runs.

        Raises:
            Refusal: the request cannot be understood.
        """
        wanted = fields(fields(message.get("params")).get("notifications"))
        named: object = wanted.get("resourceSubscriptions", [])
        uris = cast("list[object]", named) if isinstance(named, list) else [None]
        if not wanted or not all(isinstance(uri, str) for uri in uris):
            raise Refusal(INVALID_PARAMS, "'notifications' must say what is to be told")
        kinds = frozenset(kind for kind in KINDS if wanted.get(kind) is True)
        watched = await self._gateway.crossing.watch_all(client, cast("list[str]", uris))
        listener = _Listener(client, message["id"], box, kinds, frozenset(watched))
        self._listeners.add(listener)
        honoured: dict[str, Any] = dict.fromkeys(sorted(kinds), True)
        if watched:
            honoured["resourceSubscriptions"] = sorted(watched)
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": honoured})
        try:
            yield
        finally:
            self._listeners.discard(listener)
            await self._gateway.crossing.leave(client)

    def close(self, keeps: Callable[[Client], bool] = lambda client: False) -> None:
        """End every subscription properly, but for those of clients that stay."""
        for listener in list(self._listeners):
            if not keeps(listener.client):
                listener.box.put(result_body(listener.id, stamped({})))
                listener.box.close()
