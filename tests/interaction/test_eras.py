"""Servers that speak both eras, and which one is used: by what the caller can answer, or by `protocol`."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from mooring import Answer, ConfigError, Elicitation, ServerConfig
from tests.lab.eras import DUALS, dual_at
from tests.lab.http import HttpLab
from tests.lab.libraries import HttpLibrary, library_server
from tests.lab.stdio import lab_server

pytestmark = pytest.mark.anyio


class Person:
    """Answers every question with a name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, question: Elicitation) -> Answer:
        self.asked.append(question.message)
        return question.accept({"name": "Ana"})


@pytest.mark.parametrize("place", DUALS)
async def test_a_server_of_both_eras_that_asks_during_a_call_reaches_the_user_on_the_first_call(
    place: str, hosting: Any
) -> None:
    person = Person()
    async with dual_at(place) as server, hosting(server, on_elicit=person) as host:
        result = await host.call("mcp_dual_who")
        assert result.text == "accept: Ana", result.text
        assert person.asked == ["Who are you?"]
        done = (await host.call("mcp_dual_done")).text
        assert done.split()[1].split(",").count("who") == 1


@pytest.mark.parametrize("place", ["sdk sse", "handwritten stdio"])
async def test_where_no_one_can_be_asked_the_newest_protocol_is_spoken(place: str, hosting: Any) -> None:
    async with dual_at(place) as server, hosting(server) as host:
        assert (await host.call("mcp_dual_spoken")).text == "2026-07-28"
        assert host.status()[0].protocol == "2026-07-28"


@pytest.mark.parametrize("place", ["sdk http"])
async def test_the_catalog_of_a_server_that_can_be_connected_twice_is_read_in_the_2026_era(
    place: str, hosting: Any
) -> None:
    async with dual_at(place) as server, hosting(server, on_elicit=Person()) as host:
        assert (await host.call("mcp_dual_spoken")).text == "2025-11-25"
        assert host.status()[0].protocol == "2026-07-28"


@pytest.mark.parametrize("place", ["sdk stdio", "handwritten stdio"])
async def test_a_child_process_is_not_started_twice_for_questions(place: str, hosting: Any) -> None:
    async with dual_at(place) as server, hosting(server, on_elicit=Person()) as host:
        await host.call("mcp_dual_who")
        (status,) = host.status()
        assert status.protocol in ("2025-11-25", "2025-06-18")
        assert not status.warnings
        pids = {(await host.call("mcp_dual_done")).text.split()[0] for _ in range(2)}
        assert len(pids) == 1


@pytest.mark.parametrize("place", ["sdk stdio", "sdk http", "sdk sse"])
async def test_a_tool_that_can_ask_only_by_its_result_says_so_once_and_asks_from_the_next_call_on(
    place: str, hosting: Any
) -> None:
    person = Person()
    async with dual_at(place) as server, hosting(server, on_elicit=person) as host:
        first = await host.call("mcp_dual_who_by_result")
        assert first.is_error
        assert "`protocol: 2026-07-28`" in first.text
        assert "not repeated" in first.text
        second = await host.call("mcp_dual_who_by_result")
        assert second.text == "by result: {'name': 'Ana'}", second.text
        assert (await host.call("mcp_dual_who")).text == "accept: Ana"
        async with hosting(server, on_elicit=person) as later:  # another process would know it, too
            assert (await later.call("mcp_dual_who_by_result")).text == "by result: {'name': 'Ana'}"
        assert person.asked == ["Who are you?"] * 3


@pytest.mark.parametrize("place", ["sdk stdio", "sdk http", "sdk sse"])
async def test_an_idempotent_tool_that_asks_by_its_result_reaches_the_user_on_the_first_call(
    place: str, hosting: Any
) -> None:
    person = Person()
    async with (
        dual_at(place, idempotent=("who_by_result",)) as server,
        hosting(server, on_elicit=person) as host,
    ):
        assert (await host.call("mcp_dual_who_by_result")).text == "by result: {'name': 'Ana'}"
        assert person.asked == ["Who are you?"]


@pytest.mark.parametrize("place", ["sdk stdio", "sdk http"])
async def test_a_prompt_that_asks_by_its_result_reaches_the_user_too(place: str, hosting: Any) -> None:
    person = Person()
    async with dual_at(place) as server, hosting(server, on_elicit=person) as host:
        prompt = await host.prompt("dual", "greeting")
        assert "Ana" in str(prompt)
        assert person.asked == ["Who are you?"]


@pytest.mark.parametrize("place", ["sdk stdio", "sdk http"])
async def test_a_call_with_an_invalid_result_is_not_made_twice(place: str, hosting: Any) -> None:
    async with dual_at(place) as server, hosting(server, on_elicit=Person()) as host:
        result = await host.call("mcp_dual_broken")
        assert result.is_error
        assert "may ask" in result.text
        assert (await host.call("mcp_dual_done")).text.count("broken") == 1


