"""Requests of servers that belong to no client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mooring.servers.elicitation import ELICIT, ElicitationHandler
from mooring.transport.forwarding import ClientBridge, ForwardedRequest
from mooring.transport.message import METHOD_NOT_FOUND, WireError

pytestmark = pytest.mark.anyio

QUESTION = {"message": "Which branch?"}


def request_of(client: object) -> ForwardedRequest:
    async def answered(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"by": client}}

    return ForwardedRequest(client=client, heard=lambda method, params: None, asked=answered)


async def refusal(method: str, *clients: object) -> str:
    handler = ElicitationHandler(None, ClientBridge())
    with pytest.raises(WireError) as caught:
        await handler.answer("lab", method, QUESTION, [request_of(client) for client in clients])
    assert (caught.value.code, caught.value.outcome) == (METHOD_NOT_FOUND, "failed")
    return str(caught.value)


@pytest.mark.parametrize("method", [ELICIT, "sampling/createMessage"])
async def test_a_request_that_may_belong_to_two_clients_is_refused_for_that_reason(method: str) -> None:
    text = await refusal(method, "ana", "bob", "bob")
    assert method in text
    assert "2 clients of the gateway" in text
    assert "isolation: session" in text
    assert "Which branch?" in text
    assert "on_elicit" not in text


async def test_a_request_while_no_client_calls_is_refused_for_that_reason() -> None:
    text = await refusal(ELICIT)
    assert "no client of the gateway has a pending request" in text
    assert "on_elicit" not in text


async def test_a_request_of_the_only_client_is_passed_to_it() -> None:
    handler = ElicitationHandler(None, ClientBridge())
    result = await handler.answer("lab", ELICIT, QUESTION, [request_of("ana"), request_of("ana")])
    assert result["content"] == {"by": "ana"}


async def test_without_a_gateway_the_refusal_names_the_missing_callback() -> None:
    with pytest.raises(WireError, match="no `on_elicit`"):
        await ElicitationHandler(None).answer("lab", ELICIT, QUESTION)


async def test_a_log_line_of_a_call_that_waits_for_its_client_reaches_no_other_client() -> None:
    handler = ElicitationHandler(None, ClientBridge())
    heard: list[str] = []
    waiting, running = (
        replace(request_of(name), heard=lambda method, params, name=name: heard.append(name))
        for name in ("waiting", "running")
    )
    waiting.waiting = 1
    handler.heard("notifications/message", {"data": "about the waiting call"}, [waiting, running])
    assert heard == []
    handler.heard("notifications/message", {"data": "x"}, [waiting])
    handler.heard("notifications/message", {"data": "x"}, [running])
    assert heard == ["waiting", "running"]
