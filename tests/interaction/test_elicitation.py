"""Questions of a server to the user during a call: both eras, every transport."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from mooring import Answer, CallTimeout, Elicitation, ServerConfig, ServerError, SyncHost
from mooring.testing import VirtualClock
from tests.lab.libraries import PLACES, library_at, library_server
from tests.lab.stdio import wire_log

pytestmark = pytest.mark.anyio

NAME = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer"}},
        "required": ["name"],
    },
}
LINK = {"mode": "url", "message": "Sign in.", "url": "https://login.example/x", "elicitationId": "1"}


def answer_in(text: str) -> Any:
    """What the server was answered: it repeats that in its result."""
    said = json.loads(text)
    return said.get("q", said)


@pytest.mark.parametrize("place", PLACES)
async def test_a_form_reaches_the_callback_and_its_answer_the_server(place: str, hosting: Any) -> None:
    asked: list[Elicitation] = []

    async def on_elicit(question: Elicitation) -> Answer:
        asked.append(question)
        return question.accept({"name": "Ana", "age": 40})

    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_ask", {"params": NAME})
        assert answer_in(result.text) == {"action": "accept", "content": {"name": "Ana", "age": 40}}
        (question,) = asked
        assert (question.server, question.mode, question.message) == ("lib", "form", "Who are you?")
        assert question.schema == NAME["requestedSchema"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_url_is_shown_with_its_host_and_accepting_sends_no_content(place: str, hosting: Any) -> None:
    asked: list[Elicitation] = []

    def on_elicit(question: Elicitation) -> Answer:
        asked.append(question)
        return question.accept()

    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_ask", {"params": LINK})
        assert answer_in(result.text) == {"action": "accept"}
        assert (asked[0].mode, asked[0].host, asked[0].url) == ("url", "login.example", LINK["url"])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("word", ["decline", "cancel"])
async def test_a_no_is_passed_on(place: str, word: str, hosting: Any) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        return getattr(question, word)()

    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        assert answer_in((await host.call("mcp_lib_ask", {"params": NAME})).text) == {"action": word}


@pytest.mark.parametrize("place", PLACES)
async def test_the_ability_is_declared_only_with_a_callback(place: str, hosting: Any) -> None:
    async def on_elicit(question: Elicitation) -> None:
        return None

    async with library_at(place) as server, hosting(server) as host:
        assert "elicitation" not in json.loads((await host.call("mcp_lib_capabilities")).text)
    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        reported = json.loads((await host.call("mcp_lib_capabilities")).text)
        assert reported["elicitation"] == {"form": {}, "url": {}}
        assert "sampling" not in reported
        assert "roots" not in reported


@pytest.mark.parametrize("place", PLACES)
async def test_where_no_one_is_asked_server_and_model_learn_what_the_question_was(
    place: str, hosting: Any
) -> None:
    async with library_at(place) as server, hosting(server) as host:
        result = await host.call("mcp_lib_ask", {"params": NAME})
        assert "Who are you?" in result.text
        assert "on_elicit" in result.text
        assert "-32601" in result.text if "legacy" in place else result.is_error


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "x/y"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_TH29_other_requests_during_a_call_are_refused_clearly(
    method: str, era: str, hosting: Any
) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        raise AssertionError("on_elicit must not be called")

    async with hosting(library_server(era=era), on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_ask", {"method": method, "params": {"message": "x"}})
        assert f"{method} is not offered" in result.text


async def test_several_rounds_are_answered_and_endless_ones_given_up(hosting: Any) -> None:
    rounds = 0

    async def on_elicit(question: Elicitation) -> Answer:
        nonlocal rounds
        rounds += 1
        return question.accept({"name": "Ana"})

    async with hosting(library_server(era="modern"), on_elicit=on_elicit) as host:
        assert not (await host.call("mcp_lib_ask", {"params": NAME, "rounds": 5})).is_error
        assert rounds == 5
        endless = await host.call("mcp_lib_ask", {"params": NAME, "rounds": 1000})
        assert isinstance(endless.error, ServerError)
        assert "8 times" in endless.text
        assert rounds == 5 + 7  # what comes of the eighth would not be sent any more


async def test_the_state_of_the_server_goes_back_as_it_came(tmp_path: Path, hosting: Any) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        return question.decline()

    log = tmp_path / "log"
    async with hosting(library_server(era="modern", log=str(log)), on_elicit=on_elicit) as host:
        await host.call("mcp_lib_ask", {"params": NAME})
    first, second = [e for e in wire_log(log) if e.get("method") == "tools/call"]
    assert "requestState" not in first["params"]
    assert second["params"]["requestState"] == "1"
    assert second["params"]["inputResponses"] == {"q": {"action": "decline"}}
    assert second["params"]["arguments"] == first["params"]["arguments"]
    assert first["id"] != second["id"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("content", [{}, {"name": "A"}, {"name": "Ana", "age": "old"}, {"nam": "Ana"}])
async def test_an_answer_that_does_not_fit_the_form_is_never_sent(
    era: str, content: dict[str, Any], hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        return Answer(action="accept", content=content)

    async with hosting(library_server(era=era), on_elicit=on_elicit) as host:
        assert answer_in((await host.call("mcp_lib_ask", {"params": NAME})).text) == {"action": "cancel"}
    assert "on_elicit failed" in caplog.text


async def test_a_callback_that_returns_something_else_than_an_answer_is_reported(
    hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def on_elicit(question: Elicitation) -> Any:
        return {"name": "Ana"}

    async with hosting(library_server(), on_elicit=on_elicit) as host:
        assert answer_in((await host.call("mcp_lib_ask", {"params": NAME})).text) == {"action": "cancel"}
    assert "on_elicit must return an Answer, such as question.accept(...), or None, not dict" in caplog.text


async def test_the_time_the_user_thinks_is_not_the_servers_silence(hosting: Any) -> None:
    """The call may be silent for 3 s; the user takes three times as long."""
    clock = VirtualClock()

    async def on_elicit(question: Elicitation) -> Answer:
        for _ in range(9):
            await clock.advance(1)
        return question.accept({"name": "Ana"})

    settings = {"idle_timeout": 3, "call_timeout": 20}
    for era in ("legacy", "modern"):
        async with hosting(library_server(era=era, settings=settings), on_elicit=on_elicit) as host:
            assert not (await host.call("mcp_lib_ask", {"params": NAME})).is_error


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_deadline_of_the_call_holds_while_the_user_thinks(era: str, hosting: Any) -> None:
    ended = anyio.Event()

    async def on_elicit(question: Elicitation) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with hosting(library_server(era=era), on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_ask", {"params": NAME}, timeout=0.5)
        assert isinstance(result.error, CallTimeout)
    assert ended.is_set()


@pytest.mark.parametrize("end", ["cancelled", "timed out"])
@pytest.mark.parametrize("place", PLACES)
async def test_a_question_of_an_abandoned_call_blocks_no_other(place: str, end: str, hosting: Any) -> None:
    asked, closed = anyio.Event(), anyio.Event()

    async def on_elicit(question: Elicitation) -> Answer:
        if not asked.is_set():
            asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                closed.set()
        return question.accept({"name": "Ana"})

    async with library_at(place) as server, hosting(server, on_elicit=on_elicit) as host:
        async with anyio.create_task_group() as tasks:
            first = partial(
                host.call, "mcp_lib_ask", {"params": NAME}, timeout=0.5 if end != "cancelled" else 60
            )
            tasks.start_soon(first)
            with anyio.fail_after(20):
                await asked.wait()
                if end == "cancelled":
                    tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            result = await host.call("mcp_lib_ask", {"params": NAME})
            assert answer_in(result.text) == {"action": "accept", "content": {"name": "Ana"}}
            await closed.wait()


async def test_a_question_without_a_call_is_cancelled_after_a_limit(
    tmp_path: Path, hosting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.transport.limits.UNRELATED_TIMEOUT", 0.2)
    answer, server = tmp_path / "answer", tmp_path / "server.py"
    server.write_text(f"""
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}},
                       "serverInfo": {{"name": "x", "version": "1"}}}}
        case "tools/list":
            result = {{"tools": []}}
        case None:
            with open({str(answer)!r}, "w") as file:
                file.write(json.dumps(message))
            continue
        case method if "id" in message:
            error = {{"code": -32601, "message": "unknown"}}
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "error": error}}), flush=True)
            continue
        case _:
            continue
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
    if message["method"] == "tools/list":
        question = {json.dumps(NAME)}
        print(json.dumps({{"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question}}),
              flush=True)
""")
    ended = anyio.Event()

    async def on_elicit(question: Elicitation) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    config = ServerConfig(name="lib", command=sys.executable, args=[str(server)])
    async with hosting(config, on_elicit=on_elicit):
        with anyio.fail_after(20):
            await ended.wait()
            while not (answer.exists() and answer.read_text()):
                await anyio.sleep(0.01)
    assert json.loads(answer.read_text()) == {"jsonrpc": "2.0", "id": "q", "result": {"action": "cancel"}}


async def test_a_question_stays_while_a_call_that_it_may_belong_to_is_under_way(hosting: Any) -> None:
    asked, answer = anyio.Event(), anyio.Event()
    texts: list[str] = []

    async def on_elicit(question: Elicitation) -> Answer:
        asked.set()
        await answer.wait()
        return question.accept({"name": "Ana"})

    async with hosting(library_server(era="legacy"), on_elicit=on_elicit) as host:

        async def ask() -> None:
            texts.append((await host.call("mcp_lib_ask", {"params": NAME})).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            with anyio.fail_after(20):
                await asked.wait()
            result = await host.call("mcp_lib_ask", {"params": NAME}, timeout=0.2)
            assert isinstance(result.error, CallTimeout)
            answer.set()
        assert answer_in(texts[0]) == {"action": "accept", "content": {"name": "Ana"}}


async def test_questions_come_one_at_a_time_and_no_server_buries_the_user(hosting: Any) -> None:
    at_once = most = asked = 0
    go = anyio.Event()

    async def on_elicit(question: Elicitation) -> Answer:
        nonlocal at_once, most, asked
        at_once, asked = at_once + 1, asked + 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        return question.decline()

    answers: list[Any] = []
    async with hosting(library_server(era="modern"), on_elicit=on_elicit) as host:

        async def call() -> None:
            answers.append(answer_in((await host.call("mcp_lib_ask", {"params": NAME})).text)["action"])
            if answers.count("cancel") == 12:
                go.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
    assert (most, asked) == (1, 8)
    assert sorted(answers) == ["cancel"] * 12 + ["decline"] * 8


def test_a_plain_function_answers_for_the_synchronous_host() -> None:
    def on_elicit(question: Elicitation) -> Answer:
        return question.accept({"name": "Ana"})

    with SyncHost([library_server()], on_elicit=on_elicit, lock=False) as host:
        answered = answer_in(host.call("mcp_lib_ask", {"params": NAME}).text)
        assert answered["content"] == {"name": "Ana"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://bank.example@evil.example/",
        "https:///nowhere",
        "https://exa mple/",
        "ftp://x",
    ],
)
async def test_TH28_an_address_that_hides_where_it_leads_never_reaches_the_user(
    era: str, url: str, hosting: Any
) -> None:
    async def on_elicit(question: Elicitation) -> Answer:
        raise AssertionError("on_elicit must not be called")

    async with hosting(library_server(era=era), on_elicit=on_elicit) as host:
        result = await host.call("mcp_lib_ask", {"params": {**LINK, "url": url}})
        assert "was not shown to the user" in result.text
