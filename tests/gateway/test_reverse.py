"""Messages of servers to clients through the gateway: questions in both eras, log lines, subscriptions."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring import ServerConfig
from mooring.gateway import era_bridge
from tests.lab.caller import Caller, soon
from tests.lab.eras import DUALS, dual_at
from tests.lab.stdio import lab_server
from tests.lab.wait import until

pytestmark = pytest.mark.anyio

FIXTURE = Path(__file__).parents[1] / "conformance" / "fixture.py"
ABLE = {"elicitation": {}, "sampling": {}, "roots": {}}
QUESTION = {"message": "Who?"}


def fixture(name: str = "fixture", *, era: str = "dual") -> ServerConfig:
    """The conformance fixture over stdio; `legacy` hides its 2026 era."""
    return ServerConfig(name=name, command=sys.executable, args=(str(FIXTURE), "stdio", era))


async def answering(
    client: Caller, tool: str, answer: dict[str, Any], given: dict[str, Any] = QUESTION
) -> list[dict[str, Any]]:
    """All that a handshake client hears of a call, while it answers every question with `answer`."""
    body, headers = client.message("tools/call", {"name": tool, "arguments": given}, 5)
    heard: list[dict[str, Any]] = []
    async with client.stream(body, headers) as messages:
        async for message in messages:
            heard.append(message)
            if "method" in message and "id" in message:
                reply = {"jsonrpc": "2.0", "id": message["id"], **answer}
                assert (await client.post(reply, headers)).status == 202
    return heard


ACCEPTED = {"result": {"action": "accept", "content": {"response": "me"}}}


@pytest.mark.parametrize("era", ["dual", "legacy"])
async def test_a_handshake_client_is_asked_whatever_era_the_server_speaks(serving: Any, era: str) -> None:
    async with serving(fixture(era=era)) as here:
        client = await here.caller(modern=False, capabilities=ABLE)
        asked, answer = await answering(client, "test_elicitation", ACCEPTED)
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Who?"
        assert answer["result"]["content"][0]["text"].startswith("User response: action=accept")
        said = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"}
        asked, answer = await answering(client, "test_sampling", {"result": said})
        assert asked["method"] == "sampling/createMessage"
        assert answer["result"]["content"][0]["text"] == "LLM response: 42"


async def asked_by_result(
    client: Caller, tool: str, answer: dict[str, Any], given: dict[str, Any] = QUESTION
) -> str:
    """The text of a call that a 2026 client is asked about by its result, and makes again with the answer."""
    asked = (await client.call(tool, given)).result
    assert asked["resultType"] == "input_required", asked
    [(key, request)] = asked["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    more = {"inputResponses": {key: answer}}
    if "requestState" in asked:
        more["requestState"] = asked["requestState"]
    done = (await client.call(tool, given, **more)).result
    assert done["resultType"] == "complete"
    return done["content"][0]["text"]


@pytest.mark.parametrize(
    ("era", "tool", "content", "text"),
    [
        ("dual", "test_input_required_result_elicitation", {"name": "Ana"}, "Hello, Ana!"),
        ("legacy", "test_elicitation", {"response": "me"}, "User response: action=accept"),
    ],
)
async def test_a_modern_client_is_asked_by_a_result_and_comes_back_with_the_answer(
    serving: Any, era: str, tool: str, content: dict[str, str], text: str
) -> None:
    async with serving(fixture(era=era)) as here:
        client = await here.caller(capabilities=ABLE)
        said = await asked_by_result(client, tool, {"action": "accept", "content": content})
        assert said.startswith(text)


@pytest.mark.parametrize("known", ["first run", "in the cache"])
@pytest.mark.parametrize(
    ("server", "tool", "content"),
    [
        (fixture(era="legacy"), "test_elicitation", {"response": "me"}),
        (replace(fixture(), protocol="2025-11-25"), "test_elicitation", {"response": "me"}),
        (fixture(), "test_input_required_result_request_state", {"ok": True}),
    ],
    ids=["legacy", "protocol is set", "modern"],
)
async def test_a_modern_client_is_asked_by_its_first_call_while_the_server_is_not_connected(
    serving: Any, server: ServerConfig, tool: str, content: dict[str, Any], known: str
) -> None:
    server = replace(server, start="lazy")
    if known == "in the cache":
        async with serving(server, cache=True) as here:
            await here.host.refresh()
    async with serving(server, cache=True) as here:
        assert (tool in here.host.catalog.tools) == (known == "in the cache")
        client = await here.caller(capabilities=ABLE)
        given = {} if "state" in tool else QUESTION
        await asked_by_result(client, tool, {"action": "accept", "content": content}, given)


async def test_a_tool_that_cannot_ask_a_modern_client_says_so_once_and_asks_from_the_next_call_on(
    serving: Any,
) -> None:
    async with serving(fixture()) as here:
        client = await here.caller(capabilities=ABLE)
        first = str((await client.call("test_elicitation", QUESTION)).last)
        assert "`protocol: 2025-11-25`" in first
        assert "not repeated" in first
        said = await asked_by_result(client, "test_elicitation", ACCEPTED["result"])
        assert said.startswith("User response: action=accept")


@pytest.mark.parametrize("place", DUALS)
async def test_clients_of_both_eras_are_asked_by_one_server_each_in_its_own_era(
    serving: Any, place: str
) -> None:
    """On the first call of each, in front of a plain server that does not look at the protocol version."""
    async with dual_at(place) as server, serving(server) as here:
        old, new, able = [
            await here.caller(modern=modern, capabilities=capabilities)
            for modern, capabilities in ((False, ABLE), (True, {}), (True, ABLE))
        ]
        answer = {"result": {"action": "accept", "content": {"name": "Ana"}}}
        asked, done = await answering(old, "who", answer)
        assert asked["method"] == "elicitation/create"
        assert done["result"]["content"][0]["text"] == "accept: Ana"
        assert (await new.call("spoken")).text == "2026-07-28"
        assert (await old.call("spoken")).text in ("2025-11-25", "2025-06-18")
        if "sdk" in place:
            text = await asked_by_result(able, "who_by_result", answer["result"])
            assert text == "by result: {'name': 'Ana'}"
        asked, done = await answering(old, "who", answer)
        assert done["result"]["content"][0]["text"] == "accept: Ana"


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("era", ["dual", "legacy"])
async def test_a_request_to_a_client_without_the_capability_is_rejected_and_the_call_ends(
    serving: Any, modern: bool, era: str
) -> None:
    async with serving(fixture(era=era)) as here:
        client = await here.caller(modern=modern)
        reply = await client.call("test_elicitation", QUESTION)
        said = str(reply.last)
        assert any(
            words in said for words in ("does not support", "input_required", "apabilit", "back-channel")
        )


async def test_state_is_good_only_for_whom_and_for_what_it_was_given(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANA", "ana-0123456789abcdef")
    monkeypatch.setenv("BOB", "bob-0123456789abcdef")
    tokens = [{"name": "ana", "token": "${ANA}"}, {"name": "bob", "token": "${BOB}"}]
    tool, other = "test_input_required_result_request_state", "test_input_required_result_multi_round"
    async with serving(fixture(), gateway={"tokens": tokens}) as here:
        ana = await here.caller(token="ana-0123456789abcdef", capabilities=ABLE)
        bob = await here.caller(token="bob-0123456789abcdef", capabilities=ABLE)
        state = (await ana.call(tool)).result["requestState"]
        more = {"inputResponses": {"confirm": {"action": "accept", "content": {"ok": True}}}}
        assert (await bob.call(tool, requestState=state, **more)).error["code"] == -32602
        assert (await ana.call(other, requestState=state, **more)).error["code"] == -32602
        assert (await ana.call(tool, requestState=state[:-2], **more)).error["code"] == -32602
        assert (await ana.call(tool, requestState=state, **more)).text == "state-ok"


async def test_log_lines_reach_the_client_whose_call_they_belong_to_and_no_other(serving: Any) -> None:
    async with serving(fixture(era="legacy")) as here:
        client, other = await here.caller(modern=False), await here.caller(modern=False)
        async with other.standing() as elsewhere:
            reply = await client.call("test_tool_with_logging")
            texts = [
                m["params"]["data"] for m in reply.messages if m.get("method") == "notifications/message"
            ]
            assert texts == ["Tool execution started", "Tool processing data", "Tool execution completed"]
            await client.ask("logging/setLevel", {"level": "error"})
            quiet = await client.call("test_tool_with_logging")
            assert len(quiet.messages) == 1
            with pytest.raises(TimeoutError):
                await soon(elsewhere, 0.2)


async def test_a_modern_client_gets_log_lines_only_when_it_asks_for_them(serving: Any) -> None:
    async with serving(fixture()) as here:
        client = await here.caller()
        assert len((await client.call("test_tool_with_logging")).messages) == 1
        level = {"io.modelcontextprotocol/logLevel": "info"}
        reply = await client.call("test_tool_with_logging", _meta=level)
        assert [m.get("method") for m in reply.messages].count("notifications/message") == 3


@pytest.mark.parametrize("era", ["dual", "legacy"])
async def test_a_changed_resource_is_announced_to_its_subscribers(serving: Any, era: str) -> None:
    uri = "test://watched-resource"
    async with serving(fixture(era=era)) as here:
        old, new, other = [await here.caller(modern=modern) for modern in (False, True, False)]
        assert (await old.ask("resources/subscribe", {"uri": uri})).result == {}
        async with (
            old.standing() as standing,
            new.listening(resourceSubscriptions=[uri]) as listening,
            other.standing() as elsewhere,
        ):
            await new.call("test_touch_resource")
            for messages in (standing, listening):
                received = await soon(messages)
                assert received["method"] == "notifications/resources/updated"
                assert received["params"]["uri"] == uri
            await old.ask("resources/unsubscribe", {"uri": uri})
            with pytest.raises(TimeoutError):
                await soon(elsewhere, 0.2)
        await until(lambda: not here.serving.gateway.era_bridge.watching)


@pytest.mark.parametrize("era", ["dual", "legacy"])
async def test_a_resource_of_a_server_of_its_own_is_watched_for_each_session_by_itself(
    serving: Any, era: str
) -> None:
    uri = "test://watched-resource"
    async with serving(replace(fixture(era=era), isolation="session")) as here:
        one, other = await here.caller(modern=False), await here.caller(modern=False)
        for client in (one, other):
            assert (await client.ask("resources/subscribe", {"uri": uri})).result == {}
        async with one.standing() as standing, other.standing() as elsewhere:
            await other.call("test_touch_resource")
            assert (await soon(elsewhere))["params"]["uri"] == uri
            await one.call("test_touch_resource")
            assert (await soon(standing))["params"]["uri"] == uri
            with pytest.raises(TimeoutError):  # each received only its own
                await soon(standing, 0.2)


async def test_a_watched_resource_stays_watched_when_its_server_is_replaced(serving: Any) -> None:
    uri = "test://watched-resource"
    async with serving(fixture()) as here:
        client = await here.caller(modern=False)
        assert (await client.ask("resources/subscribe", {"uri": uri})).result == {}
        changed = replace(fixture(), env={"ANOTHER": "1"})
        await here.host.apply(replace(here.host.config, servers=(changed,)))
        async with client.standing() as standing:
            await here.host.refresh("fixture")
            await client.call("test_touch_resource")
            while (await soon(standing))["method"] != "notifications/resources/updated":
                pass


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
async def test_resources_prompts_and_completion_go_through(serving: Any, modern: bool) -> None:
    async with serving(fixture(), style="mcp") as here:
        client = await here.caller(modern=modern)
        listed = (await client.ask("resources/list")).result["resources"]
        assert "test://static-text" in [resource["uri"] for resource in listed]
        templates = (await client.ask("resources/templates/list")).result["resourceTemplates"]
        assert templates[0]["uriTemplate"] == "test://template/{id}/data"
        read = (await client.ask("resources/read", {"uri": "test://template/7/data"})).result
        assert '"id": "7"' in read["contents"][0]["text"]
        prompts = [prompt["name"] for prompt in (await client.ask("prompts/list")).result["prompts"]]
        assert "mcp_fixture_test_simple_prompt" in prompts
        given = {"name": "mcp_fixture_test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}}
        prompt = (await client.ask("prompts/get", given)).result
        assert "arg1='a'" in prompt["messages"][0]["content"]["text"]
        ref = {"type": "ref/prompt", "name": "mcp_fixture_test_prompt_with_arguments"}
        params = {"ref": ref, "argument": {"name": "arg1", "value": "par"}}
        completed = (await client.ask("completion/complete", params)).result["completion"]
        assert completed["values"] == ["paris", "park", "party"]
        missing = await client.ask("resources/read", {"uri": "test://no-such-thing"})
        assert missing.error["code"] in ((-32602,) if modern else (-32602, -32002))


async def test_what_the_operator_does_not_allow_to_be_read_is_not_read_for_a_client(serving: Any) -> None:
    async with serving(fixture(), resource_uri_allowlist=["https"]) as here:
        client = await here.caller()
        reply = await client.ask("resources/read", {"uri": "test://static-text"})
        assert reply.error["code"] == -32602
        assert "resource_uri_allowlist" in reply.error["message"]


async def test_no_client_is_asked_when_two_share_a_pipe_and_the_request_is_ambiguous(
    serving: Any,
) -> None:
    async with serving(fixture(era="legacy")) as here:
        clients = [await here.caller(modern=False, capabilities=ABLE) for _ in range(2)]
        busy = asyncio.create_task(clients[1].call("test_slow"))
        await until(lambda: here.serving.gateway.under_way == 1)
        reply = await clients[0].call("test_elicitation", QUESTION)
        assert "method" not in reply.messages[0]
        busy.cancel()


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
async def test_a_question_that_is_never_answered_keeps_no_other_client_from_being_asked(
    serving: Any, modern: bool
) -> None:
    async with serving(fixture(era="legacy")) as here:
        gone = await here.caller(modern=modern, capabilities=ABLE)
        if modern:
            assert (await gone.call("test_elicitation", QUESTION)).result["resultType"] == "input_required"
        else:
            body, headers = gone.message("tools/call", {"name": "test_elicitation", "arguments": QUESTION}, 5)
            heard = asyncio.Event()
            reading = asyncio.create_task(unanswered(gone, body, headers, heard))
            await asyncio.wait_for(heard.wait(), 20)
        for _ in range(2):
            client = await here.caller(modern=False, capabilities=ABLE)
            asked, answer = await answering(client, "test_elicitation", ACCEPTED)
            assert asked["method"] == "elicitation/create"
            assert "action=accept" in answer["result"]["content"][0]["text"]
            new = await here.caller(capabilities=ABLE)
            assert "action=accept" in await asked_by_result(new, "test_elicitation", ACCEPTED["result"])
        if not modern:
            assert not reading.done()
            reading.cancel()


async def unanswered(client: Caller, body: Any, headers: dict[str, str], heard: asyncio.Event) -> None:
    """Hold the stream of a call, say when a question has come, and answer nothing."""
    async with client.stream(body, headers) as messages:
        async for _ in messages:
            heard.set()


async def test_an_answer_that_no_call_waits_for_gets_no_advice_to_call_again(serving: Any) -> None:
    async with serving(fixture(era="legacy")) as here:
        client = await here.caller(capabilities=ABLE)
        asked = (await client.call("test_elicitation", QUESTION)).result
        [key] = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
        assert "action=accept" in (await client.call("test_elicitation", QUESTION, **more)).text
        again = (await client.call("test_elicitation", QUESTION, **more)).error
        assert again["code"] == -32602
        assert "may still be running" in again["message"]
        assert "make it again" not in again["message"]


async def test_a_principal_that_leaves_questions_unanswered_loses_its_own_oldest(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(era_bridge, "MAX_CALLS_PER_PRINCIPAL", 2)
    async with serving(fixture(era="legacy")) as here:
        client = await here.caller(capabilities=ABLE)
        states = [(await client.call("test_elicitation", QUESTION)).result for _ in range(3)]

        async def answered(asked: dict[str, Any]) -> str:
            [key] = asked["inputRequests"]
            more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
            return str((await client.call("test_elicitation", QUESTION, **more)).last)

        assert "no call waits" in await answered(states[0])
        assert "action=accept" in await answered(states[1])
        assert "action=accept" in await answered(states[2])


async def test_a_call_that_waits_for_an_answer_is_cancelled_after_its_limit(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(era_bridge, "WAIT", 0.1)
    async with serving(fixture(era="legacy")) as here:
        client = await here.caller(capabilities=ABLE)
        asked = (await client.call("test_elicitation", QUESTION)).result
        await until(lambda: not here.serving.gateway.era_bridge.suspended_calls._waiting)
        [key] = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
        assert "no call waits" in (await client.call("test_elicitation", QUESTION, **more)).error["message"]


async def test_state_is_good_for_an_hour(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(fixture(era="legacy")) as here:
        client = await here.caller(capabilities=ABLE)
        asked = (await client.call("test_elicitation", QUESTION)).result
        [key] = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED["result"]}}
        now = time.time()
        monkeypatch.setattr(era_bridge.time, "time", lambda: now + 3602)
        late = await client.call("test_elicitation", QUESTION, **more)
        assert "invalid or expired" in late.error["message"]
        monkeypatch.setattr(era_bridge.time, "time", lambda: now + 3590)
        assert "action=accept" in (await client.call("test_elicitation", QUESTION, **more)).text


async def test_a_client_that_reconnects_gets_missed_notifications_once(serving: Any) -> None:
    async def stream(last: str | None, count: int) -> list[str]:
        """The ids of so many events; then the stream breaks."""
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(client.session)}
        headers |= {"Last-Event-ID": last} if last is not None else {}
        ids: list[str] = []
        async with asyncio.timeout(10), here.http.get(client.url, headers=headers) as response:
            opened.set()
            async for line in response.content:
                if line.startswith(b"id:"):
                    ids.append(line[3:].strip().decode())
                    if len(ids) == count:
                        break
        return ids

    async with serving(lab_server(tools=["grow"])) as here:
        client, opened = await here.caller(modern=False), asyncio.Event()
        reading = asyncio.create_task(stream(None, 2))
        await opened.wait()
        await client.call("grow", {"name": "echo"})
        assert await reading == ["0", "1"]  # where it begins, and the first change
        [session] = here.serving.gateway.registry
        for number, name in enumerate(("pid", "fail"), 2):
            await client.call("grow", {"name": name})
            await until(lambda received=number: session.notified == received)
        assert await stream("1", 3) == ["1", "2", "3"]
        assert await stream("3", 1) == ["3"]
        assert await stream("99999", 1) == ["3"]
