"""Translation between the protocol eras: sealed request state, and resource subscriptions."""

from __future__ import annotations

import hmac
import json
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, cast

from mooring.core.types import Era, Tool
from mooring.errors import CallError, MooringError
from mooring.gateway.clients import Client
from mooring.gateway.profiles import resource_server
from mooring.gateway.protocol import INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, no_resource
from mooring.gateway.suspended_calls import SuspendedCalls
from mooring.host import runtime_of
from mooring.servers.negotiate import TASKS
from mooring.transport.forwarding import ClientBridge

LIFE = 3600.0
"""Seconds that somebody may take to answer a question."""
LONGEST = 1_000_000


class Seal:
    """Seals with one key; whoever has the key can open."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, said: Mapping[str, Any], bound: Mapping[str, str], now: float) -> str:
        """`said` as one opaque text, good for an hour and only together with `bound`."""
        data = json.dumps([dict(said), round(now + LIFE)], separators=(",", ":")).encode()
        return f"{_text(data)}.{_text(self._mark(data, bound))}"

    def open(self, sealed: object, bound: Mapping[str, str], now: float) -> dict[str, Any] | None:
        """What was sealed; None when it is not ours, was bound to something else, or is too old."""
        if not isinstance(sealed, str) or len(sealed) > LONGEST:
            return None
        data, _, mark = sealed.partition(".")
        try:
            raw, given = _bytes(data), _bytes(mark)
        except ValueError:
            return None
        if not hmac.compare_digest(self._mark(raw, bound), given):
            return None
        said, end = json.loads(raw)
        return cast("dict[str, Any]", said) if now <= end else None

    def _mark(self, data: bytes, bound: Mapping[str, str]) -> bytes:
        context = json.dumps(sorted(bound.items())).encode()
        return hmac.new(self._key, len(context).to_bytes(8, "big") + context + data, sha256).digest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    if not text.isascii():
        raise ValueError("not ours")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


ANSWERABLE = ("elicitation", "sampling", "roots")
PASSED = (*ANSWERABLE, "experimental")


class EraBridge:
    """The way through to the servers and back."""

    def __init__(self, relay: ClientBridge, key: bytes | None = None, *, asks: bool = True) -> None:
        """Make one; without `asks` no question of a server is passed to a client."""
        self.under_way = relay.under_way
        self._passed = PASSED if asks and relay.capabilities else ()
        self._seal = Seal(key or os.urandom(32))
        self.parking = SuspendedCalls()
        self._watched: Counter[tuple[str, str, str]] = Counter()
        """By server, URI, and the session that has the server for itself."""

    def abilities(self, client: Client) -> dict[str, Any]:
        """What a server may ask of the client, as far as it goes through us; tasks we follow ourselves."""
        able = {key: client.capabilities[key] for key in self._passed if key in client.capabilities}
        return {**able, "extensions": {TASKS: {}}}

    # --- state ----------------------------------------------------------------------------------

    def _bound(self, client: Client, server: str, about: str) -> dict[str, str]:
        return {"who": client.principal.name, "profile": client.view.name, "server": server, "about": about}

    def incoming(self, client: Client, server: str, about: str, params: dict[str, Any]) -> dict[str, Any]:
        """Further parameters of a request, as its server may have them: its own state, taken out of ours.

        Raises:
            Refusal: the state is not what we gave to this client for this.
        """
        if "requestState" not in params:
            return params
        state = self._opened(client, server, about, params["requestState"])
        return {**params, "requestState": state.get("state")}

    def outgoing(self, client: Client, server: str, about: str, result: dict[str, Any]) -> dict[str, Any]:
        """A result, as the client may have it: the server's state inside ours."""
        state = result.get("requestState")
        if result.get("resultType") != "input_required" or state is None:
            return result
        sealed = self._seal.close({"state": state}, self._bound(client, server, about), time.time())
        return {**result, "requestState": sealed}

    def parked_key(self, client: Client, server: str, about: str, state: object) -> str | None:
        """The key of the call that waits for this client, if the state is of one."""
        return self._opened(client, server, about, state).get("parked")

    def parked_state(self, client: Client, server: str, about: str, key: str) -> str:
        return self._seal.close({"parked": key}, self._bound(client, server, about), time.time())

    def _opened(self, client: Client, server: str, about: str, state: object) -> dict[str, Any]:
        found = self._seal.open(state, self._bound(client, server, about), time.time())
        if found is None:
            raise Refusal(INVALID_PARAMS, "the requestState is not the one that was given, or is too old")
        return found

    def era(self, client: Client) -> Era | None:
        """The era in which a server that speaks both is to work for the client: the client's own, so that
        questions reach it in the way that it knows, and the server knows what it can ask. None for a
        handshake client that answers no questions: either era does for it."""
        return client.era if client.era == "modern" or _answers(client) else None

    async def must_park(self, client: Client, tool: Tool) -> bool:
        """Whether the server may ask during a call what this client answers only between two requests."""
        if client.era == "legacy" or not self._passed or not _answers(client):
            return False
        provider: Any = client.view.provider(tool.server, client.session)
        connection = getattr(provider, "connection", provider)
        if not hasattr(connection, "era_for"):
            return False
        timeout = client.view.settings.call_timeout
        return await connection.era_for(tool.remote_name, client.era, timeout) == "legacy"

    # --- requests that are no calls -------------------------------------------------------------

    async def ask(
        self, client: Client, server: str, method: str, params: dict[str, Any], about: str
    ) -> dict[str, Any]:
        """The raw result of a request that is no call.

        Raises:
            MooringError: there is none.
            Refusal: this provider answers nothing but calls.
        """
        if method == "resources/read":
            await runtime_of(client.view.host).resources.check((server, about))
        timeout = client.view.settings.call_timeout
        connection = self._connection(client, server, method)
        try:
            answer = await connection.ask(method, params, about=about, timeout=timeout)
        except CallError as problem:
            if problem.outcome != "not sent":
                raise
            other = self._connection(client, server, method)
            if other is connection:
                raise
            # Another one took its place before anything was sent.
            answer = await other.ask(method, params, about=about, timeout=timeout)
        return cast("dict[str, Any]", answer)

    def _connection(self, client: Client, server: str, method: str) -> Any:
        provider: Any = client.view.provider(server, client.session)
        connection = getattr(provider, "connection", provider)  # one of the client's own is wrapped
        if not hasattr(connection, "ask"):
            raise Refusal(METHOD_NOT_FOUND, f"{server!r} does not do {method!r}")
        return connection

    # --- resources that are watched -------------------------------------------------------------

    @property
    def watching(self) -> int:
        """How many resources are watched for somebody."""
        return len(self._watched)

    async def watch(self, client: Client, uri: str) -> None:
        """Have the changes of a resource told to the client.

        Raises:
            Refusal: there is no such resource, or its server does not tell.
        """
        if uri in client.subscribed:
            return
        server = resource_server(client.view, uri)
        if server is None:
            raise no_resource(uri, client.era)
        key = self._watched_as(client, server, uri)
        if key not in self._watched:
            try:
                await runtime_of(client.view.host).resources.check((server, uri))
                await self._connection(client, server, "resources/subscribe").watch(uri)
            except MooringError as problem:
                raise Refusal(INVALID_PARAMS, str(problem)) from None
        self._watched[key] += 1
        client.subscribed[uri] = server

    async def unwatch(self, client: Client, uri: str) -> None:
        """Have them told no longer; the server is told when nobody is left."""
        server = client.subscribed.pop(uri, None)
        if server is None:
            return
        key = self._watched_as(client, server, uri)
        self._watched[key] -= 1
        if self._watched[key] <= 0:
            del self._watched[key]
            with suppress(MooringError, Refusal):
                await self._connection(client, server, "resources/unsubscribe").unwatch(uri)

    def _watched_as(self, client: Client, server: str, uri: str) -> tuple[str, str, str]:
        return server, uri, "" if client.view.shares(server) else client.session.id

    async def watch_all(self, client: Client, uris: list[str]) -> list[str]:
        """Those of the resources whose changes are told from now on."""
        for uri in uris:
            with suppress(Refusal):
                await self.watch(client, uri)
        return sorted(client.subscribed)

    async def leave(self, client: Client) -> None:
        """The client is gone."""
        for uri in list(client.subscribed):
            await self.unwatch(client, uri)


def _answers(client: Client) -> bool:
    """Whether the client answers any questions of servers."""
    return any(key in client.capabilities for key in ANSWERABLE)
