"""What servers ask the user in the midst of their work: put to the application, one question at a time."""

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
"""Puts a question to the user. A plain function runs in a thread; None means that nobody answered."""

ELICIT = "elicitation/create"
MOST_WAITING = 8
"""Questions of one server that may wait: more are cancelled, so that none can bury the user."""
_SHOWN = 200


class ElicitationHandler:
    """All questions of a host's servers."""

    def __init__(self, ask: OnElicit | None, relay: ClientBridge | None = None) -> None:
        self._ask = ask
        self._relay = relay
        self._turn = asyncio.Lock()
        self._waiting: dict[str, int] = {}

    @property
    def capabilities(self) -> dict[str, Any]:
        """What servers are told of it: nothing where nobody would be asked."""
        if self._relay is not None:
            return dict(self._relay.capabilities)
        return {} if self._ask is None else {"elicitation": {"form": {}, "url": {}}}

    @property
    def asks(self) -> bool:
        """Whether the application itself answers questions."""
        return self._ask is not None

    def heard(
        self, method: str, params: Mapping[str, Any], passages: Sequence[ForwardedRequest] = ()
    ) -> None:
        """Pass a notice to the client that it concerns; `passages` are under way on its wire."""
        if self._relay is not None and (passage := self._relay.find(passages)) is not None:
            passage.heard(method, params)

    async def answer(
        self, server: str, method: str, params: Mapping[str, Any], passages: Sequence[ForwardedRequest] = ()
    ) -> dict[str, Any]:
        """The result of a request of a server's; `passages` are under way on the wire that it came on.

        Raises:
            WireError: there is none; the text is fit for the server and for the model.
        """
        if self._relay is not None and (passage := self._relay.find(passages)) is not None:
            passage.waiting += 1
            try:
                return await passage.asked(method, params)
            finally:
                passage.waiting -= 1
        if method == "roots/list" and self._relay is not None:
            return {"roots": []}  # it was declared for a client behind us, and there is none
        if self._relay is not None and (method != ELICIT or self._ask is None):
            raise _no_single_client(method, params, len({id(passage.client) for passage in passages}))
        if method != ELICIT:
            raise not_offered(method)
        if self._ask is None:
            raise _nobody_asked(params)
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
        if waiting >= MOST_WAITING:
            log.warning("%s asks too many questions at once: one was cancelled", asked.server)
            return asked.cancel()
        self._waiting[asked.server] = waiting + 1
        try:
            async with self._turn:
                return await _asked(ask, asked)
        finally:
            self._waiting[asked.server] -= 1


async def _asked(ask: OnElicit, asked: Elicitation) -> Answer:
    """What the application answers; what it must not say becomes a cancellation, loudly."""
    try:
        answer: Answer | None = await call_back(ask, asked)
        if answer is None:
            return asked.cancel()
        return asked.accept(answer.content) if answer.action == "accept" else answer
    except Exception:
        log.exception("the question of %r was cancelled: on_elicit failed", asked.server)
        return asked.cancel()


def _nobody_asked(params: Mapping[str, Any]) -> WireError:
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
