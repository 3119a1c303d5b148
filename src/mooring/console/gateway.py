"""The gateway in the console: its clients, profiles, limits and tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from mooring.config.logs import logger
from mooring.console.access import Visitor
from mooring.console.journal import Journal
from mooring.console.verbs import Body
from mooring.console.web import Verb, VerbRefused
from mooring.core.events import shown_session
from mooring.core.text import line, tool_cost
from mooring.gateway.profiles import Profile
from mooring.gateway.serve import Serving
from mooring.gateway.tokens import lifetime

__all__ = ["GatewayPage"]

log = logger("mooring.console")

MOST_CLIENTS = 500
_LIMITS = ("rate", "burst", "concurrency", "max_sessions", "client_sessions", "max_connections")


class GatewayPage:
    """Shows a gateway and changes its tokens and sessions."""

    def __init__(self, serving: Serving, journal: Journal) -> None:
        self._serving, self._journal = serving, journal
        self._service, self._gateway = serving.service, serving.gateway
        self._costs: dict[str, tuple[object, int]] = {}

    def verbs(self) -> dict[str, Verb]:
        """Return the verbs by name."""
        return {
            "token-create": self.create,
            "token-rotate": self.rotate,
            "token-revoke": self.revoke,
            "session-end": self.end,
        }

    def profiles(self) -> list[Profile]:
        """Return the profiles."""
        return self._gateway.profiles()

    def update(self) -> None:
        """Set the values and rows of the gateway."""
        gateway, journal, now = self._gateway, self._journal, time.monotonic()
        settings = gateway.settings
        clients = list(gateway.registry)
        rows = [
            {
                "id": shown_session(client.id),
                "principal": client.principal.name,
                "profile": client.profile.name or None,
                "protocol": client.protocol,
                "idle": int((now - client.used) // 5 * 5),
                "running": len(client.under_way),
                "stream": client.event_stream is not None and not client.event_stream.closed,
            }
            for client in clients[:MOST_CLIENTS]
        ]
        journal.put_all("clients", rows)
        journal.put_all("profiles", [self._profile(one) for one in gateway.profiles()])
        journal.put_all("tokens", self._tokens())
        journal.set(
            "gateway",
            {
                "url": self._serving.url,
                "open": self._service.routes.authenticator.open,
                "draining": gateway.draining,
                "sessions": len(clients),
                "connections": self._service.routes.connections(),
                "limits": {name: getattr(settings, name) for name in _LIMITS},
            },
        )

    def _profile(self, profile: Profile) -> dict[str, Any]:
        settings, catalog = profile.settings, profile.catalog
        known = self._costs.get(profile.name)
        if known is None or known[0] is not catalog:
            known = self._costs[profile.name] = (catalog, sum(map(tool_cost, catalog.tools.values())))
        return {
            "id": profile.name,
            "path": f"/mcp/{profile.name}" if profile.name else "/mcp",
            "tools": len(catalog.tools),
            "tokens": known[1],
            "discovery": settings.discovery,
            "servers": list(settings.servers),
            "allow": list(settings.allow),
            "deny": list(settings.deny),
            "scopes": list(settings.scopes),
        }

    def _tokens(self) -> list[dict[str, Any]]:
        now = time.time()
        rows = [_row(token.document(now)) for token in self._service.tokens.tokens()]
        fixed = [
            {"id": one.name, "state": "fixed", "scopes": list(one.scopes), "profiles": []}
            | {"created": None, "expires": None, "last_used": None}
            for one in self._gateway.settings.tokens
        ]
        return sorted([*rows, *fixed], key=lambda row: row["id"])

    # --- verbs ----------------------------------------------------------------------------------

    async def create(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        body = Body(given)
        profiles = body.texts("profiles")
        if unknown := [name for name in profiles if name not in self._gateway.settings.profiles]:
            raise VerbRefused(400, f"There is no profile {line(unknown[0], 80)!r}.")
        token, entry = await asyncio.to_thread(
            self._service.tokens.file.create,
            body.text("name"),
            profiles=profiles,
            scopes=body.texts("scopes"),
            lifetime=_seconds(body, "expires"),
        )
        return self._changed("created", visitor, {**_row(entry.document(time.time())), "token": token})

    async def rotate(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        body = Body(given)
        token, entry = await asyncio.to_thread(
            self._service.tokens.file.rotate,
            body.text("name"),
            grace=_seconds(body, "grace") or 0.0,
            lifetime=_seconds(body, "expires"),
        )
        return self._changed("rotated", visitor, {**_row(entry.document(time.time())), "token": token})

    async def revoke(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        entry = await asyncio.to_thread(self._service.tokens.file.revoke, Body(given).text("name"))
        return self._changed("revoked", visitor, _row(entry.document(time.time())))

    def _changed(self, what: str, visitor: Visitor, row: dict[str, Any]) -> dict[str, Any]:
        log.info("token %s name=%r by=%r", what, row["id"], visitor.principal)
        return row

    async def end(self, given: Mapping[str, Any], visitor: Visitor) -> Any:
        key = Body(given).text("id")
        found = [client for client in self._gateway.registry if shown_session(client.id) == key]
        if len(found) != 1:
            raise VerbRefused(404, f"There is no session {key[:40]!r}, or more than one.")
        await self._gateway.registry.end(found[0])
        log.info("session ended id=%r by=%r", key, visitor.principal)
        return {"ended": key}


def _row(document: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("state", "scopes", "profiles", "created", "expires", "last_used")
    return {"id": document["name"], **{key: document.get(key) for key in keys}}


def _seconds(body: Body, key: str) -> float | None:
    text = body.maybe(key)
    try:
        return None if text is None else lifetime(text)
    except ValueError as problem:
        raise VerbRefused(400, f"{key!r}: {problem}") from None
