"""From a request to its final result, where a 2026 server asks back before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from mooring.net.message import WireError
from mooring.net.passage import PASSAGE

ROUNDS = 8
"""How often a server may ask back before it is given up."""
MOST_REQUESTS = 16
PAUSE = 0.2
"""Seconds between rounds in which the server asks nothing and only wants to be called again."""

Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Answer = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


async def converse(raw: dict[str, Any], send: Send, params: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The result that is no question: each question is answered, and the request sent again with that.

    Args:
        raw: What the server answered at first.
        send: Sends the request once more.
        params: Of the request.
        answer: Answers one question.

    Raises:
        WireError: the server never stops asking, or asks for what it cannot get.
    """
    rounds = 1
    while raw.get("resultType") == "input_required" and not passed_on():
        if rounds == ROUNDS:
            raise failed(f"it asked for input {ROUNDS} times over and was given up")
        rounds += 1
        requests, state = raw.get("inputRequests"), raw.get("requestState")
        sent = dict(params)
        if requests:
            sent["inputResponses"] = await fulfil(requests, answer)
        elif state is None:
            raise failed("it asks for input and does not say which")
        else:
            await asyncio.sleep(PAUSE)
        if state is not None:
            sent["requestState"] = state
        raw = await send(sent)
    return raw


def passed_on() -> bool:
    """Whether questions are for somebody else to answer."""
    passage = PASSAGE.get()
    return passage is not None and passage.answers


async def fulfil(requests: object, answer: Answer) -> dict[str, Any]:
    """The answers to a server's requests, by their keys.

    Raises:
        WireError: one of them cannot be answered.
    """
    if not isinstance(requests, dict) or len(cast("dict[str, Any]", requests)) > MOST_REQUESTS:
        raise failed(
            f"it asks for input in a form that is not known, or for more than {MOST_REQUESTS} at once"
        )
    answers: dict[str, Any] = {}
    for key, request in cast("dict[str, Any]", requests).items():
        fields = cast("dict[str, Any]", request) if isinstance(request, dict) else {}
        method, params = fields.get("method"), fields.get("params")
        given = cast("dict[str, Any]", params) if isinstance(params, dict) else {}
        answers[key] = await answer(str(method), given)
    return answers


def failed(text: str) -> WireError:
    return WireError(text, kind="answer", outcome="failed")