@pytest.mark.parametrize("place", ["sdk stdio", "sdk http", "handwritten stdio"])
async def test_a_call_that_could_not_ask_is_not_repeated_and_the_error_names_the_setting(
    place: str, hosting: Any
) -> None:
    async with (
        dual_at(place, protocol="2026-07-28") as server,
        hosting(server, on_elicit=Person()) as host,
    ):
        result = await host.call("mcp_dual_who")
        assert result.is_error
        assert "`protocol: 2025-11-25`" in result.text
        done = (await host.call("mcp_dual_done")).text
        assert done.split()[1].split(",").count("who") == 1


@pytest.mark.parametrize("place", ["sdk http", "handwritten stdio"])
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_protocol_says_which_version_is_spoken(place: str, version: str, hosting: Any) -> None:
    async with (
        dual_at(place, protocol=version) as server,
        hosting(server, on_elicit=Person()) as host,
    ):
        assert host.status()[0].protocol == version
        assert (await host.call("mcp_dual_spoken")).text == version


async def test_min_protocol_keeps_a_host_that_can_be_asked_in_the_2026_era(hosting: Any) -> None:
    async with (
        dual_at("sdk stdio", min_protocol="2026-07-28") as server,
        hosting(server, on_elicit=Person()) as host,
    ):
        assert host.status()[0].protocol == "2026-07-28"
        assert (await host.call("mcp_dual_spoken")).text == "2026-07-28"


async def test_a_child_that_cannot_list_in_the_handshake_era_is_used_in_the_other(hosting: Any) -> None:
    async with (
        dual_at("handwritten stdio", "unlistable") as server,
        hosting(server, on_elicit=Person()) as host,
    ):
        assert host.status()[0].state == "connected", host.status()[0].error
        assert (await host.call("mcp_dual_spoken")).text == "2026-07-28"


@pytest.mark.parametrize(("era", "protocol"), [("legacy", "2026-07-28"), ("modern", "2025-11-25")])
async def test_a_server_that_does_not_speak_the_set_protocol_fails_with_both_versions_named(
    era: str, protocol: str, hosting: Any
) -> None:
    async with hosting(lab_server(era=era, settings={"protocol": protocol})) as host:
        (status,) = host.status()
        assert status.state == "failed"
        assert protocol in (status.error or "")


@pytest.mark.parametrize("era", ["legacy", "modern", "dual", "silent-on-discover", "dies-on-discover"])
async def test_servers_of_every_kind_connect_to_a_host_that_can_be_asked(era: str, hosting: Any) -> None:
    async with hosting(lab_server(era=era), on_elicit=Person()) as host:
        assert host.status()[0].state == "connected", host.status()[0].error
        assert (await host.call("mcp_lab_echo", {"text": "x"})).text == "x"


@pytest.mark.parametrize("code", [-32601, -32022])
async def test_an_http_server_without_the_handshake_is_used_without_a_warning_by_a_host_that_can_be_asked(
    code: int, hosting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def unknown(request: web.Request, message: dict[str, Any]) -> web.Response:
        error = {"code": code, "message": "no", "data": {"supported": ["2026-07-28"]}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with HttpLab() as lab:
        lab.faults["initialize"] = unknown
        async with hosting(lab.config(), on_elicit=Person()) as host:
            assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


async def test_a_tool_that_an_http_server_lists_in_the_2026_era_only_is_called_there(hosting: Any) -> None:
    async def fewer(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        if "_meta" in message.get("params", {}):
            return None
        tools = [{"name": "sleep", "inputSchema": {"type": "object"}}]
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})

    async def not_listed(request: web.Request, message: dict[str, Any]) -> web.Response | None:
        if "io.modelcontextprotocol/protocolVersion" in message["params"].get("_meta", {}):
            return None
        error = {"code": -32602, "message": "unknown tool"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with HttpLab() as lab:
        lab.faults |= {"tools/list": fewer, "tools/call": not_listed}
        async with hosting(lab.config(), on_elicit=Person()) as host:
            for _ in range(2):
                assert (await host.call("mcp_web_echo", {"text": "x"})).text == "x"
        assert "initialize" in lab.methods()


@pytest.mark.parametrize("era", ["legacy", "modern", "dual"])
async def test_a_question_is_answered_whatever_the_server_speaks(era: str, hosting: Any) -> None:
    form = {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    person = Person()
    async with hosting(library_server(era=era), on_elicit=person) as host:
        assert "Ana" in (await host.call("mcp_lib_ask", {"params": form})).text
    async with HttpLibrary(era=era) as lab, hosting(lab.config("lib"), on_elicit=person) as host:
        assert "Ana" in (await host.call("mcp_lib_ask", {"params": form})).text
    assert person.asked == ["Who?"] * 2


def test_protocol_must_be_known_and_not_older_than_the_floor() -> None:
    with pytest.raises(ConfigError, match="2025-11-25"):
        ServerConfig(name="a", command="a", protocol="2025-11-2")
    with pytest.raises(ConfigError, match="min_protocol"):
        ServerConfig(name="a", command="a", protocol="2025-06-18", min_protocol="2025-11-25")
