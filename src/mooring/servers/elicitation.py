"""Requests of servers to the client: elicitations, and requests for clients of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mooring.concurrency import call_back
from mooring.core.elicitation import Answer, Elicitation, question
from mooring.core.text import line
from mooring.transport.base import log
from mooring.transport.forwarding import ClientBridge, ForwardedRequest
from mooring.transport.message import INVALID_PARAMS, METHOD_NOT_FOUND, WireError, not_offered

OnElicit = Callable[[Elicitation], Answer | Awaitable[Answer | None] | None]
"""Asks the user a question. A plain function runs in a thread; None cancels the question."""

ELICIT = "elicitation/create"
MAX_WAITING = 8
"""Questions of one server that may wait for the user; further ones are cancelled."""
_SHOWN = 200


class ElicitationHandler:
    """Handles the requests of all servers of a host, one question to the user at a time."""

    def __init__(
        self,
        ask: OnElicit | None,
        bridge: ClientBridge | None = None,
        extensions: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._ask = ask
        self._extensions = extensions
        self._bridge = bridge
        self._turn = asyncio.Lock()
        self._waiting: dict[str, int] = {}

    @property
    def capabilities(self) -> dict[str, Any]:
        """The client capabilities to declare; empty where there is neither a callback nor a gateway."""
        if self._bridge is not None:
            return dict(self._bridge.capabilities)
        return {} if self._ask is None else {"elicitation": {"form": {}, "url": {}}}

    @property
    def extensions(self) -> Mapping[str, Any]:
        """The extensions of the protocol to declare."""
        return self._extensions()

    @property
    def asks(self) -> bool:
        """Whether the application has an `on_elicit` callback."""
        return self._ask is not None

    def heard(
        self, method: str, params: Mapping[str, Any], forwarded_requests: Sequence[ForwardedRequest] = ()
    ) -> None:
        """Pass a notice to the client that it concerns; `forwarded_requests` are under way on its wire."""
        if self._bridge is not None and (forwarded := self._bridge.find(forwarded_requests)) is not None:
            forwarded.heard(method, params)

    async def answer(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        forwarded_requests: Sequence[ForwardedRequest] = (),
    ) -> dict[str, Any]:
        """Return the result for a server's request; `forwarded_requests` are under way on its connection.

        Raises:
            WireError: there is none; the text is fit for the server and for the model.
        """
        if self._bridge is not None and (forwarded := self._bridge.find(forwarded_requests)) is not None:
            forwarded.waiting += 1
            try:
                return await forwarded.asked(method, params)
            finally:
                forwarded.waiting -= 1
        if method == "roots/list" and self._bridge is not None:
            return {"roots": []}  # declared for clients of the gateway; there is none
        if self._bridge is not None and (method != ELICIT or self._ask is None):
            raise _no_single_client(
                method, params, len({id(forwarded.client) for forwarded in forwarded_requests})
            )
        if method != ELICIT:
            raise not_offered(method)
        if self._ask is None:
            raise _no_callback(params)
        try:
            asked = question(server, params)
        except ValueError as problem:
            raise WireError(
                f"its question was not put to the user: {problem}",
                kind="answer",
                outcome="failed",
                code=INVALID_PARAMS,
            ) from None
        return _as_result(await self._in_turn(self._ask, asked))

    async def _in_turn(self, ask: OnElicit, asked: Elicitation) -> Answer:
        waiting = self._waiting.get(asked.server, 0)
        if waiting >= MAX_WAITING:
            log.warning(
                "elicitation cancelled: server=%s waiting=%d (at most %d)", asked.server, waiting, MAX_WAITING
            )
            return asked.cancel()
        self._waiting[asked.server] = waiting + 1
        try:
            async with self._turn:
                return await _asked(ask, asked)
        finally:
            self._waiting[asked.server] -= 1


async def _asked(ask: OnElicit, asked: Elicitation) -> Answer:
    """Return the answer of the application; an exception or an invalid answer is logged and cancels."""
    try:
        answer: Answer | None = await call_back(ask, asked)
        if answer is None:
            return asked.cancel()
        return asked.accept(answer.content) if answer.action == "accept" else answer
    except Exception:
        log.exception("elicitation cancelled: on_elicit failed, server=%s", asked.server)
        return asked.cancel()


def _no_callback(params: Mapping[str, Any]) -> WireError:
    return _refused(
        "it needs an answer of the user, and this application cannot ask them (it has no `on_elicit`)", params
    )


def _no_single_client(method: str, params: Mapping[str, Any], clients: int) -> WireError:
    """The refusal of a request that belongs to no client of the gateway, or to any of several."""
    if clients == 0:
        return _refused(
            f"it sent {method} while no client of the gateway has a request under way at it", params
        )
    return _refused(
        f"it sent {method} while {clients} clients of the gateway have requests under way on the same "
        "connection, which does not say which of them is meant. Set `isolation: session` for this server to "
        "give each client a connection of its own, or call again when no other client uses it",
        params,
    )


def _refused(reason: str, params: Mapping[str, Any]) -> WireError:
    said = params.get("message")
    question = f" Its question: {line(said, _SHOWN)}" if isinstance(said, str) and said else ""
    return WireError(f"{reason}.{question}", kind="answer", outcome="failed", code=METHOD_NOT_FOUND)


def _as_result(answer: Answer) -> dict[str, Any]:
    given = {"content": dict(answer.content)} if answer.content is not None else {}
    return {"action": answer.action, **given}
