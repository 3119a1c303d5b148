"""Error -32042 of 2025-11-25: a server wants the user to open addresses before it answers."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from mooring.core.elicitation import MOST_ADDRESSES, addresses_in
from tests.lab.http import HttpLab

pytestmark = pytest.mark.anyio

PAGE = "https://files.example/connect?id=1"
URL_ABLE = {"elicitation": {"form": {}, "url": {}}}


class Wanting(HttpLab):
    """A server of 2025-11-25 that answers calls only after its page was visited."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(era="legacy", **settings)
        self.visited = False
        self.elicitation: dict[str, Any] = {
            "mode": "url",
            "message": "Connect your files.",
            "url": PAGE,
            "elicitationId": "files-1",
        }
        self.faults["tools/call"] = self._wants

    async def _wants(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if self.visited:
            return None
        error = {
            "code": -32042,
            "message": "Visit a page first",
            "data": {"elicitations": [self.elicitation]},
        }
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def visit(self) -> None:
        self.visited = True
        params = {"elicitationId": "files-1"}
        self.announce({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params})

    def calls(self) -> list[dict[str, Any]]:
        return [message["params"] for message in self.messages if message.get("method") == "tools/call"]


async def test_the_application_is_asked_and_the_call_is_repeated_when_the_server_says_done(
    hosting: Any,
) -> None:
    async with Wanting() as lab:
        asked: list[Any] = []

        async def on_elicit(question: Any) -> Any:
            asked.append(question)
            lab.visit()
            return question.accept()

        async with hosting(lab.config(), on_elicit=on_elicit) as host:
            result = await host.call("mcp_web_echo", {"text": "x"})
            assert result.text == "x"
        [question] = asked
        assert (question.mode, question.url, question.host) == ("url", PAGE, "files.example")
        assert len(lab.calls()) == 2
        assert not any("inputResponses" in params for params in lab.calls())


async def test_a_user_who_declines_ends_the_call(hosting: Any) -> None:
    async with Wanting() as lab:
        async with hosting(lab.config(), on_elicit=lambda question: question.decline()) as host:
            result = await host.call("mcp_web_echo", {"text": "x"})
            assert result.is_error
            assert "did not open the requested URL" in result.text
        assert len(lab.calls()) == 1


async def test_a_server_that_is_never_content_asks_the_user_once(hosting: Any) -> None:
    async with Wanting() as lab:
        asked: list[Any] = []

        async def on_elicit(question: Any) -> Any:
            asked.append(question)
            lab.visit()
            lab.visited = False
            return question.accept()

        async with hosting(lab.config(), on_elicit=on_elicit) as host:
            result = await host.call("mcp_web_echo", {"text": "x"})
            assert "asks again for a URL" in result.text
        assert len(asked) == 1


async def test_an_application_that_cannot_ask_gets_the_address_in_the_error(hosting: Any) -> None:
    async with Wanting() as lab, hosting(lab.config()) as host:
        result = await host.call("mcp_web_echo", {"text": "x"})
        assert result.is_error
        assert PAGE in result.text


async def test_a_client_of_2025_that_opens_addresses_gets_the_error_as_it_is(serving: Any) -> None:
    async with Wanting() as lab, serving(lab.config()) as here:
        client = await here.caller(modern=False, capabilities=URL_ABLE)
        error = (await client.call("echo", {"text": "x"})).error
        assert error["code"] == -32042
        assert error["data"]["elicitations"] == [lab.elicitation]
        lab.visit()
        assert (await client.call("echo", {"text": "x"})).text == "x"


async def test_a_client_of_2026_that_opens_addresses_is_asked_in_its_own_way(serving: Any) -> None:
    async with Wanting() as lab, serving(lab.config()) as here:
        client = await here.caller(capabilities=URL_ABLE)
        asked = (await client.call("echo", {"text": "x"})).result
        assert asked["resultType"] == "input_required"
        [(key, request)] = asked["inputRequests"].items()
        assert (request["method"], request["params"]["url"]) == ("elicitation/create", PAGE)
        lab.visit()
        reply = await client.call("echo", {"text": "x"}, inputResponses={key: {"action": "accept"}})
        assert reply.text == "x"
        assert not any("inputResponses" in params for params in lab.calls())


@pytest.mark.parametrize("modern", [True, False])
async def test_a_client_that_cannot_open_addresses_gets_them_as_text(serving: Any, modern: bool) -> None:
    async with Wanting() as lab, serving(lab.config()) as here:
        client = await here.caller(modern=modern)
        result = (await client.call("echo", {"text": "x"})).result
        assert result["isError"] is True
        assert f"Connect your files.: {PAGE}" in result["content"][0]["text"]


HOSTILE: dict[str, Any] = {
    "a script": {"url": "javascript:alert(1)"},
    "a file": {"url": "file:///etc/passwd"},
    "a user name": {"url": "https://bank.example@evil.example/"},
    "no address": {"url": None},
    "no words": {"message": ""},
    "a form": {"mode": "form"},
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_addresses_that_must_not_be_opened_are_not_shown(serving: Any, kind: str) -> None:
    async with Wanting() as lab, serving(lab.config()) as here:
        lab.elicitation |= HOSTILE[kind]
        reply = await (await here.caller()).call("echo", {"text": "x"})
        assert reply.error["code"] == -32042
        assert reply.error["message"] == "Visit a page first"


def test_only_a_few_addresses_are_taken() -> None:
    one = {"mode": "url", "message": "m", "url": PAGE}
    assert len(addresses_in({"elicitations": [one] * MOST_ADDRESSES}) or {}) == MOST_ADDRESSES
    assert addresses_in({"elicitations": [one] * (MOST_ADDRESSES + 1)}) is None
    for wrong in (None, [], {}, {"elicitations": {}}, {"elicitations": [1]}, {"elicitations": []}):
        assert addresses_in(wrong) is None
