"""Scripts of gateway clients: tools of a profile, and plans that the client approves by elicitation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.config.sections import ProfileSettings, ScriptSettings
from mooring.testing import FakeServer
from tests.gateway.test_reverse import answering, asked_by_result
from tests.scripts.shop import shop

pytestmark = pytest.mark.anyio

ABLE = {"elicitation": {}}
WRITES = {"code": "for i in [1, 2]:\n    await note(id=i)\n'done'"}
YES: dict[str, Any] = {"action": "accept", "content": {"approve": True}}


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with shop() as running:
        yield running


def profile(enabled: Any = True, **more: Any) -> ProfileSettings:
    return ProfileSettings(scripts=ScriptSettings(enabled=enabled, **more))


async def test_a_profile_offers_scripts_and_another_does_not(serving: Any, server: FakeServer) -> None:
    profiles = {"profiles": {"coder": {"scripts": {"enabled": "only"}, "allow": ["shop/get"]}}}
    async with serving(server.http(trust_hints=True), gateway=profiles) as here:
        plain = await here.caller()
        coder = await here.caller(path="/mcp/coder")
        assert "script_run" not in await plain.tools()
        assert await coder.tools() == ["script_run"]
        reply = await coder.call("script_run", {"code": "await get(id=2)"})
        assert reply.result["structuredContent"]["name"] == "item 2"
        hidden = await coder.call("script_run", {"code": "await items()"})
        assert "`items` is not defined" in hidden.text
        refused = await plain.call("script_run", {"code": "1"})
        assert "script_run" in refused.error["message"]


async def test_a_handshake_client_approves_the_plan_during_the_call(serving: Any, server: FakeServer) -> None:
    async with serving(server.http(trust_hints=True), whole=profile()) as here:
        client = await here.caller(modern=False, capabilities=ABLE)
        asked, answer = await answering(client, "script_run", {"result": YES}, WRITES)
        assert asked["method"] == "elicitation/create"
        assert "2 x note of server 'shop'" in asked["params"]["message"]
        assert answer["result"]["content"][0]["text"] == "done"
    assert [call["id"] for call in server.calls("note")] == [1, 2]


async def test_a_client_of_2026_approves_the_plan_in_its_next_request(
    serving: Any, server: FakeServer
) -> None:
    async with serving(server.http(trust_hints=True), whole=profile()) as here:
        client = await here.caller(capabilities=ABLE)
        first = (await client.call("script_run", WRITES)).result
        assert first["resultType"] == "input_required"
        assert "2 x note" in str(first["inputRequests"])
        assert server.calls("note") == []
        more = {"inputResponses": {"question": YES}, "requestState": first["requestState"]}
        assert (await client.call("script_run", WRITES, **more)).text == "done"
        again = (await client.call("script_run", WRITES, **more)).error
        assert "no call waits" in again["message"]
    assert [call["id"] for call in server.calls("note")] == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept", "content": {"approve": False}},
        {"action": "accept", "content": {"approve": "true"}},
        {"action": "accept"},
    ],
)
async def test_anything_but_a_yes_writes_nothing(serving: Any, server: FakeServer, answer: Any) -> None:
    async with serving(server.http(trust_hints=True), whole=profile()) as here:
        client = await here.caller(capabilities=ABLE)
        text = await asked_by_result(client, "script_run", answer, WRITES)
    assert "the plan was not approved" in text
    assert server.calls("note") == []


async def test_a_client_that_cannot_be_asked_gets_no_write(serving: Any, server: FakeServer) -> None:
    async with serving(server.http(trust_hints=True), whole=profile()) as here:
        for modern in (True, False):
            client = await here.caller(modern=modern)
            reply = await client.call("script_run", WRITES)
            assert reply.result["isError"]
            assert "the plan was not approved" in reply.text
    assert server.calls("note") == []
