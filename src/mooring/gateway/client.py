"""One client of the gateway: who it is, what it can do, and what is under way for it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from mooring.core.types import EMPTY
from mooring.gateway.outbox import Outbox
from mooring.gateway.protocol import INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, fields, notice_body
from mooring.gateway.views import View
from mooring.net.loglevel import LEVELS
from mooring.net.message import RequestId, encode
from mooring.net.negotiate import Era
from mooring.session import Session

__all__ = ["ANONYMOUS", "Client", "Exchange", "Principal"]

RECENT = 16
"""Notices that a session keeps for a client whose stream broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request is from, as its token says: never what a header or a body claims."""

    name: str
    scopes: frozenset[str] = frozenset()


ANONYMOUS = Principal(name="anonymous")


class Exchange(Protocol):
    """One request under way: where to say something before its answer."""

    headers: Mapping[str, str]
    """Of the HTTP request; empty elsewhere."""

    def send(self, body: bytes) -> None:
        """Send a message that belongs to this request. Never waits."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the client can read anything before the answer."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A conversation. In the handshake era it lasts; in the 2026 era each request makes its own."""

    id: str
    principal: Principal
    view: View
    session: Session
    era: Era
    protocol: str
    capabilities: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    account: str = ""
    """What its session is counted under."""
    lasts: bool = True
    """Whether it has a session, which is there for the next request."""
    standing: Outbox | None = None
    """The stream that is there between requests."""
    told: int = 0
    """How many notices of no request there were so far."""
    log_level: str | None = None
    subscribed: dict[str, str] = field(default_factory=dict[str, str])
    """Resources whose changes it is told, each with its server."""
    used: float = 0.0
    """When it was last heard of, on the monotonic clock."""
    busy: int = 0
    under_way: dict[RequestId, anyio.CancelScope] = field(default_factory=dict[RequestId, anyio.CancelScope])
    _recent: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=RECENT))
    _asked: dict[RequestId, asyncio.Future[dict[str, Any]]] = field(
        default_factory=dict[RequestId, "asyncio.Future[dict[str, Any]]"]
    )
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def idle(self) -> bool:
        """Whether it has no request under way and holds no stream."""
        return not self.under_way and (self.standing is None or self.standing.closed)

    def wants_log(self, level: object, asked: object = None) -> bool:
        """Whether a log line of this level is for this client; `asked` is what its request says of it."""
        if self.era == "legacy" and self.log_level is None:
            return level != "debug"  # that may be there only because somebody else asked for it
        least = asked if self.era == "modern" else self.log_level
        return level in LEVELS and least in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(str(least))

    def can(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client said that it answers such a request."""
        match method:
            case "elicitation/create":
                offered = self.capabilities.get("elicitation")
                modes = fields(offered)
                # Before modes had names, an empty object meant forms.
                return isinstance(offered, dict) and (
                    params.get("mode", "form") in modes
                    or (not modes and params.get("mode", "form") == "form")
                )
            case "sampling/createMessage":
                return "sampling" in self.capabilities
            case "roots/list":
                return "roots" in self.capabilities
            case _:
                return False

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the client something that belongs to no request. Where it holds no stream it is kept for a
        while, in case that it comes back for it."""
        body = notice_body(method, params)
        self.told += 1
        self._recent.append(body)
        if self.standing is not None:
            self.standing.put(body)

    def missed(self, last: int) -> list[bytes]:
        """What was told after notice number `last`, as far as it is still there."""
        since = max(self.told - last, 0)
        return list(self._recent)[-since:] if since else []

    async def ask(self, method: str, params: Mapping[str, Any], exchange: Exchange) -> dict[str, Any]:
        """The client's answer to a request of ours (handshake era only).

        Raises:
            Refusal: it cannot be asked, or it refused.
        """
        if self.era != "legacy" or not exchange.streams or not self.can(method, params):
            raise Refusal(METHOD_NOT_FOUND, f"the client behind the gateway does not do {method!r}")
        key = f"mooring-{next(self._numbers)}"
        answer = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            request = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
            exchange.send(encode(request))
            return await answer
        finally:
            del self._asked[key]

    def answered(self, message: Mapping[str, Any]) -> None:
        """Take the client's answer to one of our requests; others are ignored."""
        waiter = self._asked.get(message.get("id") or "")
        if waiter is None or waiter.done():
            return
        if said := fields(message.get("error")):
            code, text = said.get("code"), said.get("message")
            waiter.set_exception(
                Refusal(
                    code if isinstance(code, int) else INVALID_REQUEST,
                    text if isinstance(text, str) else "the client refused",
                    said.get("data"),
                )
            )
        else:
            waiter.set_result(fields(message.get("result")))

    def cancelled(self, request_id: object) -> None:
        """The client no longer waits for one of its requests."""
        if isinstance(request_id, int | str) and (scope := self.under_way.get(request_id)) is not None:
            scope.cancel()

    async def close(self) -> None:
        """End what is under way and let the session's own servers go."""
        for scope in list(self.under_way.values()):
            scope.cancel()
        for waiter in self._asked.values():
            if not waiter.done():
                waiter.set_exception(Refusal(INVALID_REQUEST, "the client has gone"))
        if self.standing is not None:
            self.standing.close()
        await self.session.__aexit__(None, None, None)
